"""Optional dependencies: one place that says what to install when one is missing."""

from __future__ import annotations

import importlib
from types import ModuleType

from synthgeo.errors import ConfigError


def require(module: str, *, extra: str) -> ModuleType:
    """Import an optional module, or say in one line which extra brings it."""
    try:
        return importlib.import_module(module)
    except ImportError as missing:
        root = module.partition(".")[0]
        if missing.name is not None and missing.name.partition(".")[0] != root:
            raise  # the extra is there and something inside it is broken: show that, not a wrong hint
        raise ConfigError(f"this needs {root!r}: run  pip install 'synthgeo[{extra}]'") from None

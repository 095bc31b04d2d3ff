"""Modules that load late: optional dependencies, and the names of ``sg`` when they are first used."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

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


# ADR 1: the sibling packages have generic names, so another distribution may have installed one of them.
_MARKER = "__synthgeo_part__"


def load_part(module: str) -> ModuleType:
    """Import one of our modules; refuse a package of the same name from another distribution."""
    from synthgeo import __version__

    package = module.partition(".")[0]
    if package != "synthgeo" and getattr(importlib.import_module(package), _MARKER, None) != __version__:
        raise ConfigError(
            f"the top-level package {package!r} that Python found is not the one that synthgeo {__version__} "
            "installed: another distribution owns that name; install synthgeo into an environment of its own"
        )
    return importlib.import_module(module)


def lazy(namespace: str, where: Mapping[str, str]) -> Callable[[str], Any]:
    """A module's ``__getattr__``: ``where`` says which module defines each public name."""

    def load(name: str) -> Any:
        if name not in where:
            raise AttributeError(f"module {namespace!r} has no attribute {name!r}")
        return getattr(load_part(where[name]), name)

    return load

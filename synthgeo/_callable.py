"""Packages that share their name with a public function, ``sg.audit`` and ``sg.report``.

Importing a submodule binds the package to its name in ``synthgeo``, over the function that the facade put
there. So the package itself can be called, and both mean the same.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any


def make_callable(package: str, *, module: str) -> None:
    """Let ``package(...)`` call the function of the same name in ``module``."""

    class CallablePackage(ModuleType):
        def __call__(self, *args: Any, **options: Any) -> Any:
            return getattr(importlib.import_module(module), package.rpartition(".")[2])(*args, **options)

    sys.modules[package].__class__ = CallablePackage

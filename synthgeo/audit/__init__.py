"""Attempts to break the promise: black-box lower bounds on ε, exact white-box losses, neighbours, membership.

``sg.audit(...)`` is the black-box one. An audit never proves privacy; it can only show that a promise is
broken.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Audit(ModuleType):
    """Importing a submodule binds this package to ``synthgeo.audit``, which is also the public function's
    name.
    """

    def __call__(self, *args: Any, **options: Any) -> Any:
        from synthgeo.audit.blackbox import audit

        return audit(*args, **options)


sys.modules[__name__].__class__ = _Audit

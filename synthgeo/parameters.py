"""Parameters of an object, in scikit-learn's words: ``get_params``, ``set_params`` and ``clone``.

A class that spells out every argument of its constructor gets all of it, and a ``repr``, from that signature
alone. What was *given* is kept apart from what is default, so that a constructor can refuse an argument that
would have no effect (``given``).
"""

from __future__ import annotations

import copy
import inspect
from typing import Any, Self

import numpy as np

from synthgeo.errors import ConfigError
from synthgeo.privacy.noise import Noise


class Parameters:
    """Mixin for classes with keyword-only constructors."""

    _given: dict[str, Any]

    def __new__(cls, *_: Any, **given: Any) -> Self:
        """Take note of the arguments; the constructor itself checks them."""
        made = super().__new__(cls)
        made._given = given
        return made

    @classmethod
    def parameter_names(cls) -> tuple[str, ...]:
        """The names of the constructor's arguments, in order."""
        return tuple(_signature(cls))

    def given(self, *names: str) -> list[str]:
        """Those of ``names`` that the constructor was given, whatever their values."""
        return [name for name in names if name in self._given]

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002 - scikit-learn's signature
        """Every argument of the constructor with its value, given or default."""
        return {name: self._given.get(name, default) for name, default in _signature(type(self)).items()}

    def set_params(self, **changes: Any) -> Self:
        """Make this object as if it had been constructed with these changes. Only before it is used."""
        unknown = sorted(set(changes) - set(_signature(type(self))))
        if unknown:
            raise ConfigError(f"{type(self).__name__} has no parameter {', '.join(unknown)}")
        if self._in_use():
            raise ConfigError(
                f"this {type(self).__name__} is in use; clone() makes a fresh one, which can be changed"
            )
        self.__dict__ = type(self)(**{**self._given, **changes}).__dict__
        return self

    def clone(self) -> Self:
        """A fresh object with copies of the same parameters, which has read, released and spent nothing."""
        return type(self)(**{name: _copied(value) for name, value in self._given.items()})

    def __sklearn_clone__(self) -> Self:
        return self.clone()

    def _in_use(self) -> bool:
        """Whether parameters may no longer change: it has spent, or begun to."""
        return getattr(self, "spent", None) is not None

    def __repr__(self) -> str:
        given = {name: self._given[name] for name in _signature(type(self)) if name in self._given}
        shown = ", ".join(f"{name}={value!r}" for name, value in given.items() if value is not None)
        return f"{type(self).__name__}({shown})"


def _copied(value: Any) -> Any:
    """Noise goes on by itself and containers can change; all else (domains, budgets, ledgers) is shared."""
    return copy.deepcopy(value) if isinstance(value, Noise | list | dict | np.ndarray) else value


def _signature(kind: type) -> dict[str, Any]:
    """The constructor's arguments and their defaults."""
    parameters = list(inspect.signature(kind.__init__).parameters.values())[1:]  # type: ignore[misc]
    return {parameter.name: parameter.default for parameter in parameters}


__all__ = ["Parameters"]

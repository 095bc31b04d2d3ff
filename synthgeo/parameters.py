"""Settings, and parameters of an object in scikit-learn's words: ``get_params``, ``set_params``, ``clone``.

A class that spells out every argument of its constructor gets all of it, and a ``repr``, from that signature
alone.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from synthgeo.errors import ConfigError
from synthgeo.privacy.noise import Noise

S = TypeVar("S", bound="Settings")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Base of the settings of a family of products: a frozen dataclass, checked when it is made."""

    def _check(self, **checked: Any) -> None:
        """Take over values as their checks gave them."""
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def changed(self) -> list[str]:
        """The names of the settings that are not at their defaults."""
        return [f.name for f in fields(self) if not _same(getattr(self, f.name), f.default)]

    def only(self, product: str, names: Iterable[str] | None) -> Self:
        """These settings, if none but ``names`` is changed: others would have no effect on ``product``."""
        idle = [name for name in self.changed() if names is not None and name not in set(names)]
        if idle:
            raise ConfigError(f"{idle[0]} has no effect on {product}: leave it out of its settings")
        return self


def check_settings(settings: Any, kind: type[S]) -> S:
    """The settings of a product, the defaults for None; anything else is refused."""
    if settings is None:
        return kind()
    if not isinstance(settings, kind):
        raise ConfigError(f"settings must be {kind.__name__}(...), got {type(settings).__name__}")
    return settings


def _same(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and bool(value == default))


class Parameters:
    """Mixin for classes with keyword-only constructors."""

    #: Arguments that are dataclasses of named choices: settings, columns.
    parts: ClassVar[dict[str, type]] = {}
    #: The settings that have an effect; None: all of them.
    takes: ClassVar[tuple[str, ...] | None] = None
    #: Settings that the product fixes for itself.
    fixed: ClassVar[dict[str, Any]] = {}
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

    @classmethod
    def from_options(cls, **options: Any) -> Self:
        """Made of choices by their names alone: those of settings and columns find their place."""
        for part, kind in cls.parts.items():
            own = [f.name for f in fields(kind) if f.name in options]
            if own:
                given: Any = options.get(part)
                named = {name: options.pop(name) for name in own}
                wrong = given is not None and not isinstance(given, kind)
                if wrong:
                    raise ConfigError(f"{part} must be {kind.__name__}(...), got {type(given).__name__}")
                options[part] = kind(**named) if given is None else replace(given, **named)
        return cls(**options)

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
        shown = ", ".join(f"{name}={_shown(value)}" for name, value in given.items() if value is not None)
        return f"{type(self).__name__}({shown})"


def _shown(value: Any) -> str:
    """A value in the ``repr`` of what it was given to; of settings, those that are not at their defaults."""
    if not isinstance(value, Settings):
        return repr(value)
    changed = ", ".join(f"{name}={getattr(value, name)!r}" for name in value.changed())
    return f"{type(value).__name__}({changed})"


def _copied(value: Any) -> Any:
    """Noise goes on by itself and containers can change; all else (domains, budgets, ledgers) is shared."""
    return copy.deepcopy(value) if isinstance(value, Noise | list | dict | np.ndarray) else value


def _signature(kind: type) -> dict[str, Any]:
    """The constructor's arguments and their defaults."""
    parameters = list(inspect.signature(kind.__init__).parameters.values())[1:]  # type: ignore[misc]
    return {parameter.name: parameter.default for parameter in parameters}


__all__ = ["Parameters", "Settings", "check_settings"]

"""One way to write frozen dataclasses: settings, released measurements, state.

``dump`` turns a dataclass of numbers, texts, arrays, tuples, mappings, enums and other such classes into
plain JSON and named arrays; ``load`` makes an equal one again, through its constructor, so that what a class
refuses is refused here too. Files with a checksum are those of ``synthgeo.state``. Each class has a version
(``codec_version``, 1 where none is given): what another version wrote is refused.
"""

from __future__ import annotations

import enum
import math
import types
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from synthgeo.errors import StateError

Arrays = dict[str, np.ndarray]
_CLASS, _VERSION, _ARRAY = "class", "version", "array"


@dataclass
class _Writing:
    """The arrays written so far, and the name of each: an array that is used twice is written once."""

    arrays: Arrays
    names: dict[int, str]


@dataclass
class _Reading:
    """The arrays to read, and what was made of them: an object that was shared is shared again."""

    arrays: Mapping[str, np.ndarray]
    made: dict[Any, Any]


def dump(value: Any) -> tuple[Any, Arrays]:
    """Plain JSON and named arrays.

    >>> from synthgeo.privacy.budget import PrivacyBudget
    >>> values, arrays = dump(PrivacyBudget(1.0))
    >>> values["epsilon"], load(PrivacyBudget, values, arrays)
    (1.0, PrivacyBudget(epsilon=1.0, delta=0.0))
    """
    to = _Writing({}, {})
    return _plain(value, "", to), to.arrays


def load(kind: Any, values: Any, arrays: Mapping[str, np.ndarray] | None = None) -> Any:
    """What ``dump`` wrote of a class, or of any type; ``StateError`` where it is of another class or version.

    A class with a method ``checked`` is made by that: it looks at values from whomever they come.
    """
    return _made(kind, values, _Reading(arrays or {}, {}))


class Stateful:
    """An object whose steps change the attributes that ``keeps`` names, with their types."""

    keeps: ClassVar[dict[str, Any]] = {}

    def to_state(self) -> tuple[dict[str, Any], Arrays]:
        """Plain values and arrays from which ``restore`` goes on bit for bit."""
        values, arrays = dump(self)
        return values, arrays

    def restore(self, values: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        """Take over what ``to_state`` wrote, from values and arrays that may hold more."""
        self._take(values, _Reading(arrays, {}))

    def restored(self) -> None:
        """Check what was taken over; ``ValueError`` where it does not fit."""

    def _take(self, values: Mapping[str, Any], source: _Reading) -> None:
        for name, hint in self.keeps.items():
            now = getattr(self, name)
            if isinstance(now, Stateful):
                now = copy(now)
                now._take(values[name], source)  # noqa: SLF001 - of the same kind
                setattr(self, name, now)
            else:
                setattr(self, name, _made(hint, values[name], source))
        self.restored()


def _plain(value: Any, path: str, to: _Writing) -> Any:
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, np.ndarray):
        name = to.names.setdefault(id(value), path or _ARRAY)
        to.arrays[name] = value
        return {_ARRAY: name}
    if isinstance(value, Stateful):
        return {name: _plain(getattr(value, name), _under(path, name), to) for name in value.keeps}
    if is_dataclass(value) and not isinstance(value, type):
        held = {f.name: _plain(getattr(value, f.name), _under(path, f.name), to) for f in _own(type(value))}
        return {_CLASS: type(value).__name__, _VERSION: _version(type(value)), **held}
    if isinstance(value, Mapping):
        if all(isinstance(name, str) for name in value):
            return {name: _plain(held, _under(path, name), to) for name, held in value.items()}
        value = tuple(value.items())
    if isinstance(value, Sequence):
        return [_plain(held, _under(path, str(i)), to) for i, held in enumerate(value)]
    raise TypeError(f"a {type(value).__name__} cannot be written ({path or 'value'})")


def _made(hint: Any, value: Any, source: _Reading) -> Any:
    origin = get_origin(hint)
    if isinstance(hint, type) and is_dataclass(hint):
        return _dataclass(hint, value, source)
    if origin in (Union, types.UnionType):
        return _one_of(get_args(hint), value, source)
    if isinstance(value, Mapping) and _ARRAY in value and len(value) == 1:
        return source.arrays[value[_ARRAY]]
    if origin is tuple:
        kinds = get_args(hint)
        each = kinds[:1] * len(value) if kinds[1:] == (...,) else kinds
        return tuple(_made(kind, held, source) for kind, held in zip(each, value, strict=True))
    if origin in (list, Sequence):
        found = [_made(get_args(hint)[0], held, source) for held in value]
        return found if origin is list else tuple(found)
    if origin in (dict, Mapping):
        key, kind = get_args(hint)
        pairs = value.items() if isinstance(value, Mapping) else value
        return {_made(key, name, source): _made(kind, held, source) for name, held in pairs}
    if hint is float:
        return float(value) if isinstance(value, str) else value
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return hint(value)
    if hint in (bool, int, str) and type(value) is not hint:
        raise StateError(f"{value!r} is no {hint.__name__}")
    if isinstance(hint, type) and issubclass(hint, Stateful):
        raise StateError(f"there is no {hint.__name__} to take this over")
    if origin is np.ndarray or hint is np.ndarray:
        raise StateError(f"{value!r} is no array")
    return value


def _one_of(hints: tuple[Any, ...], value: Any, source: _Reading) -> Any:
    """What a union holds: dataclasses by their names, the rest by what it looks like."""
    if value is None:
        return None
    if isinstance(value, Mapping) and _CLASS in value:
        for hint in hints:
            if isinstance(hint, type) and is_dataclass(hint) and hint.__name__ == value[_CLASS]:
                return _dataclass(hint, value, source)
    others = [hint for hint in hints if hint is not type(None)]
    for hint in others:
        if type(value) is hint or (get_origin(hint) is Literal and value in get_args(hint)):
            return value
    for hint in others:
        plain = value if isinstance(value, str | bool | int | float) else None
        if hint is float and isinstance(plain, int | float | str):
            return float(plain) if isinstance(plain, str) else plain
        if plain is None and get_origin(hint) is not Literal and not _scalar(hint):
            return _made(hint, value, source)
    raise StateError(f"{value!r} is none of {', '.join(map(str, others))}")


def _scalar(hint: Any) -> bool:
    """Whether nothing but a number, a text or a dataclass of this very name can stand here."""
    return isinstance(hint, type) and (is_dataclass(hint) or hint in (bool, int, float, str))


def _dataclass(kind: Any, value: Any, source: _Reading) -> Any:
    if not isinstance(value, Mapping) or value.get(_CLASS) != kind.__name__:
        raise StateError(f"holds no {kind.__name__}")
    if value[_VERSION] != _version(kind):
        raise StateError(
            f"{kind.__name__} of version {value[_VERSION]}, this synthgeo reads version {_version(kind)}: "
            "nothing of another version goes on; begin anew"
        )
    hints, names = _hints(kind), [f.name for f in _own(kind)]
    if set(value) != {*names, _CLASS, _VERSION}:
        raise StateError(f"{kind.__name__} has other fields than {sorted(set(value) ^ {*names, _CLASS})}")
    found = {name: _made(hints[name], value[name], source) for name in names}
    shared = all(isinstance(held, np.ndarray) for held in found.values())
    known = (kind, *(value[name][_ARRAY] for name in names)) if shared else None
    if known is not None and known in source.made:
        return source.made[known]
    made = getattr(kind, "checked", kind)(**found)
    if known is not None:
        source.made[known] = made
    return made


def _own(kind: type) -> list[Any]:
    """The fields that a constructor takes."""
    return [f for f in fields(kind) if f.init]


def _version(kind: type) -> int:
    return int(getattr(kind, "codec_version", 1))


@cache
def _hints(kind: Callable[..., Any]) -> dict[str, Any]:
    return get_type_hints(kind)


def _under(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name


__all__ = ["Arrays", "Stateful", "dump", "load"]

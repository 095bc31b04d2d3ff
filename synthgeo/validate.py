"""Checks of parameters: each returns the value it was given, converted, or raises ``ConfigError``.

    self.horizon = validate.whole(horizon, "horizon", low=1)
    self.method = validate.one_of(method, "method", ("hmm", "nearest"))

All messages read "<name> must be <what>, got <value>". Only plain values are shown: whoever passes a frame
where a number belongs does not find private rows in the message.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterable
from itertools import pairwise
from numbers import Number, Real
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from synthgeo.errors import ConfigError

if TYPE_CHECKING:
    from pandas.tseries.offsets import BaseOffset

T = TypeVar("T")

LARGEST = 2**63 - 1  # of whole numbers that arrays and files hold
_MOST_ROWS = 2**40  # more than any memory holds
_LONGEST = 80  # characters of a value in a message


def refuse(name: str, what: str, value: object) -> ConfigError:
    """The error to raise for a parameter that no function below describes."""
    return ConfigError(f"{name} must be {what}, got {shown(value)}")


def shown(value: object) -> str:
    """A value as messages show it: numbers, short texts and flat sequences of them; else its type.

    >>> shown((0.5, "auto")), shown(object())
    ("(0.5, 'auto')", 'an object')
    """
    flat = list(value) if isinstance(value, list | tuple) else [value]
    if all(item is None or isinstance(item, str | Number) for item in flat):
        try:
            text = repr(value)
        except ValueError:  # Python writes no number of more than 4,300 digits
            text = "a number of thousands of digits"
        if len(text) <= _LONGEST:
            return text
        if isinstance(value, int):
            return f"a number of {len(text.lstrip('-'))} digits"
    kind = type(value).__name__
    return f"{'an' if kind[0] in 'aeiouAEIOU' else 'a'} {kind}"


def whole(value: Any, name: str, *, low: int | None = None, high: int | None = LARGEST) -> int:
    """A whole number from ``low`` to ``high``, both included; without ``high`` to the largest that an array
    holds, and with None without end. Booleans and 3.0 are not whole numbers.

    >>> whole(np.int64(3), "rounds", low=1)
    3
    """
    least, most = -math.inf if low is None else low, math.inf if high is None else high
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value <= most:
        too_large = isinstance(value, int | np.integer) and value > most
        said = high if high != LARGEST or too_large else None
        raise refuse(name, "a whole number" + _range(low, said), value)
    return int(value)


def rows(value: Any, name: str, *, low: int = 0) -> int:
    """How many rows or trips there are, or are drawn."""
    return whole(value, name, low=low, high=_MOST_ROWS)


def drawn(value: Any, name: str, *, each: int, more: str = "draw more in parts") -> int:
    """How many rows or trips are drawn at once, of at least ``each`` bytes: no more than memory holds."""
    most = min(_memory() // each, _MOST_ROWS)
    if rows(value, name) > most:
        raise refuse(name, f"at most {most}, for which this machine has memory ({more})", value)
    return int(value)


def finite(value: Any, name: str, *, low: float | None = None, high: float | None = None) -> float:
    """A finite number from ``low`` to ``high``, both included."""
    least, most = -math.inf if low is None else low, math.inf if high is None else high
    if not _is_number(value) or not least <= value <= most:
        raise refuse(name, "a finite number" + _range(low, high), value)
    return float(value)


def positive(value: Any, name: str) -> float:
    """A finite number > 0."""
    if not _is_number(value) or not value > 0:
        raise refuse(name, "a finite number > 0", value)
    return float(value)


def non_negative(value: Any, name: str) -> float:
    """A finite number >= 0."""
    return finite(value, name, low=0)


def share(value: Any, name: str, *, zero: bool = False, one: bool = False) -> float:
    """A number between 0 and 1; ``zero`` and ``one`` say whether the ends are allowed.

    >>> share(0.3, "structure_share"), share(0, "times", zero=True)
    (0.3, 0.0)
    """
    if not _is_number(value) or not (0 < value < 1 or (zero and value == 0) or (one and value == 1)):
        raise refuse(name, f"a number in {'[' if zero else '('}0, 1{']' if one else ')'}", value)
    return float(value)


def one_of(value: Any, name: str, choices: Collection[T]) -> T:
    """One of ``choices``, which are few."""
    if not any(type(value) is type(choice) and value == choice for choice in choices):
        raise refuse(name, any_of(repr(choice) for choice in choices), value)
    return value  # type: ignore[no-any-return]


def instance(value: Any, name: str, *kinds: type[T]) -> T:
    """An object of one of these types."""
    if not isinstance(value, kinds):
        raise refuse(name, "a " + any_of(kind.__name__ for kind in kinds), value)
    return value


def text(value: Any, name: str) -> str:
    """A text that is not empty."""
    if not isinstance(value, str) or not value:
        raise refuse(name, "a text", value)
    return value


def flag(value: Any, name: str) -> bool:
    """True or False."""
    if not isinstance(value, bool | np.bool_):
        raise refuse(name, "True or False", value)
    return bool(value)


def rising(values: Any, name: str, *, least: int = 1) -> tuple[float, ...]:
    """At least ``least`` finite numbers, each greater than the one before."""
    what = f"at least {least} finite numbers in rising order"
    try:
        listed = tuple(values)
    except TypeError:
        raise refuse(name, what, values) from None
    numbers = tuple(float(value) for value in listed if _is_number(value))
    if len(numbers) < max(len(listed), least) or any(a >= b for a, b in pairwise(numbers)):
        raise refuse(name, what, values)
    return numbers


def together(**given: Any) -> None:
    """Parameters that go together: all of them are given, or none.

    >>> together(origin=None, destination=None)
    >>> together(origin=("lon", "lat"), destination=None)
    Traceback (most recent call last):
    synthgeo.errors.ConfigError: give origin and destination together, or neither
    """
    absent = [value is None for value in given.values()]
    if any(absent) and not all(absent):
        raise ConfigError(f"give {' and '.join(given)} together, or neither")


def any_of(names: Iterable[str]) -> str:
    """Alternatives, in words.

    >>> any_of(["2", "3", "4"])
    '2, 3 or 4'
    """
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last


def length_of_time(value: Any, name: str) -> BaseOffset:
    """A positive length of time in pandas' words: ``"6h"``, ``"1D"``, ``"1MS"`` (a calendar month)."""
    from pandas import Timestamp
    from pandas.tseries.frequencies import to_offset

    try:
        found = to_offset(value)
        positive = found is not None and Timestamp(2000, 1, 1) + found > Timestamp(2000, 1, 1)
    except (ValueError, TypeError):
        positive = False
    if not positive:
        raise refuse(name, "a positive length of time such as '6h', '1D' or 'MS' (months)", value)
    return found


def utf8_path(path: str | os.PathLike[str]) -> None:
    """Refuse a path that cannot be written as UTF-8: databases and readers of files take no other."""
    try:
        os.fspath(path).encode()
    except UnicodeEncodeError:
        raise ConfigError(f"the name {os.fspath(path)!r} is not UTF-8: rename it") from None


def _memory() -> int:
    """Bytes of memory of this machine; where it does not tell, more than any has."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return LARGEST


def _is_number(value: Any) -> bool:
    try:
        return not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)
    except OverflowError:  # a whole number of hundreds of digits
        return False


def _range(low: float | None, high: float | None) -> str:
    if low is not None and high is not None:
        return f" from {low} to {high}"
    return "" if low is None and high is None else f" >= {low}" if low is not None else f" <= {high}"


__all__ = [
    "LARGEST",
    "any_of",
    "drawn",
    "finite",
    "flag",
    "instance",
    "length_of_time",
    "non_negative",
    "one_of",
    "positive",
    "refuse",
    "rising",
    "rows",
    "share",
    "shown",
    "text",
    "together",
    "whole",
]

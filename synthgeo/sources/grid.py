"""A public grid of time windows: how a timestamped file becomes the steps of a stream.

The grid is fixed by ``every``, ``start`` and ``end``. Windows are half-open, an empty one is a step like
any other (leaving it out would tell that nothing happened), and rows outside [start, end) belong to no
step.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.tseries.offsets import BaseOffset

from synthgeo import validate
from synthgeo.errors import ConfigError

MAX_WINDOWS = 10_000_000

Window = TypeVar("Window", bound=Any)


class PrivateGridWarning(UserWarning):
    """The grid's start or end comes from the private data."""


@dataclass(frozen=True, eq=False)
class Grid:
    """Window i is [edges[i], edges[i + 1]), in microseconds since 1970 (UTC where times have a zone)."""

    starts: pd.DatetimeIndex
    edges: NDArray[np.int64]

    @property
    def size(self) -> int:
        """How many windows there are."""
        return len(self.edges) - 1

    def marked(self, windows: Iterable[Window], time: str) -> Iterator[tuple[pd.Timestamp, Window]]:
        """Each window's rows with its start; they are told when their window begins and ends, and by which
        column, ``time``, they were cut.
        """
        ends = pd.DatetimeIndex(self.edges[1:].view("datetime64[us]"))
        if self.starts.tz is not None:
            ends = ends.tz_localize("UTC").tz_convert(self.starts.tz)
        for start, end, window in zip(self.starts, ends, windows, strict=True):
            window.window, window.time = (start, end), time
            yield start, window

    def window_of(self, times: NDArray[np.datetime64]) -> NDArray[np.int64]:
        """The window of each time; -1 outside of the grid."""
        at = times.astype("datetime64[us]").astype(np.int64)
        window = np.searchsorted(self.edges, at, side="right") - 1
        return np.where(window < self.size, window, -1)


def make_grid(
    every: str,
    start: Any = None,
    end: Any = None,
    *,
    zoned: bool = False,
    span: tuple[Any, Any] | None = None,
    column: str = "time",
    tz: str | None = None,
) -> Grid:
    """The grid of windows of length ``every`` from ``start`` up to ``end``; the last one is cut at ``end``.

    ``zoned`` says whether the times have a time zone: then ``start`` and ``end`` need one too, and calendar
    steps (``"D"``, ``"MS"``) follow the clock of ``start``'s zone. Where ``start`` or ``end`` has none, it is
    a clock time in ``tz``, if that is declared. ``span`` holds the first and last time of the data, used
    (with a warning) where ``start`` or ``end`` is missing.
    """
    step = validate.length_of_time(every, "every")
    if tz is not None:
        _check_zone(tz, zoned, column)
    first, last = _stamp(start, "start", zoned, column, tz), _stamp(end, "end", zoned, column, tz)
    if first is None or last is None:
        first, last = _from_data(first, last, span, step, zoned, column)
    if tz is not None and first.tz is not None:
        first = first.tz_convert(tz)
    if first.tz is not None and last.tz is not None:
        last = last.tz_convert(first.tz)
    if not first < last:
        raise ConfigError(f"start ({first}) must lie before end ({last})")
    _refuse_too_many(first, last, step, every)
    inner = pd.date_range(first, last, freq=step, inclusive="both")
    starts = inner[(inner > first) & (inner < last)].insert(0, first)
    edges = starts.append(pd.DatetimeIndex([last])).as_unit("us")
    return Grid(starts, edges.asi8)


def check_grid(every: str, start: Any, end: Any) -> None:
    """Refuse a grid that cannot be one, whatever the data: before a row is read."""
    validate.length_of_time(every, "every")
    first, last = (
        _stamp(value, name, _has_zone(value), "time", None)
        for name, value in (("start", start), ("end", end))
    )
    if first is None or last is None or (first.tz is None) != (last.tz is None):
        return
    if not first < last:
        raise ConfigError(f"start ({first}) must lie before end ({last})")


def _has_zone(value: Any) -> bool:
    try:
        return value is not None and pd.Timestamp(value).tz is not None
    except (ValueError, TypeError):
        return False  # said by ``_stamp``


# Midnights at the start of a year, a month and a week, before months and years of every length.
_ORIGINS = tuple(pd.Timestamp(text) for text in ("2001-01-01", "2001-02-01", "2003-03-01", "2004-02-01"))


def windows_in(length: str, every: str, *, name: str = "lifetime") -> int:
    """How many windows of length ``every`` make ``length``; refused where that is no whole number, or not
    always the same one.

    >>> windows_in("30D", "1D"), windows_in("7D", "6h"), windows_in("1YS", "MS")
    (30, 28, 12)
    """
    whole, step = validate.length_of_time(length, name), validate.length_of_time(every, "every")
    numbers = {_steps_to(origin, origin + whole, step) for origin in _ORIGINS if _starts(origin, whole, step)}
    if len(numbers) != 1 or None in numbers:
        raise ConfigError(f"{name}={length!r} is not a whole number of windows of {every!r}")
    number = numbers.pop()
    assert number is not None
    return number


def _starts(origin: pd.Timestamp, *steps: BaseOffset) -> bool:
    """Whether each step could begin there."""
    return all(step.is_on_offset(origin) for step in steps)


def _steps_to(first: pd.Timestamp, last: pd.Timestamp, step: BaseOffset) -> int | None:
    """How many steps lead from one time to another; None where none ends there."""
    number = round((last - first) / ((first + step) - first))
    for found in range(max(1, number - number // 10 - 1), number + number // 10 + 2):
        if first + found * step == last:
            return found
    return None


def _check_zone(tz: Any, zoned: bool, column: str) -> None:
    try:
        ZoneInfo(tz)
    except (KeyError, ValueError, TypeError, OSError):
        raise ConfigError(f"tz={tz!r} is no time zone; try 'Europe/Berlin' or 'UTC'") from None
    if not zoned:
        raise ConfigError(
            f"column {column!r} has clock times without a zone, which cut themselves by that clock; declare "
            "their zone with Reading(tz=...) to cut by another"
        )


def _stamp(value: Any, name: str, zoned: bool, column: str, tz: str | None) -> pd.Timestamp | None:
    if value is None:
        return None
    try:
        stamp = pd.Timestamp(value)
    except (ValueError, TypeError):
        raise ConfigError(f"{name}={value!r} is not a time") from None
    if pd.isna(stamp):
        raise ConfigError(f"{name}={value!r} is not a time")
    if zoned and stamp.tz is None and tz is not None:
        return stamp.tz_localize(tz, ambiguous=True, nonexistent="shift_forward")
    if (stamp.tz is not None) != zoned:
        has, needs = ("has a time zone", "needs one too") if zoned else ("has no time zone", "must have none")
        raise ConfigError(f"column {column!r} {has}, so {name} {needs}: got {value!r}")
    return stamp


def _from_data(
    first: pd.Timestamp | None,
    last: pd.Timestamp | None,
    span: tuple[Any, Any] | None,
    step: BaseOffset,
    zoned: bool,
    column: str,
) -> tuple[pd.Timestamp, pd.Timestamp]:
    missing = " and ".join(name for name, value in (("start", first), ("end", last)) if value is None)
    if span is None:
        raise ConfigError(f"there is no data to take {missing} from: give it")
    warnings.warn(
        f"{missing} of the grid comes from column {column!r} of the private data, so the releases tell when "
        f"its first or last event happened; give start= and end= to keep the grid public",
        PrivateGridWarning,
        stacklevel=4,
    )
    low, high = (pd.Timestamp(value, tz="UTC" if zoned else None) for value in span)
    if first is None:
        first = _floor(low, step)
    if last is None:
        last = first
        reach = max(high, first)
        # The end is the first edge past the last event, so that the last window is a whole one.
        edges = pd.date_range(first, reach, freq=step)
        last = edges[-1] if len(edges) else first
        while last <= reach:
            last = last + step
    return first, last


def _floor(stamp: pd.Timestamp, step: BaseOffset) -> pd.Timestamp:
    try:
        return stamp.floor(step)
    except ValueError:  # a calendar step: the day will do
        return stamp.floor("D")


def _refuse_too_many(first: pd.Timestamp, last: pd.Timestamp, step: BaseOffset, every: str) -> None:
    length = (pd.Timestamp(2000, 1, 1) + step) - pd.Timestamp(2000, 1, 1)
    if (last - first) / length > MAX_WINDOWS:
        raise ConfigError(f"every={every!r} from {first} to {last} is more than {MAX_WINDOWS:,} windows")

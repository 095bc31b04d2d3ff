"""Hours of the week in a time zone, and the week of the calendar that synthetic trips are dated in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pandas as pd

from synthgeo import validate
from synthgeo.arrays import Bools, Floats, Ints
from synthgeo.errors import ConfigError

HOURS = 168
BLOCKS = 12  # four hours each, of working days and of weekends
WEEK_BLOCKS = 42  # four hours each, of the seven days
DAY_HOURS = 48  # hours of a working day, then of a weekend day
_MONDAY = 4 * 86400.0  # 1970-01-05
_FIRST = "2024-01-01"
_ARRAYS = (np.ndarray, pd.Series, pd.Index)


def zone(name: Any) -> str:
    """The name of a time zone, checked."""
    try:
        ZoneInfo(validate.text(name, "tz"))
    except (ZoneInfoNotFoundError, ValueError, IsADirectoryError):
        raise ConfigError(
            f"tz must be the name of a time zone, such as 'Europe/Paris', got {name!r}"
        ) from None
    return str(name)


def local_seconds(instants: Floats, tz: str) -> Floats:
    """What clocks in ``tz`` show at these instants (seconds since 1970, UTC), as seconds since 1970."""
    if tz == "UTC":
        return instants
    clocks = pd.to_datetime(instants, unit="s", utc=True).tz_convert(tz).tz_localize(None)
    return np.asarray((clocks - pd.Timestamp(0)) / pd.Timedelta(seconds=1), dtype=np.float64)


def hour_of_week(seconds: Floats) -> Ints:
    """Hour of the week, from Monday 00:00, of clock times in seconds since 1970."""
    hours: Ints = (np.floor((seconds - _MONDAY) / 3600.0) % HOURS).astype(np.int64)
    return hours


def day_hour(hour: Ints) -> Ints:
    """Hour of the day, of hours of the week; those of Saturdays and Sundays come after the others."""
    return hour % 24 + 24 * (hour >= 120)


def block(hour: Ints) -> Ints:
    """Block of four hours, of hours of the week."""
    return day_hour(hour) // 4


def week_block(hour: Ints) -> Ints:
    """Four hours of one day, of hours of the week."""
    return hour // 4


def wanted_hours(hour: Any, weekday: Any) -> Bools | None:
    """Hours of the week that are on these hours of the day and these weekdays (0 is Monday); None: all."""
    if hour is None and weekday is None:
        return None
    every = np.arange(HOURS)
    mask = np.ones(HOURS, dtype=bool)
    for name, given, most, part in (("hour", hour, 23, every % 24), ("weekday", weekday, 6, every // 24)):
        if given is not None:
            given = np.atleast_1d(given).tolist() if isinstance(given, _ARRAYS) else given
            listed = list(given) if isinstance(given, list | tuple | range | set | frozenset) else [given]
            if not listed:
                raise validate.refuse(name, f"a whole number from 0 to {most}, or several", given)
            mask &= np.isin(part, [validate.whole(one, name, low=0, high=most) for one in listed])
    return mask


@dataclass(frozen=True)
class Week:
    """Seven days of the calendar in a time zone, from ``first`` on.

    >>> Week.of("2026-03-29", "Europe/Paris").instants(np.array([6 * 86400 + 2.5 * 3600]))[0].isoformat()
    '2026-03-29T03:30:00+02:00'
    """

    first: pd.Timestamp
    tz: str

    @classmethod
    def of(cls, start: Any, tz: str) -> Week:
        """The week from the day ``start`` (a date, or its text) on; None: one that begins on a Monday."""
        try:
            number = isinstance(start, float | int | np.number)  # nanoseconds since 1970, to pandas
            first = pd.NaT if number else pd.Timestamp(_FIRST if start is None else start)
        except (ValueError, TypeError):
            first = pd.NaT
        # Text without a year has the year 1.
        if first is pd.NaT or first.year < 1900 or first.tzinfo is not None or first != first.normalize():
            raise ConfigError(f"the week's first day must be a date such as '2026-05-04', got {start!r}")
        return cls(first, tz)

    def instants(self, seconds: Floats) -> pd.DatetimeIndex:
        """The instants at which clocks show so many seconds since Monday 00:00, on the day of the week that
        is in this week. A time that clocks skip is as much later as they are put forward, so that no crowd
        leaves at the moment after; one they show twice is the first.
        """
        day, rest = np.divmod(np.asarray(seconds, dtype=np.float64), 86400.0)
        ahead = (day.astype(np.int64) - self.first.weekday()) % 7
        clocks = self.first + pd.to_timedelta(
            ahead * 86_400_000 + np.rint(1000 * rest).astype(np.int64), unit="ms"
        )
        if self.tz == "UTC":
            return clocks.tz_localize("UTC")
        earlier = np.ones(len(clocks), dtype=bool)
        found = clocks.tz_localize(self.tz, nonexistent="shift_backward", ambiguous=earlier)
        skipped = found.tz_localize(None) != clocks
        if not skipped.any():
            return found
        # The clocks that were not put forward yet show such a time.
        behind = found.tz_localize(None) - found.tz_convert("UTC").tz_localize(None)
        forward = (clocks - behind).tz_localize("UTC").tz_convert(self.tz)
        return found.where(~skipped, forward)


__all__ = [
    "BLOCKS", "DAY_HOURS", "HOURS", "WEEK_BLOCKS", "Week", "block", "day_hour", "hour_of_week",
    "local_seconds", "wanted_hours", "week_block", "zone",
]  # fmt: skip

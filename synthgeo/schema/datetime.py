"""Times as columns of a table: dates, times of day and durations in bins, and times by public parts (weekday,
hour, ...)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import time as clock_time
from functools import cached_property
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from synthgeo import validate
from synthgeo.arrays import Floats
from synthgeo.errors import ConfigError
from synthgeo.schema.binned import MOST_DECLARED, Binned
from synthgeo.schema.columns import (
    Attribute,
    Chunk,
    Codes,
    Column,
    Condition,
    no_value,
    wanted_values,
)
from synthgeo.sources.chunk import Chunk as Rows
from synthgeo.sources.chunk import refuse
from synthgeo.sources.values import times, words

_DAILY = ("year", "month", "day", "weekday", "date")
PARTS = (*_DAILY, "hour")
_MOST_SLOTS = 2_000_000
#: Seconds of each resolution.
RESOLUTIONS = {"D": 86_400.0, "h": 3_600.0, "min": 60.0, "s": 1.0}
_CLOCK = re.compile(r"(-?)(\d{1,4}):(\d{2})(?::(\d{2})(?:\.\d*)?)?\s*([AaPp][Mm])?")


def local_times(chunk: Chunk, name: str, tz: str | None, text: str | None) -> NDArray[np.datetime64]:
    """A column as times on the clocks of ``tz``; as they are read where no zone is asked for. ``text`` is the
    format of clock times that are written as text.
    """
    values = chunk[name]
    kind = getattr(getattr(values, "dtype", None), "kind", None)
    if text is not None and kind == "O":  # times among the texts are what they are in a column of times
        written = np.fromiter((isinstance(value, str) for value in values), dtype=bool, count=len(values))
        none: Any = None
        spoken = _spoken_times(_with(chunk, name, np.where(written, values, none)), name, text)
        others = _with(chunk, name, np.where(written, none, values))
        return np.where(written, spoken, local_times(others, name, tz, None))
    if text is not None and kind != "M":
        return _spoken_times(chunk, name, text)
    found = times(chunk, name)
    zoned = name in getattr(chunk, "zoned", ()) or getattr(getattr(chunk, "reading", None), "tz", None)
    if tz is None or not zoned or not len(found):
        return found
    local = pd.DatetimeIndex(found, tz="UTC").tz_convert(tz).tz_localize(None)
    return np.asarray(local.to_numpy(), dtype="datetime64[us]")


def _with(chunk: Chunk, name: str, values: Any) -> Chunk:
    """The same rows with other values in one column."""
    return chunk.but(name, values) if isinstance(chunk, Rows) else {**chunk, name: values}


def _spoken_times(chunk: Chunk, name: str, text: str) -> NDArray[np.datetime64]:
    """Times that are written as text in one format, each distinct one parsed once."""
    found = words(chunk, name)
    form = text.replace("%-", "%")  # a digit without its zero is read either way
    parsed = pd.to_datetime(pd.Series(found.values, dtype=object), format=form, errors="coerce")
    moments = np.append(np.asarray(parsed, dtype="datetime64[us]"), np.datetime64("NaT", "us"))[found.codes]
    refuse(
        (found.codes >= 0) & np.isnat(moments), name, f"is not a time in the format {text!r} of the schema"
    )
    return moments


def written_times(
    wall: NDArray[np.datetime64], absent: NDArray[np.bool_], *, tz: str | None, text: str | None
) -> pd.Series:
    """Times as they stand in a table: in their zone, as text where a format is asked for."""
    series = pd.Series(wall.astype("datetime64[us]")).mask(absent)
    if tz is not None:
        first = np.ones(len(series), dtype=bool)
        series = series.dt.tz_localize(tz, ambiguous=first, nonexistent="shift_forward")
    return series if text is None else series.dt.strftime(text).astype(object).mask(absent, None)


def _check_zone(tz: str | None) -> str | None:
    if tz is not None:
        try:
            ZoneInfo(validate.text(tz, "tz"))
        except (KeyError, ValueError, OSError):
            raise ConfigError(f"tz must be the name of a time zone, got {tz!r}") from None
    return tz


def _moment(value: Any, name: str, tz: str | None) -> np.datetime64:
    """One time that a user gave, on the column's clocks."""
    try:
        found = pd.Timestamp(value)
    except (ValueError, TypeError):
        found = pd.NaT
    if found is pd.NaT or isinstance(value, bool | int | float):
        raise ConfigError(f"{name} must be a date or a time, got {value!r}")
    if found.tz is not None:
        found = found.tz_convert(tz or "UTC").tz_localize(None)
    return np.datetime64(found.to_datetime64(), "us")


def _seconds(moment: np.datetime64) -> float:
    return float(moment.astype("datetime64[us]").astype(np.int64)) / 1e6


class Date(Binned):
    """A date between two public ones, both included, cut into public bins.

    ``bins`` is how many, the list of their edges, or "auto". ``resolution`` is "D", or "h", "min" or "s" for
    times. ``tz`` names the zone of the clocks that are meant; synthetic times are then in that zone.
    ``format`` says how dates are written where they are text ("%m/%d/%Y"), in the data and in synthetic rows;
    without it synthetic dates are dates of pandas.

    >>> column = Date("2020-01-01", "2020-12-31", bins=12)
    >>> made = column.decode("day", np.array([[0]]), np.random.default_rng(1))
    >>> print(made["day"].item())
    2020-01-16 00:00:00
    """

    kind: ClassVar[str] = "date"
    reads: ClassVar[str] = "time"

    def __init__(
        self,
        start: Any,
        end: Any,
        *,
        bins: int | str | Sequence[Any] = 20,
        resolution: str = "D",
        tz: str | None = None,
        format: str | None = None,  # noqa: A002
        missing: bool = False,
        outside: str = "error",
    ) -> None:
        self.tz = _check_zone(tz)
        self.format = None if format is None else validate.text(format, "format")
        self.reads = "time" if format is None else "word"  # type: ignore[misc]
        self.resolution = validate.one_of(resolution, "resolution", tuple(RESOLUTIONS))
        low, high = (_seconds(_moment(end, "start and end", tz)) for end in (start, end))
        cut = (
            bins
            if isinstance(bins, int | str)
            else [_seconds(_moment(edge, "a bin edge", tz)) for edge in bins]
        )
        step = RESOLUTIONS[self.resolution]
        self._set(low, high, bins=cut, step=step, missing=missing, outside=outside, scale="linear")

    def with_edges(self, edges: Sequence[float]) -> Date:
        return Date(*map(_iso, (self.low, self.high)), bins=[_iso(edge) for edge in edges],
                    resolution=self.resolution, tz=self.tz, format=self.format,
                    missing=self.missing, outside=self.outside)  # fmt: skip

    def read(self, name: str, chunk: Chunk) -> Floats:
        found = local_times(chunk, name, self.tz, self.format).astype("datetime64[us]")
        # A time belongs to the day (or hour, ...) that it lies in.
        micros = np.where(np.isnat(found), 0, found.astype(np.int64))
        step = int(self.step or 1) * 1_000_000
        return np.where(np.isnat(found), np.nan, (micros // step) * (step / 1e6))

    def _bounds(self) -> str:
        return f"[{_iso(self.low)}, {_iso(self.high)}]"

    def write(self, name: str, values: Floats) -> dict[str, Any]:
        absent = np.isnan(values)
        wall = np.where(absent, 0, values).astype(np.int64).astype("datetime64[s]")
        return {name: written_times(wall, absent, tz=self.tz, text=self.format)}

    def point(self, name: str, value: Any) -> float:
        return _seconds(_moment(value, f"given: value of {name!r}", self.tz))

    def to_json(self) -> dict[str, Any]:
        bins = self._bins_json()
        out: dict[str, Any] = {"type": self.kind, "start": _iso(self.low), "end": _iso(self.high)}
        out["bins"] = [_iso(edge) for edge in bins] if isinstance(bins, list) else bins
        out["resolution"] = self.resolution
        out.update({key: getattr(self, key) for key in ("tz", "format") if getattr(self, key) is not None})
        return out | self._common_json()


def _iso(seconds: float) -> str:
    return str(pd.Timestamp(round(seconds * 1e6), unit="us").isoformat())


def _spoken(chunk: Chunk, name: str, parse: Callable[[str], float]) -> Floats:
    """A column of texts, each distinct one parsed once; NaN where missing, refused where it cannot be."""
    values = chunk[name]
    if isinstance(values, np.ndarray) and values.dtype.kind == "O":
        plain = [v.isoformat() if isinstance(v, clock_time) else v for v in values]
        chunk = _with(chunk, name, np.array([*plain, None], dtype=object)[:-1])
    found = words(chunk, name)
    parsed = np.array([*map(parse, found.values), np.nan], dtype=np.float64)
    refuse((found.codes >= 0) & np.isnan(parsed[found.codes]), name, "is not a time as H:MM or H:MM:SS")
    return parsed[found.codes]


def _clock(text: str) -> float:
    """Seconds of a text like 9:05, 09:05:30 or 9:05 PM; NaN for others."""
    found = _CLOCK.fullmatch(text.strip())
    if found is None:
        return np.nan
    sign, hours, minutes, seconds, half = found.groups()
    hour = int(hours)
    if half:
        if not 1 <= hour <= 12:
            return np.nan
        hour = hour % 12 + (12 if half.lower() == "pm" else 0)
    if int(minutes) > 59 or int(seconds or 0) > 59:
        return np.nan
    return (-1.0 if sign else 1.0) * (hour * 3600 + int(minutes) * 60 + int(seconds or 0))


class TimeOfDay(Binned):
    """A time of day, cut into public bins: ``bins`` equal ones, or the list of their edges ("06:00", ...).

    Read from texts like 9:05, 21:05:30 or 9:05 PM and from times; written as text, HH:MM for
    ``resolution="min"`` and HH:MM:SS for "s".
    """

    kind: ClassVar[str] = "time_of_day"

    def __init__(
        self,
        *,
        bins: int | str | Sequence[str] = 24,
        resolution: str = "min",
        missing: bool = False,
    ) -> None:
        self.resolution = validate.one_of(resolution, "resolution", ("h", "min", "s"))
        step = RESOLUTIONS[self.resolution]
        high = RESOLUTIONS["D"] - step
        cut: Any = bins
        if isinstance(bins, int):
            validate.whole(bins, "bins", low=1, high=MOST_DECLARED)
            cut = [*np.linspace(0, RESOLUTIONS["D"], bins + 1)[:-1], high]
        elif not isinstance(bins, str):
            cut = [0.0, *(self.point("bins", edge) for edge in bins if _clock(str(edge)) > 0), high]
        self._set(0.0, high, bins=cut, step=step, missing=missing, outside="error", scale="linear")

    def with_edges(self, edges: Sequence[float]) -> TimeOfDay:
        inner = [_hms(edge, seconds=True) for edge in edges[1:-1]]
        return TimeOfDay(bins=inner, resolution=self.resolution, missing=self.missing)

    def read(self, name: str, chunk: Chunk) -> Floats:
        found = _spoken(chunk, name, _clock)
        refuse((found < 0) | (found >= RESOLUTIONS["D"]), name, "is not a time of day")
        return np.floor(found / (self.step or 1.0)) * (self.step or 1.0)

    def write(self, name: str, values: Floats) -> dict[str, Any]:
        return {name: _hms_series(values, seconds=self.resolution == "s")}

    def point(self, name: str, value: Any) -> float:
        found = _clock(value.isoformat() if isinstance(value, clock_time) else str(value))
        if not 0 <= found < RESOLUTIONS["D"]:
            raise ConfigError(f"given: value of {name!r} must be a time of day like '09:05', got {value!r}")
        return found

    def to_json(self) -> dict[str, Any]:
        edges = self.edges
        bins = "auto" if edges is None else [_hms(edge, seconds=True) for edge in edges[1:-1]]
        return {"type": self.kind, "bins": bins, "resolution": self.resolution} | self._common_json()


class Duration(Binned):
    """A length of time between public bounds ("0s", "2h", seconds), cut into public bins.

    Read from timedeltas and from texts like 1:05 (hours and minutes), 1:05:30 or PT1H5M; written as
    timedeltas, or as H:MM:SS with ``text=True``.
    """

    kind: ClassVar[str] = "duration"

    def __init__(
        self,
        low: Any,
        high: Any,
        *,
        bins: int | str | Sequence[Any] = 20,
        resolution: str = "s",
        text: bool = False,
        missing: bool = False,
        outside: str = "error",
    ) -> None:
        self.resolution = validate.one_of(resolution, "resolution", tuple(RESOLUTIONS))
        self.text = bool(text)
        cut = bins if isinstance(bins, int | str) else [self.point("bins", edge) for edge in bins]
        ends, step = (self.point("low", low), self.point("high", high)), RESOLUTIONS[self.resolution]
        self._set(*ends, bins=cut, step=step, missing=missing, outside=outside, scale="auto")

    def with_edges(self, edges: Sequence[float]) -> Duration:
        found = Duration(self.low, self.high, bins=list(edges), resolution=self.resolution, text=self.text,
                         missing=self.missing, outside=self.outside)  # fmt: skip
        found.scale = self.scale
        return found

    def read(self, name: str, chunk: Chunk) -> Floats:
        values = chunk[name]
        if isinstance(values, np.ndarray) and values.dtype.kind == "m":
            found = values.astype("timedelta64[us]")
            return np.where(np.isnat(found), np.nan, found.astype(np.int64) / 1e6)
        if isinstance(values, np.ndarray) and values.dtype.kind == "O":
            plain = [
                str(pd.Timedelta(v)) if hasattr(v, "total_seconds") and v is not pd.NaT else v for v in values
            ]
            chunk = _with(chunk, name, np.array([*plain, None], dtype=object)[:-1])
        return _spoken(chunk, name, _length)

    def write(self, name: str, values: Floats) -> dict[str, Any]:
        if self.text:
            return {name: _hms_series(values, seconds=self.resolution == "s", pad=False)}
        absent = np.isnan(values)
        lengths = pd.Series(np.where(absent, 0, values).astype(np.int64).astype("timedelta64[s]"))
        return {name: lengths.mask(absent)}

    def point(self, name: str, value: Any) -> float:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return validate.finite(value, name)
        try:
            found = pd.Timedelta(value).total_seconds() if not isinstance(value, str) else _length(value)
        except (ValueError, TypeError):
            found = np.nan
        if np.isnan(found):
            raise ConfigError(f"{name} must be a length of time like '1h' or 3600, got {value!r}")
        return found

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {
            "type": self.kind,
            "low": self.low,
            "high": self.high,
            "bins": self._bins_json(),
        }
        out["resolution"] = self.resolution
        return out | ({"text": True} if self.text else {}) | self._common_json()


def _length(text: str) -> float:
    """Seconds of a text that is a length of time; NaN for others."""
    found = _clock(text)
    if not np.isnan(found) or not text.strip():
        return found
    try:
        return float(pd.Timedelta(text).total_seconds())
    except ValueError:
        return np.nan


def _hms(value: float, *, seconds: bool, pad: bool = True) -> str:
    whole = round(abs(value))
    text = f"{whole // 3600:{'02d' if pad else 'd'}}:{whole // 60 % 60:02d}"
    return ("-" if value < 0 else "") + text + (f":{whole % 60:02d}" if seconds else "")


def _hms_series(values: Floats, *, seconds: bool, pad: bool = True) -> pd.Series:
    distinct, at = np.unique(values[~np.isnan(values)], return_inverse=True)
    out = np.full(len(values), None, dtype=object)
    out[~np.isnan(values)] = np.array([_hms(v, seconds=seconds, pad=pad) for v in distinct], dtype=object)[at]
    return pd.Series(out, dtype=object)


@dataclass(frozen=True)
class DateTime(Column):
    """A time in the public range [start, end), modelled by some of its parts.

    ``parts`` are among ``year``, ``month``, ``day`` (of the month), ``weekday`` (Monday is 0), ``date``
    (days since start) and ``hour``; each becomes an attribute ``<name>.<part>``. Combinations that no
    time in the range has are structural zeros. Synthetic times are uniform among the times of the range
    that have the synthetic parts, at a ``resolution`` of "s", "min", "h" or "D"; by default dates where no
    part tells the hour, else seconds. ``tz`` names the zone of the clocks that are meant: zoned times are
    read in it, and synthetic times are in it; without it zoned times are read as UTC. ``format`` says how
    times are written as text, in the data and in synthetic rows. For dates in bins, and their order, see
    ``Date``."""

    start: str
    end: str
    parts: tuple[str, ...] = ("weekday", "hour")
    missing: bool = False
    resolution: str = "s"
    tz: str | None = None
    format: str | None = None
    kind: ClassVar[str] = "datetime"
    reads: ClassVar[str] = "time"

    def __init__(
        self,
        start: Any,
        end: Any,
        *,
        parts: Sequence[str] = ("weekday", "hour"),
        missing: bool = False,
        resolution: str | None = None,
        tz: str | None = None,
        format: str | None = None,  # noqa: A002
    ) -> None:
        try:
            low, high = pd.Timestamp(start), pd.Timestamp(end)
        except (ValueError, TypeError) as problem:
            raise ConfigError(f"start and end must be times, got {start!r} and {end!r}") from problem
        if low is pd.NaT or high is pd.NaT or low.tz is not None or high.tz is not None:
            raise ConfigError("start and end must be times without a zone (zoned data is read as UTC)")
        if low != low.floor("h") or high != high.floor("h") or not low < high:
            raise ConfigError(
                f"start and end must be whole hours with start < end, got {start!r} and {end!r}"
            )
        chosen = tuple(parts)
        if not chosen or len(set(chosen)) != len(chosen) or any(part not in PARTS for part in chosen):
            raise ConfigError(f"parts must be some of {', '.join(PARTS)}, got {list(chosen)}")
        object.__setattr__(self, "start", low.isoformat())
        object.__setattr__(self, "end", high.isoformat())
        object.__setattr__(self, "parts", chosen)
        object.__setattr__(self, "missing", bool(missing))
        object.__setattr__(self, "tz", _check_zone(tz))
        object.__setattr__(self, "format", None if format is None else validate.text(format, "format"))
        object.__setattr__(self, "reads", "time" if format is None else "word")
        usual = "s" if "hour" in chosen else "D"
        fine = usual if resolution is None else validate.one_of(resolution, "resolution", tuple(RESOLUTIONS))
        if fine == "D" and "hour" in chosen:
            raise ConfigError("a time with hours cannot have a resolution of days")
        object.__setattr__(self, "resolution", fine)
        if (high.to_datetime64() - low.to_datetime64()) / np.timedelta64(1, "h") > _MOST_SLOTS:
            raise ConfigError(f"the range [{low}, {high}) is too long to enumerate by the hour")

    @cached_property
    def _slots(self) -> NDArray[np.datetime64]:
        """All hours of the range."""
        return np.arange(np.datetime64(self.start, "h"), np.datetime64(self.end, "h"))

    @cached_property
    def _offsets(self) -> tuple[tuple[int, int], ...]:
        """Least value and size of each part over the range."""
        parts = [_part(part, self._slots, self.start) for part in self.parts]
        return tuple((int(values.min()), int(np.ptp(values)) + 1) for values in parts)

    def _codes(self, times: NDArray[Any]) -> Codes:
        columns = [
            _part(part, times, self.start) - least
            for part, (least, _) in zip(self.parts, self._offsets, strict=True)
        ]
        return np.column_stack(columns).astype(np.int64)

    def attributes(self, name: str) -> tuple[Attribute, ...]:
        return tuple(
            Attribute(f"{name}.{part}", size + self.missing, ordered=True, apart=(size,) * self.missing)
            for part, (_, size) in zip(self.parts, self._offsets, strict=True)
        )

    def allowed(self, name: str) -> NDArray[np.bool_] | None:
        if len(self.parts) == 1 and not self.missing:
            return None
        allowed = np.zeros([attribute.size for attribute in self.attributes(name)], dtype=bool)
        allowed[tuple(self._codes(self._slots).T)] = True
        if self.missing:  # a missing time misses all its parts
            allowed[(-1,) * allowed.ndim] = True
        return None if allowed.all() else allowed

    def encode(self, name: str, chunk: Chunk) -> Codes:
        found = local_times(chunk, name, self.tz, self.format)
        absent = np.isnat(found)
        if not self.missing:
            refuse(absent, name, "is missing; the schema does not say missing=True")
        beyond = ~absent & ((found < np.datetime64(self.start)) | (found >= np.datetime64(self.end)))
        refuse(beyond, name, f"is outside the range [{self.start}, {self.end})")
        known = np.where(absent | beyond, np.datetime64(self.start, "us"), found)
        codes = self._codes(known)
        if self.missing:
            codes[absent] = [size for _, size in self._offsets]
        return codes

    def decode(self, name: str, codes: Codes, rng: np.random.Generator, within: Any = None) -> dict[str, Any]:
        """Times that have the parts; ``within`` are the first and last accepted moments of ranges."""
        absent = codes[:, 0] == self._offsets[0][1] if self.missing else np.zeros(len(codes), dtype=bool)
        combination = self._combination(np.where(absent[:, None], 0, codes))
        ranges = None if within is None else within[0]
        starts, lengths, combinations = self._stretches(ranges)
        order = np.argsort(combinations, kind="stable")
        cumulated = np.concatenate([[0], np.cumsum(lengths[order])])
        first = np.searchsorted(combinations[order], combination, side="left")
        last = np.searchsorted(combinations[order], combination, side="right")
        wanted = cumulated[first] + np.floor(rng.random(len(codes)) * (cumulated[last] - cumulated[first]))
        at = np.minimum(np.searchsorted(cumulated, wanted, side="right") - 1, len(order) - 1)
        step = int(RESOLUTIONS[self.resolution])
        moments = starts[order][at] + ((wanted - cumulated[at]) * step).astype("timedelta64[s]")
        return {name: written_times(moments, absent, tz=self.tz, text=self.format)}

    def _combination(self, codes: Codes) -> NDArray[np.int64]:
        """One number for each combination of parts."""
        sizes = tuple(size for _, size in self._offsets)
        return np.asarray(np.ravel_multi_index(tuple(codes.T), sizes), dtype=np.int64)

    def _stretches(
        self, ranges: NDArray[np.datetime64] | None
    ) -> tuple[NDArray[np.datetime64], NDArray[np.int64], NDArray[np.int64]]:
        """Hours (or days) of the range: first moment, how many moments of the resolution, and parts."""
        step = int(RESOLUTIONS[self.resolution])
        if self.resolution == "D":
            starts = np.unique(self._slots.astype("datetime64[D]")).astype("datetime64[s]")
            codes = self._codes(np.maximum(starts.astype("datetime64[h]"), self._slots[0]))
        else:
            starts, codes = self._slots.astype("datetime64[s]"), self._codes(self._slots)
        combinations = self._combination(codes)
        lengths = np.full(len(starts), max(1, 3600 // step), dtype=np.int64)
        if ranges is None:
            return starts, lengths, combinations
        found = []
        length = (lengths[0] - 1) * step
        for begin, end in ranges:  # moments within the range: from the first at or after its begin
            skip = np.maximum(-(-(begin - starts).astype("timedelta64[s]").astype(np.int64) // step), 0)
            left = (
                np.minimum((end - starts).astype("timedelta64[s]").astype(np.int64), length) // step
                - skip
                + 1
            )
            some = (left > 0) & (skip < lengths)
            found.append(
                (starts[some] + (skip[some] * step).astype("timedelta64[s]"), left[some], combinations[some])
            )
        parts = [np.concatenate(part) for part in zip(*found, strict=True)]
        return parts[0], parts[1], parts[2]

    def matching(self, name: str, wanted: Any, masses: Floats | None = None) -> Condition:  # noqa: ARG002
        """A time, a range (first, last) of times, a list of these, None for missing; or a mapping from parts
        to a value or a list of values.
        """
        attributes = self.attributes(name)
        if isinstance(wanted, dict):
            return Condition(self._matching_parts(name, wanted))
        ranges, absent = [], False
        for value in wanted_values(name, wanted):
            if no_value(value):
                absent = True
            else:
                ends = value if isinstance(value, tuple) else (value, value)
                if len(ends) != 2:
                    raise ConfigError(f"given: a range of column {name!r} is (first, last), got {value!r}")
                first, last = (_moment(end, f"given: value of {name!r}", self.tz) for end in ends)
                if (
                    isinstance(value, tuple)
                    or self.resolution == "D"
                    or first != first.astype("datetime64[D]")
                ):
                    ranges.append((first, last))
                else:  # a day means all of it
                    ranges.append((first, first + np.timedelta64(86_399, "s")))
        if absent and not self.missing:
            raise ConfigError(f"given: column {name!r} has no missing values")
        weights = np.zeros([attribute.size for attribute in attributes])
        limits = np.array(ranges, dtype="datetime64[us]").astype("datetime64[s]").reshape(-1, 2)
        if len(limits):
            sizes = tuple(size for _, size in self._offsets)
            _, lengths, combinations = self._stretches(limits)
            _, whole, every = self._stretches(None)
            if not len(lengths) and not absent:
                raise ConfigError(f"given: column {name!r} has no time in {wanted!r}")
            cells = int(np.prod(sizes))
            met = np.bincount(combinations, weights=lengths, minlength=cells)
            share = met / np.maximum(np.bincount(every, weights=whole, minlength=cells), 1)
            weights[tuple(slice(size) for size in sizes)] = np.minimum(share, 1.0).reshape(sizes)
        if absent:
            weights[(-1,) * weights.ndim] = 1.0
        names = tuple(attribute.name for attribute in attributes)
        return Condition({names: weights}, (limits, absent) if len(limits) else None)

    def _matching_parts(self, name: str, wanted: dict[str, Any]) -> dict[tuple[str, ...], Floats]:
        if not wanted or any(part not in self.parts for part in wanted):
            raise ConfigError(f"given: column {name!r} takes a mapping of {list(self.parts)}, got {wanted!r}")
        out: dict[tuple[str, ...], Floats] = {}
        for attribute, part, (least, size) in zip(
            self.attributes(name), self.parts, self._offsets, strict=True
        ):
            if part not in wanted:
                continue
            accepted = np.zeros(attribute.size)
            for value in np.atleast_1d(np.asarray(wanted[part])).tolist():
                if not isinstance(value, int) or not 0 <= value - least < size:
                    raise ConfigError(
                        f"given: {part} {value!r} does not occur in the range of column {name!r}"
                    )
                accepted[value - least] = 1.0
            out[(attribute.name,)] = accepted
        return out

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {
            "type": self.kind,
            "start": self.start,
            "end": self.end,
            "parts": list(self.parts),
        }
        if self.resolution != ("s" if "hour" in self.parts else "D"):
            out["resolution"] = self.resolution
        out.update({key: getattr(self, key) for key in ("tz", "format") if getattr(self, key) is not None})
        return {**out, "missing": True} if self.missing else out


def _part(part: str, times: NDArray[Any], start: str) -> NDArray[np.int64]:
    days = times.astype("datetime64[D]")
    found: NDArray[np.int64]
    if part == "hour":
        found = (times.astype("datetime64[h]") - days).astype(np.int64)
        return found
    if part == "weekday":
        return (days.astype(np.int64) + 3) % 7  # day 0 of the epoch was a Thursday
    if part == "date":
        return (days - np.datetime64(start, "D")).astype(np.int64)
    months = times.astype("datetime64[M]")
    if part == "day":
        found = (days - months).astype(np.int64) + 1
        return found
    if part == "month":
        return months.astype(np.int64) % 12 + 1
    return times.astype("datetime64[Y]").astype(np.int64) + 1970

"""Times as columns of a table: a few public parts (weekday, hour, ...) of a time between public bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from synthgeo.errors import ConfigError
from synthgeo.schema.columns import Attribute, Chunk, Codes, Column
from synthgeo.sources.chunk import refuse
from synthgeo.sources.values import times

_DAILY = ("year", "month", "day", "weekday", "date")
PARTS = (*_DAILY, "hour")
_MOST_SLOTS = 2_000_000


@dataclass(frozen=True)
class DateTime(Column):
    """A time in the public range [start, end), modelled by some of its parts.

    ``parts`` are among ``year``, ``month``, ``day`` (of the month), ``weekday`` (Monday is 0), ``date``
    (days since start) and ``hour``; each becomes an attribute ``<name>.<part>``. Combinations that no
    time in the range has are structural zeros. Synthetic times are uniform among the times of the range
    that have the synthetic parts. Zoned times are read as UTC."""

    start: str
    end: str
    parts: tuple[str, ...] = ("weekday", "hour")
    missing: bool = False
    kind: ClassVar[str] = "datetime"
    reads: ClassVar[str] = "time"

    def __init__(
        self, start: Any, end: Any, *, parts: Sequence[str] = ("weekday", "hour"), missing: bool = False
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
        if len(self._slots) > _MOST_SLOTS:
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
            Attribute(f"{name}.{part}", size + self.missing, True)
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
        found = times(chunk, name)
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

    def decode(self, name: str, codes: Codes, rng: np.random.Generator) -> dict[str, Any]:
        shape = tuple(size for _, size in self._offsets)
        absent = codes[:, 0] == shape[0] if self.missing else np.zeros(len(codes), dtype=bool)
        slot_cell = np.ravel_multi_index(tuple(self._codes(self._slots).T), shape)
        order = np.argsort(slot_cell, kind="stable")
        cell = np.ravel_multi_index(tuple(np.where(absent[:, None], 0, codes).T), shape, mode="clip")
        begin = np.searchsorted(slot_cell[order], cell, side="left")
        end = np.searchsorted(slot_cell[order], cell, side="right")
        # Combinations that do not exist are structural zeros, so only missing rows can have end == begin.
        pick = begin + np.floor(rng.random(len(cell)) * np.maximum(end - begin, 1)).astype(np.int64)
        slots = self._slots[order[np.minimum(pick, len(order) - 1)]].astype("datetime64[s]")
        times = slots + rng.integers(0, 3600, len(slots)).astype("timedelta64[s]")
        return {name: pd.Series(times.astype("datetime64[us]")).mask(absent)}

    def matching(self, name: str, wanted: Any) -> dict[str, NDArray[np.bool_]]:
        """A condition on a time is a mapping from parts to a value or a list of values."""
        if not isinstance(wanted, dict) or not wanted or any(part not in self.parts for part in wanted):
            raise ConfigError(f"given: column {name!r} takes a mapping of {list(self.parts)}, got {wanted!r}")
        out = {}
        for attribute, part, (least, size) in zip(
            self.attributes(name), self.parts, self._offsets, strict=True
        ):
            if part not in wanted:
                continue
            accepted = np.zeros(attribute.size, dtype=bool)
            for value in np.atleast_1d(np.asarray(wanted[part])).tolist():
                if not isinstance(value, int) or not 0 <= value - least < size:
                    raise ConfigError(
                        f"given: {part} {value!r} does not occur in the range of column {name!r}"
                    )
                accepted[value - least] = True
            out[attribute.name] = accepted
        return out

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {
            "type": self.kind,
            "start": self.start,
            "end": self.end,
            "parts": list(self.parts),
        }
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

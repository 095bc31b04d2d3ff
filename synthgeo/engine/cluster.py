"""The cluster engine: partitions of a dask DataFrame are counted where they are, and only histograms travel.

Counting is pure: a partition whose worker dies is counted again elsewhere, with the same result. No noise is
drawn here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from synthgeo._extras import require
from synthgeo.engine.chunk import Chunk, KeyFunction, bad_row, first
from synthgeo.engine.histogram import Histogram, merge_all
from synthgeo.engine.local import LocalSource, PandasFrame
from synthgeo.engine.source import UserEvents, count_chunk, events_of_chunk
from synthgeo.engine.windowed import (
    ScannedSource,
    count_windows_of_chunk,
    events_by_window_of_chunk,
    merge_windows,
)
from synthgeo.errors import InputError
from synthgeo.windows import Grid, checked_times

# Partial results merged by one task of the tree.
_FAN_IN = 8


class DaskSource(ScannedSource):
    """A dask DataFrame, or its rows in a span of time. Runs on the active dask client."""

    def __init__(self, frame: Any, *, span: tuple[str, int, int] | None = None) -> None:
        self._dask = require("dask", extra="dask")
        self._frame = frame
        self._span = span
        sample = PandasFrame(frame._meta)
        self.columns = sample.columns
        self.geometry = sample.geometry
        self.crs = sample.crs
        self._sample = sample

    def between(self, time: str, low: int, high: int) -> DaskSource:
        if self._span is not None:
            if self._span[0] != time:
                raise InputError(f"these rows are cut by {self._span[0]!r} already; cut by one column")
            low, high = max(low, self._span[1]), min(high, self._span[2])
        return DaskSource(self._frame, span=(time, low, high))

    def time_facts(self, time: str) -> tuple[bool, tuple[Any, Any] | None]:
        spans = [span for span in self._compute(_Times(time), [time]) if span is not None]
        whole = (min(low for low, _ in spans), max(high for _, high in spans)) if spans else None
        return self._sample.zoned(time), whole

    def chunks(self, columns: Sequence[str]) -> Iterator[Chunk]:
        for part in self._tasks(_Keep(), columns):
            yield self._dask.compute(part)[0]

    def histogram(self, key_fn: KeyFunction, columns: Sequence[str], *, weights: int = 1) -> Histogram:
        self.require(columns)
        parts = self._tasks(_Count(key_fn, weights), columns)
        total: Histogram = self._reduce(parts, merge_all, Histogram.empty(weights))
        return total

    def user_events(
        self, key_fn: KeyFunction, columns: Sequence[str], user: str, *, weights: int = 1
    ) -> UserEvents:
        self.require([*columns, user])
        parts = self._compute(_Events(key_fn, user, weights), [*columns, user])
        return UserEvents.concatenate(parts, weights)

    def count_by_window(
        self, key_fn: KeyFunction, columns: Sequence[str], weights: int, time: str, grid: Grid
    ) -> dict[int, Histogram]:
        parts = self._tasks(_CountWindows(key_fn, weights, time, grid), [*columns, time])
        return dict(self._reduce(parts, merge_windows, {}))

    def events_by_window(
        self, key_fn: KeyFunction, columns: Sequence[str], user: str, weights: int, time: str, grid: Grid
    ) -> dict[int, UserEvents]:
        found = self._compute(_EventWindows(key_fn, user, weights, time, grid), [*columns, user, time])
        numbers = sorted({number for part in found for number in part})
        return {
            number: UserEvents.concatenate([part[number] for part in found if number in part], weights)
            for number in numbers
        }

    def _tasks(self, work: Callable[[Chunk], Any], columns: Sequence[str]) -> list[Any]:
        """One delayed result per partition, over these columns only."""
        wanted = list(dict.fromkeys([*columns, self._span[0]] if self._span else columns))
        task = self._dask.delayed(_on_partition, pure=True)
        parts = self._frame[wanted].to_delayed()
        return [task(work, part, number, tuple(columns), self._span) for number, part in enumerate(parts)]

    def _compute(self, work: Callable[[Chunk], Any], columns: Sequence[str]) -> list[Any]:
        return list(self._dask.compute(*self._tasks(work, columns)))

    def _reduce(self, parts: list[Any], merge: Callable[[list[Any]], Any], nothing: Any) -> Any:
        """Merge partial results in a tree, on the workers."""
        task = self._dask.delayed(merge, pure=True)
        while len(parts) > 1:
            parts = [task(parts[at : at + _FAN_IN]) for at in range(0, len(parts), _FAN_IN)]
        return self._dask.compute(parts[0])[0] if parts else nothing


def _on_partition(
    work: Callable[[Chunk], Any],
    frame: pd.DataFrame,
    number: int,
    columns: tuple[str, ...],
    span: tuple[str, int, int] | None,
) -> Any:
    """Runs on a worker."""
    source = LocalSource(PandasFrame(frame))
    names = list(dict.fromkeys([*columns, span[0]] if span is not None else columns))
    chunk = source.read(names)
    rows: np.ndarray | None = None
    if span is not None:
        time, low, high = span
        at = checked_times(chunk[time], time).astype(np.int64)
        rows = np.flatnonzero((at >= low) & (at < high))
        arrays = {name: chunk[name][rows] for name in columns}
    else:
        arrays = {name: chunk[name] for name in columns}
    locate = _Rows(number, rows)
    return work(Chunk(arrays, rows=chunk.rows if rows is None else len(rows), locate=locate))


class _Rows:
    """Names rows by partition."""

    def __init__(self, number: int, rows: np.ndarray | None) -> None:
        self._number = number
        self._rows = rows

    def __call__(self, row: int) -> str:
        return f"row {row if self._rows is None else int(self._rows[row])} of partition {self._number}"


# What a worker does with a chunk. Classes and not closures, so that plain pickle carries them.


@dataclass(frozen=True)
class _Keep:
    def __call__(self, chunk: Chunk) -> Chunk:
        return chunk


@dataclass(frozen=True)
class _Times:
    time: str

    def __call__(self, chunk: Chunk) -> tuple[Any, Any] | None:
        times = checked_times(chunk[self.time], self.time)
        missing = np.isnat(times)
        if missing.any():
            raise chunk.located(bad_row(chunk, self.time, first(missing), "the time is missing"))
        return (times.min(), times.max()) if len(times) else None


@dataclass(frozen=True, eq=False)
class _Count:
    key_fn: KeyFunction
    weights: int

    def __call__(self, chunk: Chunk) -> Histogram:
        return count_chunk(self.key_fn, chunk, self.weights)


@dataclass(frozen=True, eq=False)
class _Events:
    key_fn: KeyFunction
    user: str
    weights: int

    def __call__(self, chunk: Chunk) -> UserEvents:
        return events_of_chunk(self.key_fn, chunk, self.user, self.weights)


@dataclass(frozen=True, eq=False)
class _CountWindows:
    key_fn: KeyFunction
    weights: int
    time: str
    grid: Grid

    def __call__(self, chunk: Chunk) -> dict[int, Histogram]:
        return count_windows_of_chunk(self.key_fn, chunk, self.weights, self.time, self.grid)


@dataclass(frozen=True, eq=False)
class _EventWindows:
    key_fn: KeyFunction
    user: str
    weights: int
    time: str
    grid: Grid

    def __call__(self, chunk: Chunk) -> dict[int, UserEvents]:
        return events_by_window_of_chunk(self.key_fn, chunk, self.user, self.weights, self.time, self.grid)

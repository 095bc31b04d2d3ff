"""The cluster engine: partitions of a dask DataFrame are counted where they are, and only histograms travel.

Counting is pure: a partition whose worker dies is counted again elsewhere, with the same result. No noise is
drawn here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pandas as pd

from synthgeo._extras import require
from synthgeo.errors import InputError
from synthgeo.sources.chunk import Chunk, KeyFunction, bad_row, first
from synthgeo.sources.frames import LocalSource, PandasFrame
from synthgeo.sources.grid import Grid, checked_times
from synthgeo.sources.histogram import Histogram, merge_all
from synthgeo.sources.source import UserEvents, count_chunk, events_of_chunk
from synthgeo.sources.windows import (
    ScannedSource,
    count_windows_of_chunk,
    events_by_window_of_chunk,
    merge_windows,
)

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
        work = _Times(time)
        return self._sample.zoned(time), work.combine(self._compute(work, [time]))

    def chunks(self, columns: Sequence[str]) -> Iterator[Chunk]:
        for number, part in enumerate(self._tasks(_Keep(), columns)):
            arrays = self._dask.compute(part)[0]
            rows = len(next(iter(arrays.values()))) if arrays else 0
            yield Chunk(arrays, rows=rows, locate=f"row {{}} of partition {number}".format)

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
        return _events_together(found, weights)

    def _tasks(self, work: _Work, columns: Sequence[str]) -> list[Any]:
        """One delayed result per partition, over these columns only."""
        wanted = list(dict.fromkeys([*columns, self._span[0]] if self._span else columns))
        task = self._dask.delayed(_on_partition, pure=True)
        parts = self._frame[wanted].to_delayed()
        return [task(work, part, number, tuple(columns), self._span) for number, part in enumerate(parts)]

    def _compute(self, work: _Work, columns: Sequence[str]) -> list[Any]:
        return list(self._dask.compute(*self._tasks(work, columns)))

    def _reduce(self, parts: list[Any], merge: Callable[[list[Any]], Any], nothing: Any) -> Any:
        """Merge partial results in a tree, on the workers."""
        task = self._dask.delayed(merge, pure=True)
        while len(parts) > 1:
            parts = [task(parts[at : at + _FAN_IN]) for at in range(0, len(parts), _FAN_IN)]
        return self._dask.compute(parts[0])[0] if parts else nothing


class _Work(Protocol):
    """What a worker does with each chunk of a partition, and with the results of all of them."""

    def __call__(self, chunk: Chunk) -> Any: ...

    def combine(self, parts: list[Any]) -> Any: ...


def _on_partition(
    work: _Work,
    frame: pd.DataFrame,
    number: int,
    columns: tuple[str, ...],
    span: tuple[str, int, int] | None,
) -> Any:
    """Runs on a worker, a chunk at a time, so that temporaries of large partitions stay small."""
    names = list(dict.fromkeys([*columns, span[0]] if span is not None else columns))
    chunks = LocalSource(PandasFrame(frame)).chunks(names)
    parts = [work(_cut(chunk, number, columns, span)) for chunk in chunks]
    return parts[0] if len(parts) == 1 else work.combine(parts)


def _cut(chunk: Chunk, number: int, columns: tuple[str, ...], span: tuple[str, int, int] | None) -> Chunk:
    """The chunk's rows in a span of time."""
    if span is None:
        return Chunk(chunk, rows=chunk.rows, locate=lambda row: f"{chunk.where(row)} of partition {number}")
    time, low, high = span
    at = checked_times(chunk[time], time).astype(np.int64)
    rows = np.flatnonzero((at >= low) & (at < high))
    return Chunk(
        {name: chunk[name][rows] for name in columns},
        rows=len(rows),
        locate=lambda row: f"{chunk.where(int(rows[row]))} of partition {number}",
    )


# Classes and not closures, so that plain pickle carries them.


@dataclass(frozen=True)
class _Keep:
    def __call__(self, chunk: Chunk) -> dict[str, np.ndarray]:
        return dict(chunk)

    def combine(self, parts: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


@dataclass(frozen=True)
class _Times:
    time: str

    def __call__(self, chunk: Chunk) -> tuple[Any, Any] | None:
        times = checked_times(chunk[self.time], self.time)
        missing = np.isnat(times)
        if missing.any():
            raise chunk.located(bad_row(chunk, self.time, first(missing), "the time is missing"))
        return (times.min(), times.max()) if len(times) else None

    def combine(self, parts: list[tuple[Any, Any] | None]) -> tuple[Any, Any] | None:
        spans = [span for span in parts if span is not None]
        return (min(low for low, _ in spans), max(high for _, high in spans)) if spans else None


@dataclass(frozen=True, eq=False)
class _Count:
    key_fn: KeyFunction
    weights: int

    def __call__(self, chunk: Chunk) -> Histogram:
        return count_chunk(self.key_fn, chunk, self.weights)

    def combine(self, parts: list[Histogram]) -> Histogram:
        return merge_all(parts)


@dataclass(frozen=True, eq=False)
class _Events:
    key_fn: KeyFunction
    user: str
    weights: int

    def __call__(self, chunk: Chunk) -> UserEvents:
        return events_of_chunk(self.key_fn, chunk, self.user, self.weights)

    def combine(self, parts: list[UserEvents]) -> UserEvents:
        return UserEvents.concatenate(parts, self.weights)


@dataclass(frozen=True, eq=False)
class _CountWindows:
    key_fn: KeyFunction
    weights: int
    time: str
    grid: Grid

    def __call__(self, chunk: Chunk) -> dict[int, Histogram]:
        return count_windows_of_chunk(self.key_fn, chunk, self.weights, self.time, self.grid)

    def combine(self, parts: list[dict[int, Histogram]]) -> dict[int, Histogram]:
        return merge_windows(parts)


@dataclass(frozen=True, eq=False)
class _EventWindows:
    key_fn: KeyFunction
    user: str
    weights: int
    time: str
    grid: Grid

    def __call__(self, chunk: Chunk) -> dict[int, UserEvents]:
        return events_by_window_of_chunk(self.key_fn, chunk, self.user, self.weights, self.time, self.grid)

    def combine(self, parts: list[dict[int, UserEvents]]) -> dict[int, UserEvents]:
        return _events_together(parts, self.weights)


def _events_together(parts: list[dict[int, UserEvents]], weights: int) -> dict[int, UserEvents]:
    numbers = sorted({number for part in parts for number in part})
    return {
        number: UserEvents.concatenate([part[number] for part in parts if number in part], weights)
        for number in numbers
    }

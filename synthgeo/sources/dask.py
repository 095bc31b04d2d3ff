"""The cluster engine: partitions of a dask DataFrame are counted where they are, and only histograms travel.

Counting is pure: a partition whose worker dies is counted again elsewhere, with the same result. No noise is
drawn here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import pandas as pd

from synthgeo._extras import require
from synthgeo.errors import InputError
from synthgeo.sources.chunk import Chunk, KeyFunction
from synthgeo.sources.declared import Reading
from synthgeo.sources.frames import LocalSource, PandasFrame
from synthgeo.sources.grid import Grid
from synthgeo.sources.histogram import Histogram, merge_all
from synthgeo.sources.source import UserEvents, count_chunk, events_of_chunk, joined_columns, usable
from synthgeo.sources.windows import (
    Ids,
    KnownTimes,
    ScannedSource,
    count_windows_of_chunk,
    cut_chunk,
    events_by_window_of_chunk,
    merge_windows,
)

# Partial results merged by one task of the tree.
_FAN_IN = 8


class DaskSource(ScannedSource):
    """A dask DataFrame, or its rows in a span of time. Runs on the active dask client."""

    def __init__(
        self, frame: Any, reading: Reading | None = None, *, span: tuple[str, int, int] | None = None
    ) -> None:
        self._dask = require("dask", extra="dask")
        self._frame = frame
        self._span = span
        self.reading = Reading() if reading is None else reading
        sample = PandasFrame(frame._meta)
        self.columns = sample.columns
        self.geometry = sample.geometry
        self.crs = sample.crs
        self._sample = sample

    def is_zoned(self, column: str) -> bool:
        return bool(self._sample.zoned(column)) or self.reading.tz is not None

    def between(self, time: str, low: int, high: int) -> DaskSource:
        if self._span is not None:
            if self._span[0] != time:
                raise InputError(f"these rows are cut by {self._span[0]!r} already; cut by one column")
            low, high = max(low, self._span[1]), min(high, self._span[2])
        return DaskSource(self._frame, self.reading, span=(time, low, high))

    def time_span(self, time: str) -> tuple[Any, Any] | None:
        work = _Times(time)
        return work.combine(self._compute(work, [time]))

    def loads(self, columns: Sequence[str], *, ordered: bool = True) -> Iterator[Callable[[], Chunk]]:  # noqa: ARG002
        for number, part in enumerate(self._tasks(_Keep(), columns)):
            arrays, rows = self._dask.compute(part)[0]
            zoned = [name for name in columns if self._sample.zoned(name)]
            where = f"row {{}} of partition {number}".format
            chunk = Chunk(arrays, rows=rows, locate=where, reading=self.reading, zoned=zoned)
            yield lambda chunk=chunk: chunk  # type: ignore[misc]

    def histogram(self, key_fn: KeyFunction, columns: Sequence[str], *, weights: int = 1) -> Histogram:
        self.require(columns)
        with self._diagnosing(columns, (key_fn,)):
            parts = self._tasks(_Count(key_fn, weights), columns)
            total: Histogram = self._reduce(parts, merge_all, Histogram.empty(weights))
        return total

    def user_events(
        self, key_fn: KeyFunction, columns: Sequence[str], user: str, *, weights: int = 1
    ) -> UserEvents:
        self.require([*columns, user])
        with self._diagnosing([*columns, user], (key_fn, Ids(user))):
            parts = self._compute(_Events(key_fn, user, weights), [*columns, user])
        return UserEvents.concatenate(parts, weights)

    def count_by_window(
        self, key_fn: KeyFunction, columns: Sequence[str], weights: int, time: str, grid: Grid
    ) -> dict[int, Histogram]:
        with self._diagnosing([*columns, time], (key_fn, KnownTimes(time))):
            parts = self._tasks(_CountWindows(key_fn, weights, time, grid), [*columns, time])
            return dict(self._reduce(parts, merge_windows, {}))

    def events_by_window(
        self, key_fn: KeyFunction, columns: Sequence[str], user: str, weights: int, time: str, grid: Grid
    ) -> dict[int, UserEvents]:
        wanted = [*columns, user, time]
        with self._diagnosing(wanted, (key_fn, KnownTimes(time), Ids(user))):
            found = self._compute(_EventWindows(key_fn, user, weights, time, grid), wanted)
        return _events_together(found, weights)

    @contextmanager
    def _diagnosing(self, columns: Sequence[str], uses: Sequence[Any]) -> Iterator[None]:
        try:
            yield
        except InputError as problem:
            if problem.row is None:
                raise
            raise self.diagnosed(problem, list(dict.fromkeys(columns)), uses) from problem

    def _tasks(self, work: _Work, columns: Sequence[str]) -> list[Any]:
        """One delayed result per partition, over these columns only."""
        wanted = list(dict.fromkeys([*columns, self._span[0]] if self._span else columns))
        task = self._dask.delayed(_on_partition, pure=True)
        parts = self._frame[wanted].to_delayed()
        names = tuple(dict.fromkeys(columns))
        return [
            task(work, part, number, names, self._span, self.reading) for number, part in enumerate(parts)
        ]

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
    reading: Reading,
) -> Any:
    """Runs on a worker, a chunk at a time, so that temporaries of large partitions stay small."""
    names = list(dict.fromkeys([*columns, span[0]] if span is not None else columns))
    source = LocalSource(PandasFrame(frame), reading=reading)
    parts = [work(_cut(_named(chunk, number), span)) for chunk in source.chunks(names)]
    return parts[0] if len(parts) == 1 else work.combine(parts)


def _named(chunk: Chunk, number: int) -> Chunk:
    """The chunk, whose rows also say which partition they are in."""
    return Chunk(
        chunk,
        rows=chunk.rows,
        locate=lambda row: f"{chunk.where(row)} of partition {number}",
        reading=chunk.reading,
        zoned=chunk.zoned,
    )


def _cut(chunk: Chunk, span: tuple[str, int, int] | None) -> Chunk:
    return chunk if span is None else cut_chunk(chunk, *span)


# Classes and not closures, so that plain pickle carries them.


@dataclass(frozen=True)
class _Keep:
    def __call__(self, chunk: Chunk) -> tuple[dict[str, Any], int]:
        return dict(chunk), chunk.rows

    def combine(self, parts: list[tuple[dict[str, Any], int]]) -> tuple[dict[str, Any], int]:
        joined = {name: joined_columns([part[name] for part, _ in parts]) for name in parts[0][0]}
        return joined, sum(rows for _, rows in parts)


@dataclass(frozen=True)
class _Times:
    time: str

    def __call__(self, chunk: Chunk) -> tuple[Any, Any] | None:
        check = KnownTimes(self.time)
        times = check(usable(chunk, check))
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

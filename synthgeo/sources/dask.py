"""The cluster engine: partitions of a dask DataFrame are counted where they are, and only histograms travel.

Counting is pure: a partition whose worker dies is counted again elsewhere, with the same result. No noise is
drawn here.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from typing import Any, Protocol

import pandas as pd

from synthgeo.errors import InputError
from synthgeo.extras import require
from synthgeo.sources.chunk import Chunk, KeyFunction
from synthgeo.sources.declared import Reading
from synthgeo.sources.files import ParquetSource, file_source
from synthgeo.sources.frames import LocalSource, PandasFrame
from synthgeo.sources.grid import Grid
from synthgeo.sources.histogram import Histogram, merge_all
from synthgeo.sources.source import UserEvents, count_chunk, events_of_chunk, joined_chunks, usable
from synthgeo.sources.text import TextSource
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


class ClusterSource(ScannedSource):
    """Rows in partitions, each of which is counted by a task, or their rows in a span of time.

    Runs on the active dask client.
    """

    def __init__(self) -> None:
        self._dask = require("dask", extra="dask")
        self._span: tuple[str, int, int] | None = None

    @abstractmethod
    def _parts(self, columns: Sequence[str]) -> list[Any]:
        """What each task reads: a delayed frame, or a ``FilePart``."""

    def between(self, time: str, low: int, high: int) -> ClusterSource:
        if self._span is not None:
            if self._span[0] != time:
                raise InputError(f"these rows are cut by {self._span[0]!r} already; cut by one column")
            low, high = max(low, self._span[1]), min(high, self._span[2])
        twin = copy(self)
        twin._span = (time, low, high)  # noqa: SLF001 - a copy of itself
        return twin

    def time_span(self, time: str) -> tuple[Any, Any] | None:
        work = _Times(time)
        return work.combine(self._compute(work, [time]))

    def loads(self, columns: Sequence[str], *, ordered: bool = True) -> Iterator[Callable[[], Chunk]]:  # noqa: ARG002
        for part in self._tasks(_Keep(), columns):
            chunk: Chunk = self._dask.compute(part)[0]
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
        return [
            task(work, part, number, wanted, self._span, self.reading)
            for number, part in enumerate(self._parts(wanted))
        ]

    def _compute(self, work: _Work, columns: Sequence[str]) -> list[Any]:
        return list(self._dask.compute(*self._tasks(work, columns)))

    def _reduce(self, parts: list[Any], merge: Callable[[list[Any]], Any], nothing: Any) -> Any:
        """Merge partial results in a tree, on the workers."""
        task = self._dask.delayed(merge, pure=True)
        while len(parts) > 1:
            parts = [task(parts[at : at + _FAN_IN]) for at in range(0, len(parts), _FAN_IN)]
        return self._dask.compute(parts[0])[0] if parts else nothing


class DaskSource(ClusterSource):
    """A dask DataFrame."""

    def __init__(self, frame: Any, reading: Reading | None = None) -> None:
        super().__init__()
        self._frame = frame
        self.reading = Reading() if reading is None else reading
        self._sample = PandasFrame(require("dask.dataframe.dispatch", extra="dask").make_meta(frame))
        self.columns = self._sample.columns
        self.geometry, self.crs = self._sample.geometry, self._sample.crs

    def is_zoned(self, column: str) -> bool:
        return bool(self._sample.zoned(column)) or self.reading.tz is not None

    def _parts(self, columns: Sequence[str]) -> list[Any]:
        return list(self._frame[list(columns)].to_delayed())


class FilesOnCluster(ClusterSource):
    """Files that the workers read themselves, a part of a file per task: they must see the same paths."""

    def __init__(self, files: TextSource | ParquetSource) -> None:
        super().__init__()
        self._files = files
        self.columns, self.reading = files.columns, files.reading
        self.geometry, self.crs = files.geometry, files.crs

    def is_zoned(self, column: str) -> bool:
        return self._files.is_zoned(column)

    def described(self, asked: Sequence[str]) -> str:
        return self._files.described(asked)

    def _parts(self, columns: Sequence[str]) -> list[Any]:  # noqa: ARG002
        return [FilePart(self._files, part) for part in self._files.parts()]


@dataclass(frozen=True)
class FilePart:
    """A part of a file, as a task reads it."""

    files: TextSource | ParquetSource
    part: Any

    def chunks(self, columns: Sequence[str]) -> Iterator[Chunk]:
        """The rows of the part."""
        return self.files.chunks_of(self.part, columns)


def files_on_cluster(paths: Sequence[Any], reading: Reading) -> FilesOnCluster:
    """Parquet or text files, counted by the active dask client."""
    files = file_source(paths, reading)
    if not isinstance(files, TextSource | ParquetSource):
        raise InputError("a cluster reads Parquet or CSV files, one kind at a time")
    return FilesOnCluster(files)


class _Work(Protocol):
    """What a worker does with each chunk of a partition, and with the results of all of them."""

    def __call__(self, chunk: Chunk) -> Any: ...

    def combine(self, parts: list[Any]) -> Any: ...


def _on_partition(
    work: _Work,
    part: pd.DataFrame | FilePart,
    number: int,
    columns: Sequence[str],
    span: tuple[str, int, int] | None,
    reading: Reading,
) -> Any:
    """Runs on a worker, a chunk at a time, so that temporaries of large partitions stay small."""
    if isinstance(part, FilePart):
        chunks = part.chunks(columns)
    else:
        rows = LocalSource(PandasFrame(part), reading=reading)
        chunks = (_named(chunk, number) for chunk in rows.chunks(columns))
    results = [work(_cut(chunk, span)) for chunk in chunks]
    return results[0] if len(results) == 1 else work.combine(results)


def _named(chunk: Chunk, number: int) -> Chunk:
    """The chunk, whose rows also say which partition they are in."""
    return Chunk(
        chunk,
        rows=chunk.rows,
        locate=_InPartition(chunk.where, number),
        reading=chunk.reading,
        zoned=chunk.zoned,
    )


@dataclass(frozen=True)
class _InPartition:
    where: Callable[[int], str]
    number: int

    def __call__(self, row: int) -> str:
        return f"{self.where(row)} of partition {self.number}"


def _cut(chunk: Chunk, span: tuple[str, int, int] | None) -> Chunk:
    return chunk if span is None else cut_chunk(chunk, *span)


# Classes and not closures, so that plain pickle carries them.


@dataclass(frozen=True)
class _Keep:
    def __call__(self, chunk: Chunk) -> Chunk:
        return chunk

    def combine(self, parts: list[Chunk]) -> Chunk:
        return joined_chunks(parts)


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

"""What the cluster engines share: rows in partitions that are counted where they are, and what a worker does.

Counting is pure: a partition whose worker dies is counted again elsewhere, with the same result. No noise is
drawn here.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pandas as pd

from synthgeo import validate
from synthgeo.errors import InputError
from synthgeo.privacy.contribution import bucket_of
from synthgeo.privacy.users import UserIds
from synthgeo.sources.chunk import Chunk, KeyFunction
from synthgeo.sources.declared import Reading
from synthgeo.sources.files import ParquetSource, file_source
from synthgeo.sources.fingerprint import WithIdentity, with_identity
from synthgeo.sources.grid import Grid
from synthgeo.sources.histogram import Histogram
from synthgeo.sources.source import (
    Bounder,
    BounderPart,
    Events,
    UserCount,
    UserEvents,
    count_chunk,
    joined_chunks,
    usable,
)
from synthgeo.sources.text import TextSource
from synthgeo.sources.unchanged import Unchanged
from synthgeo.sources.windows import (
    Ids,
    KnownTimes,
    ScannedSource,
    count_windows_of_chunk,
    cut_chunk,
    events_by_window_of_chunk,
    merge_windows,
)

# Rows by window; all rows are window 0 where there are no windows.
Windows = dict[int, Histogram]
# The rows of a column of times from one instant to before another, in microseconds since 1970.
Span = tuple[str, int, int]


_timeout: ContextVar[float | None] = ContextVar("timeout", default=None)


@contextmanager
def cluster_timeout(seconds: float) -> Iterator[None]:
    """While this lasts, whatever a cluster is asked fails after so many seconds with a ``ClusterError``.

    For workers that are frozen and schedulers that hang: nothing is spent by a batch that was not counted, so
    it can be given again. In Spark it ends whatever the session is running.
    """
    before = _timeout.set(validate.positive(seconds, "seconds"))
    try:
        yield
    finally:
        _timeout.reset(before)


def seconds_allowed() -> float | None:
    """How long a cluster may take for an answer; None: for ever."""
    return _timeout.get()


class Work(Protocol):
    """What a worker does with each chunk of a partition, and with the results of all of them.

    Workers are classes and not closures, so that plain pickle carries them.
    """

    def __call__(self, chunk: Chunk) -> Any: ...

    def combine(self, parts: list[Any]) -> Any: ...


class ClusterSource(ScannedSource):
    """Rows in partitions, each of which is counted by a task, or their rows in a span of time."""

    gathers_users = False
    _span: Span | None = None
    _unchanged: Unchanged = Unchanged(())  # the files that it reads, as far as they are known

    @abstractmethod
    def _results(self, work: Work, columns: Sequence[str]) -> Iterator[Any]:
        """What the work gives for each partition, over these columns only."""

    @abstractmethod
    def _counts(self, work: CountWindows, columns: Sequence[str]) -> Windows:
        """What counting gives for all partitions together, summed on the cluster."""

    @abstractmethod
    def _users(
        self, work: Events, columns: Sequence[str], count: UserCount, bounder: Bounder
    ) -> tuple[Histogram, Sequence[BounderPart]]:
        """What the events of all users count, each user's brought together by the engine's shuffle, and the
        parts of the bounder that come after them.
        """

    def between(self, time: str, low: int, high: int) -> ClusterSource:
        if self._span is not None:
            if self._span[0] != time:
                raise InputError(f"these rows are cut by {self._span[0]!r} already; cut by one column")
            low, high = max(low, self._span[1]), min(high, self._span[2])
        twin = copy(self)
        twin._span = (time, low, high)  # noqa: SLF001 - a copy of itself
        return twin

    def time_span(self, time: str) -> tuple[Any, Any] | None:
        work = Times(time)
        with self._diagnosing([time], (KnownTimes(time),)):
            return work.combine(list(self._results(work, [time])))

    def loads(self, columns: Sequence[str], *, ordered: bool = True) -> Iterator[Callable[[], Chunk]]:  # noqa: ARG002
        empty = True
        for chunk in self._unchanged.read(self._results(Keep(), columns)):
            if chunk is not None:
                empty = False
                yield lambda chunk=chunk: chunk  # type: ignore[misc]
        if empty:
            none = {name: np.empty(0, dtype=object) for name in columns}
            yield lambda: Chunk(none, rows=0, reading=self.reading)

    def histogram(self, key_fn: KeyFunction, columns: Sequence[str], *, weights: int = 1) -> Histogram:
        self.require(columns)
        with self._diagnosing(columns, (key_fn,)):
            counts = self._counts(CountWindows(key_fn, weights), columns)
        return counts.get(0, Histogram.empty(weights))

    def user_events(
        self, key_fn: KeyFunction, columns: Sequence[str], user: str, *, weights: int = 1
    ) -> UserEvents:
        self.require([*columns, user])
        with self._diagnosing([*columns, user], (key_fn, Ids(user))):
            parts = list(self._results(Events(key_fn, user, weights), [*columns, user]))
        return UserEvents.concatenate(parts, weights)

    def count_users(
        self,
        key_fn: KeyFunction,
        columns: Sequence[str],
        user: str,
        count: UserCount,
        bounder: Bounder,
        *,
        weights: int = 1,
    ) -> Histogram:
        hashed = None
        if isinstance(key_fn, WithIdentity):  # in a pass of its own, which moves no events
            hashed, key_fn = self.histogram(key_fn.rows, columns), key_fn.key_fn
        wanted = list(dict.fromkeys([*columns, user]))
        self.require(wanted)
        work = Events(key_fn, user, weights)
        with self._diagnosing(wanted, work.uses):
            counts, parts = self._users(work, wanted, count, bounder)
        bounder.join(parts)
        return counts if hashed is None else with_identity(counts, hashed)

    def count_by_window(
        self, key_fn: KeyFunction, columns: Sequence[str], weights: int, time: str, grid: Grid
    ) -> Windows:
        with self._diagnosing([*columns, time], (key_fn, KnownTimes(time))):
            return self._counts(CountWindows(key_fn, weights, time, grid), [*columns, time])

    def events_by_window(
        self, key_fn: KeyFunction, columns: Sequence[str], user: str, weights: int, time: str, grid: Grid
    ) -> dict[int, UserEvents]:
        wanted = [*columns, user, time]
        work = EventWindows(key_fn, user, weights, time, grid)
        with self._diagnosing(wanted, (key_fn, KnownTimes(time), Ids(user))):
            return work.combine(list(self._results(work, wanted)))

    def _read_columns(self, columns: Sequence[str]) -> list[str]:
        """What a worker reads to answer for these columns."""
        return list(dict.fromkeys([*columns, self._span[0]] if self._span else columns))

    @contextmanager
    def _diagnosing(self, columns: Sequence[str], uses: Sequence[Any]) -> Iterator[None]:
        try:
            with self._unchanged.while_read():
                yield
        except InputError as problem:
            if problem.row is None:
                raise
            raise self.diagnosed(problem, list(dict.fromkeys(columns)), uses) from problem


def events_frame(events: UserEvents, buckets: int) -> pd.DataFrame:
    """Events as rows that an engine can shuffle by ``bucket``; ids and keys as the signed numbers of their
    bits.
    """
    names = [f"w{column}" for column in range(events.weights.shape[1])]
    columns = {
        "bucket": bucket_of(events.users, buckets),
        "high": events.users.high.view(np.int64),
        "low": events.users.low.view(np.int64),
        "key": events.keys.view(np.int64),
    }
    return pd.DataFrame(columns | dict(zip(names, events.weights.T, strict=True)))


def events_of_frame(rows: Any) -> UserEvents:
    """The events of such rows, in a DataFrame or in columns by name."""
    high, low, key = (np.asarray(rows[name]).view(np.uint64) for name in ("high", "low", "key"))
    names = [name for name in rows if name.startswith("w")]
    weights = np.column_stack([np.asarray(rows[name]) for name in names])
    return UserEvents(UserIds(high, low), key, weights)


def on_chunks(work: Work, chunks: Iterator[Chunk], span: Span | None) -> Any:
    """Runs on a worker, a chunk at a time, so that temporaries of large partitions stay small."""
    results = [work(chunk if span is None else cut_chunk(chunk, *span)) for chunk in chunks]
    return results[0] if len(results) == 1 else work.combine(results)


@dataclass(frozen=True)
class FilePart:
    """A part of a file, as a task reads it."""

    files: TextSource | ParquetSource
    part: Any

    def chunks(self, columns: Sequence[str]) -> Iterator[Chunk]:
        """The rows of the part."""
        return self.files.chunks_of(self.part, columns)


def files_in_parts(paths: Sequence[Any], reading: Reading) -> TextSource | ParquetSource:
    """Files that workers read themselves, a part of a file per task: they must see the same paths."""
    files = file_source(paths, reading)
    if not isinstance(files, TextSource | ParquetSource):
        raise InputError("a cluster reads Parquet or CSV files, one kind at a time")
    return files


@dataclass(frozen=True)
class InPartition:
    """Names rows by their partition too."""

    where: Callable[[int], str]
    number: int

    def __call__(self, row: int) -> str:
        return f"{self.where(row)} of partition {self.number}"


@dataclass(frozen=True)
class Keep:
    """The rows themselves; None where there are none."""

    def __call__(self, chunk: Chunk) -> Chunk:
        return chunk

    def combine(self, parts: list[Chunk]) -> Chunk | None:
        return joined_chunks(parts) if parts else None


@dataclass(frozen=True)
class Times:
    """The first and last time."""

    time: str

    def __call__(self, chunk: Chunk) -> tuple[Any, Any] | None:
        check = KnownTimes(self.time)
        times = check(usable(chunk, check))
        return (times.min(), times.max()) if len(times) else None

    def combine(self, parts: list[tuple[Any, Any] | None]) -> tuple[Any, Any] | None:
        spans = [span for span in parts if span is not None]
        return (min(low for low, _ in spans), max(high for _, high in spans)) if spans else None


@dataclass(frozen=True, eq=False)
class CountWindows:
    """The histogram of each window that has rows; of all rows, as window 0, where no grid is given."""

    key_fn: KeyFunction
    weights: int
    time: str | None = None
    grid: Grid | None = None

    def __call__(self, chunk: Chunk) -> Windows:
        if self.time is None or self.grid is None:
            return {0: count_chunk(self.key_fn, chunk, self.weights)}
        return count_windows_of_chunk(self.key_fn, chunk, self.weights, self.time, self.grid)

    def combine(self, parts: list[Windows]) -> Windows:
        return merge_windows(parts)


@dataclass(frozen=True, eq=False)
class EventWindows:
    """The events of each window that has rows, with their users."""

    key_fn: KeyFunction
    user: str
    weights: int
    time: str
    grid: Grid

    def __call__(self, chunk: Chunk) -> dict[int, UserEvents]:
        return events_by_window_of_chunk(self.key_fn, chunk, self.user, self.weights, self.time, self.grid)

    def combine(self, parts: list[dict[int, UserEvents]]) -> dict[int, UserEvents]:
        numbers = sorted({number for part in parts for number in part})
        return {
            number: UserEvents.concatenate([part[number] for part in parts if number in part], self.weights)
            for number in numbers
        }

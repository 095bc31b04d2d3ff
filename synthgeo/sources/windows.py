"""Windows of a source that is costly to scan: several windows are counted in one pass.

A scan per window would read unsorted files once for every window. So a pass counts by (window, key) for a
group of windows ahead. Groups start with one window and grow while the same key function comes back and the
counts stay small: few passes, bounded memory, and on files sorted by time (where DuckDB skips what a pass
does not need) no row is read twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from synthgeo.errors import InputError
from synthgeo.privacy.contribution import ContributionBounder
from synthgeo.sources import values
from synthgeo.sources.chunk import Chunk, KeyFunction
from synthgeo.sources.fingerprint import WithIdentity
from synthgeo.sources.grid import Grid, make_grid
from synthgeo.sources.histogram import Accumulator, Histogram, merge_all
from synthgeo.sources.source import (
    Bounder,
    Events,
    Source,
    UserCount,
    UserEvents,
    count_chunk,
    events_of_chunk,
    keys_of_chunk,
    usable,
)
from synthgeo.sources.spill import count_spilled

if TYPE_CHECKING:
    import pandas as pd

_GROWTH = 8
# A pass may hold this many keys or events; beyond it the next group has fewer windows.
_HELD = 1 << 23

# Questions whose last pass is kept: whoever asks two in turn pays for two passes, not for two per window.
_QUESTIONS = 3

# Results of one pass, by window.
Parts = dict[int, Any]


class ScannedSource(Source):
    """A source whose rows are read by scanning: files, partitions of a cluster.

    ``gathers_users`` says that the events of several windows may be held here, to save passes.
    """

    scans = True
    gathers_users: bool = True

    def between(self, time: str, low: int, high: int) -> ScannedSource:
        """The rows with ``low <= time < high``, in microseconds since 1970."""
        return Span(self, time, low, high)

    def time_span(self, time: str) -> tuple[Any, Any] | None:
        """The first and last time of a column, None without rows.

        Raises ``InputError`` for rows without a time, so that they are refused before anything is spent.
        """
        check = KnownTimes(time)
        spans = [
            (found.min(), found.max())
            for found in self._in_threads([time], lambda chunk: check(usable(chunk, check)), (check,))
            if len(found)
        ]
        return (min(low for low, _ in spans), max(high for _, high in spans)) if spans else None

    def windows(
        self, *, time: str, every: str, start: Any = None, end: Any = None, tz: str | None = None
    ) -> Iterator[tuple[pd.Timestamp, Source]]:
        self.require([time])
        span = self.time_span(time)
        zoned, tz = self.is_zoned(time), tz or self.reading.tz
        grid = make_grid(every, start, end, zoned=zoned, span=span, column=time, tz=tz)
        passes = _Passes(self, time, grid)
        return grid.marked((_Window(passes, number) for number in range(grid.size)), time)

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
        wanted = list(dict.fromkeys([*columns, user]))
        self.require(wanted)
        work = Events(key_fn, user, weights)
        return count_spilled(self._in_threads(wanted, work, work.uses, ordered=True), count, bounder, weights)

    def count_by_window(
        self, key_fn: KeyFunction, columns: Sequence[str], weights: int, time: str, grid: Grid
    ) -> dict[int, Histogram]:
        """The histogram of every window that has rows, in one pass."""
        totals: dict[int, Accumulator] = {}
        wanted = list(dict.fromkeys([*columns, time]))

        def work(chunk: Chunk) -> dict[int, Histogram]:
            return count_windows_of_chunk(key_fn, chunk, weights, time, grid)

        for parts in self._in_threads(wanted, work, (key_fn, KnownTimes(time))):
            for window, part in parts.items():
                totals.setdefault(window, Accumulator(weights, compact_at=1 << 16)).add(part)
        return {window: total.result() for window, total in totals.items()}

    def events_by_window(
        self, key_fn: KeyFunction, columns: Sequence[str], user: str, weights: int, time: str, grid: Grid
    ) -> dict[int, UserEvents]:
        """The users' events of every window that has rows, in one pass."""
        wanted = list(dict.fromkeys([*columns, user, time]))
        parts: dict[int, list[UserEvents]] = {}
        uses = (key_fn, KnownTimes(time), Ids(user))

        def work(chunk: Chunk) -> dict[int, UserEvents]:
            return events_by_window_of_chunk(key_fn, chunk, user, weights, time, grid)

        for found in self._in_threads(wanted, work, uses, ordered=True):
            for window, events in found.items():
                parts.setdefault(window, []).append(events)
        return {window: UserEvents.concatenate(found, weights) for window, found in parts.items()}


@dataclass(frozen=True)
class KnownTimes:
    """A column of times of which none may be missing."""

    column: str

    def __call__(self, chunk: Any) -> NDArray[np.datetime64]:
        return values.known_times(chunk, self.column)


@dataclass(frozen=True)
class Ids:
    """A column of ids of which none may be missing."""

    column: str

    def __call__(self, chunk: Any) -> Any:
        return values.ids(chunk, self.column)


class Span(ScannedSource):
    """The rows of a source in a span of time."""

    def __init__(self, source: ScannedSource, time: str, low: int, high: int) -> None:
        self._source, self._time, self._low, self._high = source, time, low, high
        self.columns, self.reading = source.columns, source.reading
        self.geometry, self.crs, self.open_schema = source.geometry, source.crs, source.open_schema

    def is_zoned(self, column: str) -> bool:
        return self._source.is_zoned(column)

    def described(self, asked: Sequence[str]) -> str:
        return self._source.described(asked)

    def loads(self, columns: Sequence[str], *, ordered: bool = True) -> Iterator[Callable[[], Chunk]]:
        wanted = list(dict.fromkeys([*columns, self._time]))
        for load in self._source.loads(wanted, ordered=ordered):
            yield lambda load=load: self._cut(load())  # type: ignore[misc]

    def _cut(self, chunk: Chunk) -> Chunk:
        return cut_chunk(chunk, self._time, self._low, self._high)


def cut_chunk(chunk: Chunk, time: str, low: int, high: int) -> Chunk:
    """The chunk's rows in a span of time."""
    check = KnownTimes(time)
    chunk = usable(chunk, check)
    at = check(chunk).astype(np.int64)
    rows = np.flatnonzero((at >= low) & (at < high))
    return chunk if len(rows) == chunk.rows else chunk.take(rows)


class _Window(Source):
    """One window; its counts come from the pass that it shares with its neighbours."""

    scans = True

    def __init__(self, passes: _Passes, number: int) -> None:
        self._passes = passes
        self._number = number
        self.columns, self.reading = passes.source.columns, passes.source.reading
        self.geometry, self.crs = passes.source.geometry, passes.source.crs
        self.open_schema = passes.source.open_schema

    def apart(self) -> Source:
        return self._passes.rows(self._number, self._number + 1)

    def loads(self, columns: Sequence[str], *, ordered: bool = True) -> Iterator[Callable[[], Chunk]]:
        return self._passes.rows(self._number, self._number + 1).loads(columns, ordered=ordered)

    def is_zoned(self, column: str) -> bool:
        return self._passes.source.is_zoned(column)

    def described(self, asked: Sequence[str]) -> str:
        return self._passes.source.described(asked)

    def windows(
        self, *, time: str, every: str, start: Any = None, end: Any = None, tz: str | None = None
    ) -> Iterator[tuple[pd.Timestamp, Source]]:
        rows = self._passes.rows(self._number, self._number + 1)
        return rows.windows(time=time, every=every, start=start, end=end, tz=tz)

    def histogram(self, key_fn: KeyFunction, columns: Sequence[str], *, weights: int = 1) -> Histogram:
        self.require(columns)
        question = ("count", key_fn, tuple(columns), weights)

        def answer(rows: ScannedSource, time: str, grid: Grid) -> Parts:
            return rows.count_by_window(key_fn, columns, weights, time, grid)

        found = self._passes.get(self._number, question, answer)
        return Histogram.empty(weights) if found is None else found

    def user_events(
        self, key_fn: KeyFunction, columns: Sequence[str], user: str, *, weights: int = 1
    ) -> UserEvents:
        self.require([*columns, user])
        question = ("events", key_fn, (*columns, user), weights)

        def answer(rows: ScannedSource, time: str, grid: Grid) -> Parts:
            return rows.events_by_window(key_fn, columns, user, weights, time, grid)

        found = self._passes.get(self._number, question, answer)
        return UserEvents.concatenate([], weights) if found is None else found

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
        if isinstance(bounder, ContributionBounder) and self._passes.source.gathers_users:
            return super().count_users(key_fn, columns, user, count, bounder, weights=weights)
        rows = self._passes.rows(self._number, self._number + 1)
        return rows.count_users(key_fn, columns, user, count, bounder, weights=weights)


class _Passes:
    """What the windows of one source share: the grid, and the last pass for each of the latest questions."""

    def __init__(self, source: ScannedSource, time: str, grid: Grid) -> None:
        self.source = source
        self._time = time
        self._grid = grid
        self._latest: list[_Pass] = []

    def rows(self, first: int, stop: int) -> ScannedSource:
        """The rows of windows first, ..., stop - 1."""
        return self.source.between(self._time, int(self._grid.edges[first]), int(self._grid.edges[stop]))

    def get(
        self, window: int, question: Any, answer: Callable[[ScannedSource, str, Grid], Parts]
    ) -> Any | None:
        """The result of one window, from the last pass or from a new one that also covers what comes next."""
        known = [last for last in self._latest if _same(question, last.question)]
        last = known[0] if known else _Pass(question)
        self._latest = [last, *(other for other in self._latest if other is not last)][:_QUESTIONS]
        if window not in last.covered:
            group = last.next_group()
            stop = min(window + group, self._grid.size)
            last.parts, last.covered = {}, range(0)  # before the pass: two are never held at once
            last.parts = answer(self.rows(window, stop), self._time, self._grid)
            last.covered, last.group = range(window, stop), group
        return last.parts.get(window)


@dataclass
class _Pass:
    """The results of one pass: windows covered, and what was found in those that have rows."""

    question: Any
    covered: range = range(0)
    parts: Parts = field(default_factory=dict)
    group: int = 0

    def next_group(self) -> int:
        """How many windows the next pass takes: more while results are small, fewer when they are large."""
        held = sum(len(part.keys) for part in self.parts.values())
        if held * _GROWTH <= _HELD:
            return max(1, self.group * _GROWTH)
        return max(1, self.group * _HELD // max(held, 1))


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    try:
        return bool(one == other)
    except (ValueError, TypeError):  # a key function that holds arrays cannot be compared
        return False


def count_windows_of_chunk(
    key_fn: KeyFunction, chunk: Chunk, weights: int, time: str, grid: Grid
) -> dict[int, Histogram]:
    """The histograms of a chunk's rows by window."""
    if not getattr(key_fn, "per_row", True):  # keys and rows do not pair up
        check = KnownTimes(time)
        chunk = usable(chunk, check)
        return {
            number: count_chunk(key_fn, chunk.take(rows), weights)
            for number, rows in _rows_by_window(grid.window_of(check(chunk)))
        }
    try:
        window = grid.window_of(values.known_times(chunk, time))
        keys, amounts = keys_of_chunk(key_fn, chunk)
    except InputError as problem:
        if problem.row is None or chunk.reading.bad_rows != "drop":
            raise chunk.located(problem) from problem
        chunk = usable(chunk, key_fn, KnownTimes(time))
        window = grid.window_of(values.known_times(chunk, time))
        keys, amounts = keys_of_chunk(key_fn, chunk)
    if len(keys) != chunk.rows:  # a key function that leaves rows out
        return {
            number: count_chunk(key_fn, chunk.take(rows), weights) for number, rows in _rows_by_window(window)
        }
    parts = {}
    for number, rows in _rows_by_window(window):
        part = Histogram.of(keys[rows], None if amounts is None else amounts[rows])
        parts[number] = part if part.size else Histogram.empty(weights)
    return parts


def events_by_window_of_chunk(
    key_fn: KeyFunction, chunk: Chunk, user: str, weights: int, time: str, grid: Grid
) -> dict[int, UserEvents]:
    """The users' events of a chunk's rows by window."""
    if isinstance(key_fn, WithIdentity):  # rows, windows and identities belong together
        check = KnownTimes(time)
        chunk = usable(chunk, check)
        return {
            number: events_of_chunk(key_fn, chunk.take(rows), user, weights)
            for number, rows in _rows_by_window(grid.window_of(check(chunk)))
        }
    chunk = usable(chunk, key_fn, KnownTimes(time), Ids(user))
    window = grid.window_of(values.known_times(chunk, time))
    events = events_of_chunk(key_fn, chunk, user, weights)
    return {number: events.take(rows) for number, rows in _rows_by_window(window)}


def merge_windows(parts: list[dict[int, Histogram]]) -> dict[int, Histogram]:
    """Histograms by window of several chunks together."""
    numbers = sorted({number for part in parts for number in part})
    return {number: merge_all([part[number] for part in parts if number in part]) for number in numbers}


def _rows_by_window(window: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Each window on the grid that has rows, and those rows in order."""
    order = np.argsort(window, kind="stable")
    ordered = window[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-2))
    for rows in np.split(order, starts)[1:]:
        if window[rows[0]] >= 0:
            yield int(window[rows[0]]), rows

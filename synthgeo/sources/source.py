"""What every engine offers: columns, chunks, exact histograms, users' events, a public grid of windows."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from synthgeo.errors import InputError, SynthGeoError
from synthgeo.privacy.contribution import ContributionBounder, bucket_of
from synthgeo.privacy.users import UserIds
from synthgeo.sources import values
from synthgeo.sources.chunk import Chunk, KeyFunction, check_lines, collecting
from synthgeo.sources.declared import Reading
from synthgeo.sources.fingerprint import (
    Identity,
    RecordHash,
    WithIdentity,
    identity,
    split_identity,
    with_identity,
)
from synthgeo.sources.histogram import Accumulator, Histogram, Keys, Weights, merge_all
from synthgeo.sources.text_column import TextColumn

if TYPE_CHECKING:
    import pandas as pd
    from pyproj import CRS

Item = TypeVar("Item")
Result = TypeVar("Result")
Use = Callable[[Chunk], Any]

# Rows per chunk: large enough that numpy's overhead vanishes, small enough to stay near the cache.
CHUNK_ROWS = 1 << 19
# Values per chunk, so that wide tables take no more memory than narrow ones.
_CHUNK_VALUES = 1 << 24
# Events of users that are bounded at once; more are bounded by buckets of users, this many of them.
WHOLE = 1 << 18
BUCKETS = 64
# Bad rows that an error names in each column, and in how many columns.
_NAMED_ROWS = 10
_NAMED_PROBLEMS = 20


def rows_per_chunk(columns: Sequence[str]) -> int:
    """How many rows of so many columns make a chunk."""
    return min(CHUNK_ROWS, _CHUNK_VALUES // max(1, len(columns)))


class Source(ABC):
    """Private rows, wherever they are. Reading never changes them.

    ``open_schema`` says that rows name their own columns, so that any column may be asked for.
    """

    columns: list[str]
    reading: Reading = Reading()
    geometry: str | None = None  # the column that holds geometries
    crs: CRS | None = None  # of the geometry column
    window: tuple[pd.Timestamp, pd.Timestamp] | None = (
        None  # when it begins and ends, for one window of a grid
    )
    time: str | None = None  # the column that windows were cut by
    open_schema: bool = False
    scans: bool = False  # whether rows are not in memory: each count reads them

    @abstractmethod
    def loads(self, columns: Sequence[str], *, ordered: bool = True) -> Iterator[Callable[[], Chunk]]:
        """Calls that each give the next chunk, with these columns only; they may be made in other threads.

        ``ordered=False`` allows any order: sums do not mind.
        """

    @abstractmethod
    def windows(
        self, *, time: str, every: str, start: Any = None, end: Any = None, tz: str | None = None
    ) -> Iterator[tuple[pd.Timestamp, Source]]:
        """Cut the rows by a public grid of times; an empty window is a window like any other.

        ``every`` is a pandas offset (``"6h"``, ``"1D"``, ``"MS"``). Rows outside [start, end) are left out.
        ``tz`` is the zone whose clock and calendar cut, for times that have one; by default the one declared
        for reading, else that of ``start``. Where ``start`` or ``end`` is not given it comes from the data,
        so it publishes when the first or last event happened: a warning says so.
        """

    @abstractmethod
    def is_zoned(self, column: str) -> bool:
        """Whether a column of times has a time zone, by its type or by what is declared."""

    def has(self, column: str) -> bool:
        """Whether a column can be asked for."""
        return column in self.columns or self.open_schema

    def described(self, asked: Sequence[str]) -> str:  # noqa: ARG002
        """What columns there are, for an error about those that are not."""
        return f"there are {', '.join(self.columns) or 'none'}"

    def require(self, columns: Sequence[str]) -> None:
        """Check that the source has these columns."""
        missing = [name for name in columns if not self.has(name)]
        if missing:
            names = ", ".join(repr(name) for name in missing)
            raise InputError(f"missing column {names}; {self.described(columns)}")

    def chunks(self, columns: Sequence[str]) -> Iterator[Chunk]:
        """The rows in chunks, in their order, with these columns only."""
        return (load() for load in self.loads(columns))

    def read(self, columns: Sequence[str], *, check: Use | None = None) -> Chunk:
        """All rows of these columns in one chunk, in memory.

        ``check`` is what the caller will ask of the rows: where it fails, rows are refused or left out as
        declared.
        """
        self.require(columns)
        uses = () if check is None else (check,)
        parts = list(self._in_threads(columns, lambda chunk: usable(chunk, *uses), uses, ordered=True))
        return joined_chunks(parts)

    def check(self, columns: Sequence[str], *uses: Use) -> None:
        """Read these columns once; raise the error about the rows that cannot be used, if there are any."""
        self.require(columns)
        for _ in self._in_threads(columns, lambda chunk: usable(chunk, *uses).rows, uses):
            pass

    def histogram(self, key_fn: KeyFunction, columns: Sequence[str], *, weights: int = 1) -> Histogram:
        """Count the rows by key; ``weights`` is how many weight columns the key function gives."""
        self.require(columns)
        total = Accumulator(weights)
        count = _Count(key_fn, weights)
        for part in self._in_threads(columns, count, (key_fn,)):
            total.add(part)
        return total.result()

    def user_events(
        self, key_fn: KeyFunction, columns: Sequence[str], user: str, *, weights: int = 1
    ) -> UserEvents:
        """Who did what, one row per event: what a ``ContributionBounder`` needs. Holds one batch in memory.

        Here the key function must give one key for each row.
        """
        wanted = list(dict.fromkeys([*columns, user]))
        self.require(wanted)
        work = Events(key_fn, user, weights)
        return UserEvents.concatenate(list(self._in_threads(wanted, work, work.uses, ordered=True)), weights)

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
        """Count users' events as far as ``bounder`` admits them; it is moved on.

        ``count`` gets the events of some users, all that they have here, and the bounder of these users.
        """
        events = self.user_events(key_fn, columns, user, weights=weights)
        return count_in_parts(events, count, bounder)

    def fingerprint(self, kinds: Mapping[str, str], *, key: bytes = b"") -> str:
        """The identity of the content: a keyed hash of the multiset of records, whatever their order, their
        engine and the form of the files.

        ``kinds`` says what each column that counts is asked for (``values.KINDS``). A fingerprint of few rows
        can be guessed back: a ``key`` prevents that.
        """
        rows = RecordHash(tuple(kinds.items()), key)
        return identity(rows, self.histogram(rows, list(kinds)), self._system(kinds)).fingerprint

    def apart(self) -> Source:
        """The same rows, for questions that only they are asked: windows share passes over their source."""
        return self

    def identified(self, kinds: Mapping[str, str], *, key: bytes = b"") -> Identified:
        """The same rows, whose identity is known once they were counted: no pass of its own is needed.

        With a ``key`` it has a sample of the rows, by their hashes under that key.
        """
        return Identified(self, kinds, key)

    def _system(self, kinds: Mapping[str, str]) -> CRS | None:
        return self.crs if self.geometry in kinds else None

    def _in_threads(
        self,
        columns: Sequence[str],
        work: Callable[[Chunk], Result],
        uses: Sequence[Use],
        *,
        ordered: bool = False,
    ) -> Iterator[Result]:
        """Results of all chunks; an error about a row becomes one about all rows that cannot be used."""
        try:
            yield from in_threads(lambda load: work(load()), self.loads(columns, ordered=ordered))
        except InputError as problem:
            if problem.row is None:
                raise
            raise self.diagnosed(problem, columns, uses) from problem

    def diagnosed(self, problem: InputError, columns: Sequence[str], uses: Sequence[Use]) -> InputError:
        """The error that names the first bad rows of every column, found by reading all rows once more."""
        found: dict[tuple[str | None, str], list[str]] = {}
        counts: dict[tuple[str | None, str], int] = {}
        kind = type(problem)
        try:
            for chunk in self.chunks(columns):
                for column, rows, text, error in bad_rows(chunk, uses):
                    names = found.setdefault((column, text), [])
                    names += [chunk.where(int(row)) for row in rows[: _NAMED_ROWS - len(names)]]
                    counts[column, text] = counts.get((column, text), 0) + len(rows)
                    kind = error if sum(counts.values()) == len(rows) else kind
        except (
            SynthGeoError,
            OSError,
        ):  # a source that can be read once, or that is gone: the first row will do
            return problem
        if not found:
            return problem
        parts = []
        for (column, text), names in list(found.items())[:_NAMED_PROBLEMS]:
            more = counts[column, text] - len(names)
            place = _together(names) + (f" and {more} more rows" if more else "")
            parts.append(f"column {column!r}, {place}: {text}" if column is not None else f"{place}: {text}")
        error = kind("; ".join(parts))
        error.row, error.column = problem.row, problem.column
        return error


class Identified(Source):
    """A source that takes the identity of its records in the pass that counts them (``identity``)."""

    def __init__(self, source: Source, kinds: Mapping[str, str], key: bytes = b"") -> None:
        self._source, self._rows = source, RecordHash(tuple(kinds.items()), key, bool(key))
        self.whole = source
        self.columns, self.reading = source.columns, source.reading
        self.geometry, self.crs, self.open_schema = source.geometry, source.crs, source.open_schema
        self.window, self.time, self.scans = source.window, source.time, source.scans
        self._identity: Identity | None = None

    @property
    def identity(self) -> Identity:
        """Of the records; from a pass of its own where nothing was counted."""
        if self._identity is None:
            self._know(self._source.histogram(self._rows, self._wanted([])))
        assert self._identity is not None
        return self._identity

    def apart(self) -> Source:
        return self._source.apart()

    def loads(self, columns: Sequence[str], *, ordered: bool = True) -> Iterator[Callable[[], Chunk]]:
        return self._source.loads(columns, ordered=ordered)

    def windows(
        self, *, time: str, every: str, start: Any = None, end: Any = None, tz: str | None = None
    ) -> Iterator[tuple[pd.Timestamp, Source]]:
        return self._source.windows(time=time, every=every, start=start, end=end, tz=tz)

    def is_zoned(self, column: str) -> bool:
        return self._source.is_zoned(column)

    def described(self, asked: Sequence[str]) -> str:
        return self._source.described(asked)

    def read(self, columns: Sequence[str], *, check: Use | None = None) -> Chunk:
        wanted, uses = self._wanted(columns), () if check is None else (check,)
        try:
            chunk = self._source.read(wanted)
            self._know(count_chunk(self._rows, chunk, 1))
            return usable(chunk, *uses)
        except InputError as problem:
            if problem.row is None:
                raise
            raise self.diagnosed(problem, wanted, (*uses, self._rows)) from problem

    def histogram(self, key_fn: KeyFunction, columns: Sequence[str], *, weights: int = 1) -> Histogram:
        both = WithIdentity(key_fn, self._rows, weights)
        counts, hashed = split_identity(
            self._source.histogram(both, self._wanted(columns), weights=weights), weights
        )
        self._know(hashed)
        return counts

    def user_events(
        self, key_fn: KeyFunction, columns: Sequence[str], user: str, *, weights: int = 1
    ) -> UserEvents:
        both = WithIdentity(key_fn, self._rows, weights)
        events = self._source.user_events(both, self._wanted(columns), user, weights=weights)
        self._know(Histogram.empty(1) if events.hashed is None else events.hashed)
        return events

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
        both = WithIdentity(key_fn, self._rows, weights)
        found = self._source.count_users(both, self._wanted(columns), user, count, bounder, weights=weights)
        counts, hashed = split_identity(found, found.weights.shape[1])
        self._know(hashed)
        return counts

    def _wanted(self, columns: Sequence[str]) -> list[str]:
        return list(dict.fromkeys([*columns, *(name for name, _ in self._rows.kinds)]))

    def _know(self, hashed: Histogram) -> None:
        self._identity = identity(self._rows, hashed, self._system(dict(self._rows.kinds)))


@dataclass(frozen=True, eq=False)
class UserEvents:
    """One row per event: who, where (key), and its weights. Private."""

    users: UserIds
    keys: Keys
    weights: Weights
    hashed: Histogram | None = None  # of all rows, where the key function hashes them (``WithIdentity``)

    @classmethod
    def concatenate(cls, parts: list[UserEvents], weights: int) -> UserEvents:
        """Events of several chunks, one after the other."""
        if not parts:
            return cls(UserIds.empty(), np.empty(0, np.uint64), np.empty((0, weights), np.int64))
        return cls(
            UserIds.concatenate([part.users for part in parts]),
            np.concatenate([part.keys for part in parts]),
            np.concatenate([part.weights for part in parts]),
            merge_all([part.hashed for part in parts if part.hashed is not None] or [Histogram.empty(1)]),
        )

    def take(self, rows: NDArray[Any] | slice) -> UserEvents:
        """Some of the events; of the identity of the rows nothing is left."""
        return UserEvents(self.users.take(rows), self.keys[rows], self.weights[rows])

    def histogram(self, kept: NDArray[np.bool_] | None = None) -> Histogram:
        """The histogram of the events, or of those where ``kept`` is True."""
        keys, weights = (self.keys, self.weights) if kept is None else (self.keys[kept], self.weights[kept])
        return _of_width(Histogram.of(keys, weights), self.weights.shape[1])


class UserCount(Protocol):
    """Counts the events of some users, of which a bounder admits some. Picklable: it travels to the events.

    ``width`` is the number of weight columns of its histograms.
    """

    @property
    def width(self) -> int: ...

    def __call__(self, events: UserEvents, bounder: ContributionBounder, /) -> Histogram: ...


class BounderPart(Protocol):
    """The memory of a bounder for one bucket of users. Picklable."""

    def opened(self) -> ContributionBounder:
        """A bounder that remembers what the part does."""
        ...

    def closed(self, bounder: Any, /) -> Any:
        """The part, as a bounder that it gave has left it."""
        ...


class Bounder(Protocol):
    """A bounder of contributions that can go on in parts, by buckets of users (``bucket_of``)."""

    def parts(self, count: int, /) -> Sequence[BounderPart]:
        """The parts of all buckets: this many, unless the bounder knows better."""
        ...

    def join(self, parts: Any, /) -> None:
        """Take over what the parts remember now."""
        ...


def count_in_parts(events: UserEvents, count: UserCount, bounder: Bounder) -> Histogram:
    """Count events that are in memory; with them come the sums of hashes that they brought.

    Many are bounded bucket by bucket: sorting users and keys takes some 200 bytes of an event while it lasts.
    """
    whole = len(events.keys) <= WHOLE
    if whole and isinstance(bounder, ContributionBounder):
        counts = count(events, bounder)
    else:
        parts = list(bounder.parts(1 if whole else BUCKETS))
        bucket = bucket_of(events.users, len(parts))
        order = np.argsort(bucket, kind="stable")
        ends = np.searchsorted(bucket[order], np.arange(len(parts)), side="right")
        del bucket
        total = Accumulator(count.width)
        for number, rows in enumerate(np.split(order, ends[:-1])):
            if len(rows):
                part, parts[number] = count_bucket(events.take(rows), count, parts[number])
                total.add(part)
        bounder.join(parts)
        counts = total.result()
    return counts if events.hashed is None else with_identity(counts, events.hashed)


def count_bucket(events: UserEvents, count: UserCount, part: BounderPart) -> tuple[Histogram, BounderPart]:
    """The counts of one bucket's events, and the part that comes after them. Changes nothing: it may be done
    twice.
    """
    bounder = part.opened()
    return count(events, bounder), part.closed(bounder)


def bad_rows(chunk: Chunk, uses: Sequence[Use]) -> list[Any]:
    """What is wrong with the rows of a chunk for those who will use it."""
    with collecting() as refusals:
        check_lines(chunk)
        for use in uses:
            # Whatever goes wrong after a refused value was let through says nothing about the others.
            with suppress(InputError, ValueError, TypeError, IndexError, FloatingPointError):
                use(chunk)
    return refusals.found


def refused_rows(chunk: Chunk, uses: Sequence[Use]) -> NDArray[np.bool_]:
    """Which rows of a chunk cannot be used."""
    bad = np.zeros(chunk.rows, dtype=bool)
    for _, rows, _, _ in bad_rows(chunk, uses):
        bad[rows] = True
    return bad


def usable(chunk: Chunk, *uses: Use) -> Chunk:
    """The chunk, after a trial of its uses; without its bad rows where these are to be dropped.

    Raises the error about the first bad row where they are not.
    """
    try:
        check_lines(chunk)
        for use in uses:
            use(chunk)
    except InputError as problem:
        if problem.row is None or chunk.reading.bad_rows != "drop":
            raise chunk.located(problem) from problem
        bad = refused_rows(chunk, uses)
        if not bad.any():
            raise chunk.located(problem) from problem
        return usable(chunk.take(np.flatnonzero(~bad)), *uses)
    return chunk


def keys_of_chunk(key_fn: KeyFunction, chunk: Chunk) -> tuple[Keys, Weights | None]:
    """Run a key function; an error about a row of the chunk becomes one about that row of the source."""
    try:
        check_lines(chunk)
        return key_fn(chunk)
    except InputError as problem:
        if problem.row is not None and chunk.reading.bad_rows == "drop":
            return key_fn(usable(chunk, key_fn))
        raise chunk.located(problem) from problem


def count_chunk(key_fn: KeyFunction, chunk: Chunk, weights: int) -> Histogram:
    """The histogram of one chunk."""
    if isinstance(key_fn, WithIdentity):  # each for itself: a row that is not counted may be a record
        return with_identity(count_chunk(key_fn.key_fn, chunk, weights), count_chunk(key_fn.rows, chunk, 1))
    return _of_width(Histogram.of(*keys_of_chunk(key_fn, chunk)), weights)


@dataclass(frozen=True, eq=False)
class _Count:
    key_fn: KeyFunction
    weights: int

    def __call__(self, chunk: Chunk) -> Histogram:
        return count_chunk(self.key_fn, chunk, self.weights)


@dataclass(frozen=True, eq=False)
class Events:
    """Reads the events of one chunk with their users. Picklable."""

    key_fn: KeyFunction
    user: str
    weights: int

    @property
    def uses(self) -> tuple[Use, ...]:
        return (self.key_fn, self._users)

    def _users(self, chunk: Chunk) -> UserIds:
        return values.ids(chunk, self.user)

    def __call__(self, chunk: Chunk) -> UserEvents:
        return events_of_chunk(self.key_fn, chunk, self.user, self.weights)

    def combine(self, parts: list[UserEvents]) -> UserEvents:
        """The events of several chunks."""
        return UserEvents.concatenate(parts, self.weights)


def events_of_chunk(key_fn: KeyFunction, chunk: Chunk, user: str, weights: int) -> UserEvents:
    """The events of one chunk with their users."""
    hashed = None
    if isinstance(key_fn, WithIdentity):
        hashed, key_fn = count_chunk(key_fn.rows, chunk, 1), key_fn.key_fn
    chunk = usable(chunk, *Events(key_fn, user, weights).uses)
    users = values.ids(chunk, user)
    keys, amounts = key_fn(chunk)
    if len(keys) != chunk.rows:
        raise InputError("to bound users a key function must give every row a key; dropped rows get weight 0")
    if amounts is None:
        amounts = np.ones((len(keys), 1), dtype=np.int64)
    amounts = np.asarray(amounts, dtype=np.int64).reshape(len(keys), weights)
    return UserEvents(users, np.asarray(keys), amounts, hashed)


def in_threads(
    work: Callable[[Item], Result], items: Iterable[Item], *, threads: int | None = None
) -> Iterator[Result]:
    """Results in order, a few items ahead: numpy releases the lock, so reading and counting overlap."""
    threads = threads or min(4, os.cpu_count() or 1)
    items = iter(items)
    first = list(islice(items, 2))
    if len(first) < 2:  # a small batch is one chunk: starting threads would cost more than counting it
        yield from map(work, first)
        return
    items = chain(first, items)
    with ThreadPoolExecutor(threads, thread_name_prefix="synthgeo-count") as pool:
        ahead: deque[Future[Result]] = deque()
        try:
            for item in items:
                ahead.append(pool.submit(work, item))
                if len(ahead) > threads:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            for waiting in ahead:
                waiting.cancel()


def _together(names: list[str]) -> str:
    """Names of rows in one phrase: "line 2 of a.csv" and "line 5 of a.csv" are "lines 2, 5 of a.csv"."""
    groups: dict[tuple[str, str], list[str]] = {}
    for name in names:
        kind, _, rest = name.partition(" ")
        number, _, place = rest.partition(" ")
        groups.setdefault((kind, place), []).append(number)
    said = []
    for (kind, place), numbers in groups.items():
        said.append(f"{kind}{'s' if len(numbers) > 1 else ''} {', '.join(numbers)} {place}".rstrip())
    return ", ".join(said)


def joined_chunks(parts: list[Chunk]) -> Chunk:
    """The rows of several chunks, one after the other."""
    if len(parts) == 1:
        return parts[0]
    ends = np.cumsum([part.rows for part in parts])
    columns = {name: joined_columns([part[name] for part in parts]) for name in parts[0]}
    broken = {
        int(end - part.rows) + row: problem
        for part, end in zip(parts, ends, strict=True)
        for row, problem in part.broken.items()
    }
    first = parts[0]
    return Chunk(
        columns,
        rows=int(ends[-1]),
        locate=_InParts(parts, ends),
        reading=first.reading,
        zoned=first.zoned,
        broken=broken,
        open_schema=first.open_schema,
    )


@dataclass(frozen=True)
class _InParts:
    """Names rows by the chunk that they came in."""

    parts: list[Chunk]
    ends: NDArray[np.int64]

    def __call__(self, row: int) -> str:
        part = int(np.searchsorted(self.ends, row, side="right"))
        return self.parts[part].where(row - int(self.ends[part] - self.parts[part].rows))


def joined_columns(parts: list[Any]) -> Any:
    """A column of several chunks, one after the other."""
    if all(isinstance(part, TextColumn) for part in parts):
        return TextColumn.concatenate(parts)
    parts = [part.objects() if isinstance(part, TextColumn) else part for part in parts]
    if any(isinstance(part, np.ma.MaskedArray) for part in parts):
        return np.ma.concatenate(parts)  # type: ignore[no-untyped-call]
    return np.concatenate(parts)


def _of_width(part: Histogram, weights: int) -> Histogram:
    """An empty histogram has no rows to tell how many weight columns it has."""
    return Histogram.empty(weights) if part.size == 0 else part

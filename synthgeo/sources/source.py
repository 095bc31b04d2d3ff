"""What every engine offers: columns, chunks, exact histograms, users' events, a public grid of windows."""

from __future__ import annotations

import hashlib
import json
import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from synthgeo.errors import InputError
from synthgeo.privacy.users import UserIds
from synthgeo.sources.chunk import Chunk, KeyFunction
from synthgeo.sources.histogram import Accumulator, Histogram, Keys, Weights
from synthgeo.sources.rows import RowHash

if TYPE_CHECKING:
    import pandas as pd
    from pyproj import CRS

Item = TypeVar("Item")
Result = TypeVar("Result")

# Rows per chunk: large enough that numpy's overhead vanishes, small enough to stay near the cache.
CHUNK_ROWS = 1 << 19


class Source(ABC):
    """Private rows, wherever they are. Reading never changes them."""

    columns: list[str]
    geometry: str | None = None  # the column that holds geometries
    crs: CRS | None = None  # of the geometry column

    @abstractmethod
    def chunks(self, columns: Sequence[str]) -> Iterator[Chunk]:
        """The rows in chunks, in their order, with these columns only."""

    @abstractmethod
    def windows(
        self, *, time: str, every: str, start: Any = None, end: Any = None
    ) -> Iterator[tuple[pd.Timestamp, Source]]:
        """Cut the rows by a public grid of times; an empty window is a window like any other.

        ``every`` is a pandas offset (``"6h"``, ``"1D"``, ``"MS"``). Rows outside [start, end) are left out.
        Where ``start`` or ``end`` is not given it comes from the data, so it publishes when the first or last
        event happened: a warning says so.
        """

    def require(self, columns: Sequence[str]) -> None:
        """Check that the source has these columns."""
        missing = [name for name in columns if name not in self.columns]
        if missing:
            names = ", ".join(repr(name) for name in missing)
            raise InputError(f"missing column {names}; there are {', '.join(self.columns) or 'none'}")

    def read(self, columns: Sequence[str], *, user: str | None = None) -> Chunk:
        """All rows of these columns in one chunk, in memory; ``user`` says which one tells users apart."""
        self.require(columns)
        parts = list(self.chunks(columns) if user is None else self._with_user(columns, user))
        if len(parts) == 1:
            return parts[0]
        ends = np.cumsum([part.rows for part in parts])

        def locate(row: int) -> str:
            part = int(np.searchsorted(ends, row, side="right"))
            return parts[part].where(row - int(ends[part] - parts[part].rows))

        joined = {name: np.concatenate([part[name] for part in parts]) for name in columns}
        return Chunk(joined, rows=int(ends[-1]) if len(ends) else 0, locate=locate)

    def histogram(self, key_fn: KeyFunction, columns: Sequence[str], *, weights: int = 1) -> Histogram:
        """Count the rows by key; ``weights`` is how many weight columns the key function gives."""
        self.require(columns)
        total = Accumulator(weights)
        for part in in_threads(lambda chunk: count_chunk(key_fn, chunk, weights), self._any_order(columns)):
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
        parts = in_threads(
            lambda chunk: events_of_chunk(key_fn, chunk, user, weights), self._with_user(wanted, user)
        )
        return UserEvents.concatenate(list(parts), weights)

    def fingerprint(self, columns: Sequence[str] | None = None) -> str:
        """SHA-256 of the rows, whatever their order and engine: for ``StreamRun.step(content_hash=...)``.

        A fingerprint of few rows can be guessed back: whoever stores one salts it.
        """
        names = sorted(self.columns if columns is None else columns)
        rows = self.histogram(RowHash(tuple(names)), names)
        digest = hashlib.sha256(json.dumps(names).encode())
        digest.update(rows.keys.tobytes())
        digest.update(rows.weights.tobytes())
        return digest.hexdigest()

    def _any_order(self, columns: Sequence[str]) -> Iterator[Chunk]:
        """The chunks in whatever order is fastest: sums do not mind."""
        return self.chunks(columns)

    def _with_user(self, columns: Sequence[str], _user: str) -> Iterator[Chunk]:
        """The chunks with the user column read in the way that keeps users apart."""
        return self.chunks(columns)


@dataclass(frozen=True, eq=False)
class UserEvents:
    """One row per event: who, where (key), and its weights. Private."""

    users: UserIds
    keys: Keys
    weights: Weights

    @classmethod
    def concatenate(cls, parts: list[UserEvents], weights: int) -> UserEvents:
        """Events of several chunks, one after the other."""
        if not parts:
            return cls(UserIds.empty(), np.empty(0, np.uint64), np.empty((0, weights), np.int64))
        return cls(
            UserIds.concatenate([part.users for part in parts]),
            np.concatenate([part.keys for part in parts]),
            np.concatenate([part.weights for part in parts]),
        )

    def take(self, rows: NDArray[Any] | slice) -> UserEvents:
        """Some of the events."""
        return UserEvents(self.users.take(rows), self.keys[rows], self.weights[rows])

    def histogram(self, kept: NDArray[np.bool_] | None = None) -> Histogram:
        """The histogram of the events, or of those where ``kept`` is True."""
        keys, weights = (self.keys, self.weights) if kept is None else (self.keys[kept], self.weights[kept])
        return _of_width(Histogram.of(keys, weights), self.weights.shape[1])


def keys_of_chunk(key_fn: KeyFunction, chunk: Chunk) -> tuple[Keys, Weights | None]:
    """Run a key function; an error about a row of the chunk becomes one about that row of the source."""
    try:
        return key_fn(chunk)
    except InputError as problem:
        raise chunk.located(problem) from problem


def count_chunk(key_fn: KeyFunction, chunk: Chunk, weights: int) -> Histogram:
    """The histogram of one chunk."""
    return _of_width(Histogram.of(*keys_of_chunk(key_fn, chunk)), weights)


def events_of_chunk(key_fn: KeyFunction, chunk: Chunk, user: str, weights: int) -> UserEvents:
    """The events of one chunk with their users."""
    users = UserIds.of(chunk[user], column=user, where=chunk.where)
    keys, amounts = keys_of_chunk(key_fn, chunk)
    if len(keys) != chunk.rows:
        raise InputError("to bound users a key function must give every row a key; dropped rows get weight 0")
    if amounts is None:
        amounts = np.ones((len(keys), 1), dtype=np.int64)
    return UserEvents(
        users, np.asarray(keys), np.asarray(amounts, dtype=np.int64).reshape(len(keys), weights)
    )


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


def _of_width(part: Histogram, weights: int) -> Histogram:
    """An empty histogram has no rows to tell how many weight columns it has."""
    return Histogram.empty(weights) if part.size == 0 else part

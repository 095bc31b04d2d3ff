"""Users' events by bucket of users, on disk where they are many: one bucket is bounded at a time."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd

from synthgeo.hashing import file_hash, mix
from synthgeo.privacy.contribution import bucket_of
from synthgeo.privacy.users import UserIds
from synthgeo.sources.fingerprint import with_identity
from synthgeo.sources.histogram import Accumulator, Histogram, merge_all
from synthgeo.sources.source import (
    BUCKETS,
    WHOLE,
    Bounder,
    UserCount,
    UserEvents,
    count_bucket,
    count_in_parts,
)

#: Events that are bounded at once: sorting them takes some 220 bytes each.
AT_ONCE = 1 << 20
_KEY = 2  # the column of an event's key, behind the two of its user
# Events that are held in memory before they go to disk.
HELD = AT_ONCE
#: Of one user and kind (operation and period: events with equal weights) so many can be admitted in a batch.
#: No fewer than are bounded at once or held: others' events would decide whose are cut.
MOST_OF_A_USER = AT_ONCE


def count_spilled(
    found: Iterable[UserEvents],
    count: UserCount,
    bounder: Bounder,
    weights: int,
    *,
    held: int = HELD,
    whole: int = WHOLE,
) -> Histogram:
    """Count events that come in chunks as far as the bounder admits them, in bounded memory."""
    waiting: list[UserEvents] = []
    chunks = iter(found)
    for events in chunks:
        waiting.append(events)
        if sum(len(part.keys) for part in waiting) > whole:
            return _count_by_bucket(waiting, chunks, count, bounder, _Buckets(weights, held))
    return count_in_parts(UserEvents.concatenate(waiting, weights), count, bounder)


def _count_by_bucket(
    waiting: list[UserEvents],
    chunks: Iterator[UserEvents],
    count: UserCount,
    bounder: Bounder,
    buckets: _Buckets,
) -> Histogram:
    """As ``count_in_parts`` does for many events, which are put in their buckets as they come."""
    parts = list(bounder.parts(BUCKETS))
    hashed = []
    with buckets.opened(len(parts)):
        while waiting:
            hashed += buckets.add(waiting.pop(0))
        for events in chunks:
            hashed += buckets.add(events)
        counts = Accumulator(count.width)
        for number, events in buckets:
            part, parts[number] = count_bucket(events, count, parts[number])
            counts.add(part)
    bounder.join(parts)
    total = counts.result()
    return with_identity(total, merge_all(hashed)) if hashed else total


class _Buckets:
    """Events by bucket: in memory, and once they are many in files, one per bucket, in a folder that nobody
    else can read and that goes when this does.
    """

    def __init__(self, weights: int, held: int) -> None:
        self._width, self._held = 3 + weights, held

    @contextmanager
    def opened(self, buckets: int) -> Iterator[None]:
        """Take events in, for so many buckets."""
        self._rows: list[list[np.ndarray]] = [[] for _ in range(buckets)]
        self._waiting = 0
        with tempfile.TemporaryDirectory(prefix="synthgeo-users-") as self._folder:
            yield

    def _path(self, bucket: int) -> Path:
        return Path(self._folder) / f"{bucket}"

    def add(self, events: UserEvents) -> list[Histogram]:
        """Put events in their buckets; the sums of hashes that came with them stay."""
        bucket = bucket_of(events.users, len(self._rows))
        order = np.argsort(bucket, kind="stable")
        rows = np.column_stack(
            [events.users.high, events.users.low, events.keys, events.weights.view(np.uint64)]
        )[order]
        ends = np.searchsorted(bucket[order], np.arange(len(self._rows)), side="right")
        for number, part in enumerate(np.split(rows, ends[:-1])):
            if len(part):
                self._rows[number].append(part)
        self._waiting += len(rows)
        if self._waiting > self._held:
            self._write()
        return [] if events.hashed is None else [events.hashed]

    def _write(self) -> None:
        for number, parts in enumerate(self._rows):
            with self._path(number).open("ab") as file:
                for part in parts:
                    part.tofile(file)
            parts.clear()
        self._waiting = 0

    def __iter__(self) -> Iterator[tuple[int, UserEvents]]:
        """The events of each bucket that has any; a large one comes in groups of its users."""
        for number, parts in enumerate(self._rows):
            path = self._path(number)
            if path.exists():
                with path.open("ab") as file:
                    for part in parts:
                        part.tofile(file)
                parts.clear()
                for rows in self._groups(path):
                    yield number, _events(rows)
            elif parts:
                rows = np.concatenate(parts)
                parts.clear()
                yield number, _events(rows)

    def _groups(self, path: Path) -> Iterator[np.ndarray]:
        """The events in a file: all of them, or by groups of users where they are too many at once."""
        size = path.stat().st_size // (8 * self._width)
        if size <= AT_ONCE:
            yield np.fromfile(path, dtype=np.uint64).reshape(-1, self._width)
            return
        # The hash of all events decides on the groups, so that nobody can choose ids that share one.
        groups, salt = -(-2 * size // AT_ONCE), np.uint64(int(file_hash(path)[:16], 16))
        names = [path.with_name(f"{path.name}-{group}") for group in range(groups)]
        for rows in self._slices(path):
            group = mix(salt, rows[:, 0], rows[:, 1]) % np.uint64(groups)
            for own in np.unique(group).tolist():
                with names[own].open("ab") as file:
                    rows[group == own].tofile(file)
        path.unlink()
        for name in names:
            if name.exists():
                yield self._first_of_each(name)
                name.unlink()

    def _first_of_each(self, path: Path) -> np.ndarray:
        """The events in a file, of each user and kind at most ``MOST_OF_A_USER``: those whose keys have the
        least hashes, so that neither the order of rows nor other users decide on them.
        """
        if path.stat().st_size // (8 * self._width) <= AT_ONCE:
            return np.fromfile(path, dtype=np.uint64).reshape(-1, self._width)
        kept = np.empty((0, self._width), dtype=np.uint64)
        for more in self._slices(path):
            rows = np.concatenate([kept, more])
            kind = [rows[:, column] for column in range(self._width) if column != _KEY]
            code, _ = pd.MultiIndex.from_arrays(kind).factorize()
            order = np.lexsort((rows[:, _KEY], mix(rows[:, _KEY]), code))
            place = pd.Series(code[order]).groupby(code[order]).cumcount().to_numpy()
            kept = rows[order[place < MOST_OF_A_USER]]
        return kept

    def _slices(self, path: Path) -> Iterator[np.ndarray]:
        with path.open("rb") as file:
            while len(rows := np.fromfile(file, dtype=np.uint64, count=AT_ONCE // 4 * self._width)):
                yield rows.reshape(-1, self._width)


def _events(rows: np.ndarray) -> UserEvents:
    users = UserIds(*(np.ascontiguousarray(rows[:, column]) for column in (0, 1)))
    amounts = np.ascontiguousarray(rows[:, 3:]).view(np.int64)
    return UserEvents(users, np.ascontiguousarray(rows[:, 2]), amounts)

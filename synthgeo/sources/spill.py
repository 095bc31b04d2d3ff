"""Users' events by bucket of users, on disk where they are many: one bucket is bounded at a time."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

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

# Events that are held in memory before they go to disk.
HELD = 1 << 24


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
        """The events of each bucket that has any."""
        for number, parts in enumerate(self._rows):
            path = self._path(number)
            before = [np.fromfile(path, dtype=np.uint64).reshape(-1, self._width)] if path.exists() else []
            if before or parts:
                rows = np.concatenate([*before, *parts])
                parts.clear()
                users = UserIds(*(np.ascontiguousarray(rows[:, column]) for column in (0, 1)))
                amounts = np.ascontiguousarray(rows[:, 3:]).view(np.int64)
                yield number, UserEvents(users, np.ascontiguousarray(rows[:, 2]), amounts)

"""Users' events by bucket of users, on disk where they are many: bounding then holds one bucket in memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from synthgeo.privacy.contribution import bucket_of
from synthgeo.privacy.users import UserIds
from synthgeo.sources.fingerprint import with_identity
from synthgeo.sources.histogram import Histogram, merge_all
from synthgeo.sources.source import Bounder, UserCount, UserEvents, count_bucket, count_in_parts

# Events that are held in memory before they go to disk.
HELD = 1 << 24
# Buckets of users where a bounder does not know better.
_BUCKETS = 64


def count_spilled(
    found: Iterable[UserEvents], count: UserCount, bounder: Bounder, weights: int, *, held: int = HELD
) -> Histogram:
    """Count events that come in chunks as far as the bounder admits them, in bounded memory."""
    waiting: list[UserEvents] = []
    chunks = iter(found)
    for events in chunks:
        waiting.append(events)
        if sum(len(part.keys) for part in waiting) > held:
            return _count_on_disk(waiting, chunks, count, bounder, weights, held)
    return count_in_parts(UserEvents.concatenate(waiting, weights), count, bounder)


def _count_on_disk(
    waiting: list[UserEvents],
    chunks: Iterator[UserEvents],
    count: UserCount,
    bounder: Bounder,
    weights: int,
    held: int,
) -> Histogram:
    parts = list(bounder.parts(_BUCKETS))
    hashed = []
    with _Buckets(len(parts), weights) as buckets:
        for events in chunks:
            waiting.append(events)
            if sum(len(part.keys) for part in waiting) > held // 4:
                hashed += buckets.add(waiting)
                waiting.clear()
        hashed += buckets.add(waiting)
        waiting.clear()
        counts: list[Histogram] = []
        for number, events in buckets:
            part, parts[number] = count_bucket(events, count, parts[number])
            counts = [merge_all([*counts, part])]
    bounder.join(parts)
    return with_identity(counts[0], merge_all(hashed)) if hashed else counts[0]


class _Buckets:
    """Files of events, one per bucket, in a folder that nobody else can read and that goes when this does."""

    def __init__(self, buckets: int, weights: int) -> None:
        self._buckets, self._width = buckets, 3 + weights

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="synthgeo-users-")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._folder.cleanup()

    def _path(self, bucket: int) -> Path:
        return Path(self._folder.name) / f"{bucket}"

    def add(self, found: list[UserEvents]) -> list[Histogram]:
        """Write events to their buckets; the sums of hashes that came with them stay."""
        if not found:
            return []
        events = UserEvents.concatenate(found, self._width - 3)
        bucket = bucket_of(events.users, self._buckets)
        order = np.argsort(bucket, kind="stable")
        rows = np.column_stack(
            [events.users.high, events.users.low, events.keys, events.weights.view(np.uint64)]
        )[order]
        ends = np.searchsorted(bucket[order], np.arange(self._buckets), side="right")
        for number, part in enumerate(np.split(rows, ends[:-1])):
            if len(part):
                with self._path(number).open("ab") as file:
                    part.tofile(file)
        return [part.hashed for part in found if part.hashed is not None]

    def __iter__(self) -> Iterator[tuple[int, UserEvents]]:
        """The events of each bucket that has any."""
        for number in range(self._buckets):
            path = self._path(number)
            if path.exists():
                rows = np.fromfile(path, dtype=np.uint64).reshape(-1, self._width)
                users = UserIds(*(np.ascontiguousarray(rows[:, column]) for column in (0, 1)))
                amounts = np.ascontiguousarray(rows[:, 3:]).view(np.int64)
                yield number, UserEvents(users, np.ascontiguousarray(rows[:, 2]), amounts)

"""Key functions for the engine tests; in a module of their own, so that worker processes can import them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import synthgeo as sg
from synthgeo.hashing import mix
from synthgeo.sources import values
from synthgeo.sources.values import finite, operations


@dataclass(frozen=True)
class GridKeys:
    """Rows of an 8 x 8 grid on the unit square as keys, weights (inside, op); outside has weight 0."""

    op: bool = False

    @property
    def columns(self):
        return ["lon", "lat", "op"] if self.op else ["lon", "lat"]

    @property
    def weights(self):
        return 2 if self.op else 1

    def __call__(self, chunk):
        x, y = finite(chunk, "lon"), finite(chunk, "lat")
        inside = (x >= 0) & (x < 1) & (y >= 0) & (y < 1)
        keys = np.zeros(len(x), dtype=np.uint64)
        keys[inside] = (np.floor(8 * x[inside]) * 8 + np.floor(8 * y[inside])).astype(np.uint64)
        if not self.op:
            return keys, inside.astype(np.int64)[:, None]
        ops = operations(chunk, "op")
        return keys, np.column_stack([inside & (ops == 1), inside & (ops == -1)]).astype(np.int64)


@dataclass(frozen=True)
class DroppingKeys:
    """The same cells, but rows outside are left out."""

    def __call__(self, chunk):
        keys, weights = GridKeys()(chunk)
        return keys[weights[:, 0] == 1], None


@dataclass(frozen=True)
class SlowKeys:
    """GridKeys that takes its time and leaves a mark in a folder, so that a test can kill a worker midway."""

    folder: str
    seconds: float

    def __call__(self, chunk):
        import os
        import time
        import uuid
        from pathlib import Path

        (Path(self.folder) / f"{os.getpid()}-{uuid.uuid4().hex}").touch()
        time.sleep(self.seconds)
        return GridKeys()(chunk)


@dataclass(frozen=True)
class StragglingKeys:
    """GridKeys of which the first call hangs; each call leaves a mark in a folder."""

    folder: str
    seconds: float

    def __call__(self, chunk):
        import time
        import uuid
        from pathlib import Path

        try:
            (Path(self.folder) / "first").touch(exist_ok=False)
            time.sleep(self.seconds)
        except FileExistsError:
            (Path(self.folder) / uuid.uuid4().hex).touch()
        return GridKeys()(chunk)


@dataclass(frozen=True)
class Marked:
    """Rows as they are, slowly: each partition leaves a mark in a folder, so that a test can kill a worker
    midway.
    """

    folder: str
    seconds: float

    def __call__(self, rows):
        import os
        import time
        import uuid
        from pathlib import Path

        (Path(self.folder) / f"{os.getpid()}-{uuid.uuid4().hex}").touch()
        time.sleep(self.seconds)
        return rows


def few_keys(patch):
    """A driver that holds few keys, so that streams ask for cells level by level."""
    from streams.spatial import requests

    for name, value in (("DRIVER_BITS", 8), ("COARSE_BITS", 6), ("MOST_CELLS", 64)):
        patch.setattr(requests, name, value)


def deep_releases(data):
    """Seeded releases of two batches of points, and of users' points, on deep trees."""
    for options in ({}, {"unit": sg.PrivacyUnit.user(max_events=4, key="user")}):
        stream = sg.PHDStream.from_options(
            domain=sg.BoxDomain(0, 0, 1, 1, crs=4326),
            budget=sg.PrivacyBudget(4.0),
            lifetime=1,
            max_depth=12,
            noise=sg.SeededNoise(3),
            **options,
        )
        for _ in range(2):
            yield stream.update(data).xy.tobytes()
        assert stream.mechanism.cells.partition.bits.max() > 6


@dataclass(frozen=True)
class RowKeys:
    """A number for each record, made of all its canonical values."""

    kinds: tuple[tuple[str, str], ...]

    def __call__(self, chunk):
        parts = [part for name, kind in self.kinds for part in values.record_hash(chunk, name, kind)]
        return mix(*parts), None


@dataclass(frozen=True)
class Admitted:
    """Counts the events of ``GridKeys`` as far as a bounder admits them, in a period."""

    width: int = 2
    period: int = 0

    def __call__(self, events, bounder):
        ops = events.weights[:, 0] - events.weights[:, 1:].sum(axis=1)
        kept = ops != 0
        kept[kept] = bounder.admit(events.users.take(kept), events.keys[kept], ops[kept], period=self.period)
        return events.histogram(kept)

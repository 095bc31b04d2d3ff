"""Parts on a dask cluster: rows are dealt out by dask's own shuffle and stay on the workers.

What a worker loses when it dies is computed again from the partitions that dask was given, with the same
result. Only sums, and the ids of a stream's trips, come to the driver.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from synthgeo.arrays import Array
from synthgeo.errors import InputError
from synthgeo.extras import require
from synthgeo.sources.chunk import Chunk
from synthgeo.sources.dask import OnDask, computed
from synthgeo.sources.source import usable
from trajectories.parts.columns import Columns, Parts, PartWork, added
from trajectories.parts.folder import narrowed, widened
from trajectories.parts.shuffle import MOST_BUCKETS, bucket_of, empty_arrays, row_arrays
from trajectories.reading.points import TripColumns

_FAN_IN = 8  # partial sums that one task adds up
_FINER = 4  # parts for each partition: points take less room than what matching makes of them
_LARGE = {"distributed.admin.large-graph-warning-threshold": "1GB"}  # roads go with the tasks


class DaskParts(Parts):
    """Parts that lie on the workers of the active client, or in this process where there is none."""

    def __init__(self, parts: Sequence[Any], names: Sequence[str]) -> None:
        self._dask = require("dask", extra="dask")
        self._parts, self.names = list(parts), frozenset(names)

    def __len__(self) -> int:
        return len(self._parts)

    def results(self, work: PartWork) -> Iterator[Any]:
        return iter(self._computed(self._tasks(work, None)))

    def sum(self, work: PartWork) -> Any:
        """Adds up in a tree, on the workers."""
        sums, add = self._tasks(work, None), self._dask.delayed(added, pure=True)
        while len(sums) > 1:
            sums = [add(sums[at : at + _FAN_IN]) for at in range(0, len(sums), _FAN_IN)]
        return self._computed(sums)[0]

    def map(self, work: PartWork, more: Sequence[Any] | None = None) -> DaskParts:
        with self._dask.config.set(_LARGE):
            kept = self._dask.persist(*self._tasks(_Narrow(work), more))
        return DaskParts(kept, self._computed([self._dask.delayed(list)(kept[0])])[0])

    def _computed(self, tasks: list[Any]) -> tuple[Any, ...]:
        with self._dask.config.set(_LARGE):
            return computed(tasks)

    def _tasks(self, work: PartWork, more: Sequence[Any] | None) -> list[Any]:
        shared = self._dask.delayed(work, traverse=False)  # one task: what it holds is sent once
        run, extra = self._dask.delayed(_run, pure=True), more or [None] * len(self._parts)
        return [
            run(shared, part, one, more is not None) for part, one in zip(self._parts, extra, strict=True)
        ]


def shuffled_on_dask(source: OnDask, columns: TripColumns) -> DaskParts:
    """The rows of a dask source in parts, each trip (each user) whole in one of them."""
    dask = require("dask", extra="dask")
    frames = require("dask.dataframe", extra="dask")
    pieces = source.tasks(DaskRows(columns), list(columns.kinds))
    buckets = int(np.clip(_FINER * len(pieces), 1, MOST_BUCKETS))
    number = dask.delayed(_numbered, pure=True)
    tables = [number(piece, at, buckets) for at, piece in enumerate(pieces)]
    nothing = DaskRows(columns).combine([]).assign(bucket=np.int64(0), piece=np.int64(0), row=np.int64(0))
    dealt = frames.from_delayed(tables, meta=nothing, verify_meta=False)
    dealt = dealt.shuffle(on="bucket", npartitions=buckets)
    arrays = dask.delayed(_arrays, pure=True)
    try:
        with dask.config.set(_LARGE):
            parts = dask.persist(*[arrays(part) for part in dealt.to_delayed()])
            computed([dask.delayed(len)(part) for part in parts])  # errors of rows come now
    except InputError as problem:
        if problem.row is None:
            raise
        raise source.diagnosed(problem, list(columns.kinds), (columns.fields,)) from problem
    names = [name for name in nothing.columns if name not in ("bucket", "piece", "row")]
    return DaskParts(parts, names)


@dataclass(frozen=True)
class DaskRows:
    """The rows of a chunk as a table, and those of several chunks."""

    columns: TripColumns

    def __call__(self, chunk: Chunk) -> pd.DataFrame:
        return pd.DataFrame(row_arrays(self.columns, usable(chunk, self.columns.fields)))

    def combine(self, parts: list[pd.DataFrame]) -> pd.DataFrame:
        if parts:
            return pd.concat(parts, ignore_index=True)
        return pd.DataFrame(empty_arrays(self.columns))


def _numbered(rows: pd.DataFrame, piece: int, buckets: int) -> pd.DataFrame:
    """Rows with their bucket, and where they came from: ties in time are in this order."""
    table = {name: rows[name].to_numpy() for name in rows.columns}
    return rows.assign(bucket=bucket_of(table, buckets), piece=np.int64(piece), row=np.arange(len(rows)))


def _arrays(rows: pd.DataFrame) -> dict[str, Array]:
    """The columns of one part, its rows in the order of the data."""
    order = np.lexsort((rows["row"].to_numpy(), rows["piece"].to_numpy()))
    names = [name for name in rows.columns if name not in ("bucket", "piece", "row")]
    return {name: rows[name].to_numpy()[order] for name in names}


def _run(work: PartWork, part: Columns, more: Any, both: bool) -> Any:
    """Runs on a worker."""
    columns = {name: widened(array) for name, array in part.items()}
    return work((columns, more) if both else columns)


@dataclass(frozen=True, eq=False)
class _Narrow:
    """Work whose arrays are kept in as few bytes as they need."""

    work: PartWork

    def __call__(self, columns: Any) -> dict[str, Array]:
        return {name: narrowed(array) for name, array in self.work(columns).items()}


__all__ = ["DaskParts", "DaskRows", "shuffled_on_dask"]

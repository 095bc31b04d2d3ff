"""The dask engine: partitions of a dask DataFrame, or parts of files, are counted on the active client."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa

from synthgeo.errors import ClusterError, ConfigError, InputError
from synthgeo.extras import require
from synthgeo.sources.cluster import (
    ClusterSource,
    CountWindows,
    FilePart,
    InPartition,
    Keep,
    Span,
    Windows,
    Work,
    events_frame,
    events_of_frame,
    files_in_parts,
    on_chunks,
    seconds_allowed,
)
from synthgeo.sources.declared import Reading
from synthgeo.sources.files import ParquetSource
from synthgeo.sources.frames import LocalSource, PandasFrame
from synthgeo.sources.histogram import Histogram, merge_all
from synthgeo.sources.source import Bounder, BounderPart, Events, UserCount, UserEvents, count_bucket
from synthgeo.sources.text import TextSource

# Partial results merged by one task of the tree.
_FAN_IN = 8
# Seconds before work that was cancelled is handed in again.
_PAUSES = (0.0, 0.5, 2.0)


class OnDask(ClusterSource):
    """A source whose partitions are dask's tasks."""

    def __init__(self) -> None:
        self._dask = require("dask", extra="dask")

    @abstractmethod
    def _parts(self, columns: Sequence[str]) -> list[Any]:
        """What each task reads: a delayed frame, or a ``FilePart``."""

    def _results(self, work: Work, columns: Sequence[str]) -> Iterator[Any]:
        if isinstance(work, Keep):  # rows: one partition at a time
            return (self.compute(task)[0] for task in self.tasks(work, columns))
        return iter(self.compute(*self.tasks(work, columns)))

    def _counts(self, work: CountWindows, columns: Sequence[str]) -> Windows:
        parts = self.tasks(work, columns)
        return dict(self._merged(work.combine, parts)) if parts else {}

    def _users(
        self, work: Events, columns: Sequence[str], count: UserCount, bounder: Bounder
    ) -> tuple[Histogram, Sequence[BounderPart]]:
        frames = require("dask.dataframe", extra="dask")
        tasks = self.tasks(work, columns)
        parts = list(bounder.parts(max(_FAN_IN, len(tasks))))
        rows = self._dask.delayed(events_frame, pure=True)
        nobody = events_frame(UserEvents.concatenate([], work.weights), 1)
        events = frames.from_delayed(
            [rows(task, len(parts)) for task in tasks], meta=nobody, verify_meta=False
        ).shuffle("bucket", npartitions=len(parts))
        memory = self._dask.delayed(parts, traverse=False, pure=False)  # once to each worker
        bound = self._dask.delayed(_count_buckets, pure=True)
        counted = [bound(together, count, memory) for together in events.to_delayed()]
        counts, after = self._merged(_combine_buckets, counted)
        return counts, [after.get(bucket, part) for bucket, part in enumerate(parts)]

    def _merged(self, combine: Callable[[list[Any]], Any], parts: list[Any]) -> Any:
        """Merges partial results in a tree, on the workers."""
        merge = self._dask.delayed(combine, pure=True)
        while len(parts) > 1:
            parts = [merge(parts[at : at + _FAN_IN]) for at in range(0, len(parts), _FAN_IN)]
        return self.compute(parts[0])[0]

    def compute(self, *tasks: Any) -> tuple[Any, ...]:
        """The results of delayed tasks, by the active client if there is one.

        ``ClusterError`` where the cluster is lost or takes too long, ``InputError`` for unreadable rows.
        """
        return computed(list(tasks))

    def tasks(self, work: Work, columns: Sequence[str]) -> list[Any]:
        """One delayed result per partition, over these columns only."""
        wanted = self._read_columns(columns)
        task = self._dask.delayed(_on_partition, pure=True)
        return [
            task(work, part, number, wanted, self._span, self.reading)
            for number, part in enumerate(self._parts(wanted))
        ]


class DaskSource(OnDask):
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


class FilesOnCluster(OnDask):
    """Files that the workers read themselves, a part of a file per task: they must see the same paths."""

    def __init__(self, files: TextSource | ParquetSource) -> None:
        super().__init__()
        self._files, self._unchanged = files, files.unchanged
        self.columns, self.reading = files.columns, files.reading
        self.geometry, self.crs = files.geometry, files.crs

    def is_zoned(self, column: str) -> bool:
        return self._files.is_zoned(column)

    def described(self, asked: Sequence[str]) -> str:
        return self._files.described(asked)

    def _parts(self, columns: Sequence[str]) -> list[Any]:  # noqa: ARG002
        return [FilePart(self._files, part) for part in self._files.parts()]


def files_on_cluster(paths: Sequence[Any], reading: Reading) -> FilesOnCluster:
    """Parquet or text files, counted by the active dask client."""
    return FilesOnCluster(files_in_parts(paths, reading))


def computed(tasks: list[Any]) -> tuple[Any, ...]:
    """The results of delayed tasks, by the active client if there is one; errors are those of
    ``OnDask.compute``.
    """
    try:
        client = require("distributed", extra="dask").default_client()
    except (ConfigError, ValueError):  # no cluster: threads here
        client = None
    return _computed(require("dask", extra="dask"), client, tasks)


def _computed(dask: Any, client: Any, tasks: list[Any]) -> tuple[Any, ...]:
    """Results, or one line about what went wrong; the texts of other errors may show values of rows."""
    if client is None:
        try:
            return tuple(dask.compute(*tasks))
        except (pa.ArrowException, OSError) as problem:
            raise _unreadable(problem) from None
    distributed = require("distributed", extra="dask")
    allowed, futures = seconds_allowed(), []
    closed = getattr(
        distributed.client, "ClosedClientError", distributed.CancelledError
    )  # not in all versions
    lost = (distributed.CancelledError, distributed.comm.CommClosedError, closed)

    def gathered() -> tuple[Any, ...]:
        nonlocal futures
        futures = client.compute(tasks)
        distributed.wait(futures, timeout=allowed)
        return tuple(client.gather(futures))

    try:
        for pause in _PAUSES:
            try:
                return gathered()
            except distributed.CancelledError:
                if client.status != "running":
                    raise
                # Work that timed out has the same names, and its cancellation may come late.
                futures = []
                time.sleep(pause)
        return gathered()
    except distributed.TimeoutError:
        client.cancel(futures, force=True)
        raise ClusterError(
            f"the cluster did not answer within {allowed:g} seconds; nothing was spent"
        ) from None
    except lost as problem:
        raise ClusterError(
            f"the connection to the cluster was lost ({type(problem).__name__}); nothing was spent"
        ) from None
    except distributed.KilledWorker:
        raise ClusterError(
            "workers died again and again over the same rows, perhaps for want of memory; nothing was spent"
        ) from None
    except (pa.ArrowException, OSError) as problem:
        raise _unreadable(problem) from None


def _unreadable(problem: Exception) -> InputError:
    return InputError(f"a worker could not read its rows ({type(problem).__name__})")


def _count_buckets(
    frame: pd.DataFrame, count: UserCount, parts: Sequence[BounderPart]
) -> tuple[Histogram, dict[int, BounderPart]]:
    """Runs on a worker, on the events of some buckets of users."""
    counts, after = [Histogram.empty(count.width)], {}
    for bucket, rows in frame.groupby("bucket"):
        found, after[int(bucket)] = count_bucket(events_of_frame(rows), count, parts[int(bucket)])
        counts.append(found)
    return merge_all(counts), after


def _combine_buckets(
    results: list[tuple[Histogram, dict[int, BounderPart]]],
) -> tuple[Histogram, dict[int, BounderPart]]:
    after = {bucket: part for _, parts in results for bucket, part in parts.items()}
    return merge_all([counts for counts, _ in results]), after


def _on_partition(
    work: Work,
    part: pd.DataFrame | FilePart,
    number: int,
    columns: Sequence[str],
    span: Span | None,
    reading: Reading,
) -> Any:
    """Runs on a worker."""
    if isinstance(part, FilePart):
        return on_chunks(work, part.chunks(columns), span)
    rows = LocalSource(PandasFrame(part), reading=reading)
    chunks = (chunk.named(InPartition(chunk.where, number)) for chunk in rows.chunks(columns))
    return on_chunks(work, chunks, span)

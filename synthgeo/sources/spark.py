"""The Spark engine: Arrow batches are counted where they are, and Spark groups and sums the counts.

A task is a pure function of its partition, and Spark takes the output of one attempt only: what is retried
or run twice by speculation counts once. No noise is drawn here.
"""

from __future__ import annotations

import pickle
import re
import sys
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import numpy as np

from synthgeo.errors import ClusterError, ConfigError, InputError
from synthgeo.extras import require
from synthgeo.privacy.users import UserIds
from synthgeo.sources.chunk import Chunk
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
from synthgeo.sources.fingerprint import FIRST_OF_IDENTITY
from synthgeo.sources.frames import Rows, chunk_of_batch
from synthgeo.sources.histogram import Histogram
from synthgeo.sources.source import Bounder, BounderPart, Events, UserCount, UserEvents, count_bucket
from synthgeo.sources.text import TextSource
from synthgeo.sources.unchanged import Unchanged

# Spark hands out batches of ten thousand rows; numpy wants more at a time.
_ROWS = 1 << 18


class OnSpark(ClusterSource):
    """A source whose partitions are Spark's."""

    def __init__(self) -> None:
        require("pyspark", extra="spark")

    @abstractmethod
    def _job(self, work: Work, columns: Sequence[str]) -> tuple[Any, _Task]:
        """The Spark frame that holds the rows of these columns, and the task that works on a partition."""

    def _results(self, work: Work, columns: Sequence[str]) -> Iterator[Any]:
        frame, task = self._job(work, columns)
        with _typed_errors(frame.sparkSession):
            found = frame.mapInArrow(_Results(task), "partition int, result binary")
            if isinstance(work, Keep):  # rows: one partition at a time
                yield from (_loaded(row.result) for row in found.toLocalIterator())
            else:
                yield from (_loaded(row.result) for row in sorted(found.collect()))

    def _counts(self, work: CountWindows, columns: Sequence[str]) -> Windows:
        frame, task = self._job(work, columns)
        sums = [f"w{number}" for number in range(work.weights)]
        schema = "part int, key long, apart binary, " + ", ".join(f"{name} long" for name in sums)
        with _typed_errors(frame.sparkSession):
            counted = frame.mapInArrow(_Counts(task, work.weights), schema)
            table = counted.groupBy("part", "key", "apart").sum(*sums).toArrow()
        for apart in table["apart"].drop_null().to_pylist():
            if len(apart) != _LABEL:
                _loaded(apart)  # raises the error about a row
        window = table["part"].to_numpy()
        keys, weights = _sums(table, sums)
        return {
            int(number): Histogram.of(keys[window == number], weights[window == number])
            for number in np.unique(window)
        }

    def _users(
        self, work: Events, columns: Sequence[str], count: UserCount, bounder: Bounder
    ) -> tuple[Histogram, Sequence[BounderPart]]:
        frame, task = self._job(work, columns)
        session = frame.sparkSession
        parts = list(bounder.parts(int(session.conf.get("spark.sql.shuffle.partitions"))))
        names = ["bucket", "high", "low", "key", *(f"w{number}" for number in range(work.weights))]
        sums = [f"w{number}" for number in range(count.width)]
        rows = ", ".join(f"{name} long" for name in names) + ", problem binary"
        counted = "key long, apart binary, " + ", ".join(f"{name} long" for name in sums)
        memory = [(bucket, pickle.dumps(part)) for bucket, part in enumerate(parts)]
        with _typed_errors(frame.sparkSession):
            events = frame.mapInArrow(_EventRows(task, len(parts)), rows).groupBy("bucket")
            before = session.createDataFrame(memory, "bucket long, part binary").groupBy("bucket")
            bound = _CountBucket(count)  # Spark looks at the arguments of a plain function
            found = events.cogroup(before).applyInArrow(lambda left, right: bound(left, right), counted)
            table = found.groupBy("key", "apart").sum(*sums).toArrow()
        apart = table["apart"].to_pylist()
        for item in apart:
            if item is not None:
                bucket, part = _loaded(item)
                parts[bucket] = part
        counts = Histogram.of(*_sums(table.filter(table["apart"].is_null()), sums))
        return counts if counts.size else Histogram.empty(count.width), parts


class SparkSource(OnSpark):
    """A Spark DataFrame."""

    def __init__(self, frame: Any, reading: Reading | None = None) -> None:
        super().__init__()
        self._frame = frame
        self.reading = Reading() if reading is None else reading
        self.columns = list(frame.columns)
        self._unchanged = Unchanged(_local_files(frame))
        repeated = {name for name, times in Counter(self.columns).items() if times > 1}
        if repeated:
            raise InputError(f"column {min(repeated)!r} appears more than once")

    def is_zoned(self, column: str) -> bool:
        return self._frame.schema[column].dataType.typeName() == "timestamp" or self.reading.tz is not None

    def _job(self, work: Work, columns: Sequence[str]) -> tuple[Any, _Task]:
        wanted = self._read_columns(columns)
        by_place = self._frame.toDF(*(f"c{place}" for place in range(len(self.columns))))  # names may be odd
        rows = by_place.select(*(f"c{self.columns.index(name)}" for name in wanted))
        return rows, _RowsTask(work, self._span, tuple(wanted), self.reading)


def _local_files(frame: Any) -> list[str]:
    """The files under a frame, as far as Spark names them and this machine sees them."""
    paths = [url2pathname(urlsplit(name).path) for name in frame.inputFiles() if name.startswith("file:")]
    return [path for path in paths if Path(path).is_file()]


class FilesOnSpark(OnSpark):
    """Files that Spark's workers read themselves, a part of a file per task: they must see the same paths."""

    def __init__(self, files: TextSource | ParquetSource, session: Any) -> None:
        super().__init__()
        self._files, self._session, self._unchanged = files, session, files.unchanged
        self.columns, self.reading = files.columns, files.reading
        self.geometry, self.crs = files.geometry, files.crs

    def is_zoned(self, column: str) -> bool:
        return self._files.is_zoned(column)

    def described(self, asked: Sequence[str]) -> str:
        return self._files.described(asked)

    def _job(self, work: Work, columns: Sequence[str]) -> tuple[Any, _Task]:
        parts = list(self._files.parts())
        numbers = self._session.range(0, len(parts), 1, max(1, len(parts)))
        return numbers, _FilesTask(work, self._span, tuple(self._read_columns(columns)), self._files, parts)


def files_on_spark(paths: Sequence[Any], reading: Reading, session: Any) -> FilesOnSpark:
    """Parquet or text files, counted by a Spark session."""
    return FilesOnSpark(files_in_parts(paths, reading), session)


@dataclass(frozen=True)
class _Task(ABC):
    """What a worker does with its partition."""

    work: Work
    span: Span | None
    columns: tuple[str, ...]

    @abstractmethod
    def chunks(self, batches: Iterator[Any], number: int) -> Iterator[Chunk]:
        """The rows of the partition with this number."""

    def __call__(self, batches: Iterator[Any]) -> tuple[int, Any]:
        """The number of the partition, and the result; an error about a row is a result."""
        from pyspark import TaskContext

        context = TaskContext.get()
        number = 0 if context is None else context.partitionId()
        try:
            return number, on_chunks(self.work, self.chunks(batches, number), self.span)
        except InputError as problem:
            return number, problem


@dataclass(frozen=True)
class _RowsTask(_Task):
    reading: Reading

    def chunks(self, batches: Iterator[Any], number: int) -> Iterator[Chunk]:
        import pyarrow as pa

        start = 0
        for batch in _larger(batches):
            rows = pa.RecordBatch.from_arrays(batch.columns, list(self.columns))
            locate = InPartition(Rows(slice(start, None)), number)
            yield chunk_of_batch(rows, self.columns, self.reading, None, locate)
            start += rows.num_rows


@dataclass(frozen=True)
class _FilesTask(_Task):
    files: TextSource | ParquetSource
    parts: list[Any]

    def chunks(self, batches: Iterator[Any], number: int) -> Iterator[Chunk]:  # noqa: ARG002
        for batch in batches:
            for part in batch.column(0).to_pylist():
                yield from FilePart(self.files, self.parts[part]).chunks(self.columns)


@dataclass(frozen=True)
class _Results:
    """A partition's result as one row."""

    task: _Task

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        number, result = self.task(batches)
        yield pa.RecordBatch.from_arrays(
            [pa.array([number], pa.int32()), pa.array([pickle.dumps(result)], pa.binary())],
            ["partition", "result"],
        )


@dataclass(frozen=True)
class _Counts:
    """A partition's counts as rows that Spark can group and sum.

    Sums of hashes wrap around, which Spark's sums may not: their rows stay apart by partition.
    """

    task: _Task
    weights: int

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        number, result = self.task(batches)
        if isinstance(result, InputError):
            yield self._rows(0, Histogram.empty(self.weights), number, problem=pickle.dumps(result))
            return
        for window, counts in result.items():
            yield self._rows(window, counts, number)

    def _rows(self, window: int, counts: Histogram, number: int, problem: bytes | None = None) -> Any:
        import pyarrow as pa

        keys, weights = counts.keys, counts.weights
        apart: list[bytes | None] = [None] * len(keys)
        first = int(np.searchsorted(keys, FIRST_OF_IDENTITY))
        apart[first:] = [number.to_bytes(_LABEL, "big")] * (len(keys) - first)
        if problem is not None:
            keys, weights, apart = np.zeros(1, np.uint64), np.zeros((1, self.weights), np.int64), [problem]
        return pa.RecordBatch.from_arrays(
            [
                pa.array(np.full(len(keys), window, np.int32)),
                pa.array(keys.view(np.int64)),
                pa.array(apart, pa.binary()),
                *(pa.array(np.ascontiguousarray(weights[:, column])) for column in range(self.weights)),
            ],
            ["part", "key", "apart", *(f"w{column}" for column in range(self.weights))],
        )


@dataclass(frozen=True)
class _EventRows:
    """A partition's events as rows that Spark can shuffle by bucket of users."""

    task: _Task
    buckets: int

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        _, result = self.task(batches)
        problem = pickle.dumps(result) if isinstance(result, InputError) else None
        if problem is not None:
            work: Any = self.task.work
            nothing = np.zeros((1, work.weights), np.int64)
            somebody = UserIds.of_integers(np.zeros(1, np.int64))
            result = UserEvents(somebody, np.zeros(1, np.uint64), nothing)
        rows = pa.RecordBatch.from_pandas(events_frame(result, self.buckets), preserve_index=False)
        yield rows.append_column("problem", pa.array([problem] * rows.num_rows, pa.binary()))


@dataclass(frozen=True)
class _CountBucket:
    """What a bucket's events count, and the memory that comes after them, as rows that Spark can group."""

    count: UserCount

    def __call__(self, events: Any, memory: Any) -> Any:
        import pyarrow as pa

        apart: list[bytes | None] = events["problem"].drop_null().to_pylist()[:1]
        counts = Histogram.empty(self.count.width)
        if not apart and events.num_rows:
            (bucket,), (part,) = memory["bucket"].to_pylist(), memory["part"].to_pylist()
            columns = {name: events[name].to_numpy() for name in events.column_names if name != "problem"}
            counts, after = count_bucket(events_of_frame(columns), self.count, pickle.loads(part))  # noqa: S301
            apart = [pickle.dumps((bucket, after))]
        keys = np.concatenate([counts.keys, np.zeros(len(apart), np.uint64)]).view(np.int64)
        weights = np.concatenate([counts.weights, np.zeros((len(apart), self.count.width), np.int64)])
        return pa.table(
            {
                "key": keys,
                "apart": pa.array([None] * counts.size + apart, pa.binary()),
                **{f"w{number}": np.ascontiguousarray(column) for number, column in enumerate(weights.T)},
            }
        )


def _sums(table: Any, names: list[str]) -> tuple[Any, Any]:
    """Keys and weights of Spark's sums."""
    keys = table["key"].to_numpy().view(np.uint64)
    return keys, np.column_stack([table[f"sum({name})"].to_numpy() for name in names])


# Bytes of a partition's number; a pickled error has more.
_LABEL = 8


def _larger(batches: Iterator[Any]) -> Iterator[Any]:
    """The rows of Arrow batches in fewer, larger ones."""
    import pyarrow as pa

    waiting: list[Any] = []
    for batch in batches:
        waiting.append(batch)
        if sum(part.num_rows for part in waiting) >= _ROWS:
            yield pa.concat_batches(waiting)
            waiting = []
    if waiting:
        yield pa.concat_batches(waiting)


def _loaded(result: bytes) -> Any:
    """A result as a worker of this cluster wrote it; raises an error about a row."""
    found = pickle.loads(result)  # noqa: S301 - over Spark's own channel, which pickles as well
    if isinstance(found, InputError):
        raise found
    return found


def _wrong_python(text: str) -> str | None:
    """What is wrong with the interpreter of Spark's workers; None where the error is about something else."""
    here = f"set PYSPARK_PYTHON to {sys.executable}, or to its like on the workers, before Spark starts"
    other = re.search(r"Python in worker has different version:? \(?'?(\d+)[., ]+'?(\d+)", text)
    if other is not None or "PYTHON_VERSION_MISMATCH" in text:
        found = "another Python" if other is None else f"Python {other[1]}.{other[2]}"
        own = ".".join(map(str, sys.version_info[:2]))
        return f"Spark's workers run {found}, this process Python {own}: {here}"
    lost = re.search(r"No module named '(synthgeo|streams|tabular|trajectories|numpy|pandas|pyarrow)\b", text)
    if lost is not None:
        return f"the Python of Spark's workers has no {lost[1]}: {here}"
    if "Cannot run program" in text and "python" in text:
        return f"Spark's workers find no Python: {here}"
    return None


@contextmanager
def _typed_errors(session: Any) -> Iterator[None]:
    """One line for what goes wrong in Spark; its own texts may show values of rows."""
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark.errors import PySparkException

    allowed, late, done = seconds_allowed(), threading.Event(), threading.Event()

    def watch() -> None:
        if not done.wait(allowed):
            late.set()
            while not done.wait(0.5):  # a job may still be on its way
                session.interruptAll()

    try:
        if allowed is not None:
            threading.Thread(target=watch, daemon=True).start()
        yield
    except (PySparkException, Py4JError) as problem:
        if late.is_set():
            raise ClusterError(
                f"the cluster did not answer within {allowed:g} seconds; nothing was spent"
            ) from None
        wrong = _wrong_python(str(problem))
        if wrong is not None:
            raise ConfigError(wrong) from None
        if isinstance(problem, PySparkException):
            kind = problem.getCondition()
        elif isinstance(problem, Py4JJavaError):
            kind = problem.java_exception.getClass().getSimpleName()
        else:
            raise ClusterError("the connection to Spark was lost; nothing was spent") from None
        raise InputError(f"Spark could not read the rows ({kind}); its own log says why") from None
    finally:
        done.set()

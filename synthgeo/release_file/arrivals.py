"""Where the batches of a run come from: files, windows, waves, a folder; and where they are counted."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time as clock
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from synthgeo.errors import ConfigError, InputError

if TYPE_CHECKING:
    from synthgeo.sources import Reading, Source

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".parquet", ".pq", ".geoparquet", ".geojson", ".gpkg")
UNFINISHED = (".tmp", ".part", ".partial", ".crdownload")


@dataclass(frozen=True)
class Batch:
    """One step's input: a name that stays the same when the run is started again, and the data."""

    name: str
    data: Any


class Stop:
    """Set by SIGTERM and Ctrl-C: the step that is under way is finished, the next one is not begun."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._before = {name: signal.signal(name, self._set) for name in (signal.SIGTERM, signal.SIGINT)}

    def _set(self, *_: Any) -> None:
        if self._event.is_set():  # asked twice: now
            raise KeyboardInterrupt
        self._event.set()

    def __bool__(self) -> bool:
        return self._event.is_set()

    def wait(self, seconds: float) -> None:
        """Sleep, but not through a signal."""
        self._event.wait(seconds)

    def restore(self) -> None:
        """Give signals back to whoever had them."""
        for name, handler in self._before.items():
            signal.signal(name, handler)


def expand(inputs: Sequence[str]) -> list[Path]:
    """The files that paths and globs name, in order of their names."""
    from synthgeo.sources.files import expand as files_of

    files = [Path(path) for path in files_of(inputs)] if inputs else []
    if len({file.name for file in files}) < len(files):
        raise ConfigError("two input files have the same name; names tell batches apart")
    return sorted(files, key=lambda file: file.name)


@dataclass(frozen=True)
class Cluster:
    """A cluster that counts: the address of a dask scheduler, or of Spark."""

    engine: Literal["dask", "spark"]
    address: str
    timeout: float | None = None

    @classmethod
    def of(cls, scheduler: str | None, spark: str | None, timeout: float | None = None) -> Cluster | None:
        """The one that the options name."""
        if scheduler is not None and spark is not None:
            raise ConfigError("give --scheduler or --spark, not both")
        if spark is not None:
            return cls("spark", spark, timeout)
        if scheduler is None and timeout is not None:
            raise ConfigError("--timeout goes with --scheduler or --spark")
        return None if scheduler is None else cls("dask", scheduler, timeout)


def read(files: Sequence[Path], cluster: Cluster | None, reading: Reading | None) -> Source:
    """Files as a source of rows; on the cluster where there is one to read them."""
    from synthgeo.sources import open_source
    from synthgeo.sources.declared import check_reading

    paths = [str(file) for file in files]
    if cluster is None:
        return open_source(paths, reading=reading)
    if cluster.engine == "spark":
        from pyspark.sql import SparkSession

        from synthgeo.sources.spark import files_on_spark

        return files_on_spark(paths, check_reading(reading), SparkSession.active())
    from synthgeo.sources.dask import files_on_cluster

    return files_on_cluster(paths, check_reading(reading))


@contextmanager
def connected(cluster: Cluster | None) -> Iterator[None]:
    """While this lasts, the cluster counts."""
    from synthgeo.sources.cluster import cluster_timeout

    with ExitStack() as stack:
        if cluster is not None and cluster.timeout is not None:
            stack.enter_context(cluster_timeout(cluster.timeout))
        if cluster is not None and cluster.engine == "spark":
            session, ours = _spark(cluster.address)
            if ours:
                stack.callback(session.stop)
        elif cluster is not None:
            stack.enter_context(_dask(cluster.address))
        yield


def _dask(address: str) -> Any:
    from synthgeo.extras import require

    distributed = require("distributed", extra="dask")
    try:
        return distributed.Client(address, timeout="10s")
    except (OSError, ValueError, TimeoutError) as problem:
        raise ConfigError(f"--scheduler: no cluster answers at {address} ({problem})") from None


def _spark(address: str) -> tuple[Any, bool]:
    """A session, and whether it was started here."""
    from synthgeo.extras import require

    sql = require("pyspark.sql", extra="spark")
    errors = require("pyspark.errors", extra="spark")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    running = sql.SparkSession.getActiveSession()
    if running is not None:
        return running, False
    try:
        session = sql.SparkSession.builder.master(address).appName("synthgeo").getOrCreate()
    except Exception as problem:  # Java's errors have no common class but this one
        if not isinstance(problem, errors.PySparkException) and "py4j" not in type(problem).__module__:
            raise
        raise ConfigError(f"--spark: no session at {address}; is Java there, and the cluster up?") from None
    session.sparkContext.setLogLevel("ERROR")
    return session, True


def arriving(
    folder: Path,
    stop: Stop,
    *,
    done: Iterable[str] = (),
    poll: float,
    settle: float,
    idle: float | None,
    tell: Callable[[str], None] = lambda text: None,  # noqa: ARG005
) -> Iterator[Batch]:
    """Files of a folder in order of their names, those that are there and those that come.

    A file is taken when it has not changed for ``settle`` seconds; until then the ones after it wait. A file
    whose name comes before one that was taken, now or in an earlier life of the run (``done``), is an
    error: its batch would be out of order.
    """
    if not folder.is_dir():
        raise ConfigError(f"--watch: there is no folder {folder}")
    taken: set[str] = set()
    known = set(done)
    latest = max(known, default="")
    since = clock.monotonic()
    tell(f"watching {folder}")
    while not stop:
        waiting = [file for file in _candidates(folder) if file.name not in taken]
        late = next((file.name for file in waiting if file.name < latest and file.name not in known), None)
        if late is not None:
            raise InputError(
                f"{late} came after {latest} was taken; files have to come in order of their names"
            )
        # Those of an earlier life come all at once: to look for new ones after each would be quadratic.
        settled = takewhile(lambda file: _is_settled(file, settle), waiting)
        next_ones = list(takewhile(lambda file: file.name in known, settled))
        if not next_ones and waiting and _is_settled(waiting[0], settle):
            next_ones = waiting[:1]
        if next_ones:
            for file in next_ones:
                taken.add(file.name)
                latest = max(latest, file.name)
                yield Batch(file.name, file)
            since = clock.monotonic()
        elif not waiting and idle is not None and clock.monotonic() - since >= idle:
            return
        else:
            stop.wait(poll)


def _candidates(folder: Path) -> list[Path]:
    files = (file for file in folder.iterdir() if file.is_file() and not file.name.startswith("."))
    known = (file for file in files if file.name.lower().endswith(SUFFIXES))
    return sorted((file for file in known if not file.name.endswith(UNFINISHED)), key=lambda file: file.name)


def _is_settled(file: Path, settle: float) -> bool:
    try:
        return clock.time() - file.stat().st_mtime >= settle
    except FileNotFoundError:  # it was renamed or taken away while we looked
        return False

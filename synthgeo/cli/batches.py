"""Batches for a run: files one by one, windows of all files, or files as they arrive in a folder."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time as clock
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from synthgeo.cli.output import say
from synthgeo.errors import ConfigError, InputError, LedgerError

if TYPE_CHECKING:
    from streams.runs.run import StreamRun
    from streams.runs.view import RunView
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


@dataclass(frozen=True)
class Arrivals:
    """Where a run's batches come from: files, windows or waves of files, or a folder where they arrive.

    ``wave`` is the column that names the wave of each row of a panel, ``waves`` lists them in order.
    """

    inputs: list[str] | None
    watch: Path | None
    time: str | None
    every: str | None
    start: str | None
    end: str | None
    poll: float
    settle: float
    idle: float | None
    cluster: Cluster | None
    wave: str | None = None
    waves: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if (self.watch is None) == (not self.inputs):
            raise ConfigError("give input files, or --watch a folder")
        if self.wave is not None and (self.watch is not None or self.time is not None):
            raise ConfigError("--wave cuts the files by a column; neither --watch nor --time goes with it")
        if (self.time is None) != (self.every is None):
            raise ConfigError("give --time and --every together, or neither")
        if self.watch is not None and self.time is not None:
            raise ConfigError("--watch takes each file as one batch; --time does not go with it")
        if self.every is not None:
            from synthgeo.sources.grid import check_grid

            check_grid(self.every, self.start, self.end)

    def facts(self) -> dict[str, Any]:
        """How the batches are cut: what a run remembers, so that it goes on in the same way."""
        if self.wave is not None:
            return {"by": "wave", "wave": self.wave, "waves": list(self.waves)}
        if self.time is None:
            return {"by": "file"}
        names = ("time", "every", "start", "end")
        return {"by": "window"} | {name: getattr(self, name) for name in names}

    def as_before(self, run: RunView) -> Arrivals:
        """The arrivals of a run that exists, cut as it was cut so far; refused if they are to be cut anew.

        An event that was in one window or file must not come again in another.
        """
        kept, done = run.remembered.get("batches"), run.batches
        if kept is None:  # begun by version 0.1, or from Python
            self._check_names(done)
            return self
        if kept["by"] == "wave":
            return self._waves_as_before(run, kept)
        if self.wave is not None:
            raise LedgerError(f"{run.directory} was not cut by --wave, which would cut its rows anew")
        if kept["by"] == "file":
            if self.time is not None:
                raise LedgerError(f"{run.directory} takes each file as one batch; --time cuts them anew")
            return self
        if self.watch is not None:
            raise LedgerError(f"{run.directory} cuts its files into windows; --watch does not go with that")
        for name in ("time", "every"):
            if getattr(self, name) not in (None, kept[name]):
                raise LedgerError(
                    f"{run.directory} was cut with --{name} {kept[name]}, not {getattr(self, name)}"
                )
        first = kept["start"] or (done[0] if done else None)
        if self.start is not None and first is not None and not _on_grid(self.start, first, kept["every"]):
            raise LedgerError(
                f"{run.directory} has windows from {first} on; --start {self.start} starts none of them"
            )
        return replace(
            self,
            time=kept["time"],
            every=kept["every"],
            start=self.start or first,
            end=self.end or kept["end"],
        )

    def _waves_as_before(self, run: RunView, kept: dict[str, Any]) -> Arrivals:
        """The same waves, or these and further ones."""
        before = tuple(kept["waves"])
        if self.watch is not None or self.time is not None or self.wave not in (None, kept["wave"]):
            raise LedgerError(f"{run.directory} was cut with --wave {kept['wave']}, and goes on with it")
        waves = self.waves or before
        done = tuple(run.batches)
        if waves[: len(done)] != done:
            raise LedgerError(
                f"{run.directory} has had the waves {', '.join(done)}; --waves must begin with them"
            )
        return replace(self, wave=kept["wave"], waves=waves)

    def _check_names(self, done: Sequence[str]) -> None:
        """What the names of its batches tell of a run that does not remember how it was cut."""
        windows = bool(done) and all(_is_time(name) for name in done)
        if windows and self.time is None:
            raise LedgerError(
                "this run was cut into windows and does not remember how: give --time, --every and --start "
                "as they were"
            )
        if done and not windows and self.time is not None:
            raise LedgerError(
                f"this run has batches such as {done[0]}, which are no windows; --time cuts anew"
            )

    @cached_property
    def files(self) -> list[Path]:
        """The files that are there; none for a folder."""
        return expand(self.inputs or [])

    @property
    def total(self) -> int | None:
        """How many batches will come, if that is known."""
        if self.wave is not None:
            return len(self.waves)
        return len(self.files) if self.watch is None and self.time is None else None

    def planned(self, tz: str | None = None) -> list[str]:
        """The batches to come. Without public ends windows depend on the data, which is not read here."""
        if self.wave is not None:
            return list(self.waves)
        if self.time is None or self.every is None:
            return [file.name for file in self.files]
        if self.start is None or self.end is None:
            raise ConfigError(
                "a plan of windows needs --start and --end: without them it would read private data"
            )
        from synthgeo.sources.grid import make_grid

        zoned = tz is not None or self.start.endswith("Z") or "+" in self.start
        grid = make_grid(self.every, self.start, self.end, zoned=zoned, column=self.time, tz=tz)
        return [stamp.isoformat() for stamp in grid.starts]

    def batches(self, stop: Stop, run: StreamRun) -> Iterator[Batch]:
        """The batches, in order, read as the run's stream reads them."""
        done, reading = run.batches, run.reading
        if self.watch is not None:
            return arriving(self.watch, stop, done=done, poll=self.poll, settle=self.settle, idle=self.idle)
        if self.time is not None and self.every is not None:
            rows = read(self.files, self.cluster, reading)
            windows = run.windows(rows, time=self.time, every=self.every, start=self.start, end=self.end)
            return (Batch(stamp.isoformat(), window) for stamp, window in windows)
        if self.wave is not None:
            from synthgeo.sources.waves import waves_of

            parts = waves_of(read(self.files, self.cluster, reading), self.wave, self.waves)
            return (Batch(name, part) for name, part in parts)
        if self.cluster is None:  # the run reads them as declared, and sees when one changes meanwhile
            return (Batch(file.name, file) for file in self.files)
        return (Batch(file.name, read([file], self.cluster, reading)) for file in self.files)


def expand(inputs: Sequence[str]) -> list[Path]:
    """The files that paths and globs name, in order of their names."""
    from synthgeo.sources.files import expand as files_of

    files = [Path(path) for path in files_of(inputs)] if inputs else []
    if len({file.name for file in files}) < len(files):
        raise ConfigError("two input files have the same name; names tell batches apart")
    return sorted(files, key=lambda file: file.name)


def _on_grid(start: str, first: str, every: str) -> bool:
    """Whether a window starts at ``start``, in a grid that starts at ``first``."""
    import pandas as pd

    try:
        wanted, origin = pd.Timestamp(start), pd.Timestamp(first)
        return wanted == origin or wanted in pd.date_range(origin, wanted, freq=every)
    except (TypeError, ValueError):  # no time, or one with a zone and one without
        return False


def _is_time(name: str) -> bool:
    try:
        datetime.fromisoformat(name)
    except ValueError:
        return False
    return True


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
    folder: Path, stop: Stop, *, done: Iterable[str] = (), poll: float, settle: float, idle: float | None
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
    say(f"watching {folder}")
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

"""Batches for a run: files one by one, windows of all files, or files as they arrive in a folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from synthgeo.cli.output import say
from synthgeo.errors import ConfigError, LedgerError
from synthgeo.release_file.arrivals import Batch, Cluster, Stop, arriving, expand, read

if TYPE_CHECKING:
    from streams.runs.run import StreamRun
    from streams.runs.view import RunView


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
            return arriving(
                self.watch, stop, done=done, poll=self.poll, settle=self.settle, idle=self.idle, tell=say
            )
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

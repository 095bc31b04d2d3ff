"""A release that is made step by step: windows that the clock has closed, waves, files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from synthgeo.errors import ConfigError, LedgerError
from synthgeo.release_file.arrivals import Batch, arriving, read
from synthgeo.release_file.asked import Options, Ran, cluster_of, confirmed, looks
from synthgeo.release_file.products import lifetime_of, reading_of

if TYPE_CHECKING:
    import pandas as pd

    from synthgeo.preflight import CheckReport
    from synthgeo.privacy.ledger import Ledger
    from synthgeo.release_file.file import ReleaseFile

# How many rows the released windows had, so that rows that come late are seen. For the curator.
_SEEN = "seen.json"


def run_steps(file: ReleaseFile, ledger: Ledger | None, options: Options, now: Any) -> Ran:
    """Take every step that is new."""
    if options.watch is not None and (file.has_windows or file.columns.wave is not None):
        raise ConfigError('a folder is watched for a run whose steps are files: every = "file"')
    return Steps(file, options, now).run(ledger)


def check(file: ReleaseFile, now: Any) -> CheckReport:
    """Everything in the data that does not fit what the file says."""
    return Steps(file, Options(), now).check()


def released_rows(file: ReleaseFile, source: Any) -> Any:
    """The rows of the windows that the last release holds; of trips all, as a trip lies in several."""
    import pandas as pd

    from streams.runs.run import StreamRun
    from synthgeo import validate

    if file.kind == "trips":
        return source
    if not hasattr(source, "between"):
        raise ConfigError("give the rows of the released windows: --real")
    with StreamRun.view(file.folder) as run:
        done = run.batches
    last = pd.Timestamp(done[-1]) + validate.length_of_time(str(file.time.every), "every")
    edges, _ = Steps(file, Options(), last).grid()
    assert edges is not None
    first = max(0, len(done) - (lifetime_of(file) or len(done)))
    low, high = pd.DatetimeIndex([edges[first], edges[len(done)]]).as_unit("us").asi8.tolist()
    return source.between(file.columns.time, low, high)


def next_window(file: ReleaseFile, now: Any = None) -> str | None:
    """The window that is open now, and when it is complete; None where there is none."""
    steps = Steps(file, Options(), now)
    _, still = steps.grid()
    return None if still is None else f"{_named(*still)}, complete on {steps.complete(still[1])}"


class Steps:
    """A release that is made step by step, in a durable run."""

    def __init__(self, file: ReleaseFile, options: Options, now: Any) -> None:
        self.file, self.options, self.now = file, options, now
        self.cluster = cluster_of(file)
        self.reading = reading_of(file)

    @property
    def facts(self) -> dict[str, Any]:
        """How the batches are cut: what a run remembers, so that it goes on in the same way."""
        time, columns = self.file.time, self.file.columns
        if columns.wave is not None:
            return {"by": "wave", "wave": columns.wave}
        if not self.file.has_windows:
            return {"by": "file"}
        return {"by": "window", "time": self.time, "every": time.every, "start": time.start}

    @property
    def time(self) -> str:
        return self.file.columns.time or "time"

    def check(self) -> CheckReport:
        """The look that ``check`` shows and that a first run takes."""
        stream = self.file.product()
        files = [str(path) for path in self.file.files()]
        if self.file.kind == "panel" and self.facts["by"] == "file":
            check_order(self.file.files())
        for path in files:
            stream.check_columns(self._open([path]))
        if self.file.columns.wave is not None:
            report = stream.check(files, wave=self.file.columns.wave, names=self.file.time.waves)
        elif self.file.has_windows:
            grid, _ = self.grid()
            if grid is None:
                report = stream.check(files, time=self.time)
            else:
                ends = {"start": grid[0], "end": grid[-1]}
                report = stream.check(files, time=self.time, every=self.file.time.every, **ends)
        else:
            report = stream.check(files)
        found: CheckReport = report
        return found

    def run(self, ledger: Ledger | None) -> Ran:
        """Open the run, or begin it, and take what is new."""
        from streams.runs.run import StreamRun

        file, folder = self.file, self.file.folder
        begun = (folder / "ledger.sqlite").exists()
        if begun:
            self._check_remembered()
        elif self.options.watch is None:
            nothing = self._not_yet()
            if nothing is not None:
                return Ran(folder, 0, 0, None, None, nothing)
            if self.cluster is None and looks(self.reading, self.options):
                confirmed(self.check(), self.options.confirm)
        stream = file.product()
        if not begun and file.engine.user_table is not None:
            stream.store_users(file.path_of(file.engine.user_table))
        parts = file.publishing.parts
        with StreamRun.open(
            folder,
            stream,
            parts=None if parts is None else tuple(parts),
            ledger=ledger,
            allow_clock_back=self.options.allow_clock_back,
            remember={"batches": self.facts},
        ) as opened:
            return self._take(opened)

    def _take(self, run: Any) -> Ran:
        """Give the run every batch that is new."""
        new, stop, tell = 0, self.options.stop, self.options.tell
        late = self._late(run)
        for batch in self._batches(run):
            if stop:
                break
            repeated = run.knows(batch.name, batch.data)
            if not repeated:
                run.step(batch.name, batch.data, allow_repeat=self.options.allow_repeat)
                new += 1
            tell(
                {
                    "batch": batch.name, "step": run.step_of(batch.name), "repeated": repeated,
                    "empty": not repeated and self._is_empty_file(batch.data),
                    "releasable": run.releasable is not False,
                }
            )  # fmt: skip
            if stop:
                break
        if new and self.file.has_windows:
            self._remember_rows(run)
        why = None if new or stop else self._nothing_new(run)
        bad = run.releasable is False
        return Ran(
            run.directory, new, run.steps, run.spent, run.releasable, why, late, bool(stop),
            run.why_not if bad and run.steps else None,
        )  # fmt: skip

    def _batches(self, run: Any) -> Iterator[Batch]:
        """The batches in order; of windows only those that are new."""
        file, options = self.file, self.options
        if options.watch is not None:
            return arriving(
                options.watch, options.stop, done=run.batches, poll=options.poll, settle=options.settle,
                idle=options.idle, tell=lambda text: options.tell({"said": text}),
            )  # fmt: skip
        if file.columns.wave is not None:
            from synthgeo.sources.waves import waves_of

            waves, done = [*map(str, file.time.waves or ())], run.batches
            if waves[: len(done)] != done:
                raise LedgerError(
                    f"{run.directory} has had the waves {', '.join(done)}; [time] waves must begin with them"
                )
            parts = waves_of(self._rows(), file.columns.wave, waves)
            return (Batch(name, part) for name, part in parts)
        if file.has_windows:
            return self._windows(run)
        if self.cluster is None:  # the run reads them as declared, and sees when one changes meanwhile
            return (Batch(path.name, path) for path in file.files())
        return (Batch(path.name, read([path], self.cluster, self.reading)) for path in file.files())

    def _windows(self, run: Any) -> Iterator[Batch]:
        """The windows that the clock has closed and that are not released yet."""
        edges, _ = self.grid()
        done = run.batches
        if edges is None:
            return
        starts = [edge.isoformat() for edge in edges[:-1]]
        if starts[: len(done)] != done[: len(starts)]:
            raise LedgerError(
                f"{run.directory} has released the windows from {done[0]} to {done[-1]}; this file has others"
            )
        if len(starts) <= len(done):
            return
        ends = {"start": edges[len(done)], "end": edges[-1]}
        for stamp, rows in run.windows(self._rows(), time=self.time, every=self.file.time.every, **ends):
            yield Batch(stamp.isoformat(), rows)

    def grid(self) -> tuple[list[pd.Timestamp] | None, tuple[pd.Timestamp, pd.Timestamp] | None]:
        """The edges of the windows that the clock has closed (None: no window has ended), and the first
        window that it has not closed (None: there is none up to the declared end).
        """
        import pandas as pd

        from synthgeo import validate
        from synthgeo.sources.grid import make_grid

        time, tz = self.file.time, self.reading.tz
        step = validate.length_of_time(str(time.every), "every")
        zoned = self._open([str(self.file.files()[0])]).is_zoned(self.time)
        now = _moment(self.now, zoned=zoned)
        if time.wait is not None:
            now = now - validate.length_of_time(time.wait, "wait")
        end: Any = time.end
        if end is None:  # far enough to hold the window that is open now
            start = pd.Timestamp(time.start)
            start = start.tz_localize("UTC") if zoned and start.tz is None else start
            end = max(now, start) + step + step
        grid = make_grid(str(time.every), time.start, end, zoned=zoned, column=self.time, tz=tz)
        edges = list(grid.starts)
        if time.end is not None:
            last = pd.DatetimeIndex(grid.edges[-1:].view("datetime64[us]"))
            edges += list(
                last if grid.starts.tz is None else last.tz_localize("UTC").tz_convert(grid.starts.tz)
            )
        closed = [edge for edge in edges if edge <= now]
        still = next(((a, b) for a, b in pairwise(edges) if b > now), None)
        return (closed if len(closed) > 1 else None), still

    def _not_yet(self) -> str | None:
        """Why a release has nothing to begin with, where no window has ended."""
        if not self.file.has_windows:
            return None
        closed, still = self.grid()
        if closed is not None or still is None:
            return None
        return f"{_named(*still)} is complete on {self.complete(still[1])}; there is nothing to release yet"

    def _nothing_new(self, run: Any) -> str:
        """Why a run has no step to make."""
        if self.file.columns.wave is not None:
            return f"all {run.steps} waves that [time] waves lists are released; nothing new"
        if not self.file.has_windows:
            return f"every file is released, in {run.steps} steps; nothing new"
        _, still = self.grid()
        if still is None:
            return f"all {run.steps} windows up to [time] end are released; nothing new"
        return f"{_named(*still)} is complete on {self.complete(still[1])}; nothing new"

    def complete(self, end: pd.Timestamp) -> str:
        """When a window that ends then is taken, in words."""
        from synthgeo import validate

        wait = self.file.time.wait
        return _day(end if wait is None else end + validate.length_of_time(wait, "wait"))

    def _check_remembered(self) -> None:
        """Refuse to go on with a run in another way than it was cut so far."""
        import pandas as pd

        from streams.runs.run import StreamRun

        with StreamRun.view(self.file.folder) as run:
            kept, steps = run.remembered.get("batches"), run.steps
        if kept is None:
            if steps:
                raise LedgerError(f"{self.file.folder} was begun from Python, and goes on there")
            return
        for name, value in self.facts.items():
            same = kept.get(name) == value
            if name == "start" and not same and kept.get(name) is not None:
                same = pd.Timestamp(kept[name]) == pd.Timestamp(value)
            if not same:
                raise LedgerError(
                    f"{self.file.folder} was cut with {name} = {kept.get(name)!r}, and this file says "
                    f"{value!r}: its records would come again in other steps"
                )

    def _late(self, run: Any) -> int:
        """How many rows have come since their window was released. One pass over the times."""
        seen = self.file.folder / _SEEN
        if self.cluster is not None or not run.steps or not seen.exists():
            return 0
        kept = json.loads(seen.read_text())
        late = max(0, self._rows_of(kept["windows"]) - int(kept["rows"]))
        if late and self.reading.unattended:
            self.reading.remark(f"{late} rows came after their window was released: they are left out")
            return 0
        return late

    def _remember_rows(self, run: Any) -> None:
        """Keep how many rows the released windows have now."""
        if self.cluster is not None:
            return
        kept = {"windows": run.steps, "rows": self._rows_of(run.steps)}
        path = self.file.folder / _SEEN
        path.touch(mode=0o600)
        path.write_text(json.dumps(kept))

    def _rows_of(self, windows: int) -> int:
        """The number of rows of the first windows."""
        import numpy as np
        import pandas as pd

        from synthgeo.sources.grid import Grid
        from synthgeo.sources.source import usable
        from synthgeo.sources.windows import KnownTimes

        edges, _ = self.grid()
        if edges is None or len(edges) <= windows:
            return 0
        span = pd.DatetimeIndex([edges[0], edges[windows]]).as_unit("us")
        grid, known, rows = Grid(span[:1], span.asi8), KnownTimes(self.time), 0
        for chunk in self._rows().chunks([self.time]):
            rows += int(np.count_nonzero(grid.window_of(known(usable(chunk, known))) == 0))
        return rows

    def _is_empty_file(self, data: Any) -> bool:
        """Whether a batch is a file without rows. Windows are not looked at: that would read them again."""
        if not isinstance(data, Path):
            return False
        source = self._open([str(data)])
        return all(chunk.rows == 0 for chunk in islice(source.chunks(source.columns[:1]), 1))

    def _rows(self) -> Any:
        return read(self.file.files(), self.cluster, self.reading)

    def _open(self, paths: list[str]) -> Any:
        from synthgeo.sources import open_source

        return open_source(paths, reading=self.reading)


def check_order(files: list[Path]) -> None:
    """Refuse files whose names are in another order than the numbers in them: waves have an order."""

    def numbered(path: Path) -> list[Any]:
        """A name as texts and numbers, in turns."""
        parts = re.split(r"(\d+)", path.name)
        return [int(part) if place % 2 else part for place, part in enumerate(parts)]

    for first, second in pairwise(files):
        if numbered(second) < numbered(first):
            padded = re.sub(r"\d+", lambda found: found[0].zfill(2), second.name, count=1)
            raise ConfigError(
                f"files are waves in the order of their names, in which {first.name} comes before "
                f"{second.name}: write their numbers with as many digits ({padded})"
            )


def _moment(now: Any, *, zoned: bool) -> pd.Timestamp:
    """The clock: in UTC for times with a zone, else the clock of this machine."""
    import pandas as pd

    if now is None:
        return pd.Timestamp.now(tz="UTC") if zoned else pd.Timestamp.now()
    found = pd.Timestamp(now)
    if zoned:
        return found.tz_localize("UTC") if found.tz is None else found
    return found.tz_localize(None)


def _named(start: pd.Timestamp, end: pd.Timestamp) -> str:
    """A window in words: a month or a day by its name."""
    import pandas as pd

    if start.day == 1 and start == start.normalize() and end == start + pd.DateOffset(months=1):
        return str(start.strftime("%B %Y"))
    if start == start.normalize() and end == start + pd.DateOffset(days=1):
        return str(start.date())
    return f"the window from {_day(start)}"


def _day(moment: pd.Timestamp) -> str:
    return str(moment.date()) if moment == moment.normalize() else moment.strftime("%Y-%m-%d %H:%M")

"""Runs of years, as an operator meets them: looking at 10^5 steps, and starting over finished files.

``python -m benchmarks.long_runs``. The rows of the journal are made in bulk, from a step that was really
made; times are processor seconds of this process. Results: ``benchmarks/results/long_runs.json``.
"""

from __future__ import annotations

import argparse
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

import synthgeo as sg
from benchmarks._common import record
from streams.runs.identity import marks_of
from synthgeo.release_file.arrivals import Stop, arriving

T = TypeVar("T")
BOX = sg.BoxDomain(0, 0, 1, 1)
READ = 1000  # newest releases that a quick check reads


def make(directory: Path, steps: int, files: list[Path]) -> None:
    """A run of so many steps; the last ones were the ``files``."""
    rng = np.random.default_rng(1)
    stream = sg.PHDStream(
        domain=BOX,
        budget=sg.PrivacyBudget(1.0),
        settings=sg.PointSettings(max_depth=4),
        noise=sg.SeededNoise(1),
    )
    with sg.StreamRun.open(directory, stream) as run:
        run.step("000001", rng.random((20, 2)))
        journal, first = run._journal, dict(run._journal.last())
        release = directory / "releases" / first["release"]
        kept = {name: value for name, value in first.items() if name not in ("number", "chain")}
        with journal.transaction() as connection:
            for number in range(2, steps + 1):
                file = files[number - steps - 1] if number > steps - len(files) else None
                name = f"{number:06d}" if file is None else file.name
                own = {
                    "batch": name,
                    "content": secrets.token_hex(32),
                    "release": f"{number:06d}-{name}",
                    "state": f"{number:06d}.state",
                    "marks": None if file is None else run._seen(marks_of(file)),
                }
                journal.append({**kept, **own})
                attempt = (name, kept["time"], "released")
                connection.execute("INSERT INTO attempts (batch, time, outcome) VALUES (?, ?, ?)", attempt)
                place = directory / "releases" / own["release"]
                if number > steps - READ:
                    shutil.copytree(release, place)
                else:
                    place.mkdir()
        journal.fold()
    (directory / "state" / "000001.state").rename(directory / "state" / f"{steps:06d}.state")


def seconds(work: Callable[[], T]) -> tuple[float, T]:
    """Processor seconds of some work, and what it gave."""
    start = time.process_time()
    found = work()
    return round(time.process_time() - start, 2), found


def look(directory: Path) -> dict[str, float]:
    """What ``status``, ``verify`` and ``report`` do."""
    took: dict[str, float] = {}
    took["open_to_look"], view = seconds(lambda: sg.StreamRun.view(directory))
    took["report"], _ = seconds(view.report)
    took["verify"], _ = seconds(lambda: view.verify(newest=READ))
    view.close()
    took["bytes_per_step"] = round((directory / "ledger.sqlite").stat().st_size / view_steps(directory))
    return took


def view_steps(directory: Path) -> int:
    """How many steps a run has."""
    with sg.StreamRun.view(directory) as view:
        return view.steps


def start_again(directory: Path, folder: Path) -> int:
    """What ``stream run`` does with finished files before it comes to new ones; how many it saw."""
    stop = Stop()
    try:
        with sg.StreamRun.open(directory) as run:
            batches = arriving(folder, stop, done=run.batches, poll=0.01, settle=0, idle=0)
            return sum(run.knows(batch.name, batch.data) for batch in batches)
    finally:
        stop.restore()


def measure(steps: int, files: int) -> dict[str, Any]:
    """Everything, in a folder that goes."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "in").mkdir()
        names = [folder / "in" / f"day-{number:06d}.csv" for number in range(files)]
        for name in names:
            name.write_text("x,y\n0.5,0.5\n")
        make(folder / "few", files + 1, names)
        again, seen = seconds(lambda: start_again(folder / "few", folder / "in"))
        assert seen == files
        make(folder / "many", steps, [])
        before = look(folder / "many")
        with sg.StreamRun.open(folder / "many") as run:
            compacting, removed = seconds(lambda: run.compact(keep_every=100))
        return {
            "steps": steps,
            "files": files,
            "start_again": again,
            "before": before,
            "compact": compacting,
            "removed": removed,
            "after": look(folder / "many"),
        }


def main() -> None:
    """Measure, print and record."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--steps", type=int, default=100_000)
    options.add_argument("--files", type=int, default=3000)
    chosen = options.parse_args()
    found = measure(chosen.steps, chosen.files)
    print(found)
    record("long_runs", {"steps": chosen.steps, "files": chosen.files}, found)


if __name__ == "__main__":
    main()

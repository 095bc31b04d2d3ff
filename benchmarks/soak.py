"""Thousands of kills: durable runs whose process dies at any line and any moment, and what is left of them.

``python -m benchmarks.soak`` (``make soak``) lets a process open a run and make its next step, and kills it
(SIGKILL): half of the time when it comes to a line that was drawn at random among those it executes in runs,
ledgers, states and streams, half of the time at a random moment, which may be inside SQLite or a system call.
After each kill the releases are read from outside. Three things may never happen: a release that was visible
is gone or has other bytes (a batch answered twice), a step is missing or spent twice in the journal, or a
ledger is charged twice. Under seeded noise the run has to end in the very bytes of one that nobody touched.

Results are kept by campaign in ``benchmarks/results/soak.json``: a run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pandas as pd

import synthgeo as sg
from benchmarks._common import record, recorded

ROOT = Path(__file__).resolve().parents[1]
NAME = "soak"
KILLS = 50  # of one campaign
#: Files whose lines a process may die at.
LINES = tuple(
    str(ROOT / path)
    for path in ("streams/runs/", "streams/stream.py", "synthgeo/privacy/ledger", "synthgeo/state.py")
)
BOX = sg.BoxDomain(0, 0, 1, 1)
SCHEMA = sg.Schema({"a": sg.Categorical(["x", "y"]), "b": sg.Categorical(["x", "y", "z"])})
ONE = sg.PrivacyBudget(1.0)


@dataclass(frozen=True)
class Subject:
    """A stream to run: how it is made, and its batch of a step.

    ``runs`` of it share one ledger (0: no ledger); ``keep_every`` compacts the run after each step.
    """

    make: Callable[[Any], Any]
    batch: Callable[[int], Any]
    runs: int = 0
    keep_every: int | None = None


def _points(step: int) -> pd.DataFrame:
    rng = np.random.default_rng(step)
    xy = rng.random((20, 2))
    return pd.DataFrame({"x": xy[:, 0], "y": xy[:, 1], "user_id": rng.integers(0, 9, 20)})


def _rows(step: int) -> pd.DataFrame:
    rng = np.random.default_rng(step)
    return pd.DataFrame({"a": rng.choice(["x", "y"], 20), "b": rng.choice(["x", "y", "z"], 20)})


def _trips(step: int) -> pd.DataFrame:
    xy = np.random.default_rng(step).random((24, 2))
    trip = [f"{step}/{i}" for i in np.repeat(np.arange(12), 2)]
    return pd.DataFrame({"trip_id": trip, "x": xy[:, 0], "y": xy[:, 1]})


def _stream(noise: Any, **options: Any) -> Any:
    return sg.PHDStream.from_options(domain=BOX, budget=ONE, max_depth=4, noise=noise, **options)


def _series(noise: Any) -> Any:
    return sg.series.LPA(budget=ONE, horizon=10_000, noise=noise)


SUBJECTS = {
    "a series": Subject(_series, float),
    "points": Subject(_stream, _points),
    "points of users": Subject(
        lambda noise: _stream(noise, unit=sg.PrivacyUnit.user(max_events=500)), _points
    ),
    "points that expire": Subject(lambda noise: _stream(noise, lifetime=3, op="none"), _points),
    "points, compacted": Subject(_stream, _points, keep_every=3),
    "points, two runs on one ledger": Subject(_stream, _points, runs=2),
    "a table": Subject(lambda noise: sg.TabularStream(schema=SCHEMA, budget=ONE, noise=noise), _rows, runs=1),
    "trips": Subject(
        lambda noise: sg.TrajectoryStream(
            domain=BOX,
            budget=ONE,
            settings=sg.TripSettings(max_depth=2, cleaning=False, calibration=0.0),
            columns=sg.ColumnNames(time=None),
            noise=noise,
        ),
        _trips,
    ),
}


class Killer:
    """Counts the lines that a process executes in the files to watch, and ends it at the wanted one."""

    def __init__(self, wanted: int | None, told: Path) -> None:
        self.wanted, self.told, self.count = wanted, told, 0

    def __enter__(self) -> Killer:
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _call(self, frame: FrameType, event: str, _: Any) -> Any:  # noqa: ARG002
        return self._line if frame.f_code.co_filename.startswith(LINES) else None

    def _line(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            self.count += 1
            if self.count == self.wanted:
                place = Path(frame.f_code.co_filename).relative_to(ROOT)
                self.told.write_text(f"{place}:{frame.f_lineno}")
                os.kill(os.getpid(), signal.SIGKILL)
        return self._line


class Campaign:
    """One subject in a folder of its own, killed again and again; ``seed`` None draws real noise."""

    def __init__(self, subject: Subject, folder: Path, seed: int | None, chooser: random.Random) -> None:
        self.subject, self.folder, self.seed, self.chooser = subject, folder, seed, chooser
        self.runs = [folder / f"run {number}" for number in range(max(1, subject.runs))]
        self.told = folder / "told"
        self.seen: dict[str, bytes] = {}
        self.places: Counter[str] = Counter()
        self.kills = 0

    def go(self, kills: int) -> dict[str, Any]:
        """Kill so often, then let the run end and look at everything."""
        start = time.monotonic()
        self._warm()
        self._child(None, None)
        lines, seconds = self._undisturbed()
        for number in range(kills):
            at_line = number % 2 == 0
            wanted = self.chooser.randrange(1, lines + 1) if at_line else None
            delay = None if at_line else self.chooser.uniform(0, seconds)
            died = self._child(wanted, delay)
            self.kills += died
            self.places[self.told.read_text() if died and self.told.exists() else "a moment"] += died
            self._look()
            if not died and not at_line:  # the machine was quicker: draw from a shorter time
                seconds = max(0.002, 0.9 * seconds)
        self._child(None, None)
        self._look()
        self._check()
        spent = time.monotonic() - start
        return {
            "kills": self.kills,
            "lines": len(self.places) - ("a moment" in self.places),
            "steps": len(self.seen),
            "seconds": round(spent, 1),
        }

    def _warm(self) -> None:
        """Import and compile in this process what the others would: they are forked from it."""
        (self.folder / "warm").mkdir()
        for _ in range(2):
            Campaign(self.subject, self.folder / "warm", 0, self.chooser)._work()

    def _undisturbed(self) -> tuple[int, float]:
        start = time.monotonic()
        self._child(10**12, None)
        return int(self.told.read_text()), time.monotonic() - start

    def _child(self, wanted: int | None, delay: float | None) -> bool:
        """A process that goes on with the run; whether it was killed."""
        self.told.unlink(missing_ok=True)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                if wanted is None:
                    self._work()
                else:
                    with Killer(wanted, self.told) as killer:
                        self._work()
                    self.told.write_text(str(killer.count))
                code = 0
            except BaseException:  # noqa: BLE001 - the parent has to know
                (self.folder / "problem").write_text(traceback.format_exc())
            finally:
                os._exit(code)
        if delay is not None:
            time.sleep(delay)
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            return True
        if os.WEXITSTATUS(status):
            raise SystemExit((self.folder / "problem").read_text())
        return False

    def _open(self, folder: Path, stack: ExitStack) -> sg.StreamRun:
        noise = sg.SystemNoise() if self.seed is None else sg.SeededNoise(self.seed)
        ledger = None
        if self.subject.runs:
            ledger = stack.enter_context(
                sg.Ledger.open(folder.parent / "ledger.sqlite", dataset="d", cap=sg.PrivacyBudget(9.0))
            )
        return stack.enter_context(sg.StreamRun.open(folder, self.subject.make(noise), ledger=ledger))

    def _work(self) -> None:
        """What a process does: give each run its last batch again, then the next one."""
        for folder in self.runs:
            with ExitStack() as stack:
                run = self._open(folder, stack)
                for step in range(max(1, run.steps), run.steps + 2):
                    run.step(f"batch {step}", self.subject.batch(step))
                if self.subject.keep_every is not None:
                    run.compact(keep_every=self.subject.keep_every)

    def _look(self) -> None:
        """Read what anybody may have seen by now: nothing of it may change, and nothing may be missing."""
        there = {
            f"{run.name}/{folder.name}": b"\0".join(
                file.read_bytes() for file in sorted(folder.iterdir()) if file.suffix in (".parquet", ".json")
            )
            for run in self.runs
            for folder in (run / "releases").glob("*")
        }
        for name, content in there.items():
            if self.seen.setdefault(name, content) != content:
                raise SystemExit(f"{name} changed after it was visible ({self.folder})")
        if self.subject.keep_every is None and self.seen.keys() != there.keys():
            raise SystemExit(f"a release is lost: {min(self.seen.keys() - there.keys())} ({self.folder})")

    def _check(self) -> None:
        """Journal, states and ledger of the end; under a seed, those of a run that nobody touched."""
        quiet = self.folder / "quiet"
        quiet.mkdir()
        for folder in self.runs:
            with sg.StreamRun.view(folder) as view:
                steps, batches, spent = view.verify(), view.batches, view.spent
                total = float(view.report().steps["epsilon"].sum())
            if batches != [f"batch {step}" for step in range(1, steps + 1)]:
                raise SystemExit(f"{folder} has other batches than it was given")
            if spent is None or abs(total - spent.epsilon) > 1e-9 or not ONE.covers(spent):
                raise SystemExit(f"{folder} says that {spent} was spent, and {total} by its steps")
            if any((folder / "pending").iterdir()) or len(list((folder / "state").iterdir())) != 1:
                raise SystemExit(f"{folder} holds files of a killed process")
            if self.seed is not None:
                with ExitStack() as stack:
                    run = self._open(quiet / folder.name, stack)
                    for step in range(1, steps + 1):
                        run.step(f"batch {step}", self.subject.batch(step))
                states = [next((one / "state").iterdir()) for one in (folder, quiet / folder.name)]
                if states[0].name != states[1].name or states[0].read_bytes() != states[1].read_bytes():
                    raise SystemExit(f"{folder} ended in another state than a run that nobody touched")
        if self.subject.runs:
            with sg.Ledger.open(self.folder / "ledger.sqlite", read_only=True) as ledger:
                if len(ledger.entries) != self.subject.runs:
                    raise SystemExit(f"{len(ledger.entries)} charges for {self.subject.runs} runs")


def campaigns(kills: int) -> list[tuple[str, str, int]]:
    """Subject, noise and number of each campaign, until there are so many kills."""
    kinds = [(name, noise) for name in SUBJECTS for noise in ("seeded", "system")]
    quick = [kind for kind in kinds if kind[0] != "trips"]  # each kind once, then those that are quick
    chosen = [*kinds, *itertools.chain.from_iterable(itertools.repeat(quick, kills // KILLS))]
    return [(*chosen[number], number) for number in range(-(-kills // KILLS))]


def main() -> None:
    """Run the campaigns that are not recorded yet, and tell what they came to."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--kills", type=int, default=10_000, help="how many in all")
    options.add_argument("--seconds", type=float, default=math.inf, help="begin none after this time")
    chosen = options.parse_args()
    end = time.monotonic() + chosen.seconds
    before = recorded(NAME)
    known: dict[str, Any] = before["results"] if before else {}
    for name, noise, number in campaigns(2 * chosen.kills):  # a run often ends before its last kill
        key = f"{name}, {noise} noise, {number}"
        if key in known:
            continue
        if time.monotonic() > end or sum(one["kills"] for one in known.values()) >= chosen.kills:
            break
        folder = Path(tempfile.mkdtemp(prefix="soak-"))  # stays where something is wrong
        seed = number if noise == "seeded" else None
        known[key] = Campaign(SUBJECTS[name], folder, seed, random.Random(number)).go(KILLS)
        shutil.rmtree(folder)
        record(NAME, {"kills of a campaign": KILLS}, known)
        print(f"{known[key]['kills']:5} kills, {known[key]['seconds']:6.1f} s  {key}", flush=True)
    print(f"{sum(one['kills'] for one in known.values()):,} kills: nothing lost, nothing spent twice")


def table() -> list[str]:
    """The block of docs/audit.md."""
    found = recorded(NAME)
    if found is None:
        return []
    lines = ["| run | campaigns | kills | different lines | releases | lost or changed | spent twice |",
             "|---|---|---|---|---|---|---|"]  # fmt: skip
    sums: dict[str, Counter[str]] = {}
    for key, one in found["results"].items():
        name = key.rpartition(", ")[0]
        own = sums.setdefault(name, Counter())
        own.update({"campaigns": 1, "kills": one["kills"], "steps": one["steps"]})
        own["lines"] = max(own["lines"], one["lines"])
    for name, own in sums.items():
        lines.append(
            f"| {name} | {own['campaigns']} | {own['kills']:,} | {own['lines']} | {own['steps']:,} | 0 | 0 |"
        )
    whole = sum(sums.values(), Counter())
    lines.append(f"| together | {whole['campaigns']} | {whole['kills']:,} | | {whole['steps']:,} | 0 | 0 |")
    return lines


if __name__ == "__main__":
    main()

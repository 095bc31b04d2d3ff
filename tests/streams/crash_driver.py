"""Drives a durable run in child processes and kills them (SIGKILL). Called by test_durable_crash.py.

    python crash_driver.py DIRECTORY STEPS KILLS_PER_STEP SEED NOISE

Children are forked from this process, so that a kill costs milliseconds. A round kills at points before the
decision, once at a random moment, and once at a point after the decision. The product code knows nothing of
this: the child patches itself. After each kill this process looks at the releases that are visible and checks
that none ever changes.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from tally import Tally

import streams.runs.directory as run_directory
import streams.runs.journal as journal
import streams.runs.run as durable
from streams.runs.run import StreamRun
from synthgeo.privacy.ledger_file import LedgerFile
from synthgeo.privacy.noise import SeededNoise, SystemNoise

Directory = run_directory.RunDirectory

# Deadly points before the decision, from it on, and during creation: owner, function, when, which call.
EARLY = [
    (StreamRun, "_recover", "before", 1),
    (Directory, "clear_pending", "before", 1),
    (Directory, "clear_pending", "after", 1),
    (StreamRun, "_recover", "after", 1),
    (StreamRun, "_intend", "before", 1),
    (StreamRun, "_intend", "after", 1),
    (StreamRun, "_compute", "before", 1),
    (StreamRun, "_compute", "after", 1),
    (StreamRun, "_write", "before", 1),
    (durable, "make_durable", "before", 1),
    (run_directory, "sync_folder", "before", 3),
    (durable, "make_durable", "after", 1),
    (durable, "make_durable", "before", 2),
    (StreamRun, "_write", "after", 1),
    (StreamRun, "_decide", "before", 1),
    (LedgerFile, "append", "before", 1),
    (LedgerFile, "append", "after", 1),
]
LATE = [
    (StreamRun, "_decide", "after", 1),
    (StreamRun, "_publish", "before", 1),
    (Directory, "publish", "after", 1),
    (Directory, "publish", "before", 2),
    (Directory, "publish", "after", 2),
    (StreamRun, "_publish", "after", 1),
    (StreamRun, "_finish", "before", 1),
    (LedgerFile, "fold", "before", 1),
    (LedgerFile, "fold", "after", 1),
    (Directory, "clear_states_before", "before", 2),
    (StreamRun, "_finish", "after", 1),
]
CREATION = [
    (durable, "_create", "before", 1),
    (durable, "make_durable", "before", 1),
    (durable, "make_durable", "after", 2),
    (journal.LedgerFile, "create", "before", 1),
    (journal.LedgerFile, "create", "after", 1),
]


def batch_of(step: int) -> np.ndarray:
    return np.arange(step, dtype=np.int64) % 5


def arm(owner: object, name: str, when: str, nth: int) -> None:
    """Make the nth call of a function deadly."""
    real = getattr(owner, name)
    calls = 0

    def deadly(*args: object, **options: object) -> object:
        nonlocal calls
        calls += 1
        if when == "before" and calls == nth:
            os.kill(os.getpid(), signal.SIGKILL)
        result = real(*args, **options)
        if when == "after" and calls == nth:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, staticmethod(deadly) if name == "create" else deadly)


def work(directory: str, steps: int, seed: int | None) -> None:
    """What a child does: open the run and give it the last batches that it knows again, and then new ones."""
    noise = SystemNoise() if seed is None else SeededNoise(seed)
    with StreamRun.open(directory, Tally(noise=noise)) as run:
        for step in range(max(1, run.steps - 1), steps + 1):
            run.step(f"batch {step}", batch_of(step))


def attempt(directory: str, steps: int, seed: int | None, point: tuple | None, delay: float | None) -> bool:
    """One child; True if it was killed, False if it came to its end."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if point is not None:
                arm(*point)
            work(directory, steps, seed)
            code = 0
        finally:
            os._exit(code)
    if delay is not None:
        time.sleep(delay)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return True
    if os.WEXITSTATUS(status) != 0:
        raise SystemExit(f"a child failed at {point}, {delay}")
    return False


def look(directory: str, seen: dict[str, str]) -> None:
    """What anybody who reads the releases could know by now."""
    for value in sorted(Path(directory).glob("releases/*/value.json")):
        text = value.read_text()
        if seen.setdefault(value.parent.name, text) != text:
            raise SystemExit(f"{value.parent.name} changed after it was visible")


def name_of(point: tuple | None) -> str:
    return "at random" if point is None else f"{point[2]} {point[1]} {point[3]}"


def main() -> None:
    directory, steps, kills_per_step = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    chooser = random.Random(int(sys.argv[4]))
    seed = int(sys.argv[4]) if sys.argv[5] == "seeded" else None
    seen: dict[str, str] = {}
    kills: Counter[str] = Counter()
    for point in CREATION:
        kills[name_of(point)] += attempt(directory, 0, seed, point, None)
    early, late = itertools.cycle(EARLY), itertools.cycle(LATE)
    start = time.monotonic()
    attempt(directory, 1, seed, None, None)
    undisturbed = time.monotonic() - start
    look(directory, seen)
    while len(seen) < steps:
        # A round may bring the run on by two steps, so it starts with what is missing for both.
        missing = kills_per_step * (len(seen) + 2) - kills.total()
        for point in [*itertools.islice(early, max(1, missing - 1)), None, next(late)]:
            delay = chooser.uniform(0, undisturbed) if point is None else None
            kills[name_of(point)] += attempt(directory, min(steps, len(seen) + 1), seed, point, delay)
            look(directory, seen)
    attempt(directory, steps, seed, None, None)
    look(directory, seen)
    print(json.dumps({"kills": kills.total(), "where": kills, "seen": len(seen)}))


if __name__ == "__main__":
    main()

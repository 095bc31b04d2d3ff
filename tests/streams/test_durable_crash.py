"""Durable runs against SIGKILL, full disks, read-only folders, two processes."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from streams.runs.run import StreamRun
from synthgeo.privacy.noise import SeededNoise, SystemNoise
from tests.streams.crash_driver import CREATION, EARLY, LATE, name_of, work
from tests.streams.tally import Tally

HERE = Path(__file__).parent
STEPS = 50


def drive(directory, *, steps, kills, seed, noise):
    command = [
        sys.executable,
        str(HERE / "crash_driver.py"),
        str(directory),
        str(steps),
        str(kills),
        str(seed),
        noise,
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"}, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_two_hundred_kills_leave_the_run_of_no_kill_at_all(folder):
    """At least 200 kills over 50 steps: 50 releases, each spent once, the same state to the last bit."""
    told = drive(folder / "killed", steps=STEPS, kills=5, seed=11, noise="seeded")
    assert told["kills"] >= 200
    assert told["seen"] == STEPS
    assert all(told["where"][name_of(point)] for point in [*EARLY, *LATE, *CREATION, None])
    work(str(folder / "quiet"), STEPS, 11)
    with (
        StreamRun.open(folder / "killed", Tally(noise=SeededNoise(11))) as killed,
        StreamRun.open(folder / "quiet", Tally(noise=SeededNoise(11))) as quiet,
    ):
        assert killed.verify() == quiet.verify() == STEPS
        ids = [f"batch {step}" for step in range(1, STEPS + 1)]
        assert killed.batches == ids
        assert [killed.release(name) for name in ids] == [quiet.release(name) for name in ids]
        report = killed.report()
        assert report.steps["epsilon"].sum() == pytest.approx(killed.spent.epsilon, rel=1e-12)
        assert killed.spent == quiet.spent == killed.budget
        assert report.interrupted > 40
    states = [sorted((folder / name / "state").iterdir()) for name in ("killed", "quiet")]
    assert [[path.name for path in found] for found in states] == [["000050.state"]] * 2
    assert states[0][0].read_bytes() == states[1][0].read_bytes()
    assert not list((folder / "killed" / "pending").iterdir())
    assert len(list((folder / "killed" / "releases").iterdir())) == STEPS


@pytest.mark.slow
def test_with_real_noise_nothing_visible_ever_changes(folder):
    """A redo draws fresh noise; the driver watches the releases after each kill and fails if one changes."""
    told = drive(folder / "run", steps=12, kills=5, seed=5, noise="system")
    assert told["kills"] >= 48
    with StreamRun.open(folder / "run", Tally(noise=SystemNoise())) as run:
        assert run.verify() == 12
        assert run.steps == told["seen"] == 12


CHILD = """
import sys
sys.path[:0] = [{root!r}, {here!r}]
import numpy as np
from streams.runs.run import StreamRun
from synthgeo.errors import SynthGeoError
from synthgeo.privacy.noise import SeededNoise
from tally import FrameTally
{setup}
try:
    with StreamRun.open({directory!r}, FrameTally(noise=SeededNoise(1), horizon=1000)) as run:
        for step in range(1, {steps} + 1):
            run.step(f"b{{step}}", np.full(3, 1000))
except SynthGeoError as problem:
    print(type(problem).__name__, problem)
"""


def child(directory, *, steps, setup="", **options):
    script = CHILD.format(
        root=str(HERE.parents[1]), here=str(HERE), directory=str(directory), steps=steps, setup=setup
    )
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120, **options
    ).stdout.strip()


def committed(directory):
    with open_frames(directory) as run:
        assert run.verify() == run.steps
        return run.steps, [run.release(name).to_pandas() for name in run.batches]


def open_frames(directory):
    from tests.streams.tally import FrameTally

    return StreamRun.open(directory, FrameTally(noise=SeededNoise(1), horizon=1000))


def assert_goes_on(directory, folder, steps):
    """The run that met trouble goes on to the end of one that did not."""
    assert child(directory, steps=steps) == ""
    assert child(folder / "quiet", steps=steps) == ""
    count, frames = committed(directory)
    quiet_count, quiet_frames = committed(folder / "quiet")
    assert count == quiet_count == steps
    assert all(mine.equals(theirs) for mine, theirs in zip(frames, quiet_frames, strict=True))


@pytest.mark.slow
def test_a_file_too_large_loses_nothing(folder):
    """RLIMIT_FSIZE: writes fail half-way, as on a full disk. The error is named, the run goes on later."""
    directory = folder / "run"
    assert child(directory, steps=3) == ""
    before = committed(directory)
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))"
    told = child(directory, steps=40, setup=limit)
    assert told.startswith("LedgerError"), told
    after = committed(directory)
    assert 3 <= after[0] < 40
    assert all(mine.equals(theirs) for mine, theirs in zip(before[1], after[1][:3], strict=True))
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 100_000
    assert_goes_on(directory, folder, after[0] + 2)


@pytest.mark.slow
def test_a_full_disk_loses_nothing(folder):
    """A tmpfs of 1 MiB. Needs the right to mount; the test above does not."""
    disk = folder / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("mounting a small tmpfs is not permitted here")
    try:
        directory = disk / "run"
        told = child(directory, steps=200)
        assert told.startswith("LedgerError"), told
        assert "full" in told or "No space" in told
        stuck = child(directory, steps=200)
        assert stuck.startswith("LedgerError"), stuck
        subprocess.run(["mount", "-o", "remount,size=16m", str(disk)], check=True)
        steps, _ = committed(directory)
        assert steps > 2
        assert_goes_on(directory, folder, steps + 3)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.slow
def test_a_read_only_folder_is_refused(folder):
    directory = folder / "run"
    assert child(directory, steps=2) == ""
    nobody = 65534
    as_nobody = f"import os; os.getuid() or os.setresuid({nobody}, {nobody}, {nobody})"
    folders = [directory, *(path for path in directory.rglob("*") if path.is_dir())]
    parents = [path for path in (folder, *folder.parents) if path.stat().st_uid == os.getuid()]
    modes = {path: path.stat().st_mode for path in [*folders, *directory.rglob("*"), *parents]}
    try:
        for path in parents:
            path.chmod(path.stat().st_mode | 0o055)
        for path in directory.rglob("*"):
            path.chmod(0o555 if path.is_dir() else 0o444)
        directory.chmod(0o555)
        told = child(directory, steps=3, setup=as_nobody)
        assert told.startswith("LedgerError"), told
        told = child(directory / "new", steps=3, setup=as_nobody)
        assert told.startswith("LedgerError"), told
    finally:
        for path, mode in modes.items():
            if path.exists():
                path.chmod(mode)
    assert committed(directory)[0] == 2


@pytest.mark.slow
def test_two_processes_cannot_open_one_run(folder):
    directory = folder / "run"
    with open_frames(directory) as run:
        told = child(directory, steps=1)
        assert told.startswith("LedgerError")
        assert "open elsewhere" in told
        assert run.steps == 0
    assert child(directory, steps=1) == ""

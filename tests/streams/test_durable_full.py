"""A full disk at any write of a step: a typed error, nothing lost, nothing spent twice.

A limit on the size of files fails a write in the middle, as a full disk does, at whatever file reaches it
first: journal, release or state.
"""

from __future__ import annotations

import resource
import subprocess
from contextlib import contextmanager, suppress

import numpy as np
import pandas as pd
import pytest

import synthgeo as sg
from streams.runs.run import StreamRun
from synthgeo.errors import SynthGeoError

LIMITS = (0, 64, 1_000, 4_096, 6_000, 10_000, 16_384, 24_000, 33_000, 50_000, 80_000, 120_000, 10**9)


@contextmanager
def no_file_beyond(size):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def stream():
    return sg.PHDStream(
        domain=sg.BoxDomain(0, 0, 1, 1),
        budget=sg.PrivacyBudget(1.0),
        settings=sg.PointSettings(max_depth=6),
        noise=sg.SeededNoise(1),
    )


def batch(seed):
    rng = np.random.default_rng(seed)
    return pd.DataFrame({"x": rng.random(400), "y": rng.random(400)})


def finished(folder):
    """The last state of a run, and what it says of itself."""
    with StreamRun.open(folder) as run:
        run.verify()
        (state,) = (folder / "state").iterdir()
        return run.batches, state.read_bytes(), run.report().steps["epsilon_total"].tolist()


def test_a_full_disk_at_any_write_of_a_step_loses_nothing(folder):
    with StreamRun.open(folder / "plain", stream()) as run:
        for name in ("a", "b"):
            run.step(name, batch(name == "b"))
    expected = finished(folder / "plain")
    failed = []
    for number, limit in enumerate(LIMITS):
        place = folder / f"run-{number}"
        with StreamRun.open(place, stream()) as run:
            run.step("a", batch(0))
        try:
            with no_file_beyond(limit), StreamRun.open(place) as run:
                run.step("b", batch(1))
        except SynthGeoError as problem:
            failed.append(str(problem))
        with StreamRun.open(place) as run:
            run.step("b", batch(1))  # redone, or the stored release
        assert finished(place) == expected
    assert len(failed) >= 4  # several different writes failed
    assert all("\n" not in text for text in failed)


def test_a_full_disk_when_a_run_begins_leaves_nothing_in_the_way(folder):
    for number, limit in enumerate((0, 1_000, 6_000, 20_000)):
        place = folder / f"run-{number}"
        with pytest.raises(SynthGeoError), no_file_beyond(limit), StreamRun.open(place, stream()) as run:
            run.step("a", batch(0))
        with StreamRun.open(place, stream()) as run:
            run.step("a", batch(0))
            assert run.verify() == 1


def test_a_full_disk_when_a_ledger_is_charged_charges_nothing(folder):
    budget, unit = sg.PrivacyBudget(0.1), sg.PrivacyUnit.event()
    for limit in (0, 1_000, 5_000, 20_000):
        path = folder / f"ledger-{limit}.sqlite"
        with sg.Ledger.open(path, dataset="d", cap=sg.PrivacyBudget(1.0)) as ledger:
            ledger.charge("one", budget, unit)
            with no_file_beyond(limit), suppress(SynthGeoError):
                ledger.charge("two", budget, unit, key="k")
        with sg.Ledger.open(path, dataset="d", cap=sg.PrivacyBudget(1.0)) as ledger:
            ledger.charge("two", budget, unit, key="k")
            assert [entry.product for entry in ledger.entries] == ["one", "two"]


@pytest.fixture
def small_disk(folder):
    """Makes a file system of so many KiB (a tmpfs, which takes the right to mount)."""
    disk = folder / "disk"
    disk.mkdir()
    mounted = []

    def resized(size):
        options = f"remount,size={size}k" if mounted else f"size={size}k"
        try:
            subprocess.run(
                ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(disk)], check=True, capture_output=True
            )
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("mounting a small tmpfs is not permitted here")
        mounted.append(size)
        return disk

    yield resized
    if mounted:
        subprocess.run(["umount", str(disk)], check=True)


def begin_run(disk):
    with StreamRun.open(disk / "run", stream()) as run:
        run.step("a", batch(0))
        return run.verify()


def begin_ledger(disk):
    with sg.Ledger.open(disk / "l.sqlite", dataset="d", cap=sg.PrivacyBudget(1.0)) as ledger:
        ledger.charge("one", sg.PrivacyBudget(0.1), sg.PrivacyUnit.event(), key="k")
        return ledger.verify()


@pytest.mark.parametrize(
    ("begin", "sizes"), [(begin_run, range(132, 212, 8)), (begin_ledger, range(60, 124, 8))]
)
def test_a_disk_that_fills_up_during_creation_leaves_nothing_malformed(small_disk, begin, sizes):
    """SQLite says nothing when the disk fills up while it folds its log into a new file."""
    failed = []
    for size in sizes:
        disk = small_disk(size)
        try:
            begin(disk)
        except SynthGeoError as problem:
            failed.append(str(problem))
        assert begin(small_disk(4096)) == 1
        subprocess.run(f"rm -rf {disk}/* {disk}/.l*", shell=True, check=True)
    assert len(failed) >= 2
    assert not any("malformed" in text for text in failed)

"""One writer at a time, whatever happens to the lock; readers who write nothing."""

from __future__ import annotations

import errno
import os
import shutil
import stat

import numpy as np
import pytest

import synthgeo as sg
from streams.runs import directory
from streams.runs.directory import RunDirectory
from streams.runs.run import StreamRun
from synthgeo.errors import ConfigError, LedgerError, StateError
from tests.streams.tally import Tally


def tally():
    return Tally(noise=sg.SystemNoise())


def test_a_lock_that_was_removed_admits_nobody(folder):
    """Two writers would answer one batch twice, with noise that averages out."""
    with StreamRun.open(folder / "run", tally()) as run:
        run.step("a", np.array([1]))
        (folder / "run" / "lock").unlink()
        with pytest.raises(LedgerError, match="open elsewhere"):
            StreamRun.open(folder / "run", tally())
        (folder / "run").rename(folder / "moved")
        with pytest.raises(LedgerError, match="open elsewhere"):
            StreamRun.open(folder / "moved", tally())


def test_a_lock_that_cannot_be_had_is_refused(folder, monkeypatch):
    def unsupported(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", unsupported)
    with pytest.raises(LedgerError, match="No locks available; keep the run on a local disk"):
        StreamRun.open(folder / "run", tally())


@pytest.mark.parametrize(
    ("mount", "options", "trusted"),
    [
        ("", "rw,vers=4.2,local_lock=none", True),
        ("", "rw,vers=3,nolock", False),
        ("", "rw,vers=3,local_lock=flock", False),
        ("", "rw,nobrl", False),
        ("/elsewhere", "rw,nolock", True),
        ("/run", "rw,local_lock=all", False),
    ],
)
def test_a_lock_that_other_machines_do_not_see_is_refused(folder, monkeypatch, mount, options, trusted):
    mounts = folder / "mounts"
    here = str(folder.resolve()).replace(" ", "\\040")
    mounts.write_text(f"/dev/vda / ext4 rw 0 0\nserver:/x {here}{mount} nfs {options} 0 0\n")
    monkeypatch.setattr(directory, "_MOUNTS", mounts)
    if trusted:
        StreamRun.open(folder / "run", tally()).close()
    else:
        with pytest.raises(LedgerError, match="other machines do not see its locks"):
            StreamRun.open(folder / "run", tally())


def test_a_process_of_version_0_1_is_kept_out(folder):
    import fcntl

    with StreamRun.open(folder / "run", tally()):
        handle = os.open(folder / "run" / "lock", os.O_RDWR)
        with pytest.raises(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(handle)


def test_what_another_writer_did_is_noticed_before_an_answer(folder, monkeypatch):
    """As if the lock had failed: on a file system that does not keep it, or between two machines."""
    first = StreamRun.open(folder / "run", tally())
    first.step("a", np.array([1]))
    with monkeypatch.context() as patch:
        patch.setattr(RunDirectory, "lock", lambda _self: None)
        with StreamRun.open(folder / "run", tally()) as second:
            other = second.step("b", np.array([2]))
    for batch in ("b", "c", "a"):
        with pytest.raises(LedgerError, match="another process has written"):
            first.step(batch, np.array([2]))
    first.close()
    with StreamRun.open(folder / "run", tally()) as run:
        assert run.batches == ["a", "b"]
        assert run.release("b") == other
        assert run.verify() == 2


def test_a_step_decided_by_another_writer_is_not_decided_again(folder, monkeypatch):
    first = StreamRun.open(folder / "run", tally())
    compute = StreamRun._compute

    def meanwhile(run, batch, counted):
        result = compute(run, batch, counted)
        if run is first:
            with monkeypatch.context() as patch:
                patch.setattr(RunDirectory, "lock", lambda _self: None)
                with StreamRun.open(folder / "run", tally()) as second:
                    second.step("a", np.array([1]))
        return result

    monkeypatch.setattr(StreamRun, "_compute", meanwhile)
    with pytest.raises((LedgerError, StateError)):
        first.step("a", np.array([1]))
    first.close()
    monkeypatch.undo()
    with StreamRun.open(folder / "run", tally()) as run:
        assert run.batches == ["a"]
        assert run.verify() == 1


def test_a_journal_that_was_replaced_is_noticed(folder):
    path = folder / "run" / "ledger.sqlite"
    with StreamRun.open(folder / "run", tally()) as run:
        run.step("a", np.array([1]))
        copy = path.read_bytes()
        path.unlink()
        path.write_bytes(copy)
        with pytest.raises(LedgerError, match="replaced"):
            run.step("b", np.array([1]))
    with StreamRun.open(folder / "run", tally()) as run:
        assert run.verify() == 1


@pytest.fixture
def read_only(folder):
    """A copy of a run of two steps that its owner has made read-only."""
    domain = sg.BoxDomain(0, 0, 1, 1)
    stream = sg.PHDStream(
        domain=domain,
        budget=sg.PrivacyBudget(1.0),
        noise=sg.SeededNoise(1),
        settings=sg.PointSettings(max_depth=6),
    )
    with StreamRun.open(folder / "run", stream) as run:
        for i in range(2):
            run.step(f"b{i}", np.random.default_rng(i).random((50, 2)))
    copy = folder / "copy"
    shutil.copytree(folder / "run", copy)
    for path in [*copy.rglob("*"), copy]:
        path.chmod(0o500 if path.is_dir() else 0o400)
    yield copy
    for path in [copy, *(path for path in copy.rglob("*") if path.is_dir())]:
        path.chmod(0o700)


def contents(directory):
    return {
        path: (stat.S_IMODE(path.stat().st_mode), path.stat().st_mtime_ns)
        for path in [directory, *directory.rglob("*")]
    }


def test_a_read_only_copy_can_be_read(read_only):
    before = contents(read_only)
    with StreamRun.view(read_only) as view:
        assert view.verify() == view.steps == 2
        assert view.batches == ["b0", "b1"]
        assert view.report().spent == view.budget
        assert view.release("b1").releasable is False
        assert view.stream().step == 2
    assert contents(read_only) == before


def test_what_its_owner_made_read_only_stays_so(read_only):
    before = contents(read_only)
    with pytest.raises(LedgerError, match="read-only"):
        StreamRun.open(read_only)
    assert contents(read_only) == before


def test_a_copy_with_a_log_can_be_read(folder, read_only):
    """A copy that was made while the run was open, on a disk that cannot be written."""
    with StreamRun.open(folder / "run") as run:
        run.step("b2", np.random.default_rng(2).random((50, 2)))
        run._journal.keep_note("in the log", 1)
        log = (folder / "run" / "ledger.sqlite-wal").read_bytes()
        assert log
        read_only.chmod(0o700)
        shutil.copytree(folder / "run", folder / "live")
    for path in [*(folder / "live").rglob("*"), folder / "live"]:
        path.chmod(0o500 if path.is_dir() else 0o400)
    try:
        with StreamRun.view(folder / "live") as view:
            assert view.verify() == 3
    finally:
        for path in [folder / "live", *(p for p in (folder / "live").rglob("*") if p.is_dir())]:
            path.chmod(0o700)


def test_a_run_can_be_looked_at_while_it_goes_on(folder):
    with StreamRun.open(folder / "run", tally()) as run, StreamRun.view(folder / "run") as view:
        assert (view.steps, view.spent) == (0, None)
        value = run.step("a", np.array([1]))
        assert (view.steps, view.release("a")) == (1, value)
        assert view.step_of("a") == 1
        assert view.step_of("b") is None
        assert view.report().steps["batch"].tolist() == ["a"]


def test_looking_at_what_is_no_run(folder):
    with pytest.raises(ConfigError, match="no run"):
        StreamRun.view(folder)
    folder.chmod(0o755)
    sg.Ledger.open(folder / "ledger.sqlite", dataset="taxi", cap=sg.PrivacyBudget(1.0)).close()
    before = contents(folder)
    for attempt in (lambda: StreamRun.view(folder), lambda: StreamRun.open(folder, tally())):
        with pytest.raises(StateError, match="another kind"):
            attempt()
    assert contents(folder) == before, "the folder of a dataset's ledger is left as it was"

"""Durable runs: idempotent steps, refusals, damage, reports."""

from __future__ import annotations

import json
import os
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import streams.runs.journal
import synthgeo as sg
from streams.runs.run import StreamRun
from streams.runs.stored import StoredRelease
from synthgeo.errors import BudgetExhausted, ConfigError, InputError, LedgerError
from synthgeo.privacy.noise import SeededNoise, SystemNoise
from tests.streams.tally import FrameTally, Tally


def tally(**options):
    return Tally(**{"noise": SeededNoise(3), **options})


def three_steps(directory, stream=None):
    """A closed run of three steps; its released values."""
    with StreamRun.open(directory, stream or tally()) as run:
        return [run.step(f"b{i}", np.array([i, 1])) for i in range(3)]


def files(directory):
    """Everything that matters in a run's directory, by content."""
    kept = [
        p
        for p in Path(directory).rglob("*")
        if p.is_file() and not p.name.startswith(("ledger.sqlite-", "lock"))
    ]
    return {str(p.relative_to(directory)): p.read_bytes() for p in kept}


def test_a_run_releases_what_the_stream_would(folder):
    alone = tally()
    expected = [alone.update(np.array([i, 1])) for i in range(3)]
    given = tally()
    assert three_steps(folder / "run", given) == expected
    assert given.step == 0, "the run works on its own copy"


def test_known_batches_return_what_is_stored(folder):
    values = three_steps(folder / "run")
    with StreamRun.open(folder / "run", tally()) as run:
        before = files(folder / "run")
        assert [run.step(f"b{i}", np.array([i, 1])) for i in range(3)] == values
        assert [run.release(f"b{i}") for i in range(3)] == values
        assert files(folder / "run") == before
        assert run.steps == 3
        assert run.batches == ["b0", "b1", "b2"]
        with pytest.raises(LedgerError, match="no step"):
            run.release("b9")


def test_other_content_under_a_known_name_is_refused(folder):
    three_steps(folder / "run")
    before = files(folder / "run")
    with StreamRun.open(folder / "run", tally()) as run:
        with pytest.raises(LedgerError, match="other content"):
            run.step("b1", np.array([1, 2]))
        assert run.step("b1", np.array([1, 1])) == run.release("b1")
    assert files(folder / "run") == before


def test_going_on_is_the_same_as_never_stopping(folder):
    with StreamRun.open(folder / "once", tally()) as run:
        expected = [run.step(f"b{i}", np.array([i])) for i in range(8)]
    found = []
    for i in range(8):
        with StreamRun.open(folder / "often", tally()) as run:
            found.append(run.step(f"b{i}", np.array([i])))
    assert found == expected
    state = Path("state") / "000008.state"
    assert (folder / "once" / state).read_bytes() == (folder / "often" / state).read_bytes()


def test_a_refused_batch_changes_nothing(folder):
    three_steps(folder / "run")
    with StreamRun.open(folder / "run", tally()) as run:
        before = files(folder / "run")
        with pytest.raises(InputError):
            run.step("bad", np.array([0.5]))
        after = files(folder / "run")
        before.pop("ledger.sqlite"), after.pop("ledger.sqlite")  # the log of attempts is there
        assert after == before
        assert run.steps == 3
        assert run.report().interrupted == 0
        value = run.step("bad", np.array([5]))
    quiet = tally()
    assert [quiet.update(batch) for batch in ([0, 1], [1, 1], [2, 1], [5])][-1] == value


def test_a_failure_half_way_leaves_the_stream_where_it_was(folder, monkeypatch):
    """The stream has moved on in memory when writing fails; the run must not go on from there."""
    three_steps(folder / "run")
    with StreamRun.open(folder / "run", tally()) as run:

        def fail(*_args):
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr("streams.runs.run.make_durable", fail)
            with pytest.raises(LedgerError, match="No space left"):
                run.step("b3", np.array([3, 1]))
        assert run.steps == 3
        assert run.report().interrupted == 1
        assert not list((folder / "run" / "pending").iterdir())
        value = run.step("b3", np.array([3, 1]))
    quiet = tally()
    assert [quiet.update(np.array([i, 1])) for i in range(4)][-1] == value


def test_an_interrupt_during_recovery_closes_the_run(folder, monkeypatch):
    three_steps(folder / "run")
    with StreamRun.open(folder / "run", tally()) as run:

        def interrupt(*_args):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr("streams.runs.run.make_durable", interrupt)
            patch.setattr(StreamRun, "_recover", interrupt)
            with pytest.raises(KeyboardInterrupt):
                run.step("b3", np.array([3, 1]))
        with pytest.raises(LedgerError, match="interrupted"):
            run.step("b4", np.array([4, 1]))
    with StreamRun.open(folder / "run", tally()) as run:
        assert run.steps == 3
        assert run.report().interrupted == 1


def test_frames_are_stored_and_read_back(folder):
    with StreamRun.open(folder / "run", FrameTally(noise=SeededNoise(3))) as run:
        first = run.step("2015-01-03 00:00/a", pd.DataFrame({"n": [40, 60]}).to_numpy())
        again = run.step("2015-01-03 00:00/a", np.array([[40], [60]]))
        assert isinstance(again, StoredRelease)
        assert not isinstance(first, StoredRelease)
        pd.testing.assert_frame_equal(again.data, first.data)
        assert again.provenance == first.provenance
        assert (again.step, again.spent, again.releasable) == (1, first.spent, False)
        assert again.parts == ("data",)
        with pytest.raises(ConfigError, match="not 'cells'"):
            _ = again.cells
        pd.testing.assert_frame_equal(again.expected_error(), first.expected_error())
        (again.folder / "expected_error.json").unlink()
        with pytest.raises(ConfigError, match="without its expected error"):
            again.expected_error()
    assert [p.name for p in (folder / "run" / "releases").iterdir()] == ["000001-2015-01-03-00-00-a"]


def test_parts_that_a_release_lacks_are_refused(folder):
    with StreamRun.open(folder / "run", FrameTally(noise=SeededNoise(3)), parts=("data", "cells")) as run:
        with pytest.raises(ConfigError, match="cells"):
            run.step("a", np.array([1]))
        assert run.steps == 0
    with pytest.raises(LedgerError, match="stores"):
        StreamRun.open(folder / "run", FrameTally(noise=SeededNoise(3)), parts=("data",))


def test_files_are_for_the_owner_only(folder):
    (folder / "run").mkdir(mode=0o755)
    old = os.umask(0)
    try:
        with StreamRun.open(folder / "run", FrameTally(noise=SeededNoise(3))) as run:
            run.step("a", np.array([5]))
            found = list((folder / "run").rglob("*"))
            assert {p.name for p in found} >= {"ledger.sqlite", "ledger.sqlite-wal", "lock", "data.parquet"}
            for path in [folder / "run", *found]:
                assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    finally:
        os.umask(old)


def test_other_settings_are_refused(folder):
    three_steps(folder / "run")
    for other in (
        tally(epsilon=2.0),
        tally(noise=SeededNoise(4)),
        tally(noise=SystemNoise()),
        tally(horizon=9),
    ):
        with pytest.raises(LedgerError, match="other settings"):
            StreamRun.open(folder / "run", other)
    with pytest.raises(LedgerError, match="run of Tally"):
        StreamRun.open(folder / "run", FrameTally(noise=SeededNoise(3)))
    with pytest.raises(ConfigError, match="give the stream"):
        StreamRun.open(folder / "run")
    with pytest.raises(ConfigError, match="no run"):
        StreamRun.open(folder / "nothing")
    assert not (folder / "nothing").exists()
    with pytest.raises(ConfigError, match="cannot be run"):
        StreamRun.open(folder / "nothing", object())


def test_a_folder_with_other_things_in_it_is_refused(folder):
    (folder / "thesis.tex").write_text("precious")
    with pytest.raises(ConfigError, match=r"thesis\.tex"):
        StreamRun.open(folder, tally())
    assert [p.name for p in folder.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("name", ["", "x" * 201, 7, None])
def test_bad_names(folder, name):
    with StreamRun.open(folder / "run", tally()) as run, pytest.raises(ConfigError, match="batch_id"):
        run.step(name, np.array([1]))


def test_an_exhausted_stream_is_refused_and_stands(folder):
    with StreamRun.open(folder / "run", tally(horizon=2)) as run:
        run.step("a", np.array([1]))
        run.step("b", np.array([1]))
        with pytest.raises(BudgetExhausted):
            run.step("c", np.array([1]))
        assert run.spent == run.budget
        assert run.verify() == 2


class Spendthrift(Tally):
    """Claims to have spent twice its budget."""

    @property
    def spent(self):
        return self.budget * 2 if self.step else None


class Forgetful(Tally):
    """Claims to have spent less as time goes by."""

    @property
    def spent(self):
        return self.budget / self.step if self.step else None


def test_a_stream_that_overspends_or_forgets_is_stopped(folder):
    with StreamRun.open(folder / "a", Spendthrift(noise=SeededNoise(1))) as run:
        with pytest.raises(LedgerError, match="refused"):
            run.step("a", np.array([1]))
        assert (run.steps, run.spent) == (0, None)
    with StreamRun.open(folder / "b", Forgetful(noise=SeededNoise(1))) as run:
        run.step("a", np.array([1]))
        with pytest.raises(LedgerError, match="refused"):
            run.step("b", np.array([1]))
        assert run.steps == 1


def test_the_clock_may_not_go_far_back(folder, monkeypatch):
    """An hour is forgiven and recorded as no time at all; a day is not."""

    class Clock(datetime):
        behind = timedelta(0)

        @classmethod
        def now(cls, zone=None):
            return datetime.now(zone) - cls.behind

    monkeypatch.setattr(streams.runs.journal, "datetime", Clock)
    with StreamRun.open(folder / "run", tally()) as run:
        run.step("a", np.array([1]))
        Clock.behind = timedelta(minutes=20)
        run.step("b", np.array([1]))
        times = run.report().steps["time"].tolist()
        assert times[0] == times[1]
        Clock.behind = timedelta(days=1)
        before = files(folder / "run")
        with pytest.raises(LedgerError, match="clock"):
            run.step("c", np.array([1]))
        assert files(folder / "run") == before
        assert run.step("a", np.array([1])) == run.release("a")
    with StreamRun.open(folder / "run", tally(), allow_clock_back=True) as run:
        run.step("c", np.array([1]))
        assert run.verify() == 3
        assert datetime.fromisoformat(run.report().steps["time"].max()) <= datetime.now(UTC)


def test_a_forked_process_may_not_use_the_run(folder, monkeypatch):
    with StreamRun.open(folder / "run", tally()) as run:
        mine = os.getpid()
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: mine + 1)
            with pytest.raises(LedgerError, match="another process"):
                run.step("a", np.array([1]))
        run.step("a", np.array([1]))


@pytest.mark.parametrize("parts", [(), "data", ("../data",), (3,), ("",)])
def test_bad_parts(folder, parts):
    with pytest.raises(ConfigError, match="parts"):
        StreamRun.open(folder / "run", tally(), parts=parts)


def test_one_handle_at_a_time(folder):
    with StreamRun.open(folder / "run", tally()) as run:
        with pytest.raises(LedgerError, match="open elsewhere"):
            StreamRun.open(folder / "run", tally())
        run.step("a", np.array([1]))
    with pytest.raises(LedgerError, match="closed"):
        run.step("b", np.array([1]))
    run.close()


def test_a_file_that_changes_while_it_is_read_is_refused(folder):
    path = folder / "batch.txt"
    path.write_text("1 2 3")

    class Reader(Tally):
        def update(self, batch):
            values = np.array(Path(batch).read_text().split(), dtype=np.int64)
            if values.size == 3:
                path.write_text("1 2 3 4")
            return super().update(values)

    with StreamRun.open(folder / "run", Reader(noise=SeededNoise(1))) as run:
        with pytest.raises(LedgerError, match="changed while"):
            run.step("a", path)
        assert run.steps == 0
        value = run.step("a", str(path))
        assert run.step("a", path) == value
        path.write_text("5")
        with pytest.raises(LedgerError, match="other content"):
            run.step("a", path)
        with pytest.raises(InputError, match="no file"):
            run.step("b", folder / "none.csv")


def test_the_report_tells_what_was_spent_and_nothing_private(folder):
    with StreamRun.open(folder / "run", tally(epsilon=0.5)) as run:
        for i in range(4):
            run.step(f"day {i}", np.array([123456, 654321 + i]))
        report = run.report()
    assert report.steps["batch"].tolist() == [f"day {i}" for i in range(4)]
    assert report.steps["epsilon"].tolist() == pytest.approx([0.01] * 4)
    assert report.steps["epsilon_total"].tolist() == pytest.approx([0.01, 0.02, 0.03, 0.04])
    assert set(report.steps["version"]) == {sg.__version__}
    assert report.spent.epsilon == pytest.approx(0.04)
    assert report.budget.epsilon == 0.5
    text = str(report) + json.dumps(report.to_dict())
    assert "day 3" in text
    for private in ("123456", "654321", "777777", "777780"):
        assert private not in text

"""Durable runs: idempotent steps, refusals, damage, reports."""

from __future__ import annotations

import json
import os
import random
import shutil
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import streams.run_book
import synthgeo as sg
from streams.durable import StreamRun
from streams.stored import StoredRelease
from synthgeo.errors import BudgetExhausted, ConfigError, InputError, LedgerError, StateError
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
            patch.setattr("streams.durable.make_durable", fail)
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
            patch.setattr("streams.durable.make_durable", interrupt)
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
        with pytest.raises(ConfigError):
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

    monkeypatch.setattr(streams.run_book, "datetime", Clock)
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


@pytest.mark.parametrize("keep", [0, 1, 100, -1])
def test_a_truncated_state_is_refused(folder, keep):
    three_steps(folder / "run")
    state = folder / "run" / "state" / "000003.state"
    whole = state.read_bytes()
    state.write_bytes(whole[:keep])
    with pytest.raises(StateError, match=r"000003\.state"):
        StreamRun.open(folder / "run", tally())
    state.write_bytes(whole)
    with StreamRun.open(folder / "run", tally()) as run:
        assert run.verify() == 3


def test_a_missing_state_is_refused(folder):
    three_steps(folder / "run")
    (folder / "run" / "state" / "000003.state").unlink()
    with pytest.raises(StateError):
        StreamRun.open(folder / "run", tally())


def test_a_missing_ledger_is_refused(folder):
    three_steps(folder / "run")
    (folder / "run" / "ledger.sqlite").unlink()
    with pytest.raises(StateError, match="no ledger"):
        StreamRun.open(folder / "run", tally())


@pytest.mark.parametrize("content", [b"", b"not a database at all, but long enough to look at" * 40])
def test_a_ruined_ledger_is_refused(folder, content):
    three_steps(folder / "run")
    (folder / "run" / "ledger.sqlite").write_bytes(content)
    with pytest.raises(StateError):
        StreamRun.open(folder / "run", tally())


def test_a_ledger_that_lost_its_end_is_refused(folder):
    """As when it comes from a backup: later releases were seen, so they must not be made again."""
    three_steps(folder / "run")
    old = (folder / "run" / "ledger.sqlite").read_bytes()
    with StreamRun.open(folder / "run", tally()) as run:
        run.step("b3", np.array([1]))
    (folder / "run" / "ledger.sqlite").write_bytes(old)
    with pytest.raises(StateError, match="ledger ends at step 3"):
        StreamRun.open(folder / "run", tally())


def test_a_flipped_byte_in_the_ledger_is_found_or_harmless(folder):
    """300 places: either opening says so, or nothing that the ledger tells has changed."""
    three_steps(folder / "run")
    path = folder / "run" / "ledger.sqlite"
    whole = path.read_bytes()
    with StreamRun.open(folder / "run", tally()) as run:
        told = run.report().to_dict()
    chooser = random.Random(2)
    found = 0
    in_use = [place for place, byte in enumerate(whole) if byte]  # most of a small file is empty
    for place in chooser.sample(in_use, 300):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << chooser.randrange(8)
        path.write_bytes(bytes(damaged))
        for name in ("ledger.sqlite-wal", "ledger.sqlite-shm"):
            (path.parent / name).unlink(missing_ok=True)
        try:
            with StreamRun.open(folder / "run", tally()) as run:
                now = run.report().to_dict()
                now["interrupted"] = told["interrupted"]  # the log of attempts is only a log
                assert now == told, place
        except (StateError, LedgerError):
            found += 1
    assert found > 100
    path.write_bytes(whole)
    with StreamRun.open(folder / "run", tally()) as run:
        assert run.verify() == 3


def test_a_flipped_byte_in_the_log_never_takes_a_step_back(folder, monkeypatch):
    """SQLite drops a damaged log from the bad page on, without a word. The files then know more than the
    ledger.
    """
    monkeypatch.setattr(streams.run_book.RunBook, "fold", lambda _book: None)
    with StreamRun.open(folder / "run", tally()) as run:
        for i in range(3):
            run.step(f"b{i}", np.array([i, 1]))
        shutil.copytree(folder / "run", folder / "copy")
    log = folder / "copy" / "ledger.sqlite-wal"
    whole, book = log.read_bytes(), (folder / "copy" / "ledger.sqlite").read_bytes()
    assert len(whole) > 10_000
    chooser = random.Random(4)
    refused = 0
    for place in chooser.sample(range(len(whole)), 60):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << chooser.randrange(8)
        (folder / "copy" / "ledger.sqlite").write_bytes(book)
        (folder / "copy" / "ledger.sqlite-shm").unlink(missing_ok=True)
        log.write_bytes(bytes(damaged))
        try:
            with StreamRun.open(folder / "copy", tally()) as run:
                assert run.verify() == 3, place
        except StateError:
            refused += 1
    assert refused > 30


def test_verify_finds_a_changed_release(folder):
    three_steps(folder / "run")
    value = folder / "run" / "releases" / "000002-b1" / "value.json"
    with StreamRun.open(folder / "run", tally()) as run:
        assert run.verify() == 3
        whole = value.read_text()
        value.write_text("17.0\n")
        with pytest.raises(StateError, match="000002-b1"):
            run.verify()
        with pytest.raises(StateError, match="000002-b1"):
            run.step("b1", np.array([1, 1]))
        value.write_text(whole)
        (value.parent / "more.txt").write_text("x")
        with pytest.raises(StateError, match=r"more\.txt"):
            run.verify()
        (value.parent / "more.txt").unlink()
        value.unlink()
        with pytest.raises(StateError):
            run.verify()
        value.write_text(whole)
        (folder / "run" / "releases" / "000009-b8").mkdir()
        with pytest.raises(StateError, match="not in the ledger"):
            run.verify()


def test_a_newer_format_is_refused(folder):
    import sqlite3

    three_steps(folder / "run")
    connection = sqlite3.connect(folder / "run" / "ledger.sqlite")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StateError, match="version 99"):
        StreamRun.open(folder / "run", tally())


def test_everything_is_synced_before_it_counts(folder, monkeypatch):
    """The order of syncs, renames and transactions. A kill cannot show it, a power cut would."""
    journal = []
    real_sync, real_rename = os.fsync, Path.rename

    def sync(handle):
        journal.append(("sync", Path(f"/proc/self/fd/{handle}").readlink().name))
        real_sync(handle)

    def rename(source, target):
        journal.append(("rename", target.name))
        return real_rename(source, target)

    def noting(name):
        real = getattr(streams.run_book.RunBook, name)

        def noted(book, *args):
            real(book, *args)
            journal.append((name, ""))

        return noted

    with StreamRun.open(folder / "run", FrameTally(noise=SeededNoise(1))) as run:
        monkeypatch.setattr(os, "fsync", sync)
        monkeypatch.setattr(Path, "rename", rename)
        for name in ("intend", "decide", "finish"):
            monkeypatch.setattr(streams.run_book.RunBook, name, noting(name))
        run.step("b", np.array([3]))
        monkeypatch.undo()
        assert run._book.query("PRAGMA synchronous")[0][0] == 2, "FULL: a commit is synced"
        assert run._book.query("PRAGMA journal_mode")[0][0] == "wal"
    place = journal.index
    decided, finished = place(("decide", "")), place(("finish", ""))
    assert place(("intend", "")) == 0
    for name in ("data.parquet", "000001-b", "000001.state", "pending"):
        assert ("sync", name) in journal[:decided], f"{name} is not on disk when its step is decided"
    state, release = place(("rename", "000001.state")), place(("rename", "000001-b"))
    assert decided < state < release < finished
    assert ("sync", "state") in journal[state:release]
    assert ("sync", "releases") in journal[release:finished]


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


def test_a_run_charges_the_ledger_of_its_dataset_once(folder):
    with sg.Ledger.open(folder / "l.sqlite", dataset="taxi", cap=sg.PrivacyBudget(1.5)) as ledger:
        for _ in range(2):
            with StreamRun.open(folder / "run", tally(), ledger=ledger) as run:
                run.step("a", np.array([1]))
        assert [entry.product for entry in ledger.entries] == ["Tally run"]
        assert ledger.spent == sg.PrivacyBudget(1.0)
        with pytest.raises(LedgerError, match="cap"):
            StreamRun.open(folder / "second", tally(), ledger=ledger)
        with pytest.raises(ConfigError, match="no run"):
            StreamRun.open(folder / "second")
        assert ledger.spent == sg.PrivacyBudget(1.0)


SCALARS = {
    "LPA": {"horizon": 20},
    "FAST": {"horizon": 20, "filter": "kalman"},
    "BudgetAbsorption": {"window": 4},
    "BudgetDistribution": {"window": 4},
}


@pytest.mark.parametrize("name", SCALARS)
def test_scalar_mechanisms_run(folder, name):
    """Their own class is found by name, so the second opening needs no stream."""
    made = getattr(sg.series, name)(budget=sg.PrivacyBudget(1.0), noise=SeededNoise(2), **SCALARS[name])
    with StreamRun.open(folder / "run", made) as run:
        values = [run.step(f"h{i}", 10.0 * i) for i in range(3)]
    with StreamRun.open(folder / "run") as run:
        values += [run.step(f"h{i}", 10.0 * i) for i in range(3, 6)]
        assert [run.step(f"h{i}", 10.0 * i) for i in range(6)] == values
        assert run.verify() == 6
        assert run.report().configuration["mechanism"] == name
    twin = getattr(sg.series, name)(budget=sg.PrivacyBudget(1.0), noise=SeededNoise(2), **SCALARS[name])
    assert [twin.update(10.0 * i) for i in range(6)] == values


def points(**options):
    return sg.PHDStream(
        **{
            "domain": sg.BoxDomain(0, 0, 1, 1),
            "budget": sg.PrivacyBudget(1.0),
            "unit": sg.PrivacyUnit.event(),
            "max_depth": 10,
            "noise": SeededNoise(1),
            **options,
        }
    )


@pytest.mark.parametrize(
    "options",
    [{}, {"persist": True}, {"t0": 2}, {"counter": "kary", "horizon": 10}, {"schedule": "every_step"}],
)
def test_spatial_streams_run(folder, options):
    """Opened again for every step, stored and read back: the releases of one stream that never stopped."""
    rng = np.random.default_rng(1)
    batches = [rng.random((800, 2)) ** 2 for _ in range(4)]
    alone = points(**options)
    for i, batch in enumerate(batches):
        expected = alone.update(batch)
        with StreamRun.open(folder / "run", points(**options), parts=("data", "cells")) as run:
            made = run.step(f"b{i}", batch)
            stored = run.release(f"b{i}")
        assert np.array_equal(made.xy, expected.xy)
        assert np.array_equal(stored.to_pandas()["id"], expected.ids)
        assert np.array_equal(stored.data.geometry.x, expected.xy[:, 0])
        assert stored.data.crs == expected.data.crs
        assert stored.provenance == expected.provenance
        assert stored.cells["count"].tolist() == expected.counts.tolist()
    alone.save(folder / "alone.state")
    assert (folder / "run" / "state" / "000004.state").read_bytes() == (folder / "alone.state").read_bytes()
    with StreamRun.open(folder / "run") as run:
        assert run.verify() == 4
        assert run.report().steps["epsilon"].tolist() == (
            [1, 0, 0, 0] if "t0" not in options else [0, 1, 0, 0]
        )


def test_table_streams_run(folder):
    schema = sg.Schema({"age": sg.Numeric(0, 100, bins=5), "sex": sg.Categorical(["F", "M"])})

    def table():
        workload = sg.all_k_way(schema, 2)
        return sg.TabularStream(
            schema=schema,
            budget=sg.PrivacyBudget(1.0),
            unit=sg.PrivacyUnit.event(),
            workload=workload,
            noise=SeededNoise(2),
        )

    rng = np.random.default_rng(0)
    alone = table()
    for i in range(3):
        batch = pd.DataFrame({"age": rng.uniform(0, 100, 300), "sex": rng.choice(["F", "M"], 300)})
        expected = alone.update(batch).data
        with StreamRun.open(folder / "run", table()) as run:
            pd.testing.assert_frame_equal(run.step(f"b{i}", batch).data, expected)
            pd.testing.assert_frame_equal(run.step(f"b{i}", batch).data, expected)
    with StreamRun.open(folder / "run") as run:
        assert run.verify() == 3


def test_a_streams_own_ledger_is_charged_once(folder):
    with sg.Ledger.open(folder / "l.sqlite", dataset="taxi", cap=sg.PrivacyBudget(1.5)) as ledger:
        for i in range(2):
            with StreamRun.open(folder / "run", points(ledger=ledger)) as run:
                run.step(f"b{i}", np.full((5, 2), 0.5))
        assert [entry.product for entry in ledger.entries] == ["PHDStream run"]

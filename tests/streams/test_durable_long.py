"""Runs of many steps: releases that may go, and checks that do not read everything."""

from __future__ import annotations

import sqlite3

import numpy as np
import pytest

import synthgeo as sg
from streams.runs.run import StreamRun
from synthgeo.errors import ConfigError, LedgerError, StateError
from tests.streams.tally import Tally


def tally():
    return Tally(noise=sg.SeededNoise(3))


@pytest.fixture
def long_run(folder):
    with StreamRun.open(folder / "run", tally()) as run:
        values = [run.step(f"b{i}", np.array([i, 1])) for i in range(1, 11)]
    return folder / "run", dict(zip((f"b{i}" for i in range(1, 11)), values, strict=True))


def names(directory):
    return sorted(path.name for path in (directory / "releases").iterdir())


def test_releases_that_are_not_needed_can_go(long_run):
    directory, values = long_run
    with StreamRun.open(directory, tally()) as run:
        assert run.compact(keep_every=4) == 7
        assert names(directory) == ["000004-b4", "000008-b8", "000010-b10"]
        assert run.compact(keep_every=4) == 0
        assert run.verify() == run.verify(newest=2) == run.steps == 10
        for batch in ("b4", "b8", "b10"):
            assert run.release(batch) == values[batch]
        with pytest.raises(LedgerError, match="was removed when the run was compacted"):
            run.release("b5")
        assert run.step("b5", np.array([5, 1])) is None, "known, so not answered again"
        with pytest.raises(LedgerError, match="other content"):
            run.step("b5", np.array([6, 1]))
        assert run.report().steps["batch"].tolist() == list(values)
        run.step("b11", np.array([11]))
    with StreamRun.open(directory, tally()) as run:
        assert run.steps == 11
        assert run.compact(keep_every=8) == 2
        assert names(directory) == ["000008-b8", "000011-b11"]
        assert run.verify() == 11
        with pytest.raises(ConfigError, match="multiple of 8"):
            run.compact(keep_every=12)
        with pytest.raises(ConfigError, match="keep_every"):
            run.compact(keep_every=0)


def test_a_compacted_journal_keeps_what_counts_under_a_new_seal(folder):
    """Statements and hashes of removed releases go; batches, contents, spends and the chain stay."""
    city = sg.BoxDomain(0, 0, 1, 1)

    def stream():
        return sg.PHDStream(
            domain=city,
            budget=sg.PrivacyBudget(1.0),
            settings=sg.PointSettings(max_depth=4),
            noise=sg.SeededNoise(1),
        )

    directory, xy = folder / "run", np.random.default_rng(1).random((40, 4, 2))
    with StreamRun.open(directory, stream()) as run:
        for step, batch in enumerate(xy):
            run.step(f"b{step}", batch)
        before, size = run.report(), run._journal.path.stat().st_size
        head = run._journal.head()
        run.compact(keep_every=10)
        assert run._journal.path.stat().st_size < 0.6 * size
        assert run._journal.note("summarised") == {"rows": 40, "chain": head[1]}
        assert run._journal.head()[0] == 40
        assert run._journal.head() != head
        assert run.report().to_dict() == before.to_dict()
        assert run.step("b7", xy[7]) is None
        with pytest.raises(LedgerError, match="holds the records of batch 'b7'"):
            run.step("new", xy[7])
        run.step("b40", xy[0] / 2)
    with StreamRun.open(directory, stream()) as run:
        assert run.verify() == 41
        assert run.compact(keep_every=10) == 0
        assert run.release("b9").provenance["mechanism"] == "PHDStream"
    with sqlite3.connect(directory / "ledger.sqlite") as book:
        book.execute("UPDATE book SET content = 'other' WHERE number = 8")
    book.close()
    with pytest.raises(StateError, match="entry 8"):
        StreamRun.open(directory, stream())


def test_a_compaction_that_was_killed_is_finished_by_the_next(long_run, monkeypatch):
    from streams.runs.directory import RunDirectory

    directory, _ = long_run
    remove, calls = RunDirectory.remove_release, []

    def dying(folder, name):
        calls.append(name)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return remove(folder, name)

    with StreamRun.open(directory, tally()) as run, monkeypatch.context() as patch:
        patch.setattr(RunDirectory, "remove_release", dying)
        with pytest.raises(KeyboardInterrupt):
            run.compact(keep_every=5)
    with StreamRun.open(directory, tally()) as run:
        assert run.verify() == 10
        assert run.compact(keep_every=5) == 6
        assert names(directory) == ["000005-b5", "000010-b10"]


def test_a_quick_check_reads_the_newest(long_run):
    directory, _ = long_run
    value = directory / "releases" / "000004-b4" / "value.json"
    whole = value.read_text()
    with StreamRun.view(directory) as view:
        assert view.verify(newest=3) == view.verify() == 10
        value.write_text("17.0\n")
        assert view.verify(newest=6) == 10
        for newest in (7, 99, None):
            with pytest.raises(StateError, match="000004-b4"):
                view.verify(newest=newest)
        value.write_text(whole)
        (value.parent.parent / "000002-b2").rename(directory / "elsewhere")
        with pytest.raises(StateError, match="000002-b2"):
            view.verify(newest=1)


def test_what_a_killed_process_left_is_cleared_at_the_next_opening(long_run):
    directory, _ = long_run
    remains = [directory / ".ledger.sqlite.abc.tmp", directory / "pending" / ".000011.state.xyz.tmp"]
    for path in remains:
        path.write_text("half")
    with StreamRun.open(directory, tally()) as run:
        assert run.verify() == 10
    assert not any(path.exists() for path in remains)

"""A run and the ledger of its dataset: nothing is visible unpaid, nothing is paid for that cannot be made."""

from __future__ import annotations

import math
import os
import shutil
import signal
from contextlib import suppress

import numpy as np
import pytest

import synthgeo as sg
from streams.runs.run import StreamRun
from synthgeo.errors import InputError, LedgerError
from tests.streams.tally import Tally

ONE = sg.PrivacyBudget(1.0)


def tally():
    return Tally(noise=sg.SystemNoise())


@pytest.fixture
def book(folder):
    with sg.Ledger.open(folder / "l.sqlite", dataset="taxi", cap=sg.PrivacyBudget(1.5)) as ledger:
        yield ledger


def killed(owner, name, when, work, *args):
    """Fork a process that dies (SIGKILL) when it calls ``owner.name``, before or after the call."""
    child = os.fork()
    if child == 0:
        real = getattr(owner, name)

        def deadly(*given, **options):
            if when == "after":
                real(*given, **options)
            os.kill(os.getpid(), signal.SIGKILL)

        try:
            setattr(owner, name, deadly)
            work(*args)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)


def one_step(path, directory):
    with sg.Ledger.open(path) as ledger, StreamRun.open(directory, tally(), ledger=ledger) as run:
        run.step("a", np.array([1]))


STAGES = [
    (sg.Ledger, "reserve"),
    (StreamRun, "_compute"),
    (StreamRun, "_write"),
    (StreamRun, "_decide"),
    (sg.Ledger, "commit"),
    (StreamRun, "_publish"),
    (StreamRun, "_finish"),
]
stages = pytest.mark.parametrize(("owner", "name"), STAGES, ids=[name for _, name in STAGES])
moments = pytest.mark.parametrize("when", ["before", "after"])


def value_of(directory, step="000001-a"):
    return (directory / "releases" / step / "value.json").read_text()


@moments
@stages
def test_a_run_killed_at_any_stage_pays_once_and_never_goes_on_unpaid(folder, owner, name, when):
    """With real noise: whatever was visible stays, and nothing is answered twice."""
    path, directory = folder / "l.sqlite", folder / "run"
    sg.Ledger.open(path, dataset="taxi", cap=ONE).close()
    killed(owner, name, when, one_step, path, directory)
    with pytest.raises(LedgerError, match="belongs to the ledger of 'taxi'"):
        StreamRun.open(directory, tally())
    seen = value_of(directory) if any((directory / "releases").iterdir()) else None
    with StreamRun.view(directory) as view:
        if seen is None and view.steps:  # decided, and not committed: not to be seen by anybody
            with pytest.raises(LedgerError, match="open the run with its ledger"):
                view.release("a")
            with pytest.raises(LedgerError, match="open the run with its ledger"):
                view.stream()
    one_step(path, directory)
    assert seen in (None, value_of(directory))
    with sg.Ledger.open(path) as ledger:
        assert ledger.spent == ONE
        with StreamRun.open(directory, tally(), ledger=ledger) as run:
            assert run.verify() == ledger.last_step(run._key) == 1
            run.step("b", np.array([2]))
            assert ledger.last_step(run._key) == 2


@stages
def test_of_two_copies_of_a_killed_run_one_answers(folder, owner, name):
    """The folder is copied after the kill; both copies go on with the ledger, and draw real noise."""
    path, one, two = folder / "l.sqlite", folder / "run", folder / "copy"
    sg.Ledger.open(path, dataset="taxi", cap=ONE).close()
    killed(owner, name, "before", one_step, path, one)
    shutil.copytree(one, two)
    one_step(path, one)
    first = value_of(one)
    try:
        one_step(path, two)  # the same stored result, where it was decided before the copy
        assert value_of(two) == first
    except LedgerError as problem:
        told = str(problem)
        assert "older copy" in told
        assert not list((two / "releases").iterdir())
    with sg.Ledger.open(path) as ledger:
        assert ledger.spent == ONE


def test_what_a_slower_copy_has_drawn_is_never_seen(folder, book, monkeypatch):
    """Both copies draw at once; the slower one decided, and finds that the other has committed."""
    with StreamRun.open(folder / "run", tally(), ledger=book) as run:
        shutil.copytree(folder / "run", folder / "copy")
        real = StreamRun._decide

        def overtaken(self, row, notes):
            real(self, row, notes)
            monkeypatch.setattr(StreamRun, "_decide", real)
            with StreamRun.open(folder / "copy", tally(), ledger=book) as other:
                other.step("a", np.array([1]))

        monkeypatch.setattr(StreamRun, "_decide", overtaken)
        with pytest.raises(LedgerError, match="discarded unseen"):
            run.step("a", np.array([1]))
    assert not list((folder / "run" / "releases").iterdir())
    for _ in range(2):
        with pytest.raises(LedgerError, match="older copy"):
            StreamRun.open(folder / "run", tally(), ledger=book)
    with StreamRun.view(folder / "run") as view, pytest.raises(LedgerError, match="with its ledger"):
        view.release("a")
    with StreamRun.open(folder / "copy", tally(), ledger=book) as other:
        other.step("b", np.array([2]))
    assert book.spent == ONE


def test_processes_that_race_for_a_step_are_let_through_once(folder):
    """Eight processes hold one state and one ledger: each of five steps is committed by one of them."""
    path = folder / "l.sqlite"
    sg.Ledger.open(path, dataset="taxi", cap=ONE).close()
    children = []
    for number in range(8):
        child = os.fork()
        if child == 0:
            try:
                race(path, folder / f"won-{number}")
            finally:
                os._exit(0)
        children.append(child)
    assert all(os.waitpid(child, 0)[1] == 0 for child in children)
    won = [line for file in folder.glob("won-*") for line in file.read_text().splitlines()]
    assert sorted(won) == ["1", "2", "3", "4", "5"]
    with sg.Ledger.open(path) as ledger:
        assert len(ledger.entries) == ledger.verify() == 1


def race(path, told):
    """Try to take each of five steps, until it is taken by somebody; write down the own ones."""
    with sg.Ledger.open(path) as ledger, told.open("w") as out:
        while (step := (ledger.last_step("k") or 0) + 1) <= 5:
            with suppress(LedgerError):
                mine = ledger.reserve("stream", ONE, sg.PrivacyUnit.event(), key="k", step=step)
                ledger.commit(mine)
                print(step, file=out)


def test_the_charge_of_a_step_that_fails_waits_for_the_next(folder, book):
    """A stream of numbers looks at them when it takes them: the charge is there, and pays for one answer."""
    with StreamRun.open(folder / "a", tally(), ledger=book) as run:
        with pytest.raises(InputError):
            run.step("bad", np.array([0.5]))
        assert (book.spent, run.steps) == (ONE, 0)
        run.step("good", np.array([5]))
        assert book.spent == ONE


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.5, "5"])
def test_a_number_that_is_refused_costs_nothing(folder, book, bad):
    series = [sg.series.FAST(budget=ONE, horizon=10, noise=sg.SeededNoise(1)) for _ in range(2)]
    with StreamRun.open(folder / "a", series[0], ledger=book) as run:
        with pytest.raises(InputError):
            run.step("bad", bad)
        assert book.spent is None
        assert run.step("good", 5) == series[1].update(5), "a rehearsal moves no noise"
        assert book.spent == ONE


def test_rows_that_are_refused_cost_nothing(folder, book):
    box = sg.BoxDomain(0, 0, 1, 1)
    stream = sg.PHDStream(domain=box, budget=ONE, settings=sg.PointSettings(max_depth=4), ledger=book)
    with StreamRun.open(folder / "a", stream) as run, pytest.raises(InputError):
        run.step("bad", {"x": [0.1, None], "y": [0.2, 0.3]})
    assert book.spent is None


def test_a_run_that_the_ledger_cannot_pay_is_not_begun(folder, book):
    book.charge("trips", ONE, sg.PrivacyUnit.event())
    with pytest.raises(LedgerError, match="cap"):
        StreamRun.open(folder / "run", tally(), ledger=book)
    assert not (folder / "run").exists()


def test_budget_that_another_product_took_meanwhile_stops_the_first_step(folder, book):
    with StreamRun.open(folder / "run", tally(), ledger=book) as run:
        book.charge("trips", ONE, sg.PrivacyUnit.event())
        with pytest.raises(LedgerError, match="cap"):
            run.step("a", np.array([1]))
        assert run.steps == 0
        assert not list((folder / "run" / "releases").iterdir())
    assert book.spent == ONE


def test_a_run_begun_without_a_ledger_is_charged_when_it_gets_one(folder, book):
    with StreamRun.open(folder / "run", tally()) as run:
        run.step("a", np.array([1]))
    for _ in range(2):
        with StreamRun.open(folder / "run", tally(), ledger=book):
            assert book.spent == ONE, "what it released is paid for at once"


def test_a_run_keeps_to_its_ledger(folder, book):
    with StreamRun.open(folder / "run", tally(), ledger=book) as run:
        run.step("a", np.array([1]))
    with (
        sg.Ledger.open(folder / "m.sqlite", dataset="bikes", cap=ONE) as other,
        pytest.raises(LedgerError, match="another ledger, of 'taxi'"),
    ):
        StreamRun.open(folder / "run", tally(), ledger=other)


def test_a_ledger_put_back_from_an_older_copy_is_noticed(folder):
    path = folder / "l.sqlite"
    sg.Ledger.open(path, dataset="taxi", cap=sg.PrivacyBudget(1.5)).close()
    shutil.copy(path, folder / "old")
    with sg.Ledger.open(path) as ledger, StreamRun.open(folder / "run", tally(), ledger=ledger) as run:
        run.step("a", np.array([1]))
    shutil.copy(folder / "old", path)
    with sg.Ledger.open(path) as ledger, pytest.raises(LedgerError, match="older copy"):
        StreamRun.open(folder / "run", tally(), ledger=ledger)


def test_a_whole_run_put_back_from_an_older_copy_is_noticed_by_its_ledger(folder):
    path = folder / "l.sqlite"
    with sg.Ledger.open(path, dataset="taxi", cap=sg.PrivacyBudget(1.5)) as ledger:
        with StreamRun.open(folder / "run", tally(), ledger=ledger) as run:
            run.step("a", np.array([1]))
        shutil.copytree(folder / "run", folder / "copy")
        with StreamRun.open(folder / "run", tally(), ledger=ledger) as run:
            run.step("b", np.array([2]))
        with pytest.raises(LedgerError, match="knows its step 2: this folder is an older copy"):
            StreamRun.open(folder / "copy", tally(), ledger=ledger)
        with StreamRun.open(folder / "run", tally(), ledger=ledger) as run:  # the living one goes on
            assert run.steps == 2
            run.step("c", np.array([3]))
        assert ledger.verify() == 1


def test_a_ledger_that_is_behind_its_run_is_an_older_copy(folder):
    path = folder / "l.sqlite"
    with (
        sg.Ledger.open(path, dataset="taxi", cap=ONE) as ledger,
        StreamRun.open(folder / "run", tally(), ledger=ledger) as run,
    ):
        run.step("a", np.array([1]))
    shutil.copy(path, folder / "old")
    with sg.Ledger.open(path) as ledger, StreamRun.open(folder / "run", tally(), ledger=ledger) as run:
        run.step("b", np.array([2]))
    shutil.copy(folder / "old", path)
    with sg.Ledger.open(path) as ledger, pytest.raises(LedgerError, match="that ledger is an older copy"):
        StreamRun.open(folder / "run", tally(), ledger=ledger)

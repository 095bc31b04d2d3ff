"""A run and the ledger of its dataset: nothing is visible unpaid, nothing is paid for that cannot be made."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

import synthgeo as sg
from streams.runs.run import StreamRun
from synthgeo.errors import ConfigError, InputError, LedgerError
from tests.streams.tally import FrameTally, Tally

ONE = sg.PrivacyBudget(1.0)


def tally():
    return Tally(noise=sg.SeededNoise(3))


@pytest.fixture
def book(folder):
    with sg.Ledger.open(folder / "l.sqlite", dataset="taxi", cap=sg.PrivacyBudget(1.5)) as ledger:
        yield ledger


KILLED = """
import os, signal, sys
import synthgeo as sg
from tests.streams import test_durable_paid as work

path, directory, when = sys.argv[1:]
real = sg.Ledger.charge


def deadly(*args, **options):
    if when == "after":
        real(*args, **options)
    os.kill(os.getpid(), signal.SIGKILL)


sg.Ledger.charge = deadly
work.one_step(path, directory)
"""


def one_step(path, directory):
    with sg.Ledger.open(path) as ledger, StreamRun.open(directory, tally(), ledger=ledger) as run:
        run.step("a", np.array([1]))


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_run_killed_around_its_charge_pays_once_and_never_goes_on_unpaid(folder, when):
    path, directory = folder / "l.sqlite", folder / "run"
    sg.Ledger.open(path, dataset="taxi", cap=sg.PrivacyBudget(1.5)).close()
    done = subprocess.run([sys.executable, "-c", KILLED, str(path), str(directory), when])
    assert done.returncode == -signal.SIGKILL
    with pytest.raises(LedgerError, match="ledger of 'taxi' and has not been charged"):
        StreamRun.open(directory, tally())
    assert not list((directory / "releases").iterdir())
    one_step(path, directory)
    with sg.Ledger.open(path) as ledger:
        assert ledger.spent == ONE
    with StreamRun.open(directory, tally()) as run:  # paid: from now on it goes on alone
        run.step("b", np.array([2]))
        assert run.steps == 2


def test_a_run_that_cannot_make_a_step_costs_nothing(folder, book):
    with StreamRun.open(folder / "a", tally(), ledger=book) as run:
        with pytest.raises(InputError):
            run.step("bad", np.array([0.5]))
        assert book.spent is None
    with StreamRun.open(
        folder / "b", FrameTally(noise=sg.SeededNoise(3)), parts=("changes",), ledger=book
    ) as run:
        with pytest.raises(ConfigError, match="no 'changes'"):
            run.step("a", np.array([5]))
        assert book.spent is None
        assert run.steps == 0


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


def test_a_ledger_that_missed_a_step_hears_of_it_at_the_next_opening(folder, monkeypatch):
    """A run that is ahead of its ledger is no copy; a ledger of before has no table of steps."""
    with sg.Ledger.open(folder / "l.sqlite", dataset="taxi", cap=sg.PrivacyBudget(1.5)) as ledger:
        with StreamRun.open(folder / "run", tally(), ledger=ledger) as run:
            assert ledger.last_step(run._key) == 0

            def full(*_):
                raise LedgerError("cannot write: the disk is full")

            monkeypatch.setattr(ledger, "note_step", full)
            run.step("a", np.array([1]))
            monkeypatch.undo()
            assert ledger.last_step(run._key) == 0
        with StreamRun.open(folder / "run", tally(), ledger=ledger) as run:
            assert ledger.last_step(run._key) == 1
            run.step("b", np.array([2]))
            assert ledger.last_step(run._key) == 2

"""The ledger of a dataset: charges, cap, repeats, damage, several processes."""

from __future__ import annotations

import os
import random
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import synthgeo as sg
from streams.runs.identity import fingerprint_of
from synthgeo.errors import ConfigError, LedgerError, StateError
from synthgeo.privacy.ledger_file import LedgerFile

EVENT = sg.PrivacyUnit.event()


def new(path, **options):
    return sg.Ledger.open(path, **{"dataset": "taxi-2015", "cap": sg.PrivacyBudget(4.0, 1e-6), **options})


def test_charges_add_up_and_last(tmp_path):
    with new(tmp_path / "l.sqlite") as ledger:
        assert ledger.spent is None
        assert ledger.remaining == ledger.cap
        entry = ledger.charge("stream", sg.PrivacyBudget(1.0), EVENT)
        assert (entry.number, entry.product, entry.budget, entry.unit) == (
            1,
            "stream",
            sg.PrivacyBudget(1.0),
            EVENT,
        )
        assert entry.version == sg.__version__
        ledger.charge("census", sg.PrivacyBudget(0.5, 1e-7), sg.PrivacyUnit.user(max_events=3, key="who"))
    with sg.Ledger.open(tmp_path / "l.sqlite") as ledger:
        assert (ledger.dataset, ledger.cap, ledger.on_repeat) == (
            "taxi-2015",
            sg.PrivacyBudget(4.0, 1e-6),
            "record",
        )
        assert ledger.spent == sg.PrivacyBudget(1.5, 1e-7)
        assert ledger.remaining == sg.PrivacyBudget(2.5, 9e-7)
        assert ledger.verify() == 2
        table = ledger.show()
    assert table["product"].tolist() == ["stream", "census"]
    assert table["epsilon"].tolist() == [1.0, 0.5]
    assert table["unit"].tolist()[1] == "one user, who contributes at most 3 events"
    assert str(table["repeats"].dtype) == "Int64"
    assert table["repeats"].isna().all()


def test_the_cap_refuses_the_next_product(tmp_path):
    with new(tmp_path / "l.sqlite") as ledger:
        for _ in range(40):
            ledger.charge("drip", sg.PrivacyBudget(0.1), EVENT)
        assert ledger.spent.epsilon == 4.0, "an exact sum: no drift"
        assert ledger.remaining is None
        with pytest.raises(LedgerError, match="cap"):
            ledger.charge("one more", sg.PrivacyBudget(0.001), EVENT)
        assert len(ledger.entries) == 40
    with new(tmp_path / "m.sqlite") as ledger:
        with pytest.raises(LedgerError, match="cap"):
            ledger.charge("much δ", sg.PrivacyBudget(0.1, 1e-5), EVENT)
        assert ledger.spent is None


def test_a_repeated_fit_is_recorded(tmp_path):
    with new(tmp_path / "l.sqlite") as ledger:
        data = fingerprint_of(np.arange(5))
        first = ledger.charge("trips", sg.PrivacyBudget(1.0), EVENT, content_hash=data)
        second = ledger.charge("trips", sg.PrivacyBudget(1.0), EVENT, content_hash=data)
        new_data = fingerprint_of(np.arange(6))
        third = ledger.charge("trips", sg.PrivacyBudget(1.0), EVENT, content_hash=new_data)
        other = ledger.charge("tables", sg.PrivacyBudget(1.0), EVENT, content_hash=data)
        assert [e.repeats for e in (first, second, third, other)] == [None, 1, None, None]
        assert ledger.spent == sg.PrivacyBudget(4.0), "a repeat is a spend like any other"
        assert ledger.show()["repeats"].tolist()[1] == 1


def test_a_repeated_fit_is_refused(tmp_path):
    with new(tmp_path / "l.sqlite", on_repeat="refuse") as ledger:
        data = fingerprint_of(np.arange(5))
        ledger.charge("trips", sg.PrivacyBudget(1.0), EVENT, content_hash=data)
        with pytest.raises(LedgerError, match="entry 1"):
            ledger.charge("trips", sg.PrivacyBudget(1.0), EVENT, content_hash=data)
        ledger.charge("trips", sg.PrivacyBudget(1.0), EVENT)
        assert ledger.spent == sg.PrivacyBudget(2.0)
        raw = (tmp_path / "l.sqlite").read_bytes() + (tmp_path / "l.sqlite-wal").read_bytes()
        assert data.encode() not in raw, (
            "a fingerprint of little data can be guessed: only a salted one is kept"
        )


def test_a_key_is_charged_once(tmp_path):
    with new(tmp_path / "l.sqlite") as ledger:
        first = ledger.charge("run", sg.PrivacyBudget(1.0), EVENT, key="abc")
        assert ledger.charge("run", sg.PrivacyBudget(1.0), EVENT, key="abc") == first
        with pytest.raises(LedgerError, match="key"):
            ledger.charge("run", sg.PrivacyBudget(2.0), EVENT, key="abc")
        with pytest.raises(LedgerError, match="key"):
            ledger.check("run", sg.PrivacyBudget(2.0), EVENT, key="abc")
        with pytest.raises(LedgerError, match="cap"):
            ledger.check("run", sg.PrivacyBudget(4.0), EVENT, key="abd")
        assert ledger.spent == sg.PrivacyBudget(1.0)


@pytest.mark.parametrize(
    "options", [{"dataset": None}, {"dataset": ""}, {"cap": None}, {"cap": 4.0}, {"on_repeat": "shrug"}]
)
def test_bad_settings_make_no_file(tmp_path, options):
    with pytest.raises(ConfigError):
        new(tmp_path / "l.sqlite", **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "options", [{"dataset": "other"}, {"cap": sg.PrivacyBudget(9.0)}, {"on_repeat": "refuse"}]
)
def test_other_settings_are_refused_later(tmp_path, options):
    new(tmp_path / "l.sqlite").close()
    with pytest.raises(LedgerError):
        new(tmp_path / "l.sqlite", **options)


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (("", sg.PrivacyBudget(1.0), EVENT), {}),
        ((3, sg.PrivacyBudget(1.0), EVENT), {}),
        (("x", 1.0, EVENT), {}),
        (("x", sg.PrivacyBudget(1.0), "event"), {}),
        (("x", sg.PrivacyBudget(1.0), EVENT), {"content_hash": b"abc"}),
        (("x", sg.PrivacyBudget(1.0), EVENT), {"key": ""}),
    ],
)
def test_bad_charges_spend_nothing(tmp_path, arguments, options):
    with new(tmp_path / "l.sqlite") as ledger:
        with pytest.raises(ConfigError):
            ledger.charge(*arguments, **options)
        assert ledger.entries == []


ONE = sg.PrivacyBudget(1.0)


def reserve(ledger, key="k", step=1, content=None, **changes):
    asked = {"product": "stream", "budget": ONE, "unit": EVENT} | changes
    return ledger.reserve(**asked, key=key, step=step, content_hash=content)


def test_steps_are_reserved_and_committed_one_after_the_other(tmp_path):
    with new(tmp_path / "l.sqlite") as ledger:
        assert ledger.last_step("k") is None
        for step in (1, 2, 3):
            mine = reserve(ledger, step=step)
            assert not ledger.committed(mine)
            for other in (step - 1, step + 1):
                with pytest.raises(LedgerError, match="older copy"):
                    reserve(ledger, step=other)
            ledger.commit(mine)
            ledger.commit(mine)
            assert ledger.committed(mine)
            assert ledger.last_step("k") == step
            with pytest.raises(LedgerError, match=f"step {step} was answered already"):
                reserve(ledger, step=step)
        assert ledger.spent == ONE
        assert ledger.find("k") == ledger.entries[0]
        assert ledger.verify() == 1


def test_a_reservation_that_is_taken_over_cannot_be_committed(tmp_path):
    with new(tmp_path / "l.sqlite") as ledger:
        slow, quick = reserve(ledger), reserve(ledger)
        with pytest.raises(LedgerError, match="discarded unseen"):
            ledger.commit(slow)
        assert ledger.last_step("k") == 0
        ledger.commit(quick)
        assert (ledger.committed(slow), ledger.committed(quick)) == (False, True)
        with pytest.raises(LedgerError, match="discarded unseen"):
            ledger.commit(slow)
        late = reserve(ledger, step=2)
        ledger.commit(reserve(ledger, step=2))
        with pytest.raises(LedgerError, match="discarded unseen"):
            ledger.commit(late)
        assert ledger.spent == ONE


def test_what_the_cap_refuses_is_not_reserved(tmp_path):
    with new(tmp_path / "l.sqlite", cap=sg.PrivacyBudget(1.5)) as ledger:
        reserve(ledger)
        with pytest.raises(LedgerError, match="cap"):
            reserve(ledger, key="other")
        with pytest.raises(LedgerError, match="under this key"):
            reserve(ledger, budget=sg.PrivacyBudget(0.5))
        assert ledger.last_step("other") is None
        assert ledger.spent == ONE


def test_an_abandoned_reservation_is_found_by_what_it_was_for(tmp_path):
    user = sg.PrivacyUnit.user(max_events=2)
    with new(tmp_path / "l.sqlite", cap=sg.PrivacyBudget(20.0)) as ledger:
        first = reserve(ledger, "first", content="a table")
        for key, changes in enumerate(
            (
                {"content": "another"},
                {"product": "trips"},
                {"budget": sg.PrivacyBudget(0.5)},
                {"unit": user},
                {"content": None},
            )
        ):
            reserve(ledger, str(key), **{"content": "a table", **changes})
        assert len(ledger.entries) == 6
        again = reserve(ledger, "again", content="a table")
        assert len(ledger.entries) == 6
        assert ledger.find("again").number == 1
        with pytest.raises(LedgerError, match="discarded unseen"):
            ledger.commit(first)
        ledger.commit(again)
        reserve(ledger, "third", content="a table")  # that one was answered
        assert len(ledger.entries) == 7
        reserve(ledger, "first", content="a fourth")  # its charge was taken over and answered
        assert len(ledger.entries) == 8
        reserve(ledger, "again", step=2, content="a fifth")
        reserve(ledger, "other", content="a fifth")  # a later step of a stream is not up for another product
        assert ledger.verify() == 9
    raw = (tmp_path / "l.sqlite").read_bytes()
    assert b"a table" not in raw


def test_what_was_answered_without_the_ledger_is_adopted(tmp_path):
    with new(tmp_path / "l.sqlite") as ledger:
        for _ in range(2):
            ledger.adopt("stream", ONE, EVENT, key="k", step=3)
        assert (ledger.spent, ledger.last_step("k")) == (ONE, 3)
        with pytest.raises(LedgerError, match="this ledger is an older copy"):
            ledger.adopt("stream", ONE, EVENT, key="k", step=4)
        ledger.commit(reserve(ledger, step=4))
        ledger.adopt("stream", ONE, EVENT, key="k", step=3)  # an older state, to look at
        with pytest.raises(LedgerError, match="answered already"):
            reserve(ledger, step=4)
        ledger.commit(reserve(ledger, "late", step=7))  # a stream that is given its ledger in the middle
        assert ledger.last_step("late") == 7


@pytest.mark.parametrize("change", ["step = step - 1", "owner = 'x'", "entry = 2", "pending = 'x'"])
def test_a_change_of_the_steps_is_noticed(tmp_path, change):
    with new(tmp_path / "l.sqlite") as ledger:
        ledger.commit(reserve(ledger))
        with closing(sqlite3.connect(tmp_path / "l.sqlite")) as book:
            book.execute(f"UPDATE steps SET {change}")
            book.commit()
        for ask in (lambda: reserve(ledger, step=2), lambda: ledger.last_step("k"), ledger.verify):
            with pytest.raises(StateError, match="steps of entry"):
                ask()


def test_a_ledger_of_an_earlier_version_is_refused(tmp_path):
    new(tmp_path / "l.sqlite").close()
    with closing(sqlite3.connect(tmp_path / "l.sqlite")) as book:
        book.execute("PRAGMA user_version = 1")
    with pytest.raises(StateError, match="make a new one"):
        sg.Ledger.open(tmp_path / "l.sqlite")


class Interrupted:
    """A connection during whose first BEGIN somebody presses Ctrl-C: it is done, and then raises."""

    def __init__(self, connection):
        self.connection, self.stop = connection, iter([True])

    def __getattr__(self, name):
        return getattr(self.connection, name)

    def execute(self, statement, *values):
        done = self.connection.execute(statement, *values)
        if statement.startswith("BEGIN") and next(self.stop, False):
            raise KeyboardInterrupt
        return done


def test_an_interrupted_charge_does_not_keep_others_out(tmp_path):
    with new(tmp_path / "l") as ledger, new(tmp_path / "l") as other:
        ledger._file._connection = Interrupted(ledger._file._connection)
        with pytest.raises(KeyboardInterrupt):
            ledger.charge("a", sg.PrivacyBudget(1.0), EVENT)
        other.charge("b", sg.PrivacyBudget(1.0), EVENT)
        ledger.charge("a", sg.PrivacyBudget(1.0), EVENT)
        assert [entry.product for entry in ledger.entries] == ["b", "a"]


def test_a_transaction_that_was_never_used_is_dropped_with_the_next(tmp_path):
    """An interrupt may come when it has begun and its content has not."""
    with new(tmp_path / "l") as ledger:
        ledger._file._connection.execute("BEGIN IMMEDIATE")
        ledger.charge("a", sg.PrivacyBudget(1.0), EVENT)
        assert ledger.verify() == 1


def test_damage_is_found_or_harmless(tmp_path):
    """300 flipped bits: opening says so, or the ledger tells the same as before."""
    path = tmp_path / "l.sqlite"
    with new(path) as ledger:
        for i in range(5):
            ledger.charge(f"product {i}", sg.PrivacyBudget(0.5), EVENT, content_hash=f"{i}")
        told = (ledger.entries, ledger.cap, ledger.dataset, ledger.on_repeat)
    whole = path.read_bytes()
    chooser = random.Random(3)
    found = 0
    for place in chooser.sample([i for i, byte in enumerate(whole) if byte], 300):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << chooser.randrange(8)
        path.write_bytes(bytes(damaged))
        try:
            with sg.Ledger.open(path) as ledger:
                assert (ledger.entries, ledger.cap, ledger.dataset, ledger.on_repeat) == told, place
        except (StateError, LedgerError):
            found += 1
    assert found > 150
    for ruin in (b"", whole[:1000], b"x" * 5000):
        path.write_bytes(ruin)
        with pytest.raises((StateError, LedgerError)):
            new(path)


def test_the_file_is_private(tmp_path):
    old = os.umask(0)
    try:
        with new(tmp_path / "l.sqlite") as ledger:
            ledger.charge("x", sg.PrivacyBudget(1.0), EVENT)
            assert {stat.S_IMODE(p.stat().st_mode) for p in tmp_path.iterdir()} == {0o600}
    finally:
        os.umask(old)


CHARGER = """
import sys
sys.path.insert(0, sys.argv[1])
import synthgeo as sg
from synthgeo.errors import LedgerError
won = 0
with sg.Ledger.open(sys.argv[2], dataset="taxi-2015", cap=sg.PrivacyBudget(4.0, 1e-6)) as ledger:
    for _ in range(15):
        try:
            ledger.charge("p", sg.PrivacyBudget(0.1), sg.PrivacyUnit.event())
            won += 1
        except LedgerError:
            pass
print(won)
"""


def test_processes_that_charge_together_stay_under_the_cap(tmp_path):
    """Four processes want 60 tenths of a cap of 40; they also race to create the file."""
    root = str(Path(__file__).resolve().parents[2])
    command = [sys.executable, "-c", CHARGER, root, str(tmp_path / "l.sqlite")]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    running = [subprocess.Popen(command, **pipes) for _ in range(4)]
    ends = [process.communicate(timeout=120) for process in running]
    assert [errors for _, errors in ends] == [""] * 4
    assert sum(int(won) for won, _ in ends) == 40
    with sg.Ledger.open(tmp_path / "l.sqlite") as ledger:
        assert ledger.verify() == 40
        assert ledger.spent.epsilon == pytest.approx(4.0)
    assert not list(tmp_path.glob("*.tmp"))


def test_a_ledger_has_its_log_from_the_start(tmp_path):
    """Changing to a log waits for nobody: of two processes that open a new file, one would be turned away."""
    path = tmp_path / "l.sqlite"
    book = "CREATE TABLE book (number INTEGER PRIMARY KEY, chain TEXT);"
    assert LedgerFile.create(path, kind="test", version=1, schema=book, meta={})
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert [left.name for left in tmp_path.iterdir()] == ["l.sqlite"]


def test_another_kind_of_file_is_refused(tmp_path):
    sqlite3.connect(tmp_path / "other.sqlite").execute("CREATE TABLE t (x)").connection.close()
    with pytest.raises(StateError, match="not a ledger"):
        new(tmp_path / "other.sqlite")
    with pytest.raises(LedgerError):
        new(tmp_path / "no" / "folder" / "l.sqlite")


class TestKeys:
    """A product is charged once in its life, wherever it was interrupted, saved and loaded."""

    def test_a_key_is_found_again(self, tmp_path):
        with new(tmp_path / "l.sqlite") as ledger:
            key = ledger.new_key()
            assert ledger.find(key) is None
            entry = ledger.charge("run", sg.PrivacyBudget(1.0), EVENT, key=key)
            assert ledger.find(key) == entry
            assert ledger.find(ledger.new_key()) is None

    def test_a_ledger_is_known_wherever_it_is_moved(self, tmp_path):
        with new(tmp_path / "a.sqlite") as a, new(tmp_path / "b.sqlite") as b:
            mine, other = a.identity, b.identity
        (tmp_path / "a.sqlite").rename(tmp_path / "moved.sqlite")
        with sg.Ledger.open(tmp_path / "moved.sqlite") as moved:
            assert moved.identity == mine != other

    def test_checking_charges_nothing(self, tmp_path):
        with new(tmp_path / "l.sqlite", on_repeat="refuse") as ledger:
            ledger.charge("trips", sg.PrivacyBudget(3.0), EVENT, content_hash="data")
            ledger.check("trips", sg.PrivacyBudget(1.0), EVENT)
            with pytest.raises(LedgerError, match="cap"):
                ledger.check("trips", sg.PrivacyBudget(1.5), EVENT)
            with pytest.raises(LedgerError, match="before"):
                ledger.check("trips", sg.PrivacyBudget(0.1), EVENT, content_hash="data")
            assert ledger.spent == sg.PrivacyBudget(3.0)


def test_a_ledger_that_was_replaced_takes_no_charge(tmp_path):
    """SQLite goes on writing to a file that has lost its name: the charge would be nowhere."""
    path = tmp_path / "l.sqlite"
    with new(path) as ledger:
        ledger.charge("one", sg.PrivacyBudget(1.0), EVENT)
        copy = path.read_bytes()
        path.unlink()
        with pytest.raises(LedgerError, match="gone"):
            ledger.charge("two", sg.PrivacyBudget(1.0), EVENT)
        path.write_bytes(copy)
        with pytest.raises(LedgerError, match="replaced"):
            ledger.charge("two", sg.PrivacyBudget(1.0), EVENT)
    with sg.Ledger.open(path) as ledger:
        assert ledger.spent == sg.PrivacyBudget(1.0)


def test_a_read_only_ledger_can_be_read(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    with new(folder / "l.sqlite") as ledger:
        ledger.charge("one", sg.PrivacyBudget(1.0), EVENT)
    (folder / "l.sqlite").chmod(0o400)
    folder.chmod(0o500)
    before = sorted((path.name, path.stat().st_mtime_ns) for path in folder.iterdir())
    try:
        with sg.Ledger.open(folder / "l.sqlite", read_only=True) as ledger:
            assert (ledger.verify(), ledger.spent) == (1, sg.PrivacyBudget(1.0))
            with pytest.raises(LedgerError, match="cannot write"):
                ledger.charge("two", sg.PrivacyBudget(1.0), EVENT)
        assert sorted((path.name, path.stat().st_mtime_ns) for path in folder.iterdir()) == before
    finally:
        folder.chmod(0o700)
    with pytest.raises(LedgerError, match="gone"):
        sg.Ledger.open(tmp_path / "none.sqlite", read_only=True)


def test_what_a_killed_creation_left_goes_with_the_next(tmp_path):
    import os

    old, young = tmp_path / ".l.sqlite.old.tmp", tmp_path / ".l.sqlite.young.tmp"
    for path in (old, young):
        path.write_text("half a ledger")
    os.utime(old, (1, 1))
    new(tmp_path / "l.sqlite").close()
    assert not old.exists()
    assert young.exists(), "another process may be at work on it"

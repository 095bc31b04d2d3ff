"""Durable runs and damage: what is broken is refused, and nothing is answered twice."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import numpy as np
import pytest

import streams.runs.journal
from streams.runs.run import StreamRun
from synthgeo.errors import ConfigError, LedgerError, StateError
from synthgeo.privacy.noise import SeededNoise
from tests.streams.tally import FrameTally, Tally


def tally(**options):
    return Tally(**{"noise": SeededNoise(3), **options})


def three_steps(directory, stream=None):
    """A closed run of three steps; its released values."""
    with StreamRun.open(directory, stream or tally()) as run:
        return [run.step(f"b{i}", np.array([i, 1])) for i in range(3)]


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
    (folder / "other").mkdir()
    (folder / "other" / "ledger.sqlite-wal").write_bytes(b"the log of a lost ledger")
    with pytest.raises(StateError, match="its log is there"):
        StreamRun.open(folder / "other", tally())


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


@pytest.mark.slow
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
    monkeypatch.setattr(streams.runs.journal.Journal, "fold", lambda _book: None)
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
        real = getattr(streams.runs.journal.Journal, name)

        def noted(book, *args):
            real(book, *args)
            journal.append((name, ""))

        return noted

    with StreamRun.open(folder / "run", FrameTally(noise=SeededNoise(1))) as run:
        monkeypatch.setattr(os, "fsync", sync)
        monkeypatch.setattr(Path, "rename", rename)
        for name in ("intend", "decide", "finish"):
            monkeypatch.setattr(streams.runs.journal.Journal, name, noting(name))
        run.step("b", np.array([3]))
        monkeypatch.undo()
        assert run._journal.query("PRAGMA synchronous")[0][0] == 2, "FULL: a commit is synced"
        assert run._journal.query("PRAGMA journal_mode")[0][0] == "wal"
    place = journal.index
    decided, finished = place(("decide", "")), place(("finish", ""))
    assert place(("intend", "")) == 0
    for name in ("data.parquet", "000001-b", "000001.state", "pending"):
        assert ("sync", name) in journal[:decided], f"{name} is not on disk when its step is decided"
    state, release = place(("rename", "000001.state")), place(("rename", "000001-b"))
    assert decided < state < release < finished
    assert ("sync", "state") in journal[state:release]
    assert ("sync", "releases") in journal[release:finished]


def rechain(path, table, values, *, where="1"):
    """Change a ledger and seal it again, as a stranger could who sends it to us."""
    import json
    import sqlite3

    from synthgeo.privacy.ledger_file import link

    connection = sqlite3.connect(path)
    connection.row_factory = sqlite3.Row
    for name, value in values.items():
        if table == "meta":
            connection.execute("UPDATE meta SET value = ? WHERE name = ?", (json.dumps(value), name))
        else:
            connection.execute(f"UPDATE book SET {name} = ? WHERE {where}", (value,))
    rows = connection.execute("SELECT name, value FROM meta").fetchall()
    chain = link("", sorted((row["name"], row["value"]) for row in rows))
    for row in connection.execute("SELECT * FROM book ORDER BY number").fetchall():
        chain = link(chain, [row[name] for name in streams.runs.journal._CHAINED])
        connection.execute("UPDATE book SET chain = ? WHERE number = ?", (chain, row["number"]))
    connection.execute("UPDATE head SET chain = ?", (chain,))
    connection.commit()
    connection.close()


@pytest.mark.parametrize(
    ("column", "name"),
    [
        ("release", "../../target"),
        ("state", "../../target"),
        ("release", "000003-x/../../../target"),
        ("release", "/etc"),
        ("state", ".."),
    ],
)
def test_a_strangers_journal_reaches_nothing_outside(folder, column, name):
    three_steps(folder / "run")
    (folder / "target").mkdir()
    (folder / "target" / "file").write_text("mine")
    rechain(folder / "run" / "ledger.sqlite", "book", {column: name, "done": 0}, where="number = 3")
    with pytest.raises(StateError, match="no state and no release"):
        StreamRun.open(folder / "run", tally())
    with StreamRun.view(folder / "run") as view, pytest.raises(StateError, match="no state and no release"):
        view.verify()
    assert (folder / "target" / "file").read_text() == "mine"


@pytest.mark.parametrize(
    "facts",
    [
        {"parts": ["../../x"]},
        {"parts": 3},
        {"budget": {"epsilon": -1}},
        {"budget": []},
        {"unit": {"of": "nothing"}},
        {"unit": 7},
    ],
)
def test_a_strangers_facts_are_refused(folder, facts):
    three_steps(folder / "run")
    rechain(folder / "run" / "ledger.sqlite", "meta", facts)
    with pytest.raises(StateError):
        StreamRun.view(folder / "run")
    with pytest.raises(StateError):
        StreamRun.open(folder / "run", tally())


@pytest.mark.parametrize("mechanism", ["Ledger", "report", "os", "__builtins__", "PrivacyBudget"])
def test_only_streams_are_made_of_a_name(folder, mechanism):
    three_steps(folder / "run")
    rechain(folder / "run" / "ledger.sqlite", "meta", {"mechanism": mechanism})
    with pytest.raises(ConfigError, match="not one of the toolkit's streams"):
        StreamRun.open(folder / "run")
    with StreamRun.view(folder / "run") as view, pytest.raises(ConfigError, match="not one of"):
        view.stream()

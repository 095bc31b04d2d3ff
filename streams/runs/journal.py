"""The journal of a durable run: one chained row for each step, and a log of attempts beside it."""

from __future__ import annotations

import hmac
import json
import os
import secrets
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from synthgeo.errors import LedgerError
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.ledger_file import LedgerFile

KIND = "stream run"
VERSION = 2
# A clock that is further behind than this is a machine to look at, perhaps one restored from a snapshot.
CLOCK_TOLERANCE = timedelta(hours=1)

_CHAINED = (
    "number",
    "batch",
    "content",
    "time",
    "epsilon",
    "delta",
    "release",
    "state",
    "hashes",
    "provenance",
    "version",
)
_BOOK = """
CREATE TABLE book (
    number INTEGER PRIMARY KEY, batch TEXT NOT NULL UNIQUE, content TEXT NOT NULL, time TEXT NOT NULL, epsilon
    REAL NOT NULL, delta REAL NOT NULL, release TEXT NOT NULL, state TEXT NOT NULL, hashes TEXT NOT NULL,
    provenance TEXT, version TEXT NOT NULL, chain TEXT NOT NULL, done INTEGER NOT NULL
);
CREATE TABLE attempts (
    number INTEGER PRIMARY KEY AUTOINCREMENT, batch TEXT NOT NULL, time TEXT NOT NULL, outcome TEXT
);
"""
# What version 2 adds: facts that become known later, where a batch's files were seen, and a way to find a
# content.
_ADDED = """
ALTER TABLE book ADD COLUMN marks TEXT;
CREATE TABLE notes (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE INDEX by_content ON book (content);
"""


class Journal(LedgerFile):
    """Steps and attempts of one run. A row holds what the stream had spent in all after its step.

    ``facts`` are fixed when the run begins and sealed by the chain. One process writes at a time; if another
    one has written all the same, ``check_head`` says so.
    """

    def __init__(self, path: str | os.PathLike[str], *, read_only: bool = False) -> None:
        super().__init__(path, kind=KIND, version=VERSION, chained=_CHAINED, read_only=read_only)
        if not read_only and self.version < VERSION:
            self.upgrade(_ADDED, VERSION)
        self.facts = self.meta()
        self._salt = bytes.fromhex(self.facts["salt"])
        self._known_head = self.head()

    @staticmethod
    def recognise(path: Path) -> None:
        """``StateError`` if a file is no journal of a run. Changes nothing."""
        LedgerFile(path, kind=KIND, version=VERSION, chained=_CHAINED, read_only=True, checked=False).close()

    @staticmethod
    def start(path: Path, facts: Mapping[str, Any]) -> None:
        """Make the journal of a new run."""
        own = {
            "run": secrets.token_hex(16),
            "salt": secrets.token_hex(32),
            "created": _iso(datetime.now(UTC)),
        }
        LedgerFile.create(path, kind=KIND, version=VERSION, schema=_BOOK + _ADDED, meta={**facts, **own})

    def salted(self, text: str) -> str:
        """A hash of ``text`` that tells nothing to whoever does not have the journal."""
        return hmac.new(self._salt, text.encode(), "sha256").hexdigest()

    def check_head(self) -> None:
        """``LedgerError`` if the last row is not the one that this process knows."""
        if self.head() != self._known_head:
            raise LedgerError(
                f"another process has written to {self.path.parent} while this one had it open; "
                "nothing was released; close it and open it again"
            )

    def steps(self, *columns: str) -> list[Any]:
        """These columns of all rows, in order."""
        return self.query(f"SELECT {', '.join(columns)} FROM book ORDER BY number")  # noqa: S608

    def batches(self) -> list[str]:
        """The batches of all steps, in order."""
        return [row[0] for row in self.steps("batch")]

    def count(self) -> int:
        """How many steps are decided."""
        return int(self.query("SELECT count(*) FROM book")[0][0])

    def last(self) -> Any:
        """The last row, or None."""
        return self._one("SELECT * FROM book ORDER BY number DESC LIMIT 1")

    def of_batch(self, batch_id: str) -> Any:
        """The row of a batch, or None."""
        return self._one("SELECT * FROM book WHERE batch = ?", batch_id)

    def of_content(self, content: str) -> Any:
        """The first row with this content, or None."""
        return self._one("SELECT * FROM book WHERE content = ? ORDER BY number LIMIT 1", content)

    def unfinished(self) -> list[Any]:
        """Steps that were decided and whose files may not be in place."""
        return self.query("SELECT * FROM book WHERE done = 0 ORDER BY number")

    def totals(self) -> list[tuple[float, float]]:
        """Spent before the first step, after it, after the second, and so on."""
        return [tuple(self.facts["start"]), *map(tuple, self.steps("epsilon", "delta"))]

    def spent(self) -> tuple[float, float]:
        """Spent after the last step."""
        row = self.last()
        return tuple(self.facts["start"]) if row is None else (row["epsilon"], row["delta"])

    def statement(self) -> dict[str, Any]:
        """The statement that goes with the last release, or with the stream where there is none yet."""
        row = self.last()
        text = None if row is None else row["provenance"]
        return dict((json.loads(text) if text else self.facts["statement"]) or {})

    def releasable(self) -> bool | None:
        """Whether what the run releases may be published; None where that is not known."""
        return self.statement().get("releasable", self.facts.get("releasable"))

    def intend(self, batch_id: str, time: str) -> None:
        """Record that a batch is about to be taken."""
        with self.transaction() as connection:
            connection.execute("INSERT INTO attempts (batch, time) VALUES (?, ?)", (batch_id, time))

    def decide(self, row: Mapping[str, Any], notes: Mapping[str, Any] | None = None) -> None:
        """Record a step, with its notes: from here on it is made, whatever happens."""
        with self.transaction() as connection:
            self.check_head()
            self.append({**row, "done": 0})
            for name, value in (notes or {}).items():
                connection.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (name, json.dumps(value)))
            connection.execute("UPDATE attempts SET outcome = 'released' WHERE outcome IS NULL")
            head = self.head()
        self._known_head = head

    def finish(self, batch_id: str) -> None:
        """Record that a step's files are in place."""
        with self.transaction() as connection:
            connection.execute("UPDATE book SET done = 1 WHERE batch = ?", (batch_id,))
        self.fold()

    def give_up(self, outcome: str) -> None:
        """Close attempts that came to nothing: "undone" (interrupted) or "refused" (bad input)."""
        if self.query("SELECT 1 FROM attempts WHERE outcome IS NULL"):
            with self.transaction() as connection:
                connection.execute("UPDATE attempts SET outcome = ? WHERE outcome IS NULL", (outcome,))

    def interrupted(self) -> int:
        """How many attempts were interrupted before anything was released."""
        return int(self.query("SELECT count(*) FROM attempts WHERE outcome = 'undone'")[0][0])

    def note(self, name: str) -> Any:
        """A fact that became known after the run had begun, or None."""
        if self.version < VERSION:
            return None
        row = self._one("SELECT value FROM notes WHERE name = ?", name)
        return None if row is None else json.loads(row["value"])

    def keep_note(self, name: str, value: Any) -> None:
        """Record such a fact, in place of what was recorded under its name."""
        with self.transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (name, json.dumps(value)))

    def notes(self, kind: str) -> dict[int, Any]:
        """The facts of a kind that are about steps, by the number of the step."""
        if self.version < VERSION:
            return {}
        rows = self.query("SELECT name, value FROM notes WHERE name LIKE ?", f"{kind} %")
        return {
            int(row["name"].partition(" ")[2]): json.loads(row["value"]) for row in sorted(rows, key=tuple)
        }

    def forget_notes(self, kind: str, before: int) -> None:
        """Forget the facts of a kind that are about steps before this one."""
        names = [(f"{kind} {number}",) for number in self.notes(kind) if number < before]
        if names:
            with self.transaction() as connection:
                connection.executemany("DELETE FROM notes WHERE name = ?", names)

    def summarise(self, removed: Callable[[int], bool]) -> None:
        """Keep, of the steps whose releases were removed, what tells batches apart and what was spent.

        The hashes of files that are gone, statements that went with them and the log of attempts that led
        to a release make most of a journal's size. Every row stays in the chain, which is sealed anew, in
        one transaction; the hash that the last row had before is noted.
        """
        self.check()
        with self.transaction() as connection:
            self.check_head()
            before = self.head()
            full = connection.execute("SELECT number FROM book WHERE hashes != '{}'").fetchall()
            folded = [(row["number"],) for row in full if removed(row["number"])]
            connection.executemany(
                "UPDATE book SET hashes = '{}', provenance = NULL WHERE number = ?", folded
            )
            connection.execute("DELETE FROM attempts WHERE outcome = 'released'")
            self.seal_again()
            if folded:
                note = json.dumps({"rows": before[0], "chain": before[1]})
                connection.execute("INSERT OR REPLACE INTO notes VALUES ('summarised', ?)", (note,))
            head = self.head()
        self._known_head = head
        self.shrink()

    def now(self, *, allow_clock_back: bool) -> str:
        """The time for a new row, never before the last one's; ``LedgerError`` if the clock is far behind."""
        row = self.last()
        times = [self.facts["created"], *([] if row is None else [row["time"]])]
        last, now = datetime.fromisoformat(max(times)), datetime.now(UTC)
        if now < last - CLOCK_TOLERANCE and not allow_clock_back:
            raise LedgerError(
                f"the clock says {now:%Y-%m-%d %H:%M}, but the last step was made at {last:%Y-%m-%d %H:%M}: "
                "set it right (or, if it was wrong before, open with allow_clock_back=True)"
            )
        return _iso(max(now, last))

    def _one(self, statement: str, *values: Any) -> Any:
        rows = self.query(statement, *values)
        return rows[0] if rows else None


def numbers_of(budget: PrivacyBudget | None) -> tuple[float, float]:
    """ε and δ, zero for nothing spent."""
    return (0.0, 0.0) if budget is None else (budget.epsilon, budget.delta)


def budget_of(numbers: tuple[float, float]) -> PrivacyBudget | None:
    """The budget that ``numbers_of`` took apart."""
    return PrivacyBudget(*numbers) if numbers[0] > 0 else None


def _iso(time: datetime) -> str:
    return time.isoformat(timespec="seconds")

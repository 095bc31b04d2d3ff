"""The SQLite file under a ledger: private, durable, and damaged in no way that goes unnoticed.

* A new file appears under its name complete or not at all, so an empty or headless file is damage, never a
  new ledger.
* Write-ahead log with ``synchronous=FULL``: a transaction that returned is on disk. The log is folded into
  the file after each one that matters, so that little depends on it.
* A file that is moved away or replaced while it is open is noticed before anything more is written: SQLite
  would go on writing to a file that no longer has a name.
* SQLite does not notice a flipped bit in a number. Here every row of the book carries a hash over itself and
  the row before it, and the head row remembers the last hash and the number of rows: a changed, missing or
  added row breaks the chain.

The file is created with mode 0600; SQLite gives its log the same.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from synthgeo import validate
from synthgeo.errors import LedgerError, StateError, SynthGeoError
from synthgeo.state import sync_folder

_APPLICATION = 0x53474C31  # "SGL1"
_BOOK = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE head (only INTEGER PRIMARY KEY CHECK (only = 1), rows INTEGER NOT NULL, chain TEXT NOT NULL);
"""
_WAIT_SECONDS = 30.0
_FORGOTTEN_SECONDS = 3600.0


class LedgerFile:
    """An SQLite file with a sealed ``meta`` table and one chained table, ``book``.

    ``schema`` creates ``book`` (with an integer primary key ``number`` from 1 and a text column ``chain``)
    and any tables beside it. ``chained`` names the columns of ``book`` that the chain covers, in order.
    ``checked=False`` looks at the kind of the file alone.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        kind: str,
        version: int,
        chained: Sequence[str],
        read_only: bool = False,
        checked: bool = True,
    ) -> None:
        self.path = Path(path).absolute()  # the process may change its folder
        self.chained = tuple(chained)
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        self._inode = self._inode_now()
        quiet = not self._log.exists()
        try:
            self._open(kind, version, read_only=read_only, checked=checked)
        except StateError:
            if not (read_only and quiet and self._log.exists()):
                raise
            # A writer came while it was read.
            self._open(kind, version, read_only=True, checked=checked)

    def _open(self, kind: str, version: int, *, read_only: bool, checked: bool) -> None:
        with _translated(self.path):
            self._connection = self._open_to_read() if read_only else self._connect(self.path, "mode=rw")
        try:
            with _translated(self.path):
                self.version = self._check_format(kind, version)
                if not read_only:
                    self._connection.execute("PRAGMA journal_mode = WAL")
                    self._connection.execute("PRAGMA synchronous = FULL")
                if checked:
                    self.check()
        except BaseException:
            self.close()
            raise

    @property
    def _log(self) -> Path:
        return Path(f"{self.path}-wal")

    @staticmethod
    def _connect(path: Path, options: str, *trials: str) -> sqlite3.Connection:
        """A connection on which these statements succeed."""
        uri = f"file:{quote(str(path.resolve()))}?{options}"
        connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=_WAIT_SECONDS)
        connection.row_factory = sqlite3.Row
        try:
            for statement in ("PRAGMA trusted_schema = OFF", *trials):
                connection.execute(statement).fetchall()
        except BaseException:
            connection.close()
            raise
        return connection

    def _open_to_read(self) -> sqlite3.Connection:
        """A connection that writes nothing, also beside a writer, and also where nothing can be written."""
        if not self._log.exists():  # nobody has it open: it is whole as it is
            return self._connect(self.path, "mode=ro&immutable=1")
        try:
            return self._connect(self.path, "mode=ro", "SELECT * FROM head")
        except sqlite3.OperationalError:  # a log that only a writer could read: look at a copy of both
            self._copy = tempfile.TemporaryDirectory()
            copy = Path(self._copy.name) / self.path.name
            shutil.copyfile(self.path, copy)
            shutil.copyfile(self._log, f"{copy}-wal")
            return self._connect(copy, "mode=rw")

    @staticmethod
    def create(
        path: str | os.PathLike[str], *, kind: str, version: int, schema: str, meta: Mapping[str, Any]
    ) -> bool:
        """Make a new ledger file; False when there is one already."""
        validate.utf8_path(path)
        target = Path(path)
        # Looked for first: a log that another process is just making belongs to a file that is there by then.
        if Path(f"{target}-wal").exists() and not target.exists():
            raise StateError(f"{target} is missing, but its log is there: a ledger was lost; refused")
        _clear_remains(target)
        values = {name: json.dumps(value, sort_keys=True) for name, value in {**meta, "kind": kind}.items()}
        try:
            handle, name = tempfile.mkstemp(
                dir=target.parent, prefix=f".{target.name}.", suffix=".tmp"
            )  # 0600
        except OSError as problem:
            raise LedgerError(f"cannot create {target}: {problem.strerror}") from problem
        os.close(handle)
        try:
            try:
                with _translated(target):
                    _fill(name, version, schema, sorted(values.items()))
                # A disk that fills up while SQLite folds its log into the file is no error to SQLite.
                LedgerFile(name, kind=kind, version=version, chained=(), read_only=True).close()
            except StateError as problem:
                raise LedgerError(f"cannot create {target}: is the disk full?") from problem
            try:
                os.link(name, target)  # fails where rename would replace another process's new ledger
            except FileExistsError:
                return False
            sync_folder(target.parent)
        except OSError as problem:
            raise LedgerError(f"cannot create {target}: {problem.strerror}") from problem
        finally:
            for end in ("", "-wal", "-shm"):
                Path(f"{name}{end}").unlink(missing_ok=True)
        return True

    def _check_format(self, kind: str, version: int) -> int:
        """The version of the file, if it is of this kind and not newer than ``version``."""
        application = self._connection.execute("PRAGMA application_id").fetchone()[0]
        found = self._connection.execute("PRAGMA user_version").fetchone()[0]
        if application != _APPLICATION:
            raise StateError(f"{self.path} is not a ledger of this toolkit, or a damaged one")
        if found > version:
            raise StateError(
                f"{self.path}: version {found}, this synthgeo reads up to {version}; upgrade to read it"
            )
        if self.meta().get("kind") != kind:
            raise StateError(f"{self.path} holds another kind of ledger than {kind!r}")
        return int(found)

    def upgrade(self, statements: str, version: int) -> None:
        """Bring the tables of an older version up to ``version``; older programs refuse the file then."""
        with self.transaction() as connection:
            for statement in statements.split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {int(version)}")
        self.fold()
        self.version = version

    def meta(self) -> dict[str, Any]:
        """The facts fixed when the ledger was made."""
        with _translated(self.path):
            rows = self._connection.execute("SELECT name, value FROM meta").fetchall()
            return {row["name"]: json.loads(row["value"]) for row in rows}

    def check(self) -> None:
        """Read everything and follow the chain; ``StateError`` at the first sign of damage."""
        with _translated(self.path):
            # One transaction, so that another process's charge does not come between two of these reads.
            with self.transaction(write=False):
                found = [row[0] for row in self._connection.execute("PRAGMA integrity_check")]
                if found != ["ok"]:
                    where = str(found[0]).partition("\n")[0]
                    raise StateError(f"{self.path} is damaged ({where})")
                values = self._connection.execute("SELECT name, value FROM meta").fetchall()
                chain = link("", sorted((row["name"], row["value"]) for row in values))
                cursor = self._connection.cursor()
                cursor.row_factory = None  # plain tuples: there may be 10^5 of them
                names = ", ".join(("number", *self.chained, "chain"))
                count = 0
                for row in cursor.execute(f"SELECT {names} FROM book ORDER BY number"):  # noqa: S608
                    count += 1
                    chain = link(chain, row[1:-1])
                    if row[0] != count or row[-1] != chain:
                        raise StateError(
                            f"{self.path} is damaged: entry {count} does not fit the one before it"
                        )
                head = self._connection.execute("SELECT rows, chain FROM head").fetchall()
            if [tuple(row) for row in head] != [(count, chain)]:
                raise StateError(f"{self.path} is damaged: its last entry is not the one it should be")

    @contextmanager
    def transaction(self, *, write: bool = True) -> Iterator[sqlite3.Connection]:
        """All of it or nothing; when this returns, it is on disk."""
        with _translated(self.path):
            if self._connection.in_transaction:  # an interrupt came between its beginning and its content
                self._connection.execute("ROLLBACK")
            try:
                self._connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
                yield self._connection
                if write and self._inode_now() != self._inode:
                    raise LedgerError(f"{self.path} was replaced by another file; close it and open it again")
                self._connection.execute("COMMIT")
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")

    def _inode_now(self) -> tuple[int, int]:
        """Which file has the name now."""
        try:
            found = self.path.stat()
        except OSError as problem:
            raise LedgerError(f"{self.path} is gone ({problem.strerror})") from problem
        return found.st_dev, found.st_ino

    def head(self) -> tuple[int, str]:
        """How many rows the book has, and the hash of the last one."""
        row = self.query("SELECT rows, chain FROM head")[0]
        return int(row["rows"]), str(row["chain"])

    def append(self, values: Mapping[str, Any]) -> int:
        """Add a row to the book, inside a transaction; its number."""
        head = self._connection.execute("SELECT rows, chain FROM head").fetchone()
        number = int(head["rows"]) + 1
        row = {**values, "number": number}
        row["chain"] = link(head["chain"], [row[name] for name in self.chained])
        names = ", ".join(row)
        marks = ", ".join("?" for _ in row)
        self._connection.execute(f"INSERT INTO book ({names}) VALUES ({marks})", tuple(row.values()))  # noqa: S608
        self._connection.execute("UPDATE head SET rows = ?, chain = ?", (number, row["chain"]))
        return number

    def seal_again(self) -> None:
        """Chain all rows anew, inside a transaction that has changed some of them on purpose.

        Whoever calls it has checked the file before: the new chain vouches for whatever is there.
        """
        names = ", ".join(("number", *self.chained, "chain"))
        values = self._connection.execute("SELECT name, value FROM meta").fetchall()
        chain = link("", sorted((row["name"], row["value"]) for row in values))
        cursor = self._connection.cursor()
        cursor.row_factory = None
        changed = []
        for row in cursor.execute(f"SELECT {names} FROM book ORDER BY number"):  # noqa: S608
            chain = link(chain, row[1:-1])
            if chain != row[-1]:
                changed.append((chain, row[0]))
        self._connection.executemany("UPDATE book SET chain = ? WHERE number = ?", changed)
        self._connection.execute("UPDATE head SET chain = ?", (chain,))

    def shrink(self) -> None:
        """Give the room of what was removed back to the disk."""
        with _translated(self.path):
            self._connection.execute("VACUUM")
        self.fold()

    def query(self, statement: str, *values: Any) -> list[sqlite3.Row]:
        """Rows of a SELECT."""
        with _translated(self.path):
            return self._connection.execute(statement, values).fetchall()

    def fold(self) -> None:
        """Move the write-ahead log into the file."""
        with _translated(self.path):
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()
        if self._copy is not None:
            self._copy.cleanup()


def _fill(name: str, version: int, schema: str, meta: Sequence[tuple[str, str]]) -> None:
    """Write a new ledger's tables and facts, and fold the log into the file."""
    connection = sqlite3.connect(name, isolation_level=None)
    try:
        connection.execute("PRAGMA synchronous = FULL")
        # Now, while nobody else has it: SQLite does not wait for its turn to change this.
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(f"BEGIN; {_BOOK} {schema}")
        connection.execute(f"PRAGMA application_id = {_APPLICATION}")
        connection.execute(f"PRAGMA user_version = {int(version)}")
        connection.executemany("INSERT INTO meta VALUES (?, ?)", meta)
        connection.execute("INSERT INTO head VALUES (1, 0, ?)", (link("", meta),))
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        connection.close()


def _clear_remains(target: Path) -> None:
    """Remove what a creation left that was killed: an hour later nobody is at work on it."""
    for path in target.parent.glob(f".{glob.escape(target.name)}.*.tmp*"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > _FORGOTTEN_SECONDS:
                path.unlink()


def link(before: str, fields: Sequence[Any]) -> str:
    """The hash of a row that follows one with hash ``before``."""
    return hashlib.sha256((before + json.dumps(fields)).encode()).hexdigest()


_UNWRITABLE = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM}


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    """SQLite's errors as this toolkit's."""
    try:
        yield
    except sqlite3.ProgrammingError as problem:
        raise LedgerError(f"{path} cannot be used here: {problem}") from problem  # closed, or another thread
    except sqlite3.Error as problem:
        code = getattr(problem, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise LedgerError(f"{path} is in use by another process") from problem
        if code == sqlite3.SQLITE_FULL:
            raise LedgerError(f"cannot write {path}: the disk is full") from problem
        if code in _UNWRITABLE:
            raise LedgerError(f"cannot write {path}: {problem}") from problem
        if code == sqlite3.SQLITE_IOERR:
            raise LedgerError(f"cannot read or write {path}: {problem}") from problem
        reason = str(problem).partition("\n")[0]
        raise StateError(f"{path} is damaged ({reason})") from problem
    except SynthGeoError:
        raise
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as problem:
        # A flipped bit can turn a number into text, or a name into another.
        raise StateError(f"{path} is damaged ({type(problem).__name__})") from problem

"""One dataset, several products: a ledger that adds up what they spend and stops at a cap.

>>> import tempfile, pathlib
>>> from synthgeo.privacy.budget import PrivacyBudget
>>> from synthgeo.privacy.unit import PrivacyUnit
>>> folder = pathlib.Path(tempfile.mkdtemp())
>>> ledger = Ledger.open(folder / "ledger.sqlite", dataset="taxi-2015", cap=PrivacyBudget(epsilon=4.0))
>>> entry = ledger.charge("city stream", PrivacyBudget(epsilon=1.0), PrivacyUnit.event())
>>> ledger.remaining
PrivacyBudget(epsilon=3.0, delta=0.0)
>>> ledger.close()
"""

from __future__ import annotations

import hmac
import json
import math
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, cast

from synthgeo.errors import ConfigError, LedgerError, StateError, SynthGeoError
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.ledger_file import LedgerFile, link
from synthgeo.privacy.unit import PrivacyUnit

if TYPE_CHECKING:
    import pandas as pd

KIND = "dataset ledger"
VERSION = 2
OnRepeat = Literal["record", "refuse"]

_CHAINED = (
    "number",
    "time",
    "product",
    "epsilon",
    "delta",
    "unit",
    "content",
    "once",
    "repeats",
    "version",
)
_SCHEMA = """
CREATE TABLE book (
    number INTEGER PRIMARY KEY, time TEXT NOT NULL, product TEXT NOT NULL, epsilon REAL NOT NULL, delta REAL
    NOT NULL, unit TEXT NOT NULL, content TEXT, once TEXT UNIQUE, repeats INTEGER, version TEXT NOT NULL,
    chain TEXT NOT NULL
);
CREATE TABLE steps (
    once TEXT PRIMARY KEY, entry INTEGER NOT NULL, step INTEGER NOT NULL, owner TEXT, pending TEXT, content
    TEXT, seal TEXT NOT NULL
);
"""
# One row for each product that reserves: its entry in the book, the last step committed and who committed it,
# who reserved the step after it, and for what content. Each row has a hash of its own: it changes, so that it
# is no part of the chain.
_STEP = ("once", "entry", "step", "owner", "pending", "content")


@dataclass(frozen=True)
class LedgerEntry:
    """One charge: what was spent, on what, when."""

    number: int
    time: str
    product: str
    budget: PrivacyBudget
    unit: PrivacyUnit
    repeats: int | None
    version: str

    @property
    def covers(self) -> str:
        """What one charge pays for, in words."""
        if "stream" not in self.product.lower():
            return "one release"
        things = "trips" if self.unit.of == "trajectory" else "events"
        if not self.unit.is_user:
            return f"all batches of one stream: they share no {things}, so they do not add up"
        span = "the life of the stream" if self.unit.per is None else "each period"
        return f"all batches of one stream: a user may be in many, with one bound on {things} for {span}"


@dataclass(frozen=True)
class Reservation:
    """The right to draw one step of one product. It ends when somebody else reserves the same step."""

    key: str
    step: int
    token: str


class Ledger:
    """What all products of one dataset spend together. Open one with ``Ledger.open``.

    Guarantee
    ---------
    By basic composition the products charged here are together (sum of ε, sum of δ)-differentially private,
    and that sum never exceeds the cap. The unit is the weakest one charged: a product that protects users
    also protects each of their events with the same ε, not the other way round. ``show`` lists the unit of
    each.

    A stream is one charge for its life. Within one stream whose unit is the event or the trip, batches share
    no unit (the stream sees to it), so that a unit pays for its own batch alone (parallel composition). Two
    products over the same data do share units, whatever they are, and add up.

    A charge is on disk before any noise is drawn for it, and is never given back. The ledger is also the one
    place that says which step of a product is next. A product reserves its next step (``reserve``), draws,
    stores what it drew, and commits the step (``commit``) before anybody can see the result. A step is
    committed once: of several copies of one state, or several processes, one commits and the others discard
    what they drew unseen. So one charge pays for one answer to each step. A reservation that was abandoned
    is taken over by whoever reserves the step next, at no cost. Several processes may use one ledger at a
    time.
    """

    def __init__(self, file: LedgerFile) -> None:
        self._file = file
        meta = file.meta()
        self.dataset: str = meta["dataset"]
        self.cap = PrivacyBudget(**meta["cap"])
        self.on_repeat: OnRepeat = meta["on_repeat"]
        self._salt = bytes.fromhex(meta["salt"])

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        dataset: str | None = None,
        cap: PrivacyBudget | None = None,
        on_repeat: OnRepeat | None = None,
        read_only: bool = False,
    ) -> Self:
        """Open a ledger, or make it where there is none (then ``dataset`` and ``cap`` are needed).

        ``on_repeat`` says what happens to a second charge for the same product on the same content: "record"
        (the default) charges it and marks it, "refuse" raises. What is given has to agree with what the
        ledger was made with. ``read_only`` opens one that is there to look at, also where nothing can be
        written.
        """
        target = Path(path)
        if not target.exists() and not read_only:
            cls._create(target, dataset, cap, on_repeat or "record")
        file = LedgerFile(target, kind=KIND, version=VERSION, chained=_CHAINED, read_only=read_only)
        if file.version < VERSION:
            file.close()
            raise StateError(
                f"{target} is a ledger of an earlier development version: make a new one, with a cap lowered "
                "by what was spent"
            )
        ledger = cls(file)
        wrong = [
            f"{name} is {found!r}, not {asked!r}"
            for name, asked, found in (
                ("dataset", dataset, ledger.dataset),
                ("cap", cap, ledger.cap),
                ("on_repeat", on_repeat, ledger.on_repeat),
            )
            if asked is not None and asked != found
        ]
        if wrong:
            ledger.close()
            raise LedgerError(f"{target}: {'; '.join(wrong)}")
        return ledger

    @staticmethod
    def _create(path: Path, dataset: str | None, cap: PrivacyBudget | None, on_repeat: str) -> None:
        if not isinstance(dataset, str) or not dataset:
            raise ConfigError(f"a new ledger needs dataset=, the name of what it guards; got {dataset!r}")
        if not isinstance(cap, PrivacyBudget):
            raise ConfigError(f"a new ledger needs cap=, a PrivacyBudget; got {cap!r}")
        if on_repeat not in ("record", "refuse"):
            raise ConfigError(f'on_repeat must be "record" or "refuse", got {on_repeat!r}')
        meta = {
            "dataset": dataset,
            "cap": cap.to_dict(),
            "on_repeat": on_repeat,
            "salt": secrets.token_hex(32),
        }
        LedgerFile.create(path, kind=KIND, version=VERSION, schema=_SCHEMA, meta=meta)

    @property
    def identity(self) -> str:
        """Tells this ledger from every other, wherever its file is moved; says nothing about its content."""
        return self._salted("identity")[:32]

    @staticmethod
    def new_key() -> str:
        """A key for one product's charge, unlike any other."""
        return secrets.token_hex(16)

    def charge(
        self,
        product: str,
        budget: PrivacyBudget,
        unit: PrivacyUnit,
        *,
        content_hash: str | None = None,
        key: str | None = None,
    ) -> LedgerEntry:
        """Record a spend; ``LedgerError``, and nothing recorded, if it would pass the cap.

        The charge is on disk when this returns, and has to be before anybody can see what it pays for.

        ``content_hash`` (``synthgeo.sources.fingerprint``) lets the ledger notice a repeated fit on the same
        data; only a salted hash of it is kept.

        ``key`` makes the charge happen once: charging a key that this ledger knows returns its entry
        (``LedgerError`` if that was for another product, budget or unit). A product that answers several
        times, or that has to survive an interrupt, uses ``reserve`` and ``commit`` instead.
        """
        self._check_arguments(product, budget, unit)
        content = None if content_hash is None else self._salted(content_hash)
        with self._file.transaction():
            entry = None if key is None else self.find(key)
            if entry is None:
                entry = self._append(product, budget, unit, content, key)
        self._file.fold()
        return _same(entry, product, budget, unit)

    def _append(
        self, product: str, budget: PrivacyBudget, unit: PrivacyUnit, content: str | None, key: str | None
    ) -> LedgerEntry:
        """Add an entry to the book, inside a transaction; ``LedgerError`` if it would pass the cap."""
        from synthgeo import __version__

        first = self._first(product, content)
        self._check_room(product, budget, first)
        number = self._file.append(
            {
                "time": datetime.now(UTC).isoformat(timespec="seconds"),
                "product": product,
                "epsilon": budget.epsilon,
                "delta": budget.delta,
                "unit": json.dumps(unit.to_dict(), sort_keys=True),
                "content": content,
                "once": None if key is None else self._salted(key),
                "repeats": first,
                "version": __version__,
            }
        )
        return self._entry_of(number)

    def reserve(
        self,
        product: str,
        budget: PrivacyBudget,
        unit: PrivacyUnit,
        *,
        key: str,
        step: int = 1,
        content_hash: str | None = None,
        token: str | None = None,
    ) -> Reservation:
        """Reserve ``step`` of the product that has this ``key``, before any of its noise is drawn.

        A new key is charged ``budget`` (``LedgerError``, and nothing recorded, above the cap). A step that is
        not the next one is refused: this state is an older copy. A reservation of the same step that nobody
        committed is taken over without a charge: what was drawn for it can no longer be committed. A one-off
        fit that was killed is found by its product, budget, unit and content (``content_hash``), whatever key
        it had.
        """
        self._check_arguments(product, budget, unit)
        content = None if content_hash is None else self._salted(content_hash)
        token = secrets.token_hex(16) if token is None else token
        with self._file.transaction() as connection:
            row = self._step(key)
            if row is None and step == 1 and (row := self._abandoned(product, budget, unit, content)):
                connection.execute("DELETE FROM steps WHERE once = ?", (row["once"],))
            if row is None:
                row = self._enter(product, budget, unit, key, step - 1, content)
            _same(self._entry_of(row["entry"]), product, budget, unit)
            self._check_next(product, step, row["step"])
            self._keep(row | {"once": self._salted(key), "pending": token, "content": content})
        self._file.fold()
        return Reservation(key, step, token)

    def adopt(
        self, product: str, budget: PrivacyBudget, unit: PrivacyUnit, *, key: str, step: int
    ) -> LedgerEntry:
        """Charge a product that has answered ``step`` steps already, if this ledger does not know it."""
        self._check_arguments(product, budget, unit)
        with self._file.transaction():
            row = self._step(key)
            if row is None:
                row = self._enter(product, budget, unit, key, step, None)
                self._keep(row)
            entry = _same(self._entry_of(row["entry"]), product, budget, unit)
            if row["step"] < step:
                self._check_next(product, step + 1, row["step"])
        self._file.fold()
        return entry

    def commit(self, reservation: Reservation) -> None:
        """Make a reserved step the last one, after its result was stored and before anybody sees it.

        ``LedgerError`` if somebody else has reserved or committed it since: the result must be discarded.
        Committing again what was committed changes nothing.
        """
        with self._file.transaction():
            row = self._step(reservation.key)
            if row is not None and (row["step"], row["owner"]) == (reservation.step, reservation.token):
                return
            if row is None or (row["step"], row["pending"]) != (reservation.step - 1, reservation.token):
                raise LedgerError(
                    f"step {reservation.step} was taken over by another process or another copy; what was "
                    "drawn here is discarded unseen"
                )
            done = {"step": reservation.step, "owner": reservation.token, "pending": None, "content": None}
            self._keep(row | done)
        with suppress(LedgerError):  # it is committed, wherever SQLite keeps it
            self._file.fold()

    def committed(self, reservation: Reservation) -> bool:
        """Whether this very reservation is the last one that was committed for its key."""
        row = self._step(reservation.key)
        return row is not None and (row["step"], row["owner"]) == (reservation.step, reservation.token)

    def last_step(self, key: str) -> int | None:
        """The last step committed for ``key``; None if the ledger does not know it."""
        row = self._step(key)
        return None if row is None else int(row["step"])

    def check(
        self,
        product: str,
        budget: PrivacyBudget,
        unit: PrivacyUnit,
        *,
        content_hash: str | None = None,
        key: str | None = None,
    ) -> None:
        """``LedgerError`` if this charge would be refused now. Records nothing.

        For work that takes long before its charge: nobody likes to learn of a cap at the end.
        """
        self._check_arguments(product, budget, unit)
        known = None if key is None else self.find(key)
        if known is not None:
            _same(known, product, budget, unit)
            return
        content = None if content_hash is None else self._salted(content_hash)
        self._check_room(product, budget, self._first(product, content))

    def find(self, key: str) -> LedgerEntry | None:
        """The entry that was charged under ``key``, or None."""
        row = self._step(key)
        if row is not None:
            return self._entry_of(row["entry"])
        rows = self._file.query("SELECT * FROM book WHERE once = ?", self._salted(key))
        return _entry(rows[0]) if rows else None

    def _step(self, key: str) -> dict[str, Any] | None:
        """What is known of the steps under ``key``."""
        rows = self._file.query("SELECT * FROM steps WHERE once = ?", self._salted(key))
        return self._unsealed(rows[0]) if rows else None

    def _abandoned(
        self, product: str, budget: PrivacyBudget, unit: PrivacyUnit, content: str | None
    ) -> dict[str, Any] | None:
        """A first step that was reserved for the same purpose and never committed."""
        rows = self._file.query(
            "SELECT steps.* FROM steps JOIN book ON number = entry WHERE step = 0 AND pending IS NOT NULL "
            "AND steps.content = ? AND product = ? AND epsilon = ? AND delta = ? AND unit = ? ORDER BY entry",
            content, product, budget.epsilon, budget.delta, json.dumps(unit.to_dict(), sort_keys=True),
        )  # fmt: skip
        return self._unsealed(rows[0]) if rows else None

    def _enter(
        self,
        product: str,
        budget: PrivacyBudget,
        unit: PrivacyUnit,
        key: str,
        step: int,
        content: str | None,
    ) -> dict[str, Any]:
        """Charge a new key, inside a transaction; what is known of its steps.

        A key whose charge was taken over by another is charged anew.
        """
        taken = self.find(key) is not None
        entry = self._append(product, budget, unit, content, None if taken else key)
        row = {"once": self._salted(key), "entry": entry.number, "step": step}
        return row | {"owner": None, "pending": None, "content": None}

    def _keep(self, row: dict[str, Any]) -> None:
        """Write what is known of a key's steps, inside a transaction."""
        values = [row[name] for name in _STEP]
        insert = "INSERT OR REPLACE INTO steps VALUES (?, ?, ?, ?, ?, ?, ?)"
        self._file.query(insert, *values, link("", values))

    def _unsealed(self, row: Any) -> dict[str, Any]:
        values = {name: row[name] for name in _STEP}
        if row["seal"] != link("", list(values.values())):
            raise StateError(f"{self._file.path} is damaged: the steps of entry {row['entry']} were changed")
        return values

    @staticmethod
    def _check_next(product: str, step: int, committed: int) -> None:
        """``LedgerError`` unless ``step`` is the one after the last one committed."""
        if step <= committed:
            raise LedgerError(
                f"this state of {product!r} is an older copy: step {step} was answered already, and the "
                f"ledger knows its step {committed}; nothing was drawn"
            )
        if step > committed + 1:
            raise LedgerError(
                f"{product!r} is at step {step - 1}, but the ledger ends at its step {committed}: this "
                "ledger is an older copy"
            )

    @staticmethod
    def _check_arguments(product: str, budget: PrivacyBudget, unit: PrivacyUnit) -> None:
        if not isinstance(product, str) or not product:
            raise ConfigError(f"product must be a name, got {product!r}")
        if not isinstance(budget, PrivacyBudget) or not isinstance(unit, PrivacyUnit):
            raise ConfigError("charge takes a PrivacyBudget and a PrivacyUnit")

    def _first(self, product: str, content: str | None) -> int | None:
        """The first entry of the same product on the same content."""
        found = self._file.query(
            "SELECT min(number) FROM book WHERE product = ? AND content = ?", product, content
        )
        return None if found[0][0] is None else int(found[0][0])

    def _check_room(self, product: str, budget: PrivacyBudget, first: int | None) -> None:
        if first is not None and self.on_repeat == "refuse":
            raise LedgerError(
                f"{product!r} was fitted to this data before (entry {first}); nothing was charged"
            )
        spent = self._total([*self._entries(), budget])
        if not self.cap.covers(spent):
            raise LedgerError(
                f"{product!r} would bring {self.dataset!r} to {spent}, above its cap {self.cap}; "
                "nothing was charged"
            )

    @property
    def entries(self) -> list[LedgerEntry]:
        """All charges, in order."""
        return [_entry(row) for row in self._file.query("SELECT * FROM book ORDER BY number")]

    @property
    def spent(self) -> PrivacyBudget | None:
        """The sum of all charges; None when there is none."""
        budgets = self._entries()
        return self._total(budgets) if budgets else None

    @property
    def remaining(self) -> PrivacyBudget | None:
        """What is left under the cap; None when no ε is left."""
        spent = self.spent
        if spent is None:
            return self.cap
        epsilon = self.cap.epsilon - spent.epsilon
        return PrivacyBudget(epsilon, max(0.0, self.cap.delta - spent.delta)) if epsilon > 0 else None

    def show(self) -> pd.DataFrame:
        """The charges as a table: number, time, product, epsilon, delta, unit, covers, repeats, version.

        For the curator: ``repeats`` tells whether two fits read the same records, and is not private.
        """
        import pandas as pd

        rows = [
            {
                "number": entry.number,
                "time": entry.time,
                "product": entry.product,
                "epsilon": entry.budget.epsilon,
                "delta": entry.budget.delta,
                "unit": entry.unit.describe(),
                "covers": entry.covers,
                "repeats": entry.repeats,
                "version": entry.version,
            }
            for entry in self.entries
        ]
        columns = ["number", "time", "product", "epsilon", "delta", "unit", "covers", "repeats", "version"]
        return pd.DataFrame(rows, columns=columns).astype({"repeats": "Int64"})

    def verify(self) -> int:
        """Check the whole file again; the number of entries, or ``StateError``."""
        self._file.check()
        for row in self._file.query("SELECT * FROM steps"):
            self._unsealed(row)
        return len(self._entries())

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _repr_html_(self) -> str:
        from synthgeo.notebook import facts_html

        facts = {"spent": self.spent or "nothing", "cap": self.cap, "left": self.remaining or "nothing"}
        return facts_html(f"ledger of {self.dataset}", facts, below=self.show().to_html(index=False))

    def __repr__(self) -> str:
        return f"<ledger of {self.dataset!r}: spent {self.spent}, cap {self.cap}>"

    def _entry_of(self, number: int) -> LedgerEntry:
        return _entry(self._file.query("SELECT * FROM book WHERE number = ?", number)[0])

    def _entries(self) -> list[PrivacyBudget]:
        rows = self._file.query("SELECT epsilon, delta FROM book ORDER BY number")
        return [PrivacyBudget(row["epsilon"], row["delta"]) for row in rows]

    @staticmethod
    def _total(budgets: list[PrivacyBudget]) -> PrivacyBudget:
        # Exact sums: no drift after a thousand small charges.
        return PrivacyBudget(
            math.fsum(budget.epsilon for budget in budgets), math.fsum(budget.delta for budget in budgets)
        )

    def _salted(self, text: str) -> str:
        if not isinstance(text, str) or not text:
            raise ConfigError(f"content_hash and key must be text, got {text!r}")
        return hmac.new(self._salt, text.encode(), "sha256").hexdigest()


def _entry(row: Any) -> LedgerEntry:
    unit = PrivacyUnit.from_dict(cast("dict[str, Any]", json.loads(row["unit"])))
    budget = PrivacyBudget(row["epsilon"], row["delta"])
    return LedgerEntry(
        row["number"], row["time"], row["product"], budget, unit, row["repeats"], row["version"]
    )


def _same(entry: LedgerEntry, product: str, budget: PrivacyBudget, unit: PrivacyUnit) -> LedgerEntry:
    if (entry.product, entry.budget, entry.unit) != (product, budget, unit):
        raise LedgerError(
            f"entry {entry.number} was charged under this key for {entry.product!r} at {entry.budget}"
        )
    return entry


def settle(ledger: Ledger | None, reservation: Reservation | None, owner: Any, name: str, value: Any) -> None:
    """Give ``owner`` the result of a step, as its attribute ``name``, if the ledger commits the step.

    Where it does not, whatever stopped it, the attribute is as it was. An owner that has to store its result
    first has an attribute ``before_commit``, a function of the reservation's key.
    """
    before = getattr(owner, name)
    if ledger is None or reservation is None:
        setattr(owner, name, value)
        return
    try:
        setattr(owner, name, value)
        if (store := vars(owner).get("before_commit")) is not None:
            store(reservation.key)
        ledger.commit(reservation)
    except BaseException:
        committed = False
        with suppress(SynthGeoError):
            committed = ledger.committed(reservation)
        if not committed:
            setattr(owner, name, before)
        raise

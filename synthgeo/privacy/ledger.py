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
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, cast

from synthgeo.errors import ConfigError, LedgerError
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.ledger_file import LedgerFile
from synthgeo.privacy.unit import PrivacyUnit

if TYPE_CHECKING:
    import pandas as pd

KIND = "dataset ledger"
VERSION = 1
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
"""

# Beside the chain of charges: it pays for nothing, and tells an old copy of a run from the living one.
_STEPS = "CREATE TABLE IF NOT EXISTS steps (once TEXT PRIMARY KEY, step INTEGER NOT NULL)"


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

    A charge is on disk before ``charge`` returns, so what is shown after it is paid for. A charge is never
    given back. Several processes may charge one ledger at a time.
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
        ledger = cls(LedgerFile(target, kind=KIND, version=VERSION, chained=_CHAINED, read_only=read_only))
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

        ``key`` makes the charge happen once: charging a key that this ledger knows returns its first entry
        (``LedgerError`` if that was for another product, budget or unit), and a key that it does not know
        is charged like any other spend. A product that outlives the process charges like this:

        * it makes a key with ``new_key`` before its first charge, and keeps it from then on: in the object,
          so that a call that is repeated after an interrupt does not pay twice, and in its saved state;
        * it charges under that key before each release, or before the first one after it was made or
          loaded. Whether it was charged before is the ledger's to know, not the product's: a stream that
          was saved without a ledger and is loaded with one is charged then, a stream that was charged is
          not charged again, and one that is moved to another ledger is charged there too.
        """
        self._check_arguments(product, budget, unit)
        from synthgeo import __version__

        content = None if content_hash is None else self._salted(content_hash)
        once = None if key is None else self._salted(key)
        with self._file.transaction() as connection:
            if once is not None:
                known = connection.execute("SELECT * FROM book WHERE once = ?", (once,)).fetchone()
                if known is not None:
                    return _same(_entry(known), product, budget, unit)
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
                    "once": once,
                    "repeats": first,
                    "version": __version__,
                }
            )
            row = connection.execute("SELECT * FROM book WHERE number = ?", (number,)).fetchone()
        self._file.fold()
        return _entry(row)

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
        rows = self._file.query("SELECT * FROM book WHERE once = ?", self._salted(key))
        return _entry(rows[0]) if rows else None

    def note_step(self, key: str, step: int) -> None:
        """Remember how far the durable run that was charged under ``key`` has come."""
        with self._file.transaction() as connection:
            connection.execute(_STEPS)  # ledgers of before have no such table
            connection.execute(
                "INSERT INTO steps VALUES (?, ?) ON CONFLICT (once) DO UPDATE SET step = max(step, ?)",
                (self._salted(key), step, step),
            )
        self._file.fold()

    def last_step(self, key: str) -> int:
        """The last step that ``note_step`` was told of; 0 where it was told of none."""
        if not self._file.query("SELECT name FROM sqlite_master WHERE name = 'steps'"):
            return 0
        rows = self._file.query("SELECT step FROM steps WHERE once = ?", self._salted(key))
        return int(rows[0][0]) if rows else 0

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

"""Which trips of a batch are measured: each once, and at most m of a user."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from typing import Any

import numpy as np

from streams.mechanism import part_of, prefixed
from synthgeo.arrays import Array, Bools, Ints
from synthgeo.errors import StateError
from synthgeo.hashing import mix
from synthgeo.preflight import Finding
from synthgeo.privacy.contribution import ContributionBounder
from synthgeo.privacy.unit import PrivacyUnit
from synthgeo.privacy.users import UserIds
from synthgeo.sources import values
from synthgeo.sources.chunk import Chunk, collecting


class TripBounder:
    """Admits each trip once and, where users are protected, at most m trips of a user.

    Seen trips are remembered for the life of the stream; where users are bounded in periods, until the period
    is over. A batch lies in one period, and so do all rows in it.

    Guarantee
    ---------
    *Trips.* Whether a trip is admitted is a function of its own rows, in this batch and in earlier ones. So
    removing one trip, with all its rows in whatever batches they lie, removes at most one admitted trip and
    changes no other.

    *Users.* It is a function of the rows of its user: removing a user removes at most m admitted trips.

    *Users in periods.* It is a function of the rows of its user in the batches of its period. Nothing is
    remembered beyond: ids that start again in the next period are other trips. Two streams that differ in all
    rows of one user in the batches of one period differ in at most m admitted trips, all of that period.
    Rows of one trip in batches of two periods are two trips, one of each period.

    *Identity.* A trip is known by its 128-bit id or, where users are protected, by the pair of both 128-bit
    ids, compared in full. Two pairs agree only where two texts share their BLAKE2b hash (``UserIds``).

    The state says which trips were seen, and is private.
    """

    def __init__(
        self,
        unit: PrivacyUnit,
        seen: Array | None = None,
        users: ContributionBounder | None = None,
        period: int = 0,
    ) -> None:
        self.unit = unit
        nothing = packed_ids(UserIds.empty(), UserIds.empty() if unit.is_user else None)
        self._seen = nothing if seen is None else seen.view(nothing.dtype)
        self._users = ContributionBounder(unit) if users is None and unit.is_user else users
        self._period = period

    def admit(self, ids: UserIds, users: UserIds | None, *, period: int = 0) -> Bools:
        """Which of these distinct trips may be measured; they count as seen from now on. Where users are
        bounded in periods, ``period`` is the number of the batch's.
        """
        trips = packed_ids(ids, users)
        order = np.argsort(trips, kind="stable")
        before = self._seen[:0] if self.unit.per is not None and period > self._period else self._seen
        at, held = find_ids(before, trips[order])
        admitted = np.empty(len(trips), dtype=bool)
        admitted[order] = ~held
        if self._users is not None and users is not None:
            new = np.flatnonzero(admitted)
            # A key chooses among one user's own trips: two with the same are chosen by their order.
            kept = self._users.admit(users.take(new), mix(ids.high, ids.low)[new], period=period)
            admitted[new[~kept]] = False
        self._seen = np.insert(before, at[~held], trips[order][~held])
        self._period = period
        return admitted

    def seen(self, ids: UserIds, users: UserIds | None) -> Bools:
        """Which of these distinct trips an earlier batch held, of the period of the last batch where there
        are periods. Remembers nothing.
        """
        return find_ids(self._seen, packed_ids(ids, users))[1]

    def __copy__(self) -> TripBounder:
        return type(self)(self.unit, self._seen, copy(self._users), self._period)

    def to_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """JSON values and arrays for a state file. Private: it says which trips were seen."""
        values: dict[str, Any] = {"unit": self.unit.to_dict(), "period": self._period}
        arrays: dict[str, np.ndarray] = {"seen": self._seen.view(np.uint64)}
        if self._users is not None:
            values["users"], own = self._users.to_state()
            arrays |= prefixed("users", own)
        return values, arrays

    @classmethod
    def from_state(cls, values: dict[str, Any], arrays: dict[str, np.ndarray]) -> TripBounder:
        """The bounder that ``to_state`` wrote."""
        if "period" not in values:
            raise StateError(
                "this stream remembers its trips as an earlier version did, which this one does not read: "
                "go on with the version that wrote it, or start anew"
            )
        unit, users = PrivacyUnit.from_dict(values["unit"]), None
        if unit.is_user:
            users = ContributionBounder.from_state(values["users"], part_of("users", arrays))
        bounder = cls(unit, arrays["seen"], users, int(values["period"]))
        if not np.array_equal(np.sort(bounder._seen, kind="stable"), bounder._seen):
            raise StateError("the trips that this stream has seen are not in order: its state is damaged")
        return bounder

    def __repr__(self) -> str:
        return f"TripBounder({self.unit.describe()})"


def packed_ids(ids: UserIds, users: UserIds | None) -> Array:
    """What each trip is known by, in full, as one value of 16 or 32 bytes: two users may number their trips
    alike.
    """
    parts = (ids,) if users is None else (users, ids)
    columns = np.column_stack([side for part in parts for side in (part.low, part.high)])
    return columns.view(f"V{16 * len(parts)}")[:, 0]


def find_ids(table: Array, trips: Array) -> tuple[Ints, Bools]:
    """Where each trip is in a table in order, or would be inserted, and whether it is there."""
    at = np.searchsorted(table, trips)
    found = at < len(table)
    found[found] = table[at[found]] == trips[found]
    return at, found


class TripsSeen:
    """How many trips of a file an earlier batch held: a stream drops these. For the curator only."""

    def __init__(self, bounder: TripBounder, trip: str) -> None:
        self.bounder, self.trip = bounder, trip
        self._rows: list[Array] = []

    def add(self, chunk: Chunk) -> None:
        with collecting():
            columns = [values.ids(chunk, self.trip)]
            if self.bounder.unit.key is not None:
                columns.append(values.ids(chunk, self.bounder.unit.key))
        rows = np.column_stack([part for ids in columns for part in (ids.high, ids.low)])
        self._rows.append(np.unique(rows, axis=0))

    def findings(self) -> Iterable[Finding]:
        if not self._rows:
            return
        rows = np.unique(np.concatenate(self._rows), axis=0)
        ids, *users = (UserIds(rows[:, at], rows[:, at + 1]) for at in range(0, rows.shape[1], 2))
        seen = int(self.bounder.seen(ids, users[0] if users else None).sum())
        if seen:
            text = f"{seen:,} of {len(rows):,} trips have the id of a trip of an earlier batch, and are "
            if self.bounder.unit.per is None:
                text += "dropped: ids must differ between batches (put the month in front of them)"
            else:
                text += "dropped unless a new period begins: ids must differ between the batches of a period"
            yield Finding("warning" if seen > 0.05 * len(rows) else "note", text, self.trip, seen)


__all__ = ["TripBounder", "TripsSeen", "find_ids", "packed_ids"]

"""Which trips of a batch are measured: each once in its life, and at most so many of a user."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from typing import Any

import numpy as np

from streams.mechanism import part_of, prefixed
from synthgeo.arrays import Array, Bools
from synthgeo.hashing import mix
from synthgeo.preflight import Finding
from synthgeo.privacy.contribution import ContributionBounder
from synthgeo.privacy.unit import PrivacyUnit
from synthgeo.privacy.users import UserIds
from synthgeo.sources import values
from synthgeo.sources.chunk import Chunk, collecting

_ONCE = PrivacyUnit.user(max_trajectories=1, key="trip")


class TripBounder:
    """Admits each trip once over the life of a stream and, where users are protected, at most m of a user.

    Guarantee
    ---------
    Whether a trip is admitted is a function of its own rows, in this batch and in earlier ones, and, where
    users are protected, of the rows of its user. So removing one trip, with all its rows in whatever batches
    they lie, removes at most one admitted trip and changes no other; removing a user removes at most m. A
    trip is known by its id or, where users are protected, by user and id, as 128-bit numbers: the statement
    holds but for a collision, of probability below trips² · 2^-129.

    The state says which trips were seen, and is private.
    """

    def __init__(
        self,
        unit: PrivacyUnit,
        seen: ContributionBounder | None = None,
        users: ContributionBounder | None = None,
    ) -> None:
        self.unit = unit
        self._seen = ContributionBounder(_ONCE) if seen is None else seen
        self._users = ContributionBounder(unit) if users is None and unit.is_user else users

    def admit(self, ids: UserIds, users: UserIds | None, *, period: int = 0) -> Bools:
        """Which of these distinct trips may be measured; they count as seen from now on. Where users are
        bounded in periods, ``period`` is the number of the batch's.
        """
        own = _own_ids(ids, users)
        keys = mix(own.high, own.low)
        admitted: Bools = self._seen.admit(own, keys)
        if self._users is not None and users is not None:
            new = np.flatnonzero(admitted)
            kept = self._users.admit(users.take(new), keys[new], period=period)
            admitted[new[~kept]] = False
        return admitted

    def seen(self, ids: UserIds, users: UserIds | None) -> Bools:
        """Which of these distinct trips an earlier batch held. Remembers nothing."""
        own = _own_ids(ids, users)
        return ~copy(self._seen).admit(own, mix(own.high, own.low))

    def __copy__(self) -> TripBounder:
        return type(self)(self.unit, copy(self._seen), copy(self._users))

    def to_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """JSON values and arrays for a state file. Private: it says which trips were seen."""
        values: dict[str, Any] = {"unit": self.unit.to_dict()}
        arrays: dict[str, np.ndarray] = {}
        for name, bounder in (("seen", self._seen), ("users", self._users)):
            if bounder is not None:
                values[name], own = bounder.to_state()
                arrays |= prefixed(name, own)
        return values, arrays

    @classmethod
    def from_state(cls, values: dict[str, Any], arrays: dict[str, np.ndarray]) -> TripBounder:
        """The bounder that ``to_state`` wrote."""
        parts = [
            ContributionBounder.from_state(values[name], part_of(name, arrays)) if name in values else None
            for name in ("seen", "users")
        ]
        return cls(PrivacyUnit.from_dict(values["unit"]), *parts)

    def __repr__(self) -> str:
        return f"TripBounder({self.unit.describe()})"


def _own_ids(ids: UserIds, users: UserIds | None) -> UserIds:
    """What a trip is known by: two users may number their trips alike."""
    if users is None:
        return ids
    parts = (users.high, users.low, ids.high, ids.low)
    return UserIds(mix(np.uint64(1), *parts), mix(np.uint64(2), *parts))


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
            text = (
                f"{seen:,} of {len(rows):,} trips have the id of a trip of an earlier batch, and are "
                "dropped: ids must differ between batches (put the month in front of them)"
            )
            yield Finding("warning" if seen > 0.05 * len(rows) else "note", text, self.trip, seen)


__all__ = ["TripBounder", "TripsSeen"]

"""Which trips of a batch are measured: each once in its life, and at most so many of a user."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np

from streams.mechanism import part_of, prefixed
from synthgeo.arrays import Bools
from synthgeo.hashing import mix
from synthgeo.privacy.contribution import ContributionBounder
from synthgeo.privacy.unit import PrivacyUnit
from synthgeo.privacy.users import UserIds

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
        if users is not None:
            ids = UserIds(
                mix(np.uint64(1), users.high, users.low, ids.high, ids.low),
                mix(np.uint64(2), users.high, users.low, ids.high, ids.low),
            )
        keys = mix(ids.high, ids.low)
        admitted: Bools = self._seen.admit(ids, keys)
        if self._users is not None and users is not None:
            new = np.flatnonzero(admitted)
            kept = self._users.admit(users.take(new), keys[new], period=period)
            admitted[new[~kept]] = False
        return admitted

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


__all__ = ["TripBounder"]

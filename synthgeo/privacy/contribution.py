"""Bounding what one user contributes, over the life of a stream or in each public period of it.

A mechanism that protects an event protects a user when it sees at most m events of each, and runs at ε / m.
This module enforces the m. See ``ContributionBounder`` for what is kept and why that is sound.
"""

# ruff: noqa: SLF001  the parts of a bounder are bounders
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from synthgeo.errors import ConfigError, ContributionError, StateError
from synthgeo.hashing import mix
from synthgeo.privacy.unit import PrivacyUnit
from synthgeo.privacy.users import U64, UserIds

VERSION = 2


class ContributionBounder:
    """Keeps at most m events of each user over the life of a stream, or of each of its periods where the
    unit has such (``per``), and drops the rest.

    ``admit`` takes one batch and returns a mask of the events that may be counted. Within a batch that
    holds more of a user's events than there is room for, the kept ones are a sample without replacement,
    chosen by a hash of (user, key, how many equal ones came before): no place is favoured, the order of
    rows does not matter, and every engine keeps the same. With ``deletes=True`` an insertion takes two
    places, its own and that of the deletion that may follow, and a deletion is kept exactly when it takes
    back an insertion that was kept. Insertions of a batch come before its deletions. Rows that agree in
    user, key and op are interchangeable.

    Guarantee
    ---------
    For every stream and every user, at most ``unit.max_contributions`` of the user's events are ever
    admitted, and which ones is a function of that user's own events (and of the public salt). So removing
    all events of one user changes at most that many admitted events and none of another user's, and a
    mechanism that gives ε / m to an event gives ε to a user.
    *Why:* the places used by a user grow by those that its admitted insertions take and are never given
    back, so they stay <= m; a deletion is admitted at most once per admitted insertion, and its place was
    taken then. Room, hashes and matching read one user's rows and one user's state. Text keys are told
    apart by 128-bit hashes: the statement holds but for a collision, which has probability below users² ·
    2^-129.

    *Periods.* The places of a user are counted anew in each period. A deletion belongs to the period of its
    insertion, which its own row says (``born``), and takes back an insertion of that period alone. So what is
    kept of a user's rows of one period is a function of those rows: of the insertions that came in it and of
    their deletions, whenever these come. Two streams that differ in the rows of one user and one period
    differ in at most m admitted events. (A bound over the *last* P steps would not do: whether an event fits
    would depend on whether an earlier one was kept, and so on back, and removing one event could change all
    that follow.) Place counts are forgotten when their period is over.

    The state (who was seen, how often) and the number of dropped events are private: never report them.
    """

    def __init__(self, unit: PrivacyUnit, *, deletes: bool = False, salt: int = 0) -> None:
        if not unit.is_user:
            raise ConfigError(f"contributions are bounded by user; the unit here is {unit.describe()}")
        if deletes and unit.max_contributions < 2:
            raise ConfigError(
                "an insertion and its deletion are two events: where deletions can come, allow at least 2"
            )
        self.unit = unit
        self.deletes = deletes
        self._salt = np.uint64(salt)
        self._period = 0
        self._slots, self._stride = 0, 1  # the next one to give out, and the step to the one after it
        self._users = _PairTable.empty(2)  # (low, high) -> places used in this period, slot
        # Of each period: (slot, key) -> admitted insertions not yet taken back.
        self._open: dict[int, _PairTable] = {}

    def copy(self) -> ContributionBounder:
        """An independent bounder in the same state. Cheap: state arrays are replaced, never changed."""
        twin = ContributionBounder(self.unit, deletes=self.deletes, salt=int(self._salt))
        twin._users, twin._open = self._users, self._open
        twin._period, twin._slots, twin._stride = self._period, self._slots, self._stride
        return twin

    def parts(self, count: int) -> list[ContributionBounder]:
        """Bounders of the users of each bucket (``bucket_of``), which go on apart until ``join``.

        What is kept of a user depends on that user alone, so together they keep what this one would.
        """
        table = self._users
        bucket = bucket_of(UserIds(table.second, table.first), count)
        order = np.argsort(table.values[:, 1])
        slots, of_slot = table.values[order, 1].astype(np.uint64), bucket[order]
        open_buckets = {
            period: of_slot[np.searchsorted(slots, open_.first)] for period, open_ in self._open.items()
        }
        found = []
        for number in range(count):
            part = self.copy()
            part._users = table.where(bucket == number)
            opened = {p: open_.where(open_buckets[p] == number) for p, open_ in self._open.items()}
            part._open = {period: open_ for period, open_ in opened.items() if open_.size}
            part._slots, part._stride = self._slots + self._stride * number, self._stride * count
            found.append(part)
        return found

    def join(self, parts: Sequence[ContributionBounder]) -> None:
        """Take over the memory of the bounders that ``parts`` made, as they are now."""
        period = max(part._period for part in parts)
        parts = [part.copy() for part in parts]
        for part in parts:  # one whose users did nothing may not know that a period is over
            part._enter(period, None)
        self._users = _PairTable.union([part._users for part in parts], 2)
        periods = sorted({period for part in parts for period in part._open})
        self._open = {
            period: _PairTable.union([part._open[period] for part in parts if period in part._open], 1)
            for period in periods
        }
        self._period, self._slots = period, max(part._slots for part in parts)

    def opened(self) -> ContributionBounder:
        """A bounder to go on with, for whoever has a part of one (``BounderPart``)."""
        return self.copy()

    def closed(self, bounder: ContributionBounder) -> ContributionBounder:
        """The part, as the bounder that ``opened`` gave has left it."""
        return bounder

    def admit(
        self,
        users: Any,
        keys: U64,
        ops: NDArray[np.int64] | None = None,
        *,
        column: str | None = None,
        period: int = 0,
        born: NDArray[np.int64] | None = None,
        oldest: int | None = None,
    ) -> NDArray[np.bool_]:
        """Which events of this batch may be counted. A refused call changes nothing.

        ``users`` are whole numbers, text, or ``UserIds``; ``ops`` is +1 (insert) or -1 (delete) for each
        event. For a unit with periods, ``period`` is the number of the batch's, ``born`` that of the
        insertion of each deletion, and insertions of periods before ``oldest`` have expired.
        """
        ids = UserIds.of(users, column=column or self.unit.key or "user")
        keys = np.asarray(keys)
        inserted = self._checked_ops(ops, len(ids))
        if keys.dtype != np.uint64 or keys.shape != (len(ids),):
            raise TypeError(f"keys must be {len(ids)} uint64 values, got {keys.dtype} of shape {keys.shape}")
        if self.unit.per is None:
            period, born = 0, None
        elif self.deletes and born is None and not inserted.all():
            raise TypeError("with periods, born must say in which period each deletion's insertion came")
        self._enter(period, oldest)
        if len(ids) == 0:
            return np.zeros(0, dtype=bool)

        codes, who = _distinct(ids)
        state, known = self._users.get(who.low, who.high)
        used, slot = state[:, 0], np.where(known, state[:, 1], -1)
        places = 2 if self.deletes else 1
        room = (self.unit.max_contributions - used) // places
        kept = self._choose(codes, who, keys, inserted, room)

        taken = np.bincount(codes[kept], minlength=len(who)).astype(np.int64)
        fresh = ~known & (taken > 0)
        slot[fresh] = self._slots + self._stride * np.arange(np.count_nonzero(fresh))
        change = taken > 0
        rows = np.column_stack([used + places * taken, slot])[change]
        users_after = self._users.put(who.low[change], who.high[change], rows)
        open_after = self._open
        if self.deletes:
            periods = np.full(len(codes), period) if born is None else np.where(inserted, period, born)
            open_after = self._match_deletions(codes, slot, keys, inserted, periods, kept)
        self._users, self._open = users_after, open_after
        self._slots += self._stride * int(np.count_nonzero(fresh))
        return kept

    def _enter(self, period: int, oldest: int | None) -> None:
        """Forget the places used in a period that is over, and insertions that have expired."""
        if period < self._period:
            raise ContributionError(f"period {period} is over: this is period {self._period}")
        if oldest is not None:
            self._open = {born: table for born, table in self._open.items() if born >= oldest}
        if period > self._period:
            self._period = period
            table, waiting = self._users, [open_.first for open_ in self._open.values()]
            keep = np.isin(
                table.values[:, 1].astype(np.uint64), np.concatenate([np.empty(0, np.uint64), *waiting])
            )
            kept = np.column_stack([np.zeros(np.count_nonzero(keep), np.int64), table.values[keep, 1]])
            self._users = replace(table.where(keep), values=kept)

    def _checked_ops(self, ops: NDArray[np.int64] | None, n: int) -> NDArray[np.bool_]:
        if ops is None:
            return np.ones(n, dtype=bool)
        ops = np.asarray(ops)
        if ops.shape != (n,):
            raise TypeError(f"ops must be {n} values, got shape {ops.shape}")
        wrong = (ops != 1) & (ops != -1)
        if wrong.any():
            raise ContributionError(f"column 'op', row {int(np.argmax(wrong))}: must be +1 or -1")
        if not self.deletes and (ops == -1).any():
            row = int(np.argmax(ops == -1))
            raise ContributionError(
                f"column 'op', row {row}: is a deletion, and this stream was set up for none"
            )
        return np.asarray(ops == 1)

    def _choose(
        self,
        codes: NDArray[np.int64],
        who: UserIds,
        keys: U64,
        inserted: NDArray[np.bool_],
        room: NDArray[np.int64],
    ) -> NDArray[np.bool_]:
        """Insertions that fit: all of a user's, or the ones with the smallest hashes."""
        wanted = np.bincount(codes[inserted], minlength=len(who))
        kept = inserted & (wanted <= room)[codes]
        rows = np.flatnonzero(inserted & (wanted > room)[codes])
        if len(rows) == 0:
            return kept
        user, key = codes[rows], keys[rows]
        pair = mix(self._salt, who.low[user], who.high[user], key)
        order = _grouped(pair, user, key)
        rows, user, key, pair = rows[order], user[order], key[order], pair[order]
        score = mix(pair, _position_in_run(user, key).astype(np.uint64))
        order = _ordered(user, score, key)
        rows, user = rows[order], user[order]
        kept[rows[_position_in_run(user) < room[user]]] = True
        return kept

    def _match_deletions(
        self,
        codes: NDArray[np.int64],
        slot: NDArray[np.int64],
        keys: U64,
        inserted: NDArray[np.bool_],
        periods: NDArray[np.int64],
        kept: NDArray[np.bool_],
    ) -> dict[int, _PairTable]:
        """Admit deletions of admitted insertions (marks them in ``kept``); the tables of what stays open."""
        slots = slot[codes].astype(np.uint64)
        after = dict(self._open)
        for period in np.unique(periods).tolist():
            here = periods == period
            came = here & kept
            table = after.pop(period, _PairTable.empty(1))
            table = table.add(slots[came], keys[came], np.ones((np.count_nonzero(came), 1), np.int64))
            rows = np.flatnonzero(here & ~inserted & (slot[codes] >= 0))
            rows = rows[np.lexsort((keys[rows], slots[rows]))]
            there, _ = table.get(slots[rows], keys[rows])
            rows = rows[_position_in_run(slots[rows], keys[rows]) < there[:, 0]]
            kept[rows] = True
            gone = np.full((len(rows), 1), -1, np.int64)
            table = table.add(slots[rows], keys[rows], gone).where_positive()
            if table.size:
                after[period] = table
        return after

    def to_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """JSON values and arrays for a state file. Private: it says who was seen and how often."""
        values = {
            "version": VERSION,
            "unit": self.unit.to_dict(),
            "deletes": self.deletes,
            "salt": int(self._salt),
            "period": self._period,
            "slots": self._slots,
            "open": sorted(self._open),
        }
        arrays = {f"users_{name}": part for name, part in self._users.arrays().items()}
        for period, table in self._open.items():
            arrays |= {f"open_{period}_{name}": part for name, part in table.arrays().items()}
        return values, arrays

    @classmethod
    def from_state(cls, values: dict[str, Any], arrays: dict[str, np.ndarray]) -> ContributionBounder:
        """The bounder that ``to_state`` wrote."""
        try:
            if values["version"] > VERSION:
                raise StateError(
                    f"contribution state of version {values['version']}, this synthgeo reads {VERSION}"
                )
            unit = PrivacyUnit.from_dict(values["unit"])
            bounder = cls(unit, deletes=bool(values["deletes"]), salt=int(values["salt"]))
            bounder._users = _PairTable.from_arrays(arrays, "users_", 2)
            bounder._period = int(values["period"])
            bounder._slots = int(values["slots"])
            tables = {p: _PairTable.from_arrays(arrays, f"open_{p}_", 1) for p in values["open"]}
            bounder._open = {int(period): table for period, table in tables.items() if table.size}
        except (KeyError, TypeError, ValueError, OverflowError) as problem:
            raise StateError(
                f"contribution state is damaged ({type(problem).__name__}: {problem})"
            ) from problem
        return bounder

    def __repr__(self) -> str:
        return f"ContributionBounder({self.unit.describe()}, deletes={self.deletes})"


@dataclass(frozen=True, eq=False)
class _PairTable:
    """A sorted map from pairs of uint64 to rows of int64. Never changed in place."""

    first: U64
    second: U64
    values: NDArray[np.int64]

    @classmethod
    def empty(cls, width: int) -> _PairTable:
        return cls(np.empty(0, np.uint64), np.empty(0, np.uint64), np.empty((0, width), np.int64))

    @property
    def size(self) -> int:
        return len(self.first)

    def arrays(self) -> dict[str, np.ndarray]:
        return {"first": self.first, "second": self.second, "values": self.values}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], prefix: str, width: int) -> _PairTable:
        first, second, values = (arrays[prefix + name] for name in ("first", "second", "values"))
        rising = (first[1:] > first[:-1]) | ((first[1:] == first[:-1]) & (second[1:] > second[:-1]))
        right_types = first.dtype == second.dtype == np.uint64 and values.dtype == np.int64
        if (
            not right_types
            or values.shape != (len(first), width)
            or len(first) != len(second)
            or not rising.all()
        ):
            raise ValueError(f"table {prefix!r} is not sorted pairs of uint64 with {width} values")
        return cls(first, second, values)

    def find(self, first: U64, second: U64) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Where each pair is or would be inserted, and whether it is there."""
        low = np.searchsorted(self.first, first, side="left")
        high = np.searchsorted(self.first, first, side="right")
        end = high.copy()
        # All pairs bisect together; the number of rounds is the logarithm of the longest run of equal firsts.
        while True:
            live = np.flatnonzero(low < high)
            if len(live) == 0:
                break
            middle = (low[live] + high[live]) // 2
            right = self.second[middle] < second[live]
            low[live] = np.where(right, middle + 1, low[live])
            high[live] = np.where(right, high[live], middle)
        found = low < end
        found[found] = self.second[low[found]] == second[found]
        return low, found

    def get(self, first: U64, second: U64) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The values of pairs (0 where a pair is absent), and whether each is there."""
        at, found = self.find(first, second)
        values = np.zeros((len(at), self.values.shape[1]), dtype=np.int64)
        values[found] = self.values[at[found]]
        return values, found

    def put(self, first: U64, second: U64, values: NDArray[np.int64]) -> _PairTable:
        """The table with the values of these distinct pairs replaced or inserted."""
        order = np.lexsort((second, first))
        first, second, values = first[order], second[order], values[order]
        at, found = self.find(first, second)
        merged = self.values.copy()
        merged[at[found]] = values[found]
        new = ~found
        return _PairTable(
            np.insert(self.first, at[new], first[new]),
            np.insert(self.second, at[new], second[new]),
            np.insert(merged, at[new], values[new], axis=0),
        )

    def add(self, first: U64, second: U64, values: NDArray[np.int64]) -> _PairTable:
        """The table with values added to pairs, which may repeat."""
        if len(first) == 0:
            return self
        order = np.lexsort((second, first))
        first, second = first[order], second[order]
        starts = np.flatnonzero(_position_in_run(first, second) == 0)
        first, second, sums = first[starts], second[starts], np.add.reduceat(values[order], starts, axis=0)
        return self.put(first, second, self.get(first, second)[0] + sums)

    def where_positive(self) -> _PairTable:
        keep = self.values[:, 0] > 0
        return self if keep.all() else self.where(keep)

    def where(self, keep: NDArray[np.bool_]) -> _PairTable:
        return _PairTable(self.first[keep], self.second[keep], self.values[keep])

    @classmethod
    def union(cls, tables: list[_PairTable], width: int) -> _PairTable:
        """The table of several that have no pair in common."""
        tables = [cls.empty(width), *tables]
        first, second, values = (
            np.concatenate([getattr(table, name) for table in tables])
            for name in ("first", "second", "values")
        )
        order = np.lexsort((second, first))
        return cls(first[order], second[order], values[order])


def bucket_of(users: UserIds, count: int) -> NDArray[np.int64]:
    """The bucket of each user: a public function of the id, which spreads users evenly."""
    return (mix(users.high, users.low) % np.uint64(count)).astype(np.int64)


def _distinct(ids: UserIds) -> tuple[NDArray[np.int64], UserIds]:
    """A code for each event's user, and the distinct users by code."""
    codes, low = pd.factorize(ids.low)
    high = np.empty(len(low), dtype=np.uint64)
    high[codes] = ids.high
    if not np.array_equal(high[codes], ids.high):  # two users agree in 64 bits of 128
        pairs = np.column_stack([ids.low, ids.high])
        distinct, codes = np.unique(pairs, axis=0, return_inverse=True)
        low, high = distinct[:, 0].copy(), distinct[:, 1].copy()
    return codes.astype(np.int64).reshape(-1), UserIds(high, low)


def _grouped(pair: U64, user: NDArray[np.int64], key: U64) -> NDArray[np.int64]:
    """An order that puts rows of equal user and key together, in their order."""
    order = np.argsort(pair, kind="stable")
    user, key, pair = user[order], key[order], pair[order]
    clash = (pair[1:] == pair[:-1]) & ((user[1:] != user[:-1]) | (key[1:] != key[:-1]))
    if clash.any():  # two pairs with one hash
        return np.lexsort((key[np.argsort(order)], user[np.argsort(order)]))
    return order


def _ordered(user: NDArray[np.int64], score: U64, key: U64) -> NDArray[np.int64]:
    """The order by user, score, key: one sort of packed numbers, three when two scores are close."""
    bits = int(user.max()).bit_length()
    packed = (user.astype(np.uint64) << np.uint64(64 - bits)) if bits else np.zeros(len(user), np.uint64)
    packed |= score >> np.uint64(bits)
    order = np.argsort(packed, kind="stable")
    packed = packed[order]
    return np.lexsort((key, score, user)) if (packed[1:] == packed[:-1]).any() else order


def _position_in_run(*columns: NDArray[Any]) -> NDArray[np.int64]:
    """For rows in sorted order: how many rows of the same run came before."""
    n = len(columns[0])
    starts = np.zeros(n, dtype=bool)
    starts[:1] = True
    for column in columns:
        starts[1:] |= column[1:] != column[:-1]
    at = np.arange(n)
    return at - np.maximum.accumulate(np.where(starts, at, 0))

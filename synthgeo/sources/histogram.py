"""Sparse histograms of integer keys: the only thing that travels between an engine and the driver.

A histogram is exact and mergeable: sums of integers do not depend on the order in which rows were read, so
every engine ends with the same bits. It holds true counts, so it is private.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from synthgeo.errors import InputError

Keys = NDArray[np.uint64]
Weights = NDArray[np.int64]

# Below this many possible keys per row, counting into a dense array beats sorting.
_DENSE_KEYS_PER_ROW = 4
# Partial histograms wait until they hold this many keys together; merging them is then linear in what is
# there.
_COMPACT_AT = 1 << 20
# From this many keys on a compiled merge is worth its import.
_COMPILED_FROM = 1 << 19


@dataclass(frozen=True, eq=False)
class Histogram:
    """Sorted distinct keys, and for each the sum of its rows' weights (one column per kind of weight).

    A key whose sums are all 0 is absent.
    """

    keys: Keys
    weights: Weights

    @classmethod
    def empty(cls, weights: int = 1) -> Histogram:
        """No keys, ``weights`` columns."""
        return cls(np.empty(0, dtype=np.uint64), np.empty((0, weights), dtype=np.int64))

    @classmethod
    def of(cls, keys: Keys, weights: Weights | None = None) -> Histogram:
        """Count rows: one key each, and integer weights of shape (n, m), or None for a weight of 1."""
        keys, weights = _checked(keys, weights)
        if weights is None:
            return _count(keys)
        if len(keys) == 0:
            return cls(keys, weights)
        if (keys[1:] > keys[:-1]).all():  # counted already: nothing to add up
            return _sum_runs(keys, weights)
        order = np.argsort(keys)
        return _sum_runs(keys[order], weights[order])

    @property
    def size(self) -> int:
        """How many distinct keys there are."""
        return len(self.keys)

    def merge(self, other: Histogram) -> Histogram:
        """The histogram of both inputs together."""
        return merge_all([self, other])

    def equals(self, other: Histogram) -> bool:
        """Whether both hold the same keys and weights, bit for bit."""
        return np.array_equal(self.keys, other.keys) and np.array_equal(self.weights, other.weights)


def merge_all(parts: Iterable[Histogram]) -> Histogram:
    """The histogram of all parts together, in one pass over sorted runs."""
    parts = list(parts)
    if not parts:
        raise ValueError("nothing to merge")
    columns = {part.weights.shape[1] for part in parts}
    if len(columns) != 1:
        raise InputError(f"histograms with {sorted(columns)} weight columns cannot be merged")
    filled = [part for part in parts if part.size]
    if len(filled) < 2:
        return filled[0] if filled else parts[0]  # a part has no zero sums, so it is a result as it is
    if sum(part.size for part in filled) > _COMPILED_FROM:
        return _merge_tree(filled)
    keys = np.concatenate([part.keys for part in filled])
    weights = np.concatenate([part.weights for part in filled])
    # Timsort finds the sorted runs that the parts are, so this is a k-way merge and not a sort.
    order = np.argsort(keys, kind="stable")
    return _sum_runs(keys[order], weights[order])


def _merge_tree(parts: list[Histogram]) -> Histogram:
    """Merge in pairs, smallest first, so that no key is moved more often than it has to."""
    from synthgeo.sources.merging import merge_sorted

    queue = [(part.size, number, part) for number, part in enumerate(parts)]
    heapq.heapify(queue)
    number = len(parts)
    while len(queue) > 1:
        (_, _, one), (_, _, other) = heapq.heappop(queue), heapq.heappop(queue)
        merged = Histogram(*merge_sorted(one.keys, one.weights, other.keys, other.weights))
        heapq.heappush(queue, (merged.size, number, merged))
        number += 1
    return queue[0][2]


class Accumulator:
    """Adds up partial histograms in memory proportional to the number of distinct keys."""

    def __init__(self, weights: int = 1, *, compact_at: int = _COMPACT_AT) -> None:
        self._total = Histogram.empty(weights)
        self._waiting: list[Histogram] = []
        self._waiting_keys = 0
        self._compact_at = compact_at

    def add(self, part: Histogram) -> None:
        """Take in one partial histogram."""
        expected = self._total.weights.shape[1]
        if part.weights.shape[1] != expected:
            raise InputError(
                f"the key function gave {part.weights.shape[1]} weights per row, expected {expected}"
            )
        self._waiting.append(part)
        self._waiting_keys += part.size
        # Waiting for at least as many keys as the total holds keeps the work linear in what was added.
        if self._waiting_keys > max(self._compact_at, self._total.size):
            self._compact()

    def result(self) -> Histogram:
        """The sum of everything added so far."""
        self._compact()
        return self._total

    def _compact(self) -> None:
        self._total = merge_all([self._total, *self._waiting])
        self._waiting, self._waiting_keys = [], 0


def _checked(keys: Keys, weights: Weights | None) -> tuple[Keys, Weights | None]:
    keys = np.asarray(keys)
    if keys.dtype != np.uint64 or keys.ndim != 1:
        raise TypeError(f"keys must be a 1-D uint64 array, got {keys.dtype} of shape {keys.shape}")
    if weights is None:
        return keys, None
    weights = np.asarray(weights)
    if weights.ndim == 1:
        weights = weights[:, None]
    if weights.dtype.kind not in "iub" or weights.ndim != 2 or len(weights) != len(keys):
        raise TypeError(
            f"weights must be integers of shape ({len(keys)}, m), got {weights.dtype} {weights.shape}"
        )
    weights = weights.astype(np.int64, copy=False)
    if weights.shape[1] == 1:  # counting needs no weights; rows that weigh nothing are left out
        ones = weights[:, 0] == 1
        if ones.all():
            return keys, None
        if not weights[~ones].any():
            return keys[ones], None
    return keys, weights


def _count(keys: Keys) -> Histogram:
    if len(keys) == 0:
        return Histogram.empty()
    top = int(keys.max())
    if top < _DENSE_KEYS_PER_ROW * len(keys):
        counts = np.bincount(keys.astype(np.int64), minlength=top + 1)
        present = np.flatnonzero(counts)
        return Histogram(present.astype(np.uint64), counts[present].astype(np.int64)[:, None])
    ordered = np.sort(keys)
    starts = _run_starts(ordered)
    counts = np.diff(starts, append=len(ordered))
    return Histogram(ordered[starts], counts.astype(np.int64)[:, None])


def _sum_runs(keys: Keys, weights: Weights) -> Histogram:
    starts = _run_starts(keys)
    sums = np.add.reduceat(weights, starts, axis=0)
    there = sums.any(axis=1)
    return Histogram(keys[starts], sums) if there.all() else Histogram(keys[starts[there]], sums[there])


def _run_starts(ordered: Keys) -> NDArray[np.int64]:
    first = np.empty(len(ordered), dtype=bool)
    first[:1] = True
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return np.flatnonzero(first)

"""Partitions of a domain into cells of a hierarchy, and a released count on each of their cells.

A partition's cells are disjoint, sorted by key, and cover the domain: cells in which the domain has no
measure are left out. Ranges are aligned to ``MAX_BITS``, so cells of different sizes compare as integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from synthgeo import ragged
from synthgeo.arrays import Floats, Ints, Keys
from synthgeo.codec import Stateful
from synthgeo.hierarchy.base import MAX_BITS, ROOT, Hierarchy, aligned

# The levels of a tree that is cut by one bit at a time.
EVERY_BIT = tuple(range(MAX_BITS + 1))


@dataclass(frozen=True, eq=False)
class Partition:
    """Disjoint cells (prefix, bits) in the order of their keys, each with its public measure."""

    prefix: Keys
    bits: Ints
    measure: Floats
    start: Keys = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "start", aligned(self.prefix, self.bits))

    @classmethod
    def whole(cls, hierarchy: Hierarchy) -> Partition:
        """One cell: everything."""
        return cls(ROOT, np.zeros(1, dtype=np.int64), hierarchy.measure(ROOT, 0))

    @classmethod
    def join(cls, parts: Sequence[tuple[Keys, int, Floats]]) -> Partition:
        """Collect cells found level by level and put them in order."""
        prefix = np.concatenate([p for p, _, _ in parts])
        bits = np.concatenate([np.full(p.size, b, dtype=np.int64) for p, b, _ in parts])
        measure = np.concatenate([m for _, _, m in parts])
        order = np.argsort(aligned(prefix, bits), kind="stable")
        return cls(prefix[order], bits[order], measure[order])

    @classmethod
    def checked(cls, prefix: Keys, bits: Ints, measure: Floats) -> Partition:
        """The partition of these arrays; ``ValueError`` if they are none, from whomever they come."""
        kinds = [(array.dtype.kind, array.shape) for array in (prefix, bits, measure)]
        if kinds != [("u", (prefix.size,)), ("i", (prefix.size,)), ("f", (prefix.size,))]:
            raise ValueError("cells need a prefix, bits and a measure each")
        if np.any((bits < 0) | (bits > MAX_BITS)) or np.any(
            prefix >> np.clip(bits, 0, MAX_BITS).astype(np.uint64)
        ):
            raise ValueError("a cell that is not in the tree")
        cells = cls(prefix, bits, measure)
        if np.any(cells.stop[:-1] > cells.start[1:]):
            raise ValueError("cells that overlap or are out of order")
        if not np.all((measure >= 0) & np.isfinite(measure)):
            raise ValueError("a cell without a measure")
        return cells

    @property
    def size(self) -> int:
        """Number of cells."""
        return int(self.prefix.size)

    @cached_property
    def stop(self) -> Keys:
        """One past the last key of each cell at ``MAX_BITS``."""
        return aligned(self.prefix + np.uint64(1), self.bits)

    def cell_of(self, keys: Keys, bits: int) -> Ints:
        """Index of the cell that holds each key, -1 where the partition has none."""
        return self.holder_of(aligned(keys, bits))

    def holder_of(self, fine: Keys) -> Ints:
        """Index of the cell that holds each key of ``MAX_BITS``, -1 in the gaps where the domain is empty."""
        index = np.searchsorted(self.start, fine, side="right") - 1
        return np.where((index >= 0) & (fine < self.stop[index]), index, -1)

    def totals(self, keys: Keys, bits: int, weights: Ints) -> Ints:
        """Sum of ``weights`` (one row for each key, keys sorted) in each cell. Exact: integers throughout."""
        running = np.zeros((keys.size + 1, *weights.shape[1:]), dtype=np.int64)
        np.cumsum(weights, axis=0, out=running[1:])
        fine = aligned(keys, bits)
        return running[np.searchsorted(fine, self.stop)] - running[np.searchsorted(fine, self.start)]

    def match(self, other: Partition) -> tuple[Ints, Ints]:
        """Indices (here, there) of the cells that both partitions have."""
        if not other.size or not self.size:
            return np.empty(0, dtype=np.intp), np.empty(0, dtype=np.intp)
        there = np.searchsorted(other.start, self.start)
        there = np.minimum(there, other.size - 1)
        same = (other.start[there] == self.start) & (other.bits[there] == self.bits)
        return np.flatnonzero(same), there[same]


class Estimate(Stateful):
    """A released, additive count on the cells of a partition, with the variance of its noise.

    Counts spread inside a cell in proportion to the domain's measure, so refining changes no cell's total.
    Everything here is computed from released numbers and public geometry: post-processing.
    """

    keeps: ClassVar[dict[str, Any]] = {"cells": Partition, "values": np.ndarray, "variance": np.ndarray}

    def __init__(
        self, cells: Partition, values: Floats, variance: Floats, *, levels: Sequence[int] = EVERY_BIT
    ) -> None:
        self.cells = cells
        self.values = values
        self.variance = variance
        self._tree_levels = levels  # bits of the tree's cells, by depth
        self._families: list[tuple[Ints, Ints]] | None = None

    def restored(self) -> None:
        self._families = None
        for counts in (self.values, self.variance):
            if counts.shape != (self.cells.size,) or not np.all(np.isfinite(counts)):
                raise ValueError("counts that do not fit their cells")

    def refine(self, partition: Partition) -> None:
        """Cut cells so that each lies inside one cell of ``partition``."""
        mine, theirs = self.cells, partition
        inside = mine.holder_of(theirs.start)
        finer = np.flatnonzero((inside >= 0) & (mine.bits[inside] < theirs.bits))
        if not finer.size:
            return
        owner = inside[finer]
        keep = np.ones(mine.size, dtype=bool)
        keep[owner] = False
        share = _shares(theirs.measure[finer], owner, mine.size)
        prefix = np.concatenate([mine.prefix[keep], theirs.prefix[finer]])
        bits = np.concatenate([mine.bits[keep], theirs.bits[finer]])
        measure = np.concatenate([mine.measure[keep], theirs.measure[finer]])
        values = np.concatenate([self.values[keep], self.values[owner] * share])
        variance = np.concatenate([self.variance[keep], self.variance[owner] * share**2])
        order = np.argsort(aligned(prefix, bits), kind="stable")
        self._replace(Partition(prefix[order], bits[order], measure[order]), values[order], variance[order])

    def add(self, partition: Partition, increments: Floats, variance: Floats) -> None:
        """Add a noisy count to each cell of ``partition``, which this estimate must already refine."""
        owner = self._owner(partition)
        share = _shares(self.cells.measure, owner, partition.size)
        self.values = self.values + increments[owner] * share
        self.variance = self.variance + variance[owner] * share**2

    def coarsen(self, partition: Partition) -> None:
        """Forget detail below the cells of ``partition``, which this estimate must already refine."""
        if self.cells.size > partition.size:
            self._replace(partition, self.sums(partition, self.values), self.sums(partition, self.variance))

    def sums(self, partition: Partition, values: Floats) -> Floats:
        """Totals of per-cell ``values`` over the cells of a coarser partition."""
        totals: Floats = np.bincount(self._owner(partition), values, minlength=partition.size).astype(
            np.float64
        )
        return totals

    def non_negative(self) -> Floats:
        """The values made non-negative and consistent from the root down.

        The root keeps its total (or 0); each node's total is divided among its children in proportion to
        their positive parts, or by measure where no child is positive.
        """
        if self._families is None:
            self._families = families_of(self.cells, self._tree_levels)
        total = np.array([max(0.0, float(self.values.sum()))])
        for first, parent in self._families:
            positive = np.maximum(np.add.reduceat(self.values, first), 0.0)
            weight = np.bincount(parent, positive, minlength=total.size)
            empty = weight <= 0
            if empty.any():
                area = np.add.reduceat(self.cells.measure, first)
                positive = np.where(empty[parent], area, positive)
                weight = np.bincount(parent, positive, minlength=total.size)
            total = positive * (total / weight)[parent]
        return total

    def _owner(self, partition: Partition) -> Ints:
        if partition is self.cells:
            return np.arange(partition.size)
        return np.searchsorted(partition.start, self.cells.start, side="right") - 1

    def _replace(self, cells: Partition, values: Floats, variance: Floats) -> None:
        self.cells, self.values, self.variance = cells, values, variance
        self._families = None


class EstimateScore:
    """PrivTree scores from an estimate: grid steps, non-negative, monotone, and the same in both worlds.

    Cells' values are rounded down to the grid once and summed, so a parent's score is the exact sum of what
    lies below it; below an estimate's cell the score is the cell's, cut by measure and rounded down, never
    above its parent's.
    """

    def __init__(self, cells: Partition, values: Floats, grid: int) -> None:
        self._cells = cells
        self._steps = np.floor(values * grid).astype(np.int64)
        self._running = ragged.offsets_of(self._steps)

    def __call__(self, prefix: Keys, bits: int, measure: Floats) -> Ints:
        cells = self._cells
        start = aligned(prefix, bits)
        first = np.searchsorted(cells.start, start)
        last = np.searchsorted(cells.start, aligned(prefix + np.uint64(1), bits))
        score: Ints = self._running[last] - self._running[first]
        holder = cells.holder_of(start)
        below = (holder >= 0) & (cells.bits[holder] < bits)
        if below.any():
            owner = holder[below]
            # A share above 1 could only be rounding; cutting it keeps the score below the parent's.
            share = np.minimum(measure[below] / cells.measure[owner], 1.0)
            score[below] = np.floor(self._steps[owner] * share).astype(np.int64)
        return score


def _shares(measure: Floats, owner: Ints, owners: int) -> Floats:
    """Each cell's part of its owner's measure."""
    return measure / np.bincount(owner, measure, minlength=owners)[owner]


def families_of(cells: Partition, tree_levels: Sequence[int]) -> list[tuple[Ints, Ints]]:
    """For each level of the tree over the cells: where its groups begin, and each group's parent one level
    up.

    Two neighbours part at the level of their first different bit, so a level is one comparison with those
    depths. Levels at which nothing parts are left out.
    """
    different = cells.start[1:] ^ cells.start[:-1]
    # Position of the highest set bit, from 1; floats are exact below 2^53 only, so look at the upper half
    # first.
    high = (different >> np.uint64(31)).astype(np.float64)
    low = (different & np.uint64(0x7FFFFFFF)).astype(np.float64)
    top = np.where(high > 0, np.frexp(high)[1] + 31, np.frexp(low)[1])
    common = np.searchsorted(tree_levels, MAX_BITS - top, side="right") - 1  # the last level they share
    families = []
    parent_start = np.zeros(1, dtype=np.int64)
    for level in np.unique(common):
        first = np.concatenate([[0], np.flatnonzero(common <= level) + 1])
        parent = np.searchsorted(parent_start, first, side="right") - 1
        families.append((first, parent))
        parent_start = first
    return families

"""Origin-destination pairs by PrivTree on the product of the partition's tree with itself.

The tree of cells (the released partition) is a binary tree S. A node of the product tree is a pair (u, v)
of nodes of S, its children are all pairs of a child of u and a child of v (a leaf of S stays as it is), so
the fanout is β² = 4. Only nodes whose parent was split exist in memory; the |cells|² pairs are never
formed.

Guarantee
---------
Let one trip be added. Its pair of end cells lies under exactly one root-to-leaf path of the product tree,
on which counts rise by 1; elsewhere nothing changes. Counts are non-negative and no child exceeds its
parent, so PrivTree with the constants of fanout 4 is ε_tree-differentially private, and discrete Laplace
noise of scale 1/ε_count on **every** leaf (L1 sensitivity 1) is ε_count-differentially private. A node with
true count 0 is tested and may be split like any other, and its leaf gets noise: skipping it would show that
it is empty. That a pair of single cells is not split further, and that children without cells are left out,
depends on the released partition only. Together ε_tree + ε_count.

The ends by cell (``measure_ends``) are a histogram to which a trip adds 1 at its origin and 1 at its
destination: L1 sensitivity 2, discrete Laplace noise of scale 2/ε on every cell.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from synthgeo.domain.spatial import MAX_BITS, Keys
from synthgeo.partition.cells import Partition, aligned
from synthgeo.partition.privtree import GRID, SplitRule
from synthgeo.privacy.noise import Noise
from trajectories.states import Floats, Ints

_FANOUT = 4
# Of the ε of pairs: ends by cell, the tree of pairs, the counts of its blocks.
ENDS_SHARE, TREE_SHARE, COUNT_SHARE = 0.47, 0.09, 0.44


@dataclass(frozen=True, eq=False)
class PairBlocks:
    """Released counts of trips on blocks of pairs: origins in cells [origin_low, origin_high), destinations
    likewise.

    The blocks are disjoint and cover all pairs of cells. ``count`` is noisy and may be negative.
    """

    origin_low: Ints
    origin_high: Ints
    destination_low: Ints
    destination_high: Ints
    count: Floats

    @property
    def size(self) -> int:
        """Number of blocks."""
        return len(self.count)


@dataclass(frozen=True, eq=False)
class _Side:
    """Nodes of the partition's tree: prefix and bits, and the range of leaves below."""

    prefix: Keys
    bits: Ints
    low: Ints
    high: Ints

    def take(self, index: Ints) -> _Side:
        return _Side(self.prefix[index], self.bits[index], self.low[index], self.high[index])

    def is_leaf(self, cells: Partition) -> np.ndarray:
        leaf: np.ndarray = (self.high - self.low == 1) & (cells.bits[self.low] == self.bits)
        return leaf

    def halves(self, cells: Partition) -> tuple[_Side, np.ndarray]:
        """Both children of every node, one row a node; and which exist. A leaf is its own child 0."""
        leaf = self.is_leaf(cells)[:, None]
        fan = np.arange(2, dtype=np.uint64)
        prefix = np.where(leaf, self.prefix[:, None], (self.prefix[:, None] << np.uint64(1)) | fan)
        bits = np.where(leaf, self.bits[:, None], np.minimum(self.bits[:, None] + 1, MAX_BITS))
        bits = np.broadcast_to(bits, prefix.shape)
        low = np.searchsorted(cells.start, aligned(prefix.ravel(), bits.ravel())).reshape(prefix.shape)
        high = np.searchsorted(cells.start, aligned(prefix.ravel() + np.uint64(1), bits.ravel())).reshape(
            prefix.shape
        )
        exists = (high > low) & (~leaf | (fan == 0))
        return _Side(prefix, bits, low.astype(np.int64), high.astype(np.int64)), exists


def measure_pairs(
    origin: Ints,
    destination: Ints,
    partition: Partition,
    *,
    epsilon_tree: float,
    epsilon_count: float,
    noise: Noise,
    theta: float = 0.0,
    base: int = 4,
) -> PairBlocks:
    """Noisy counts of (origin cell, destination cell) pairs on adaptive blocks.

    The first ``base`` levels are split without asking, and their nodes count as depth 1: a forest of
    PrivTrees, with the guarantee of one (``discretise.cut`` says why).
    """
    rule = SplitRule(epsilon_tree, fanout=_FANOUT, theta=theta)
    none, whole = np.zeros(1, dtype=np.int64), np.full(1, partition.size, dtype=np.int64)
    everything = _Side(np.zeros(1, dtype=np.uint64), none, none, whole)
    one, two = everything, everything
    node = np.zeros(len(origin), dtype=np.int64)  # node of this level that holds each trip, -1 when settled
    for _ in range(base):
        all_of = np.ones(len(one.low), dtype=bool)
        one, two, node = _children(one, two, partition, node, all_of, origin, destination)
    done: list[tuple[_Side, _Side, Ints]] = []
    depth = 1
    while len(one.low):
        counts = np.bincount(node[node >= 0], minlength=len(one.low))
        single = one.is_leaf(partition) & two.is_leaf(partition)
        split = np.zeros(len(single), dtype=bool)
        split[~single] = rule.decide(counts[~single] * GRID.one, depth, noise)
        stay, grow = np.flatnonzero(~split), np.flatnonzero(split)
        done.append((one.take(stay), two.take(stay), counts[stay]))
        one, two, node = _children(
            one.take(grow), two.take(grow), partition, node, split, origin, destination
        )
        depth += 1
    exact = np.concatenate([counts for _, _, counts in done])
    noisy = exact + noise.discrete_laplace(1 / epsilon_count, exact.size)
    return PairBlocks(
        np.concatenate([u.low for u, _, _ in done]),
        np.concatenate([u.high for u, _, _ in done]),
        np.concatenate([v.low for _, v, _ in done]),
        np.concatenate([v.high for _, v, _ in done]),
        noisy.astype(np.float64),
    )


def measure_ends(origin: Ints, destination: Ints, cells: int, *, epsilon: float, noise: Noise) -> Floats:
    """Noisy number of ends of trips in every cell, halved: as many as there are trips in all."""
    exact = np.bincount(origin, minlength=cells) + np.bincount(destination, minlength=cells)
    return (exact + noise.discrete_laplace(2 / epsilon, cells)) / 2.0


def _children(
    one: _Side,
    two: _Side,
    cells: Partition,
    node: Ints,
    split: np.ndarray,
    origin: Ints,
    destination: Ints,
) -> tuple[_Side, _Side, Ints]:
    """All pairs of children of the nodes that were split, and the child that each trip falls into."""
    u, u_exists = one.halves(cells)
    v, v_exists = two.halves(cells)
    exists = u_exists[:, :, None] & v_exists[:, None, :]
    parent, first, second = np.nonzero(exists)
    number = np.full(exists.shape, -1, dtype=np.int64)
    number[exists] = np.arange(len(parent))
    rank = np.cumsum(split) - 1
    moved = (node >= 0) & split[np.maximum(node, 0)]
    row = rank[node[moved]]
    slot_u = _slot(u, row, origin[moved])
    slot_v = _slot(v, row, destination[moved])
    out = np.full(len(node), -1, dtype=np.int64)
    out[moved] = number[row, slot_u, slot_v]
    return (
        _Side(u.prefix[parent, first], u.bits[parent, first], u.low[parent, first], u.high[parent, first]),
        _Side(
            v.prefix[parent, second], v.bits[parent, second], v.low[parent, second], v.high[parent, second]
        ),
        out,
    )


def _slot(side: _Side, row: Ints, cell: Ints) -> Ints:
    inside = (side.low[row] <= cell[:, None]) & (cell[:, None] < side.high[row])
    slot: Ints = np.argmax(inside, axis=1)
    return slot


__all__ = ["COUNT_SHARE", "ENDS_SHARE", "TREE_SHARE", "PairBlocks", "measure_ends", "measure_pairs"]

"""PrivTree: cut a hierarchy of cells where the data is dense, privately.

Zhang, Xiao and Xie, "PrivTree: A Differentially Private Algorithm for Hierarchical Decompositions" (SIGMOD
2016), in the form that Kumar's dissertation uses. A node of score F at depth d is split when

    max(F - d δ, θ - δ) + noise > θ,        noise ~ discrete Laplace of scale λ,  λ = (2β - 1) / ((β - 1) ε),
     δ = λ ln β rounded up.

Guarantee
---------
Let two worlds' scores be non-negative integers of grid steps, fall (weakly) from a parent to its child in
each world, and let one world's be the larger by at most 1 (2^20 grid steps) on the nodes of one root-to-leaf
path, and nowhere else. Then the tree is ε-differentially private, whatever the depth.

*Why.* Only nodes on the path matter. With x the biased score in the smaller world and x + 1 in the larger, a
node that is not split favours the smaller world and a node that is split the larger one by at most ln
P(noise > θ - x - 1) / P(noise > θ - x), which is at most 1/λ, and at most e^-(x - θ)/λ / λ once x > θ. Along
the path the score falls weakly while d δ grows, so the biased score falls by at least δ per level until it
meets the floor θ - δ, where both worlds look the same. The terms above θ form a geometric series of ratio
e^(-δ/λ) <= 1/β, at most one node lies between, and the sum is at most (1/λ) (1 + β/(β - 1)) = (2β - 1)/((β -
1) λ) = ε. All quantities are multiples of one grid step (δ is rounded
*up* to it), because with noise on a coarser grid than δ the series does not telescope.
``synthgeo.auditing.whitebox`` has the exact worst case: 0.67 ε to 0.87 ε at fanout 2 (ADR 4).

A unit that spreads fractions over several leaves changes a node by the share Δ of it that lies below. With
the same two bounds times Δ, the loss of a path is at most Δ ε when the biased score falls by at least one
whole count per level, because then a node at which the worlds differ by less than 1 cannot linger between
floor and threshold; ``fractional=True`` therefore never lets δ fall below 1. Paths' shares add up to at most
1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from synthgeo import ragged, validate
from synthgeo.arrays import Bools, Floats, Ints, Keys
from synthgeo.errors import ConfigError
from synthgeo.hierarchy.base import MAX_BITS, ROOT, Hierarchy, aligned, children, descend
from synthgeo.hierarchy.cells import Partition
from synthgeo.privacy.noise import MAX_SCALE, FixedPoint, Noise

GRID = FixedPoint(20)

# Scores in grid steps of the nodes (prefix, bits, measure) of one level.
Score = Callable[[Keys, int, Floats], Ints]


@dataclass(frozen=True)
class SplitRule:
    """The noisy test that decides which nodes of one level are split."""

    epsilon: float
    fanout: int = 2
    theta: float = 0.0
    fractional: bool = False
    grid: FixedPoint = GRID

    def __post_init__(self) -> None:
        validate.positive(self.epsilon, "epsilon")
        validate.whole(self.fanout, "fanout", low=2)
        validate.finite(self.theta, "theta", low=0, high=MAX_SCALE)
        if self.scale * self.grid.one > MAX_SCALE:
            most = f"2^{math.log2(MAX_SCALE / self.grid.one):g}"
            raise ConfigError(f"ε = {self.epsilon:g} for a tree is too small: its noise would exceed {most}")

    @property
    def scale(self) -> float:
        """Noise scale λ in units of one count."""
        return (2 * self.fanout - 1) / ((self.fanout - 1) * self.epsilon)

    @property
    def decay(self) -> int:
        """Bias per level δ, in grid steps, rounded up; at least one count for fractional contributions."""
        decay = math.ceil(self.scale * math.log(self.fanout) * self.grid.one)
        return max(decay, self.grid.one) if self.fractional else decay

    @property
    def threshold(self) -> int:
        """θ in grid steps."""
        return int(self.grid.floor(self.theta))

    def decide(self, scores: Ints, depth: int | Ints, noise: Noise) -> Bools:
        """Which nodes at ``depth`` (of all, or of each) are split; scores are grid steps >= 0, no child above
        its parent.
        """
        biased = np.maximum(scores - depth * self.decay, self.threshold - self.decay)
        drawn = noise.discrete_laplace(self.scale * self.grid.one, scores.size)
        split: Bools = biased + drawn > self.threshold
        return split


def grow(
    hierarchy: Hierarchy, score: Score, rule: SplitRule, *, levels: Sequence[int], noise: Noise
) -> Partition:
    """The leaves of the tree that ``rule`` cuts, level by level; ``levels`` are the bits of its cells by
    depth. Cells in which the domain has no measure are pruned.
    """
    prefix, measure = ROOT, hierarchy.measure(ROOT, 0)
    leaves = []
    for depth, (bits, finer) in enumerate(pairwise(levels)):
        split = rule.decide(score(prefix, bits, measure), depth, noise)
        leaves.append((prefix[~split], bits, measure[~split]))
        prefix = children(prefix[split], step=finer - bits).ravel()
        measure = hierarchy.measure(prefix, finer)
        real = measure > 0
        prefix, measure = prefix[real], measure[real]
        if not prefix.size:
            break
    leaves.append((prefix, levels[-1], measure))
    return Partition.join(leaves)


class KeyScore:
    """Scores from sorted keys: a node is a range of keys, its score two ``searchsorted``s."""

    def __init__(self, keys: Keys, bits: int, weights: Ints) -> None:
        self._keys = aligned(keys, bits)
        self._running = ragged.offsets_of(weights)

    def __call__(self, prefix: Keys, bits: int, measure: Floats) -> Ints:  # noqa: ARG002
        first = np.searchsorted(self._keys, aligned(prefix, bits))
        last = np.searchsorted(self._keys, aligned(prefix + np.uint64(1), bits))
        score: Ints = self._running[last] - self._running[first]
        return score


def privtree(
    keys: Keys,
    weights: Ints,
    *,
    hierarchy: Hierarchy,
    epsilon: float,
    noise: Noise,
    max_depth: int = 20,
    fanout: int = 2,
    theta: float = 0.0,
    fractional: bool = False,
) -> Partition:
    """The PrivTree of weighted keys.

    ``keys`` are sorted, at the bits of the last level, and ``weights`` their non-negative
    contributions in grid steps (``GRID.one`` for a whole one). One privacy unit contributes at most
    ``GRID.one`` in all.
    """
    levels = hierarchy.levels(max_depth, fanout)
    if weights.size and int(weights.min()) < 0:
        raise ConfigError("PrivTree needs non-negative contributions")
    rule = SplitRule(epsilon, fanout, theta, fractional)
    return grow(hierarchy, KeyScore(keys, levels[-1], weights), rule, levels=levels, noise=noise)


# Move a partition by released counts: split cells that hold enough, merge siblings that do not.
#
# Guarantee
# ---------
# Post-processing. The new partition is a function of released counts, public geometry and public thresholds,
# so it costs no privacy budget, however often it is done. This is what lets a stream follow its data without
# paying for a new PrivTree: events pay for the counts alone.


def adapt(
    partition: Partition,
    released: Floats,
    *,
    hierarchy: Hierarchy,
    levels: Sequence[int],
    split_above: float,
    merge_below: float,
) -> Partition:
    """The partition in which no cell of more than ``split_above`` is left whole, and siblings below
    ``merge_below`` are one.

    ``released`` is a non-negative released count of each cell; inside a cell it is taken to be spread by
    measure, so a cell of eight times the threshold is cut three times at once. ``levels`` are the bits of
    the tree's cells by depth.
    """
    to_children, to_parent = _steps(levels)
    prefix, bits, measure, count = _merge(partition, released, merge_below, to_parent)
    done = []
    while True:
        split = (count > split_above) & (to_children[bits] > 0)
        done.append((prefix[~split], bits[~split], measure[~split]))
        if not split.any():
            break
        parent_count, parent_bits = count[split], bits[split]
        children, parent = descend(prefix[split], to_children[parent_bits])
        child_bits = (parent_bits + to_children[parent_bits])[parent]
        child_measure = hierarchy.measure(children, child_bits)
        of_parent = np.bincount(parent, child_measure)
        child_count = (parent_count / of_parent)[parent] * child_measure
        real = child_measure > 0
        prefix, bits, measure, count = (
            children[real],
            child_bits[real],
            child_measure[real],
            child_count[real],
        )
    if len(done) == 1 and done[0][0].size == partition.size:
        return partition
    prefix, bits, measure = (np.concatenate([part[i] for part in done]) for i in range(3))
    order = np.argsort(Partition(prefix, bits, measure).start, kind="stable")
    return Partition(prefix[order], bits[order], measure[order])


def _steps(levels: Sequence[int]) -> tuple[Ints, Ints]:
    """For a cell of b bits, how many more bits its children have, and its parent fewer; 0 where it has
    none.
    """
    to_children, to_parent = np.zeros((2, MAX_BITS + 1), dtype=np.int64)
    to_children[list(levels[:-1])] = to_parent[list(levels[1:])] = np.diff(levels)
    return to_children, to_parent


def _merge(
    partition: Partition, released: Floats, merge_below: float, to_parent: Ints
) -> tuple[Keys, Ints, Floats, Floats]:
    """Families of siblings that are all leaves and hold little together become their parent."""
    prefix, bits, measure = partition.prefix, partition.bits, partition.measure
    if partition.size < 2:
        return prefix, bits, measure, released
    up = to_parent[bits]
    parent = prefix >> up.astype(np.uint64)
    # In the order of keys a family of leaves is a run of equal (parent, bits); a sibling that was cut further
    # breaks into the run.
    fresh = np.ones(partition.size, dtype=bool)
    fresh[1:] = (parent[1:] != parent[:-1]) | (bits[1:] != bits[:-1])
    first = np.flatnonzero(fresh)
    together = np.add.reduceat(released, first)
    size = np.add.reduceat(measure, first)
    whole = _is_family(partition, parent, up, first)
    merge = whole & (together < merge_below)
    run = np.cumsum(fresh) - 1
    keep = ~merge[run] | fresh
    merged = merge[run[keep]]
    return (
        np.where(merged, parent[keep], prefix[keep]),
        np.where(merged, (bits - up)[keep], bits[keep]),
        np.where(merged, size[run[keep]], measure[keep]),
        np.where(merged, together[run[keep]], released[keep]),
    )


def _is_family(partition: Partition, parent: Keys, up: Ints, first: Ints) -> Bools:
    """Whether each run of equal (parent, bits) is all that the partition has below that parent."""
    last = np.append(first[1:], partition.size)
    bounds = Partition(parent[first], (partition.bits - up)[first], np.ones(first.size))
    begins = np.searchsorted(partition.start, bounds.start)
    ends = np.searchsorted(partition.start, bounds.stop)
    family: Bools = (up[first] > 0) & (begins == first) & (ends == last)
    return family

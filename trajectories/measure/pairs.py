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
depends on the released partition only; which blocks are split without asking, on released ends; that a level
is not asked, on how many blocks the levels above it have, which is released: fewer questions cost no more.
Together ε_tree + ε_count.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numba
import numpy as np

from synthgeo.arrays import Floats, Ints, Keys, Points
from synthgeo.hierarchy.base import MAX_BITS, aligned
from synthgeo.hierarchy.cells import Partition
from synthgeo.hierarchy.privtree import GRID, SplitRule
from synthgeo.privacy.noise import Noise, laplace_variance
from synthgeo.ragged import offsets_of, owners_of, ranks_of
from synthgeo.sources.histogram import Histogram
from trajectories.fit.shrinkage import combine_blocks
from trajectories.ground.state_graph import StateGraph, fill_gaps
from trajectories.parts.columns import total

__all__ = [
    "PairBlocks",
    "Weights",
    "count_blocks",
    "count_links",
    "crossing_shares",
    "expected_crossings",
    "halvings_of",
    "measure_links",
    "measure_pairs",
    "non_negative",
    "segment_offsets",
]


_FANOUT = 4
_ENOUGH = 4.0  # trips expected in a block, in standard deviations of the noise in its count
MOST_BLOCKS = 1 << 17  # no level is split beyond this many: at large ε every pair of cells would be a block


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
class _PairSide:
    """Nodes of the partition's tree: prefix and bits, and the range of leaves below."""

    prefix: Keys
    bits: Ints
    low: Ints
    high: Ints

    def take(self, index: Ints) -> _PairSide:
        return _PairSide(self.prefix[index], self.bits[index], self.low[index], self.high[index])

    def is_leaf(self, cells: Partition) -> np.ndarray:
        leaf: np.ndarray = (self.high - self.low == 1) & (cells.bits[self.low] == self.bits)
        return leaf

    def halves(self, cells: Partition) -> tuple[_PairSide, np.ndarray]:
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
        return _PairSide(prefix, bits, low.astype(np.int64), high.astype(np.int64)), exists


def measure_pairs(
    origin: Ints,
    destination: Ints,
    partition: Partition,
    *,
    epsilon_tree: float,
    epsilon_count: float,
    noise: Noise,
    ends: Floats,
    theta: float = 0.0,
    blocks: PairBlocks | None = None,
) -> PairBlocks:
    """Noisy counts of (origin cell, destination cell) pairs on adaptive blocks. A trip with an end in no
    cell (-1) is not counted.

    ``ends`` are released numbers of ends by cell, halved. Blocks for which they let expect more trips than
    noise are split without asking; what is left counts as depth 1: a forest of PrivTrees, with the guarantee
    of one (``measure_cells`` says why). Where ``blocks`` of an earlier release are given, these are counted,
    and no tree is grown.
    """
    if blocks is not None:
        exact = total(count_blocks, blocks, origin, destination)
        noisy = exact + noise.discrete_laplace(1 / epsilon_count, exact.size)
        return replace(blocks, count=noisy.astype(np.float64))
    rule = SplitRule(epsilon_tree, fanout=_FANOUT, theta=theta)
    enough = _ENOUGH * math.sqrt(laplace_variance(1 / epsilon_count))
    running = np.concatenate([[0.0], np.cumsum(non_negative(ends))])
    whole_ends = max(float(running[-1]), 1e-300)
    found = total(distinct_pairs, origin, destination, partition.size)
    first, last = (part.astype(np.int64) for part in np.divmod(found.keys, np.uint64(partition.size)))
    trips = found.weights[:, 0]
    none, whole = np.zeros(1, dtype=np.int64), np.full(1, partition.size, dtype=np.int64)
    one = two = _PairSide(np.zeros(1, dtype=np.uint64), none, none, whole)
    node = np.zeros(len(first), dtype=np.int64)  # node of this level that holds each pair, -1 when settled
    depth = np.zeros(1, dtype=np.int64)
    done: list[tuple[_PairSide, _PairSide, Ints]] = []
    settled = 0
    while len(one.low):
        counts = np.zeros(len(one.low), dtype=np.int64)
        np.add.at(counts, node[node >= 0], trips[node >= 0])
        room = (MOST_BLOCKS - settled - len(one.low)) // (_FANOUT - 1)
        open_ = ~(one.is_leaf(partition) & two.is_leaf(partition)) & (room > 0)
        expected = (
            (running[one.high] - running[one.low]) * (running[two.high] - running[two.low]) / whole_ends
        )
        split = open_ & (depth == 0) & (expected > enough)
        if split.sum() > room:  # those with the fewest trips stay whole
            split &= expected > np.partition(np.where(split, expected, 0.0), -room - 1)[-room - 1]
        asked = open_ & ~split
        depth[asked] += 1
        split[asked] = rule.decide(counts[asked] * GRID.one, depth[asked], noise)
        stay, grow = np.flatnonzero(~split), np.flatnonzero(split)
        done.append((one.take(stay), two.take(stay), counts[stay]))
        settled += len(stay)
        one, two, node, parent = _children(
            one.take(grow), two.take(grow), partition, node, split, first, last
        )
        depth = depth[grow][parent]
    exact = np.concatenate([counts for _, _, counts in done])
    noisy = exact + noise.discrete_laplace(1 / epsilon_count, exact.size)
    return PairBlocks(
        np.concatenate([u.low for u, _, _ in done]),
        np.concatenate([u.high for u, _, _ in done]),
        np.concatenate([v.low for _, v, _ in done]),
        np.concatenate([v.high for _, v, _ in done]),
        noisy.astype(np.float64),
    )


def distinct_pairs(origin: Ints, destination: Ints, cells: int) -> Histogram:
    """Trips of each pair of end cells, by origin · cells + destination; a trip with an end in no cell (-1) is
    not counted. Private when the trips are.
    """
    known = (origin >= 0) & (destination >= 0)
    return Histogram.of((origin[known] * cells + destination[known]).astype(np.uint64))


def count_blocks(blocks: PairBlocks, origin: Ints, destination: Ints) -> Ints:
    """Trips in each block, by their end cells (-1: none). Private when the trips are."""
    known = (origin >= 0) & (destination >= 0)
    block = _block_of(
        origin[known].astype(np.int64), destination[known].astype(np.int64), blocks.origin_low,
        blocks.origin_high, blocks.destination_low, blocks.destination_high,
    )  # fmt: skip
    return np.bincount(block, minlength=blocks.size)


@numba.njit(cache=True)
def _block_of(
    origin: Ints, destination: Ints, first_low: Ints, first_high: Ints, second_low: Ints, second_high: Ints
) -> Ints:
    """The block that holds each pair: of the blocks that are listed for its origin, one holds it."""
    cells = 0
    for b in range(len(first_high)):
        cells = max(cells, first_high[b])
    begin = np.zeros(cells + 1, dtype=np.int64)
    for b in range(len(first_low)):
        for cell in range(first_low[b], first_high[b]):
            begin[cell + 1] += 1
    begin = np.cumsum(begin)
    listed, filled = np.empty(begin[-1], dtype=np.int64), begin[:-1].copy()
    for b in range(len(first_low)):
        for cell in range(first_low[b], first_high[b]):
            listed[filled[cell]] = b
            filled[cell] += 1
    out = np.empty(len(origin), dtype=np.int64)
    for i in range(len(origin)):
        for j in range(begin[origin[i]], begin[origin[i] + 1]):
            b = listed[j]
            if second_low[b] <= destination[i] < second_high[b]:
                out[i] = b
                break
    return out


def non_negative(values: Floats, total: float | None = None) -> Floats:
    """The closest non-negative numbers with the same sum (or with ``total``): a constant is taken off,
    negatives become 0.

    Cutting negatives off alone would add the positive half of all the noise.

    >>> non_negative(np.array([10.0, 1.0, -2.0])).tolist()
    [9.0, 0.0, 0.0]
    """
    goal = max(float(values.sum()) if total is None else float(total), 0.0)
    if not len(values) or goal == 0:
        return np.zeros(len(values))
    falling = np.sort(values)[::-1]
    excess = (np.cumsum(falling) - goal) / np.arange(1, len(values) + 1)
    fixed: Floats = np.maximum(values - excess[np.flatnonzero(falling > excess)[-1]], 0.0)
    return fixed


def _children(
    one: _PairSide,
    two: _PairSide,
    cells: Partition,
    node: Ints,
    split: np.ndarray,
    origin: Ints,
    destination: Ints,
) -> tuple[_PairSide, _PairSide, Ints, Ints]:
    """All pairs of children of the nodes that were split, the child that each trip falls into, and the
    parent of each.
    """
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
        _PairSide(
            u.prefix[parent, first], u.bits[parent, first], u.low[parent, first], u.high[parent, first]
        ),
        _PairSide(
            v.prefix[parent, second], v.bits[parent, second], v.low[parent, second], v.high[parent, second]
        ),
        out,
        parent,
    )


def _slot(side: _PairSide, row: Ints, cell: Ints) -> Ints:
    inside = (side.low[row] <= cell[:, None]) & (cell[:, None] < side.high[row])
    slot: Ints = np.argmax(inside, axis=1)
    return slot


# Transitions between cells: measured on every link, with a trip's weight shared over its crossings.
#
# A busy link of a plane is counted in segments of the side that it crosses (``trajectories.measure.pairs``).
#
# Guarantee --------- A trip that crosses n links adds α(n, 1), ..., α(n, n) to them, in grid steps of 2^-20,
# each rounded down, with a sum of at most 1; where a link has segments, to that one of them in which the trip
# crosses it. Adding or removing one trip therefore moves the counts by at most 1 in L1, and discrete Laplace
# noise of scale 1/ε on *every* link and segment, also those that no trip crosses, is ε-differentially private
# (Laplace mechanism). Which links exist follows from the roads and the released partition, which have
# segments from what was released before, and where a trip crosses from its own points.

Weights = Literal["uniform", "ends"]


def crossing_shares(crossings: Ints, weights: Weights) -> Ints:
    """Grid steps for each crossing of trips with so many crossings, one trip after the other.

    ``"uniform"``: 1/n each. ``"ends"``: proportional to 2^-min(i - 1, n - i), so that the quiet streets
    near both ends of long trips are heard (Kumar's equation 5.10, as its text means it).

    >>> crossing_shares(np.array([4]), "ends") / GRID.one
    array([0.33333302, 0.16666603, 0.16666603, 0.33333302])
    """
    trip = np.repeat(np.arange(len(crossings)), crossings)
    count = crossings[trip]
    if weights == "uniform":
        return GRID.one // count
    place = ranks_of(crossings)
    depth = np.minimum(place, count - 1 - place)
    raw = np.exp2(-np.minimum(depth, 60).astype(np.float64))
    total = np.bincount(trip, raw, minlength=len(crossings))
    # A hair below the quotient: rounding of the sum must never lift the shares of a trip above 1.
    return GRID.floor(raw / total[trip] * (1 - 1e-12))


def count_links(
    graph: StateGraph,
    states: Ints,
    start: Ints,
    weights: Weights,
    along: Floats | None = None,
    halvings: Ints | None = None,
) -> Ints:
    """Exact weighted crossings of each link, in grid steps. ``states`` are joined-up sequences. Where links
    are halved, of each segment, one link after the other; trips go so far ``along`` sides. Private.
    """
    trip = owners_of(start)
    inner = trip[1:] == trip[:-1]
    link = graph.link_between(graph.cell[states[:-1]], graph.cell[states[1:]])
    at = np.flatnonzero(inner & (link >= 0))
    link, trip = link[at], trip[at]
    crossings = np.bincount(trip, minlength=len(start) - 1)
    shares = crossing_shares(crossings, weights)
    counters = graph.links
    if along is not None and halvings is not None:
        first = segment_offsets(halvings)
        number = 1 << halvings[link]
        link = first[link] + np.minimum((along[at] * number).astype(np.int64), number - 1)
        counters = int(first[-1])
    out = np.zeros(counters, dtype=np.int64)
    np.add.at(out, link, shares)
    return out


def segment_offsets(halvings: Ints) -> Ints:
    """Offsets of the segments of links that are halved so often; one that is not is a segment by itself."""
    return offsets_of(1 << halvings)


def measure_links(
    graph: StateGraph,
    states: Ints,
    start: Ints,
    *,
    epsilon: float,
    noise: Noise,
    weights: Weights = "uniform",
    along: Floats | None = None,
    halvings: Ints | None = None,
) -> Floats:
    """Noisy crossings of every link, or segment, ε-differentially private; may be negative."""
    exact = total(count_links, graph, states, start, weights, along, halvings)
    return GRID.value(exact + noise.discrete_laplace(GRID.one / epsilon, exact.size))


# Which links on a plane are counted in segments of the side that they cross, and how many.
#
# A cell says which district a trip goes through, not which of its streets. So a link that is expected to
# carry much more than the noise in its count is not counted as one number but in segments of the side that
# its two cells share: halved as often as leaves each segment, on average, well above the noise. Nothing is
# paid for that: the count of a link is the sum of its segments, whose noise is small against what a busy link
# carries.
#
# What is expected costs nothing either. Ends and pairs were released before: they are joined by the shortest
# ways through the cells. Roads need no segments: the map says where they cross.

_ENOUGH_CROSSINGS = (
    4.0  # crossings of a segment, both ways, in standard deviations of the noise in their count
)
_HALVINGS = 4  # a side is cut into 16 at most
_DRAWN = 2000  # pairs


def halvings_of(graph: StateGraph, expected: Floats, deviation: float, finest: Ints) -> Ints:
    """How often each link's side is halved, the same both ways, where so many trips are expected to cross it;
    at most as often as ``finest`` says of both its cells.
    """
    halvings = np.zeros(graph.links, dtype=np.int64)
    step = np.flatnonzero(graph.side_of_step >= 0)
    side = graph.side_of_step[step]
    busy = np.bincount(side, expected[step])[side]
    enough = max(_ENOUGH_CROSSINGS * float(np.sqrt(2)) * deviation, 1e-9)
    most = np.minimum(np.minimum(finest[graph.source[step]], finest[graph.to[step]]), _HALVINGS)
    halvings[step] = np.minimum(np.floor(np.log2(np.maximum(busy / enough, 1.0))), most)
    return halvings


def expected_crossings(
    graph: StateGraph,
    pairs: PairBlocks,
    variance: float,
    by_cell: Floats,
    centres: Points,
    rng: np.random.Generator,
    weights: Weights,
) -> Floats:
    """Crossings of each link if released pairs went by the shortest ways. Post-processing."""
    total = max(float(by_cell.sum()), 1.0)
    weight = np.maximum(by_cell, 0.0) + 1e-3 * total / len(by_cell)
    trips = combine_blocks(pairs, variance, weight, centres, total)
    block = rng.choice(pairs.size, _DRAWN, p=trips / trips.sum())
    running = np.concatenate([[0.0], np.cumsum(weight)])
    ends = []
    for low, high in (
        (pairs.origin_low, pairs.origin_high), (pairs.destination_low, pairs.destination_high)
    ):  # fmt: skip
        first, past = running[low[block]], running[high[block]]
        drawn = np.searchsorted(running, first + rng.random(_DRAWN) * (past - first), side="right") - 1
        ends.append(np.clip(drawn, low[block], high[block] - 1))
    states, start, _ = fill_gaps(graph, np.stack(ends, axis=1).ravel(), 2 * np.arange(_DRAWN + 1))
    return GRID.value(count_links(graph, states, start, weights)) * (total / _DRAWN)

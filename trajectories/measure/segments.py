"""Which links on a plane are counted in segments of the side that they cross, and how many.

A cell says which district a trip goes through, not which of its streets. So a link that is expected to carry
much more than the noise in its count is not counted as one number but in segments of the side that its two
cells share: halved as often as leaves each segment, on average, well above the noise. Nothing is paid for
that: the count of a link is the sum of its segments, whose noise is small against what a busy link carries.

What is expected costs nothing either. Ends and pairs were released before: they are joined by the shortest
ways through the cells. Roads need no segments: the map says where they cross.
"""

from __future__ import annotations

import numpy as np

from synthgeo.arrays import Floats, Ints, Points
from synthgeo.hierarchy.privtree import GRID
from trajectories.fit.shrinkage import combine_blocks
from trajectories.ground.state_graph import StateGraph, fill_gaps
from trajectories.measure.pairs import PairBlocks
from trajectories.measure.transitions import Weights, count_links

_ENOUGH = 4.0  # crossings of a segment, both ways, in standard deviations of the noise in their count
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
    enough = max(_ENOUGH * float(np.sqrt(2)) * deviation, 1e-9)
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


__all__ = ["expected_crossings", "halvings_of"]

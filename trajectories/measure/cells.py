"""The cells of trips: a PrivTree over the places that trips pass and end at.

Guarantee
---------
Every trip adds weights to the keys of its places that sum to at most 1 (2^20 grid steps, each weight
rounded down): an edge counts with its share of the path's length, a point of a free trip with 1/t, and a
public part of the whole goes to the two ends instead, half to each (``weighted_places``). Sums of
non-negative weights fall from a cell to its parts, in both worlds, so PrivTree's proof for fractional
contributions applies: ε-differentially private.
"""

from __future__ import annotations

import numpy as np

from synthgeo.arrays import Ints, Keys
from synthgeo.hierarchy.base import Hierarchy
from synthgeo.hierarchy.cells import Partition
from synthgeo.hierarchy.keys import children
from synthgeo.hierarchy.privtree import GRID, KeyScore, SplitRule
from synthgeo.privacy.noise import Noise
from synthgeo.sources.histogram import Histogram
from trajectories.ground.base import PlacedTrips
from trajectories.parts.columns import total


def measure_cells(
    placed: PlacedTrips,
    hierarchy: Hierarchy,
    *,
    epsilon: float,
    noise: Noise,
    max_depth: int,
    theta: float = 0.0,
    base: int = 6,
    at_ends: float = 0.0,
) -> Partition:
    """The PrivTree of the trips' places, grown from 2^base public cells instead of one.

    ``at_ends`` of a trip's weight lies at its first and its last place, so that cells are small where
    trips end.

    PrivTree's bias grows with depth, so levels that are split anyway are better not counted. A forest of
    disjoint trees has the same guarantee as one tree: no path is longer, and a trip's shares still add up
    to 1 over all paths. Its roots count as depth 1, so that an empty one is split with probability 1/4 and
    the splitting dies out.
    """
    places = total(count_places, placed.keys, placed.shares, placed.ends, at_ends)
    score = KeyScore(places.keys, max_depth, places.weights[:, 0])
    rule = SplitRule(epsilon, 2, theta, fractional=True)
    base = min(base, max_depth)
    prefix = np.arange(1 << base, dtype=np.uint64)
    leaves = []
    for bits in range(base, max_depth + 1):
        measure = hierarchy.measure(prefix, bits)
        prefix, measure = prefix[measure > 0], measure[measure > 0]
        split = np.zeros(len(prefix), dtype=bool)
        if bits < max_depth:
            split = rule.decide(score(prefix, bits, measure), bits - base + 1, noise)
        leaves.append((prefix[~split], bits, measure[~split]))
        prefix = children(prefix[split]).ravel()
        if not len(prefix):
            break
    return Partition.join(leaves)


def count_places(keys: Keys, shares: Ints, ends: Keys, at_ends: float) -> Histogram:
    """The weight of all trips at each place, in grid steps. Private."""
    return Histogram.of(*weighted_places(keys, shares, ends, at_ends))


def weighted_places(keys: Keys, shares: Ints, ends: Keys, at_ends: float) -> tuple[Keys, Ints]:
    """Keys of all places and their weights in grid steps: of each trip at most ``at_ends`` at its two ends
    and 1 - ``at_ends`` along its way, rounded down. Private.
    """
    end = np.full(ends.size, int(GRID.floor(at_ends / 2)), dtype=np.int64)
    along = shares * int(GRID.floor(1 - at_ends)) // GRID.one
    return np.concatenate([keys, ends.ravel()]), np.concatenate([along, end])


__all__ = ["count_places", "measure_cells", "weighted_places"]

"""Where trips start and end: by cell, and finer where many do.

Trips begin and end at few places (stops, gates, ranks), and cells that are good for crossings are too large
to tell them apart. So ends are counted twice: in every cell, and then in parts of the cells that the first
count found busy. A cell is halved as often as leaves its parts, on average, as many ends as there is noise
in their counts: the second count looks where the first one, already noisy, points.

Guarantee
---------
A trip adds 1 at its origin and 1 at its destination: L1 sensitivity 2 for each of the two histograms
(``measure_ends``), and discrete Laplace noise of scale 2/ε on every one of their cells, empty or not. Which
cells are cut, how finely, and hence which parts are counted, follows from the first, released, histogram and
from the public domain. Adaptive composition adds the two ε up.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from synthgeo.arrays import Floats, Ints, Keys
from synthgeo.hierarchy.base import Hierarchy, children
from synthgeo.hierarchy.cells import Partition
from synthgeo.hierarchy.privtree import GRID, KeyScore, SplitRule
from synthgeo.privacy.noise import Noise, laplace_variance
from synthgeo.sources.histogram import Histogram
from trajectories.ground.base import PlacedTrips
from trajectories.ground.state_graph import StateGraph, extents
from trajectories.parts.columns import each, total

__all__ = [
    "BUCKETS",
    "EndCounts",
    "bucket",
    "count_ends",
    "count_lengths",
    "count_places",
    "measure_cells",
    "measure_ends",
    "measure_lengths",
    "parts_of",
    "path_shapes",
    "weighted_places",
]


_ENOUGH = 1.0  # ends that a part of a cell should have, in standard deviations of the noise in its count
_HALVINGS = 6  # a cell is cut into 64 at most
_FIRST = 0.4  # of the ε of ends: the count by cell


@dataclass(frozen=True, eq=False)
class EndCounts:
    """Released numbers of ends, halved: as many as there are trips in all.

    Attributes
    ----------
    by_cell
        Of each cell of the partition.
    parts
        The cells, the busy ones cut finer.
    cell
        Cell that each part belongs to.
    by_part
        Of each part; NaN for a cell that was not cut.
    cell_variance, part_variance
        Of the noise in either.
    """

    by_cell: Floats
    parts: Partition
    cell: Ints
    by_part: Floats
    cell_variance: float
    part_variance: float

    @cached_property
    def counted(self) -> Ints:
        """Parts that were counted by themselves."""
        return np.flatnonzero(~np.isnan(self.by_part))


def measure_ends(origin: Ints, destination: Ints, cells: int, *, epsilon: float, noise: Noise) -> Floats:
    """Noisy number of ends in every cell, halved. An end in no cell (-1) is not counted."""
    exact = total(_ends_in, origin, destination, cells)
    return (exact + noise.discrete_laplace(2 / epsilon, cells)) / 2.0


def _ends_in(origin: Ints, destination: Ints, cells: int) -> Ints:
    ends = np.concatenate([origin, destination])
    return np.bincount(ends[ends >= 0], minlength=cells)


def count_ends(
    origin: Keys,
    destination: Keys,
    bits: int,
    partition: Partition,
    hierarchy: Hierarchy,
    *,
    epsilon: float,
    noise: Noise,
    parts: Partition | None = None,
) -> EndCounts:
    """Both counts of the ends with these keys: ε-differentially private. The cells that are counted finer
    follow from the first count, or are those that the given, released ``parts`` cut.
    """
    for_cells, for_parts = epsilon * _FIRST, epsilon - epsilon * _FIRST

    def counted(cells: Partition, share: float) -> Floats:
        first, last = (each(cells.cell_of, keys, bits) for keys in (origin, destination))
        return measure_ends(first, last, cells.size, epsilon=share, noise=noise)

    by_cell = counted(partition, for_cells)
    variance = halved_variance(for_cells)
    if parts is None:
        enough = max(_ENOUGH * float(np.sqrt(halved_variance(for_parts))), 1e-9)
        halvings = np.floor(np.log2(np.maximum(by_cell / enough, 1.0)))
        cut = parts_of(partition, np.minimum(halvings, _HALVINGS).astype(np.int64), hierarchy, bits)
    else:
        finer = np.setdiff1d(np.arange(parts.size), partition.match(parts)[1])
        cut = Partition(parts.prefix[finer], parts.bits[finer], parts.measure[finer])
    busy = np.isin(np.arange(partition.size), partition.holder_of(cut.start))
    by_part = np.full(0, np.nan)
    if cut.size:
        by_part = counted(cut, for_parts)
    keep = ~busy
    order = np.argsort(np.concatenate([partition.start[keep], cut.start]), kind="stable")
    parts = Partition(
        np.concatenate([partition.prefix[keep], cut.prefix])[order],
        np.concatenate([partition.bits[keep], cut.bits])[order],
        np.concatenate([partition.measure[keep], cut.measure])[order],
    )
    values = np.concatenate([np.full(int(keep.sum()), np.nan), by_part])[order]
    cell = partition.holder_of(parts.start).astype(np.int64)
    return EndCounts(by_cell, parts, cell, values, variance, halved_variance(for_parts))


def parts_of(partition: Partition, halvings: Ints, hierarchy: Hierarchy, bits: int) -> Partition:
    """The parts of cells that are halved so many times, those that hold some of the domain; cells that are
    not halved are left out.
    """
    finer = np.minimum(partition.bits + halvings, bits)
    levels = [(np.empty(0, dtype=np.uint64), 0, np.empty(0))]
    for size, depth in np.unique(np.stack([partition.bits, finer], axis=1), axis=0).tolist():
        if depth == size:
            continue
        prefix = partition.prefix[(partition.bits == size) & (finer == depth)]
        children = np.arange(1 << (depth - size), dtype=np.uint64)
        prefix = ((prefix[:, None] << np.uint64(depth - size)) | children).ravel()
        measure = hierarchy.measure(prefix, depth)
        levels.append((prefix[measure > 0], depth, measure[measure > 0]))
    return Partition.join(levels)


def halved_variance(epsilon: float) -> float:
    """Of the noise in a halved number of ends."""
    return laplace_variance(2 / epsilon) / 4


# The cells of trips: a PrivTree over the places that trips pass and end at.
#
# Guarantee
# ---------
# Every trip adds weights to the keys of its places that sum to at most 1 (2^20 grid steps, each weight
# rounded down): an edge counts with its share of the path's length, a point of a free trip with 1/t, and a
# public part of the whole goes to the two ends instead, half to each (``weighted_places``). Sums of
# non-negative weights fall from a cell to its parts, in both worlds, so PrivTree's proof for fractional
# contributions applies: ε-differentially private.


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


# How long trips are, and how far they spread: one private table.
#
# A conditional walk knows where to go but not how much detour real trips make. A trip falls into one bucket
# of its path's length (thirds of octaves) and one of its compactness, the path's diameter over its length
# (thirds): a loop and a straight run of the same length differ there. On roads the path is the matched one,
# elsewhere the line through the trip's own points: either way a function of one trip.
#
# Guarantee
# ---------
# A trip counts 1 in one bucket: L1 sensitivity 1. Discrete Laplace noise of scale 1/ε on every bucket of the
# public table is ε-differentially private.

_SHORTEST = 125.0  # metres: the upper end of the first bucket
_OCTAVES = 10  # to 128 km
_PARTS = 3  # buckets an octave
_LENGTHS = _OCTAVES * _PARTS + 2
_COMPACT = 3
BUCKETS = _LENGTHS * _COMPACT


def bucket(metres: Floats, diameter: Floats) -> Ints:
    """Bucket of trips with a path of so many ``metres`` and this ``diameter``."""
    octave = np.log2(np.maximum(metres, 1e-9) / _SHORTEST) * _PARTS
    length = np.clip(np.floor(octave).astype(np.int64) + 1, 0, _LENGTHS - 1)
    compact = np.clip(np.floor(_COMPACT * diameter / np.maximum(metres, 1e-9)), 0, _COMPACT - 1)
    index: Ints = length * _COMPACT + compact.astype(np.int64)
    return index


def path_shapes(graph: StateGraph, states: Ints, start: Ints) -> tuple[Floats, Floats]:
    """Metres from state to state along sequences of states, and their diameters (0 for empty ones)."""
    return extents(graph.xy, states, start)


def count_lengths(metres: Floats, diameter: Floats) -> Ints:
    """Trips in each bucket. Private when the trips are."""
    return np.bincount(bucket(metres, diameter), minlength=BUCKETS)


def measure_lengths(metres: Floats, diameter: Floats, *, epsilon: float, noise: Noise) -> Floats:
    """Noisy trips in each bucket, ε-differentially private; may be negative."""
    exact = total(count_lengths, metres, diameter)
    return (exact + noise.discrete_laplace(1 / epsilon, exact.size)).astype(np.float64)

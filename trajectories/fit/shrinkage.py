"""Estimates from noisy counts and public expectations. Post-processing: released numbers and public facts
only.

Two expectations cost no privacy. *Gravity*: how many trips a block of origin-destination pairs would have
if ends were spread like the released traffic, and trips went as far as released pairs do. *The network
prior*: the crossings that the released pairs imply when they are walked over the public roads. Each is
combined with its noisy count by inverse variance. The variance of the noise is known; that of the
expectation's misfit is what the noisy counts scatter around it beyond their noise.
"""

from __future__ import annotations

import numpy as np

from synthgeo.arrays import Floats, Ints, Points
from trajectories.ground.state_graph import StateGraph
from trajectories.measure.pairs import PairBlocks

_ONE_IN_FIFTY = float(np.log(25))  # P(X > t) = exp(-√2 t) / 2 for Laplace noise of unit variance
_PAIR_REACH = 3.0  # gravity knows nothing of why people go where they go
_SURE_GROUP = 8.0  # trips of a group of distances, in standard deviations of the noise in their number
_MOST_GROUPS = 32
_BALANCING = 3  # rounds
_LEAST_FACTOR = 0.05  # of a distance


def expected_counts(blocks: PairBlocks, cell_weight: Floats, total: float) -> Floats:
    """Trips of each block if both ends were drawn independently in proportion to ``cell_weight``."""
    running = np.concatenate([[0.0], np.cumsum(cell_weight)])
    running /= max(running[-1], 1e-300)
    origin, destination = (running[high] - running[low] for low, high in _sides(blocks))
    counts: Floats = total * origin * destination
    return counts


def gravity(
    blocks: PairBlocks, variance: float, cell_weight: Floats, centres: Points, total: float
) -> Floats:
    """Trips of each block if ends were drawn in proportion to ``cell_weight`` and to a factor of the distance
    between them.

    The factor is that of a group of blocks at about the same distance: what they were counted to have, over
    what they would have if ends were independent, as far as it stands out of the noise. There are as many
    groups as leave the noise an eighth of what a group has. Weights are then balanced, so that ends stay
    where they are.
    """
    noise_of_all = max(variance * blocks.size, 1e-300)  # none is left at large ε
    groups = int(np.clip((total / _SURE_GROUP) ** 2 / noise_of_all, 1, _MOST_GROUPS))
    expected = expected_counts(blocks, cell_weight, total)
    if groups == 1:
        return expected
    order = np.argsort(_distances(blocks, cell_weight, centres), kind="stable")
    below = np.cumsum(expected[order])
    group = np.empty(blocks.size, dtype=np.int64)
    group[order] = np.minimum((below / below[-1] * groups).astype(np.int64), groups - 1)
    counted = np.bincount(group, blocks.count, minlength=groups)
    noise = np.bincount(group, minlength=groups) * variance
    weight = cell_weight
    for _ in range(_BALANCING):
        expected = expected_counts(blocks, weight, total)
        offered = np.maximum(np.bincount(group, expected, minlength=groups), 1e-300)
        misfit = max(float(((counted - offered) ** 2 - noise).sum() / (offered**2).sum()), 0.0)
        trust = misfit * offered**2 / np.maximum(misfit * offered**2 + noise, 1e-300)
        expected *= np.maximum(1 + trust * (counted / offered - 1), _LEAST_FACTOR)[group]
        ends = _ends_of(blocks, expected, weight)
        aim = cell_weight * (ends.sum() / max(float(cell_weight.sum()), 1e-300))
        weight = weight * np.sqrt(np.clip(aim / np.maximum(ends, 1e-300), 0.2, 5.0))
    expected *= total / max(float(expected.sum()), 1e-300)
    return expected


def _distances(blocks: PairBlocks, weight: Floats, xy: Points) -> Floats:
    """The root mean square distance between origins and destinations of each block, cells weighted."""
    columns = weight[:, None] * np.column_stack([np.ones(len(xy)), xy, (xy**2).sum(axis=1)])
    running = np.concatenate([np.zeros((1, 4)), np.cumsum(columns, axis=0)])
    sides = []
    for low, high in _sides(blocks):
        sums = running[high] - running[low]
        sides.append(sums[:, 1:] / np.maximum(sums[:, :1], 1e-300))
    one, two = sides
    squares = one[:, 2] + two[:, 2] - 2 * (one[:, :2] * two[:, :2]).sum(axis=1)
    distance: Floats = np.sqrt(np.maximum(squares, 0.0))
    return distance


def _ends_of(blocks: PairBlocks, trips: Floats, weight: Floats) -> Floats:
    """Ends of each cell, halved, if the trips of a block end in its cells in proportion to ``weight``."""
    running = np.concatenate([[0.0], np.cumsum(weight)])
    change = np.zeros(len(running))
    for low, high in _sides(blocks):
        per_weight = 0.5 * trips / np.maximum(running[high] - running[low], 1e-300)
        np.add.at(change, low, per_weight)
        np.add.at(change, high, -per_weight)
    ends: Floats = np.cumsum(change)[:-1] * weight
    return ends


def _sides(blocks: PairBlocks) -> tuple[tuple[Ints, Ints], tuple[Ints, Ints]]:
    """First cell and one past the last, of origins and of destinations."""
    return (blocks.origin_low, blocks.origin_high), (blocks.destination_low, blocks.destination_high)


def combine_blocks(
    blocks: PairBlocks, variance: float, cell_weight: Floats, centres: Points, total: float
) -> Floats:
    """Trips of each block, measured and expected by gravity combined by inverse variance; ``total`` is the
    estimated number of trips.
    """
    expected = gravity(blocks, variance, cell_weight, centres, total)
    counts = combine(blocks.count, expected, variance, reach=_PAIR_REACH)
    return counts * (total / counts.sum()) if counts.any() else expected


def combine(
    measured: Floats,
    expected: Floats,
    variance: Floats | float,
    *,
    reach: float = 2.0,
    threshold: float = 0.5,
) -> Floats:
    """Counts that were measured, and expected by some prior, combined by inverse variance: crossings of
    links, ends in cells, trips of a length.

    Counts are grouped by how much traffic the prior expects, and each group has its own misfit. Where
    drivers do not take the ways that the prior takes, misfits are rare and large, and a plain mean would
    pull such a count all the way back. So the estimate never strays more than ``reach`` standard deviations
    of the noise from what was measured (Efron and Morris's limited translation), and what is left below
    ``threshold`` standard deviations is noise and becomes 0.
    """
    variance = np.broadcast_to(variance, measured.shape)
    deviation = np.sqrt(variance)
    residual = measured - expected
    group = (expected[:, None] > deviation[:, None] * np.array([0.25, 1.0, 4.0, 16.0])).sum(axis=1)
    groups = int(group.max(initial=0)) + 1
    members = np.maximum(np.bincount(group, minlength=groups), 1)
    scatter = np.bincount(group, residual**2 - variance, minlength=groups) / members
    misfit = np.maximum(scatter, 0.0)[group]
    trust = np.divide(misfit, misfit + variance, out=np.ones(len(misfit)), where=misfit + variance > 0)
    combined = expected + trust * residual
    combined = np.clip(combined, measured - reach * deviation, measured + reach * deviation)
    return np.where(combined > threshold * deviation, combined, 0.0)


def beyond_noise(count: int) -> float:
    """Standard deviations that none of so many Laplace variables exceeds, upwards, in fifty tries."""
    return (float(np.log(max(count, 1))) + _ONE_IN_FIFTY) / float(np.sqrt(2))


def cell_traffic(graph: StateGraph, links: Floats) -> Floats:
    """Traffic of each cell: what its links carry in and out; 0 where a cell holds no state."""
    before, after = graph.link_ends
    both = np.concatenate([before, after])
    return with_floor(graph, np.bincount(both, np.tile(links, 2), minlength=graph.cells).astype(np.float64))


def in_cells(graph: StateGraph, passed: Floats) -> Floats:
    """Traffic of each cell: metres (or area) of its states, times how often each is passed."""
    traffic: Floats = np.bincount(graph.cell, passed * graph.size_of, minlength=graph.cells).astype(
        np.float64
    )
    return traffic


def with_floor(graph: StateGraph, traffic: Floats) -> Floats:
    """The traffic of cells that hold a state, and a little where there is none: every place that exists can
    be asked for.
    """
    holds = np.diff(graph.by_cell[1]) > 0
    if not traffic[holds].any():
        return holds.astype(np.float64)
    return np.where(holds, traffic + 1e-3 * traffic[holds].mean(), 0.0)


__all__ = [
    "beyond_noise",
    "cell_traffic",
    "combine",
    "combine_blocks",
    "expected_counts",
    "gravity",
    "in_cells",
    "with_floor",
]

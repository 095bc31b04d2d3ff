"""Estimates from noisy counts and public expectations. Post-processing: released numbers and public facts
only.

Two expectations cost no privacy. *Gravity*: how many trips a block of origin-destination pairs would have
if ends were spread like the released traffic, and trips went as far as released pairs do. *The network
prior*: the crossings that the released pairs imply when they are walked over the public roads. Each is
combined with its noisy count by inverse variance. The variance of the noise is known; that of the
expectation's misfit is what the noisy counts scatter around it beyond their noise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from synthgeo.arrays import Floats, Ints, Points
from trajectories.ground.state_graph import StateGraph

if TYPE_CHECKING:
    from trajectories.measure.ends import EndCounts
    from trajectories.measure.pairs import PairBlocks

__all__ = [
    "beyond_noise",
    "cell_traffic",
    "combine",
    "combine_blocks",
    "estimate_ends",
    "expected_counts",
    "gravity",
    "in_cells",
    "misfit_of_parts",
    "mixed",
    "posterior_means",
    "traffic_exponent",
    "with_floor",
]


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


# Where trips start and end: estimates from both noisy counts of ends. Post-processing.

# A part has to stand out by this many deviations: most of them hold no end at all.
_OUTSTANDING = 0.75
_EXPONENTS = (2.0, 1.5, 1.0, 0.75, 0.5, 0.25, 0.0)
_LIKELIER = 2.0  # by what logarithm one exponent has to be likelier than one closer to 1


def mixed(traffic: Floats, size: Floats, exponent: float) -> Floats:
    """What cells with this traffic and size of places are expected to have: between the two, or more than
    their share where most traffic is.
    """
    expected = traffic**exponent * size ** max(1 - exponent, 0.0)
    scaled: Floats = expected * (traffic.sum() / max(float(expected.sum()), 1e-300))
    return scaled


def traffic_exponent(counts: EndCounts, traffic: Floats, size: Floats) -> float:
    """How much the traffic of cells says of their ends, against the size of their places. Buses end where
    traffic is, others in any street: the likeliest of a few exponents, given the noisy ends, or one closer
    to 1 that is hardly less likely: noise alone must not gather ends. The traffic must have been counted
    apart from them, else it would agree with their noise.
    """
    measured, variance, _, _ = _by_cell(counts)
    likely = np.array([posterior_means(measured, mixed(traffic, size, e), variance)[1] for e in _EXPONENTS])
    good = [one for one, value in zip(_EXPONENTS, likely, strict=True) if value > likely.max() - _LIKELIER]
    return min(good, key=lambda exponent: abs(exponent - 1.0))


def estimate_ends(counts: EndCounts, expected: Floats) -> Floats:
    """Ends of each part: counts combined with what is ``expected`` of each part. Post-processing.

    In a cell that was cut both counts say how many ends it has, each by as much as its noise deserves, and
    its parts share that number.
    """
    part, cells = counts.counted, len(counts.by_cell)
    cell, count = counts.cell[part], counts.by_part[part]
    total, variance, together, number = _by_cell(counts)
    by_cell: Floats = np.bincount(counts.cell, expected, minlength=cells).astype(np.float64)
    whole, _ = posterior_means(total, by_cell, variance)
    share = expected / np.maximum(by_cell[counts.cell], 1e-300)
    out = whole[counts.cell] * share
    agreed = count + ((total - together) / np.maximum(number, 1))[cell]
    found = combine(agreed, total[cell] * share[part], counts.part_variance, threshold=_OUTSTANDING)
    sums = np.bincount(cell, found, minlength=cells)[cell]
    out[part] = np.where(sums > 0, found * whole[cell] / np.maximum(sums, 1e-300), out[part])
    return out


def misfit_of_parts(counts: EndCounts, expected: Floats) -> float:
    """The squared distance between the counts of parts and what is ``expected`` of each part of its cell's
    ends, in variances of the noise; 0 where no part was counted.
    """
    part = counts.counted
    cell = counts.cell[part]
    by_cell = np.bincount(counts.cell, expected, minlength=len(counts.by_cell))[cell]
    share = expected[part] / np.maximum(by_cell, 1e-300)
    residual = counts.by_part[part] - np.maximum(_by_cell(counts)[0], 0.0)[cell] * share
    return float((residual**2).sum() / max(counts.part_variance, 1e-300))


def _by_cell(counts: EndCounts) -> tuple[Floats, Floats, Floats, Floats]:
    """Ends of each cell by both counts together, the variance of each, the sum of the counts of its parts,
    and how many it has. A cell that was not cut was counted once: its parts say nothing.
    """
    part, cells = counts.counted, len(counts.by_cell)
    number = np.bincount(counts.cell[part], minlength=cells).astype(np.float64)
    together = np.bincount(counts.cell[part], counts.by_part[part], minlength=cells).astype(np.float64)
    trust = np.where(number > 0, 1.0, 0.0) / np.maximum(number * counts.part_variance, 1e-300)
    known = 1.0 / max(counts.cell_variance, 1e-300)
    total: Floats = (counts.by_cell * known + together * trust) / (known + trust)
    return total, 1.0 / (known + trust), together, number


# Counts behind noisy ones, by empirical Bayes. Post-processing: released numbers and public facts only.
#
# A count is some multiple of what was expected of it, and how often which multiple occurs is learned from all
# counts together: the distribution on a grid of multiples, 0 among them, under which the noisy counts are
# most likely (the nonparametric maximum likelihood estimate of Kiefer and Wolfowitz, by expectation
# maximisation). The estimate is the mean of the multiple given the noisy count. So nothing has to be cut off:
# where most places are empty the grid's 0 has most of the weight, and where many hold a little they keep that
# little, of which single counts would not stand out of the noise.

_MULTIPLES = np.concatenate([[0.0], np.exp2(np.arange(-10, 13) / 2)])
_USUAL = np.exp(-0.5 * (np.log2(np.maximum(_MULTIPLES, 2.0**-7)) / 1.5) ** 2)  # before anything is known
_LEVELS = np.array([0.25, 1.0, 4.0, 16.0])  # of what is expected, in standard deviations of the noise
_FIRST, _OWN = 2.0, 5.0  # counts that what is usual, and what all levels together have, weigh as much as
_ROUNDS = 40
_REACH = 3.0  # standard deviations between an estimate and its count at most: multiples beyond the grid exist


def posterior_means(measured: Floats, expected: Floats, variance: Floats) -> tuple[Floats, float]:
    """The mean of each count given its noisy value, with Laplace noise of this variance, and what was
    ``expected`` of it; and the logarithm of the likelihood of all noisy values.
    """
    deviation = np.sqrt(np.maximum(variance, 1e-12))
    counts = expected[:, None] * _MULTIPLES
    scale = deviation[:, None] / np.sqrt(2)
    log_density = -np.abs(measured[:, None] - counts) / scale - np.log(2 * scale)
    top = log_density.max(axis=1, keepdims=True)
    density = np.exp(log_density - top)
    usual = _USUAL / _USUAL.sum()
    together = _learned(density, np.zeros(len(measured), dtype=np.int64), usual, _FIRST)
    level = np.searchsorted(_LEVELS, expected / deviation)
    weight = density * _learned(density, level, together[0], _OWN)[level]
    sums = weight.sum(axis=1)
    means = (weight * counts).sum(axis=1) / sums
    far = _REACH * deviation
    return np.clip(means, measured - far, np.maximum(measured + far, 0.0)), float(
        (np.log(sums) + top[:, 0]).sum()
    )


def _learned(density: Floats, level: Ints, before: Floats, strength: float) -> Floats:
    """The distribution of multiples in each level, which starts from ``before`` and gives it the weight of so
    many counts.
    """
    levels = int(level.max(initial=0)) + 1
    chance = np.tile(before, (levels, 1))
    number = np.bincount(level, minlength=levels)[:, None]
    for _ in range(_ROUNDS):
        weight = density * chance[level]
        weight /= weight.sum(axis=1, keepdims=True)
        sums = np.zeros_like(chance)
        np.add.at(sums, level, weight)
        chance = (sums + strength * before) / (number + strength)
    return chance

"""Estimates from noisy counts and public expectations. Post-processing: released numbers and public facts
only.

Two expectations cost no privacy. *Gravity*: how many trips a block of origin-destination pairs would have
if ends were spread like the released traffic. *The network prior*: the crossings that the released pairs
imply when they are walked over the public roads. Each is combined with its noisy count by inverse variance.
The variance of the noise is known; that of the expectation's misfit is what the noisy counts scatter around
it beyond their noise.
"""

from __future__ import annotations

import numpy as np

from synthgeo.arrays import Floats
from trajectories.ground.state_graph import StateGraph
from trajectories.measure.pairs import PairBlocks

_ONE_IN_FIFTY = float(np.log(25))  # P(X > t) = exp(-√2 t) / 2 for Laplace noise of unit variance
_PAIR_REACH = 3.0  # gravity knows nothing of why people go where they go


def expected_counts(blocks: PairBlocks, cell_weight: Floats, total: float) -> Floats:
    """Gravity: trips of each block if both ends were drawn independently in proportion to ``cell_weight``."""
    running = np.concatenate([[0.0], np.cumsum(cell_weight)])
    running /= max(running[-1], 1e-300)
    origin = running[blocks.origin_high] - running[blocks.origin_low]
    destination = running[blocks.destination_high] - running[blocks.destination_low]
    counts: Floats = total * origin * destination
    return counts


def combine_blocks(
    blocks: PairBlocks, variance: float, cell_weight: Floats, total: float | None = None
) -> Floats:
    """Trips of each block, measured and expected by gravity combined by inverse variance; ``total`` is the
    estimated number of trips, that of the blocks where none is given.
    """
    total = max(float(blocks.count.sum()) if total is None else total, 1.0)
    expected = expected_counts(blocks, cell_weight, total)
    counts = combine(blocks.count, expected, variance, reach=_PAIR_REACH)
    return counts * (total / counts.sum()) if counts.any() else expected


def combine(
    measured: Floats, expected: Floats, variance: float, *, reach: float = 2.0, threshold: float = 0.5
) -> Floats:
    """Counts that were measured, and expected by some prior, combined by inverse variance: crossings of
    links, ends in cells, trips of a length.

    Counts are grouped by how much traffic the prior expects, and each group has its own misfit. Where
    drivers do not take the ways that the prior takes, misfits are rare and large, and a plain mean would
    pull such a count all the way back. So the estimate never strays more than ``reach`` standard deviations
    of the noise from what was measured (Efron and Morris's limited translation), and what is left below
    ``threshold`` standard deviations is noise and becomes 0.
    """
    deviation = float(np.sqrt(variance))
    residual = measured - expected
    group = np.searchsorted(deviation * np.array([0.25, 1.0, 4.0, 16.0]), expected)
    groups = int(group.max(initial=0)) + 1
    members = np.maximum(np.bincount(group, minlength=groups), 1)
    scatter = np.bincount(group, residual**2, minlength=groups) / members
    misfit = np.maximum(scatter - variance, 0.0)[group]
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
    "in_cells",
    "with_floor",
]

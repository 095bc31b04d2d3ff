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

from trajectories.origin_destination import PairBlocks
from trajectories.states import Floats, StateGraph


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


def expected_counts(blocks: PairBlocks, cell_weight: Floats, total: float) -> Floats:
    """Gravity: trips of each block if both ends were drawn independently in proportion to ``cell_weight``."""
    running = np.concatenate([[0.0], np.cumsum(cell_weight)])
    running /= max(running[-1], 1e-300)
    origin = running[blocks.origin_high] - running[blocks.origin_low]
    destination = running[blocks.destination_high] - running[blocks.destination_low]
    counts: Floats = total * origin * destination
    return counts


def combine_blocks(blocks: PairBlocks, variance: float, cell_weight: Floats) -> Floats:
    """Non-negative trips of each block, measured and expected by gravity combined by inverse variance.

    The misfit of the expectation is taken to grow with it (a Poisson-like variance, one factor for all
    blocks).
    """
    total = max(float(blocks.count.sum()), 1.0)
    expected = expected_counts(blocks, cell_weight, total)
    residual = blocks.count - expected
    size = np.maximum(expected, 0.5)
    misfit = max(0.0, float(np.mean(residual**2)) - variance) * size / size.mean()
    return non_negative(expected + misfit / (misfit + variance) * residual, total)


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
    combined = expected + misfit / (misfit + variance) * residual
    combined = np.clip(combined, measured - reach * deviation, measured + reach * deviation)
    return np.where(combined > threshold * deviation, combined, 0.0)


def cell_traffic(graph: StateGraph, links: Floats) -> Floats:
    """Traffic of each cell: what its links carry in and out; 0 where a cell holds no state."""
    before, after = graph.link_ends
    both = np.concatenate([before, after])
    traffic: Floats = np.bincount(both, np.tile(links, 2), minlength=graph.cells).astype(np.float64)
    holds = np.diff(graph.by_cell[1]) > 0
    if not traffic[holds].any():
        return holds.astype(np.float64)
    traffic = np.where(holds, traffic, 0.0)
    floor = np.where(holds, 1e-3 * traffic[holds].mean(), 0.0)  # every place that exists can be asked for
    return traffic + floor


__all__ = ["cell_traffic", "combine", "combine_blocks", "expected_counts", "non_negative"]

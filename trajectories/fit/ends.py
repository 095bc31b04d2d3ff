"""Where trips start and end: estimates from both noisy counts of ends. Post-processing."""

from __future__ import annotations

import numpy as np

from synthgeo.arrays import Floats
from trajectories.fit.shrinkage import combine
from trajectories.measure.ends import EndCounts

# A part has to stand out by this many deviations: most of them hold no end at all.
_OUTSTANDING = 0.75


def estimate_ends(counts: EndCounts, expected: Floats) -> Floats:
    """Ends of each part: counts combined with what is ``expected`` of each part. Post-processing.

    In a cell that was cut both counts say how many ends it has, each by as much as its noise deserves, and
    its parts share that number.
    """
    cells = len(counts.by_cell)
    part = counts.counted
    cell, count = counts.cell[part], counts.by_part[part]
    number = np.bincount(cell, minlength=cells)
    together = np.bincount(cell, count, minlength=cells)
    # A cell that was not cut was counted once: its parts say nothing.
    trust = np.divide(1.0, number * counts.part_variance, out=np.zeros(cells), where=number > 0)
    known = 1.0 / max(counts.cell_variance, 1e-300)
    total = (counts.by_cell * known + together * trust) / (known + trust)
    variance = float(np.mean(1.0 / (known + trust)))
    by_cell: Floats = np.bincount(counts.cell, expected, minlength=cells).astype(np.float64)
    whole = combine(total, by_cell, variance)
    share = expected / np.maximum(by_cell[counts.cell], 1e-300)
    out = whole[counts.cell] * share
    agreed = count + ((total - together) / np.maximum(number, 1))[cell]
    found = combine(agreed, total[cell] * share[part], counts.part_variance, threshold=_OUTSTANDING)
    sums = np.bincount(cell, found, minlength=cells)[cell]
    out[part] = np.where(sums > 0, found * whole[cell] / np.maximum(sums, 1e-300), out[part])
    return out


__all__ = ["estimate_ends"]

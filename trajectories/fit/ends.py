"""Where trips start and end: estimates from both noisy counts of ends. Post-processing."""

from __future__ import annotations

import numpy as np

from synthgeo.arrays import Floats
from trajectories.fit.shrinkage import combine
from trajectories.measure.ends import EndCounts

# A part has to stand out by this many deviations: most of the 16 hold no end at all.
_OUTSTANDING = 0.75


def estimate_ends(counts: EndCounts, expected: Floats) -> Floats:
    """Ends of each part: counts combined with what is ``expected`` of each part. Post-processing.

    In a busy cell the two counts agree after each is moved by as much as its noise deserves.
    """
    cells = len(counts.by_cell)
    by_cell: Floats = np.bincount(counts.cell, expected, minlength=cells).astype(np.float64)
    whole = combine(counts.by_cell, by_cell, counts.cell_variance)
    out = whole[counts.cell] * expected / np.maximum(by_cell[counts.cell], 1e-300)
    part = counts.counted
    cell, count = counts.cell[part], counts.by_part[part]
    number = np.bincount(cell, minlength=cells)[cell]
    together = np.bincount(cell, count, minlength=cells)[cell]
    noise = number * counts.part_variance
    total = (counts.by_cell[cell] * noise + together * counts.cell_variance) / (noise + counts.cell_variance)
    agreed = count + (total - together) / number
    share = expected[part] / np.maximum(by_cell[cell], 1e-300)
    out[part] = combine(agreed, total * share, counts.part_variance, threshold=_OUTSTANDING)
    return out


__all__ = ["estimate_ends"]

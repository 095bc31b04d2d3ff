"""Where trips start and end: by cell, and finer where many do.

Trips begin and end at few places (stops, gates, ranks), and cells that are good for crossings are too large
to tell them apart. So ends are counted twice: in every cell, and then in every part of the cells that the
first count found busy. The second count looks where the first one, already noisy, points.

Guarantee
---------
A trip adds 1 at its origin and 1 at its destination: L1 sensitivity 2 for each of the two histograms
(``measure_ends``), and discrete Laplace noise of scale 2/ε on every one of their cells, empty or not. Which
cells are busy, and hence which parts are counted, follows from the first, released, histogram and from the
public domain. Adaptive composition adds the two ε up.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from synthgeo.arrays import Keys
from synthgeo.domain.spatial import SpatialDomain
from synthgeo.hierarchy.base import hierarchy_of
from synthgeo.hierarchy.cells import Partition
from synthgeo.privacy.noise import Noise, laplace_variance
from trajectories.prior import combine
from trajectories.states import Floats, Ints

_BUSY = 3.5  # standard deviations of the noise that a cell's ends must exceed to be looked at again
_HALVINGS = 4  # a busy cell is cut into 16
_FIRST = 0.5  # of the ε of ends: the count by cell
# A part has to stand out by this many deviations: most of the 16 hold no end at all.
_OUTSTANDING = 0.75


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
    ends = np.concatenate([origin, destination])
    exact = np.bincount(ends[ends >= 0], minlength=cells)
    return (exact + noise.discrete_laplace(2 / epsilon, cells)) / 2.0


def count_ends(
    origin: Keys,
    destination: Keys,
    bits: int,
    partition: Partition,
    domain: SpatialDomain,
    *,
    epsilon: float,
    noise: Noise,
) -> EndCounts:
    """Both counts of the ends with these keys: ε-differentially private."""
    for_cells, for_parts = epsilon * _FIRST, epsilon - epsilon * _FIRST

    def counted(cells: Partition, share: float) -> Floats:
        first, last = (cells.cell_of(keys, bits).astype(np.int64) for keys in (origin, destination))
        return measure_ends(first, last, cells.size, epsilon=share, noise=noise)

    by_cell = counted(partition, for_cells)
    variance = halved_variance(for_cells)
    busy = by_cell > _BUSY * np.sqrt(variance)
    busy &= partition.bits < bits
    cut = parts_of(partition, busy, domain, bits)
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


def parts_of(partition: Partition, chosen: np.ndarray, domain: SpatialDomain, bits: int) -> Partition:
    """The parts of the chosen cells that hold some of the domain."""
    levels = []
    for size in np.unique(partition.bits[chosen]).tolist():
        finer = min(size + _HALVINGS, bits)
        prefix = partition.prefix[chosen & (partition.bits == size)]
        children = np.arange(1 << (finer - size), dtype=np.uint64)
        prefix = ((prefix[:, None] << np.uint64(finer - size)) | children).ravel()
        measure = hierarchy_of(domain).measure(prefix, finer)
        levels.append((prefix[measure > 0], finer, measure[measure > 0]))
    nothing = (np.empty(0, dtype=np.uint64), 0, np.empty(0))
    return Partition.join([nothing, *levels])


def halved_variance(epsilon: float) -> float:
    """Of the noise in a halved number of ends."""
    return laplace_variance(2 / epsilon) / 4


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


__all__ = ["EndCounts", "count_ends", "estimate_ends", "measure_ends", "parts_of"]

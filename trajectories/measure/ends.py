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
from synthgeo.hierarchy.base import Hierarchy
from synthgeo.hierarchy.cells import Partition
from synthgeo.privacy.noise import Noise, laplace_variance
from trajectories.parts.columns import each, total

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


__all__ = ["EndCounts", "count_ends", "measure_ends", "parts_of"]

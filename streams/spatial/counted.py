"""Released numbers on the cells of a partition, and sums of several of them: all of it public."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from streams.spatial.overlay import overlay_for
from streams.spatial.requests import KnownTo, together
from streams.sums import alive_share
from synthgeo.arrays import Floats
from synthgeo.hierarchy.cells import Partition
from synthgeo.privacy.noise import Noise, laplace_variance
from synthgeo.sources import Histogram


@dataclass(frozen=True, eq=False)
class LeafCounts:
    """A noisy number for each cell of a partition, and the steps of the events in it.

    ``variance`` is that of the noise in a cell which stayed throughout; ``spread`` has it for each cell.
    """

    first: int
    last: int
    cells: Partition
    values: Floats
    spread: Floats
    variance: float

    @classmethod
    def measure(
        cls,
        batches: Iterable[Histogram],
        steps: tuple[int, int],
        cells: Partition,
        bits: int,
        *,
        scale: float,
        noise: Noise,
    ) -> LeafCounts:
        """The number of events in each cell, with noise: the one place where noise meets exact counts."""
        counts = together(batches)
        cells = counts.limit(cells) if isinstance(counts, KnownTo) else cells
        true = cells.totals(counts.keys, bits, counts.weights[:, 0])
        noisy = true + noise.discrete_laplace(scale, true.size)
        variance = laplace_variance(scale)
        return cls(*steps, cells, noisy.astype(np.float64), np.full(true.size, variance), variance)

    @classmethod
    def sum_of(cls, terms: Sequence[tuple[LeafCounts, float]], cells: Partition) -> LeafCounts:
        """The weighted sum of released numbers, read off on the cells of a partition."""
        values, spread, variance = np.zeros(cells.size), np.zeros(cells.size), 0.0
        overlay = overlay_for(len(terms))
        for counted, weight in terms:
            here, noise = overlay(cells, counted.cells, counted.values, counted.spread)
            values += weight * here
            spread += weight**2 * noise
            variance += weight**2 * counted.variance
        first = min((counted.first for counted, _ in terms), default=0)
        last = max((counted.last for counted, _ in terms), default=0)
        return cls(first, last, cells, values, spread, variance)

    def alive(self, since: int) -> float:
        """The part of its steps that are not before ``since``."""
        return alive_share(self.first, self.last, since)

"""What a spatial mechanism has released so far: its leaves and a count on them. Nothing here is private."""

from __future__ import annotations

from copy import copy
from typing import Any, ClassVar, Self

import numpy as np

from streams.spatial.release import PointSnapshot
from synthgeo.arrays import Floats
from synthgeo.codec import Stateful
from synthgeo.hierarchy.base import Hierarchy
from synthgeo.hierarchy.cells import Estimate, Partition


class ReleasedCells(Stateful):
    """The leaves (``partition``), an additive noisy count on their cells or finer ones (``estimate``), and
    that count made non-negative and consistent (``released``).

    ``levels`` are the bits of the tree's cells by depth.
    """

    keeps: ClassVar[dict[str, Any]] = {
        "partition": Partition,
        "estimate": Estimate,
        "released": np.ndarray,
    }

    def __init__(self, hierarchy: Hierarchy, *, levels: tuple[int, ...]) -> None:
        self.levels = levels
        self.restart(Partition.whole(hierarchy))

    def restart(self, partition: Partition) -> None:
        """Forget all counts, on other leaves."""
        zeros = np.zeros(partition.size)
        self.partition = partition
        self.estimate = Estimate(partition, zeros, zeros.copy(), levels=self.levels)
        self.released: Floats = zeros.copy()

    def add(self, increments: Floats, variance: Floats) -> None:
        """Add a noisy count to each leaf."""
        self.estimate.add(self.partition, increments, variance)

    def replace(self, values: Floats, variance: Floats) -> None:
        """Put other counts on the leaves."""
        if self.estimate.cells is self.partition:
            self.estimate.values, self.estimate.variance = values, variance
        else:
            self.estimate = Estimate(self.partition, values, variance, levels=self.levels)

    def settle(self) -> None:
        """Make the released counts follow the estimate."""
        self.released = self.estimate.non_negative()

    def on_leaves(self) -> Floats:
        """The released count of each leaf."""
        return self.estimate.sums(self.partition, self.released)

    def variance(self) -> Floats:
        """The variance of each leaf's count, as far as it is settled."""
        return self.estimate.sums(self.partition, self.estimate.variance)

    def snapshot(
        self, standing: Floats | float = 0.0, totals: dict[int, float] | None = None
    ) -> PointSnapshot:
        """What a release may know; ``standing`` is the variance of noise that is not settled yet, ``totals``
        the released totals of the steps that the release holds.
        """
        deviation = np.sqrt(self.variance() + standing)
        return PointSnapshot(self.partition, self.on_leaves(), deviation, totals or {})

    def copy(self) -> Self:
        """An independent copy: arrays are replaced, never changed, so they may be shared."""
        twin = copy(self)
        twin.estimate = copy(self.estimate)
        return twin

    def restored(self) -> None:
        cells = self.estimate.cells
        leaf = self.partition.holder_of(cells.start)
        if np.any(leaf < 0) or np.any(self.partition.bits[leaf] > cells.bits):
            raise ValueError("cells that are not inside the leaves")
        if self.released.shape != (cells.size,) or not np.all(np.isfinite(self.released)):
            raise ValueError("counts that do not fit their cells")

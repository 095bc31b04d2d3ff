"""The three baselines that a spatial stream is compared with (Kumar 2024, section 3.6.6), with the stream's
own interface.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from streams.spatial.phd import PHDStream
from streams.spatial.stream import SpatialStream
from streams.stream import Arrays
from synthgeo.arrays import Floats
from synthgeo.hierarchy.cells import Partition
from synthgeo.hierarchy.privtree import GRID, privtree
from synthgeo.privacy.noise import laplace_variance
from synthgeo.sources import Histogram


class _TreeAtEachStep(SpatialStream):
    """A fresh PrivTree and fresh leaf counts at every step, each with its share of ε."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{**options, "schedule": "every_step"})

    def _tree_and_counts(
        self, counts: Histogram, inserted: np.ndarray, net: np.ndarray
    ) -> tuple[Partition, Floats, float]:
        partition = privtree(
            counts.keys,
            inserted * GRID.one,
            hierarchy=self.hierarchy,
            epsilon=self.epsilon * self.structure_share,
            noise=self.noise,
            max_depth=self.max_depth,
            fanout=self.fanout,
            theta=self.rule.theta,
        )
        scale = 1 / (self.epsilon * (1 - self.structure_share))
        true = partition.totals(counts.keys, self.bits, net)
        noisy = true + self.noise.discrete_laplace(scale, true.size)
        return partition, noisy.astype(np.float64), laplace_variance(scale)

    def _show(self, partition: Partition, values: Floats, variance: Floats) -> None:
        self._partition = partition
        self._estimate = self._blank(partition)
        self._estimate.add(partition, values, variance)
        self._released = self._estimate.non_negative()


class OfflinePrivTree(_TreeAtEachStep):
    """Baseline 1: PrivTree on everything that is there, again at each step. **Not private.**

    An old point is counted anew at every step, so its loss grows with the length of the stream. It shows
    what ignoring that would buy; its releases say that they must not be published.
    """

    state_kind = "OfflinePrivTree"
    mechanism = "offline PrivTree at each step (not private)"
    is_private = False

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._present = Histogram.empty(1)

    def _privatise(self, counts: Histogram, *, structure: bool) -> None:  # noqa: ARG002
        self._present = self._present.merge(Histogram(counts.keys, _net(counts)[:, None]))
        present = np.maximum(self._present.weights[:, 0], 0)
        partition, noisy, variance = self._tree_and_counts(self._present, present, present)
        self._show(partition, noisy, np.full(noisy.size, variance))

    def _to_state(self) -> tuple[dict[str, Any], Arrays]:
        values, arrays = super()._to_state()
        return values, arrays | {"present/keys": self._present.keys, "present/weights": self._present.weights}

    def _restore_own(self, values: dict[str, Any], arrays: Arrays) -> None:  # noqa: ARG002
        self._present = Histogram(arrays["present/keys"], arrays["present/weights"])


class DifferentialPrivTree(_TreeAtEachStep):
    """Baseline 2: PrivTree on each batch alone, scaled up to the released total.

    Guarantee
    ---------
    Pure ε, event level: an event is in one batch, which pays ``structure_share`` ε for its tree (insertions
    only, so counts are non-negative) and the rest for its counts. The paper scales by the true totals, which
    are private; this one adds up the totals that it has released.
    """

    state_kind = "DifferentialPrivTree"
    mechanism = "PrivTree on each batch, scaled to the released total"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._total = 0.0

    def _privatise(self, counts: Histogram, *, structure: bool) -> None:  # noqa: ARG002
        partition, noisy, variance = self._tree_and_counts(counts, counts.weights[:, 0], _net(counts))
        self._total += float(noisy.sum())
        self._show(partition, noisy, np.full(noisy.size, variance))
        now = float(self._released.sum())
        factor = max(0.0, self._total) / now if now > 0 else 0.0
        self._released = self._released * factor
        self._estimate.variance = self._estimate.variance * factor**2

    def _to_state(self) -> tuple[dict[str, Any], Arrays]:
        values, arrays = super()._to_state()
        return {**values, "total": self._total}, arrays

    def _restore_own(self, values: dict[str, Any], arrays: Arrays) -> None:  # noqa: ARG002
        self._total = float(values["total"])


class InitialPrivTree(PHDStream):
    """Baseline 3: one PrivTree at the first step (give ``t0`` for a larger one), then counters on its leaves
    for ever.

    Guarantee
    ---------
    That of ``PHDStream`` with ``schedule="once"``.
    """

    state_kind = "InitialPrivTree"
    mechanism = "PrivTree at the first step, then counters"

    def __init__(self, **options: Any) -> None:
        super().__init__(**{**options, "schedule": "once"})


def _net(counts: Histogram) -> np.ndarray:
    return (
        counts.weights[:, 0] - counts.weights[:, 1] if counts.weights.shape[1] > 1 else counts.weights[:, 0]
    )


__all__ = ["DifferentialPrivTree", "InitialPrivTree", "OfflinePrivTree"]

"""The three baselines that a spatial stream is compared with (Kumar 2024, section 3.6.6), with the stream's
own interface.
"""

from __future__ import annotations

from copy import copy
from typing import Any, ClassVar, Self

import numpy as np

from streams.mechanism import Arrays, EventBudget, check_noise, laplace_scale
from streams.schedule import EveryStep
from streams.spatial.cells import ReleasedCells
from streams.spatial.phd import PHD, PHDStream
from streams.spatial.points import PointSnapshot, PointStream, check_domain
from synthgeo.arrays import Ints
from synthgeo.domain.spatial import SpatialDomain
from synthgeo.hierarchy.base import Hierarchy
from synthgeo.hierarchy.privtree import GRID, KeyScore, SplitRule, grow
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.noise import Noise, laplace_variance
from synthgeo.privacy.unit import PrivacyUnit
from synthgeo.sources import Histogram
from synthgeo.sources.declared import Reading


class TreePerStep:
    """A fresh PrivTree and fresh leaf counts at every step, each with its share of ε."""

    name: ClassVar[str]
    is_private: ClassVar[bool]

    def __init__(
        self,
        *,
        hierarchy: Hierarchy,
        event: EventBudget,
        max_depth: int,
        fanout: int,
        theta: float,
        noise: Noise,
    ) -> None:
        self.hierarchy = hierarchy
        self.event = event
        self.levels = hierarchy.levels(max_depth, fanout)
        self.bits = self.levels[-1]
        self.max_depth, self.fanout, self.theta = max_depth, fanout, theta
        self.rule = SplitRule(event.structure.epsilon, fanout, theta)
        self.scale = laplace_scale(event.counts)
        self.noise = noise
        self.cells = ReleasedCells(hierarchy, levels=self.levels)

    def count(self, counts: Histogram, inserted: Ints, net: Ints) -> None:
        """Make this the released state: a tree of ``inserted``, and noisy totals of ``net`` on its leaves."""
        score = KeyScore(counts.keys, self.bits, inserted * GRID.one)
        leaves = grow(self.hierarchy, score, self.rule, levels=self.levels, noise=self.noise)
        true = leaves.totals(counts.keys, self.bits, net)
        noisy = true + self.noise.discrete_laplace(self.scale, true.size)
        self.cells.restart(leaves)
        self.cells.add(noisy.astype(np.float64), np.full(noisy.size, laplace_variance(self.scale)))
        self.cells.settle()

    def paid(self) -> tuple[float, float]:
        return self.event.structure.epsilon, self.event.counts.epsilon

    def snapshot(self) -> PointSnapshot:
        return self.cells.snapshot()

    def facts(self) -> dict[str, Any]:
        return {"max_depth": self.max_depth, "fanout": self.fanout, "theta": self.theta}

    def copy(self) -> Self:
        twin = copy(self)
        twin.cells = self.cells.copy()
        return twin

    def settings(self) -> dict[str, Any]:
        return self.facts()

    def to_state(self) -> tuple[dict[str, Any], Arrays]:
        return {}, self.cells.to_state()

    def restore(self, values: dict[str, Any], arrays: Arrays) -> None:  # noqa: ARG002
        self.cells.restore(arrays)


class Offline(TreePerStep):
    """PrivTree on everything that is there, at each step. Not private: an old point is counted anew at every
    step, so its loss grows with the length of the stream.
    """

    name = "offline PrivTree at each step (not private)"
    is_private = False
    present = Histogram.empty(1)

    def advance(self, counts: Histogram, *, step: int, structure: bool) -> None:  # noqa: ARG002
        net = counts.weights[:, :1] - counts.weights[:, 1:]
        self.present = self.present.merge(Histogram(counts.keys, net))
        present = np.maximum(self.present.weights[:, 0], 0)
        self.count(self.present, present, present)

    def to_state(self) -> tuple[dict[str, Any], Arrays]:
        values, arrays = super().to_state()
        return values, arrays | {"present/keys": self.present.keys, "present/weights": self.present.weights}

    def restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        super().restore(values, arrays)
        self.present = Histogram(arrays["present/keys"], arrays["present/weights"])


class Differential(TreePerStep):
    """PrivTree on each batch alone, scaled up to the released total.

    Guarantee
    ---------
    Pure ε, event level: an event is in one batch, which pays ``event.structure`` for its tree (insertions
    only, so counts are non-negative) and ``event.counts`` for its counts. The paper scales by the true
    totals, which are private; this one adds up the totals that it has released.
    """

    name = "PrivTree on each batch, scaled to the released total"
    is_private = True
    total = 0.0

    def advance(self, counts: Histogram, *, step: int, structure: bool) -> None:  # noqa: ARG002
        inserted, deleted = counts.weights.T
        self.count(counts, inserted, inserted - deleted)
        cells = self.cells
        self.total += float(cells.estimate.values.sum())
        now = float(cells.released.sum())
        factor = max(0.0, self.total) / now if now > 0 else 0.0
        cells.released = cells.released * factor
        cells.estimate.variance = cells.estimate.variance * factor**2

    def to_state(self) -> tuple[dict[str, Any], Arrays]:
        values, arrays = super().to_state()
        return {**values, "total": self.total}, arrays

    def restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        super().restore(values, arrays)
        self.total = float(values["total"])


class _TreePerStepStream(PointStream):
    """What the first two baselines share is their settings."""

    mechanism_type: ClassVar[type[Offline] | type[Differential]]

    def __init__(
        self,
        *,
        domain: SpatialDomain,
        budget: PrivacyBudget,
        unit: PrivacyUnit | None = None,
        t0: int = 0,
        deletions: bool = True,
        persist: bool = False,
        structure_share: float = 0.5,
        max_depth: int = 20,
        fanout: int = 2,
        theta: float = 0.0,
        x: str | None = None,
        y: str | None = None,
        crs: Any = None,
        op: str = "op",
        outside: str = "drop",
        reading: Reading | None = None,
        noise: Noise | None = None,
        ledger: Any = None,
    ) -> None:
        event = EventBudget.of(budget, unit, structure_share)
        source = check_noise(noise)
        mechanism = self.mechanism_type(
            hierarchy=check_domain(domain),
            event=event,
            max_depth=max_depth,
            fanout=fanout,
            theta=theta,
            noise=source,
        )
        super().__init__(
            domain=domain,
            mechanism=mechanism,
            event=event,
            schedule=EveryStep(),
            t0=t0,
            deletions=deletions,
            persist=persist,
            x=x,
            y=y,
            crs=crs,
            op=op,
            outside=outside,
            reading=reading,
            noise=source,
            ledger=ledger,
        )


class OfflinePrivTree(_TreePerStepStream):
    """Baseline 1: PrivTree on everything that is there, again at each step. **Not private.**

    It shows what ignoring privacy over time would buy; its releases say that they must not be published.
    """

    state_kind = "OfflinePrivTree"
    mechanism_type = Offline


class DifferentialPrivTree(_TreePerStepStream):
    """Baseline 2: PrivTree on each batch alone, scaled up to the released total.

    Guarantee
    ---------
    Pure ε, event level: that of ``Differential``.
    """

    state_kind = "DifferentialPrivTree"
    mechanism_type = Differential


class Initial(PHD):
    """``PHD`` with one tree, at the first step."""

    name = "PrivTree at the first step, then counters"


class InitialPrivTree(PHDStream):
    """Baseline 3: one PrivTree at the first step (give ``t0`` for a larger one), then counters on its leaves
    for ever.

    Guarantee
    ---------
    That of ``PHDStream`` with ``schedule="once"``.
    """

    state_kind = "InitialPrivTree"
    mechanism_type = Initial

    def __init__(
        self,
        *,
        domain: SpatialDomain,
        budget: PrivacyBudget,
        unit: PrivacyUnit | None = None,
        t0: int = 0,
        horizon: int | None = None,
        deletions: bool = True,
        persist: bool = False,
        counter: str = "auto",
        structure_share: float = 0.5,
        max_depth: int = 20,
        fanout: int = 2,
        theta: float = 0.0,
        x: str | None = None,
        y: str | None = None,
        crs: Any = None,
        op: str = "op",
        outside: str = "drop",
        reading: Reading | None = None,
        noise: Noise | None = None,
        ledger: Any = None,
    ) -> None:
        super().__init__(
            domain=domain,
            budget=budget,
            unit=unit,
            schedule="once",
            t0=t0,
            horizon=horizon,
            deletions=deletions,
            persist=persist,
            counter=counter,
            structure_share=structure_share,
            max_depth=max_depth,
            fanout=fanout,
            theta=theta,
            x=x,
            y=y,
            crs=crs,
            op=op,
            outside=outside,
            reading=reading,
            noise=noise,
            ledger=ledger,
        )

    @classmethod
    def _own_params(cls, values: dict[str, Any], arrays: Arrays) -> dict[str, Any]:
        params = super()._own_params(values, arrays)
        del params["schedule"]
        return params


__all__ = ["DifferentialPrivTree", "InitialPrivTree", "OfflinePrivTree"]

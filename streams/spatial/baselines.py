"""The three baselines that a spatial stream is compared with (Kumar 2024, section 3.6.6), with the stream's
own interface.
"""

from __future__ import annotations

from copy import copy
from dataclasses import fields
from typing import Any, ClassVar, Self

import numpy as np

from streams.ages import check_deletions
from streams.mechanism import EventBudget, check_noise, laplace_scale
from streams.schedule import EveryStep
from streams.spatial.cells import ReleasedCells
from streams.spatial.phd import PHD, PHDStream
from streams.spatial.points import PointStream, check_domain
from streams.spatial.release import PointSnapshot
from streams.spatial.requests import KnownTo
from streams.spatial.settings import PointSettings
from streams.spatial.structure import Structure
from streams.stream import check_lifetime
from synthgeo.arrays import Ints
from synthgeo.codec import Stateful
from synthgeo.domain.box import SpatialDomain
from synthgeo.domain.polygon import as_domain
from synthgeo.parameters import check_settings
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.noise import Noise, laplace_variance
from synthgeo.privacy.unit import PrivacyUnit
from synthgeo.sources import Histogram
from synthgeo.sources.declared import ColumnNames, Reading, check_columns
from synthgeo.sources.histogram import merge_all

_NOT_INITIAL = ("schedule", "borrow", "times", "times_share")


class TreePerStep(Stateful):
    """A fresh PrivTree and fresh leaf counts at every step, each with its share of ε."""

    name: ClassVar[str]
    is_private: ClassVar[bool]
    asks: ClassVar[bool] = False
    keeps: ClassVar[dict[str, Any]] = {"cells": ReleasedCells}

    def __init__(
        self,
        *,
        structure: Structure,
        event: EventBudget,
        lifetime: int | None,
        deletions: bool,
        noise: Noise,
    ) -> None:
        self.structure = structure
        self.event = event
        self.lifetime = lifetime
        self.deletions = deletions
        self.scale = laplace_scale(event.counts)
        self.noise = noise
        self.cells = structure.blank()

    def count(self, counts: Histogram, inserted: Ints, net: Ints) -> None:
        """Make this the released state: a tree of ``inserted``, and noisy totals of ``net`` on its leaves."""
        leaves = self.structure.grow(self.structure.blank(), counts.keys, inserted)
        true = leaves.totals(counts.keys, self.structure.bits, net)
        noisy = true + self.noise.discrete_laplace(self.scale, true.size)
        self.cells.restart(leaves)
        self.cells.add(noisy.astype(np.float64), np.full(noisy.size, laplace_variance(self.scale)))
        self.cells.settle()

    def paid(self) -> tuple[float, float]:
        return self.event.structure.epsilon, self.event.counts.epsilon

    def snapshot(self) -> PointSnapshot:
        return self.cells.snapshot()

    def facts(self) -> dict[str, Any]:
        return self.structure.settings()

    def copy(self) -> Self:
        twin = copy(self)
        twin.cells = self.cells.copy()
        return twin

    def settings(self) -> dict[str, Any]:
        return self.facts()


class Offline(TreePerStep):
    """PrivTree on everything that is there, at each step. Not private: an old point is counted anew at every
    step, so its loss grows with the length of the stream.
    """

    name = "offline PrivTree at each step (not private)"
    is_private = False
    keeps: ClassVar[dict[str, Any]] = {
        **TreePerStep.keeps,
        "batches": tuple[tuple[int, Histogram | KnownTo], ...],
    }
    batches: tuple[tuple[int, Histogram], ...] = ()  # those that are alive; one sum of all without lifetime

    def advance(self, counts: Histogram, *, step: int, structure: bool) -> None:  # noqa: ARG002
        batch = Histogram(counts.keys, counts.weights[:, :1] - counts.weights[:, 1:])
        if self.lifetime is None:
            self.batches = ((step, merge_all([batch, *(old for _, old in self.batches)])),)
        else:
            kept = [(born, old) for born, old in self.batches if born > step - self.lifetime]
            self.batches = (*kept, (step, batch))
        present = merge_all([batch for _, batch in self.batches])
        there = np.maximum(present.weights[:, 0], 0)
        self.count(present, there, there)


class Differential(TreePerStep):
    """PrivTree on the insertions of each batch alone, scaled to the released total.

    The paper hands the signed batch to PrivTree, which takes counts, not differences: once as many points go
    as come, its leaves hold nothing. Here insertions give the shape, deletions the total only. A batch in
    which no leaf has a positive count keeps the shape of the batch before.

    Guarantee
    ---------
    Pure ε, event level. An insertion is in one batch, which pays ``event.structure`` for its tree and
    ``event.counts`` for one leaf's count. A deletion is in one noisy sum, the number of deletions of its
    batch, and pays ``event.counts``. The paper scales by the true totals, which are private; this one adds up
    the totals that it has released.
    """

    name = "PrivTree on each batch, scaled to the released total"
    is_private = True
    keeps: ClassVar[dict[str, Any]] = {**TreePerStep.keeps, "totals": tuple[float, ...]}
    totals: tuple[float, ...] = ()  # released, of the batches that are alive; one sum of all without lifetime

    def advance(self, counts: Histogram, *, step: int, structure: bool) -> None:  # noqa: ARG002
        before, inserted = self.cells.copy(), counts.weights[:, 0]
        self.count(counts, inserted, inserted)
        change = float(self.cells.estimate.values.sum())
        if self.deletions:
            deleted = counts.weights[:, 1:].sum(keepdims=True).reshape(1)
            change -= float((deleted + self.noise.discrete_laplace(self.scale, 1))[0])
        totals = (*self.totals, change)
        self.totals = (sum(totals),) if self.lifetime is None else totals[-self.lifetime :]
        if not self.cells.released.any():
            self.cells = before
            self.cells.settle()  # its own counts, without their factor
        cells, variance = self.cells, laplace_variance(self.scale)
        now = float(cells.released.sum())
        factor = max(0.0, sum(self.totals)) / now if now > 0 else 0.0
        cells.released = cells.released * factor
        cells.estimate.variance = np.full(cells.estimate.values.size, variance * factor**2)


class _TreePerStepStream(PointStream):
    """What the first two baselines share is their settings."""

    mechanism_type: ClassVar[type[Offline] | type[Differential]]
    takes = ("t0", "persist", "structure_share", "max_depth", "fanout", "theta", "outside")

    def __init__(
        self,
        *,
        domain: SpatialDomain,
        budget: PrivacyBudget,
        unit: PrivacyUnit | None = None,
        lifetime: int | None = None,
        deletions: bool | None = None,
        columns: ColumnNames | None = None,
        reading: Reading | None = None,
        settings: PointSettings | None = None,
        noise: Noise | None = None,
        ledger: Any = None,
    ) -> None:
        chosen = check_settings(settings, PointSettings).only(type(self).__name__, self.takes)
        names = check_columns(columns).only("this baseline", ("x", "y", "crs", "op"))
        event = EventBudget.of(budget, unit, chosen.structure_share)
        source = check_noise(noise)
        domain = as_domain(domain)
        can_delete = check_deletions(deletions, None, lifetime, event.unit)
        structure = Structure(check_domain(domain), event=event, settings=chosen, noise=source)
        mechanism = self.mechanism_type(
            structure=structure,
            event=event,
            lifetime=check_lifetime(lifetime),
            deletions=can_delete,
            noise=source,
        )
        super().__init__(
            domain=domain,
            mechanism=mechanism,
            event=event,
            lifetime=lifetime,
            schedule=EveryStep(),
            deletions=can_delete,
            columns=names,
            reading=reading,
            settings=chosen,
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
    """Baseline 2: PrivTree on the insertions of each batch alone, scaled to the released total.

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
    That of ``PHDStream`` with ``PointSettings(schedule="once")``.
    """

    state_kind = "InitialPrivTree"
    counting_type = Initial
    takes = tuple(field.name for field in fields(PointSettings) if field.name not in _NOT_INITIAL)
    fixed: ClassVar[dict[str, Any]] = {"schedule": "once", "borrow": False}


__all__ = ["DifferentialPrivTree", "InitialPrivTree", "OfflinePrivTree"]

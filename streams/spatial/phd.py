"""PHDStream: a private stream of points in, a stream of synthetic point sets out.

After Kumar, "Differentially Private Synthetic Data Generation of Data Collected Over Time" (2024), chapter
3, with its privacy hole mended (scores are made non-negative and monotone before PrivTree sees them) and
with a structure that follows the released counts for free.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np

from streams.ages import check_deletions
from streams.counters import bank_from_state, make_bank
from streams.mechanism import Arrays, EventBudget, check_noise, laplace_scale, part_of, prefixed
from streams.schedule import ReleaseDriven, Schedule, make_schedule
from streams.slots import check_times
from streams.spatial.cells import ReleasedCells
from streams.spatial.expiring import Expiring
from streams.spatial.lasting import Lasting
from streams.spatial.points import POINT_COLUMNS, PointStream, check_domain
from streams.spatial.release import PointSnapshot
from streams.spatial.requests import Counts, on_leaves
from streams.spatial.settings import PointSettings
from streams.spatial.structure import Structure
from streams.stream import check_lifetime
from streams.sums import WindowPlan
from synthgeo import validate
from synthgeo.arrays import Floats, Ints
from synthgeo.codec import Stateful
from synthgeo.domain.box import SpatialDomain
from synthgeo.domain.polygon import as_domain
from synthgeo.errors import ConfigError
from synthgeo.hierarchy.cells import Partition
from synthgeo.parameters import check_settings
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.noise import Noise, laplace_variance
from synthgeo.privacy.unit import PrivacyUnit
from synthgeo.sources.declared import ColumnNames, Reading, check_columns

# Past this many steps per leaf of remembered detail, `every_step` forgets what lies below its present leaves.
_MOST_DETAIL = 20
_LEAST_DETAIL = 50_000


class PHD(Stateful):
    """PrivTree for the leaves, a private counter on each leaf.

    Guarantee
    ---------
    Unit: one event (an insertion or a deletion). Pure ε-differential privacy under add/remove neighbours,
    over the whole infinite stream of releases, where ε is ``event.whole``.

    *Structure.* At a structure step the tree costs ``event.structure`` (``Structure``). Between structure
    steps leaves move by released counts alone, which costs nothing.

    *Counts.* Leaves are disjoint, so one event is in one leaf of its step. Where every step is a structure
    step, each leaf's counter costs ``event.counts`` and the sum is ε. Otherwise a counter costs all of ε, and
    at a structure step the batch is released once, apart from the counters, at ``event.counts``: no noisy sum
    holds both events that paid for structure and events that did not. Counters are private also when later
    inputs depend on earlier outputs (``streams.counters``), so leaves may stop and start by what was
    released.
    """

    name: ClassVar[str] = "PHDStream"
    is_private: ClassVar[bool] = True
    asks: ClassVar[bool] = True
    keeps: ClassVar[dict[str, Any]] = {"cells": ReleasedCells, "slots": np.ndarray, "counted": np.ndarray}

    def __init__(
        self,
        *,
        structure: Structure,
        event: EventBudget,
        always: bool,
        adapts: bool,
        counter: str,
        horizon: int | None,
        noise: Noise,
    ) -> None:
        if counter == "toeplitz":
            raise ConfigError(
                "the Toeplitz counter is Gaussian (zCDP); PHDStream is purely private: choose another counter"
            )
        self.structure = structure
        self.event = event
        self.always, self.adapts = always, adapts
        self.counter, self.horizon = counter, horizon
        self.noise = noise
        self.scale_at_structure = laplace_scale(event.counts)
        leaves_stay = not (always or adapts) and horizon is not None
        kind = "simple" if counter == "auto" and not leaves_stay else counter
        each = event.counts if always else event.whole
        self.bank = make_bank(kind, epsilon=each.epsilon, noise=noise, horizon=horizon)
        self.cells = structure.blank()
        self.slots: Ints = self.bank.add(1)
        self.counted: Ints = np.zeros(1, dtype=np.int64)  # each leaf's counter as last put out
        self._paid = (0.0, 0.0)

    def advance(self, counts: Counts, *, step: int, structure: bool) -> None:
        if structure:
            leaves, counts = self.structure.leaves(self.cells, counts)
            self._move_to(leaves)
        elif self.adapts:
            age = float(self.bank.variance(np.array([step]))[0])  # as old as the stream
            self._move_to(self.structure.follow(self.cells, age))
        here = on_leaves(counts, self.cells.partition)
        inserted, deleted = here.weights.T
        true = self.cells.partition.totals(here.keys, self.structure.bits, inserted - deleted)
        if structure and not self.always:
            noisy = true + self.noise.discrete_laplace(self.scale_at_structure, true.size)
            self.cells.add(
                noisy.astype(np.float64), np.full(true.size, laplace_variance(self.scale_at_structure))
            )
        else:
            cumulative = self.bank.step(self.slots, true)
            increments, self.counted = cumulative - self.counted, cumulative
            self.cells.add(increments.astype(np.float64), np.zeros(true.size))
        self.cells.settle()
        event = self.event
        self._paid = (
            (event.structure.epsilon, event.counts.epsilon) if structure else (0.0, event.whole.epsilon)
        )

    def paid(self) -> tuple[float, float]:
        return self._paid

    def _move_to(self, partition: Partition) -> None:
        """Make ``partition`` the structure: leaves that stay keep their counters, the others' are erased."""
        cells = self.cells
        if partition is cells.partition:
            return
        here, there = partition.match(cells.partition)
        gone = np.ones(self.slots.size, dtype=bool)
        gone[there] = False
        # The noise of an erased counter stays in the estimate for good.
        settled = np.where(gone, self._standing_variance(), 0.0)
        cells.add(np.zeros(settled.size), settled)
        self.bank.drop(self.slots[gone])
        slots = np.empty(partition.size, dtype=np.int64)
        counted = np.zeros(partition.size, dtype=np.int64)
        fresh = np.ones(partition.size, dtype=bool)
        fresh[here] = False
        slots[here], counted[here] = self.slots[there], self.counted[there]
        slots[fresh] = self.bank.add(int(fresh.sum()))
        self.slots, self.counted, cells.partition = slots, counted, partition
        cells.estimate.refine(partition)
        most = max(_LEAST_DETAIL, _MOST_DETAIL * partition.size)
        if self.adapts or cells.estimate.cells.size > most:
            cells.estimate.coarsen(partition)

    def _standing_variance(self) -> Floats:
        return self.bank.variance(self.bank.clock[self.slots])

    def snapshot(self) -> PointSnapshot:
        return self.cells.snapshot(self._standing_variance())

    def facts(self) -> dict[str, Any]:
        return self.structure.settings() | {"counter": self.bank.kind}

    def settings(self) -> dict[str, Any]:
        return self.facts() | {"counter": self.counter, "horizon": self.horizon}

    def copy(self) -> Self:
        twin = copy(self)
        twin.bank, twin.cells = self.bank.copy(), self.cells.copy()
        return twin

    def to_state(self) -> tuple[dict[str, Any], Arrays]:
        values, arrays = super().to_state()
        bank, bank_arrays = self.bank.to_state()
        return {**values, "bank": bank}, arrays | prefixed("bank", bank_arrays)

    def restore(self, values: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        super().restore(values, arrays)
        self.bank = bank_from_state(values["bank"], part_of("bank", arrays), self.noise)
        if not self.slots.shape == self.counted.shape == (self.cells.partition.size,):
            raise ValueError("counters that do not fit the leaves")


class PHDStream(PointStream):
    """Release a synthetic point set at each step of a stream of inserted and deleted points.

    The structure is a PrivTree over the domain, looked for at the first step. Afterwards it follows the
    released counts: cells that hold more than the noise are split, families that hold less are merged. That
    costs no budget, so all of ε goes to the counts from the second step on.

    Batches: DataFrames with lon/lat or x/y columns, GeoDataFrames of points, (n, 2) arrays, paths or globs
    of CSV, Parquet or GeoJSON, dask DataFrames.

    Parameters
    ----------
    domain
        Where points can be: ``BoxDomain``, ``PolygonDomain``, ``RoadDomain`` or ``H3Domain``.
    budget
        ε for the whole stream, however long it is. The guarantee is pure: δ must be 0.
    unit
        Who is protected. None: one event. ``PrivacyUnit.user(max_events=m)``: users with at most m events.
    lifetime
        A release describes the events of the last ``lifetime`` steps (1: of this step only). Nothing has to
        be deleted for that, and the noise stays the same for ever. None: everything so far, inserted and not
        deleted.
    deletions
        Whether batches can hold deletions: rows whose column ``op`` is -1. None: they can, but with a
        lifetime only where ``columns.inserted`` says when their event was inserted.
    columns
        Names of columns (``ColumnNames``): x, y, crs, op, inserted.
    reading
        How text is read (``Reading``).
    settings
        All other choices (``PointSettings``).
    noise
        ``SystemNoise()`` unless given; ``SeededNoise(seed)`` for tests.
    ledger
        A ``Ledger`` to charge, where one data set has several products.

    Guarantee
    ---------
    Unit: one event (an insertion or a deletion), or a user with an enforced bound. Pure ε-differential
    privacy under add/remove neighbours, over the whole infinite stream of releases. An event of a structure
    step pays ``structure_share`` ε for the tree and the rest for its counts; an event of any other step pays
    ε for its counts (``every_step``: the same split at every step); with ``times``, that share is taken off
    first. ``costs`` lists it. ``Expiring``,
    ``Lasting`` and ``PHD`` have the arguments; see also docs/guarantees.md.
    """

    state_kind = "PHDStream"
    structure_type: ClassVar[type[Structure]] = Structure
    expiring_type: ClassVar[type[Expiring]] = Expiring
    lasting_type: ClassVar[type[Lasting]] = Lasting
    counting_type: ClassVar[type[PHD]] = PHD

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
        given = check_settings(settings, PointSettings).only(type(self).__name__, self.takes)
        chosen = replace(given, **self.fixed)
        names = check_columns(columns).only("a stream of points", POINT_COLUMNS)
        counter, horizon = chosen.counter, chosen.horizon
        event = EventBudget.of(
            budget, unit, chosen.structure_share, times_share=check_times(chosen.times, chosen.times_share)
        )
        plan = make_schedule(chosen.schedule, auto=ReleaseDriven())
        source = check_noise(noise)
        domain = as_domain(domain)
        deletions = check_deletions(deletions, names.inserted, lifetime, event.unit)
        structure = self.structure_type(check_domain(domain), event=event, settings=chosen, noise=source)
        mechanism: PHD | Expiring | Lasting
        lifetime = check_lifetime(lifetime)
        borrows = check_borrow(chosen.borrow, lifetime, plan)
        if lifetime is not None:
            if counter not in ("auto", "simple"):
                raise ConfigError(f"with a lifetime, counter must be 'auto', got {counter!r}")
            mechanism = self.expiring_type(
                structure=structure,
                event=event,
                lifetime=lifetime,
                deletions=deletions,
                adapts=plan.adapts,
                noise=source,
                horizon=horizon,
                borrow=borrows,
            )
        elif counter == "auto" and plan.adapts:
            mechanism = self.lasting_type(structure=structure, event=event, noise=source, horizon=horizon)
        else:
            mechanism = self.counting_type(
                structure=structure,
                event=event,
                always=plan.name == "every_step",
                adapts=plan.adapts,
                counter=counter,
                horizon=horizon,
                noise=source,
            )
        super().__init__(
            domain=domain,
            mechanism=mechanism,
            event=event,
            lifetime=lifetime,
            schedule=plan,
            deletions=deletions,
            columns=names,
            reading=reading,
            settings=given,
            noise=source,
            ledger=ledger,
        )


def check_borrow(borrow: Any, lifetime: int | None, plan: Schedule) -> bool:
    """Whether a stream borrows from the past: by default one of single steps whose leaves stay a while; on
    request one whose steps are counted one by one.
    """
    if borrow == "auto":
        return lifetime == 1 and plan.name != "every_step"
    if validate.flag(borrow, "borrow") and (lifetime is None or WindowPlan.of(lifetime, 1.0).block > 1):
        raise ConfigError("borrow=True is for short lifetimes: over longer ones sums of counts tell more")
    return bool(borrow)

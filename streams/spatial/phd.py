"""PHDStream: a private stream of points in, a stream of synthetic point sets out.

After Kumar, "Differentially Private Synthetic Data Generation of Data Collected Over Time" (2024), chapter
3, with its privacy hole mended (scores are made non-negative and monotone before PrivTree sees them) and
with a structure that follows the released counts for free.
"""

from __future__ import annotations

import math
from copy import copy
from typing import Any, ClassVar, Self

import numpy as np

from streams.counters import bank_from_state, make_bank
from streams.mechanism import Arrays, EventBudget, check_noise, laplace_scale, part_of, prefixed
from streams.schedule import ReleaseDriven, Schedule, make_schedule, schedule_from_state
from streams.spatial.cells import ReleasedCells
from streams.spatial.points import PointSnapshot, PointStream, check_domain
from synthgeo.arrays import Floats, Ints, Keys
from synthgeo.domain.spatial import SpatialDomain
from synthgeo.errors import ConfigError
from synthgeo.hierarchy.adapt import adapt
from synthgeo.hierarchy.base import Hierarchy
from synthgeo.hierarchy.cells import EstimateScore, Partition
from synthgeo.hierarchy.privtree import GRID, KeyScore, Score, SplitRule, grow
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.noise import Noise, laplace_variance
from synthgeo.privacy.unit import PrivacyUnit
from synthgeo.sources import Histogram
from synthgeo.sources.declared import Reading

# Cells are split above, and families merged below, this many standard deviations of a counter as old as the
# stream. Chosen on the circles (ADR 2); the sweep in docs/benchmarks.md has what other values do elsewhere.
SPLIT_AT = 2.0
MERGE_AT = 1.0

# Past this many steps per leaf of remembered detail, `every_step` forgets what lies below its present leaves.
_MOST_DETAIL = 20
_LEAST_DETAIL = 50_000


class PHD:
    """PrivTree for the leaves, a private counter on each leaf.

    Guarantee
    ---------
    Unit: one event (an insertion or a deletion). Pure ε-differential privacy under add/remove neighbours,
    over the whole infinite stream of releases, where ε is ``event.whole``.

    *Structure.* At a structure step the tree costs ``event.structure``. It sees score(v) = Ĝ(v) +
    inserted(v): Ĝ is the last release made non-negative and consistent, the same in both worlds, and one
    event moves ``inserted`` by at most 1 on one path, so scores are non-negative and monotone in both worlds,
    as PrivTree's theorem requires (``synthgeo.hierarchy.privtree``). Deletions reach the tree one step later,
    through Ĝ. Between structure steps leaves move by released counts alone, which costs nothing.

    *Counts.* Leaves are disjoint, so one event is in one leaf of its step. Where every step is a structure
    step, each leaf's counter costs ``event.counts`` and the sum is ε. Otherwise a counter costs all of ε, and
    at a structure step the batch is released once, apart from the counters, at ``event.counts``: no noisy sum
    holds both events that paid for structure and events that did not. Counters are private also when later
    inputs depend on earlier outputs (``streams.counters``), so leaves may stop and start by what was
    released.
    """

    name: ClassVar[str] = "PHDStream"
    is_private: ClassVar[bool] = True

    def __init__(
        self,
        *,
        hierarchy: Hierarchy,
        event: EventBudget,
        always: bool,
        adapts: bool,
        counter: str,
        horizon: int | None,
        max_depth: int,
        fanout: int,
        theta: float,
        noise: Noise,
    ) -> None:
        if counter == "toeplitz":
            raise ConfigError(
                "the Toeplitz counter is Gaussian (zCDP); PHDStream is purely private: choose another counter"
            )
        self.hierarchy = hierarchy
        self.event = event
        self.always, self.adapts = always, adapts
        self.counter, self.horizon = counter, horizon
        self.levels = hierarchy.levels(max_depth, fanout)
        self.bits = self.levels[-1]
        self.max_depth, self.fanout = max_depth, fanout
        self.rule = SplitRule(event.structure.epsilon, fanout, theta)
        self.theta = self.rule.theta
        self.noise = noise
        self.scale_at_structure = laplace_scale(event.counts)
        leaves_stay = not (always or adapts) and horizon is not None
        kind = "simple" if counter == "auto" and not leaves_stay else counter
        each = event.counts if always else event.whole
        self.bank = make_bank(kind, epsilon=each.epsilon, noise=noise, horizon=horizon)
        self.cells = ReleasedCells(hierarchy, levels=self.levels)
        self.slots: Ints = self.bank.add(1)
        self.counted: Ints = np.zeros(1, dtype=np.int64)  # each leaf's counter as last put out
        self._paid = (0.0, 0.0)

    def advance(self, counts: Histogram, *, step: int, structure: bool) -> None:
        inserted, deleted = counts.weights.T
        if structure:
            self._move_to(self._grown(counts.keys, inserted))
        elif self.adapts:
            self._move_to(self._adapted(step))
        true = self.cells.partition.totals(counts.keys, self.bits, inserted - deleted)
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

    def _grown(self, keys: Keys, inserted: Ints) -> Partition:
        score = self._score(keys, inserted)
        return grow(self.hierarchy, score, self.rule, levels=self.levels, noise=self.noise)

    def _score(self, keys: Keys, inserted: Ints) -> Score:
        """What PrivTree sees: non-negative, monotone, moved by at most 1 on one path by one event."""
        past = EstimateScore(self.cells.estimate.cells, self.cells.released, GRID.one)
        now = KeyScore(keys, self.bits, inserted * GRID.one)
        return lambda prefix, bits, measure: past(prefix, bits, measure) + now(prefix, bits, measure)

    def _adapted(self, step: int) -> Partition:
        age = float(self.bank.variance(np.array([step]))[0])
        return adapt(
            self.cells.partition,
            self.cells.on_leaves(),
            hierarchy=self.hierarchy,
            levels=self.levels,
            split_above=SPLIT_AT * math.sqrt(age),
            merge_below=MERGE_AT * math.sqrt(age),
        )

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
        return {
            "max_depth": self.max_depth,
            "fanout": self.fanout,
            "theta": self.theta,
            "counter": self.bank.kind,
        }

    def settings(self) -> dict[str, Any]:
        return self.facts() | {"counter": self.counter, "horizon": self.horizon}

    def copy(self) -> Self:
        twin = copy(self)
        twin.bank, twin.cells = self.bank.copy(), self.cells.copy()
        return twin

    def to_state(self) -> tuple[dict[str, Any], Arrays]:
        bank, bank_arrays = self.bank.to_state()
        own = {"slots": self.slots, "counted": self.counted}
        return {"bank": bank}, self.cells.to_state() | prefixed("bank", bank_arrays) | own

    def restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        self.bank = bank_from_state(values["bank"], part_of("bank", arrays), self.noise)
        self.slots, self.counted = arrays["slots"], arrays["counted"]
        self.cells.restore(arrays)


class PHDStream(PointStream):
    """Release a synthetic point set at each step of a stream of inserted and deleted points.

    The structure is a PrivTree over the domain. ``schedule="auto"`` looks for it once, at the first step,
    and then moves it by the released counts: cells that hold more than the noise are split, families that
    hold less are merged. That costs no budget, so all of ε goes to the counts from the second step on.
    ``"every_step"`` is the method of the paper: a new PrivTree with half of ε at every step, counters with
    the other half. ``"once"`` keeps the first tree. A ``Growing`` schedule looks again at growing intervals.

    ``counter="auto"`` takes the simple counter: leaves come and go, and a counter that spreads its noise over
    a horizon pays only on leaves that stay (docs/benchmarks.md has the sweep). With ``schedule="once"`` they
    all stay, and it takes the counter of least expected error for ``horizon`` steps where that is given.
    ``t0`` holds the first batches back and releases them together.
    ``persist=True`` keeps synthetic points, with ids, from step to step.

    Batches: DataFrames with lon/lat or x/y columns, GeoDataFrames of points, (n, 2) arrays, paths or globs
    of CSV, Parquet or GeoJSON, dask DataFrames. A column ``op`` of +1 and -1 marks inserts and deletes;
    without it all rows are inserts. ``reading`` declares how text is read.

    Guarantee
    ---------
    Unit: one event (an insertion or a deletion), or a user with an enforced bound. Pure ε-differential
    privacy under add/remove neighbours, over the whole infinite stream of releases. An event of a structure
    step pays ``structure_share`` ε for the tree and the rest for its count; an event of any other step pays
    ε for its count (``every_step``: the same split at every step); ``costs`` lists it. ``PHD`` has the
    argument; see also docs/guarantees.md.
    """

    state_kind = "PHDStream"
    mechanism_type: ClassVar[type[PHD]] = PHD

    def __init__(
        self,
        *,
        domain: SpatialDomain,
        budget: PrivacyBudget,
        unit: PrivacyUnit | None = None,
        schedule: str | Schedule = "auto",
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
        event = EventBudget.of(budget, unit, structure_share)
        plan = make_schedule(schedule, auto=ReleaseDriven())
        source = check_noise(noise)
        mechanism = self.mechanism_type(
            hierarchy=check_domain(domain),
            event=event,
            always=plan.name == "every_step",
            adapts=plan.adapts,
            counter=counter,
            horizon=horizon,
            max_depth=max_depth,
            fanout=fanout,
            theta=theta,
            noise=source,
        )
        super().__init__(
            domain=domain,
            mechanism=mechanism,
            event=event,
            schedule=plan,
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
        self.counter, self.horizon = counter, horizon

    @classmethod
    def _own_params(cls, values: dict[str, Any], arrays: Arrays) -> dict[str, Any]:
        return {
            **super()._own_params(values, arrays),
            "schedule": schedule_from_state(values["schedule"]),
            "counter": values["counter"],
            "horizon": values["horizon"],
        }

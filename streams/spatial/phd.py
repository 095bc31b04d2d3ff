"""PHDStream: a private stream of points in, a stream of synthetic point sets out.

After Kumar, "Differentially Private Synthetic Data Generation of Data Collected Over Time" (2024), chapter
3, with its privacy hole mended (scores are made non-negative and monotone before PrivTree sees them) and
with a structure that follows the released counts for free.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from streams.counters import bank_from_state, make_bank
from streams.spatial.stream import SpatialStream
from streams.stream import Arrays, part_of, prefixed
from synthgeo.arrays import Floats, Ints
from synthgeo.errors import ConfigError
from synthgeo.hierarchy.adapt import adapt
from synthgeo.hierarchy.cells import EstimateScore, Partition
from synthgeo.hierarchy.privtree import GRID, KeyScore, grow
from synthgeo.privacy.noise import laplace_variance
from synthgeo.sources import Histogram

# Cells are split above, and families merged below, this many standard deviations of a counter as old as the
# stream. Chosen on the circles (ADR 2); the sweep in docs/benchmarks.md has what other values do elsewhere.
SPLIT_AT = 2.0
MERGE_AT = 1.0

# Past this many steps per leaf of remembered detail, `every_step` forgets what lies below its present leaves.
_MOST_DETAIL = 20
_LEAST_DETAIL = 50_000


class PHDStream(SpatialStream):
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
    without it all rows are inserts.

    Guarantee
    ---------
    Unit: one event (an insertion or a deletion), or a user with an enforced bound. Pure ε-differential
    privacy under add/remove neighbours, over the whole infinite stream of releases. An event of a structure
    step pays ``structure_share`` ε for the tree and the rest for its count; an event of any other step pays
    ε for its count (``every_step``: the same split at every step); ``costs`` lists it. The tree sees
    score(v) = Ĝ(v) + inserted(v): Ĝ is the last release made non-negative and consistent, the same in both
    worlds, and one event moves ``inserted`` by at most 1 on one path, so scores are non-negative and
    monotone in both worlds, as PrivTree's theorem requires. Deletions reach the tree one step later, through
    Ĝ. Leaves are disjoint, so one event is in one counter. See docs/guarantees.md.
    """

    state_kind = "PHDStream"
    mechanism = "PHDStream"

    def __init__(self, *, counter: str = "auto", horizon: int | None = None, **options: Any) -> None:
        super().__init__(**options)
        if counter == "toeplitz":
            raise ConfigError(
                "the Toeplitz counter is Gaussian (zCDP); PHDStream is purely private: choose another counter"
            )
        self.counter = counter
        self.horizon = horizon
        leaves_stay = self.schedule.name == "once" and horizon is not None
        kind = "simple" if counter == "auto" and not leaves_stay else counter
        share = 1 - self.structure_share if self._always_half else 1.0
        self._bank = make_bank(kind, epsilon=self.epsilon * share, noise=self.noise, horizon=horizon)
        self._slots: Ints = self._bank.add(1)
        self._counted: Ints = np.zeros(1, dtype=np.int64)  # each leaf's counter as last put out

    def settings(self) -> dict[str, Any]:
        """What was chosen when the stream was made, as plain values."""
        return super().settings() | {"counter": self.counter, "horizon": self.horizon}

    def _privatise(self, counts: Histogram, *, structure: bool) -> None:
        inserted = counts.weights[:, 0]
        net = inserted - counts.weights[:, 1] if counts.weights.shape[1] > 1 else inserted
        if structure:
            self._move_to(self._grow(counts.keys, inserted))
        elif self.schedule.adapts:
            self._move_to(self._adapted())
        true = self._partition.totals(counts.keys, self.bits, net)
        if structure and not self._always_half:
            # Released once and apart, so that no standing counter holds events that also paid for structure.
            scale = 1 / (self.epsilon * (1 - self.structure_share))
            increments = true + self.noise.discrete_laplace(scale, true.size)
            self._add(increments, np.full(true.size, laplace_variance(scale)))
        else:
            cumulative = self._bank.step(self._slots, true)
            increments, self._counted = cumulative - self._counted, cumulative
            self._add(increments, np.zeros(true.size))
        self._released = self._estimate.non_negative()

    def _add(self, increments: Ints, variance: Floats) -> None:
        self._estimate.add(self._partition, increments.astype(np.float64), variance)

    def _grow(self, keys: np.ndarray, inserted: Ints) -> Partition:
        past = EstimateScore(self._estimate.cells, self._released, GRID.one)
        now = KeyScore(keys, self.bits, inserted * GRID.one)
        return grow(
            self.hierarchy,
            lambda prefix, bits, measure: past(prefix, bits, measure) + now(prefix, bits, measure),
            self.rule,
            levels=self.levels,
            noise=self.noise,
        )

    def _adapted(self) -> Partition:
        age = float(self._bank.variance(np.array([self.step]))[0])
        return adapt(
            self._partition,
            self._estimate.sums(self._partition, self._released),
            hierarchy=self.hierarchy,
            levels=self.levels,
            split_above=SPLIT_AT * math.sqrt(age),
            merge_below=MERGE_AT * math.sqrt(age),
        )

    def _move_to(self, partition: Partition) -> None:
        """Make ``partition`` the structure: leaves that stay keep their counters, the others' are erased."""
        if partition is self._partition:
            return
        here, there = partition.match(self._partition)
        gone = np.ones(self._slots.size, dtype=bool)
        gone[there] = False
        # The noise of an erased counter stays in the estimate for good.
        settled = np.where(gone, self._standing_variance(), 0.0)
        self._estimate.add(self._partition, np.zeros(settled.size), settled)
        self._bank.drop(self._slots[gone])
        slots = np.empty(partition.size, dtype=np.int64)
        counted = np.zeros(partition.size, dtype=np.int64)
        fresh = np.ones(partition.size, dtype=bool)
        fresh[here] = False
        slots[here], counted[here] = self._slots[there], self._counted[there]
        slots[fresh] = self._bank.add(int(fresh.sum()))
        self._slots, self._counted, self._partition = slots, counted, partition
        self._estimate.refine(partition)
        if self.schedule.adapts or self._estimate.cells.size > max(
            _LEAST_DETAIL, _MOST_DETAIL * partition.size
        ):
            self._estimate.coarsen(partition)

    def _standing_variance(self) -> Floats:
        return self._bank.variance(self._bank.clock[self._slots])

    def _deviation(self) -> Floats:
        settled = self._estimate.sums(self._partition, self._estimate.variance)
        return np.sqrt(settled + self._standing_variance())

    def _statement(self) -> dict[str, Any]:
        return {**super()._statement(), "counter": self._bank.kind, "structure_share": self.structure_share}

    def _to_state(self) -> tuple[dict[str, Any], Arrays]:
        values, arrays = super()._to_state()
        values["bank"], bank_arrays = self._bank.to_state()
        values |= {"counter": self.counter, "horizon": self.horizon}
        arrays |= prefixed("bank", bank_arrays)
        arrays |= {"slots": self._slots, "counted": self._counted}
        return values, arrays

    @classmethod
    def _own_options(cls, values: dict[str, Any]) -> dict[str, Any]:
        return {"counter": values["counter"], "horizon": values["horizon"]}

    def _restore_own(self, values: dict[str, Any], arrays: Arrays) -> None:
        self._bank = bank_from_state(values["bank"], part_of("bank", arrays), self.noise)
        self._slots, self._counted = arrays["slots"], arrays["counted"]

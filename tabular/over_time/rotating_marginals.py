"""The scheduled way: few selections, every event counted once in every marginal of the structure.

Algorithm 14 measures a handful of marginals on each batch and lets the model fill in the rest: a marginal
sees one batch in six, and half of ε goes into choosing. Here each marginal of the structure keeps what
came since it was last released, and releases that sum when it is worth its noise. No row is missed, each
noisy number holds many batches, and marginals take turns, so that the model hears something new at most
steps."""

from __future__ import annotations

import math
from copy import copy
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from streams.counters import bank_from_state, make_bank
from streams.mechanism import Arrays, laplace_scale, part_of, prefixed
from synthgeo.arrays import Floats, Ints
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.noise import laplace_variance
from synthgeo.privacy.selection import exponential_mechanism
from synthgeo.sources import Histogram
from tabular.allocation import MEAN_ABSOLUTE, Candidate, take_up
from tabular.marginals import Counts
from tabular.measuring import few_enough
from tabular.model.fitting import Measurement, fit, model_arrays, model_of
from tabular.model.junction_tree import Clique
from tabular.over_time.method import Setup, TableMechanism
from tabular.workload import l1_scores

_ITERATIONS = 100
# How far the shares of a marginal may have moved among rows that are not yet released, before its releases
# tell; see ``_drift``.
DRIFT = 0.1
# Share of ε for the number of rows, which is released at every step, where counts may spend nine tenths of ε
# (the usual structure_share); in proportion where they may spend more or less.
TOTAL_SHARE = 0.1
# A selection by scores waits for so many rows for each row of its noise, and comes again when so many times
# as many events have come.
CLEAR, AGAIN = 4.0, 2.0
# It asks for pairs that would be worth their noise if the model had this share of the rows in wrong cells,
# counted twice: where they are missing and where they are too many.
POSSIBLE = 0.5
# One by picks waits until the rows since the last one speak louder than its noise by about this much.
PATIENCE = 20.0
# By picks: marginals of several columns in the structure, for each column, before it is complete.
CAPACITY = 1.0
# By picks: a complete structure is looked at again when this many times as many events have come; each time
# it may grow.
REOPEN = 8.0
# A single column's marginal is let go once a pair tells it about as well: noise adds up over the other's
# values.
_COVERED_BY = 16


@dataclass
class Slot:
    """One marginal of the structure. ``pending`` is exact and private; everything else is released or
    public.
    """

    pending: Ints
    share: float  # the least share of ε that any pending row reserves here
    since: float  # released number of rows when pending began
    active: float  # released number of insertions and deletions when pending began
    counted: Floats  # noisy sum of what was released
    variance: float  # of a cell of ``counted``
    begin: float  # released number of rows when the marginal joined
    turns: int
    remainder: Floats  # the model's marginal when it joined: the rows before
    moved: float = 0.0  # how far shares moved between its releases, squared: a weighted sum
    weight: float = 0.0  # of that sum


class Rotating(TableMechanism):
    """Marginals release in turns; a structure is chosen from what came since the last choice.

    How many marginals there are follows from released errors: one is taken up if what the model would miss of
    it, until the structure is looked at again, exceeds the noise that it brings, its own and that of all
    others, which it makes larger. Where columns are so many that their pairs' errors would drown in joint
    noise, marginals are picked one by one instead, as many as there are columns.

    Guarantee
    ---------
    Pure event-level ε. The structure S, when marginals release and when a selection happens are functions
    of earlier outputs. An event at step τ enters (1) one of two counters, of insertions and of deletions:
    ``rows``; (2) at most one selection, the first one after τ, at ``event.structure``, and none while the
    structure is complete. By scores it releases the errors of all candidates with Laplace noise: an event
    moves each by at most 1, all of them by how many there are. By picks, of which each costs a k-th, the
    score of a marginal moves by at most its weight. Model and penalty are public in both; (3) for each
    marginal in S at τ at most one released sum, since a release empties ``pending``, with Laplace noise of
    scale 1 / share, where share is the smallest share that any of the pending rows was promised: at most
    share(τ). The shares of S at τ sum to ``marginals`` while a selection may come, and to ε less ``rows``
    while none may. All parts are split off one whole, so each is positive, and they compose adaptively to at
    most ε. A marginal that leaves the structure takes its pending rows with it, unreleased."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.rows_budget, self.marginals_budget = setup.event.counts.split((TOTAL_SHARE, 0.9 - TOTAL_SHARE))
        laplace_scale(self.marginals_budget / len(self.needs()))  # the smallest share there can be
        self.bank = make_bank(
            setup.counter, epsilon=self.rows_budget.epsilon, noise=setup.noise, horizon=setup.horizon
        )
        self.row_slots = self.bank.add(2)  # insertions, deletions: an event is one of the two
        self.rows = 0.0  # released number of rows
        self.events = 0.0  # released number of insertions and deletions
        self.slots: dict[Clique, Slot] = {}
        self.period: Counts = {
            clique: np.zeros(setup.cells[clique], dtype=np.int64) for clique in self._pairs()
        }
        self.period_events = 0.0
        self.period_model = self.model
        self.complete = not self.period
        self.settled = math.inf  # released number of events when the structure became complete
        self.extra = 0
        # Whether a selection releases the errors of all candidates, and not picks among them.
        self.by_scores = setup.lifetime is None and few_enough(len(self.period), len(setup.sizes))
        self._paid = (0.0, 0.0)
        for clique in setup.singles:
            self._join(clique, np.zeros(setup.cells[clique]))

    def _pairs(self) -> list[Clique]:
        return [clique for clique in self.setup.workload if len(clique) > 1]

    @property
    def capacity(self) -> int:
        """How many marginals of several columns a structure takes by picks: as many as there are columns, and
        a quarter more each time it is reopened.
        """
        first = max(1, round(CAPACITY * len(self.setup.sizes)))
        return min(first + self.extra, len(self._pairs()))

    def needs(self) -> list[Clique]:
        return [*self.setup.singles, *self._pairs()]

    def _join(self, clique: Clique, remainder: Floats) -> None:
        self.slots[clique] = self._new_slot(clique, remainder)

    def _new_slot(self, clique: Clique, remainder: Floats) -> Slot:
        empty = np.zeros(self.setup.cells[clique], dtype=np.int64)
        counted = np.zeros(self.setup.cells[clique])
        return Slot(
            pending=empty,
            share=math.inf,
            since=self.rows,
            active=self.events,
            counted=counted,
            variance=0.0,
            begin=self.rows,
            turns=0,
            remainder=remainder,
        )

    def advance(self, counts: Histogram, *, step: int, structure: bool) -> None:  # noqa: ARG002
        batch, event = self.index.split(counts), self.setup.event
        if self.complete and self.events >= (AGAIN if self.by_scores else REOPEN) * self.settled:
            self._reopen()
        marginals = event.whole - self.rows_budget if self.complete else self.marginals_budget
        selecting = 0.0 if self.complete else event.structure.epsilon
        self._paid = (selecting, (self.rows_budget + marginals).epsilon)
        self._collect(batch, marginals.epsilon / len(self.slots))
        self._count_rows(batch[()])
        for slot in [slot for clique, slot in self.slots.items() if self._due(clique, slot)]:
            self._release(slot)
        self._drop_covered()
        self._fit()
        if structure and not self.complete and self._ready():
            self._select(event.structure)

    def _collect(self, batch: Counts, share: float) -> None:
        """Add a batch to what is pending; its rows reserve ``share`` in each marginal."""
        for clique, slot in self.slots.items():
            slot.pending = slot.pending + batch[clique]
            slot.share = min(slot.share, share)
        for clique in self.period:
            self.period[clique] = self.period[clique] + batch[clique]

    def _count_rows(self, batch: Ints) -> None:
        inserted, deleted = self.bank.step(self.row_slots, batch).tolist()
        deviation = math.sqrt(float(self.bank.variance(self.bank.clock[self.row_slots[:1]])[0]))
        # A stream without deletions should not carry the noise of counting them.
        taken = deleted if deleted > 3 * deviation else 0
        self.rows = float(inserted - taken)
        self.events = float(max(inserted, 0) + taken)

    def _drift(self, clique: Clique, slot: Slot) -> float:
        """How far a cell may be from proportional growth by unreleased events: as shares moved between this
        marginal's releases and, as far as these do not tell, between those of all.
        """
        unseen = max(self.events - slot.active, 0.0)
        if not slot.turns:
            return DRIFT * unseen / math.sqrt(self.setup.cells[clique])
        usual = DRIFT**2
        moved, weight = (sum(getattr(s, n) for s in self.slots.values()) for n in ("moved", "weight"))
        for total, known in ((moved, weight), (slot.moved, slot.weight)):
            usual = (total + usual / DRIFT**4) / (known + 1 / DRIFT**4)
        return math.sqrt((max(usual, 0.0) * unseen**2 + unseen) / self.setup.cells[clique])

    def _learn_drift(self, slot: Slot, fresh: Ints, noise: float) -> None:
        """Compare what a marginal releases with proportional growth. Post-processing."""
        events, cells = self.events - slot.active, fresh.size
        if not slot.turns or events < 1:
            return
        # As in ``_measurements``: what the noise in the number of rows adds is a part of it.
        seen = max(slot.since - slot.begin, 1.0)
        growth = (self.rows - slot.since) / seen
        # The variance of a cell's difference where shares stay: noise, and the sampling of rows.
        usual = noise + growth**2 * slot.variance + (events + growth**2 * seen) / cells
        found = float(np.square(fresh - growth * slot.counted).mean())
        weight = 1 / (2 * cells * usual**2 / events**4 + DRIFT**4)
        slot.moved += weight * cells * (found - usual) / events**2
        slot.weight += weight

    def _due(self, clique: Clique, slot: Slot) -> bool:
        """Whether what may have changed since the last release, and old noise that stands for new rows as
        well, exceed the noise after one more.
        """
        growth = max((self.rows - slot.begin) / max(slot.since - slot.begin, 1.0), 1.0)
        stale = slot.variance * (growth**2 - 1) + self._drift(clique, slot) ** 2
        return stale >= slot.variance + laplace_variance(1 / slot.share)

    def _release(self, slot: Slot) -> None:
        scale = 1 / slot.share
        fresh = slot.pending + self.setup.noise.discrete_laplace(scale, slot.pending.size)
        self._learn_drift(slot, fresh, laplace_variance(scale))
        slot.counted = slot.counted + fresh
        slot.variance += laplace_variance(scale)
        slot.pending = np.zeros_like(slot.pending)
        slot.share = math.inf
        slot.since, slot.active = self.rows, self.events
        slot.turns += 1

    def _drop_covered(self) -> None:
        for name in self.setup.sizes:
            if (name,) not in self.slots:
                continue
            for clique, slot in self.slots.items():
                small = self.setup.cells[clique] <= _COVERED_BY * self.setup.sizes[name]
                if len(clique) > 1 and name in clique and small and self._covers(slot):
                    del self.slots[(name,)]
                    break

    def _covers(self, slot: Slot) -> bool:
        """Whether a marginal's sums can stand for those of its columns."""
        return slot.turns > 0

    def _measurements(self) -> list[Measurement]:
        out = []
        for clique, slot in self.slots.items():
            if not slot.turns:
                continue
            seen = max(slot.since - slot.begin, 1.0)
            values, stretch = slot.counted, 1.0
            if slot.begin > 0:
                # Rows before it joined: margins from the model of then, association from what was counted
                # since.
                shape = [self.setup.sizes[name] for name in clique]
                values = values + _rake(slot.counted.reshape(shape), slot.remainder.reshape(shape)).ravel()
                stretch = max(slot.since, seen) / seen
            growth = max(self.rows, 1.0) / max(slot.since, 1.0)
            sigma = math.sqrt(slot.variance * (stretch * growth) ** 2 + self._drift(clique, slot) ** 2)
            out.append(Measurement(clique, values * growth, sigma))
        return out

    def _fit(self) -> None:
        found = self._measurements()
        layout = self.setup.layout([m.clique for m in found])
        self.model = fit(layout, found, total=self.rows, start=self.model, iterations=_ITERATIONS)

    def _ready(self) -> bool:
        if self.by_scores:
            asked = len(self._worth_asking())
            scale = asked / self.setup.event.structure.epsilon
            return asked > 0 and self.events - self.period_events >= CLEAR * scale
        pick = self.setup.event.structure / self.setup.picks
        return self.events - self.period_events >= PATIENCE * math.log(len(self.period) + 1) / pick.epsilon

    def _reopen(self) -> None:
        """Let what comes from now on choose more marginals: from here events reserve a selection's ε
        again.
        """
        self.complete = False
        self.extra += max(1, len(self.setup.sizes) // 4)
        self._begin_period()

    def _begin_period(self) -> None:
        cliques = [] if self.complete else self._pairs()
        self.period = {c: np.zeros(self.setup.cells[c], dtype=np.int64) for c in cliques}
        self.period_events = self.events
        self.period_model = self.model

    def _expected_in_period(self, candidates: list[Clique]) -> dict[Clique, Floats]:
        """What the model says about the rows since the last choice."""
        now, then = self.model.counts(candidates), self.period_model.counts(candidates)
        return {clique: np.maximum(now[clique] - then[clique], 0.0) for clique in candidates}

    def _select(self, budget: PrivacyBudget) -> None:
        """Choose marginals for the structure by what the model misses in the rows since the last choice."""
        if self.by_scores:
            self._select_by_scores(budget)
        else:
            self._pick(budget)
        self._begin_period()

    def _standing(self) -> list[float]:
        """The sizes of the structure's marginals, each with the root of its weight."""
        setup = self.setup
        return [math.sqrt(setup.weights.get(c, 1 / setup.cells[c])) * setup.cells[c] for c in self.slots]

    def _worth_asking(self) -> list[Clique]:
        """The pairs that could be worth the noise that they add. Public: the fewer are asked for, the less
        noise there is in what they say.
        """
        setup, sizes = self.setup, self._standing()
        budget, most = self.marginals_budget.epsilon, POSSIBLE * AGAIN * self.events

        def worth(clique: Clique) -> bool:
            weight = math.sqrt(setup.weights[clique])
            added = sum(sizes) + (len(sizes) + 1) * weight * setup.cells[clique]
            return most * weight > added / budget

        return [clique for clique in self.period if clique not in self.slots and worth(clique)]

    def _select_by_scores(self, budget: PrivacyBudget) -> None:
        """Release the errors of the pairs that could be worth it, and take up those that are.

        An event of the period is in one cell of each candidate and moves each error by at most 1, all of them
        by how many there are: Laplace noise of that scale over the whole of ``budget``.
        """
        setup, candidates = self.setup, self._worth_asking()
        now = self.model.counts(candidates)
        expected = {c: np.rint(v).astype(np.int64) for c, v in self._expected_in_period(candidates).items()}
        errors = np.array([np.abs(self.period[c] - expected[c]).sum() for c in candidates], dtype=np.int64)
        noisy = errors + setup.noise.discrete_laplace(len(candidates) / budget.epsilon, len(candidates))
        # What the structure misses in these rows it will miss in all rows until it is looked at again.
        growth = AGAIN * self.events / max(self.events - self.period_events, 1.0)
        choice = []
        for clique, error in zip(candidates, noisy.tolist(), strict=True):
            mean = expected[clique].astype(np.float64)
            floor = float(np.minimum(MEAN_ABSOLUTE * np.sqrt(mean), 2 * mean).sum())
            weight = math.sqrt(setup.weights[clique])
            choice.append(Candidate(clique, growth * weight * (error - floor), weight * mean.size))
        standing = self._standing()

        def room(chosen: list[Clique], clique: Clique) -> bool:
            return setup.room([*self.slots, *chosen], [clique])[0]

        for clique in take_up(choice, standing, self.marginals_budget.epsilon, room=room):
            self._join(clique, now[clique])
        held = sum(len(c) > 1 for c in self.slots)
        self.complete = True
        self.settled = max(self.events, 1.0) if held < len(self._pairs()) else math.inf

    def _pick(self, budget: PrivacyBudget) -> None:
        """Choose marginals one by one."""
        setup = self.setup
        candidates = list(self.period)
        now, expected = self.model.counts(candidates), self._expected_in_period(candidates)
        share = self.marginals_budget / (len(self.slots) + 1)
        noise = math.sqrt(2 / math.pi * laplace_variance(1 / share.epsilon))
        # What sampling and the counters' own noise would add to the error of a perfect model.
        penalty = {
            c: float(np.minimum(np.sqrt(2 / math.pi * mean), 2 * mean).sum()) + noise * mean.size
            for c, mean in expected.items()
        }
        # The square root of the workload's weights: with 1 / cells itself, small tables set a sensitivity in
        # which all others drown.
        weights = {clique: math.sqrt(setup.weights[clique]) for clique in candidates}
        scores = l1_scores(self.period, expected, weights, penalty)
        joined: list[Clique] = []
        for _ in range(setup.picks):
            held = [c for c in self.slots if len(c) > 1]
            if len(held) >= self.capacity:
                break
            fits = setup.room([*self.slots], candidates)
            open_to = [ok and c not in self.slots for ok, c in zip(fits, candidates, strict=True)]
            # The last candidate is to leave the structure as it is.
            choice = exponential_mechanism(
                np.append(np.where(open_to, scores, -np.inf), 0.0),
                epsilon=(budget / setup.picks).epsilon,
                sensitivity=max(weights.values()),
                noise=setup.noise,
            )
            if choice < len(candidates):
                joined.append(candidates[choice])
                self._join(candidates[choice], now[candidates[choice]])
        held = [c for c in self.slots if len(c) > 1]
        # A round that chose nothing says that the structure explains the data as well as the noise lets
        # one see.
        self.complete = len(held) >= self.capacity or not joined
        if self.complete:
            self.settled = max(self.events, 1.0) if len(held) < len(self._pairs()) else math.inf

    def paid(self) -> tuple[float, float]:
        return self._paid

    def deviations(self) -> dict[Clique, float]:
        return {m.clique: m.sigma for m in self._measurements()}

    def copy(self) -> Self:
        twin = copy(self)
        twin.bank = self.bank.copy()
        twin.slots = {clique: copy(slot) for clique, slot in self.slots.items()}
        twin.period = dict(self.period)
        return twin

    def own_state(self) -> tuple[dict[str, Any], Arrays]:
        model, arrays = model_arrays(self.model)
        earlier, earlier_arrays = model_arrays(self.period_model, "period_model")
        bank, bank_arrays = self.bank.to_state()
        arrays |= earlier_arrays | prefixed("bank", bank_arrays)
        arrays["row_slots"] = self.row_slots
        slots = []
        for i, (clique, slot) in enumerate(self.slots.items()):
            share = None if math.isinf(slot.share) else slot.share
            numbers = [slot.since, slot.active, slot.variance, slot.begin, slot.turns]
            slots.append([list(clique), share, *numbers])
            arrays |= {
                f"slot/{i}/{name}": getattr(slot, name) for name in ("pending", "counted", "remainder")
            }
        arrays |= {f"period/{i}": vector for i, vector in enumerate(self.period.values())}
        values = {
            "model": model, "period_model": earlier, "bank": bank, "slots": slots,
            "settled": None if math.isinf(self.settled) else self.settled, "extra": self.extra,
            "rows": self.rows, "events": self.events, "period_events": self.period_events,
            "period": [list(clique) for clique in self.period],
            "complete": self.complete, "paid": list(self._paid), "by_scores": self.by_scores,
            "drifts": [[slot.moved, slot.weight] for slot in self.slots.values()],
        }  # fmt: skip
        return values, arrays

    def restore_own(self, values: dict[str, Any], arrays: Arrays) -> None:
        sizes, rules = self.setup.sizes, self.setup.schema.rules
        self.model = model_of(sizes, rules, values["model"], arrays)
        self.period_model = model_of(sizes, rules, values["period_model"], arrays, "period_model")
        self.bank = bank_from_state(values["bank"], part_of("bank", arrays), self.setup.noise)
        self.row_slots = arrays["row_slots"]
        self.rows, self.events = float(values["rows"]), float(values["events"])
        self.period_events = float(values["period_events"])
        self.settled = math.inf if values["settled"] is None else float(values["settled"])
        self.extra = int(values["extra"])
        self.complete, self._paid = bool(values["complete"]), (values["paid"][0], values["paid"][1])
        self.by_scores = bool(values["by_scores"])
        self.slots = {}
        drifts = values["drifts"]
        for i, (names, share, since, active, variance, begin, turns) in enumerate(values["slots"]):
            self.slots[tuple(names)] = Slot(
                pending=arrays[f"slot/{i}/pending"],
                share=math.inf if share is None else share,
                since=since,
                active=active,
                counted=arrays[f"slot/{i}/counted"],
                variance=variance,
                begin=begin,
                turns=turns,
                remainder=arrays[f"slot/{i}/remainder"],
                moved=float(drifts[i][0]),
                weight=float(drifts[i][1]),
            )
        self.period = {tuple(names): arrays[f"period/{i}"] for i, names in enumerate(values["period"])}


def _rake(seed: Floats, target: Floats) -> Floats:
    """A table with the one-way margins of ``target`` and, as far as they allow, the association of
    ``seed``.
    """
    total = float(target.sum())
    if total <= 0:
        return np.zeros_like(target)
    positive = np.maximum(seed, 0.0)
    # A tenth of the model's own table keeps cells open that the noise has emptied.
    table = 0.9 * positive / max(float(positive.sum()), 1.0) + 0.1 * target / total
    for _ in range(10):
        for axis in range(table.ndim):
            others = tuple(i for i in range(table.ndim) if i != axis)
            have, want = table.sum(axis=others, keepdims=True), target.sum(axis=others, keepdims=True)
            table = table * np.divide(want, have, out=np.zeros_like(want), where=have > 0)
    return table

"""Algorithm 14 of Kumar's dissertation: pick marginals at every step, count on them, fit.

The constants are tight where the listing's are not: see ``EveryStepModel``.
"""

from __future__ import annotations

from copy import copy
from typing import Any, Self

import numpy as np

from streams.counters import bank_from_state, make_bank
from streams.mechanism import Arrays, laplace_scale, part_of, prefixed
from synthgeo.arrays import Floats, Ints
from synthgeo.privacy.noise import laplace_variance
from synthgeo.privacy.selection import exponential_mechanism
from synthgeo.sources import Histogram
from tabular.model.fitting import Measurement, fit, model_arrays, model_of
from tabular.model.junction_tree import Clique
from tabular.over_time.method import Setup, TableMechanism
from tabular.workload import l1_scores, score_sensitivity

_ITERATIONS = 60


class EveryStepModel(TableMechanism):
    """At each step, k times: the exponential mechanism picks the marginal with the largest error, a bank of
    counters counts the batch on it, and the model is fitted.

    Two things of the listing are left out. Line 19 releases the average of the k models of a step; here the
    last one is released, which alone has all k measurements. Section 4.7.2 subtracts the number of a
    marginal's cells from its mean error per cell, numbers of different units: with tables of a hundred cells
    and errors of a few rows per cell the size alone would decide. Here nothing is subtracted; the weight
    1 / cells is the section's.

    Guarantee
    ---------
    Pure event-level ε. Let one event at step τ differ. *Selection:* a score is weight * |(g + batch) -
    h|_1 on one marginal; g and h come from earlier outputs, so the event moves it by at most its weight,
    and the largest weight is the sensitivity of each of the k picks; each costs a k-th of
    ``event.structure``. *Counting:* the event is fed to the k counters picked at τ and to none at other
    steps; each costs a k-th of ``event.counts``, also though later steps are chosen by earlier
    outputs (adaptive inputs; see ``streams.counters``). Sum: ε.
    """

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        # The papers' choice too: a marginal is picked so rarely that a tree over its picks cannot pay.
        kind = "simple" if setup.counter == "auto" else setup.counter
        self.pick, self.share = setup.event.structure / setup.picks, setup.event.counts / setup.picks
        self.scale = laplace_scale(self.share)
        self.bank = make_bank(kind, epsilon=self.share.epsilon, noise=setup.noise, horizon=setup.horizon)
        self.slots: dict[Clique, Ints] = {}
        self.counted: dict[Clique, Ints] = {}
        self.remainder: dict[Clique, Floats] = {}
        self._room: tuple[tuple[Clique, ...], list[bool]] = ((), [])

    def needs(self) -> list[Clique]:
        return list(self.setup.workload)

    def advance(self, counts: Histogram, *, step: int, structure: bool) -> None:  # noqa: ARG002
        setup, batch = self.setup, self.index.split(counts)
        candidates = list(setup.workload)
        before = self.model.counts(candidates)
        target = {clique: batch[clique] + before[clique] for clique in candidates}
        picked: list[Clique] = []
        found: dict[Clique, Measurement] = {}
        sigma = float(np.sqrt(laplace_variance(self.scale)))
        for _ in range(min(setup.picks, len(candidates))):
            expected = self.model.counts(candidates) if picked else before
            clique = self._pick(target, expected, picked)
            if clique is None:
                break  # the model has no room but for what was just picked; what is left of ε stays unspent
            picked.append(clique)
            if clique not in self.slots:
                self.slots[clique] = self.bank.add(setup.cells[clique])
                self.counted[clique] = np.zeros(setup.cells[clique], dtype=np.int64)
                # What the model says about the steps at which this marginal was not counted.
                self.remainder.setdefault(clique, before[clique])
            self.counted[clique] = self.bank.step(self.slots[clique], batch[clique])
            found[clique] = Measurement(clique, self.counted[clique] + self.remainder[clique], sigma)
            layout = setup.layout([*self.slots])
            total = _total(found)
            self.model = fit(
                layout,
                list(found.values()),
                total=total,
                start=self.model,
                iterations=_ITERATIONS,
            )
        rest = [clique for clique in self.slots if clique not in found]
        after = self.model.counts(rest)
        for clique in rest:
            self.remainder[clique] = after[clique] - self.counted[clique]

    def _pick(
        self, target: dict[Clique, Floats], expected: dict[Clique, Floats], picked: list[Clique]
    ) -> Clique | None:
        setup = self.setup
        candidates = list(setup.workload)
        held = tuple(self.slots)
        if self._room[0] != held or not self._room[1]:
            self._room = (held, setup.room(held, candidates))
        scores = l1_scores(target, expected, setup.weights, dict.fromkeys(candidates, 0.0))
        open_to = np.array([ok and c not in picked for ok, c in zip(self._room[1], candidates, strict=True)])
        if not open_to.any():
            return None
        return candidates[
            exponential_mechanism(
                np.where(open_to, scores, -np.inf),
                epsilon=self.pick.epsilon,
                sensitivity=score_sensitivity(setup.workload.weights),
                noise=setup.noise,
            )
        ]

    def deviations(self) -> dict[Clique, float]:
        clock = self.bank.clock
        return {c: float(np.sqrt(self.bank.variance(clock[slots[:1]])[0])) for c, slots in self.slots.items()}

    def copy(self) -> Self:
        twin = copy(self)
        twin.bank = self.bank.copy()
        for name in ("slots", "counted", "remainder"):
            setattr(twin, name, dict(getattr(self, name)))
        return twin

    def own_state(self) -> tuple[dict[str, Any], Arrays]:
        model, arrays = model_arrays(self.model)
        bank, bank_arrays = self.bank.to_state()
        arrays |= prefixed("bank", bank_arrays)
        for i, clique in enumerate(self.slots):
            arrays |= {
                f"slots/{i}": self.slots[clique],
                f"counted/{i}": self.counted[clique],
                f"remainder/{i}": self.remainder[clique],
            }
        return {"model": model, "bank": bank, "slots": [list(clique) for clique in self.slots]}, arrays

    def restore_own(self, values: dict[str, Any], arrays: Arrays) -> None:
        self.model = model_of(self.setup.sizes, self.setup.schema.rules, values["model"], arrays)
        self.bank = bank_from_state(values["bank"], part_of("bank", arrays), self.setup.noise)
        for i, names in enumerate(values["slots"]):
            clique = tuple(names)
            self.slots[clique] = arrays[f"slots/{i}"]
            self.counted[clique] = arrays[f"counted/{i}"]
            self.remainder[clique] = arrays[f"remainder/{i}"]


def _total(found: dict[Clique, Measurement]) -> float:
    """The number of rows by the noisy marginals themselves, each weighted by its precision."""
    weights = [1.0 / (m.values.size * m.sigma**2) for m in found.values()]
    return max(float(np.average([m.values.sum() for m in found.values()], weights=weights)), 1.0)

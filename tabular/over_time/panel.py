"""The mechanism of panels: synthetic persons who answer every wave, moved on by measured transitions."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import Any, ClassVar, Self

import numpy as np
from scipy.optimize import brentq

from streams.mechanism import Arrays
from synthgeo.arrays import Bools, Floats, Ints
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.filter import PrivacyFilter
from synthgeo.privacy.gaussian import gaussian_delta
from synthgeo.privacy.noise import Noise
from synthgeo.privacy.unit import PrivacyUnit
from synthgeo.schema import Attribute, Schema
from tabular.conditional import Codes, ConditionalTable, counter, settled_rows, singles_of
from tabular.measuring import MeasuredColumns, few_enough
from tabular.model.junction_tree import Clique
from tabular.once import fit_table
from tabular.workload import all_k_way

#: What the answers of a period cost in the first wave of the next, in waves: two records, in ε (True: pure)
#: and in μ².
BORDER = {True: 2, False: 4}
# Of a wave's budget, for who stayed.
STAY_SHARE = 0.15
_LEAST_FRACTION = 1e-6
_RAKES = 10


@dataclass(frozen=True)
class PanelWave:
    """The exact answers of one wave, and those of the same persons in the wave before: one code more than
    there are answers stands for a person who was not there. Private.
    """

    now: Codes
    before: Codes


@dataclass(frozen=True)
class Population:
    """Synthetic persons: their ids, and the codes and values of their last answers. Released."""

    ids: Ints
    codes: Ints
    values: dict[str, Floats]
    next_id: int


def before(name: str) -> str:
    """The name of an answer in the wave before."""
    return f"before: {name}"


class PanelMechanism:
    """Moves a synthetic population on by one wave.

    At the first wave a table of answers is measured as ``TabularSynthesizer`` would. At every other one: the
    answers of the wave before, one by one, of those who answer now (who stayed, and how many are new); then,
    given these, today's answers, alone and in pairs with each other and with those of the wave before. Who
    stays is drawn so that the stayers' earlier answers agree with what was measured; new persons join; and
    each person's answers are drawn given its own earlier ones. A value whose code did not change stays.

    Guarantee
    ---------
    An answer of a person is one record of its wave: (answers before, answers now), made from that person's
    rows alone. So a person with at most m answers is in at most m tables, one record in each, and the waves
    compose adaptively: each gets 1/m of ε (pure), or of μ² (Gaussian). Where the m answers are those of one
    period, a person's answers of that period also stand as *answers before* in the first wave of the next
    one. There the record changes: two records, which costs twice a wave's ε or four times its μ². So each
    wave gets 1/(m + 2) of ε or 1/(m + 4) of μ². Synthetic persons are made of released numbers.
    """

    name: ClassVar[str] = "PanelStream"
    is_private: ClassVar[bool] = True

    def __init__(
        self,
        *,
        schema: Schema,
        budget: PrivacyBudget,
        unit: PrivacyUnit,
        max_cells: int,
        iterations: int,
        noise: Noise,
    ) -> None:
        self.schema, self.noise = schema, noise
        self.max_cells, self.iterations = max_cells, iterations
        whole = PrivacyFilter(budget, PrivacyUnit.event(), noise, gaussian=True)
        border = 0 if unit.per is None else BORDER[budget.is_pure]
        self._wave = whole.part(1 / (unit.max_contributions + border))
        self._wave.check(_LEAST_FRACTION)
        self.answer_epsilon = _epsilon_of(self._wave, budget)
        self.population: Population | None = None
        self.deviations: dict[Clique, float] = {}

    @property
    def attributes(self) -> list[Attribute]:
        """The attributes of a record: answers before, then answers now."""
        own = self.schema.attributes
        earlier = (replace(a, name=before(a.name), size=a.size + 1, apart=(*a.apart, a.size)) for a in own)
        return [*earlier, *own]

    def _pairs(self) -> list[Clique]:
        """The pairs that matter: all that hold an answer of now or, where there are too many for their scores
        to stand out, answers of now, and each with itself before.
        """
        names = list(self.schema.sizes)
        now = list(combinations(names, 2))
        across = list(product(map(before, names), names))
        if not few_enough(len(now) + len(across), 2 * len(names)):
            across = [(before(name), name) for name in names]
        return [*across, *now]

    def advance(self, counts: PanelWave, *, step: int, structure: bool) -> None:  # noqa: ARG002
        spending = copy(self._wave)
        rng = self.noise.rng
        if self.population is None:
            self.population = self._first(spending, counts, rng)
        else:
            self.population = self._next(spending, counts, self.population, rng)

    def _first(self, spending: PrivacyFilter, wave: PanelWave, rng: np.random.Generator) -> Population:
        schema = self.schema
        singles = singles_of(wave.now, schema.sizes)
        columns = MeasuredColumns(
            spending, schema.attributes, schema.rules, singles, max_cells=self.max_cells
        )
        pairs = all_k_way(schema, min(2, len(schema.sizes)), weighting="equal")
        snapshot, self.deviations, _ = fit_table(
            columns, counter(wave.now), pairs, iterations=self.iterations
        )
        rows = round(snapshot.total)
        codes, values = settled_rows(
            schema, snapshot, lambda at: snapshot.sample(len(at), rng, {}), rows, rng
        )
        return Population(np.arange(1, rows + 1), codes, values, rows + 1)

    def _next(
        self, spending: PrivacyFilter, wave: PanelWave, old: Population, rng: np.random.Generator
    ) -> Population:
        names, sizes = list(self.schema.sizes), self.schema.sizes
        noisy: dict[str, Floats] = {}
        exact = singles_of(wave.before, {before(name): size + 1 for name, size in sizes.items()})
        share = STAY_SHARE / len(names)
        sigma = spending.sigma(share)
        for name in names:
            noisy[name] = spending.measure(exact[before(name),], share)
        stays = staying(self.schema.by_name(old.codes), noisy, sigma, rng)
        new = max(round(float(np.mean([counts[-1] for counts in noisy.values()]))), 0)
        stayed = old.codes[stays]
        came = np.broadcast_to([sizes[name] for name in names], (new, len(names)))
        known = np.concatenate([stayed, came]).astype(np.int64)
        context = {before(name): known[:, i] for i, name in enumerate(names)}
        table = ConditionalTable.fit(
            spending,
            self.attributes,
            self.schema.rules,
            {**wave.before, **wave.now},
            context,
            total=float(max(len(known), 1)),
            pairs=self._pairs(),
            max_cells=self.max_cells,
            iterations=self.iterations,
        )
        self.deviations = table.deviations

        def again(at: Ints) -> Ints:
            drawn = table.draw({name: codes[at] for name, codes in context.items()}, rng)
            return np.column_stack(
                [_same_if_merged(table, n, drawn[n], known[at, i]) for i, n in enumerate(names)]
            )

        codes, values = settled_rows(self.schema, table.snapshot, again, len(known), rng)
        self._keep_values(old, stays, codes, values)
        ids = np.concatenate([old.ids[stays], old.next_id + np.arange(new)])
        return Population(ids, codes, values, old.next_id + new)

    def _keep_values(self, old: Population, stays: Bools, codes: Ints, values: dict[str, Floats]) -> None:
        """Values of stayers whose codes did not change stay as they were, where all rules then hold."""
        stayed = int(stays.sum())
        kept = {name: found.copy() for name, found in values.items()}
        by_name, earlier = self.schema.by_name(codes[:stayed]), self.schema.by_name(old.codes[stays])
        for name, found in kept.items():
            same = by_name[name] == earlier[name] if name in by_name else np.zeros(stayed, dtype=bool)
            found[:stayed] = np.where(same, old.values[name][stays], found[:stayed])
        good = self.schema.settled_values(codes, kept)
        for name, found in values.items():
            found[good] = kept[name][good]

    def paid(self) -> tuple[float, float]:
        return 0.0, self.answer_epsilon

    def snapshot(self) -> tuple[Population, dict[Clique, float]]:
        assert self.population is not None
        return self.population, dict(self.deviations)

    def facts(self) -> dict[str, Any]:
        return {"panel": True}

    def settings(self) -> dict[str, Any]:
        return {"max_cells": self.max_cells, "iterations": self.iterations}

    def copy(self) -> Self:
        return copy(self)

    def to_state(self) -> tuple[dict[str, Any], Arrays]:
        if self.population is None:
            return {"panel": None}, {}
        held = self.population
        deviations = [[list(clique), value] for clique, value in self.deviations.items()]
        arrays: Arrays = {"panel/ids": held.ids, "panel/codes": held.codes}
        arrays |= {f"panel value/{name}": found for name, found in held.values.items()}
        return {"panel": {"next_id": held.next_id, "deviations": deviations}}, arrays

    def restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        if values["panel"] is None:
            return
        found = {
            name.partition("/")[2]: array for name, array in arrays.items() if name.startswith("panel value/")
        }
        self.population = Population(
            arrays["panel/ids"], arrays["panel/codes"], found, int(values["panel"]["next_id"])
        )
        self.deviations = {tuple(names): float(v) for names, v in values["panel"]["deviations"]}


def _same_if_merged(table: ConditionalTable, name: str, drawn: Ints, earlier: Ints) -> Ints:
    """Drawn codes, or the earlier ones where the model merges both: it cannot tell that they changed."""
    group = np.append(table.snapshot.groups[name].group, -1)  # nobody's answer before is in no group
    return np.where(group[drawn] == group[earlier], earlier, drawn)


def staying(codes: Codes, noisy: dict[str, Floats], sigma: float, rng: np.random.Generator) -> Bools:
    """Which synthetic persons stay: their answers agree with ``noisy`` counts of the answers of those who
    stayed. Rates of staying by answer are shrunk to the common rate as far as their noise asks for it.
    """
    rows = len(next(iter(codes.values())))
    sums = [float(counts[:-1].sum()) for counts in noisy.values()]
    stayed = float(np.average(sums, weights=[1 / (counts.size - 1) for counts in noisy.values()]))
    common = min(max(stayed / max(rows, 1), 0.0), 1.0)
    goals = {}
    for name, counts in noisy.items():
        held = np.bincount(codes[name], minlength=counts.size - 1).astype(np.float64)
        some = held > 0
        rate = np.where(some, counts[:-1] / np.maximum(held, 1.0), common)
        error = sigma**2 / np.maximum(held, 1.0) ** 2
        spread = max(float(np.average((rate - common) ** 2 - error, weights=held)), 0.0) if rows else 0.0
        shrunk = common + (rate - common) * spread / (spread + error)
        goals[name] = np.maximum(shrunk, 0.0) * held
        goals[name] *= common * rows / max(goals[name].sum(), 1e-9)
    chance = np.full(rows, common)
    for _ in range(_RAKES):
        for name, goal in goals.items():
            now = np.bincount(codes[name], weights=chance, minlength=goal.size)
            factor = np.divide(goal, now, out=np.zeros_like(goal), where=now > 0)
            chance = np.minimum(chance * factor[codes[name]], 1.0)
    chance = _summing_to(chance, common * rows)
    order = rng.permutation(rows)
    reach = np.floor(np.cumsum(chance[order]) + rng.random())
    out = np.zeros(rows, dtype=bool)
    out[order] = np.diff(reach, prepend=0.0) > 0
    return out


def _summing_to(chance: Floats, total: float) -> Floats:
    """Probabilities with odds multiplied by one number, so that they sum to ``total``."""
    odds = chance / np.maximum(1 - chance, 1e-9)
    low, high = -30.0, 30.0
    for _ in range(50):
        middle = (low + high) / 2
        scaled = odds * np.exp(middle)
        low, high = (middle, high) if (scaled / (1 + scaled)).sum() < total else (low, middle)
    scaled = odds * np.exp(high)
    return np.asarray(scaled / (1 + scaled))


def _epsilon_of(spending: PrivacyFilter, budget: PrivacyBudget) -> float:
    """What one answer spends at the budget's δ."""
    if budget.is_pure:
        return spending.whole
    mu = float(np.sqrt(spending.whole))

    def excess(epsilon: float) -> float:
        return gaussian_delta(mu, epsilon) - budget.delta

    least = 1e-12
    return least if excess(least) <= 0 else float(brentq(excess, least, budget.epsilon))

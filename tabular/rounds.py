"""What is measured in rounds: choose a marginal by what the model gets wrong, measure it, fit, again."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from synthgeo.privacy.filter import PrivacyFilter
from synthgeo.progress import track
from synthgeo.schema import Rule
from tabular.measuring import CLARITY, Count, Counts, Measured, MeasuredColumns
from tabular.model.fitting import Measurement, Model, fit
from tabular.model.junction_tree import Clique, Layout, room_for
from tabular.workload import Workload, l1_scores, score_sensitivity

# Shares of the budget: columns alone, and of each round's part, its selection.
SINGLE_SHARE, CHOICE_SHARE = 0.25, 0.15
# Marginals of several columns that are planned for, for each column.
PLANNED = 1.5
# Annealed selection takes about as many rounds at most.
MOST_ROUNDS = 25


def measure_in_rounds(
    columns: MeasuredColumns,
    count: Count,
    workload: Workload,
    *,
    annealed: bool,
    public_total: int | None,
    most: int | None,
    max_cells: int,
    iterations: int,
    progress: bool | None,
) -> Measured:
    """Columns, then one marginal after the other (MWEM with a graphical model). ``annealed`` makes later
    measurements more accurate when a round taught nothing that its noise does not explain, as AIM does
    (McKenna et al., 2022).

    Guarantee
    ---------
    Drawn from a ``pure`` or ``zcdp`` filter: a score weight * (|counts - model|_1 - penalty) moves by at most
    its weight with a record, since model and penalty come from noisy numbers. The order of rounds, the
    annealing and the end depend on released numbers only; the filter adds up what they cost.
    """
    spending, names = columns.spending, list(columns.sizes)
    several = [clique for clique in workload if len(clique) > 1]
    columns.measure(dict.fromkeys(names, (SINGLE_SHARE if several else spending.left) / len(names)))
    total = float(public_total or columns.total())
    planned = max(1, min(most or round(PLANNED * len(names)), len(several)))
    part = spending.left * (1 - CHOICE_SHARE) / planned
    columns.merge_values(total, spending.sigma(part) if several else 1.0, CLARITY)
    found = {m.clique: m for m in columns.measurements(total)}
    if not several:
        columns.measure_rest()
        return Measured(columns.groups, total, columns.measurements(total), "columns")
    importance = dict(zip(workload.cliques, workload.weights, strict=True))
    rounds = _Rounds(spending, columns.rules, columns.group_sizes, count(columns.groups, several), total)
    rounds.weights = {clique: importance[clique] for clique in several}
    rounds.found, rounds.max_cells, rounds.iterations = found, max_cells, iterations
    rounds.run(planned, annealed=annealed, progress=progress)
    columns.measure_rest()
    rounds.found |= {m.clique: m for m in columns.measurements(total)}
    return Measured(columns.groups, total, list(rounds.found.values()), "annealed" if annealed else "mwem")


class _Rounds:
    """The measurements so far, and the model that fits them."""

    def __init__(
        self,
        spending: PrivacyFilter,
        rules: Sequence[Rule],
        sizes: dict[str, int],
        counts: Counts,
        total: float,
    ) -> None:
        self.spending = spending
        self.rules = rules
        self.sizes = sizes
        self.counts = counts
        self.total = total
        self.found: dict[Clique, Measurement] = {}
        self.weights: dict[Clique, float] = {}
        self.max_cells = self.iterations = 1
        self.model = Model(Layout(sizes, [], rules), total)

    def refit(self, iterations: int) -> None:
        layout = Layout(self.sizes, list(self.found), self.rules)
        measured = list(self.found.values())
        self.model = fit(layout, measured, total=self.total, start=self.model, iterations=iterations)

    def run(self, planned: int, *, annealed: bool, progress: bool | None) -> None:
        """Rounds of choosing, measuring and fitting until the budget is spent.

        Annealed rounds hold several marginals where there are many to choose: each round ends with a fit.
        """
        self.refit(50)
        size = math.ceil(planned / MOST_ROUNDS) if annealed else 1
        part = self.spending.left / planned
        for _ in track(range(planned), label="marginals", enabled=progress):
            before = self.model
            cliques = self._round(size, part)
            if not cliques:
                break
            self.refit(self.iterations // 4)
            if annealed:
                noise = self.spending.sigma(part * (1 - CHOICE_SHARE)) * math.sqrt(2 / math.pi)
                old, new = before.counts(cliques), self.model.counts(cliques)
                if all(float(np.abs(old[c] - new[c]).sum()) <= noise * old[c].size for c in cliques):
                    part *= 2

    def _round(self, size: int, part: float) -> list[Clique]:
        """Choose and measure up to ``size`` marginals at ``part`` of the budget each."""
        spending, candidates = self.spending, list(self.weights)
        expected = self.model.counts(candidates)
        picked: list[Clique] = []
        for _ in range(size):
            if spending.left < 1e-6:
                break
            part = spending.left if spending.left < 1.5 * part else part
            fraction = part * (1 - CHOICE_SHARE)
            sigma = spending.sigma(fraction)
            penalty = {c: sigma * math.sqrt(2 / math.pi) * vector.size for c, vector in expected.items()}
            scores = l1_scores(self.counts, expected, self.weights, penalty)
            layout = Layout(self.sizes, list(self.found), self.rules)
            fits = room_for(layout, candidates, max_cells=self.max_cells)
            open_to = [ok and c not in picked for ok, c in zip(fits, candidates, strict=True)]
            if not any(open_to):
                break
            at = spending.choose(
                np.where(open_to, scores, -np.inf),
                score_sensitivity(list(self.weights.values())),
                part * CHOICE_SHARE,
            )
            clique = candidates[at]
            self._add(Measurement(clique, spending.measure(self.counts[clique], fraction), sigma))
            picked.append(clique)
        return picked

    def _add(self, fresh: Measurement) -> None:
        """Keep a measurement; one of the same marginal is combined with the earlier one by precision."""
        old = self.found.get(fresh.clique)
        if old is not None:
            a, b = old.sigma**-2, fresh.sigma**-2
            fresh = Measurement(fresh.clique, (a * old.values + b * fresh.values) / (a + b), (a + b) ** -0.5)
        self.found[fresh.clique] = fresh

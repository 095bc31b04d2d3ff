"""What is measured of a table that is released once: every column, and the marginals that matter.

Two ways, both in one go. *By scores*: the errors of all candidates are released with noise, and a division
of the rest of the budget follows from them; of pairs only the interaction is measured where noise is Gaussian
(δ > 0), since their margins are measured anyway. Where the noise is so small that all pairs can be measured,
no scores are asked for, and triples get a part (again only what pairs do not tell). *By choice*, where there
are so many columns that the scores would drown: the exponential mechanism picks the candidates one by one,
and all get the same attention.

Everything adapts to numbers already released: how many rows there are, how large the columns are once rare
values are merged, how much noise the budget leaves, and how much room the model has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from synthgeo.arrays import Floats, Ints
from synthgeo.privacy.filter import PrivacyFilter
from synthgeo.privacy.gaussian import interaction_cost
from synthgeo.schema import Attribute, Dependency, Rule
from tabular.allocation import GAUSSIAN, LAPLACE, MEAN_ABSOLUTE, Candidate, Standing, allocate, divide
from tabular.model.fitting import Measurement, project_to_simplex
from tabular.model.junction_tree import Clique, Layout, cells_of, room_for
from tabular.model.value_groups import (
    Groups,
    coarse_of,
    find_groups,
    finer_groups,
    grouped_rules,
    lies_in,
    shares_in,
)
from tabular.workload import Workload

Counts = Mapping[Clique, Ints]
#: Exact marginals over groups of values. Private.
Count = Callable[[Mapping[str, Groups], Sequence[Clique]], Counts]

# Shares of the budget, by scores: columns at first, and the scores; columns may get more from the rest, where
# noise is Gaussian.
FIRST_SHARE, SCORE_SHARE = 0.2, 0.07
# Under pure ε, by scores: columns, and the scores.
SINGLE_SHARE, CHOICE_SHARE = 0.25, 0.1
# Scores are asked for where there are so many rows for each row of their noise; else columns are measured.
ROWS_PER_NOISE = 4.0
# By choice: columns, of which there are many, and choosing.
WIDE_SINGLE_SHARE, WIDE_CHOICE_SHARE = 0.35, 0.05
# Marginals of several columns that are reckoned with, for each column, before anything is known.
PLANNED = 1.5
# By choice, as many as this for each column, and under pure ε one for so many rows (at ε = 1).
PICKS, ROWS_PER_PICK = 2.5, 200.0
# Two groups' common cell should stand out of a pair's noise by about this much: where noise is Gaussian,
# under pure ε, and by choice, where pairs are those that stand out most.
CLARITY, PURE_CLARITY, WIDE_CLARITY = 0.6, 0.4, 0.3
MOST_GROUPS = 200
# A value that was merged with rare ones may still have a cell of its own in a pair that is closely related:
# if all its rows were in one cell, that should stand out of a pair's noise by this much. Asked for where such
# values hold this share of the rows; noise in so fine a table is reckoned at no less than this share of what
# its cells alone would have.
FINER_CLARITY, FINER_SHARE, LEAST_NOISE = 3.0, 0.03, 0.1
# Scores of more candidates than this for each pick drown in their joint noise: then by choice.
MOST_SCORES = 6.5
# Share of the model's room that the table of one relation between columns may take.
RULE_SHARE = 0.1
# Where the noise of all pairs together is below this share of what the sampling of rows leaves open, all are
# measured and no scores asked for. Triples then get what lets that noise grow by so much of the same.
CLEAR, TRIPLE_ROOM = 1.0, 0.12
# Triples are measured where their noise moves at most this share of the rows.
TRIPLE_NOISE = 0.02
# A sum of floats in place of whole rows is scaled by this, so that rounding cannot add up to a row.
_LAST_BITS = 1 - 2.0**-13
# Less of the budget than this is not worth another measurement.
LEAST_REST = 1e-6


@dataclass(frozen=True)
class Measured:
    """Everything that a fit needs: released numbers. ``finer`` names the attribute of the model that has a
    column's groups, where that is not the column's own.
    """

    groups: dict[str, Groups]
    total: float
    found: list[Measurement]
    way: str
    finer: dict[str, str] = field(default_factory=dict)


def few_enough(candidates: int, columns: int) -> bool:
    """Whether so many candidates are measured by scores: those of more would drown in their joint noise."""
    return candidates <= MOST_SCORES * PICKS * columns


#: Marginals that are known from earlier releases, over groups of values.
Known = Callable[[Mapping[str, Groups]], list[Measurement]]


class MeasuredColumns:
    """The columns of a table as they are measured: noisy counts, groups of values, the number of rows.

    ``known`` are counts of columns that earlier releases tell, each with its standard deviation: these are
    not measured again. ``context`` gives marginals of several such columns once values are merged.
    ``refined`` columns may have finer groups for some pairs than for others: these are a further attribute of
    the model, from which the column's own groups follow.
    """

    def __init__(
        self,
        spending: PrivacyFilter,
        attributes: Sequence[Attribute],
        rules: Sequence[Rule],
        singles: Counts,
        *,
        max_cells: int,
        known: Mapping[str, tuple[Floats, float]] | None = None,
        context: Known | None = None,
        refined: bool = False,
    ) -> None:
        self.spending = spending
        self.attributes = attributes
        self.given_rules = self.rules = tuple(rules)
        self.max_cells = max_cells
        self.exact = singles
        self.sizes = {a.name: a.size for a in attributes}
        known = known or {}
        self.names = [name for name in self.sizes if name not in known]
        self.noisy: dict[str, Floats] = {name: counts for name, (counts, _) in known.items()}
        self.precision: dict[str, float] = {name: sigma**-2 for name, (_, sigma) in known.items()}
        self.groups: dict[str, Groups] = {}
        self.context = context
        self.beside: list[Measurement] = []
        self.refined = refined
        self.finer: dict[str, Groups] = {}  # by the name of the attribute
        self.column_of: dict[str, str] = {}

    def measure(self, fractions: Mapping[str, float]) -> None:
        """Measure columns alone; a second measurement is combined with the first by precision."""
        for name, fraction in fractions.items():
            new = self.spending.sigma(fraction) ** -2
            fresh = self.spending.measure(self.exact[name,], fraction)
            old = self.precision.get(name, 0.0)
            if old:
                fresh = (old * self.noisy[name] + new * fresh) / (old + new)
            self.noisy[name], self.precision[name] = fresh, old + new

    def measure_rest(self) -> None:
        """Spend what is left on the columns again, divided as before. Done where nothing else is worth
        measuring: budget that is not spent buys nothing.
        """
        left = self.spending.left
        if left > LEAST_REST:
            power = 0.5 if self.spending.kind == "pure" else 1.0
            weights = {name: self.precision[name] ** power for name in self.names}
            whole = sum(weights.values())
            self.measure({name: min(left * w / whole, self.spending.left) for name, w in weights.items()})

    def total(self) -> float:
        """The number of rows by the noisy columns, each weighted by its precision."""
        sums = [float(noisy.sum()) for noisy in self.noisy.values()]
        weights = [self.precision[name] / self.sizes[name] for name in self.noisy]
        return max(float(np.average(sums, weights=weights)), 1.0)

    def merge_values(self, total: float, pair_sigma: float, clarity: float) -> None:
        """Merge values until each group stands out of its own noise, and two groups' common cell out of a
        pair's. Values from which another column follows are merged only where it has the same group.
        """
        fixed = {name for rule in self.given_rules if not rule.mergeable for name in rule.attributes}
        follows: dict[str, list[Dependency]] = {a.name: [] for a in self.attributes}
        most = dict.fromkeys(self.sizes, float(MOST_GROUPS))
        for rule in self.given_rules:
            if isinstance(rule, Dependency):
                follows[rule.fine].append(rule)
            elif rule.mergeable:  # the table of all groups it is about must fit the model
                room = (RULE_SHARE * self.max_cells) ** (1 / len(rule.attributes))
                for name in rule.attributes:
                    most[name] = min(most[name], max(room - 2, 1.0))
        by_name = {a.name: a for a in self.attributes}
        for name in _coarse_first(list(by_name), follows):
            own = 3 * self.precision[name] ** -0.5
            least = max(own, clarity * math.sqrt(total * pair_sigma), total / most[name])
            self.groups[name] = find_groups(
                by_name[name],
                self.noisy[name],
                least=least,
                total=total,
                keep=name in fixed,
                apart=[_with_silent(self.groups[rule.coarse].group, rule.image) for rule in follows[name]],
            )
        self.groups = {name: self.groups[name] for name in by_name}
        self.rules = tuple(grouped_rules(self.given_rules, self.groups))
        if self.context is not None:
            self.beside = self.context(self.groups)

    def find_finer(self, total: float, pair_sigma: float) -> None:
        """Finer groups of columns that no rule is about, where many rows hold values that were merged."""
        ruled = {name for rule in self.given_rules for name in rule.attributes}
        for attribute in self.attributes if self.refined else ():
            name = attribute.name
            own = 3 * self.precision[name] ** -0.5
            found = finer_groups(
                attribute,
                self.groups[name],
                self.noisy[name],
                least=max(own, FINER_CLARITY * pair_sigma, total / MOST_GROUPS),
                total=total,
                worth=FINER_SHARE,
            )
            if found is not None and name not in ruled:
                finer = f"{name}+"
                while finer in self.sizes:
                    finer += "+"
                self.finer[finer], self.column_of[finer] = found, name

    def refine(self, clique: Clique) -> Clique:
        """The same marginal over the finest groups that there are."""
        best = {name: finer for finer, name in self.column_of.items()}
        return tuple(best.get(name, name) for name in clique)

    def keep_finer(self, used: Sequence[Clique]) -> None:
        """Forget finer groups that no marginal uses."""
        held = {name for clique in used for name in clique}
        self.finer = {name: groups for name, groups in self.finer.items() if name in held}
        self.column_of = {name: self.column_of[name] for name in self.finer}

    @property
    def group_sizes(self) -> dict[str, int]:
        """How many groups each column has."""
        return {name: groups.size for name, groups in self.groups.items()}

    def groups_of(self, name: str) -> Groups:
        """The groups of a column, or of its finer attribute."""
        return self.finer[name] if name in self.finer else self.groups[name]

    def worth(self, workload: Workload) -> dict[Clique, float]:
        """Marginals of several columns, and how much each counts, without what rules tell: the pair of a
        column and the one that follows from it, and where the groups of both are the same, the pairs of that
        other one, which are those of the first.
        """
        out = {c: w for c, w in zip(workload.cliques, workload.weights, strict=True) if len(c) > 1}
        order = list(self.sizes).index
        for given, merged in zip(self.given_rules, self.rules, strict=True):
            if not isinstance(given, Dependency):
                continue
            fine, coarse = given.fine, given.coarse
            other = given.attributes.index(coarse)
            if np.any(merged.allowed.sum(axis=other) != 1):
                continue
            out.pop(tuple(sorted((fine, coarse), key=order)), None)
            if np.any(merged.allowed.sum(axis=1 - other) != 1):
                continue
            for pair in [c for c in out if len(c) == 2 and coarse in c]:
                same = tuple(sorted((fine, *(name for name in pair if name != coarse)), key=order))
                if same in out:
                    out[same] += out.pop(pair)
        return out

    def independent(self, clique: Clique, total: float) -> Floats:
        """What a marginal over groups would be if its columns were independent."""
        table = np.array(total)
        for name in clique:
            counts = project_to_simplex(self.noisy[self.column_of.get(name, name)], total) / total
            table = np.multiply.outer(table, np.bincount(self.groups_of(name).group, weights=counts))
        return table

    def measurements(self, total: float) -> list[Measurement]:
        """The measurements of single columns, and what else is known, over groups."""
        out = list(self.beside)
        for name in self.groups:
            (attribute,) = self.refine((name,))
            held = self.groups_of(attribute)
            sums = np.bincount(held.group, weights=self.noisy[name]).astype(np.float64)
            sigma = math.sqrt(self.sizes[name] / held.size / self.precision[name])
            out.append(Measurement((attribute,), sums, sigma))
            shared = Groups(held.group, shares_in(held.group, self.noisy[name], total))
            (self.finer if attribute in self.finer else self.groups)[attribute] = shared
        return out

    def finest(self) -> dict[str, Groups]:
        """The finest groups of each column."""
        return {name: self.groups_of(*self.refine((name,))) for name in self.groups}

    def layout(self, chosen: Sequence[Clique], beside: Clique = ()) -> Layout:
        """The model of the chosen marginals and of those that are known, with room for the attributes of one
        more.
        """
        used = {name for clique in (*chosen, beside) for name in clique if name in self.finer}
        inside = [(name, self.column_of[name]) for name in self.finer if name in used]
        rules = [
            lies_in(column, name, coarse_of(self.finer[name], self.groups[column])) for name, column in inside
        ]
        sizes = self.group_sizes | {name: self.finer[name].size for name, _ in inside}
        return Layout(sizes, [*(m.clique for m in self.beside), *chosen], [*self.rules, *rules])

    def has_room(self, max_cells: int) -> Callable[[list[Clique], Clique], bool]:
        """Whether the model can hold one more marginal: a public question about released structure."""

        def room(chosen: list[Clique], clique: Clique) -> bool:
            return room_for(self.layout(chosen, clique), [clique], max_cells=max_cells)[0]

        return room

    def count(self, count: Count, cliques: Sequence[Clique]) -> dict[Clique, Ints]:
        """Exact marginals over the columns' groups, and of columns with finer groups over these. Private."""
        exact = dict(count(self.finest(), cliques))
        for clique in cliques:
            refined = self.refine(clique)
            table = exact[refined] = exact[clique].reshape([self.groups_of(name).size for name in refined])
            for axis, coarse in self._coarse(clique):
                inside = coarse == np.arange(int(coarse.max()) + 1)[:, None]
                table = np.moveaxis(np.tensordot(inside.astype(np.int64), table, axes=(1, axis)), 0, axis)
            exact[clique] = table
        return {clique: table.ravel() for clique, table in exact.items()}

    def _coarse(self, clique: Clique) -> list[tuple[int, Ints]]:
        """The axes of a marginal that have finer groups, and the group that each of these lies in."""
        return [
            (axis, coarse_of(self.finer[finer], self.groups[name]))
            for axis, (name, finer) in enumerate(zip(clique, self.refine(clique), strict=True))
            if name != finer
        ]

    def hidden(self, clique: Clique, exact: Counts, total: float) -> int:
        """How many rows of a marginal are in another cell of its finer table than its coarse table, shared
        out by the noisy columns, would have them. Private.

        A record moves it by at most 1: its cell by 1, and the shares of that cell's block by s_1 + s_2 + ...
        <= 1 in sum, hence the sum of absolute differences by at most (1 - s) + (1 - s) for its own share s,
        and half of that by at most 1. A whole number that is rounded down moves by no more; the factor leaves
        room for the last bits.
        """
        refined = self.refine(clique)
        blocks = exact[clique].reshape([self.groups[name].size for name in clique])
        expected = self.independent(clique, total)
        for axis, coarse in self._coarse(clique):
            blocks, expected = np.take(blocks, coarse, axis=axis), np.take(expected, coarse, axis=axis)
        shares = self.independent(refined, total) / np.maximum(expected, 1e-300)
        apart = np.abs(exact[refined].reshape(shares.shape) - blocks * shares)
        return math.floor(0.5 * _LAST_BITS * float(apart.sum()))


def _coarse_first(names: list[str], follows: Mapping[str, Sequence[Dependency]]) -> list[str]:
    """Columns in an order in which each comes after those that follow from it."""
    out: list[str] = []

    def add(name: str, above: tuple[str, ...]) -> None:
        for rule in follows[name]:
            if rule.coarse not in (*above, name):  # two columns may follow from each other
                add(rule.coarse, (*above, name))
        if name not in out:
            out.append(name)

    for name in names:
        add(name, ())
    return out


def _with_silent(group: Ints, image: Ints) -> Ints:
    """The group of each code's image; codes that say nothing are apart."""
    return np.where(image >= 0, group[image], -1)


def measure_by_scores(
    columns: MeasuredColumns,
    count: Count,
    workload: Workload,
    *,
    public_total: int | None,
    most: int | None,
    max_cells: int,
) -> Measured:
    """Columns, scores of all candidates, then what they say is worth it.

    Guarantee
    ---------
    Everything is drawn from a ``gaussian`` or ``pure`` filter: columns (a record is in one cell of each),
    then the candidates' errors |counts - expected|_1 with whole numbers ``expected`` that come from noisy
    columns, and what finer groups would add (``MeasuredColumns.hidden``), so that a record moves each of them
    by at most 1 (``PrivacyFilter.measure_scores``); then, with
    all that is left, the chosen marginals, and if noise is Gaussian columns again. How that last part is
    divided follows from the scores, its sum does not: it is one vector of Gaussians, or the parts of one ε.
    Whether scores are left out and everything is measured follows from the noisy columns.
    """
    spending, sizes, names = columns.spending, columns.sizes, columns.names
    several = [clique for clique in workload if len(clique) > 1]
    pure = spending.kind == "pure"
    power, score_share = (LAPLACE, CHOICE_SHARE) if pure else (GAUSSIAN, SCORE_SHARE)
    share = (SINGLE_SHARE if pure else FIRST_SHARE) if several else spending.left
    weights = np.array([float(sizes[name]) for name in names])
    first = divide(weights, np.zeros(len(names)), share, power=power)
    columns.measure(dict(zip(names, first.tolist(), strict=True)))
    total = float(public_total or columns.total())
    left = max(spending.left - score_share, 0.0)
    planned = max(1.0, min(PLANNED * len(names), len(several)))
    pair_sigma = spending.sigma(left / planned) if several else 1.0
    if pure and ROWS_PER_NOISE * len(several) / (score_share * spending.whole) > total:
        # Pairs would be chosen by the noise of their scores.
        columns.measure_rest()
        several, total = [], float(public_total or columns.total())
    columns.merge_values(total, pair_sigma, PURE_CLARITY if pure else CLARITY)
    if not several:
        return Measured(columns.groups, total, columns.measurements(total), "columns")
    if not pure and max(map(len, several)) == 2:
        columns.find_finer(total, pair_sigma)
    shape, importance = columns.group_sizes, columns.worth(workload)
    candidates = [c for c in importance if min(shape[name] for name in c) > 1]
    expected = {c: np.rint(columns.independent(c, total)).astype(np.int64) for c in candidates}
    usual = float(np.mean(list(importance.values()))) if importance else 1.0
    choice = []  # each with what sampling alone adds to the error of independent columns, less than nothing
    for clique in candidates:
        weight = importance[clique] / usual
        size = float(cells_of(shape, clique))
        if not pure:
            size *= MEAN_ABSOLUTE * _cost(shape, clique)
        choice.append(Candidate(clique, -weight * _sampling_error(expected[clique]), weight * size))
    standing = []
    for name in [] if pure else names:
        weight = sum(x for c, x in importance.items() if name in c) / usual
        size = max(weight, 1.0) * MEAN_ABSOLUTE * sizes[name]
        standing.append(Standing((name,), size, columns.precision[name]))
    exact = columns.count(count, candidates)
    budget = spending.left * spending.whole
    # Scores tell which pairs are worth finer groups.
    asked = pure or most is not None or bool(columns.finer)
    bought = None if asked else _everything(columns, choice, standing, budget, total)
    if bought is None:
        # Closely related columns may be worth a finer table, in which there is also more noise.
        finer = [(c, columns.refine(c)) for c in candidates if columns.refine(c) != c]
        errors = np.array(
            [
                *(np.abs(exact[c] - expected[c].ravel()).sum() for c in candidates),
                *(columns.hidden(clique, exact, total) for clique, _ in finer),
            ],
            dtype=np.int64,
        )
        noisy = spending.measure_scores(errors, score_share) if candidates else np.zeros(0)
        scored = [
            one._replace(error=importance[one.clique] / usual * float(error) + one.error)
            for one, error in zip(choice, noisy, strict=False)
        ]
        apart = dict(zip(candidates, noisy.tolist(), strict=False))
        for (clique, refined), hidden in zip(finer, noisy[len(candidates) :].tolist(), strict=True):
            weight, mean = importance[clique] / usual, columns.independent(refined, total)
            error = apart[clique] + 2 * hidden - _sampling_error(np.rint(mean).astype(np.int64))
            # From independence the finer table is at least as far as the coarse one, at most as both.
            noise = _noise_in_fine(mean, (apart[clique] + hidden) / (2 * total), pair_sigma)
            scored.append(Candidate(refined, weight * error, weight * noise, clique))
        bought = allocate(
            scored,
            standing,
            spending.left * spending.whole,
            room=columns.has_room(max_cells),
            most=most,
            power=power,
        )
    else:
        exact |= count(columns.groups, [c for c in bought if len(c) > 2 and c not in exact])
    columns.keep_finer(list(bought))
    if not bought:
        columns.measure_rest()
    whole = sum(bought.values())
    fractions = {clique: spending.left * b / whole for clique, b in bought.items()}
    columns.measure({clique[0]: x for clique, x in fractions.items() if len(clique) == 1})
    found = []
    for clique in (c for c in fractions if len(c) > 1):
        counts = exact[clique].reshape([columns.groups_of(name).size for name in clique])
        fraction = min(fractions[clique], spending.left)
        # Of larger marginals only those that nobody asked for: their pairs are measured as well.
        if interaction := not pure and (len(clique) == 2 or clique not in importance):
            sigma = spending.sigma_of_interaction(fraction, counts.shape)
            values = spending.measure_interaction(counts, fraction)
        else:
            sigma, values = spending.sigma(fraction), spending.measure(counts, fraction)
        found.append(Measurement(clique, values.ravel(), sigma, interaction=interaction))
    total = float(public_total or columns.total())
    singles = columns.measurements(total)
    inside = {name: finer for finer, name in columns.column_of.items()}
    return Measured(columns.finest(), total, [*singles, *found], "scores", inside)


def _sampling_error(expected: Ints) -> float:
    """The sum of the absolute errors of a table whose counts are a sample's, by the counts expected."""
    mean = expected.astype(np.float64)
    return float(np.minimum(MEAN_ABSOLUTE * np.sqrt(mean), 2 * mean).sum())


def _noise_in_fine(mean: Floats, related: float, sigma: float) -> float:
    """The noise that is left in a pair's fine table once it is fitted, over that of a precision of 1;
    ``mean`` is what independent columns expect, ``related`` how far from that the pair is, 1 at most.

    Cells are not negative and the columns' own counts are known better: a cell that expects less than the
    noise is not wrong by all of it, and of closely related columns most cells are empty. With this factor the
    noise in pairs with bird strikes' operators came out within a third of what was drawn.
    """
    filled = min(max(1.0 - related, LEAST_NOISE), 1.0)
    cells = filled * float(np.sqrt(mean / (mean + sigma)).sum())
    return MEAN_ABSOLUTE * interaction_cost(mean.shape) * cells


def _everything(
    columns: MeasuredColumns,
    pairs: Sequence[Candidate],
    standing: Sequence[Standing],
    budget: float,
    total: float,
) -> dict[Clique, float] | None:
    """The part of the budget for every column and every pair, where the noise in all of them is small beside
    what the sampling of rows leaves open anyway; then also for triples, which pairs do not tell. None where
    the budget has to be kept for some pairs. Public: it reads released numbers only.
    """
    cliques = [one.clique for one in pairs]
    if not cliques or max(map(len, cliques)) > 2 or columns.layout(cliques).cells > columns.max_cells:
        return None
    sizes = np.array([*(one.size for one in standing), *(one.size for one in pairs)])
    known = np.array([*(one.precision for one in standing), *(0.0 for _ in pairs)])
    added = divide(sizes, known, budget)
    noise = float((sizes / np.sqrt(known + added))[len(standing) :].sum())
    sampling = -sum(one.error for one in pairs)
    if noise > CLEAR * sampling:
        return None
    room = TRIPLE_ROOM * sampling
    share = room**2 / (noise**2 + room**2)
    triples = _triples(columns, cliques, share * budget, total)
    parts = added * (1 - share if triples else 1.0)
    out = dict(zip([*(one.clique for one in standing), *cliques], parts.tolist(), strict=True))
    return {clique: part for clique, part in out.items() if part > 0} | triples


def _triples(
    columns: MeasuredColumns, pairs: Sequence[Clique], budget: float, total: float
) -> dict[Clique, float]:
    """The part of a budget for the interaction of each triple whose pairs are all measured and that the model
    holds as it is; for none, where so much noise would drown them.
    """
    held, shape = set(pairs), columns.group_sizes
    nodes = columns.layout(pairs).nodes
    triples = dict.fromkeys(
        triple
        for node in nodes
        for triple in combinations(node, 3)
        if held.issuperset(combinations(triple, 2))
    )
    if not triples or columns.beside or budget <= 0:
        return {}
    costs = np.array([interaction_cost([shape[name] for name in triple]) for triple in triples])
    sizes = MEAN_ABSOLUTE * costs * [float(cells_of(shape, triple)) for triple in triples]
    parts = divide(sizes, np.zeros(len(triples)), budget)
    if float((sizes / np.sqrt(parts)).mean()) > TRIPLE_NOISE * total:
        return {}
    return dict(zip(triples, parts.tolist(), strict=True))


def _cost(shape: Mapping[str, int], clique: Clique) -> float:
    """How much of a table's precision its interaction costs; larger marginals are measured as they are."""
    return interaction_cost([shape[name] for name in clique]) if len(clique) == 2 else 1.0


def measure_by_choice(
    columns: MeasuredColumns,
    count: Count,
    workload: Workload,
    *,
    public_total: int | None,
    most: int | None,
    max_cells: int,
) -> Measured:
    """Columns, then the marginals that the exponential mechanism picks.

    Guarantee
    ---------
    Drawn from a ``pure`` or ``zcdp`` filter: a score weight * (|counts - expected|_1 - penalty) moves by at
    most its weight with a record, since expected and penalty come from noisy columns; which candidates have
    room depends on the structure chosen so far; each pick costs its share, and a measured marginal its own.
    How many picks there are follows from the released number of rows; the filter adds up what they cost.
    """
    spending, sizes, names = columns.spending, columns.sizes, columns.names
    several = [clique for clique in workload if len(clique) > 1]
    power = 0.5 if spending.kind == "pure" else 2 / 3
    shares = np.array([sizes[name] ** power for name in names])
    shares *= (WIDE_SINGLE_SHARE if several else spending.left) / shares.sum()
    columns.measure(dict(zip(names, shares.tolist(), strict=True)))
    total = float(public_total or columns.total())
    picks = most or round(PICKS * len(names))
    if most is None and spending.kind == "pure":
        picks = min(picks, round(total * spending.whole / ROWS_PER_PICK))
    picks = max(1, min(picks, len(several)))
    left = max(spending.left - WIDE_CHOICE_SHARE, 0.0)
    sigma = spending.sigma(left / picks) if several else 1.0
    columns.merge_values(total, sigma, WIDE_CLARITY)
    shape, importance = columns.group_sizes, columns.worth(workload)
    candidates = [c for c in importance if min(shape[name] for name in c) > 1]
    if not candidates:
        columns.measure_rest()
        return Measured(columns.groups, total, columns.measurements(total), "columns")
    exact = count(columns.groups, candidates)
    scores = np.empty(len(candidates))
    for i, clique in enumerate(candidates):
        expected = np.rint(columns.independent(clique, total)).astype(np.int64).ravel()
        mean = expected.astype(np.float64)
        # What sampling adds to the error of independent columns, and what noise would put in its place.
        floor = np.minimum(MEAN_ABSOLUTE * np.sqrt(mean), 2 * mean).sum()
        penalty = floor + np.minimum(MEAN_ABSOLUTE * sigma, mean).sum()
        scores[i] = importance[clique] * (float(np.abs(exact[clique] - expected).sum()) - penalty)
    chosen: list[Clique] = []
    open_to = np.ones(len(candidates), dtype=bool)
    sensitivity = max(importance[clique] for clique in candidates)
    for _ in range(picks):
        if not open_to.any():
            break
        at = spending.choose(np.where(open_to, scores, -np.inf), sensitivity, WIDE_CHOICE_SHARE / picks)
        open_to[at] = False
        layout = columns.layout(chosen)
        if room_for(layout, [candidates[at]], max_cells=max_cells)[0]:
            chosen.append(candidates[at])
        else:  # paid for in vain; what else has no room is not chosen
            open_to &= room_for(layout, candidates, max_cells=max_cells)
    if not chosen:
        columns.measure_rest()
    cells = np.array([float(cells_of(shape, clique)) for clique in chosen]) ** power
    found = []
    for clique, fraction in zip(chosen, spending.left * cells / cells.sum(), strict=True):
        amount = min(float(fraction), spending.left)
        found.append(Measurement(clique, spending.measure(exact[clique], amount), spending.sigma(amount)))
    return Measured(columns.groups, total, [*columns.measurements(total), *found], "choice")

"""Rows given other rows: persons given their household, this year's answers given last year's.

A *conditional table* has two kinds of attributes. The *context* (a household's columns, last year's answers)
is known from an earlier release as synthetic rows, so that nothing is spent on it; the others are *fresh*.
What is measured are the fresh columns and the pairs that hold a fresh column. One model is fitted to that and
to what the context's rows tell about themselves, and fresh attributes are drawn from it given each row of a
context.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import numpy as np

from synthgeo.arrays import Floats, Ints
from synthgeo.privacy.filter import PrivacyFilter
from synthgeo.schema import Attribute, Binned, Rule, Schema
from tabular.measuring import FIRST_SHARE, Count, MeasuredColumns
from tabular.model.fitting import Arrays, Measurement, model_arrays, model_of
from tabular.model.junction_tree import Clique, Layout, room_for
from tabular.model.sampling import draw, sample_given
from tabular.model.value_groups import GroupedSnapshot, Groups, grouped_rules
from tabular.once import fit_table
from tabular.workload import Workload

#: The codes of some attributes, row by row.
Codes = Mapping[str, Ints]

# The context's own pairs may take this share of the model's room, and matter where they are so far from
# independent, in total variation.
CONTEXT_ROOM, CONTEXT_LEAST = 0.25, 0.02
# How often rows that break a rule are drawn again.
_ROUNDS = 20


def table_of(codes: Codes, sizes: Mapping[str, int], clique: Clique) -> Ints:
    """The exact table of one marginal, flat."""
    shape = [sizes[name] for name in clique]
    cells = np.ravel_multi_index([codes[name] for name in clique], shape)
    return np.bincount(cells, minlength=math.prod(shape))


def singles_of(codes: Codes, sizes: Mapping[str, int]) -> dict[Clique, Ints]:
    """The exact counts of each attribute."""
    return {(name,): table_of(codes, sizes, (name,)) for name in sizes}


def counter(codes: Codes) -> Count:
    """What counts marginals of these rows over groups of values."""

    def count(groups: Mapping[str, Groups], cliques: Sequence[Clique]) -> dict[Clique, Ints]:
        merged, sizes = _merged(codes, groups), {name: held.size for name, held in groups.items()}
        return {clique: table_of(merged, sizes, clique) for clique in cliques}

    return count


@dataclass(frozen=True)
class ConditionalTable:
    """A released model of fresh attributes given a context, and the noise of each of its measurements."""

    snapshot: GroupedSnapshot
    deviations: dict[Clique, float]
    context: tuple[str, ...]

    @classmethod
    def fit(
        cls,
        spending: PrivacyFilter,
        attributes: Sequence[Attribute],
        rules: Sequence[Rule],
        codes: Codes,
        context: Codes,
        *,
        total: float,
        pairs: Sequence[Clique] | None = None,
        max_cells: int,
        iterations: int,
    ) -> ConditionalTable:
        """Measure private rows ``codes``, and fit. ``context`` holds synthetic rows of the known attributes,
        which stand for ``total`` rows; ``pairs`` are the marginals that matter, by default all pairs with a
        fresh attribute.

        Guarantee
        ---------
        Everything that reads ``codes`` is drawn through ``spending``, by ``tabular.measuring``: a row is in
        one cell of each marginal. The context is made of released numbers.
        """
        sizes = {a.name: a.size for a in attributes}
        fresh = [name for name in sizes if name not in context]
        if pairs is None:
            order = {name: i for i, name in enumerate(sizes)}
            both = [*product(context, fresh), *combinations(fresh, 2)]
            pairs = [(a, b) if order[a] < order[b] else (b, a) for a, b in both]
        known = _Known(context, sizes, total, spending.sigma(FIRST_SHARE / len(fresh)), max_cells, rules)
        columns = MeasuredColumns(
            spending,
            attributes,
            rules,
            singles_of(codes, {name: sizes[name] for name in fresh}),
            max_cells=max_cells,
            known={name: (known.counts((name,)), known.sigma) for name in context},
            context=known.pairs,
        )

        workload = Workload(tuple(pairs) or ((fresh[0],),), (1.0,) * max(len(pairs), 1))
        snapshot, deviations, _ = fit_table(columns, counter(codes), workload, iterations=iterations)
        measured = {c: sigma for c, sigma in deviations.items() if not set(c) <= set(context)}
        return cls(snapshot, measured, tuple(context))

    def draw(self, context: Codes, rng: np.random.Generator) -> dict[str, Ints]:
        """Codes of the fresh attributes, one row for each row of a context."""
        groups = self.snapshot.groups
        drawn = sample_given(self.snapshot.model.tree, _merged(context, groups), rng)
        return {name: draw(groups[name].members(), found, rng) for name, found in drawn.items()}

    def to_state(self) -> tuple[dict[str, Any], Arrays]:
        """Plain values and arrays: released numbers only."""
        model, arrays = model_arrays(self.snapshot.model)
        for name, groups in self.snapshot.groups.items():
            arrays |= {f"group/{name}": groups.group, f"share/{name}": groups.share}
        values = {
            "model": model,
            "sizes": self.snapshot.model.layout.sizes,
            "deviations": [[list(clique), value] for clique, value in self.deviations.items()],
            "context": list(self.context),
        }
        return values, arrays

    @classmethod
    def from_state(cls, values: Mapping[str, Any], arrays: Arrays, rules: Sequence[Rule]) -> ConditionalTable:
        """The inverse of ``to_state``."""
        groups = {n: Groups(arrays[f"group/{n}"], arrays[f"share/{n}"]) for n in values["sizes"]}
        model = model_of(values["sizes"], grouped_rules(rules, groups), values["model"], arrays)
        deviations = {tuple(names): float(value) for names, value in values["deviations"]}
        return cls(GroupedSnapshot(model, groups), deviations, tuple(values["context"]))


@dataclass(frozen=True)
class _Known:
    """What synthetic rows of a context tell about themselves."""

    rows: Codes
    sizes: Mapping[str, int]
    total: float
    sigma: float
    max_cells: int
    rules: Sequence[Rule]

    def counts(self, clique: Clique) -> Floats:
        held = len(next(iter(self.rows.values())))
        return np.asarray(table_of(self.rows, self.sizes, clique) * (self.total / max(held, 1)))

    def pairs(self, groups: Mapping[str, Groups]) -> list[Measurement]:
        """The pairs that are farthest from independent, as many as the model has room for."""
        merged = _Known(
            _merged(self.rows, groups),
            {name: groups[name].size for name in groups},
            self.total,
            self.sigma,
            self.max_cells,
            self.rules,
        )
        found = []
        for a, b in combinations([name for name in self.sizes if name in self.rows], 2):
            table = merged.counts((a, b)).reshape(merged.sizes[a], merged.sizes[b])
            alone = np.outer(table.sum(axis=1), table.sum(axis=0)) / max(self.total, 1e-9)
            apart = float(np.abs(table - alone).sum()) / 2 / max(self.total, 1e-9)
            if apart > CONTEXT_LEAST:
                found.append((apart, (a, b), table))
        rules = grouped_rules(self.rules, groups)
        chosen: list[Measurement] = []
        for _, clique, table in sorted(found, key=lambda one: -one[0]):
            layout = Layout(merged.sizes, [m.clique for m in chosen], rules)
            if room_for(layout, [clique], max_cells=round(CONTEXT_ROOM * self.max_cells))[0]:
                chosen.append(Measurement(clique, table.ravel(), self.sigma))
        return chosen


def _merged(codes: Codes, groups: Mapping[str, Groups]) -> dict[str, Ints]:
    return {name: groups[name].group[found] for name, found in codes.items()}


def settled_rows(
    schema: Schema,
    snapshot: GroupedSnapshot,
    again: Callable[[Ints], Ints],
    rows: int,
    rng: np.random.Generator,
) -> tuple[Ints, dict[str, Floats]]:
    """Codes and values of ``rows`` rows that keep every rule of ``schema``. ``again(positions)`` draws codes
    for rows by their positions; rows that break a rule are drawn again, and take over another row's place
    where that never helps. Post-processing.
    """
    binned = [(name,) for name, column in schema.modelled.items() if isinstance(column, Binned)]
    masses = {clique[0]: counts for clique, counts in snapshot.expected(binned).items()}
    codes = np.zeros((rows, len(schema.attributes)), dtype=np.int64)
    values: dict[str, Floats] = {}
    todo = np.arange(rows)
    for _ in range(_ROUNDS):
        codes[todo] = schema.settled(again(todo))
        drawn, good = schema.draw(codes[todo], rng, masses=masses)
        for name, found in drawn.items():
            values.setdefault(name, np.zeros(rows))[todo] = found
        todo = todo[~good]
        if not todo.size:
            return codes, values
    kept = np.setdiff1d(np.arange(rows), todo)
    if kept.size:
        place = kept[rng.integers(0, kept.size, todo.size)]
        codes[todo] = codes[place]
        for found in values.values():
            found[todo] = found[place]
    return codes, values

"""Fitting potentials to noisy marginals: accelerated mirror descent, in numpy.

The objective is the sum over measurements of |marginal - target|² / (2 σ²) (of the interaction alone where
only that was measured). A step moves the potentials against the gradient with respect to the marginals, which
is mirror descent with the entropy (McKenna, Sheldon, Miklau 2019), from a point that the last steps'
momentum has carried on (Nesterov), started over whenever the objective rises. On our tables this comes as
far in 300 passes over the tree as plain mirror descent in 2,000 (``docs/adr/0007-one-optimiser.md``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from synthgeo.arrays import Floats, Ints
from tabular.model.junction_tree import Clique, MessagePlan, Table, other_axes, spread

# Combinations of several columns in one half that are worth a column of an indicator matrix each.
_MOST_COMBINATIONS = 16


class Target(NamedTuple):
    """What a marginal should be: a table, the noise's standard deviation, and whether it is the interaction
    alone.
    """

    table: Table
    sigma: float
    interaction: bool


class NodeTables:
    """Sums potentials into the table of one node, and reads marginals off it. Both are flat vectors of all
    marginals; ``where`` says where in them those of this node are.

    A node of k columns may hold k² / 2 pairs, and more triples; going through its table for each is slow. The
    columns are cut into two halves, the table becomes a matrix, and all marginals across the halves come out
    of one product with indicator matrices, a column for each combination that some marginal has in that half;
    marginals inside a half are found in that half alone, in the same way.
    """

    def __init__(self, names: Clique, sizes: Mapping[str, int], where: Mapping[Clique, slice]) -> None:
        self.names, self.sizes = names, sizes
        self.shape = tuple(sizes[name] for name in names)
        self.halves: list[NodeTables] = []
        self.plain = dict(where)
        if len(names) > 2 and len(where) > len(names):
            self._cut(where)

    def _cut(self, where: Mapping[Clique, slice]) -> None:
        cells = np.cumprod(self.shape)
        at = 1 + int(np.argmin([max(left, cells[-1] // left) for left in cells[:-1]]))
        left, right = (_Half(names, self.sizes) for names in (self.names[:at], self.names[at:]))
        self.plain = {}
        inside: tuple[dict[Clique, slice], dict[Clique, slice]] = {}, {}
        across: list[tuple[Clique, Clique, slice]] = []
        for clique, place in where.items():
            ends = left.part(clique), right.part(clique)
            if not all(ends):
                inside[0 if ends[0] else 1][clique] = place
            elif any(len(end) > 1 and self._cells(end) > _MOST_COMBINATIONS for end in ends):
                self.plain[clique] = place
            else:
                across.append((*ends, place))
        self.halves = [
            NodeTables(half.names, self.sizes, own) for half, own in zip((left, right), inside, strict=True)
        ]
        self.indicators = (
            left.indicators([a for a, _, _ in across]),
            right.indicators([b for _, b, _ in across]),
        )
        width = self.indicators[1].shape[1]
        empty: list[Ints] = [np.zeros(0, dtype=np.int64)]
        self.at = np.concatenate(empty + [np.arange(place.start, place.stop) for *_, place in across])
        self.to = np.concatenate(
            empty + [np.add.outer(width * left.columns(a), right.columns(b)).ravel() for a, b, _ in across]
        )

    def _cells(self, names: Clique) -> int:
        return math.prod(self.sizes[name] for name in names)

    def assemble(self, vector: Floats) -> Table:
        """The sum of all potentials, over the node's table."""
        total = np.zeros(self.shape)
        if self.halves:
            left, right = self.indicators
            joint = np.zeros((left.shape[1], right.shape[1]))
            joint.ravel()[self.to] = vector[self.at]
            matrix = (left @ joint) @ right.T
            matrix += self.halves[0].assemble(vector).reshape(-1, 1)
            matrix += self.halves[1].assemble(vector).reshape(1, -1)
            total = matrix.reshape(self.shape)
        for clique, place in self.plain.items():
            table = vector[place].reshape([self.sizes[name] for name in clique])
            total = total + spread(table, clique, self.names)
        return total

    def gather(self, table: Table, out: Floats) -> None:
        """Put the marginals of a table into ``out``."""
        if self.halves:
            left, right = self.indicators
            matrix = table.reshape(left.shape[0], right.shape[0])
            out[self.at] = ((left.T @ matrix) @ right).ravel()[self.to]
            for half, axis in zip(self.halves, (1, 0), strict=True):
                half.gather(matrix.sum(axis=axis).reshape(half.shape), out)
        for clique, place in self.plain.items():
            out[place] = table.sum(axis=other_axes(self.names, set(clique))).ravel()


class _Half:
    """Some of a node's columns, and the combinations of their values that marginals ask for."""

    def __init__(self, names: Clique, sizes: Mapping[str, int]) -> None:
        self.names = names
        self.shape = {name: sizes[name] for name in names}
        self.begin: dict[Clique, int] = {}

    def part(self, clique: Clique) -> Clique:
        """What a marginal has here."""
        return tuple(name for name in clique if name in self.shape)

    def indicators(self, parts: Sequence[Clique]) -> Table:
        """For each cell of the half, a 1 for the combination of each part that it has."""
        codes = dict(zip(self.names, np.indices(list(self.shape.values())), strict=True))
        blocks = [np.zeros((math.prod(self.shape.values()), 0))]
        for part in dict.fromkeys(parts):
            sizes = [self.shape[name] for name in part]
            code = np.ravel_multi_index([codes[name].ravel() for name in part], sizes)
            self.begin[part] = sum(block.shape[1] for block in blocks)
            blocks.append((code[:, None] == np.arange(math.prod(sizes))).astype(np.float64))
        return np.concatenate(blocks, axis=1)

    def columns(self, part: Clique) -> Ints:
        """The columns of a part's combinations in ``indicators``."""
        return self.begin[part] + np.arange(math.prod(self.shape[name] for name in part))


def interaction_of(table: Table, *, first: int = 0) -> Table:
    """What the margins of a table do not tell; ``first`` axes number several tables."""
    for axis in range(first, table.ndim):
        table = table - table.mean(axis=axis, keepdims=True)
    return table


class Objective:
    """The weighted squared distance of a tree's marginals from their targets, as a function of the potentials
    of the cliques that have one; everything else in ``base`` stays as it is.
    """

    def __init__(
        self, plan: MessagePlan, base: Sequence[Table], targets: Mapping[Clique, Target], total: float
    ) -> None:
        self.plan, self.base, self.targets, self.total = plan, base, targets, total
        ends = np.cumsum([0, *(target.table.size for target in targets.values())]).tolist()
        self.where = {clique: slice(*ends) for clique, ends in zip(targets, pairwise(ends), strict=True)}
        homes = {clique: plan.home(clique) for clique in targets}
        self.nodes = [
            NodeTables(names, plan.sizes, {c: place for c, place in self.where.items() if homes[c] == i})
            for i, names in enumerate(plan.nodes)
        ]
        self.wanted = np.concatenate([target.table.ravel() for target in targets.values()])
        self.precision = np.concatenate([np.full(t.table.size, t.sigma**-2.0) for t in targets.values()])
        # Interactions of one shape are worked out together: where they are, and the shape.
        alike: dict[tuple[int, ...], list[Ints]] = {}
        for clique, target in targets.items():
            if target.interaction:
                place = self.where[clique]
                alike.setdefault(target.table.shape, []).append(np.arange(place.start, place.stop))
        self.interactions = [(np.stack(places), shape) for shape, places in alike.items()]

    def tables(self, vector: Floats) -> dict[Clique, Table]:
        """A flat vector as one table for each clique; they share its memory."""
        return {c: vector[self.where[c]].reshape(t.table.shape) for c, t in self.targets.items()}

    def __call__(self, vector: Floats) -> tuple[float, Floats]:
        """The value, and its gradient with respect to the marginals."""
        logs = [log + node.assemble(vector) for log, node in zip(self.base, self.nodes, strict=True)]
        found = np.empty(self.wanted.size)
        for node, belief in zip(self.nodes, self.plan.beliefs(logs), strict=True):
            node.gather(belief, found)
        gap = self.total * found - self.wanted
        for places, shape in self.interactions:
            tables = gap[places].reshape(-1, *shape)
            gap[places] = interaction_of(tables, first=1).reshape(places.shape)
        gradient = gap * self.precision
        return 0.5 * float(gap @ gradient), gradient


def descend(
    plan: MessagePlan,
    fixed: Sequence[tuple[Clique, Table]],
    start: Mapping[Clique, Table],
    targets: Mapping[Clique, Target],
    *,
    total: float,
    first_step: float,
    iterations: int,
    tolerance: float,
) -> dict[Clique, Table]:
    """Potentials whose marginals come close to the targets.

    ``fixed`` are log factors that stay (structural zeros); ``start`` are potentials on the cliques of
    ``targets`` and others; those without a target stay as they are. ``iterations`` counts passes over the
    tree; the descent ends before them when 25 passes lower the objective by less than ``tolerance`` each.
    """
    names, plan = list(plan.sizes), plan.by_size()
    order = {name: i for i, name in enumerate(plan.sizes)}
    start = {_sorted(clique, order): _turned(table, clique, order) for clique, table in start.items()}
    targets = {_sorted(c, order): t._replace(table=_turned(t.table, c, order)) for c, t in targets.items()}
    base = [np.zeros(shape) for shape in plan.shapes]
    for clique, table in [*fixed, *start.items()]:
        at = plan.home(clique)
        base[at] = base[at] + spread(table, clique, plan.nodes[at])
    chosen = plan.between([plan.home(clique) for clique in targets])
    if len(chosen) < len(plan.nodes):
        # Tables without a target only pass on what they hold: that is worked out once, and left out of the
        # loop.
        base, plan = plan.conditionals(base, chosen), plan.part(chosen)
    objective = Objective(plan, base, targets, total)
    moved = accelerated(objective, first_step, iterations, tolerance)
    out = dict(start)
    for clique, change in objective.tables(moved).items():
        out[clique] = change if clique not in out else out[clique] + change
    order = {name: i for i, name in enumerate(names)}
    return {_sorted(clique, order): _turned(table, clique, order) for clique, table in out.items()}


def _sorted(clique: Clique, order: Mapping[str, int]) -> Clique:
    return tuple(sorted(clique, key=order.__getitem__))


def _turned(table: Table, clique: Clique, order: Mapping[str, int]) -> Table:
    """A table with its axes in another order."""
    return np.transpose(table, [clique.index(name) for name in _sorted(clique, order)])


def accelerated(objective: Objective, step: float, iterations: int, tolerance: float) -> Floats:
    """The best point found. The step grows while the objective falls, and shrinks when it rises."""
    point = last = np.zeros(objective.wanted.size)
    value, gradient = objective(point)
    best, lowest, slope = point, value, gradient
    checked, growth, momentum = value, 1.25, 0
    for count in range(1, iterations):
        moved = point - step * gradient
        ahead = moved + momentum / (momentum + 3) * (moved - last)
        new_value, new_gradient = objective(ahead)
        if new_value <= value * (1 + 1e-7):
            last, point, value, gradient = moved, ahead, new_value, new_gradient
            momentum, step = momentum + 1, growth * step
            if value < lowest:
                best, lowest, slope = point, value, gradient
        else:  # too far: back to the best, without momentum
            step *= 0.6 if momentum <= 2 else 0.9
            growth = 1.05
            point, last, value, gradient, momentum = best, best, lowest, slope, 0
        if count % 25 == 0:
            if checked - lowest <= 25 * tolerance * max(lowest, 1.0):
                break
            checked = lowest
    return best

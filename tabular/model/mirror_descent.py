"""Fitting potentials to noisy marginals: accelerated mirror descent, in numpy.

The objective is the sum over measurements of |marginal - target|² / (2 σ²) (of the interaction alone where
only that was measured). A step moves the potentials against the gradient with respect to the marginals, which
is mirror descent with the entropy (McKenna, Sheldon, Miklau 2019), from a point that the last steps'
momentum has carried on (Nesterov), started over whenever the objective rises. On our tables this comes as
far in 300 passes over the tree as plain mirror descent in 2,000 (``docs/adr/0007-one-optimiser.md``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from synthgeo.arrays import Floats
from tabular.model.message_passing import Clique, Plan, Table, other_axes, spread


class Target(NamedTuple):
    """What a marginal should be: a table, the noise's standard deviation, and whether it is the interaction
    alone.
    """

    table: Table
    sigma: float
    interaction: bool


class NodeTables:
    """Sums potentials into the table of one node, and reads marginals off it.

    A node of k columns may hold k² / 2 pairs; going through its table for each is slow. The columns are cut
    into two halves, the table becomes a matrix, and all pairs across the halves come out of one product
    with indicator matrices; pairs inside a half are found in that half alone, in the same way.
    """

    def __init__(self, names: Clique, sizes: Mapping[str, int], cliques: Sequence[Clique]) -> None:
        self.names = names
        self.shape = tuple(sizes[name] for name in names)
        self.halves: list[NodeTables] = []
        self.across: list[Clique] = []
        self.plain = list(cliques)
        if len(names) > 2 and len(cliques) > len(names):
            self._cut(sizes, cliques)

    def _cut(self, sizes: Mapping[str, int], cliques: Sequence[Clique]) -> None:
        cells = np.cumprod(self.shape)
        at = 1 + int(np.argmin([max(left, cells[-1] // left) for left in cells[:-1]]))
        halves = self.names[:at], self.names[at:]
        inside = [[c for c in cliques if set(c) <= set(half)] for half in halves]
        self.halves = [NodeTables(half, sizes, own) for half, own in zip(halves, inside, strict=True)]
        rest = [c for c in cliques if not any(c in own for own in inside)]
        self.across = [c for c in rest if len(c) == 2]
        self.plain = [c for c in rest if len(c) > 2]
        self.indicators: list[Table] = []
        self.offset: dict[str, slice] = {}
        for half in halves:
            index = np.indices([sizes[name] for name in half]).reshape(len(half), -1)
            parts, begin = [], 0
            for i, name in enumerate(half):
                if any(name in c for c in self.across):
                    parts.append((index[i][:, None] == np.arange(sizes[name])).astype(np.float64))
                    self.offset[name] = slice(begin, begin + sizes[name])
                    begin += sizes[name]
            empty = np.zeros((index.shape[1], 0))
            self.indicators.append(np.concatenate(parts, axis=1) if parts else empty)

    def assemble(self, potentials: Mapping[Clique, Table]) -> Table:
        """The sum of all potentials, over the node's table."""
        total = np.zeros(self.shape)
        if self.halves:
            left, right = self.indicators
            joint = np.zeros((left.shape[1], right.shape[1]))
            for a, b in self.across:
                joint[self.offset[a], self.offset[b]] = potentials[a, b]
            matrix = (left @ joint) @ right.T
            matrix += self.halves[0].assemble(potentials).reshape(-1, 1)
            matrix += self.halves[1].assemble(potentials).reshape(1, -1)
            total = matrix.reshape(self.shape)
        for clique in self.plain:
            total = total + spread(potentials[clique], clique, self.names)
        return total

    def gather(self, table: Table, out: dict[Clique, Table]) -> None:
        """Put the marginals of a table into ``out``."""
        if self.halves:
            left, right = self.indicators
            matrix = table.reshape(left.shape[0], right.shape[0])
            joint = (left.T @ matrix) @ right
            for a, b in self.across:
                out[a, b] = joint[self.offset[a], self.offset[b]]
            for half, axis in zip(self.halves, (1, 0), strict=True):
                half.gather(matrix.sum(axis=axis).reshape(half.shape), out)
        for clique in self.plain:
            out[clique] = table.sum(axis=other_axes(self.names, set(clique)))


def interaction_of(table: Table) -> Table:
    """What the margins of a table do not tell."""
    for axis in range(table.ndim):
        table = table - table.mean(axis=axis, keepdims=True)
    return table


class Objective:
    """The weighted squared distance of a tree's marginals from their targets, as a function of the potentials
    of the cliques that have one; everything else in ``base`` stays as it is.
    """

    def __init__(
        self, plan: Plan, base: Sequence[Table], targets: Mapping[Clique, Target], total: float
    ) -> None:
        self.plan, self.base, self.targets, self.total = plan, base, targets, total
        cliques = list(targets)
        homes = [plan.home(clique) for clique in cliques]
        self.nodes = [
            NodeTables(names, plan.sizes, [c for c, home in zip(cliques, homes, strict=True) if home == i])
            for i, names in enumerate(plan.nodes)
        ]
        ends = np.cumsum([0, *(targets[clique].table.size for clique in cliques)]).tolist()
        self.size = ends[-1]
        self.where = {clique: slice(*ends) for clique, ends in zip(cliques, pairwise(ends), strict=True)}

    def tables(self, vector: Floats) -> dict[Clique, Table]:
        """A flat vector as one table for each clique; they share its memory."""
        return {c: vector[self.where[c]].reshape(t.table.shape) for c, t in self.targets.items()}

    def __call__(self, vector: Floats) -> tuple[float, Floats]:
        """The value, and its gradient with respect to the marginals."""
        potentials = self.tables(vector)
        logs = [log + node.assemble(potentials) for log, node in zip(self.base, self.nodes, strict=True)]
        found: dict[Clique, Table] = {}
        for node, belief in zip(self.nodes, self.plan.beliefs(logs), strict=True):
            node.gather(belief, found)
        value, gradient = 0.0, np.empty(self.size)
        for clique, target in self.targets.items():
            gap = self.total * found[clique] - target.table
            if target.interaction:
                gap = interaction_of(gap)
            value += 0.5 * float(np.vdot(gap, gap)) / target.sigma**2
            gradient[self.where[clique]] = gap.ravel() / target.sigma**2
        return value, gradient


def descend(
    plan: Plan,
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
    point = last = np.zeros(objective.size)
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

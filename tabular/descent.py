"""The fit of ``tabular.model`` in plain numpy, for structures that are fitted a few hundred times at most.

XLA compiles for seconds before the first iteration on a new structure, and holds hundreds of MB. Where
structures come and go (rounds of a selection, every stream) that is most of the time, and numpy's
overhead of half a millisecond an iteration is less. Same objective, same steps, same optimum: a test
compares the two."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tabular.tree import Clique, Table, spread


class Plan:
    """Which axes to sum and which shapes to broadcast for one junction tree, worked out once.

    All cliques and nodes list their attributes in one order, so no axis ever moves.
    """

    def __init__(self, sizes: Mapping[str, int], nodes: Sequence[Clique], parent: Sequence[int]) -> None:
        self.sizes = sizes
        self.nodes = list(nodes)
        self.parent = list(parent)
        self.shapes = [tuple(sizes[name] for name in node) for node in self.nodes]
        self.sums: list[
            tuple[tuple[int, ...], tuple[int, ...]]
        ] = []  # axes of a node to sum, of its parent to sum
        self.fits: list[
            tuple[tuple[int, ...], tuple[int, ...]]
        ] = []  # separator's shape in the node, in its parent
        for node, above in zip(self.nodes, self.parent, strict=True):
            upper = self.nodes[above] if above >= 0 else ()
            shared = {name for name in node if name in upper}
            self.sums.append((_other_axes(node, shared), _other_axes(upper, shared)))
            self.fits.append((_shape(node, shared, sizes), _shape(upper, shared, sizes)))

    def home(self, clique: Clique) -> int:
        """The smallest node that holds a clique."""
        wanted = set(clique)
        found = [i for i, node in enumerate(self.nodes) if wanted <= set(node)]
        return min(found, key=lambda i: math.prod(self.shapes[i]))

    def between(self, homes: Sequence[int]) -> list[int]:
        """The smallest connected part of the tree (one part of it) that holds these nodes, parents first."""
        below = [0] * len(self.nodes)
        for at in set(homes):
            below[at] = 1
        for i in range(len(self.nodes) - 1, -1, -1):
            if self.parent[i] >= 0:
                below[self.parent[i]] += below[i]
        # A node above the lowest one that has all of them below it is not between them.
        top = max(i for i, count in enumerate(below) if count == max(below))
        return [i for i, count in enumerate(below) if count and i >= top]

    def part(self, chosen: Sequence[int]) -> Plan:
        """The plan of a connected part."""
        position = {node: i for i, node in enumerate(chosen)}
        parent = [position.get(self.parent[i], -1) for i in chosen]
        return Plan(self.sizes, [self.nodes[i] for i in chosen], parent)

    def conditionals(self, logs: Sequence[Table], chosen: Sequence[int]) -> list[Table]:
        """Log factors on a connected part that say what all factors say about it."""
        beliefs = self.beliefs(logs)
        out = []
        with np.errstate(divide="ignore", invalid="ignore"):
            for i in chosen:
                table = np.log(beliefs[i])
                if i != chosen[0]:
                    shared = beliefs[i].sum(axis=self.sums[i][0]).reshape(self.fits[i][0])
                    table = np.where(beliefs[i] > 0, table - np.log(shared), -np.inf)
                out.append(table)
        return out

    def beliefs(self, logs: Sequence[Table]) -> list[Table]:
        """Probabilities of each node, from the log factors on each."""
        tables = [np.exp(log - log.max()) for log in logs]
        upward: list[Table] = [np.ones(())] * len(tables)
        for i in range(len(tables) - 1, -1, -1):
            above = self.parent[i]
            if above >= 0:
                message = tables[i].sum(axis=self.sums[i][0])
                message = message / message.max()
                upward[i] = message
                tables[above] = tables[above] * message.reshape(self.fits[i][1])
        for i, above in enumerate(self.parent):
            if above >= 0:
                shared = tables[above].sum(axis=self.sums[i][1])
                ratio = np.divide(shared, upward[i], out=np.zeros_like(shared), where=upward[i] > 0)
                tables[i] = tables[i] * ratio.reshape(self.fits[i][0])
            tables[i] = tables[i] / tables[i].sum()
        return tables


def descend(
    plan: Plan,
    fixed: Sequence[tuple[Clique, Table]],
    start: Mapping[Clique, Table],
    targets: Mapping[Clique, tuple[NDArray[np.float64], float]],
    *,
    total: float,
    first_step: float,
    iterations: int,
    tolerance: float,
) -> dict[Clique, Table]:
    """Potentials that minimise the sum of |marginal - target|² / (2 σ²), by entropic mirror descent.

    ``fixed`` are log factors that stay (structural zeros); ``start`` are potentials on the cliques of
    ``targets`` and others; those without a target stay as they are."""
    base = [np.zeros(shape) for shape in plan.shapes]
    for clique, table in [*fixed, *start.items()]:
        at = plan.home(clique)
        base[at] = base[at] + spread(table, clique, plan.nodes[at])
    cliques = list(targets)
    homes = [plan.home(clique) for clique in cliques]
    chosen = plan.between(homes)
    if len(chosen) < len(plan.nodes):
        # Tables without a target only pass on what they hold: that is worked out once, and left out of the
        # loop.
        base, plan = plan.conditionals(base, chosen), plan.part(chosen)
        homes = [chosen.index(at) for at in homes]
    axes = [_other_axes(plan.nodes[at], set(c)) for c, at in zip(cliques, homes, strict=True)]
    wide = [_shape(plan.nodes[at], set(c), plan.sizes) for c, at in zip(cliques, homes, strict=True)]
    small = [tuple(plan.sizes[name] for name in c) for c in cliques]
    want = [targets[c][0].reshape(shape) for c, shape in zip(cliques, small, strict=True)]
    precision = [targets[c][1] ** -2.0 for c in cliques]

    logs, moved = base, [np.zeros(shape) for shape in small]
    gradient = [np.zeros(shape) for shape in small]
    value, alpha, stalled = np.inf, 0.0, 0
    for count in range(iterations):
        new_moved = [m - alpha * g for m, g in zip(moved, gradient, strict=True)]
        new_logs = list(logs)
        for at, shape, g in zip(homes, wide, gradient, strict=True):
            new_logs[at] = new_logs[at] - alpha * g.reshape(shape)
        beliefs = plan.beliefs(new_logs)
        gap = [total * beliefs[at].sum(axis=ax) - y for at, ax, y in zip(homes, axes, want, strict=True)]
        new_value = 0.5 * sum(p * float(np.vdot(g, g)) for p, g in zip(precision, gap, strict=True))
        if new_value <= value:
            stalled = stalled + 1 if count and value - new_value <= tolerance * max(new_value, 1.0) else 0
            logs, moved, value = new_logs, new_moved, new_value
            gradient = [p * g for p, g in zip(precision, gap, strict=True)]
            alpha = first_step if count == 0 else 1.25 * alpha
        else:
            alpha *= 0.5
        if stalled >= 3:
            break
    out = dict(start)
    for clique, change in zip(cliques, moved, strict=True):
        out[clique] = change if clique not in out else out[clique] + change
    return out


def _other_axes(names: Clique, kept: set[str]) -> tuple[int, ...]:
    return tuple(i for i, name in enumerate(names) if name not in kept)


def _shape(names: Clique, kept: set[str], sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(sizes[name] if name in kept else 1 for name in names)

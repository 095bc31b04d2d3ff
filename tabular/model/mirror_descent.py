"""The fit of ``tabular.model`` in plain numpy, for all but the largest models.

XLA compiles for seconds before the first iteration on a new structure, and holds hundreds of MB; numpy's
overhead of half a millisecond an iteration is less. Same objective, same steps, same optimum: a test
compares the two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tabular.model.message_passing import Clique, Plan, Table, other_axes, shape_in, spread


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
    axes = [other_axes(plan.nodes[at], set(c)) for c, at in zip(cliques, homes, strict=True)]
    wide = [shape_in(plan.nodes[at], set(c), plan.sizes) for c, at in zip(cliques, homes, strict=True)]
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

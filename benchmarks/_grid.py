"""A square grid of cells to walk on, with diagonals and random preferences."""

from __future__ import annotations

import numpy as np

from trajectories.walks.bridges import Chain


def square_chain(side: int, rng: np.random.Generator) -> Chain:
    """``side`` x ``side`` cells; a walk survives a step with probability 0.95."""
    row, column = np.divmod(np.arange(side * side), side)
    steps = []
    for down, right in ((-1, -1), (-1, 0), (-1, 1), (0, -1), (0, 1), (1, -1), (1, 0), (1, 1)):
        inside = (row + down >= 0) & (row + down < side) & (column + right >= 0) & (column + right < side)
        here = np.flatnonzero(inside)
        steps.append(np.stack([here, here + down * side + right]))
    source, to = np.concatenate(steps, axis=1)
    order = np.lexsort((to, source))
    source, to = source[order], to[order]
    weight = rng.random(len(to))
    weight *= 0.95 / np.bincount(source, weight)[source]
    return Chain(np.searchsorted(source, np.arange(side * side + 1)), to, weight)

"""Drawing some attributes of a model given the others, row by row: exact inference on the junction tree.

Given different values in each row, every table of the tree shrinks to the attributes that are still to be
drawn. Messages go up the tree once for each row, then attributes are drawn from the top down.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from synthgeo.arrays import Floats, Ints
from tabular.model.message_passing import Clique, spread
from tabular.model.sampling import Tree, onto

# Numbers held at a time.
_MOST_NUMBERS = 4_000_000


def sample_given(tree: Tree, given: Mapping[str, Ints], rng: np.random.Generator) -> dict[str, Ints]:
    """Codes of all attributes that are not given, one row for each given one.

    A row whose given values the model rules out together gets what the model says about any row.
    """
    rows = len(next(iter(given.values())))
    nodes = _nodes(tree, given)
    size = max(sum(math.prod(node.free_shape) for node in nodes), 1)
    step = max(_MOST_NUMBERS // size, 1)
    parts = [
        _draw(nodes, {name: codes[begin : begin + step] for name, codes in given.items()}, tree, rng)
        for begin in range(0, rows, step)
    ]
    free = [name for name in tree.sizes if name not in given]
    if not parts:
        return {name: np.zeros(0, dtype=np.int64) for name in free}
    return {name: np.concatenate([part[name] for part in parts]) for name in free}


class _Node:
    """A node's probabilities given its separator: one table of free attributes for each combination of given
    ones. Free attributes of the separator come first.
    """

    def __init__(self, tree: Tree, at: int, given: Mapping[str, Ints]) -> None:
        names, shared = tree.nodes[at], tree.separator(at)
        table = tree.beliefs[at]
        if shared:
            mass = spread(onto(table, names, shared), shared, names)
            table = np.divide(table, mass, out=np.zeros_like(table), where=mass > 0)
        self.parent = tree.parent[at]
        self.given: Clique = tuple(name for name in names if name in given)
        self.shared: Clique = tuple(name for name in names if name in shared and name not in given)
        self.fresh: Clique = tuple(name for name in names if name not in shared and name not in given)
        self.free = self.shared + self.fresh
        self.given_shape = tuple(tree.sizes[name] for name in self.given)
        self.free_shape = tuple(tree.sizes[name] for name in self.free)
        self.shared_cells = math.prod(tree.sizes[name] for name in self.shared)
        self.table = onto(table, names, self.given + self.free).reshape(-1, *self.free_shape)

    def sliced(self, given: Mapping[str, Ints], rows: int) -> Floats:
        """The table of each row."""
        if not self.given:
            return np.broadcast_to(self.table[0], (rows, *self.free_shape))
        at = np.ravel_multi_index([given[name] for name in self.given], self.given_shape)
        return self.table[at]


def _nodes(tree: Tree, given: Mapping[str, Ints]) -> list[_Node]:
    return [_Node(tree, i, given) for i in range(len(tree.nodes))]


def _draw(
    nodes: list[_Node], given: Mapping[str, Ints], tree: Tree, rng: np.random.Generator
) -> dict[str, Ints]:
    rows = len(next(iter(given.values())))
    local = [node.sliced(given, rows) for node in nodes]
    told = [bool(node.given) for node in nodes]  # whether something below is given: else messages are 1
    possible = np.ones(rows, dtype=bool)
    for i in range(len(nodes) - 1, -1, -1):
        node = nodes[i]
        if not told[i]:
            continue
        message = local[i].reshape(rows, node.shared_cells, -1).sum(axis=2)
        top = message.max(axis=1)
        possible &= top > 0
        if node.parent >= 0:
            above = nodes[node.parent]
            shape = [tree.sizes[name] for name in node.shared]
            message = (message / np.where(top > 0, top, 1.0)[:, None]).reshape(rows, *shape)
            wide = spread(message, ("", *node.shared), ("", *above.free))
            local[node.parent] = local[node.parent] * wide
            told[node.parent] = True
    out: dict[str, Ints] = {}
    chance = rng.random((len(nodes), rows))
    for node, table, uniform in zip(nodes, local, chance, strict=True):
        if not node.fresh:
            continue
        flat = table.reshape(rows, node.shared_cells, -1)
        if node.shared:
            shape = [tree.sizes[name] for name in node.shared]
            at = np.ravel_multi_index([out[name] for name in node.shared], shape)
            flat = flat[np.arange(rows), at]
        else:
            flat = flat[:, 0]
        steps = np.cumsum(flat, axis=1)
        drawn = (steps <= (uniform * steps[:, -1])[:, None]).sum(axis=1)
        drawn = np.minimum(drawn, flat.shape[1] - 1)
        found = np.unravel_index(drawn, [tree.sizes[name] for name in node.fresh])
        out |= {name: codes.astype(np.int64) for name, codes in zip(node.fresh, found, strict=True)}
    lost = np.flatnonzero(~possible)
    if lost.size:
        anybody = tree.sample(lost.size, rng)
        for name, codes in out.items():
            codes[lost] = anybody[name]
    return out

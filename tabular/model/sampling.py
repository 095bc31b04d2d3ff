"""A fitted graphical model as a tree of tables in numpy: any marginal of it, and samples from it.

Everything here is post-processing of released numbers, and all randomness comes from the generator that is
passed in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from synthgeo.arrays import Floats, Ints
from synthgeo.errors import ConfigError
from tabular.model.junction_tree import Clique, MessagePlan, Table, spread


class Tree:
    """A calibrated junction tree: each node holds the joint probabilities of its attributes.

    ``nodes`` come parents first; ``parent[i]`` is -1 for the first node of a connected part.
    """

    def __init__(self, sizes: Mapping[str, int], nodes: Sequence[Clique], parent: Sequence[int]) -> None:
        self.sizes = dict(sizes)
        self.nodes = [tuple(node) for node in nodes]
        self.parent = list(parent)
        self.beliefs: list[Table] = []
        self._home = {name: i for i, node in reversed(list(enumerate(self.nodes))) for name in node}
        self._children: list[list[int]] = [[] for _ in self.nodes]
        for i, above in enumerate(self.parent):
            if above >= 0:
                self._children[above].append(i)

    @property
    def cells(self) -> int:
        """How many numbers the tables hold."""
        return sum(map(self._cells, self.nodes))

    def separator(self, node: int) -> Clique:
        """What a node shares with its parent."""
        above = self.parent[node]
        return tuple(name for name in self.nodes[node] if above >= 0 and name in self.nodes[above])

    def calibrate(self, logs: Sequence[tuple[Clique, Table]]) -> Tree:
        """Multiply log factors into the tree and pass messages; the tree then holds probabilities."""
        plan = MessagePlan(self.sizes, self.nodes, self.parent)
        tables = [np.zeros(shape) for shape in plan.shapes]
        for clique, values in logs:
            at = plan.home(clique)
            tables[at] = tables[at] + spread(values, clique, self.nodes[at])
        self.beliefs = plan.beliefs(tables)
        if not all(table.any() for table in self.beliefs):
            raise ConfigError("the conditions contradict each other or the schema: no row can meet them")
        return self

    def marginal(self, clique: Clique) -> Table:
        """Probabilities of one marginal, its axes in the order of ``clique``."""
        return self.marginals([clique])[clique]

    def marginals(self, cliques: Sequence[Clique]) -> dict[Clique, Table]:
        """Probabilities of several marginals. Pairs share their work."""
        members = [set(node) for node in self.nodes]
        out: dict[Clique, Table] = {}
        pairs: dict[str, list[str]] = {}
        for clique in dict.fromkeys(cliques):
            wanted = set(clique)
            node = next((i for i, inside in enumerate(members) if wanted <= inside), None)
            if node is not None:
                out[clique] = onto(self.beliefs[node], self.nodes[node], clique)
            elif len(clique) == 2:
                pairs.setdefault(clique[0], []).append(clique[1])
            else:
                out[clique] = self._eliminate(clique)
        steps: dict[tuple[int, Clique, Clique, Clique], Table] = {}
        for name, others in pairs.items():
            for other, table in self._pairs_of(name, set(others), steps).items():
                out[name, other] = table
        return out

    def _pairs_of(
        self, name: str, others: set[str], steps: dict[tuple[int, Clique, Clique, Clique], Table]
    ) -> dict[str, Table]:
        """P(name, other) for attributes in other nodes: walk the tree, carrying P(name, separator)."""
        found: dict[str, Table] = {}
        start = self._home[name]
        waiting: list[tuple[int, int, Clique, Table]] = []

        def leave(node: int, came: int, carried: Table, entry: Clique) -> None:
            for nxt in [*self._children[node], self.parent[node]]:
                if nxt < 0 or nxt == came:
                    continue
                shared = self.separator(nxt) if self.parent[nxt] == node else self.separator(node)
                waiting.append((nxt, node, *self._move(node, carried, entry, shared, steps)))

        alone = onto(self.beliefs[start], self.nodes[start], (name,))
        leave(start, -1, np.diag(alone), (name,))
        while waiting:
            node, came, entry, carried = waiting.pop()
            for other in others.intersection(self.nodes[node]) - found.keys():
                found[other] = self._move(node, carried, entry, (other,), steps)[1]
            if len(found) < len(others):
                leave(node, came, carried, entry)
        for other in others - found.keys():  # another connected part: independent
            home = self._home[other]
            found[other] = np.outer(alone, onto(self.beliefs[home], self.nodes[home], (other,)))
        return found

    def _move(
        self,
        node: int,
        carried: Table,
        entry: Clique,
        leaving: Clique,
        steps: dict[tuple[int, Clique, Clique, Clique], Table],
    ) -> tuple[Clique, Table]:
        """From P(x, entry) to P(x, leaving) inside one node. Attributes in both stay, as a batch of
        products.
        """
        shared = tuple(name for name in entry if name in leaving)
        gone = tuple(name for name in entry if name not in leaving)
        fresh = tuple(name for name in leaving if name not in entry)
        batch, inner = self._cells(shared), self._cells(gone)
        key = (node, shared, gone, fresh)
        if key not in steps:
            joint = onto(self.beliefs[node], self.nodes[node], shared + gone + fresh)
            joint = joint.reshape(batch, inner, -1)
            mass = joint.sum(axis=2, keepdims=True)
            steps[key] = np.divide(joint, mass, out=np.zeros_like(joint), where=mass > 0)
        sizes = [self.sizes[name] for name in entry]
        order = [0, *(1 + entry.index(name) for name in shared + gone)]
        rows = carried.shape[0]
        tensor = carried.reshape(rows, *sizes).transpose(order).reshape(rows, batch, inner)
        result = np.matmul(tensor.transpose(1, 0, 2), steps[key])
        return shared + fresh, result.transpose(1, 0, 2).reshape(rows, -1)

    def _cells(self, names: Clique) -> int:
        return math.prod(self.sizes[name] for name in names)

    def _eliminate(self, clique: Clique) -> Table:
        """Any marginal: sum out the other attributes of the nodes between, smallest table first."""
        factors: list[tuple[Clique, Table]] = []
        for i in self._between(set(clique)):
            shared = self.separator(i)
            table = self.beliefs[i]
            if shared:
                mass = spread(onto(table, self.nodes[i], shared), shared, self.nodes[i])
                table = np.divide(table, mass, out=np.zeros_like(table), where=mass > 0)
            factors.append((self.nodes[i], table))
        todo = {name for names, _ in factors for name in names} - set(clique)
        while todo:
            sizes = {}
            for name in sorted(todo):
                joined = {other for names, _ in factors if name in names for other in names}
                sizes[name] = math.prod(self.sizes[other] for other in joined)
            name = min(sizes, key=lambda other: (sizes[other], other))
            used = [factor for factor in factors if name in factor[0]]
            factors = [factor for factor in factors if name not in factor[0]]
            keep = tuple(sorted({other for names, _ in used for other in names} - {name}))
            factors.append((keep, _product(used, keep)))
            todo.discard(name)
        return _product(factors, clique)

    def _between(self, wanted: set[str]) -> list[int]:
        """Nodes that a marginal needs: those of its attributes, and their ancestors."""
        needed: set[int] = set()
        for name in wanted:
            node = self._home[name]
            while node >= 0:
                needed.add(node)
                node = self.parent[node]
        return sorted(needed)

    def sample(self, rows: int, rng: np.random.Generator) -> dict[str, NDArray[np.int64]]:
        """Codes of ``rows`` rows. Draws are stratified within what is already drawn, so that the marginals of
        the sample follow the model's closely."""
        out: dict[str, NDArray[np.int64]] = {}
        for i, node in enumerate(self.nodes):
            shared = self.separator(i)
            fresh = tuple(name for name in node if name not in shared)
            if not fresh:
                continue
            groups = self._cells(shared)
            table = onto(self.beliefs[i], node, shared + fresh).reshape(groups, -1)
            at = np.zeros(rows, dtype=np.int64)
            for name in shared:
                at = at * self.sizes[name] + out[name]
            drawn = draw(table, at, rng)
            for name in reversed(fresh):
                out[name] = drawn % self.sizes[name]
                drawn = drawn // self.sizes[name]
        return out


def draw(table: Table, group: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """One column of ``table`` for each row's group, stratified within the group."""
    rows = group.size
    mass = table.sum(axis=1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        steps = np.cumsum(np.where(mass > 0, table / mass, 1.0 / table.shape[1]), axis=1)
    shuffled = rng.permutation(rows)
    order = shuffled[np.argsort(group[shuffled], kind="stable")]
    ordered = group[order]
    counts = np.bincount(ordered, minlength=table.shape[0])
    begin = np.cumsum(counts) - counts
    rank = np.arange(rows) - begin[ordered]
    uniform = (rank + rng.random(rows)) / counts[ordered]
    # One search for all groups: group g's steps live in (g, g + 1].
    steps[:, -1] = 1.0
    flat = (steps + np.arange(table.shape[0])[:, None]).ravel()
    found = np.searchsorted(flat, ordered + uniform, side="right") - ordered * table.shape[1]
    out = np.empty(rows, dtype=np.int64)
    out[order] = np.clip(found, 0, table.shape[1] - 1)
    return out


def onto(table: Table, names: Clique, wanted: Clique) -> Table:
    """Sum a table over what is not wanted; axes in the order of ``wanted``."""
    drop = tuple(i for i, name in enumerate(names) if name not in wanted)
    kept = [name for name in names if name in wanted]
    summed = table.sum(axis=drop) if drop else table
    return np.ascontiguousarray(np.transpose(summed, [kept.index(name) for name in wanted]))


def _product(factors: Sequence[tuple[Clique, Table]], keep: Clique) -> Table:
    letters = {name: i for i, name in enumerate(dict.fromkeys(n for names, _ in factors for n in names))}
    operands: list[object] = []
    for names, table in factors:
        operands += [table, [letters[name] for name in names]]
    result: Table = np.einsum(*operands, [letters[name] for name in keep], optimize="greedy")  # type: ignore[call-overload]
    return result


# Drawing some attributes of a model given the others, row by row: exact inference on the junction tree.
#
# Given different values in each row, every table of the tree shrinks to the attributes that are still to be
# drawn. Messages go up the tree once for each row, then attributes are drawn from the top down.

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

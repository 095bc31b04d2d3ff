"""Which marginals a model is made of, the junction tree that they need, and how large that may get."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from synthgeo.errors import ConfigError
from synthgeo.schema import Rule

# Measured on two cores: a fit touches each cell of the tree about this long in each iteration.
_SECONDS_PER_CELL = 5e-8
_BYTES_PER_CELL = 8 * 8
# An estimated growth up to this share of the limit is taken as it is. The trees that went over the limit
# had estimates of a fifteenth of it and more (random structures on Adult, limits 50,000 and 400,000).
_SMALL_GROWTH = 1 / 20
_MOST_TREES = 4000  # trees built to see what fits, times columns: a tree costs as they are many


class Layout:
    """Which marginals a model is made of, in one canonical order, and the junction tree they need."""

    def __init__(
        self, sizes: Mapping[str, int], cliques: Sequence[Clique], rules: Sequence[Rule] = ()
    ) -> None:
        self.sizes = dict(sizes)
        order = {name: i for i, name in enumerate(self.sizes)}
        unique = {tuple(sorted(clique, key=order.__getitem__)) for clique in cliques}
        self.cliques = tuple(sorted(unique, key=lambda c: (len(c), [order[name] for name in c])))
        self.rules = tuple(rules)
        everything = (*self.cliques, *(rule.attributes for rule in self.rules))
        self.nodes, self.parent = _junction_tree(tuple(self.sizes.items()), everything)

    @property
    def cells(self) -> int:
        """Cells of all tables of the junction tree."""
        return sum(cells_of(self.sizes, node) for node in self.nodes)

    @property
    def largest(self) -> Clique:
        """The node with the largest table."""
        return max(self.nodes, key=lambda node: cells_of(self.sizes, node))

    def parts(self) -> list[Layout]:
        """The connected parts: they are independent in the model, and each is fitted (and compiled) alone."""
        graph = nx.Graph()
        graph.add_nodes_from(self.sizes)
        for clique in [*self.cliques, *(rule.attributes for rule in self.rules)]:
            nx.add_path(graph, clique)
        parts = [
            Layout(
                {name: size for name, size in self.sizes.items() if name in names},
                [clique for clique in self.cliques if clique[0] in names],
                [rule for rule in self.rules if rule.attributes[0] in names],
            )
            for names in nx.connected_components(graph)
        ]
        return sorted(parts, key=lambda part: list(self.sizes).index(next(iter(part.sizes))))


def check_size(
    sizes: Mapping[str, int], cliques: Sequence[Clique], rules: Sequence[Rule], *, max_cells: int
) -> None:
    """Refuse a model that is too big, with its cost and the marginal to blame."""
    for clique in cliques:
        cells = cells_of(sizes, clique)
        if cells > max_cells:
            raise ConfigError(_too_big(f"the marginal {clique} alone has {cells:,} cells", cells, max_cells))
    layout = Layout(sizes, cliques, rules) if len(cliques) > 1 or rules else None
    if layout is not None and layout.cells > max_cells:
        what = f"the model needs tables of {layout.cells:,} cells, the largest over {layout.largest}"
        raise ConfigError(_too_big(what, layout.cells, max_cells))


def room_for(layout: Layout, candidates: Sequence[Clique], *, max_cells: int) -> list[bool]:
    """Which marginals could join the model without its tables growing beyond ``max_cells``.

    A marginal inside one of the tree's tables always can. For a pair the growth is estimated by carrying one
    of its attributes along the tree to the other; the tree that would be built may be larger, so where the
    estimate is not small it is built. Public: it depends on the structure alone.
    """
    now = layout.cells
    carried: dict[str, dict[str, int]] = {}
    fits, unsure = [], []
    for i, clique in enumerate(candidates):
        own = cells_of(layout.sizes, clique)
        if len(clique) == 2:
            a, b = clique
            for name in clique:
                if name not in carried:
                    carried[name] = _carrying(layout, name)
            growth = min(carried[a].get(b, own), carried[b].get(a, own))
        else:
            growth = 0 if any(set(clique) <= set(node) for node in layout.nodes) else max_cells
        too_big = own > max_cells or (len(clique) == 2 and now + growth > max_cells)
        fits.append(growth == 0 or (not too_big and growth <= _SMALL_GROWTH * max_cells))
        if not fits[-1] and not too_big:
            unsure.append((growth, i))
    # A wide table has thousands of pairs: the likeliest are tried, the others left out.
    for _, i in sorted(unsure)[: _MOST_TREES // len(layout.sizes)]:
        grown = Layout(layout.sizes, [*layout.cliques, candidates[i]], layout.rules)
        fits[i] = grown.cells <= max_cells
    return fits


def _carrying(layout: Layout, name: str) -> dict[str, int]:
    """Cells that the tree gains when ``name`` is carried from its nodes to each other attribute's nearest
    one.
    """
    neighbours: list[list[int]] = [[] for _ in layout.nodes]
    for i, above in enumerate(layout.parent):
        if above >= 0:
            neighbours[i].append(above)
            neighbours[above].append(i)
    cost = {i: 0 for i, node in enumerate(layout.nodes) if name in node}
    waiting = list(cost)
    for i in waiting:
        for other in neighbours[i]:
            if other not in cost:
                cost[other] = cost[i] + cells_of(layout.sizes, layout.nodes[other]) * layout.sizes[name]
                waiting.append(other)
    gains: dict[str, int] = {}
    for i, gain in cost.items():
        for member in layout.nodes[i]:
            gains[member] = min(gains.get(member, gain), gain)
    return gains


def _too_big(what: str, cells: int, max_cells: int) -> str:
    memory, seconds = cells * _BYTES_PER_CELL / 2**30, cells * _SECONDS_PER_CELL * 500
    return (
        f"{what}, more than max_cells={max_cells:,}: a fit would take about {memory:.2g} GiB and "
        f"{seconds:.2g} s; use fewer bins or categories, leave the marginal out of the workload, or raise "
        "max_cells"
    )


def cells_of(sizes: Mapping[str, int], clique: Sequence[str]) -> int:
    """Cells of a marginal, as an exact whole number."""
    return math.prod(sizes[name] for name in clique)


def elimination_order(sizes: Mapping[str, int], cliques: Sequence[Clique]) -> list[str]:
    """A greedy order of elimination: always the attribute whose table is the smallest. Only neighbours of
    what was eliminated are looked at again."""
    near = _neighbours(sizes, cliques)
    cost = {name: cells_of(sizes, (name, *others)) for name, others in near.items()}
    order = []
    while cost:
        name = min(cost, key=cost.__getitem__)
        order.append(name)
        del cost[name]
        for other in near[name]:
            near[other] = (near[other] | near[name]) - {name, other}
            cost[other] = cells_of(sizes, (other, *near[other]))
    return order


def _neighbours(sizes: Mapping[str, int], cliques: Sequence[Clique]) -> dict[str, set[str]]:
    near: dict[str, set[str]] = {name: set() for name in sizes}
    for clique in cliques:
        for name in clique:
            near[name] |= set(clique) - {name}
    return near


@lru_cache(maxsize=512)
def _junction_tree(
    sizes: tuple[tuple[str, int], ...], cliques: tuple[Clique, ...]
) -> tuple[list[Clique], list[int]]:
    """Nodes (parents first) and parents of a junction tree; the same in every process.

    Eliminating an attribute makes a clique of it and its remaining neighbours. Taken in reverse order, each
    clique hangs on one that holds those neighbours; where they are the whole of it, it grows instead.
    """
    order = elimination_order(dict(sizes), cliques)
    near = _neighbours(dict(sizes), cliques)
    left: dict[str, set[str]] = {}
    for name in order:
        left[name] = set(near[name])
        for other in left[name]:
            near[other] = (near[other] | left[name]) - {name, other}
    turn = {name: i for i, name in enumerate(order)}
    nodes: list[set[str]] = []
    parent: list[int] = []
    home: dict[str, int] = {}
    for name in reversed(order):
        others = left[name]
        above = home[min(others, key=turn.__getitem__)] if others else -1
        if above >= 0 and nodes[above] == others:
            nodes[above].add(name)
            home[name] = above
        else:
            home[name] = len(nodes)
            nodes.append({name, *others})
            parent.append(above)
    position = {name: i for i, (name, _) in enumerate(sizes)}
    return [tuple(sorted(node, key=position.__getitem__)) for node in nodes], parent


# Message passing on a junction tree of tables, in numpy.

Clique = tuple[str, ...]
Table = NDArray[np.float64]


class MessagePlan:
    """Which axes to sum and which shapes to broadcast for one junction tree, worked out once.

    ``nodes`` come parents first, ``parent[i]`` is -1 for the first node of a connected part, and all of them
    list their attributes in one order, so that no axis ever moves.
    """

    def __init__(self, sizes: Mapping[str, int], nodes: Sequence[Clique], parent: Sequence[int]) -> None:
        self.sizes = sizes
        self.nodes = list(nodes)
        self.parent = list(parent)
        self.shapes = [tuple(sizes[name] for name in node) for node in self.nodes]
        self.below: list[_Side] = []  # each node's table, as its separator sees it
        self.above: list[_Side] = []  # and its parent's
        for node, above in zip(self.nodes, self.parent, strict=True):
            upper = self.nodes[above] if above >= 0 else ()
            shared = {name for name in node if name in upper}
            self.below.append(_Side(node, shared, sizes))
            self.above.append(_Side(upper, shared, sizes))

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

    def part(self, chosen: Sequence[int]) -> MessagePlan:
        """The plan of a connected part."""
        position = {node: i for i, node in enumerate(chosen)}
        parent = [position.get(self.parent[i], -1) for i in chosen]
        return MessagePlan(self.sizes, [self.nodes[i] for i in chosen], parent)

    def by_size(self) -> MessagePlan:
        """The same tree with the shortest axes of every table first: sums over them are quicker."""
        sizes = dict(sorted(self.sizes.items(), key=lambda item: item[1]))
        order = {name: i for i, name in enumerate(sizes)}
        nodes = [tuple(sorted(node, key=order.__getitem__)) for node in self.nodes]
        return MessagePlan(sizes, nodes, self.parent)

    def conditionals(self, logs: Sequence[Table], chosen: Sequence[int]) -> list[Table]:
        """Log factors on a connected part that say what all factors say about it."""
        found = self.log_beliefs(logs)
        out = [found[chosen[0]]]
        for i in chosen[1:]:
            side = self.below[i]
            out.append(side.combine(found[i], side.log_total(found[i]), _log_ratio))
        return out

    def beliefs(self, logs: Sequence[Table]) -> list[Table]:
        """Probabilities of each node, from the log factors on each; nothing but zeros where these contradict
        each other."""
        tops = [log.max() for log in logs]
        if not np.isfinite(tops).all():
            return self._exact(logs)
        tables = [np.exp(log - top) for log, top in zip(logs, tops, strict=True)]
        upward: list[Table] = [np.ones(())] * len(tables)
        for i in range(len(tables) - 1, -1, -1):
            above = self.parent[i]
            if above >= 0:
                message = self.below[i].total(tables[i])
                top = message.max()
                if not top > 1e-250:
                    return self._exact(logs)
                message = message / top
                upward[i] = message
                tables[above] = self.above[i].combine(tables[above], message, np.multiply)
        for i, above in enumerate(self.parent):
            if above >= 0:
                shared = self.above[i].total(tables[above])
                with np.errstate(over="ignore", invalid="ignore"):  # then there is no mass
                    ratio = np.divide(shared, upward[i], out=np.zeros_like(shared), where=upward[i] > 0)
                    tables[i] = self.below[i].combine(tables[i], ratio, np.multiply)
            mass = tables[i].sum()
            if not 1e-250 < mass < np.inf:
                return self._exact(logs)
            tables[i] = tables[i] / mass
        return tables

    def _exact(self, logs: Sequence[Table]) -> list[Table]:
        """``beliefs`` where they do not fit the range of floating-point numbers on the way."""
        return [np.exp(table) for table in self.log_beliefs(logs)]

    def log_beliefs(self, logs: Sequence[Table]) -> list[Table]:
        """Logarithms of ``beliefs``, by sums that neither over- nor underflow."""
        tables = list(logs)
        upward: list[Table] = [np.zeros(())] * len(tables)
        for i in range(len(tables) - 1, -1, -1):
            above = self.parent[i]
            if above >= 0:
                upward[i] = self.below[i].log_total(tables[i])
                tables[above] = self.above[i].combine(tables[above], upward[i], np.add)
        for i, above in enumerate(self.parent):
            if above >= 0:
                ratio = _log_ratio(self.above[i].log_total(tables[above]), upward[i])
                tables[i] = self.below[i].combine(tables[i], ratio, np.add)
            tables[i] = _log_ratio(tables[i], _log_sum(tables[i], None))
        return tables


class _Side:
    """A table as one of its separators sees it: neighbouring axes that are both kept, or both summed over,
    are one axis, since many short axes are slow. Sums over the kept ones are flat vectors.
    """

    def __init__(self, names: Clique, kept: set[str], sizes: Mapping[str, int]) -> None:
        self.shape: list[int] = []
        keeps: list[bool] = []
        for name in names:
            if keeps and keeps[-1] == (name in kept):
                self.shape[-1] *= sizes[name]
            else:
                self.shape.append(sizes[name])
                keeps.append(name in kept)
        self.axes = tuple(i for i, keep in enumerate(keeps) if not keep)
        self.fit = [size if keep else 1 for size, keep in zip(self.shape, keeps, strict=True)]

    def total(self, table: Table) -> Table:
        """The sum for each value of the separator."""
        out = table.reshape(self.shape)
        for gone, axis in enumerate(self.axes):  # the first axes first: what is left is smaller
            out = out.sum(axis=axis - gone)
        return out.ravel()

    def log_total(self, table: Table) -> Table:
        """The logarithm of the sum of exponentials for each value of the separator."""
        return _log_sum(table.reshape(self.shape), self.axes).ravel()

    def combine(self, table: Table, vector: Table, operation: Callable[[Table, Table], Table]) -> Table:
        """The table times (say) a number for each value of the separator."""
        return operation(table.reshape(self.shape), vector.reshape(self.fit)).reshape(table.shape)


def _log_sum(table: Table, axes: tuple[int, ...] | None) -> Table:
    """The logarithm of the sum of exponentials over some axes (None: all)."""
    top = table.max(axis=axes, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        found: Table = np.log(np.exp(table - top).sum(axis=axes)) + top.squeeze(axes)
    return found


def _log_ratio(above: Table, below: Table) -> Table:
    """The difference of two logarithms; -inf wherever the first one is."""
    return np.where(np.isfinite(above), above - np.where(np.isfinite(below), below, 0.0), -np.inf)


def spread(table: Table, names: Clique, over: Clique) -> Table:
    """A table reshaped so that it broadcasts over the axes of ``over``."""
    order = [name for name in over if name in names]
    turned = np.transpose(table, [names.index(name) for name in order])
    sizes = iter(turned.shape)
    return turned.reshape([next(sizes) if name in names else 1 for name in over])


def other_axes(names: Clique, kept: set[str]) -> tuple[int, ...]:
    """The axes of a table that are not kept."""
    return tuple(i for i, name in enumerate(names) if name not in kept)

"""Message passing on a junction tree of tables, in numpy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Clique = tuple[str, ...]
Table = NDArray[np.float64]


class Plan:
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

    def part(self, chosen: Sequence[int]) -> Plan:
        """The plan of a connected part."""
        position = {node: i for i, node in enumerate(chosen)}
        parent = [position.get(self.parent[i], -1) for i in chosen]
        return Plan(self.sizes, [self.nodes[i] for i in chosen], parent)

    def by_size(self) -> Plan:
        """The same tree with the shortest axes of every table first: sums over them are quicker."""
        sizes = dict(sorted(self.sizes.items(), key=lambda item: item[1]))
        order = {name: i for i, name in enumerate(sizes)}
        nodes = [tuple(sorted(node, key=order.__getitem__)) for node in self.nodes]
        return Plan(sizes, nodes, self.parent)

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

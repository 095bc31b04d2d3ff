"""Coarser codes for the joint model, found from noisy one-way counts: post-processing.

A pair of columns with a hundred values each has more cells than the noise leaves readable. Columns enter
the joint model with values merged until each group stands out: neighbours for ordered attributes, the
rare ones for others. When rows are drawn, a group's members come back in proportion to their own noisy
counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from synthgeo.arrays import Bools, Floats, Ints
from synthgeo.schema.columns import Attribute
from tabular.model.fitting import Model, project_to_simplex
from tabular.model.message_passing import Clique
from tabular.model.sampling import draw
from tabular.model.snapshot import Snapshot


@dataclass(frozen=True)
class Groups:
    """Which group each code of an attribute belongs to, and its share of the group."""

    group: Ints
    share: Floats

    @property
    def size(self) -> int:
        """How many groups there are."""
        return int(self.group.max()) + 1

    def members(self) -> Floats:
        """Share of each code (column) in each group (row)."""
        table = np.zeros((self.size, self.group.size))
        table[self.group, np.arange(self.group.size)] = self.share
        return table


def find_groups(attribute: Attribute, noisy: Floats, *, least: float, total: float, keep: bool) -> Groups:
    """Groups of codes with at least about ``least`` rows each; with ``keep`` every code stays its own."""
    counts = project_to_simplex(noisy, max(total, 1.0))
    if keep or attribute.size <= 2:
        group = np.arange(attribute.size)
    elif attribute.ordered:
        group = np.zeros(attribute.size, dtype=np.int64)
        current, held = 0, 0.0
        for code, count in enumerate(counts):
            group[code] = current
            held += count
            if held >= least and float(counts[code + 1 :].sum()) >= least:
                current, held = current + 1, 0.0
    else:
        rare = counts < least
        if rare.sum() < 2:
            rare[:] = False  # nothing to merge it with
        group = np.where(rare, 0, np.cumsum(~rare) - 1 + bool(rare.any()))
    return Groups(group, _shares(group, counts))


def shares_in(group: Ints, noisy: Floats, total: float) -> Floats:
    """The share of each code in its group, by noisy counts of all codes."""
    return _shares(group, project_to_simplex(noisy, max(total, 1.0)))


def _shares(group: Ints, counts: Floats) -> Floats:
    sums = np.bincount(group, weights=counts)[group]
    return np.where(sums > 0, counts / np.maximum(sums, 1e-300), 1.0 / np.bincount(group)[group])


class GroupedSnapshot(Snapshot):
    """A model over groups, read and drawn over the schema's own codes."""

    def __init__(self, model: Model, groups: Mapping[str, Groups]) -> None:
        self.model = model
        self.groups = dict(groups)
        self.total = max(model.total, 0.0)

    def expected(self, cliques: Sequence[Clique]) -> dict[Clique, Floats]:
        out = {}
        for clique, coarse in self.model.tree.marginals(cliques).items():
            table = coarse
            for axis, name in enumerate(clique):
                groups = self.groups[name]
                shape = [1] * table.ndim
                shape[axis] = groups.group.size
                table = np.take(table, groups.group, axis=axis) * groups.share.reshape(shape)
            out[clique] = table.ravel() * self.total
        return out

    def sample(self, rows: int, rng: np.random.Generator, given: Mapping[str, Bools]) -> Ints:
        members = {name: groups.members() for name, groups in self.groups.items()}
        likelihood = {}
        for name, accepted in given.items():
            members[name] = members[name] * accepted
            likelihood[name] = members[name].sum(axis=1)
        tree = self.model.weighted(likelihood) if given else self.model.tree
        drawn = tree.sample(rows, rng)
        columns = []
        for name, groups in self.groups.items():
            alone = np.array_equal(groups.group, np.arange(groups.size)) and name not in given
            columns.append(drawn[name] if alone else draw(members[name], drawn[name], rng))
        return np.column_stack(columns)

"""Coarser codes for the joint model, found from noisy one-way counts: post-processing.

A pair of columns with a hundred values each has more cells than the noise leaves readable. Columns enter
the joint model with values merged until each group stands out: neighbours for ordered attributes, the
rare ones for others. When rows are drawn, a group's members come back in proportion to their own noisy
counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from synthgeo.arrays import Bools, Floats, Ints
from synthgeo.schema import Attribute, Rule
from tabular.model.fitting import Model, Snapshot, project_to_simplex
from tabular.model.junction_tree import Clique
from tabular.model.sampling import draw

# A code whose released count is 0 is drawn from its group all the same where a condition asks for it.
_LEAST_SHARE = 1e-9


@dataclass(frozen=True)
class Groups:
    """Which group each code of an attribute belongs to, and its share of the group."""

    group: Ints
    share: Floats

    def __post_init__(self) -> None:
        """``ValueError`` if this is no grouping: both may come from a stranger's file."""
        group, share = self.group, self.share
        if group.dtype.kind != "i" or group.shape != (group.size,) or share.shape != group.shape:
            raise ValueError("each value needs a group and a share")
        if np.any((group < 0) | (group >= group.size)) or not np.all((share >= 0) & np.isfinite(share)):
            raise ValueError("groups that the values do not have")

    @property
    def size(self) -> int:
        """How many groups there are."""
        return int(self.group.max()) + 1

    def members(self, least: float = 0.0) -> Floats:
        """Share of each code (column) in each group (row), at least ``least``."""
        table = np.zeros((self.size, self.group.size))
        table[self.group, np.arange(self.group.size)] = np.maximum(self.share, least)
        return table

    def evened(self) -> Groups:
        """Half of each group as it is shared out, half of it in equal parts."""
        return Groups(self.group, (self.share + 1 / np.bincount(self.group)[self.group]) / 2)


def find_groups(
    attribute: Attribute,
    noisy: Floats,
    *,
    least: float,
    total: float,
    keep: bool,
    apart: Sequence[Ints] = (),
) -> Groups:
    """Groups of codes with at least about ``least`` rows each; with ``keep`` every code stays its own. Codes
    that differ in an array of ``apart`` are never in one group, and codes that the attribute sets apart stay
    their own.
    """
    if attribute.apart and not keep:
        own = np.full(attribute.size, -1)
        own[list(attribute.apart)] = attribute.apart
        apart = [*apart, own]
    if apart and not keep:
        return _groups_in_blocks(attribute, noisy, least=least, total=total, apart=apart)
    counts = project_to_simplex(noisy, max(total, 1.0))
    if keep or attribute.size <= 2:
        group = np.arange(attribute.size)
    elif attribute.ordered:
        group = _runs(counts, least)
    else:
        group = _runs(counts, least, alone=counts >= least)
    return Groups(group, _shares(group, counts))


def _runs(counts: Floats, least: float, alone: Bools | None = None) -> Ints:
    """Neighbouring codes, in their public order, merged into runs of at least ``least`` rows. Codes that are
    ``alone`` have a group each and interrupt no run.
    """
    single = np.zeros(counts.size, dtype=np.bool_) if alone is None else alone
    group = np.zeros(counts.size, dtype=np.int64)
    rare = np.flatnonzero(~single)
    after = counts[rare].sum() - np.cumsum(counts[rare])
    run, held = 0, 0.0
    for at, code in enumerate(rare.tolist()):
        group[code] = run
        held += counts[code]
        if held >= least and float(after[at]) >= least:
            run, held = run + 1, 0.0
    group[single] = run + bool(rare.size) + np.arange(int(single.sum()))
    return group


def finer_groups(
    attribute: Attribute, groups: Groups, noisy: Floats, *, least: float, total: float, worth: float
) -> Groups | None:
    """Groups inside those of a column of words: values of at least about ``least`` rows that were
    merged with rare ones stand alone. None where these hold less than the share ``worth`` of all rows.
    """
    if attribute.ordered or attribute.numbered or attribute.size <= 2:
        return None
    found = find_groups(attribute, noisy, least=least, total=total, keep=False, apart=[groups.group])
    alone = np.bincount(found.group)[found.group] == 1
    merged = np.bincount(groups.group)[groups.group] > 1
    counts = project_to_simplex(noisy, max(total, 1.0))
    return found if float(counts[alone & merged].sum()) >= worth * total else None


def coarse_of(finer: Groups, groups: Groups) -> Ints:
    """The group that each of the finer groups lies in."""
    out = np.zeros(finer.size, dtype=np.int64)
    out[finer.group] = groups.group
    return out


def lies_in(column: str, finer: str, coarse: Ints) -> Rule:
    """The rule that a column's group follows from its finer group, which is an attribute of its own."""
    return Rule((column, finer), np.arange(int(coarse.max()) + 1)[:, None] == coarse)


def _groups_in_blocks(
    attribute: Attribute, noisy: Floats, *, least: float, total: float, apart: Sequence[Ints]
) -> Groups:
    """Groups found in each block of codes that may be merged."""
    counts = project_to_simplex(noisy, max(total, 1.0))
    block = np.unique(np.column_stack(apart), axis=0, return_inverse=True)[1].ravel()
    group = np.zeros(attribute.size, dtype=np.int64)
    found = 0
    for number in range(int(block.max()) + 1):
        inside = np.flatnonzero(block == number)
        part = replace(attribute, size=inside.size, apart=())
        held = max(float(counts[inside].sum()), 1.0)
        own = find_groups(part, counts[inside], least=least, total=held, keep=inside.size == 1).group
        if inside.size == 2 and (counts[inside] < least).any():
            own = np.zeros(2, dtype=np.int64)  # two values are kept apart as they are; here one is too rare
        group[inside] = found + own
        found += int(own.max()) + 1
    return Groups(group, _shares(group, counts))


def grouped_rules(rules: Iterable[Rule], groups: Mapping[str, Groups]) -> list[Rule]:
    """Rules over groups of codes."""
    merged = {name: held.group for name, held in groups.items()}
    return [rule.grouped(merged) for rule in rules]


def shares_in(group: Ints, noisy: Floats, total: float) -> Floats:
    """The share of each code in its group, by noisy counts of all codes."""
    return _shares(group, project_to_simplex(noisy, max(total, 1.0)))


def _shares(group: Ints, counts: Floats) -> Floats:
    sums = np.bincount(group, weights=counts)[group]
    return np.where(sums > 0, counts / np.maximum(sums, 1e-300), 1.0 / np.bincount(group)[group])


class GroupedSnapshot(Snapshot):
    """A model over groups, read and drawn over the schema's own codes.

    ``finer`` names the attribute of the model that tells most about a column, where that is not the column's
    own: the model may hold coarse groups of it for some pairs, and finer ones for others."""

    def __init__(
        self, model: Model, groups: Mapping[str, Groups], finer: Mapping[str, str] | None = None
    ) -> None:
        self.model = model
        self.groups = dict(groups)
        self.finer = dict(finer or {})
        self.total = max(model.total, 0.0)

    def _inside(self, clique: Clique) -> Clique:
        """The attributes of the model that tell most about some columns."""
        return tuple(self.finer.get(name, name) for name in clique)

    def expected(self, cliques: Sequence[Clique]) -> dict[Clique, Floats]:
        out = {}
        found = self.model.tree.marginals([self._inside(clique) for clique in cliques])
        for clique in cliques:
            table = found[self._inside(clique)]
            for axis, name in enumerate(clique):
                groups = self.groups[name]
                shape = [1] * table.ndim
                shape[axis] = groups.group.size
                table = np.take(table, groups.group, axis=axis) * groups.share.reshape(shape)
            out[clique] = table.ravel() * self.total
        return out

    def evened(self) -> GroupedSnapshot:
        evened = {name: groups.evened() for name, groups in self.groups.items()}
        return GroupedSnapshot(self.model, evened, self.finer)

    def sample(self, rows: int, rng: np.random.Generator, given: Mapping[Clique, Floats]) -> Ints:
        asked = {name for clique in given for name in clique}
        members = {
            name: groups.members(_LEAST_SHARE if name in asked else 0.0)
            for name, groups in self.groups.items()
        }
        likelihood: dict[Clique, Floats] = {}
        joint: dict[Clique, Floats] = {}
        for clique, weight in given.items():
            if len(clique) == 1:
                name = clique[0]
                members[name] = members[name] * weight
            else:
                joint[clique] = weight
        for name in {name for clique in given for name in clique if len(clique) == 1}:
            likelihood[(name,)] = members[name].sum(axis=1)
            with np.errstate(invalid="ignore", divide="ignore"):
                members[name] = np.nan_to_num(members[name] / likelihood[(name,)][:, None])
        for clique, weight in joint.items():
            likelihood[clique] = self._over_groups(clique, weight, members)
        inside = {self._inside(clique): weight for clique, weight in likelihood.items()}
        tree = self.model.weighted(inside) if given else self.model.tree
        found = tree.sample(rows, rng)
        drawn = {name: found[self.finer.get(name, name)] for name in self.groups}
        codes: dict[str, Ints] = {}
        for clique, weight in joint.items():
            codes |= self._draw_together(clique, weight, members, drawn, rng)
        for name, groups in self.groups.items():
            alone = np.array_equal(groups.group, np.arange(groups.size)) and (name,) not in given
            if name not in codes:
                codes[name] = drawn[name] if alone else draw(members[name], drawn[name], rng)
        return np.column_stack([codes[name] for name in self.groups])

    def _over_groups(self, clique: Clique, weight: Floats, members: Mapping[str, Floats]) -> Floats:
        """What share of each combination of groups a joint condition accepts."""
        table = weight
        for axis, name in enumerate(clique):
            table = np.moveaxis(np.tensordot(members[name], table, axes=(1, axis)), 0, axis)
        return table

    def _draw_together(
        self,
        clique: Clique,
        weight: Floats,
        members: Mapping[str, Floats],
        drawn: Mapping[str, Ints],
        rng: np.random.Generator,
    ) -> dict[str, Ints]:
        """Codes of several attributes in drawn groups, under a condition on their combination."""
        shape = [members[name].shape[0] for name in clique]
        combination = np.ravel_multi_index([drawn[name] for name in clique], shape)
        met, row = np.unique(combination, return_inverse=True)
        tables = np.empty((met.size, weight.size))
        for i, groups in enumerate(zip(*np.unravel_index(met, shape), strict=True)):
            table = weight
            for axis, (name, group) in enumerate(zip(clique, groups, strict=True)):
                share = members[name][group].reshape([-1 if k == axis else 1 for k in range(weight.ndim)])
                table = table * share
            tables[i] = table.ravel()
        flat = draw(tables, row, rng)
        return dict(zip(clique, map(np.asarray, np.unravel_index(flat, weight.shape)), strict=True))

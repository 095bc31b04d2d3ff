"""Counting marginals: rows go in, only histograms of cells come out, whatever the engine.

All marginals share one range of keys: cell j of marginal i is key ``offset[i] + j``, with cells numbered
in mixed radix, the last attribute fastest. Two more keys count rows inserted and rows deleted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from synthgeo.schema import Schema
from synthgeo.sources import Histogram
from synthgeo.sources.values import operations
from tabular.model.junction_tree import Clique
from tabular.workload import cell_count

Counts = dict[Clique, NDArray[np.int64]]

# From this many cells to add up on (rows times marginals) a compiled loop is worth its import.
_COMPILED_FROM = 1 << 22


class MarginalIndex:
    """Keys of the cells of some marginals, and back. Picklable: it travels to where the rows are.

    As a key function it counts a chunk at once and gives one key for each cell that is not empty, with
    its net count."""

    per_row = False

    def __init__(
        self,
        schema: Schema,
        cliques: Sequence[Clique],
        *,
        groups: Mapping[str, NDArray[np.int64]] | None = None,
        operations: str | None = None,
        deletions: bool = False,
    ) -> None:
        self.schema = schema
        self.cliques = list(dict.fromkeys(cliques))
        self.operations = operations
        self.deletions = deletions
        self.groups = dict(groups or {})  # the group of each code, where values are merged
        sizes = schema.sizes | {name: int(group.max()) + 1 for name, group in self.groups.items()}
        self.position = {name: i for i, name in enumerate(sizes)}
        self.shapes = {clique: tuple(sizes[name] for name in clique) for clique in self.cliques}
        cells = [cell_count(sizes, clique) for clique in self.cliques]
        self.offset = dict(
            zip(self.cliques, np.concatenate([[0], np.cumsum(cells)])[:-1].tolist(), strict=True)
        )
        self.cells = dict(zip(self.cliques, cells, strict=True))
        self.size = sum(cells)

    def __eq__(self, other: object) -> bool:
        """Whether both make the same of every row: copies of one index that read the same columns do."""
        if not isinstance(other, MarginalIndex):
            return NotImplemented
        same = ("schema", "cliques", "groups")
        alike = all(getattr(self, name) is getattr(other, name) for name in same)
        return alike and (self.operations, self.deletions) == (other.operations, other.deletions)

    __hash__ = None  # type: ignore[assignment]

    def __call__(self, chunk: Mapping[str, NDArray[Any]]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        codes = self.schema.encode(chunk, narrow=True)
        return self.keys(codes, self.signs(chunk, len(codes)))

    @property
    def kinds(self) -> dict[str, str]:
        """The columns that it reads, and what each is asked for."""
        return self.schema.kinds | ({} if self.operations is None else {self.operations: "number"})

    def signs(self, chunk: Mapping[str, NDArray[Any]], rows: int) -> NDArray[np.int64]:
        """+1 for an insertion, -1 for a deletion, row by row."""
        if self.operations is None:
            return np.ones(rows, dtype=np.int64)
        return operations(chunk, self.operations, deletions=self.deletions)

    def keys(
        self, codes: NDArray[np.int64], signs: NDArray[np.int64]
    ) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Keys and net counts of the cells that these rows touch."""
        keys, weights = [], []
        if self.groups:
            codes = codes.copy()
            for name, group in self.groups.items():
                codes[:, self.position[name]] = group[codes[:, self.position[name]]]
        left = self.cliques
        if len(codes) * len(left) >= _COMPILED_FROM:
            dense = [clique for clique in left if self.cells[clique] <= 4 * len(codes)]
            left = [clique for clique in left if self.cells[clique] > 4 * len(codes)]
            if dense:
                cells, net = self._counted(dense, codes, signs)
                keys.append(cells)
                weights.append(net)
        for clique in left:
            cell = self.cell_of(clique, codes)
            if self.cells[clique] <= 4 * max(cell.size, 256):
                net = np.bincount(cell, weights=signs, minlength=self.cells[clique])
                touched = np.flatnonzero(net)
                amount = net[touched]
            else:
                touched, row = np.unique(cell, return_inverse=True)
                amount = np.bincount(row, weights=signs, minlength=touched.size)
            keys.append((touched + self.offset[clique]).astype(np.uint64))
            weights.append(np.rint(amount).astype(np.int64))
        keys.append(np.array([self.size, self.size + 1], dtype=np.uint64))
        weights.append(np.array([np.count_nonzero(signs > 0), np.count_nonzero(signs < 0)], dtype=np.int64))
        return np.concatenate(keys), np.concatenate(weights)[:, None]

    def _counted(
        self, cliques: Sequence[Clique], codes: NDArray[np.int64], signs: NDArray[np.int64]
    ) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Keys and net counts of the cells of these marginals, in one compiled pass."""
        from tabular.cell_counts import count_cells

        sizes = np.ones(codes.shape[1], dtype=np.int64)
        for clique in cliques:
            sizes[[self.position[name] for name in clique]] = self.shapes[clique]
        columns = [[self.position[name] for name in clique] for clique in cliques]
        net = count_cells(codes if (signs > 0).all() else codes[signs > 0], sizes, columns)
        if (signs < 0).any():
            net -= count_cells(codes[signs < 0], sizes, columns)
        touched = np.flatnonzero(net)
        first = np.cumsum([0, *(self.cells[clique] for clique in cliques)])
        shift = np.array([self.offset[clique] for clique in cliques]) - first[:-1]
        keys = touched + np.repeat(shift, np.diff(np.searchsorted(touched, first)))
        return keys.astype(np.uint64), net[touched]

    def cell_of(self, clique: Clique, codes: NDArray[np.int64]) -> NDArray[np.int64]:
        """The cell of each row in one marginal."""
        cell = np.zeros(len(codes), dtype=np.int64)
        for name, size in zip(clique, self.shapes[clique], strict=True):
            cell = cell * size + codes[:, self.position[name]]
        return cell

    def split(self, histogram: Histogram) -> Counts:
        """The marginals of a histogram, as flat vectors of exact counts; under ``()`` the numbers of inserted
        and of deleted rows. Private."""
        keys = histogram.keys.astype(np.int64)
        out: Counts = {}
        for clique in self.cliques:
            low = self.offset[clique]
            begin, end = np.searchsorted(keys, [low, low + self.cells[clique]])
            vector = np.zeros(self.cells[clique], dtype=np.int64)
            vector[keys[begin:end] - low] = histogram.weights[begin:end, 0]
            out[clique] = vector
        gross = np.searchsorted(keys, [self.size, self.size + 1, self.size + 2])
        out[()] = np.array([histogram.weights[a:b, 0].sum() for a, b in pairwise(gross)], dtype=np.int64)
        return out


def row_keys(codes: NDArray[np.int64], sizes: Sequence[int]) -> NDArray[np.uint64]:
    """One key for each row, to tell rows of one user apart: the row itself where 64 bits hold it, else a
    hash.
    """
    if float(np.prod([float(size) for size in sizes])) < 2.0**63:
        key = np.zeros(len(codes), dtype=np.uint64)
        for column, size in zip(codes.T, sizes, strict=True):
            key = key * np.uint64(size) + column.astype(np.uint64)
        return key
    key = np.zeros(len(codes), dtype=np.uint64)
    for column in codes.T:  # splitmix64 rounds
        key = (key ^ column.astype(np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
        key = (key ^ (key >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        key = (key ^ (key >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        key ^= key >> np.uint64(31)
    return key

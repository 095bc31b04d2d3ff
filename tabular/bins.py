"""Bins for a numeric column by a one-dimensional PrivTree: fine where the data is, coarse elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from synthgeo.hierarchy.privtree import SplitRule
from synthgeo.privacy.noise import FixedPoint, Noise
from synthgeo.schema import Schema
from synthgeo.schema.columns import Numeric
from synthgeo.sources import Source

LEVELS = 8  # at most 2^8 bins
WHOLE = FixedPoint(0)  # counts are whole, so scores need no finer grid


class FineCells:
    """Key function: the finest cell of each value; missing values are left out. Picklable."""

    per_row = False

    def __init__(self, name: str, column: Numeric) -> None:
        self.name = name
        self.column = column

    def __call__(self, chunk: Mapping[str, NDArray[Any]]) -> tuple[NDArray[np.uint64], None]:
        cells, absent = self.cells(chunk)
        return cells[~absent].astype(np.uint64), None

    def cells(self, chunk: Mapping[str, NDArray[Any]]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The finest cell of each row, and which rows have no value."""
        numbers, absent = self.column.numbers(self.name, chunk)
        share = (numbers - self.column.low) / (self.column.high - self.column.low)
        return np.minimum((share * 2**LEVELS).astype(np.int64), 2**LEVELS - 1), absent


def fine_counts(source: Source, name: str, column: Numeric) -> NDArray[np.int64]:
    """Exact counts of the finest cells. Private."""
    histogram = source.histogram(FineCells(name, column), [name])
    counts = np.zeros(2**LEVELS, dtype=np.int64)
    counts[histogram.keys.astype(np.int64)] = histogram.weights[:, 0]
    return counts


def with_fine_bins(schema: Schema) -> Schema:
    """The schema with the finest bins wherever they are still to be found."""
    for name in schema.pending_bins:
        column = schema.columns[name]
        assert isinstance(column, Numeric)
        edges = np.linspace(column.low, column.high, 2**LEVELS + 1).tolist()
        schema = schema.with_column(name, column.with_edges(edges))
    return schema


def tree_edges(column: Numeric, counts: NDArray[np.int64], *, epsilon: float, noise: Noise) -> list[float]:
    """Edges of the bins.

    Guarantee
    ---------
    Pure ε for one record, and m ε for all of a user's at most m records (group privacy): PrivTree with fanout
    2 on counts, which are non-negative and monotone along a path.
    λ = 3 / ε; the step δ is λ ln 2 rounded up to a whole number and θ = 0, so scores lie on the noise's grid
    (``SplitRule``; ``docs/guarantees.md``).
    """
    rule = SplitRule(epsilon, grid=WHOLE)
    split = [np.zeros(2**level, dtype=bool) for level in range(LEVELS)]
    for level in range(LEVELS):
        nodes = counts.reshape(2**level, -1).sum(axis=1)
        reached = split[level - 1].repeat(2) if level else np.ones(1, dtype=bool)
        split[level][reached] = rule.decide(nodes[reached], level, noise)
        if not split[level].any():
            break
    inner = {0, 2**LEVELS}
    for level in range(LEVELS):
        width = 2 ** (LEVELS - level)
        inner.update((np.flatnonzero(split[level]) * width + width // 2).tolist())
    grid = np.linspace(column.low, column.high, 2**LEVELS + 1)
    return [float(grid[i]) for i in sorted(inner)]

"""Bins for a column by a one-dimensional PrivTree: fine where the data is, coarse elsewhere, and one bin for
each value that many rows share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from synthgeo.arrays import Floats, Ints
from synthgeo.hierarchy.privtree import SplitRule
from synthgeo.privacy.noise import FixedPoint, Noise
from synthgeo.schema import Binned, Schema
from synthgeo.schema.binned import MOST_BINS
from synthgeo.sources import Histogram, Source

_DEEPEST = 60
WHOLE = FixedPoint(0)  # counts are whole, so scores need no finer grid


class GridValues:
    """Key function: the value of each row in steps of the column's resolution; missing ones are left out.
    Picklable.
    """

    per_row = False

    def __init__(self, name: str, column: Binned) -> None:
        self.name = name
        self.column = column

    def __call__(self, chunk: Mapping[str, NDArray[Any]]) -> tuple[NDArray[np.uint64], None]:
        steps, absent = self.steps(chunk)
        return steps[~absent].astype(np.uint64), None

    def steps(self, chunk: Mapping[str, NDArray[Any]]) -> tuple[Ints, NDArray[np.bool_]]:
        """How many steps each row's value lies above the least, and which rows have no value."""
        numbers, absent = self.column.numbers(self.name, chunk)
        assert self.column.step is not None
        found = np.rint(numbers / self.column.step).astype(np.int64) - self.column.grid[0]
        return found, absent


def grid_counts(source: Source, name: str, column: Binned) -> Histogram:
    """Exact counts of the values that occur, by how many steps they lie above the least. Private."""
    return source.histogram(GridValues(name, column), [name])


def with_trial_bins(schema: Schema, most: int = MOST_BINS) -> Schema:
    """The schema with as many bins as a column can get wherever they are still to be found."""
    for name in schema.pending_bins:
        column = schema.columns[name]
        assert isinstance(column, Binned)
        edges = np.linspace(column.low, column.high, most + 1).tolist()
        schema = schema.with_column(name, column.with_edges(edges))
    return schema


def tree_edges(
    column: Binned, values: Ints, counts: Ints, *, epsilon: float, noise: Noise, most: int = MOST_BINS
) -> list[float]:
    """Edges of the bins of a column whose values lie ``values`` (rising) steps above the least, each
    ``counts`` times; about ``most`` bins at most.

    A node is a stretch of values; it is cut at a public place, the middle in terms of the column's scale. A
    stretch of one value is not cut: where the tree reaches it, that value is a bin of its own.

    Guarantee
    ---------
    Pure ε for one record, and m ε for all of a user's at most m records (group privacy): PrivTree with fanout
    2 on counts, which are non-negative and monotone along a path; where nodes are cut, and that the tree
    stops before it has more leaves than there may be bins, depends on public facts and on the tree so far.
    λ = 3 / ε; the step δ is λ ln 2 rounded up to a whole number and θ = 0, so scores lie on the noise's grid
    (``SplitRule``; ``docs/guarantees.md``).
    """
    rule = SplitRule(epsilon, grid=WHOLE)
    least, last = column.grid
    cumulated = np.concatenate([[0], np.cumsum(counts)])
    begin, end = np.zeros(1, dtype=np.int64), np.array([last - least + 1])
    cuts: list[Ints] = []
    leaves = 1
    for level in range(_DEEPEST):
        inside = np.diff(cumulated[np.searchsorted(values, np.column_stack([begin, end]))], axis=1)[:, 0]
        split = rule.decide(inside, level, noise) & (end - begin > 1)
        leaves += int(split.sum())
        if not split.any() or leaves > most:
            break
        middle = _middle(column, begin[split], end[split])
        cuts.append(middle)
        begin, end = np.concatenate([begin[split], middle]), np.concatenate([middle, end[split]])
    inner = np.sort(np.concatenate([np.zeros(0, dtype=np.int64), *cuts]))
    edges = column.value(inner + least)
    inside_bounds = (edges > column.low) & (edges < column.high)
    return [column.low, *edges[inside_bounds].tolist(), column.high]


def _middle(column: Binned, begin: Ints, end: Ints) -> Ints:
    """Where stretches [begin, end) of steps above the least are cut: a public question."""
    least = column.grid[0]
    ends: list[Floats] = [column.stretch(column.value(at + least)) for at in (begin, end)]
    assert column.step is not None
    halfway = np.rint(column.unstretch((ends[0] + ends[1]) / 2) / column.step).astype(np.int64) - least
    return np.clip(halfway, begin + 1, end - 1)

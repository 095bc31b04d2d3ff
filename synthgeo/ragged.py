"""Ragged arrays: rows of different lengths, kept one after the other in flat arrays.

Row i of a ragged array is ``values[offsets[i]:offsets[i + 1]]``; ``offsets`` has one entry more than there
are rows and starts at 0. One ``offsets`` may serve several flat arrays (the points of trips and their times).
The functions work on lengths and offsets alone; ``Ragged`` holds one flat array together with its offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from synthgeo.arrays import Array, Bools, Floats, Ints


def offsets_of(lengths: ArrayLike) -> Ints:
    """Offsets of rows of these lengths.

    >>> offsets_of([2, 0, 3]).tolist()
    [0, 2, 2, 5]
    """
    lengths = np.asarray(lengths, dtype=np.int64)
    offsets = np.zeros(lengths.size + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def cumulative(weights: ArrayLike) -> Floats:
    """Running totals from 0: row i of drawn weights lies between entries i and i + 1.

    >>> cumulative([0.5, 0.25]).tolist()
    [0.0, 0.5, 0.75]
    """
    weights = np.asarray(weights, dtype=np.float64)
    totals = np.zeros(weights.size + 1)
    np.cumsum(weights, out=totals[1:])
    return totals


def starts_of(lengths: ArrayLike) -> Ints:
    """Where rows of these lengths start: ``offsets_of`` without its last entry.

    >>> starts_of([2, 0, 3]).tolist()
    [0, 2, 2]
    """
    return offsets_of(lengths)[:-1]


def offsets_of_owners(owners: ArrayLike, rows: int) -> Ints:
    """Offsets of ``rows`` rows, given the row of each value. The values lie in the order of their rows.

    >>> offsets_of_owners([0, 0, 2], 3).tolist()
    [0, 2, 2, 3]
    """
    return offsets_of(np.bincount(np.asarray(owners, dtype=np.int64), minlength=rows))


def owners_of(offsets: Ints) -> Ints:
    """The row that each value belongs to.

    >>> owners_of(offsets_of([2, 0, 3])).tolist()
    [0, 0, 2, 2, 2]
    """
    return np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))


def ranks_of(lengths: ArrayLike) -> Ints:
    """The place of each value within its row, from 0.

    >>> ranks_of([2, 0, 3]).tolist()
    [0, 1, 0, 1, 2]
    """
    return positions(0, lengths)


def positions(first: ArrayLike, lengths: ArrayLike) -> Ints:
    """Flat positions of many runs: ``first[i], first[i] + 1, ...``, ``lengths[i]`` of them, run after run.

    >>> positions([7, 0, 3], [2, 0, 3]).tolist()
    [7, 8, 3, 4, 5]
    """
    lengths = np.asarray(lengths, dtype=np.int64)
    offsets = offsets_of(lengths)
    return np.arange(offsets[-1]) + np.repeat(np.asarray(first, dtype=np.int64) - offsets[:-1], lengths)


def take(offsets: Ints, rows: Array) -> tuple[Ints, Ints]:
    """Flat positions of the values of the chosen rows (indices or a mask), and the offsets they have then.

    >>> positions, offsets = take(offsets_of([2, 0, 3]), np.array([2, 0]))
    >>> positions.tolist(), offsets.tolist()
    ([2, 3, 4, 0, 1], [0, 3, 5])
    """
    lengths = np.diff(offsets)[rows]
    return positions(offsets[:-1][rows], lengths), offsets_of(lengths)


def where(offsets: Ints, kept: Bools) -> Ints:
    """Offsets of what is left when only the ``kept`` values stay. Rows may become empty.

    >>> where(offsets_of([2, 0, 3]), np.array([True, False, False, True, True])).tolist()
    [0, 1, 1, 3]
    """
    filled = np.diff(offsets) > 0
    left = np.zeros(len(filled), dtype=np.int64)
    if filled.any():
        left[filled] = np.add.reduceat(kept, offsets[:-1][filled], dtype=np.int64)
    return offsets_of(left)


def concatenate(parts: Sequence[Ints]) -> Ints:
    """Offsets of the rows of several ragged arrays, one after the other.

    >>> concatenate([offsets_of([2, 0]), offsets_of([3])]).tolist()
    [0, 2, 2, 5]
    """
    return offsets_of(np.concatenate([np.diff(part) for part in parts]) if parts else [])


def sums(values: Array, offsets: Ints) -> Array:
    """The sum of each row; 0 where a row is empty.

    >>> sums(np.array([1.0, 2.0, 3.0, 4.0]), offsets_of([2, 0, 2])).tolist()
    [3.0, 0.0, 7.0]
    """
    return _reduce(np.add.reduceat, values, offsets, 0)


def minima(values: Array, offsets: Ints, empty: Any) -> Array:
    """The least value of each row; ``empty`` where a row is empty."""
    return _reduce(np.minimum.reduceat, values, offsets, empty)


def maxima(values: Array, offsets: Ints, empty: Any) -> Array:
    """The greatest value of each row; ``empty`` where a row is empty."""
    return _reduce(np.maximum.reduceat, values, offsets, empty)


def running(values: Floats, offsets: Ints) -> Floats:
    """Sums along each row, counted from its first value: 0 there, then what was added since.

    >>> running(np.array([9.0, 1.0, 2.0, 9.0, 5.0]), offsets_of([3, 2])).tolist()
    [0.0, 1.0, 3.0, 0.0, 5.0]
    """
    total = np.cumsum(values)
    lengths = np.diff(offsets)
    begin = offsets[:-1][lengths > 0]
    return np.asarray(total - np.repeat(total[begin], lengths[lengths > 0]))


def interpolate(x: Floats, y: Array, offsets: Ints, row: Ints, wanted: Floats) -> Array:
    """y where rows have ``wanted`` x: linear between the knots (x, y) of a row, no farther than its ends.

    x rises from 0 in every row, and none is empty. Rows lie end to end with a gap of 1 between, so that one
    search serves them all.

    >>> x, y = np.array([0.0, 5.0, 0.0, 2.0, 4.0]), np.array([0.0, 1.0, 0.0, 2.0, 8.0])
    >>> interpolate(x, y, offsets_of([2, 3]), np.array([0, 1, 1]), np.array([2.5, 3.0, 9.0])).tolist()
    [0.5, 5.0, 8.0]
    """
    begin = cumulative(x[offsets[1:] - 1] + 1.0)[:-1]
    axis = np.repeat(begin, np.diff(offsets)) + x
    first, last = offsets[row], offsets[row + 1] - 1
    at = begin[row] + np.clip(wanted, 0.0, x[last])
    after = np.clip(np.searchsorted(axis, at, side="left"), np.minimum(first + 1, last), last)
    before = np.maximum(after - 1, first)
    gap = axis[after] - axis[before]
    share = np.clip(np.divide(at - axis[before], gap, out=np.zeros_like(gap), where=gap > 0), 0.0, 1.0)
    share = share.reshape(-1, *[1] * (y.ndim - 1))
    return np.asarray(y[before] + share * (y[after] - y[before]))


def _reduce(reduceat: Callable[[Array, Ints], Array], values: Array, offsets: Ints, empty: Any) -> Array:
    values = np.asarray(values)
    filled = np.diff(offsets) > 0
    out = np.full((len(filled), *values.shape[1:]), empty, dtype=values.dtype)
    if filled.any():
        out[filled] = reduceat(values, offsets[:-1][filled])
    return out


@dataclass(frozen=True, eq=False)
class Ragged:
    """One flat array and the offsets of its rows.

    >>> cells = Ragged.from_rows([[4, 5], [], [6, 7, 8]])
    >>> len(cells), cells[2].tolist(), cells.owners.tolist()
    (3, [6, 7, 8], [0, 0, 2, 2, 2])
    >>> cells.take(np.array([2, 0])).values.tolist()
    [6, 7, 8, 4, 5]
    """

    values: Array
    offsets: Ints

    @classmethod
    def from_lengths(cls, values: Array, lengths: ArrayLike) -> Ragged:
        """Rows of these lengths; together they are as long as ``values``."""
        offsets = offsets_of(lengths)
        assert offsets[-1] == len(values), f"{len(values)} values for rows of {offsets[-1]} in all"
        return cls(values, offsets)

    @classmethod
    def from_rows(cls, rows: Iterable[ArrayLike], dtype: Any = np.int64) -> Ragged:
        """One row for each array."""
        listed = [np.asarray(row, dtype=dtype) for row in rows]
        values = np.concatenate(listed) if listed else np.empty(0, dtype=dtype)
        return cls.from_lengths(values, [len(row) for row in listed])

    @classmethod
    def concatenate(cls, parts: Sequence[Ragged]) -> Ragged:
        """The rows of all parts; there is at least one part."""
        values = np.concatenate([part.values for part in parts])
        return cls(values, concatenate([part.offsets for part in parts]))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> Array:
        if not 0 <= row < len(self):
            raise IndexError(row)
        return self.values[self.offsets[row] : self.offsets[row + 1]]

    def __iter__(self) -> Iterator[Array]:
        return (self[row] for row in range(len(self)))

    def __repr__(self) -> str:
        return f"Ragged({len(self)} rows, {len(self.values)} values of {self.values.dtype})"

    @cached_property
    def lengths(self) -> Ints:
        """Length of each row."""
        return np.diff(self.offsets)

    @cached_property
    def owners(self) -> Ints:
        """The row that each value belongs to."""
        return owners_of(self.offsets)

    def take(self, rows: Array) -> Ragged:
        """The chosen rows: indices, in that order, or a mask."""
        chosen, offsets = take(self.offsets, rows)
        return Ragged(self.values[chosen], offsets)

    def where(self, kept: Bools) -> Ragged:
        """What is left of each row when only the ``kept`` values stay."""
        return Ragged(self.values[kept], where(self.offsets, kept))

    def sums(self) -> Array:
        """The sum of each row."""
        return sums(self.values, self.offsets)


__all__ = [
    "Ragged",
    "concatenate",
    "cumulative",
    "interpolate",
    "maxima",
    "minima",
    "offsets_of",
    "offsets_of_owners",
    "owners_of",
    "positions",
    "ranks_of",
    "running",
    "starts_of",
    "sums",
    "take",
    "where",
]

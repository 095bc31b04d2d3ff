"""Compiled counting of the cells of many marginals in one pass over encoded rows.

A pair of columns with few values is counted by bits: each value of a column becomes a string of bits, and a
cell is the number of ones that two strings have in common, 64 rows at a time. Every other marginal is counted
row by row. Rows are taken in blocks that stay in the cache while all marginals are counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
from numba.extending import intrinsic
from numpy.typing import NDArray

Ints = NDArray[np.int64]

_BLOCK = 8192  # rows
# Up to this many cells a pair is counted by bits: measured, both ways cost the same at about 18 x 18 values.
_CELLS_BY_BITS = 256
jit: Any = numba.njit(cache=True, nogil=True)


def _count_ones(typing: Any, word: Any) -> Any:  # noqa: ARG001
    """The number of ones in a word, as one instruction."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return numba.uint64(numba.uint64), generate


_ones: Any = intrinsic(_count_ones)


def count_cells(codes: Ints, sizes: Ints, marginals: Sequence[Sequence[int]]) -> Ints:
    """The counts of all cells of marginals, one after the other; the last column of each varies fastest.

    ``codes`` has a row for each row and a column for each attribute, whose values are below ``sizes``. A
    marginal is a list of columns.
    """
    columns = np.unique(np.concatenate([np.asarray(marginal, dtype=np.int64) for marginal in marginals]))
    place = np.zeros(codes.shape[1], dtype=np.int64)
    place[columns] = np.arange(columns.size)
    sizes = np.asarray(sizes, dtype=np.int64)[columns]
    flat = place[np.concatenate([np.asarray(marginal, dtype=np.int64) for marginal in marginals])]
    ends = np.cumsum([len(marginal) for marginal in marginals])
    cells = np.multiply.reduceat(sizes[flat], np.concatenate([[0], ends[:-1]]))
    first = np.concatenate([[0], np.cumsum(cells)])
    lengths = np.diff(ends, prepend=0)
    by_bits = (lengths == 2) & (cells <= _CELLS_BY_BITS)
    counts = np.zeros(int(first[-1]), dtype=np.int64)
    _count(np.ascontiguousarray(codes.T[columns]), sizes, flat, ends, first[:-1], by_bits, counts)
    return counts


@jit  # type: ignore[untyped-decorator]
def _count(
    codes: Ints,
    sizes: Ints,
    columns: Ints,
    ends: Ints,
    first: Ints,
    by_bits: NDArray[np.bool_],
    counts: Ints,
) -> None:
    width, rows = codes.shape
    in_bits = np.zeros(width, dtype=np.bool_)
    for m in range(len(ends)):
        if by_bits[m]:
            in_bits[columns[ends[m] - 2]] = True
            in_bits[columns[ends[m] - 1]] = True
    start = np.zeros(width, dtype=np.int64)
    strings = 0
    for c in range(width):
        start[c] = strings
        if in_bits[c]:
            strings += sizes[c]
    bits = np.zeros((strings, _BLOCK // 64), dtype=np.uint64)
    block = np.zeros((width, _BLOCK), dtype=np.int32)
    cell = np.zeros(_BLOCK, dtype=np.int64)
    for begin in range(0, rows, _BLOCK):
        here = min(_BLOCK, rows - begin)
        bits[:] = 0
        for c in range(width):
            for i in range(here):
                block[c, i] = codes[c, begin + i]
            if in_bits[c]:
                for i in range(here):
                    bits[start[c] + block[c, i], i // 64] |= np.uint64(1) << np.uint64(i % 64)
        words = (here + 63) // 64
        low = 0
        for m in range(len(ends)):
            if by_bits[m]:
                a, b = columns[low], columns[low + 1]
                _count_bits(bits, start[a], sizes[a], start[b], sizes[b], words, first[m], counts)
            elif ends[m] - low == 2:
                left, right = block[columns[low]], block[columns[low + 1]]
                size = sizes[columns[low + 1]]
                for i in range(here):
                    counts[first[m] + np.int64(left[i]) * size + right[i]] += 1
            else:
                cell[:here] = 0
                for at in range(low, ends[m]):
                    size = sizes[columns[at]]
                    codes_here = block[columns[at]]
                    for i in range(here):
                        cell[i] = cell[i] * size + codes_here[i]
                for i in range(here):
                    counts[first[m] + cell[i]] += 1
            low = ends[m]


@jit  # type: ignore[untyped-decorator]
def _count_bits(
    bits: NDArray[np.uint64], a: int, values_a: int, b: int, values_b: int, words: int, at: int, counts: Ints
) -> None:
    for i in range(values_a):
        left = bits[a + i]
        for j in range(values_b):
            right = bits[b + j]
            common = np.uint64(0)
            for word in range(words):
                common += _ones(left[word] & right[word])
            counts[at + i * values_b + j] += np.int64(common)

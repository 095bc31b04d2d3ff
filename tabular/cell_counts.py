"""Compiled counting of the cells of many marginals in one pass over encoded rows.

A pair of columns with few values is counted by bits: each value of a column becomes a string of bits, and a
cell is the number of ones that two strings have in common, 64 rows at a time. The cells of a column's last
value are what is left of the others' totals. Every other marginal is counted row by row. Rows are taken in
blocks that stay in the cache while all marginals are counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
from numba.extending import intrinsic
from numpy.typing import NDArray

Ints = NDArray[np.int64]

# Rows of a block. By bits all strings are held: 8 values of 100 columns take 800 kB.
_BLOCK_OF_BITS, _BLOCK = 1 << 13, 1 << 16
# Up to this many cells a pair is counted by bits: measured, both ways cost the same at about 17 x 17 values.
_CELLS_BY_BITS = 256
# Up to this many cells neighbouring rows of a pair are counted apart: adding 1 to the same cell twice waits.
_CELLS_APART = 16384
jit: Any = numba.njit(cache=True, nogil=True)


def _count_ones(typing: Any, word: Any) -> Any:  # noqa: ARG001
    """The number of ones in a word, as one instruction."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return numba.uint64(numba.uint64), generate


_ones: Any = intrinsic(_count_ones)


def count_cells(codes: NDArray[Any], sizes: Ints, marginals: Sequence[Sequence[int]]) -> Ints:
    """The counts of all cells of marginals, one after the other; the last column of each varies fastest.

    ``codes`` has a row for each row and a column for each attribute, whose values are below ``sizes``. A
    marginal is a list of columns.
    """
    columns = np.unique(np.concatenate([np.asarray(marginal, dtype=np.int64) for marginal in marginals]))
    place = np.zeros(codes.shape[1], dtype=np.int64)
    place[columns] = np.arange(columns.size)
    sizes = np.asarray(sizes, dtype=np.int64)[columns]
    flat = place[np.concatenate([np.asarray(marginal, dtype=np.int64) for marginal in marginals])]
    ends = np.cumsum([0, *(len(marginal) for marginal in marginals)])
    cells = np.multiply.reduceat(sizes[flat], ends[:-1])
    first = np.cumsum([0, *cells])
    kind = np.uint8 if sizes.max() <= 1 << 8 else np.uint16 if sizes.max() <= 1 << 16 else np.int64
    used = codes.T if columns.size == codes.shape[1] else codes.T[columns]
    by_column = np.ascontiguousarray(used, dtype=kind)
    by_bits = (np.diff(ends) == 2) & (cells <= _CELLS_BY_BITS)
    counts = np.zeros(int(first[-1]), dtype=np.int64)
    if by_bits.any():
        pairs = flat[np.repeat(by_bits, np.diff(ends))].reshape(-1, 2)
        _count_by_bits(by_column, sizes, pairs, first[:-1][by_bits], counts)
    if not by_bits.all():
        _count_by_rows(by_column, sizes, flat, ends, first, np.flatnonzero(~by_bits), counts)
    return counts


@jit  # type: ignore[untyped-decorator]
def _count_by_bits(codes: NDArray[Any], sizes: Ints, pairs: Ints, first: Ints, counts: Ints) -> None:
    width, rows = codes.shape
    in_bits = np.zeros(width, dtype=np.bool_)
    for m in range(len(pairs)):
        in_bits[pairs[m, 0]] = True
        in_bits[pairs[m, 1]] = True
    start = np.zeros(width, dtype=np.int64)
    strings = 0
    for c in range(width):
        start[c] = strings
        if in_bits[c]:
            strings += sizes[c]
    bits = np.zeros((strings, _BLOCK_OF_BITS // 64), dtype=np.uint64)
    totals = np.zeros(strings, dtype=np.int64)
    for begin in range(0, rows, _BLOCK_OF_BITS):
        end = min(rows, begin + _BLOCK_OF_BITS)
        for c in range(width):
            if in_bits[c]:
                of_column = slice(start[c], start[c] + sizes[c])
                _set_bits(codes[c, begin:end], bits[of_column], totals[of_column])
        words = (end - begin + 63) // 64
        for m in range(len(pairs)):
            a, b = pairs[m]
            for i in range(sizes[a] - 1):
                left = bits[start[a] + i]
                for j in range(sizes[b] - 1):
                    right = bits[start[b] + j]
                    common = np.uint64(0)
                    for word in range(words):
                        common += _ones(left[word] & right[word])
                    counts[first[m] + i * sizes[b] + j] += np.int64(common)
    for m in range(len(pairs)):
        a, b = pairs[m]
        last = first[m] + (sizes[a] - 1) * sizes[b]  # the last value of a
        for i in range(sizes[a] - 1):
            row = first[m] + i * sizes[b]
            counts[row + sizes[b] - 1] = totals[start[a] + i] - counts[row : row + sizes[b] - 1].sum()
        for j in range(sizes[b]):
            counts[last + j] = totals[start[b] + j] - counts[first[m] + j : last : sizes[b]].sum()


@jit  # type: ignore[untyped-decorator]
def _set_bits(codes: NDArray[Any], bits: NDArray[np.uint64], totals: Ints) -> None:
    """Write the strings of a column's values over what is there, and add their ones to the totals."""
    found = np.zeros(len(bits), dtype=np.uint64)
    for begin in range(0, len(codes), 64):
        found[:] = 0
        for i in range(min(64, len(codes) - begin)):
            found[codes[begin + i]] |= np.uint64(1) << np.uint64(i)
        for value in range(len(bits)):
            bits[value, begin // 64] = found[value]
            totals[value] += np.int64(_ones(found[value]))


@jit  # type: ignore[untyped-decorator]
def _count_by_rows(
    codes: NDArray[Any], sizes: Ints, columns: Ints, ends: Ints, first: Ints, marginals: Ints, counts: Ints
) -> None:
    rows = codes.shape[1]
    apart = np.zeros((4, _CELLS_APART), dtype=np.uint32)
    cell = np.zeros(_BLOCK, dtype=np.uint64)
    for begin in range(0, rows, _BLOCK):
        end = min(rows, begin + _BLOCK)
        for m in marginals:
            here = counts[first[m] : first[m + 1]]
            used = columns[ends[m] : ends[m + 1]]
            if len(used) == 2 and len(here) <= _CELLS_APART:
                left, right = codes[used[0], begin:end], codes[used[1], begin:end]
                _count_apart(left, right, np.uint64(sizes[used[1]]), apart, here)
                continue
            cell[:] = 0
            for c in used:
                size = np.uint64(sizes[c])
                for i in range(end - begin):
                    cell[i] = cell[i] * size + np.uint64(codes[c, begin + i])
            for i in range(end - begin):
                here[cell[i]] += 1


@jit  # type: ignore[untyped-decorator]
def _count_apart(
    left: NDArray[Any], right: NDArray[Any], size: int, apart: NDArray[np.uint32], counts: Ints
) -> None:
    """Count a pair of columns with four tables in turn."""
    apart[:, : len(counts)] = 0
    one, first, second, third, fourth = np.uint32(1), apart[0], apart[1], apart[2], apart[3]
    whole = len(left) // 4 * 4
    for i in range(0, whole, 4):  # unsigned: numba need not look for indices below 0
        first[np.uint64(left[i]) * size + np.uint64(right[i])] += one
        second[np.uint64(left[i + 1]) * size + np.uint64(right[i + 1])] += one
        third[np.uint64(left[i + 2]) * size + np.uint64(right[i + 2])] += one
        fourth[np.uint64(left[i + 3]) * size + np.uint64(right[i + 3])] += one
    for i in range(whole, len(left)):
        first[np.uint64(left[i]) * size + np.uint64(right[i])] += one
    for c in range(len(counts)):
        counts[c] += np.int64(first[c]) + second[c] + third[c] + fourth[c]

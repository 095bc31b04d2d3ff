"""Merging two sorted histograms in one pass: where large ones come together, this is what the driver does.

Compiled, so it is imported only when there is much to merge.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def merge_sorted(
    keys: NDArray[np.uint64],
    weights: NDArray[np.int64],
    other_keys: NDArray[np.uint64],
    other_weights: NDArray[np.int64],
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Sum two histograms (sorted distinct keys) by key; a key whose sums are all 0 is left out."""
    n, m, columns = len(keys), len(other_keys), weights.shape[1]
    out = np.empty(n + m, np.uint64)
    sums = np.empty((n + m, columns), np.int64)
    i = j = size = 0
    while i < n or j < m:
        take = i < n and (j == m or keys[i] <= other_keys[j])
        both = take and j < m and keys[i] == other_keys[j]
        out[size] = keys[i] if take else other_keys[j]
        there = False
        for c in range(columns):
            total = weights[i, c] if take else other_weights[j, c]
            if both:
                total += other_weights[j, c]
            sums[size, c] = total
            there = there or total != 0
        if there:
            size += 1
        if take:
            i += 1
        if both or not take:
            j += 1
    return out[:size].copy(), sums[:size].copy()

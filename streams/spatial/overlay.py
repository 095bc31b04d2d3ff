"""Counts on one partition read off on another: whole arrays at a time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from synthgeo.arrays import Floats
from synthgeo.hierarchy.cells import Partition

MANY = 16  # readings at a time from which on compiled code repays the half second that loading it takes

Overlay = Callable[[Partition, Partition, Floats, Floats], tuple[Floats, Floats]]


def overlay_for(readings: int) -> Overlay:
    """How to read off so many counts at a time: the two ways agree bit for bit."""
    if readings < MANY:
        return overlay
    from streams.spatial.overlay_compiled import overlay as compiled

    return compiled


def overlay(onto: Partition, cells: Partition, values: Floats, variance: Floats) -> tuple[Floats, Floats]:
    """Values (and the variances of their noise) of ``cells`` on the cells of ``onto``: summed where ``onto``
    is coarser, spread by measure where it is finer.
    """
    if cells is onto:
        return values, variance
    owner = np.maximum(np.searchsorted(onto.start, cells.start, side="right") - 1, 0)
    inside = (onto.start[owner] <= cells.start) & (cells.stop <= onto.stop[owner])
    total, spread = np.zeros(onto.size), np.zeros(onto.size)
    np.add.at(total, owner[inside], values[inside])
    np.add.at(spread, owner[inside], variance[inside])
    cover = np.maximum(np.searchsorted(cells.start, onto.start, side="right") - 1, 0)
    larger = ~inside[cover] & (cells.start[cover] <= onto.start) & (onto.stop <= cells.stop[cover])
    finer, cover = np.flatnonzero(larger), cover[larger]
    share = onto.measure[finer] / cells.measure[cover]
    total[finer] += values[cover] * share
    spread[finer] += variance[cover] * share * share
    return total, spread

"""How long lines are, and how far they spread."""

from __future__ import annotations

import numba
import numpy as np

from synthgeo.arrays import Floats, Ints

_ANGLE = np.arange(12) * np.pi / 12
DIRECTIONS = (np.cos(_ANGLE), np.sin(_ANGLE))  # in which extents are taken


def extents(xy: Floats, points: Ints, start: Ints) -> tuple[Floats, Floats]:
    """Metres along lines through some of the points ``xy``, in metres, and their diameters (0 for empty
    ones): line i goes by ``points[start[i]:start[i + 1]]``.

    The diameter is the largest extent in twelve directions: at most 1 % below the exact one.
    """
    found: tuple[Floats, Floats] = _extents(xy, points, start, *DIRECTIONS)
    return found


@numba.njit(cache=True, nogil=True)
def _extents(xy: Floats, points: Ints, start: Ints, across: Floats, up: Floats) -> tuple[Floats, Floats]:
    count = len(start) - 1
    metres, diameter = np.zeros(count), np.zeros(count)
    low, high = np.empty(len(up)), np.empty(len(up))
    for i in range(count):
        low[:], high[:] = np.inf, -np.inf
        for j in range(start[i], start[i + 1]):
            x, y = xy[points[j], 0], xy[points[j], 1]
            if j > start[i]:
                metres[i] += np.hypot(x - xy[points[j - 1], 0], y - xy[points[j - 1], 1])
            for k in range(len(up)):
                along = x * across[k] + y * up[k]
                low[k] = min(low[k], along)
                high[k] = max(high[k], along)
        if start[i + 1] > start[i]:
            diameter[i] = (high - low).max()
    return metres, diameter


__all__ = ["DIRECTIONS", "extents"]

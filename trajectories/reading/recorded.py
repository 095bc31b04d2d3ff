"""How each trip was recorded: the gaps between its points, and how much its speed varies."""

from __future__ import annotations

import numpy as np

from synthgeo import ragged
from synthgeo.arrays import Floats
from trajectories.reading.points import Trips


def recorded_gaps(trips: Trips, scale: tuple[float, float]) -> Floats:
    """The median gap of each trip, NaN for trips of one point: seconds, or metres without times. Each trip's
    own.
    """
    step = trips.steps(scale) if trips.time is None else np.diff(trips.time, prepend=0.0)
    inner = np.ones(len(trips.xy), dtype=bool)
    inner[trips.start[:-1]] = False
    owner, step = trips.trip[inner], step[inner]
    order = np.lexsort((step, owner))
    number = np.diff(trips.start) - 1
    middle = np.minimum(ragged.starts_of(number) + number // 2, max(len(step) - 1, 0))
    return np.where(number > 0, step[order][middle] if len(step) else np.nan, np.nan)


def speed_variations(trips: Trips, scale: tuple[float, float]) -> Floats:
    """The standard deviation of each trip's speeds from point to point, over their mean; NaN for trips of
    fewer than three steps that take time, or that do not move. Each trip's own.
    """
    if trips.time is None:
        return np.full(trips.size, np.nan)
    seconds = np.diff(trips.time, prepend=0.0)
    seconds[trips.start[:-1]] = 0.0
    moves = seconds > 0
    speed = trips.steps(scale)[moves] / seconds[moves]
    rows = ragged.where(trips.start, moves)
    number = np.maximum(np.diff(rows), 1)
    mean = ragged.sums(speed, rows) / number
    spread = ragged.sums((speed - mean[ragged.owners_of(rows)]) ** 2, rows) / number
    known = (np.diff(rows) >= 3) & (mean > 0)
    return np.where(known, np.sqrt(spread) / np.where(mean > 0, mean, 1.0), np.nan)


__all__ = ["recorded_gaps", "speed_variations"]

"""When trips depart and how fast they go: two private histograms and one table of sums.

Guarantee
---------
A trip counts 1 in one hour of the week and 1 in one cell of (length group, pace): each histogram has L1
sensitivity 1. It adds its log pace, relative to a centre and clipped to ``CLIP`` octaves either way, in
units of that, to one hour of the day: a sum of sensitivity 1, on a grid of 2^-20 and rounded towards 0. Each
of the three gets discrete Laplace noise of scale 1/ε_i on every cell, empty or not. The centre is computed
from the released paces, or given. Adaptive composition: ε_1 + ε_2 + ε_3.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from synthgeo.arrays import Floats, Ints
from synthgeo.hierarchy.privtree import GRID
from synthgeo.privacy.noise import Noise, laplace_variance
from trajectories.calendar import DAY_HOURS, HOURS, day_hour, hour_of_week
from trajectories.parts.columns import each, total

PACES = 32  # quarters of octaves from 1/16 to 16 times the public travel time
SLOWEST = 2.0**-4
GROUPS = 5  # of lengths: the public travel time, below 2, 4, 8, 16 minutes and above
CLIP = 0.25  # octaves: twice that would double the noise, and let few more trips say more than a sign
_SHORTEST = 120.0
_ENOUGH = 4.0  # standard deviations of the noise that a group of trips must exceed to have its own centre


@dataclass(frozen=True, eq=False)
class TimeCounts:
    """Released noisy counts and sums of trips; those of disjoint sets of trips with one centre add up.

    Pace is the time a trip takes, over the time that the map's speeds (or 30 km/h without a map) would give.

    Attributes
    ----------
    hours
        Departures by hour of the week, Monday 00:00 first, by the clocks of the synthesizer's time zone.
    paces
        Trips by length group and pace: ``GROUPS`` x ``PACES``.
    pace_sums
        Sums of clipped log2 pace, less its group's ``centre``, in units of ``CLIP``, by hour of a working
        day, then of a weekend day: what the hour does, apart from the length.
    centre
        log2 of the usual pace of each length group.
    variance
        Of the noise in the three.
    """

    hours: Floats
    paces: Floats
    pace_sums: Floats
    centre: Floats
    variance: Floats


def length_group(usual: Floats) -> Ints:
    """Group of trips that take so many seconds at public speeds."""
    octave = np.floor(np.log2(np.maximum(usual, 1.0) / _SHORTEST)).astype(np.int64) + 1
    return np.clip(octave, 0, GROUPS - 1)


def log_pace(duration: Floats, usual: Floats) -> Floats:
    """log2 of paces."""
    return np.log2(np.maximum(duration, 1.0) / np.maximum(usual, 1.0))


def count_paces(duration: Floats, usual: Floats) -> Ints:
    """Trips by length group and pace. Private when the trips are."""
    place = np.floor((log_pace(duration, usual) - np.log2(SLOWEST)) * PACES / 8)
    cell = length_group(usual) * PACES + np.clip(place, 0, PACES - 1).astype(np.int64)
    return np.bincount(cell, minlength=GROUPS * PACES)


def sum_paces(hour: Ints, duration: Floats, usual: Floats, centre: Floats) -> Ints:
    """Sums of clipped log pace by hour of the day, in grid steps of ``CLIP``. Private when the trips are."""
    sums = np.zeros(DAY_HOURS, dtype=np.int64)
    residual = log_pace(duration, usual) - centre[length_group(usual)]
    np.add.at(sums, day_hour(hour), GRID.floor(clipped(residual)))
    return sums


def clipped(octaves: Floats) -> Floats:
    """In units of ``CLIP``, and clipped to one of them either way."""
    return np.clip(octaves / CLIP, -1.0, 1.0)


def measure_times(
    departure: Floats,
    duration: Floats,
    usual: Floats,
    *,
    epsilons: tuple[float, float, float],
    noise: Noise,
    centre: Floats | None = None,
) -> TimeCounts:
    """Departures (seconds since 1970 by local clocks), paces by length, and sums of paces by hour."""
    hour = each(hour_of_week, departure)
    for_hours, for_paces, for_sums = epsilons
    hours = _noisy(total(np.bincount, hour, None, HOURS), for_hours, noise)
    paces = _noisy(total(count_paces, duration, usual), for_paces, noise).reshape(GROUPS, PACES)
    if centre is None:
        centre = usual_paces(paces, laplace_variance(1 / for_paces))
    exact = total(sum_paces, hour, duration, usual, centre)
    sums = GRID.value(exact + noise.discrete_laplace(GRID.one / for_sums, exact.size))
    return TimeCounts(
        hours, paces, sums, centre, np.array([laplace_variance(1 / epsilon) for epsilon in epsilons])
    )


def usual_paces(paces: Floats, variance: float) -> Floats:
    """log2 of the median pace of each length group of a released histogram; that of all trips where a group
    has no more trips than noise, and that of the map where all have no more.
    """
    enough = _ENOUGH * np.sqrt(variance * PACES)
    together = _median(paces.sum(axis=0)) if paces.sum() > enough * np.sqrt(GROUPS) else 0.0
    return np.array([_median(row) if row.sum() > enough else together for row in paces])


def _median(counts: Floats) -> float:
    below = np.maximum.accumulate(np.cumsum(counts))
    middle = min(int(np.searchsorted(below, counts.sum() / 2)), PACES - 1)
    return float(np.log2(SLOWEST) + (middle + 0.5) * 8 / PACES)


def _noisy(exact: Ints, epsilon: float, noise: Noise) -> Floats:
    return (exact + noise.discrete_laplace(1 / epsilon, exact.size)).astype(np.float64)


__all__ = [
    "CLIP", "GROUPS", "PACES", "SLOWEST", "TimeCounts", "clipped", "count_paces", "length_group", "log_pace",
    "measure_times", "sum_paces",
]  # fmt: skip

"""When trips depart and how fast they go: two private histograms, and one shared between slow and fast.

Guarantee
---------
A trip counts 1 in four hours of one day of the week and 1 in one cell of (length group, pace): each histogram
has L1 sensitivity 1. In one hour of the day it counts u as slow and 1 - u as fast, where u runs from 0 to 1
as its log pace, relative to a centre, runs over ``CLIP`` octaves either way. u is rounded down to a grid of
2^-20 and 1 - u is what that leaves of 1, so that the two counts move by exactly 1 together: sensitivity 1 for
both. Each of the three gets discrete Laplace noise of scale 1/ε_i on every cell, empty or not. The centre is
computed from the released paces, or given. Adaptive composition: ε_1 + ε_2 + ε_3.

Slow and fast together are departures, their difference is the sum of paces: one table for both has less noise
in either than a table for each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from synthgeo.arrays import Floats, Ints
from synthgeo.hierarchy.privtree import GRID
from synthgeo.privacy.noise import Noise, laplace_variance
from trajectories.calendar import DAY_HOURS, WEEK_BLOCKS, day_hour, hour_of_week, week_block
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
    departures
        By four hours of each day of the week, Monday 00:00 first, by the clocks of the synthesizer's time
        zone.
    paces
        Trips by length group and pace: ``GROUPS`` x ``PACES``.
    by_hour
        Slow trips and fast ones, a row for each, by hour of a working day, then of a weekend day. A trip is
        as slow as its log2 pace says, less its group's ``centre``: what the hour does, apart from the length.
    centre
        log2 of the usual pace of each length group.
    variance
        Of the noise in the three.
    """

    departures: Floats
    paces: Floats
    by_hour: Floats
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


def count_departures(hour: Ints) -> Ints:
    """Trips by four hours of each day of the week. Private when the trips are."""
    return np.bincount(week_block(hour), minlength=WEEK_BLOCKS)


def count_by_hour(hour: Ints, duration: Floats, usual: Floats, centre: Floats) -> Ints:
    """Slow trips and fast ones by hour of the day, in grid steps. Private when the trips are."""
    counts = np.zeros((2, DAY_HOURS), dtype=np.int64)
    slow = GRID.floor(0.5 + 0.5 * clipped(log_pace(duration, usual) - centre[length_group(usual)]))
    for row, share in zip(counts, (slow, GRID.one - slow), strict=True):
        np.add.at(row, day_hour(hour), share)
    return counts


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
    """Departures (seconds since 1970 by local clocks), paces by length, and slow and fast trips by hour."""
    hour = each(hour_of_week, departure)
    for_departures, for_paces, for_hours = epsilons
    departures = _noisy(total(count_departures, hour), for_departures, noise)
    paces = _noisy(total(count_paces, duration, usual), for_paces, noise).reshape(GROUPS, PACES)
    if centre is None:
        centre = usual_paces(paces, laplace_variance(1 / for_paces))
    exact = total(count_by_hour, hour, duration, usual, centre)
    noisy = GRID.value(exact.ravel() + noise.discrete_laplace(GRID.one / for_hours, exact.size))
    variance = np.array([laplace_variance(1 / epsilon) for epsilon in epsilons])
    return TimeCounts(departures, paces, noisy.reshape(exact.shape), centre, variance)


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
    "CLIP", "GROUPS", "PACES", "SLOWEST", "TimeCounts", "clipped", "count_by_hour", "count_departures",
    "count_paces", "length_group", "log_pace", "measure_times",
]  # fmt: skip

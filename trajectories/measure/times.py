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

import math
from dataclasses import dataclass

import numpy as np

from synthgeo.arrays import Floats, Ints, Points
from synthgeo.hierarchy.privtree import GRID
from synthgeo.privacy.noise import Noise, laplace_variance
from trajectories.calendar import BLOCKS, DAY_HOURS, WEEK_BLOCKS, block, day_hour, hour_of_week, week_block
from trajectories.measure.pairs import non_negative
from trajectories.parts.columns import each, total

__all__ = [
    "CLIP",
    "GAPS",
    "GROUPS",
    "PACES",
    "SLOWEST",
    "VARIATIONS",
    "RecordingCounts",
    "TimeCounts",
    "ZoneCounts",
    "clipped",
    "count_by_hour",
    "count_departures",
    "count_paces",
    "count_zones",
    "gap_bucket",
    "length_group",
    "log_pace",
    "measure_recording",
    "measure_times",
    "measure_zones",
    "variation_bucket",
    "zones_of",
]


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


# How trips were recorded: the usual gap between points, and how much speed varies within a trip.
#
# Guarantee
# ---------
# A trip counts 1 in one bucket of its own median gap (seconds; metres where there are no times), and, with
# times, 1 in one bucket of its own variation of speed. Histograms of L1 sensitivity 1 each, with discrete
# Laplace noise of scale k/ε on every bucket, k = 2 with times and 1 without: ε together.

GAPS = 26  # halves of octaves from 1 to 8192 seconds or metres
VARIATIONS = 16  # eighths, from 0 to 2


@dataclass(frozen=True, eq=False)
class RecordingCounts:
    """Released noisy counts of trips; those of disjoint sets of trips add up.

    Attributes
    ----------
    gaps
        By the median gap between two points: seconds, or metres without times.
    variations
        By the standard deviation of the speeds between points over their mean; empty without times.
    variance
        Of the noise in one count.
    """

    gaps: Floats
    variations: Floats
    variance: float


def gap_bucket(gap: Floats) -> Ints:
    """Bucket of gaps in seconds or metres."""
    half_octave = np.floor(2 * np.log2(np.maximum(gap, 1e-9)))
    return np.asarray(np.clip(half_octave, 0, GAPS - 1), dtype=np.int64)


def variation_bucket(variation: Floats) -> Ints:
    """Bucket of variations of speed."""
    eighth = np.floor(variation * VARIATIONS / 2)
    return np.asarray(np.clip(eighth, 0, VARIATIONS - 1), dtype=np.int64)


def count_gaps(gap: Floats) -> Ints:
    """Trips by gap, without those that have none (NaN). Private when the trips are."""
    return np.bincount(gap_bucket(gap[~np.isnan(gap)]), minlength=GAPS)


def count_variations(variation: Floats) -> Ints:
    """Trips by variation of speed, without those that have none (NaN). Private when the trips are."""
    return np.bincount(variation_bucket(variation[~np.isnan(variation)]), minlength=VARIATIONS)


def measure_recording(
    gap: Floats, variation: Floats | None, *, epsilon: float, noise: Noise
) -> RecordingCounts:
    """Noisy histograms of each trip's gap and, if given, variation; a trip without one (NaN) is left out."""
    each = epsilon if variation is None else epsilon / 2

    def noisy(exact: Ints) -> Floats:
        return (exact + noise.discrete_laplace(1 / each, exact.size)).astype(np.float64)

    gaps, variations = noisy(total(count_gaps, gap)), np.empty(0)
    if variation is not None:
        variations = noisy(total(count_variations, variation))
    return RecordingCounts(gaps, variations, laplace_variance(1 / each))


# Between which zones trips go at which time: pairs of zones by blocks of the week.
#
# Zones are unions of cells with about as many released ends each, and as few as leave far more trips than
# noise in a cell of the table: which half of a city trips go from and to says most of what the time of day
# does, and more zones would each say it with the same noise. Zones of destinations are unions of those of
# origins. Blocks are four hours of working days or of weekends.
#
# Guarantee --------- Zones follow from the released cells and ends. A trip counts 1 in one cell of the table
# (origin's zone, destination's zone, block): L1 sensitivity 1, and discrete Laplace noise of scale 1/ε on
# every cell, empty or not, is ε-differentially private.

_ENOUGH_TRIPS = 5.0  # trips in a cell of the table, in standard deviations of its noise
_MOST = 8  # halvings: 16 zones of origins, 16 of destinations


@dataclass(frozen=True, eq=False)
class ZoneCounts:
    """Released noisy counts of trips by zones and block; those of disjoint sets of trips with the same zones
    add up.

    Attributes
    ----------
    zone
        Of each cell, as an origin.
    ending
        The zone of destinations that each zone of origins belongs to.
    trips
        By zone of origin, zone of destination and block of the week.
    variance
        Of the noise in one count.
    """

    zone: Ints
    ending: Ints
    trips: Floats
    variance: float


def zones_of(centres: Points, ends: Floats, *, epsilon: float) -> tuple[Ints, Ints]:
    """A zone for each cell, from their centres and released ends, and the larger zone that each is in: halved
    and halved again across the longer side, where half of the ends lie on either.
    """
    weight = non_negative(ends) + 1e-9
    enough = _ENOUGH_TRIPS * math.sqrt(laplace_variance(1 / epsilon))
    room = weight.sum() / (max(enough, 1.0) * BLOCKS)
    halvings = int(np.clip(math.floor(math.log2(max(room, 1.0))), 0, _MOST))
    zone = np.zeros(len(weight), dtype=np.int64)
    for level in range(-(-halvings // 2)):
        for number in range(1 << level):
            here = np.flatnonzero(zone == number)
            if len(here) > 1:
                axis = int(np.argmax(np.ptp(centres[here], axis=0)))
                here = here[np.argsort(centres[here, axis], kind="stable")]
                below = np.cumsum(weight[here])
                middle = int(np.searchsorted(below, below[-1] / 2)) + 1
                zone[here[min(middle, len(here) - 1) :]] += 1 << level
    found, zone = np.unique(zone, return_inverse=True)
    ending = np.unique(found % (1 << halvings // 2), return_inverse=True)[1]
    return zone.astype(np.int64), ending.astype(np.int64)


def count_zones(zone: Ints, ending: Ints, origin: Ints, destination: Ints, hour: Ints) -> Ints:
    """Trips by zones and block of the week; a trip with an end in no cell (-1) is not counted. Private."""
    known = (origin >= 0) & (destination >= 0)
    endings = int(ending.max(initial=0)) + 1
    pair = zone[origin[known]] * endings + ending[zone[destination[known]]]
    return np.bincount(pair * BLOCKS + block(hour[known]), minlength=len(ending) * endings * BLOCKS)


def measure_zones(
    zone: Ints,
    ending: Ints,
    origin: Ints,
    destination: Ints,
    hour: Ints,
    *,
    epsilon: float,
    noise: Noise,
) -> ZoneCounts:
    """Noisy counts by zones and block of trips between these cells, departing in these hours of the week."""
    exact = total(count_zones, zone, ending, origin, destination, hour)
    noisy = (exact + noise.discrete_laplace(1 / epsilon, exact.size)).astype(np.float64)
    return ZoneCounts(zone, ending, noisy.reshape(len(ending), -1, BLOCKS), laplace_variance(1 / epsilon))

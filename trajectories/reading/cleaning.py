"""Cleaning: from recorded points to one plausible trip each.

Every rule looks at one trip at a time, and turns one trip into **one** trip or none. That is what keeps the
sensitivity of everything measured later at 1: if a trip were cut at its gaps into k trips, it would count k
times, and the protected unit, the whole recorded trip, would pay k times the budget. So where a rule cuts,
only the longest piece stays.

The rules, in the order in which ``clean`` applies them:

1. *Outside*: points outside the domain go, and the trip is cut where they were. On roads it is not cut:
   there a point outside is a bad fix far more often than a trip elsewhere, and matching routes the gap.
2. *Duplicates*: a point at the same time as the one before it goes; without times, one at the same place.
3. *Spikes*: a point that neither neighbour can reach, or be reached from, at ``max_speed``, although the
   neighbours could reach each other, is a bad fix and goes.
4. *Jumps and gaps*: what remains is cut where the speed exceeds ``max_speed``, where a step exceeds
   ``max_step``, and where nothing was recorded for longer than ``max_gap``.
5. *Longest piece*: of the pieces the one with the longest path stays; ties go to the one with more points,
   then to the earlier.
6. *Stationary ends*: before the trip first leaves the circle of ``still`` metres around its first point only
   the last point in it stays; after it last enters the circle around its last point only the first one in it.
   Waiting with the engine on is not the trip. A trip that never leaves becomes one point, its first.
7. *Too short*: trips with fewer than ``min_points`` points or a path below ``min_length`` go.

All limits are given, public numbers. None may be estimated from the trips: then one trip could change
another.
"""

from __future__ import annotations

import math

import numpy as np

from synthgeo.arrays import Bools, Floats, Ints
from synthgeo.domain.box import SpatialDomain
from synthgeo.errors import ConfigError
from trajectories.reading.points import Trips, metres_per_unit


def clean(
    trips: Trips,
    *,
    domain: SpatialDomain | None = None,
    max_gap: float | None = 600.0,
    max_speed: float | None = 60.0,
    max_step: float | None = None,
    still: float | None = 20.0,
    min_points: int = 1,
    min_length: float = 0.0,
) -> Trips:
    """One plausible trip for each recorded one, by the rules of this module.

    Parameters
    ----------
    domain
        Where trips may be. None: anywhere, and coordinates are metres.
    max_gap
        Longest time without a point, in seconds; longer and the trip is cut. None: never.
    max_speed
        Metres per second that no vehicle exceeds (60 is 216 km/h). None: any. Without times it has no effect.
    max_step
        Longest distance between successive points, in metres. None: any.
    still
        Radius, in metres, within which a trip's ends count as standing. None: keep the ends as they are.
    min_points, min_length
        Trips with less (points; metres of path) go.

    Guarantee
    ---------
    A function of each trip alone, to one trip or none: adding or removing one trip adds or removes at most
    one cleaned trip and changes no other, whatever the data. It has sensitivity 1 and costs no privacy.
    """
    for name, value in (
        ("max_gap", max_gap),
        ("max_speed", max_speed),
        ("max_step", max_step),
        ("still", still),
    ):
        _check_limit(name, value)
    if isinstance(min_points, bool) or min_points < 1:
        raise ConfigError(f"min_points must be a whole number >= 1, got {min_points!r}")
    if not (math.isfinite(min_length) and min_length >= 0):
        raise ConfigError(f"min_length must be a number of metres >= 0, got {min_length!r}")
    scale = (1.0, 1.0) if domain is None else metres_per_unit(domain)
    part = trips.trip  # pieces of one trip get different numbers once it is cut
    if domain is not None and trips.size:
        inside = domain.contains(trips.xy)
        if domain.kind != "roads":
            part = part + np.cumsum(~inside)  # grows at every new trip and at every point outside
        trips, part = trips.only(inside), part[inside]
    keep = ~_repeats(trips, part)
    trips, part = trips.only(keep), part[keep]
    keep = ~_spikes(trips, part, scale, max_speed)
    trips, part = trips.only(keep), part[keep]
    keep = _longest_piece(trips, part, scale, max_gap, max_speed, max_step)
    trips = trips.only(keep)
    if still is not None:
        trips = trips.only(_moving(trips, scale, still))
    if min_points > 1 or min_length > 0:
        length = np.bincount(trips.trip, trips.steps(scale), minlength=trips.size)
        trips = trips.take((np.diff(trips.start) >= min_points) & (length >= min_length))
    return trips


def _check_limit(name: str, value: float | None) -> None:
    if value is not None and not value > 0:
        raise ConfigError(f"{name} must be > 0, or None for no limit, got {value!r}")


def _repeats(trips: Trips, part: Ints) -> Bools:
    """Points that add nothing to the one before."""
    repeat = np.zeros(len(trips.xy), dtype=bool)
    if trips.time is not None:
        repeat[1:] = np.diff(trips.time) == 0
    else:
        repeat[1:] = (np.diff(trips.xy, axis=0) == 0).all(axis=1)
    repeat[1:] &= np.diff(part) == 0
    return repeat


def _too_fast(trips: Trips, part: Ints, scale: tuple[float, float], max_speed: float, apart: int) -> Bools:
    """Whether the point ``apart`` places before, in the same piece, is too far for the time between."""
    fast = np.zeros(len(trips.xy), dtype=bool)
    if trips.time is not None and len(fast) > apart:
        way = np.hypot(*((trips.xy[apart:] - trips.xy[:-apart]) * scale).T)
        time = trips.time[apart:] - trips.time[:-apart]
        fast[apart:] = (way > max_speed * time) & (part[apart:] == part[:-apart])
    return fast


def _spikes(trips: Trips, part: Ints, scale: tuple[float, float], max_speed: float | None) -> Bools:
    """Single points away from a path that is plausible without them."""
    spike = np.zeros(len(trips.xy), dtype=bool)
    if max_speed is None or trips.time is None or len(spike) < 3:
        return spike
    one, two = (_too_fast(trips, part, scale, max_speed, apart) for apart in (1, 2))
    same = part[2:] == part[:-2]
    spike[1:-1] = same & one[1:-1] & one[2:] & ~two[2:]
    # Of two neighbours that both look like spikes only the first goes: the second was judged with its help.
    spike[1:] &= ~spike[:-1]
    return spike


def _longest_piece(
    trips: Trips,
    part: Ints,
    scale: tuple[float, float],
    max_gap: float | None,
    max_speed: float | None,
    max_step: float | None,
) -> Bools:
    """Cut at gaps and jumps; the points of each trip's longest piece."""
    if not len(trips.xy):
        return np.zeros(0, dtype=bool)
    step = trips.steps(scale)
    cut = np.ones(len(trips.xy), dtype=bool)
    cut[1:] = np.diff(part) != 0
    if max_speed is not None:
        cut |= _too_fast(trips, part, scale, max_speed, 1)
    if max_gap is not None and trips.time is not None:
        cut[1:] |= np.diff(trips.time) > max_gap
    if max_step is not None:
        cut |= step > max_step
    piece = np.cumsum(cut) - 1
    begin = np.flatnonzero(cut)
    length = np.bincount(piece, np.where(cut, 0.0, step))
    points = np.bincount(piece)
    trip = trips.trip[begin]
    best = np.lexsort((begin, -points, -length, trip))
    best = best[np.concatenate([[True], np.diff(trip[best]) != 0])]
    chosen = np.zeros(len(begin), dtype=bool)
    chosen[best] = True
    return np.asarray(chosen[piece])


def _moving(trips: Trips, scale: tuple[float, float], still: float) -> Bools:
    """All but the standing points at both ends."""
    if not trips.size:
        return np.zeros(0, dtype=bool)
    row, trip = np.arange(len(trips.xy)), trips.trip
    first, last = trips.start[:-1], trips.start[1:] - 1

    def away(anchor: Ints) -> Floats:
        offset: Floats = (trips.xy - trips.xy[anchor][trip]) * scale
        return np.asarray(np.hypot(*offset.T))

    far = away(first) > still
    leaves = np.minimum.reduceat(np.where(far, row, len(row)), first)  # first point beyond the circle
    begin = np.where(leaves < len(row), leaves - 1, first)
    # The end is looked for after the beginning only, or a round trip could end before it begins.
    far = (away(last) > still) & (row >= begin[trip])
    arrives = np.maximum.reduceat(np.where(far, row, -1), first) + 1
    end = np.where(leaves < len(row), np.where(arrives > begin, arrives, last), first)
    return np.asarray((row >= begin[trip]) & (row <= end[trip]))


__all__ = ["clean"]

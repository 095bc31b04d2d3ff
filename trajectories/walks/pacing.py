"""How far along its line each synthetic trip is at any time. Post-processing.

A trip is cut into pieces: edges of the road, or segments of a line on a plane. The time for a piece is
random around its share of the public travel time: gamma distributed with a scale of θ seconds, so that over T
seconds the way covered has a standard deviation of about √(θ/T) times its mean. θ is chosen for the variation
that was measured between points T seconds apart: the larger, the more of the trip's time is spent standing.
Trips begin and end standing, for a random time that is longer where speeds vary more. No piece is faster than
the cap, and all together take the trip's duration.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from synthgeo import ragged
from synthgeo.arrays import Floats, Ints, Points
from synthgeo.polylines import Polylines

# Seconds that a trip stands at its first and at its last place, on average, over (variation · gap): public
# assumptions. A vehicle that stops at lights also stops for those who get in and, longer, for those who pay.
_FIRST, _LAST = 1 / 3, 1.0
_MOST_STANDING = 0.3  # of a trip's time, at either end
_LEAST_FREE = 0.4  # of a trip's time that may vary
_NEAR = 1e-6  # metres that the sums of a line's pieces and of its segments may differ by
_ROUNDING = 0.99  # of the cap: times are rounded to milliseconds, and points are joined by straight lines


@dataclass(frozen=True, eq=False)
class Pieces:
    """What trips are made of: metres of each piece, and seconds at public speeds."""

    offsets: Ints
    metres: Floats
    usual: Floats


@dataclass(frozen=True, eq=False)
class Timetable:
    """Metres and seconds since departure at the end of each piece, linear between."""

    offsets: Ints  # of the knots: one more than pieces for each trip
    metres: Floats
    seconds: Floats

    @property
    def duration(self) -> Floats:
        """Seconds of each trip."""
        return self.seconds[self.offsets[1:] - 1]

    def take(self, index: Ints) -> Timetable:
        """The trips at these positions, in that order."""
        rows, offsets = ragged.take(self.offsets, index)
        return Timetable(offsets, self.metres[rows], self.seconds[rows])

    def metres_at(self, trip: Ints, seconds: Floats) -> Floats:
        """How far these trips are after so many seconds."""
        return ragged.interpolate(self.seconds, self.metres, self.offsets, trip, seconds)

    def evenly(self, lines: Polylines, parts: Ints) -> tuple[Points, Ints, Floats]:
        """Points that cut trip i into ``parts[i]`` parts of equal duration, both ends included; offsets of
        each trip's points; and seconds since departure.
        """
        offsets = ragged.offsets_of(parts + 1)
        trip = ragged.owners_of(offsets)
        seconds = self.duration[trip] * ragged.ranks_of(parts + 1) / parts[trip]
        return lines.at(trip, self.metres_at(trip, seconds)), offsets, seconds

    def seconds_at(self, trip: Ints, metres: Floats) -> Floats:
        """When these trips have gone so many metres; all: when they have stood at their last place."""
        found = ragged.interpolate(self.metres, self.seconds, self.offsets, trip, metres)
        there = metres > self.metres[self.offsets[trip + 1] - 1] - _NEAR
        return np.where(there, self.duration[trip], found)


def timetable(
    pieces: Pieces,
    duration: Floats,
    variation: Floats,
    gap: Floats,
    rng: np.random.Generator,
    *,
    max_speed: float | None,
) -> Timetable:
    """When each trip is where. ``duration`` is lengthened where ``max_speed`` (metres per second) asks for
    it; ``variation`` is that of the speeds between points ``gap`` seconds apart.
    """
    trip = ragged.owners_of(pieces.offsets)
    least = np.zeros(len(trip)) if max_speed is None else pieces.metres / (_ROUNDING * max_speed)
    least_of_all = ragged.sums(least, pieces.offsets)
    duration = np.maximum(duration, least_of_all)
    first, last = _standing(variation * gap, duration, duration - least_of_all, rng)
    moving = duration - first - last
    usual = np.maximum(pieces.usual, 1e-6)
    expected = usual * (moving / ragged.sums(usual, pieces.offsets))[trip]
    # At the cap nothing varies: what is left to vary has to do so the more.
    share = np.clip((moving - least_of_all) / np.maximum(moving, 1e-9), _LEAST_FREE, 1.0)
    scale = ((variation / share) ** 2 * gap)[trip]
    shape = expected / np.maximum(scale, 1e-9)
    taken = np.where(scale > 0, scale * rng.standard_gamma(np.minimum(shape, 1e12)), expected)
    together = ragged.sums(taken, pieces.offsets)
    taken = np.where((together > 0)[trip], taken, expected)
    together = np.where(together > 0, together, ragged.sums(expected, pieces.offsets))
    seconds = least + taken * ((moving - least_of_all) / np.maximum(together, 1e-300))[trip]
    # Two pieces more for each trip, without a metre.
    both_ends = np.column_stack([pieces.offsets[:-1], pieces.offsets[1:]]).ravel()
    offsets = pieces.offsets + 2 * np.arange(len(pieces.offsets))
    metres = np.insert(pieces.metres, both_ends, 0.0)
    seconds = np.insert(seconds, both_ends, np.column_stack([first, last]).ravel())
    return Timetable(offsets + np.arange(len(offsets)), _knots(metres, offsets), _knots(seconds, offsets))


def _standing(
    usual: Floats, duration: Floats, spare: Floats, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Seconds that trips stand at their first and at their last place, out of what they have to ``spare``."""
    if not usual.any():
        return np.zeros(len(usual)), np.zeros(len(usual))
    most = _MOST_STANDING * np.minimum(duration, spare)
    first, last = (
        np.minimum(mean * usual * rng.standard_exponential(len(usual)), most) for mean in (_FIRST, _LAST)
    )
    return first, last


def _knots(values: Floats, offsets: Ints) -> Floats:
    """Running sums of each row, from 0 on."""
    padded = np.insert(values, offsets[:-1], 0.0)
    return ragged.running(padded, offsets + np.arange(len(offsets)))


__all__ = ["Pieces", "Timetable", "timetable"]

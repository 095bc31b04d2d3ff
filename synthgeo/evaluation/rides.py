"""How much synthetic trips ride like the real ones: speeds, hours, turns. For the curator only.

Both sides need times, in metric coordinates; hours are those of the time zone that is given. Conventions:

* ``speed``: of each trip, the metres from point to point over its duration. By hour of the day, only hours
  with more than 1 % of the real trips.
* ``variation``: of each trip with three steps or more, the standard deviation of its speeds from point to
  point over their mean; the mean over trips. It depends on how often points come: compare like with like.
* ``turns``: angles between successive steps of at least 20 metres.
* ``place_hour``: mutual information, in nats, of the first point's zone (a square of 3 km) and the hour of
  the day. Small samples show some even of independent columns: compare as many trips as there are.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from synthgeo import ragged
from synthgeo.arrays import Floats, Ints
from synthgeo.errors import InputError

_LEAST = 0.01  # of the real trips, for an hour to count
_STEP = 20.0  # metres
_ZONE = 3000.0
_HALF_TURN, _TURN = np.radians(150.0), np.radians(45.0)


@dataclass(frozen=True)
class RideScores:
    """One comparison, real and synthetic.

    Attributes
    ----------
    fastest
        The highest speed between two synthetic points, in km/h.
    speed_by_hour
        Largest relative error of the mean speed of an hour of the day.
    variation, variation_real
        Of speeds within a trip.
    half_turns, half_turns_real
        Share of trips with a turn of more than 150 degrees.
    turns, turns_real
        Turns of more than 45 degrees per kilometre.
    place_hour, place_hour_real
        Mutual information of origin zone and hour.
    place_hour_blocks
        Total variation between the shares of (origin zone, destination zone, four hours).
    """

    fastest: float
    speed_by_hour: float
    variation: float
    variation_real: float
    half_turns: float
    half_turns_real: float
    turns: float
    turns_real: float
    place_hour: float
    place_hour_real: float
    place_hour_blocks: float

    def as_dict(self) -> dict[str, float]:
        """Plain numbers by name."""
        return asdict(self)


def ride_scores(real: Any, synthetic: Any, *, tz: str = "UTC") -> RideScores:
    """Speeds, turns, and where trips start when, of synthetic trips against the real ones: not private.

    Both are objects with ``xy`` in metres, ``start`` and ``time`` in seconds since 1970
    (``trajectories.reading.points.Trips``).
    """
    sides = [_Rides(side, tz) for side in (real, synthetic)]
    true, made = sides
    corner = true.xy.min(axis=0)
    blocks = [side.place_blocks(corner) for side in sides]
    keys = np.unique(np.concatenate(blocks))
    shares = [np.bincount(np.searchsorted(keys, block), minlength=len(keys)) / len(block) for block in blocks]
    turns = [side.turns() for side in sides]
    return RideScores(
        fastest=float(made.step_speed.max(initial=0.0)) * 3.6,
        speed_by_hour=_by_hour(true, made),
        variation=made.variation(),
        variation_real=true.variation(),
        half_turns=turns[1][0],
        half_turns_real=turns[0][0],
        turns=turns[1][1],
        turns_real=turns[0][1],
        place_hour=made.place_hour(corner),
        place_hour_real=true.place_hour(corner),
        place_hour_blocks=float(np.abs(shares[0] - shares[1]).sum() / 2),
    )


class _Rides:
    """Steps of trips with times."""

    def __init__(self, trips: Any, tz: str) -> None:
        from trajectories.calendar import hour_of_week, local_seconds

        if getattr(trips, "time", None) is None:
            raise InputError("ride scores need trips with times")
        self.xy, self.start = np.asarray(trips.xy), np.asarray(trips.start)
        self.size = len(self.start) - 1
        time = np.asarray(trips.time)
        trip = ragged.owners_of(self.start)
        inner = np.flatnonzero(trip[1:] == trip[:-1])
        seconds = time[inner + 1] - time[inner]
        inner, seconds = inner[seconds > 0], seconds[seconds > 0]
        self.step = self.xy[inner + 1] - self.xy[inner]
        self.metres, self.seconds, self.trip = np.hypot(*self.step.T), seconds, trip[inner]
        self.step_speed = self.metres / self.seconds
        self.hour: Ints = hour_of_week(local_seconds(time[self.start[:-1]], tz)) % 24
        self.whole = np.bincount(self.trip, self.metres, minlength=self.size)
        taken = np.bincount(self.trip, self.seconds, minlength=self.size)
        self.speed: Floats = np.divide(self.whole, taken, out=np.full(self.size, np.nan), where=taken > 0)

    def variation(self) -> float:
        number = np.bincount(self.trip, minlength=self.size)
        mean = np.bincount(self.trip, self.step_speed, minlength=self.size) / np.maximum(number, 1)
        squares = (self.step_speed - mean[self.trip]) ** 2
        spread = np.sqrt(np.bincount(self.trip, squares, minlength=self.size) / np.maximum(number, 1))
        known = (number >= 3) & (mean > 0)
        return float(np.mean(spread[known] / mean[known])) if known.any() else 0.0

    def turns(self) -> tuple[float, float]:
        """Share of trips with a half turn, and turns per kilometre."""
        far = self.metres >= _STEP
        step, trip = self.step[far], self.trip[far]
        heading = np.arctan2(step[:, 1], step[:, 0])
        angle = np.abs((np.diff(heading) + np.pi) % (2 * np.pi) - np.pi)
        same = trip[1:] == trip[:-1]
        back = np.unique(trip[1:][same & (angle > _HALF_TURN)])
        turning = float((same & (angle > _TURN)).sum())
        return len(back) / max(self.size, 1), 1000 * turning / max(float(self.whole.sum()), 1e-9)

    def zones(self, corner: Floats, rows: Ints) -> Ints:
        column, row = np.floor((self.xy[rows] - corner) / _ZONE).astype(np.int64).T
        return np.asarray((column + 1000) * 4000 + row + 1000)

    def place_hour(self, corner: Floats) -> float:
        zone = np.unique(self.zones(corner, self.start[:-1]), return_inverse=True)[1]
        table = np.bincount(zone * 24 + self.hour, minlength=(zone.max(initial=0) + 1) * 24).reshape(-1, 24)
        joint = table / max(table.sum(), 1)
        apart = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0)
        here = joint > 0
        return float((joint[here] * np.log(joint[here] / apart[here])).sum())

    def place_blocks(self, corner: Floats) -> Ints:
        first, last = (self.zones(corner, at) for at in (self.start[:-1], self.start[1:] - 1))
        return np.asarray((first * 16_000_000 + last) * 6 + self.hour // 4)


def _by_hour(true: _Rides, made: _Rides) -> float:
    worst = 0.0
    for hour in range(24):
        here, there = true.speed[true.hour == hour], made.speed[made.hour == hour]
        if len(here) > _LEAST * true.size:
            error = abs(np.nanmean(there) / np.nanmean(here) - 1) if len(there) else 1.0
            worst = max(worst, float(error))
    return worst


__all__ = ["RideScores", "ride_scores"]

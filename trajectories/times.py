"""Departure times and speeds: two private histograms, and times for synthetic trips.

Guarantee
---------
A trip counts 1 in one hour of the week and 1 in one bucket of pace. Each histogram has L1 sensitivity 1 and
gets discrete Laplace noise of scale 2/ε on every bucket: ε/2 each, ε together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from synthgeo.privacy.noise import Noise, laplace_variance
from trajectories.origin_destination import non_negative
from trajectories.prior import combine
from trajectories.states import Floats, Ints

HOURS = 168
WEEK = HOURS * 3600.0
_MONDAY = 4 * 86400.0  # 1970-01-05, a Monday
_SLOWEST = 2.0**-4
_OUTSTANDING = 1.25  # standard deviations of the noise
_PACES = 32  # quarters of octaves from 1/16 to 16 times the public travel time


@dataclass(frozen=True, eq=False)
class Clock:
    """Released shares of departures by hour of the week (Monday 00:00 UTC first), and of trips by pace.

    Pace is the time a trip takes, over the time that the map's speeds (or 30 km/h without a map) would give.
    """

    hours: Floats
    paces: Floats

    def departures(self, count: int, rng: np.random.Generator, *, hour: int | None = None) -> Floats:
        """Seconds since Monday 00:00 UTC; within one hour of the day when ``hour`` is given."""
        share = self.hours.copy()
        if hour is not None:
            outside = np.arange(HOURS) % 24 != hour
            share[outside] = 0.0
            if share.sum() <= 0:  # nothing was released there: any day of the week
                share[~outside] = 1.0
        drawn = rng.choice(HOURS, count, p=share / share.sum())
        return 3600.0 * (drawn + rng.random(count))

    def draw_paces(self, count: int, rng: np.random.Generator) -> Floats:
        """A pace for each trip."""
        drawn = rng.choice(_PACES, count, p=self.paces / self.paces.sum())
        return _SLOWEST * np.exp2((drawn + rng.random(count)) * 8 / _PACES)


def measure_times(
    departure: Floats, duration: Floats, usual: Floats, *, epsilon: float, noise: Noise
) -> Clock:
    """Histograms of departures (seconds since 1970, UTC) and of paces (duration over usual duration)."""
    hour = (np.floor((departure - _MONDAY) / 3600.0) % HOURS).astype(np.int64)
    hours = np.bincount(hour, minlength=HOURS)
    ratio = np.log2(np.maximum(duration, 1.0) / np.maximum(usual, 1.0) / _SLOWEST) * _PACES / 8
    paces = np.bincount(np.clip(np.floor(ratio), 0, _PACES - 1).astype(np.int64), minlength=_PACES)
    by_hour, by_pace = (_noisy(exact, epsilon / 2, noise) for exact in (hours, paces))
    return _clock(by_hour, by_pace, laplace_variance(2 / epsilon))


def _noisy(exact: Ints, epsilon: float, noise: Noise) -> Floats:
    return (exact + noise.discrete_laplace(1 / epsilon, exact.size)).astype(np.float64)


def _clock(hours: Floats, paces: Floats, variance: float) -> Clock:
    """Estimates from the noisy counts. Any hour may be; but few paces are, and what noise puts elsewhere
    would be trips at the speed of aeroplanes. So a pace has to stand out, and if none does, it is the map's.
    """
    by_hour = non_negative(hours)
    by_pace = combine(paces, np.zeros(_PACES), variance, threshold=_OUTSTANDING)
    usual = np.zeros(_PACES)
    usual[_PACES // 2] = 1.0
    return Clock(by_hour if by_hour.any() else np.ones(HOURS), by_pace if by_pace.any() else usual)


__all__ = ["HOURS", "WEEK", "Clock", "measure_times"]

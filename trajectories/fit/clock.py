"""When synthetic trips depart, and how fast they go: estimates from the noisy counts. Post-processing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from synthgeo.arrays import Floats
from trajectories.fit.shrinkage import combine
from trajectories.measure.pairs import non_negative
from trajectories.measure.times import HOURS, PACES, SLOWEST, TimeCounts

_OUTSTANDING = 1.25  # standard deviations of the noise


@dataclass(frozen=True, eq=False)
class Clock:
    """Estimated shares of departures by hour of the week (Monday 00:00 UTC first), and of trips by pace."""

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
        drawn = rng.choice(PACES, count, p=self.paces / self.paces.sum())
        return SLOWEST * np.exp2((drawn + rng.random(count)) * 8 / PACES)


def estimate_clock(counts: TimeCounts) -> Clock:
    """Any hour may be; but few paces are, and what noise puts elsewhere would be trips at the speed of
    aeroplanes. So a pace has to stand out, and if none does, it is the map's.
    """
    by_hour = non_negative(counts.hours)
    by_pace = combine(counts.paces, np.zeros(PACES), counts.variance, threshold=_OUTSTANDING)
    usual = np.zeros(PACES)
    usual[PACES // 2] = 1.0
    return Clock(by_hour if by_hour.any() else np.ones(HOURS), by_pace if by_pace.any() else usual)


__all__ = ["Clock", "estimate_clock"]

"""Departure times and speeds: two private histograms.

Guarantee
---------
A trip counts 1 in one hour of the week and 1 in one bucket of pace. Each histogram has L1 sensitivity 1 and
gets discrete Laplace noise of scale 2/ε on every bucket: ε/2 each, ε together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from synthgeo.arrays import Floats, Ints
from synthgeo.privacy.noise import Noise, laplace_variance

HOURS = 168
PACES = 32  # quarters of octaves from 1/16 to 16 times the public travel time
SLOWEST = 2.0**-4
_MONDAY = 4 * 86400.0  # 1970-01-05, a Monday


@dataclass(frozen=True, eq=False)
class TimeCounts:
    """Released noisy counts: departures by hour of the week (Monday 00:00 UTC first), and trips by pace.

    Pace is the time a trip takes, over the time that the map's speeds (or 30 km/h without a map) would give.
    """

    hours: Floats
    paces: Floats
    variance: float


def measure_times(
    departure: Floats, duration: Floats, usual: Floats, *, epsilon: float, noise: Noise
) -> TimeCounts:
    """Histograms of departures (seconds since 1970, UTC) and of paces (duration over usual duration)."""
    hour = (np.floor((departure - _MONDAY) / 3600.0) % HOURS).astype(np.int64)
    hours = np.bincount(hour, minlength=HOURS)
    ratio = np.log2(np.maximum(duration, 1.0) / np.maximum(usual, 1.0) / SLOWEST) * PACES / 8
    paces = np.bincount(np.clip(np.floor(ratio), 0, PACES - 1).astype(np.int64), minlength=PACES)
    by_hour, by_pace = (_noisy(exact, epsilon / 2, noise) for exact in (hours, paces))
    return TimeCounts(by_hour, by_pace, laplace_variance(2 / epsilon))


def _noisy(exact: Ints, epsilon: float, noise: Noise) -> Floats:
    return (exact + noise.discrete_laplace(1 / epsilon, exact.size)).astype(np.float64)


__all__ = ["HOURS", "PACES", "SLOWEST", "TimeCounts", "measure_times"]

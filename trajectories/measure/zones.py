"""Where trips start and end at which time: zones by blocks of the week.

Zones are unions of cells with about as many released ends each: as many zones as leave, on average, more
trips than noise in a cell of the table. Blocks are four hours of working days or of weekends.

Guarantee
---------
Zones follow from the released cells and ends. A trip counts 1 in the table of origins and 1 in that of
destinations: L1 sensitivity 2 together, and discrete Laplace noise of scale 2/ε on every cell of both is
ε-differentially private.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from synthgeo.arrays import Floats, Ints, Points
from synthgeo.privacy.noise import Noise, laplace_variance
from trajectories.calendar import BLOCKS, block
from trajectories.measure.pairs import non_negative
from trajectories.parts.columns import total

_ENOUGH = 2.0  # trips in a cell of the table, in standard deviations of its noise
_MOST = 6  # halvings: 64 zones


@dataclass(frozen=True, eq=False)
class ZoneCounts:
    """Released noisy counts of origins and destinations by zone and block; those of disjoint sets of trips
    with the same zones add up.

    Attributes
    ----------
    zone
        Of each cell.
    origins, destinations
        Trips by zone and block of the week.
    variance
        Of the noise in one count.
    """

    zone: Ints
    origins: Floats
    destinations: Floats
    variance: float


def zones_of(centres: Points, ends: Floats, *, epsilon: float) -> Ints:
    """A zone for each cell, from their centres and released ends: halved and halved again across the longer
    side, where half of the ends lie on either.
    """
    weight = non_negative(ends) + 1e-9
    enough = _ENOUGH * math.sqrt(laplace_variance(2 / epsilon))
    room = weight.sum() / (max(enough, 1.0) * BLOCKS)
    halvings = int(np.clip(math.floor(math.log2(max(room, 1.0))), 0, _MOST))
    zone = np.zeros(len(weight), dtype=np.int64)
    for level in range(halvings):
        for number in range(1 << level):
            here = np.flatnonzero(zone == number)
            if len(here) > 1:
                axis = int(np.argmax(np.ptp(centres[here], axis=0)))
                here = here[np.argsort(centres[here, axis], kind="stable")]
                below = np.cumsum(weight[here])
                middle = int(np.searchsorted(below, below[-1] / 2)) + 1
                zone[here[min(middle, len(here) - 1) :]] += 1 << level
    return np.unique(zone, return_inverse=True)[1].astype(np.int64)


def count_zones(zone: Ints, cell: Ints, hour: Ints) -> Ints:
    """Trips by zone and block of the week; a trip in no cell (-1) is not counted. Private."""
    known = cell >= 0
    zones = int(zone.max(initial=0)) + 1
    flat = zone[cell[known]] * BLOCKS + block(hour[known])
    return np.bincount(flat, minlength=zones * BLOCKS)


def measure_zones(
    zone: Ints, origin: Ints, destination: Ints, hour: Ints, *, epsilon: float, noise: Noise
) -> ZoneCounts:
    """Noisy counts by zone and block of trips between these cells, departing in these hours of the week."""
    exact = [total(count_zones, zone, cell, hour) for cell in (origin, destination)]
    origins, destinations = (
        (counts + noise.discrete_laplace(2 / epsilon, counts.size)).astype(np.float64).reshape(-1, BLOCKS)
        for counts in exact
    )
    return ZoneCounts(zone, origins, destinations, laplace_variance(2 / epsilon))


__all__ = ["ZoneCounts", "count_zones", "measure_zones", "zones_of"]

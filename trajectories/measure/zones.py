"""Between which zones trips go at which time: pairs of zones by blocks of the week.

Zones are unions of cells with about as many released ends each, and as few as leave far more trips than noise
in a cell of the table: which half of a city trips go from and to says most of what the time of day does, and
more zones would each say it with the same noise. Zones of destinations are unions of those of origins. Blocks
are four hours of working days or of weekends.

Guarantee
---------
Zones follow from the released cells and ends. A trip counts 1 in one cell of the table (origin's zone,
destination's zone, block): L1 sensitivity 1, and discrete Laplace noise of scale 1/ε on every cell, empty or
not, is ε-differentially private.
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

_ENOUGH = 5.0  # trips in a cell of the table, in standard deviations of its noise
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
    enough = _ENOUGH * math.sqrt(laplace_variance(1 / epsilon))
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


__all__ = ["ZoneCounts", "count_zones", "measure_zones", "zones_of"]

"""What a trip itself says to a table of attributes: how far it goes, from which zone to which, and when."""

from __future__ import annotations

import numpy as np

from synthgeo.arrays import Floats, Ints, Keys, Points
from synthgeo.hierarchy.keys import aligned
from trajectories.ground import Ground
from trajectories.measure.measured import Measured
from trajectories.measure.pairs import non_negative
from trajectories.reading.points import metres_per_unit

ZONES = 12
_ELSEWHERE = ZONES  # an end outside the domain
_SHORTEST, _DISTANCES = 125.0, 22  # metres; halves of octaves to 128 km
DISTANCE, HOUR, ORIGIN, DESTINATION = "trip distance", "trip hour", "trip origin", "trip destination"
_HOURS = 4  # that are told apart from others: finer, and what an attribute has to do with them drowns


def feature_sizes(*, timed: bool) -> dict[str, int]:
    """How many values each feature has."""
    sizes = {DISTANCE: _DISTANCES, ORIGIN: ZONES + 1, DESTINATION: ZONES + 1}
    return sizes | {HOUR: 24 // _HOURS} if timed else sizes


def zone_borders(measured: Measured) -> Keys:
    """Where zones begin: runs of cells, in the order of their keys, with about as many released ends each."""
    ends = non_negative(measured.ends.by_cell) + 1e-9
    middle = np.cumsum(ends) - ends / 2
    zone = np.minimum((middle / ends.sum() * ZONES).astype(np.int64), ZONES - 1)
    first: Keys = measured.partition.start[
        np.minimum(np.searchsorted(zone, np.arange(1, ZONES)), len(zone) - 1)
    ]
    return first


def features_of(ground: Ground, borders: Keys, ends: Points, hours: Ints | None) -> dict[str, Ints]:
    """Distance, zones of both ends and, where trips have times, the hours of departure, four at a time."""
    first, last = ends[::2], ends[1::2]
    apart: Floats = np.hypot(*((last - first) * metres_per_unit(ground.domain)).T)
    octave = np.floor(2 * np.log2(np.maximum(apart, 1e-9) / _SHORTEST)).astype(np.int64) + 1

    def zones(xy: Points) -> Ints:
        keys, inside = ground.hierarchy.locate(xy, ground.bits)
        return np.where(
            inside, np.searchsorted(borders, aligned(keys, ground.bits), side="right"), _ELSEWHERE
        )

    out = {DISTANCE: np.clip(octave, 0, _DISTANCES - 1), ORIGIN: zones(first), DESTINATION: zones(last)}
    return out if hours is None else out | {HOUR: hours.astype(np.int64) // _HOURS}


__all__ = ["DESTINATION", "DISTANCE", "HOUR", "ORIGIN", "feature_sizes", "features_of", "zone_borders"]

"""Trips as polylines: lengths, diameters, even resampling. What the trip metrics stand on.

A set of trips is a flat (n, 2) array ``xy`` and offsets ``start`` (m + 1): trip i is ``xy[start[i]:start[i
+ 1]]``. ``trajectories.reading.points.Trips`` has these two attributes, and so has anything else that wants
to be measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np

from synthgeo.arrays import Floats, Ints
from synthgeo.errors import ConfigError, InputError
from synthgeo.polylines import Polylines
from synthgeo.privacy.noise import SeededNoise
from synthgeo.ragged import offsets_of, owners_of, take


@dataclass(frozen=True, eq=False)
class Paths:
    """Points of all trips, one after the other, and where each trip starts. No trip is empty."""

    xy: Floats
    start: Ints

    @classmethod
    def of(cls, data: Any) -> Paths:
        """Read an object with ``xy`` and ``start``, or a list of (k, 2) arrays. Empty trips are left out."""
        if hasattr(data, "xy") and hasattr(data, "start"):
            xy, start = np.asarray(data.xy, dtype=np.float64), np.asarray(data.start, dtype=np.int64)
        elif isinstance(data, Sequence) and not isinstance(data, str):
            lines = [np.asarray(line, dtype=np.float64).reshape(-1, 2) for line in data]
            xy = np.concatenate(lines) if lines else np.empty((0, 2))
            start = offsets_of([len(line) for line in lines])
        else:
            raise InputError(
                f"trips need attributes `xy` and `start`, or be a list of arrays: {type(data).__name__}"
            )
        if xy.ndim != 2 or xy.shape[1] != 2 or not np.isfinite(xy).all():
            raise InputError("trips: `xy` must be an (n, 2) array of finite numbers")
        if (
            start.ndim != 1
            or not len(start)
            or start[0] != 0
            or start[-1] != len(xy)
            or (np.diff(start) < 0).any()
        ):
            raise InputError("trips: `start` must rise from 0 to the number of points")
        keep = np.concatenate([[True], np.diff(start) > 0])
        if len(xy) == 0:
            raise InputError("trips: there is no trip to measure")
        return cls(xy, start[keep])

    @property
    def size(self) -> int:
        """Number of trips."""
        return len(self.start) - 1

    @property
    def trip(self) -> Ints:
        """Which trip each point belongs to."""
        return owners_of(self.start)

    @property
    def first(self) -> Floats:
        """First point of each trip."""
        return self.xy[self.start[:-1]]

    @property
    def last(self) -> Floats:
        """Last point of each trip."""
        return self.xy[self.start[1:] - 1]

    def steps(self) -> Floats:
        """Length of the segment that ends at each point; 0 at the first point of a trip."""
        step = np.zeros(len(self.xy))
        step[1:] = np.hypot(*np.diff(self.xy, axis=0).T)
        step[self.start[:-1]] = 0.0
        return step

    def lengths(self) -> Floats:
        """Length of each trip's polyline."""
        return np.add.reduceat(self.steps(), self.start[:-1])

    def diameters(self) -> Floats:
        """Largest distance between two points of each trip, exact."""
        order = np.lexsort((self.xy[:, 1], self.xy[:, 0], self.trip))
        found: Floats = _diameters(self.xy[order], self.start)
        return found

    def bounds(self) -> tuple[float, float, float, float]:
        """Bounding box of all points."""
        (minx, miny), (maxx, maxy) = self.xy.min(axis=0), self.xy.max(axis=0)
        return float(minx), float(miny), float(maxx), float(maxy)

    def take(self, trips: Ints) -> Paths:
        """The trips with these indices, in that order."""
        rows, start = take(self.start, trips)
        return Paths(self.xy[rows], start)

    def at(self, pieces: Ints) -> Paths:
        """Each trip's polyline cut into ``pieces`` (one number per trip, >= 1) parts of equal length.

        A trip of one point, or of length 0, keeps its place: all its points coincide.
        """
        xy, start = Polylines(self.xy, self.start).cut(pieces)
        xy[start[:-1]], xy[start[1:] - 1] = self.first, self.last
        return Paths(xy, start)

    def every(self, distance: float) -> Paths:
        """Points at most ``distance`` apart, evenly spaced from the first to the last of each polyline."""
        if not distance > 0:
            raise ConfigError(f"distance must be > 0, got {distance!r}")
        return self.at(np.maximum(np.ceil(self.lengths() / distance), 1).astype(np.int64))

    def halves(self, *, seed: int = 0) -> tuple[Paths, Paths]:
        """Two random halves; with an odd number of trips one is left out, so that both have the same size."""
        if self.size < 2:
            raise InputError("trips: two halves need at least two trips")
        order = SeededNoise(seed).rng.permutation(self.size)
        half = self.size // 2
        return self.take(order[:half]), self.take(order[half : 2 * half])


def points_per_length(paths: Paths) -> float:
    """Segments per unit of length over all trips together (``inf`` when nothing moves)."""
    length = float(paths.lengths().sum())
    return (len(paths.xy) - paths.size) / length if length > 0 else np.inf


def resample_like(synthetic: Any, real: Any) -> Paths:
    """The synthetic trips with as many points a kilometre as the real ones, evenly spaced along each path.

    Metrics that look at raw points (patterns of raw cells, visits) compare sampling rates as much as places
    unless both sides are sampled alike. First and last points stay. Where the real trips do not move at all
    the synthetic ones are returned as they are.
    """
    paths, density = Paths.of(synthetic), points_per_length(Paths.of(real))
    if not np.isfinite(density):
        return paths
    return paths.at(np.maximum(np.rint(paths.lengths() * density), 1).astype(np.int64))


@numba.njit(cache=True, nogil=True)
def _diameters(xy: Floats, start: Ints) -> Floats:
    """Per trip: convex hull by monotone chain over points sorted by (x, y), then all pairs of corners."""
    longest = 0
    for trip in range(len(start) - 1):
        longest = max(longest, start[trip + 1] - start[trip])
    hull = np.empty((2 * longest + 1, 2))
    result = np.zeros(len(start) - 1)
    for trip in range(len(start) - 1):
        first, last = start[trip], start[trip + 1]
        size = 0
        for sweep in range(2):
            base = size
            for step in range(last - first):
                i = first + step if sweep == 0 else last - 1 - step
                while size - base >= 2:
                    ax, ay = hull[size - 2]
                    bx, by = hull[size - 1]
                    if (bx - ax) * (xy[i, 1] - ay) - (by - ay) * (xy[i, 0] - ax) > 0:
                        break
                    size -= 1
                hull[size] = xy[i]
                size += 1
        best = 0.0
        for i in range(size):
            for j in range(i):
                dx, dy = hull[i, 0] - hull[j, 0], hull[i, 1] - hull[j, 1]
                best = max(best, dx * dx + dy * dy)
        result[trip] = np.sqrt(best)
    return result


__all__ = ["Paths", "points_per_length", "resample_like"]

"""Range-query error of synthetic points: how well rectangle counts survive. For the curator only.

The metric of section 3.6.7 of Kumar, *Differentially Private Synthetic Data Generation of Data Collected Over
Time*: random rectangles in three classes by their share of the area of the box, 0.01-0.1 % (small), 0.1-1 %
(medium) and 1-10 % (large); the error of a class is the mean over its queries q of

    |q(real) - q(synthetic)| / max(q(real), 0.001 |real|).

The paper leaves the shape of a rectangle open. Here the area is uniform in the class's range; the ratio of
width to height, both as shares of the box's sides, is log-uniform between 1/2 and 2; and the place is
uniform among those where the rectangle lies wholly inside the box. Rectangles are closed: a point on the
edge counts. Everything here reads private data and therefore is not private.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numpy.typing import ArrayLike

from synthgeo.arrays import Floats, Ints
from synthgeo.errors import ConfigError, InputError
from synthgeo.polylines import Polylines
from synthgeo.privacy.noise import SeededNoise
from synthgeo.ragged import offsets_of, owners_of, take

__all__ = [
    "CLASSES",
    "Paths",
    "RangeQueries",
    "points_per_length",
    "random_rectangles",
    "range_counts",
    "range_query_error",
    "relative_error",
    "resample_like",
]


Bounds = tuple[float, float, float, float]

#: name of a class -> (least share, largest share, number of queries)
CLASSES: dict[str, tuple[float, float, int]] = {
    "small": (1e-4, 1e-3, 10_000),
    "medium": (1e-3, 1e-2, 5_000),
    "large": (1e-2, 1e-1, 1_000),
}
SANITY = 0.001
_WIDEST = 2.0


def random_rectangles(
    bounds: Bounds, n: int, *, share: tuple[float, float], rng: np.random.Generator
) -> Floats:
    """``n`` rectangles (minx, miny, maxx, maxy) in ``bounds``; their part of its area lies in ``share``."""
    minx, miny, maxx, maxy = (float(b) for b in bounds)
    if not (math.isfinite(maxx - minx) and maxx > minx and math.isfinite(maxy - miny) and maxy > miny):
        raise ConfigError(f"bounds must be (minx, miny, maxx, maxy) with a positive area, got {bounds!r}")
    low, high = share
    if not 0 < low <= high <= 1 / _WIDEST:
        raise ConfigError(f"share must satisfy 0 < low <= high <= {1 / _WIDEST}, got {share!r}")
    area = rng.uniform(low, high, n)
    ratio = np.exp(rng.uniform(-math.log(_WIDEST), math.log(_WIDEST), n))
    width, height = np.sqrt(area * ratio), np.sqrt(area / ratio)
    left, bottom = rng.uniform(0, 1 - width), rng.uniform(0, 1 - height)
    unit = np.column_stack([left, bottom, left + width, bottom + height])
    size = np.array([maxx - minx, maxy - miny] * 2)
    return np.asarray(np.array([minx, miny] * 2) + unit * size)


@numba.njit(cache=True, nogil=True)
def _count_in_strips(y: Floats, first: Ints, last: Ints, rectangles: Floats) -> Ints:
    counts = np.zeros(len(rectangles), dtype=np.int64)
    for q in range(len(rectangles)):
        bottom, top = rectangles[q, 1], rectangles[q, 3]
        inside = 0
        for i in range(first[q], last[q]):
            inside += (y[i] >= bottom) & (y[i] <= top)
        counts[q] = inside
    return counts


def range_counts(xy: ArrayLike, rectangles: Floats) -> Ints:
    """How many points lie in each closed rectangle.

    The points are sorted by x once; a query then reads the strip between its two sides. Measured: 16,000
    queries of the three classes on 10^6 points take about a second, so nothing cleverer is needed.
    """
    points = _points(xy)
    order = np.argsort(points[:, 0], kind="stable")
    x, y = points[order, 0], np.ascontiguousarray(points[order, 1])
    first = np.searchsorted(x, rectangles[:, 0], side="left")
    last = np.searchsorted(x, rectangles[:, 2], side="right")
    counts: Ints = _count_in_strips(y, first, last, np.ascontiguousarray(rectangles))
    return counts


def relative_error(true: ArrayLike, synthetic: ArrayLike, *, sanity: float) -> float:
    """Mean of |true - synthetic| / max(true, sanity) over queries."""
    if not sanity > 0:
        raise ConfigError(f"sanity must be > 0, got {sanity!r}")
    real = np.asarray(true, dtype=np.float64)
    return float(np.mean(np.abs(real - np.asarray(synthetic, dtype=np.float64)) / np.maximum(real, sanity)))


@dataclass(frozen=True)
class RangeQueries:
    """A fixed set of rectangle queries, drawn once and put to as many steps of a stream as there are.

    >>> queries = RangeQueries.draw((0.0, 0.0, 1.0, 1.0), seed=3, counts={"small": 50, "large": 10})
    >>> xy = np.column_stack([np.linspace(0, 1, 101), np.linspace(0, 1, 101)])
    >>> queries.error(xy, xy)
    {'small': 0.0, 'large': 0.0}
    """

    rectangles: dict[str, Floats]
    bounds: Bounds

    @classmethod
    def draw(cls, bounds: Bounds, *, seed: int = 0, counts: dict[str, int] | None = None) -> RangeQueries:
        """Draw the three classes (10,000, 5,000 and 1,000 queries unless ``counts`` says otherwise)."""
        wanted = {name: n for name, (_, _, n) in CLASSES.items()} if counts is None else dict(counts)
        unknown = set(wanted) - set(CLASSES)
        if unknown or not wanted or any(n < 1 for n in wanted.values()):
            raise ConfigError(f"counts must map some of {list(CLASSES)} to numbers >= 1, got {counts!r}")
        rng = SeededNoise(seed).rng
        drawn = {
            name: random_rectangles(bounds, n, share=CLASSES[name][:2], rng=rng) for name, n in wanted.items()
        }
        return cls(drawn, tuple(float(b) for b in bounds))  # type: ignore[arg-type]

    def counts(self, xy: ArrayLike) -> dict[str, Ints]:
        """Points in each rectangle, by class."""
        flat = range_counts(xy, np.concatenate(list(self.rectangles.values())))
        cuts = np.cumsum([len(r) for r in self.rectangles.values()])[:-1]
        return dict(zip(self.rectangles, np.split(flat, cuts), strict=True))

    def error(self, real: ArrayLike, synthetic: ArrayLike) -> dict[str, float]:
        """Mean relative error of each class; sanity bound 0.1 % of the real points.

        Counts are compared as they are: a synthetic dataset of the wrong size is wrong. With no real point
        the sanity bound is that of one point, so the result stays finite.
        """
        points = _points(real)
        sanity = SANITY * max(len(points), 1)
        true, released = self.counts(points), self.counts(synthetic)
        return {name: relative_error(true[name], released[name], sanity=sanity) for name in self.rectangles}


def range_query_error(
    real: ArrayLike,
    synthetic: ArrayLike,
    *,
    bounds: Bounds,
    seed: int = 0,
    counts: dict[str, int] | None = None,
) -> dict[str, float]:
    """Mean relative error of small, medium and large rectangle queries. For the curator only.

    ``real`` and ``synthetic`` are (n, 2) arrays in the coordinates of ``bounds`` (the domain's box).
    """
    return RangeQueries.draw(bounds, seed=seed, counts=counts).error(real, synthetic)


def _points(xy: Any) -> Floats:
    points = np.asarray(xy, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] != 2:
        raise InputError(f"points must be an (n, 2) array of x and y, got shape {points.shape}")
    if not np.isfinite(points).all():
        row = int(np.flatnonzero(~np.isfinite(points).all(axis=1))[0])
        raise InputError(f"points: the coordinates in row {row} are not finite")
    return points


# Trips as polylines: lengths, diameters, even resampling. What the trip metrics stand on.
#
# A set of trips is a flat (n, 2) array ``xy`` and offsets ``start`` (m + 1): trip i is ``xy[start[i]:start[i
# + 1]]``. ``trajectories.reading.points.Trips`` has these two attributes, and so has anything else that wants
# to be measured.


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

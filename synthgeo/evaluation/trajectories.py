"""How much synthetic trips look like the real ones, in ten numbers. For the curator only.

Conventions, the same for all:

* The grids and the query box span the bounding box of the **real** trips. Points outside count for the
  nearest cell.
* Jensen-Shannon figures use base-2 logarithms: 0 is equal, 1 is disjoint. ``se_jsd`` and ``fp_jsd`` are the
  *metric* (the root of the divergence), ``trip``, ``diameter`` and ``length`` the divergence, each as its
  source has it. A side without any mass against one with mass gives 1.
* Counts of the synthetic trips are scaled by (real trips / synthetic trips), so the two sides may differ in
  size.
* Ties among frequent patterns are broken by count, then the shorter pattern, then its cells: the same input
  gives the same set.

The figures (lower is better, except for ``tau`` and ``f1``):

* ``se_jsd``, ``se_are``: pairs (first cell, last cell) on a 40x40 grid; are is the mean of |c - ĉ| / max(c,
  1) over the pairs that either side has.
* ``fp_jsd``, ``fp_are``: the 200 most frequent patterns of the real trips, 2-5 consecutive raw cells of the
  40x40 grid.
* ``qe``: 500 rectangles of 0.01-0.1 % of the box; trips whose path, sampled every 50 m, touches one; sanity
  bound 0.1 % of the trips.
* ``tau``: Kendall's tau-b of the 225 cells of a 15x15 grid by the number of points in each.
* ``f1``: overlap of the two sets of 100 most frequent patterns, 2-8 cells of a 6x6 grid with repeats
  collapsed.
* ``trip``: pairs (first cell, last cell) on the 6x6 grid.
* ``diameter``, ``length``: 20 equal buckets from 0 to the largest real value; longer synthetic trips fall
  in the last one.

se, fp and qe follow section 5.6.2 of Kumar, *Differentially Private Synthetic Data Generation of Data
Collected Over Time*, but ``qe`` is on paths, since sparse points flatter a method; the rest is the set of
Gursoy et al., *Utility-Aware Synthesis of Differentially Private and Attack-Resilient Location Traces*
(AdaTrace). Raw cells, points and visits depend on how densely a trip is sampled, so ``trip_scores`` first
gives the synthetic trips as many points a kilometre as the real ones.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numba
import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import kendalltau

from synthgeo import ragged
from synthgeo.arrays import Floats, Ints
from synthgeo.domain.box import SpatialDomain
from synthgeo.errors import ConfigError
from synthgeo.evaluation.spatial import Bounds, Paths, random_rectangles, relative_error, resample_like
from synthgeo.privacy.noise import SeededNoise
from synthgeo.privacy.unit import PrivacyUnit


@dataclass(frozen=True)
class TripScores:
    """The ten figures of one comparison. See the module for what each means."""

    se_jsd: float
    se_are: float
    fp_jsd: float
    fp_are: float
    qe: float
    tau: float
    f1: float
    trip: float
    diameter: float
    length: float

    def as_dict(self) -> dict[str, float]:
        """Plain numbers by name."""
        return asdict(self)

    @staticmethod
    def mean(scores: list[TripScores]) -> TripScores:
        """The mean over several runs, figure by figure."""
        if not scores:
            raise ConfigError("a mean needs at least one comparison")
        table = [score.as_dict() for score in scores]
        return TripScores(**{name: float(np.mean([row[name] for row in table])) for name in table[0]})


@dataclass(frozen=True)
class ScoreGrid:
    """A uniform grid of ``side`` x ``side`` cells over a box."""

    bounds: Bounds
    side: int

    def cells(self, xy: Floats) -> Ints:
        """Cell of each point, column-major; points outside count for the nearest cell."""
        minx, miny, maxx, maxy = self.bounds
        size = np.array([maxx - minx, maxy - miny])
        scaled = (xy - (minx, miny)) * (self.side / np.where(size > 0, size, np.inf))
        column, row = np.clip(np.floor(scaled), 0, self.side - 1).astype(np.int64).T
        return np.asarray(column * self.side + row)


def trip_scores(
    real: Any,
    synthetic: Any,
    *,
    domain: SpatialDomain | None = None,
    resample: bool = True,
    bounds: Bounds | None = None,
    seed: int = 0,
) -> TripScores:
    """All ten figures of synthetic trips against the real ones. For the curator only: not private.

    Parameters
    ----------
    real, synthetic
        Objects with ``xy`` and ``start`` (``trajectories.reading.points.Trips``), or lists of (k, 2) arrays,
        in the same metric coordinates. With ``domain``, also whatever ``read_trips`` takes (frames, paths).
    domain
        Where frames are read to: its CRS, which should be in metres.
    resample
        Give the synthetic trips as many points a kilometre as the real ones first.
    bounds
        Box of grids and queries; the bounding box of the real trips when not given.
    seed
        Which rectangles are asked.
    """
    truth, made = read_paths(real, domain), read_paths(synthetic, domain)
    if resample:
        made = resample_like(made, truth)
    box = truth.bounds() if bounds is None else bounds
    se_jsd, se_are = start_end_error(truth, made, bounds=box)
    fp_jsd, fp_are = pattern_error(truth, made, bounds=box)
    return TripScores(
        se_jsd=se_jsd,
        se_are=se_are,
        fp_jsd=fp_jsd,
        fp_are=fp_are,
        qe=path_query_error(truth, made, bounds=box, seed=seed),
        tau=popularity_tau(truth, made, bounds=box),
        f1=pattern_f1(truth, made, bounds=box),
        trip=start_end_error(truth, made, bounds=box, side=6)[0] ** 2,
        diameter=bucket_divergence(truth.diameters(), made.diameters()),
        length=bucket_divergence(truth.lengths(), made.lengths()),
    )


def trip_floor(
    real: Any,
    *,
    domain: SpatialDomain | None = None,
    repeats: int = 5,
    bounds: Bounds | None = None,
    seed: int = 0,
    resample: bool = False,
) -> TripScores:
    """Two random halves of the real trips against each other, the mean over ``repeats`` splits.

    No method that learns from a sample can be expected to do better than this. The halves are compared as
    recorded unless ``resample`` says otherwise.
    """
    truth = read_paths(real, domain)
    box = truth.bounds() if bounds is None else bounds
    scores = []
    for turn in range(repeats):
        one, other = truth.halves(seed=seed + turn)
        scores.append(trip_scores(one, other, resample=resample, bounds=box, seed=seed + turn))
    return TripScores.mean(scores)


def read_paths(data: Any, domain: SpatialDomain | None = None) -> Paths:
    """Trips as polylines; frames and files of points need the domain whose CRS they are read to."""
    if domain is None or isinstance(data, list | tuple) or (hasattr(data, "xy") and hasattr(data, "start")):
        return Paths.of(data)
    from trajectories.reading.points import read_trips

    return Paths.of(read_trips(data, domain, unit=PrivacyUnit.trajectory()))


def divergence(p: ArrayLike, q: ArrayLike) -> float:
    """Jensen-Shannon divergence, base 2, of two non-negative vectors that need not be normalised.

    >>> divergence([1, 1], [5, 5]), divergence([1, 0], [0, 3])
    (0.0, 1.0)
    """
    one, other = np.asarray(p, dtype=np.float64), np.asarray(q, dtype=np.float64)
    if one.sum() <= 0 or other.sum() <= 0:
        return 0.0 if one.sum() == other.sum() else 1.0
    one, other = one / one.sum(), other / other.sum()
    middle = (one + other) / 2

    def surprise(part: Floats) -> float:
        here = part > 0
        return float(np.sum(part[here] * np.log2(part[here] / middle[here])))

    return min(max((surprise(one) + surprise(other)) / 2, 0.0), 1.0)


def start_end_error(real: Paths, synthetic: Paths, *, bounds: Bounds, side: int = 40) -> tuple[float, float]:
    """Error of the pairs (first cell, last cell): Jensen-Shannon metric and average relative error."""
    grid = ScoreGrid(bounds, side)

    def pairs(paths: Paths) -> Ints:
        return grid.cells(paths.first) * side**2 + grid.cells(paths.last)

    keys, which = np.unique(np.concatenate([pairs(real), pairs(synthetic)]), return_inverse=True)
    true = np.bincount(which[: real.size], minlength=len(keys))
    made = np.bincount(which[real.size :], minlength=len(keys)) * (real.size / synthetic.size)
    return float(np.sqrt(divergence(true, made))), relative_error(true, made, sanity=1.0)


def pattern_error(
    real: Paths, synthetic: Paths, *, bounds: Bounds, side: int = 40, longest: int = 5, top: int = 200
) -> tuple[float, float]:
    """Error of the counts of the real trips' most frequent patterns: as ``start_end_error``.

    A pattern is 2 to ``longest`` consecutive raw cells; every occurrence counts.
    """
    grid = ScoreGrid(bounds, side)
    patterns, true = _frequent(grid.cells(real.xy), real.start, side**2, longest, top)
    if not len(patterns):  # every real trip is a single point: there is no pattern to miss
        return 0.0, 0.0
    found = _occurrences(patterns, grid.cells(synthetic.xy), synthetic.start, side**2, longest)
    made = found * (real.size / synthetic.size)
    return float(np.sqrt(divergence(true, made))), relative_error(true, made, sanity=1.0)


def pattern_f1(
    real: Paths, synthetic: Paths, *, bounds: Bounds, side: int = 6, longest: int = 8, top: int = 100
) -> float:
    """F1 of the most frequent synthetic patterns as a guess of the real ones, repeats of a cell collapsed."""
    grid = ScoreGrid(bounds, side)
    found = []
    for paths in (real, synthetic):
        cells, start = _collapse(grid.cells(paths.xy), paths.start)
        found.append(_frequent(cells, start, side**2, longest, top)[0])
    one, other = found
    if not len(one) and not len(other):
        return 1.0
    both = len(np.intersect1d(one, other, assume_unique=True))
    return 2 * both / (len(one) + len(other))


def popularity_tau(real: Paths, synthetic: Paths, *, bounds: Bounds, side: int = 15) -> float:
    """Kendall's tau-b between the cells' numbers of points.

    Cells that neither side visits are ties, which tau-b discounts. 0 when one side has all cells tied
    (tau-b is not defined there).
    """
    grid = ScoreGrid(bounds, side)
    visits = [np.bincount(grid.cells(paths.xy), minlength=side**2) for paths in (real, synthetic)]
    if any(v.min() == v.max() for v in visits):
        return 0.0
    return float(kendalltau(visits[0], visits[1], variant="b").statistic)


def path_query_error(
    real: Paths,
    synthetic: Paths,
    *,
    bounds: Bounds,
    queries: int = 500,
    share: tuple[float, float] = (1e-4, 1e-3),
    every: float = 50.0,
    seed: int = 0,
) -> float:
    """Mean relative error of the number of trips that touch a rectangle, sanity 0.1 % of the real trips.

    Points are joined by straight lines and the path is sampled evenly, at most ``every`` metres apart. For
    the shape of the rectangles see ``synthgeo.evaluation.spatial``.
    """
    rectangles = random_rectangles(_widened(bounds), queries, share=share, rng=SeededNoise(seed).rng)
    true = trips_touching(real.every(every), rectangles)
    made = trips_touching(synthetic.every(every), rectangles) * (real.size / synthetic.size)
    return relative_error(true, made, sanity=0.001 * real.size)


def bucket_divergence(real: Floats, synthetic: Floats, *, buckets: int = 20) -> float:
    """Jensen-Shannon divergence of two samples in equal buckets from 0 to the largest real value."""
    top = float(np.max(real))
    if top <= 0:
        return divergence([len(real), 0], [np.sum(synthetic <= 0), np.sum(synthetic > 0)])

    def histogram(values: Floats) -> Ints:
        bucket = np.minimum(np.floor(values * (buckets / top)), buckets - 1).astype(np.int64)
        return np.bincount(bucket, minlength=buckets)

    return divergence(histogram(real), histogram(synthetic))


def trips_touching(paths: Paths, rectangles: Floats) -> Ints:
    """How many trips have at least one point in each closed rectangle."""
    order = np.argsort(paths.xy[:, 0], kind="stable")
    x, y = paths.xy[order, 0], paths.xy[order, 1].copy()
    first = np.searchsorted(x, rectangles[:, 0], side="left")
    last = np.searchsorted(x, rectangles[:, 2], side="right")
    counts: Ints = _distinct_in_strips(
        y, paths.trip[order], paths.size, first, last, np.ascontiguousarray(rectangles)
    )
    return counts


@numba.njit(cache=True, nogil=True)
def _distinct_in_strips(
    y: Floats, trip: Ints, trips: int, first: Ints, last: Ints, rectangles: Floats
) -> Ints:
    seen = np.full(trips, -1, dtype=np.int64)
    counts = np.zeros(len(rectangles), dtype=np.int64)
    for q in range(len(rectangles)):
        for i in range(first[q], last[q]):
            if rectangles[q, 1] <= y[i] <= rectangles[q, 3] and seen[trip[i]] != q:
                seen[trip[i]] = q
                counts[q] += 1
    return counts


def _widened(bounds: Bounds) -> Bounds:
    """A box of positive area: all real trips on one line, or at one place, still can be asked about."""
    minx, miny, maxx, maxy = bounds
    room = 0.5 * max(maxx - minx, maxy - miny, 1.0) * 1e-3
    if maxx <= minx:
        minx, maxx = minx - room, maxx + room
    if maxy <= miny:
        miny, maxy = miny - room, maxy + room
    return minx, miny, maxx, maxy


def _collapse(cells: Ints, start: Ints) -> tuple[Ints, Ints]:
    """Cell sequences without immediate repeats, and their offsets."""
    keep = np.ones(len(cells), dtype=bool)
    keep[1:] = cells[1:] != cells[:-1]
    keep[start[:-1]] = True
    return cells[keep], ragged.where(start, keep)


def _patterns(cells: Ints, start: Ints, alphabet: int, length: int) -> Ints:
    """Code of each run of ``length`` consecutive cells that lies inside one trip.

    Codes of different lengths differ, too: a code is the cells + 1 as digits in base alphabet + 1, and no
    digit is 0.
    """
    if (alphabet + 1) ** length >= 2**63:
        raise ConfigError(
            f"patterns of {length} cells out of {alphabet} do not fit in 63 bits: use a coarser grid"
        )
    end = np.repeat(start[1:], np.diff(start))
    begins = np.flatnonzero(np.arange(len(cells)) + length <= end)
    code = np.zeros(len(begins), dtype=np.int64)
    for step in range(length):
        code = code * (alphabet + 1) + cells[begins + step] + 1
    return code


def _frequent(cells: Ints, start: Ints, alphabet: int, longest: int, top: int) -> tuple[Ints, Ints]:
    """The ``top`` most frequent patterns of 2 to ``longest`` cells and their counts."""
    codes, counts = [], []
    for length in range(2, longest + 1):
        code, count = np.unique(_patterns(cells, start, alphabet, length), return_counts=True)
        codes.append(code)
        counts.append(count)
    code, count = np.concatenate(codes), np.concatenate(counts)
    # A shorter pattern has a smaller code, so ascending code is "shorter first, then by its cells".
    order = np.lexsort((code, -count))[:top]
    return code[order], count[order]


def _occurrences(patterns: Ints, cells: Ints, start: Ints, alphabet: int, longest: int) -> Ints:
    """How often each of ``patterns`` occurs in the cell sequences."""
    order = np.argsort(patterns)
    known = patterns[order]
    total = np.zeros(len(patterns), dtype=np.int64)
    for length in range(2, longest + 1):
        code = _patterns(cells, start, alphabet, length)
        place = np.minimum(np.searchsorted(known, code), len(known) - 1)
        total += np.bincount(place[known[place] == code], minlength=len(known))
    result = np.empty_like(total)
    result[order] = total
    return result


__all__ = [
    "ScoreGrid",
    "TripScores",
    "bucket_divergence",
    "divergence",
    "path_query_error",
    "pattern_error",
    "pattern_f1",
    "popularity_tau",
    "read_paths",
    "start_end_error",
    "trip_floor",
    "trip_scores",
    "trips_touching",
]

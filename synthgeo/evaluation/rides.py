"""How much synthetic trips ride like the real ones: speeds, hours, turns. For the curator only.

Both sides need times, in metric coordinates; hours are those of the time zone that is given. Conventions:

* ``speed``: of each trip, the metres from point to point over its duration. By hour of the day, only hours
  with more than 1 % of the real trips.
* ``variation``: of each trip with three steps or more, the standard deviation of its speeds from point to
  point over their mean; the mean over trips. It depends on how often points come: compare like with like.
* ``turns``: angles between successive steps of trips whose points are thinned to 20 metres apart or more, so
  that slow or close points count as little as standing still does.
* ``place_hour``: mutual information, in nats, of the first point's zone (a square of 3 km) and the hour of
  the day. Small samples show some even of independent columns: compare as many trips as there are.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numba
import numpy as np
import pandas as pd

from synthgeo import ragged
from synthgeo.arrays import Floats, Ints
from synthgeo.domain.roads import RoadDomain
from synthgeo.errors import InputError
from synthgeo.evaluation.spatial import Paths, resample_like
from synthgeo.evaluation.trajectories import ScoreGrid, bucket_divergence, divergence, read_paths
from synthgeo.privacy.noise import SeededNoise
from synthgeo.privacy.unit import PrivacyUnit
from synthgeo.ragged import ranks_of, sums
from synthgeo.sources.declared import Reading

__all__ = ["RideScores", "TripHalf", "hotspot_gain", "mobility_scores", "ride_errors", "ride_scores"]


_TINY = 0.01  # below which a real figure is none
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


def ride_errors(real: Any, release: Any) -> dict[str, float]:
    """How far the rides of a release are from the real ones, as ``sg.evaluate`` reports it: not private."""
    sides = [_in_metres(_timed(side, release), release.domain) for side in (real, release)]
    found = ride_scores(*sides, tz=_zone(release))

    def relative(made: float, true: float) -> float:
        return abs(made - true) / max(abs(true), _TINY)

    return {
        "speed_by_hour": found.speed_by_hour,
        "speed_variation": relative(found.variation, found.variation_real),
        "half_turns": abs(found.half_turns - found.half_turns_real),
        "turns_per_km": relative(found.turns, found.turns_real),
        "place_hour": relative(found.place_hour, found.place_hour_real),
        "od_hours": found.place_hour_blocks,
    }


@dataclass(frozen=True, eq=False)
class TripHalf:
    """Half of the real trips, in the place of the private trips or of a release."""

    xy: Floats
    start: Ints
    time: Floats | None
    domain: Any
    provenance: Any

    @classmethod
    def of(cls, real: Any, release: Any) -> tuple[TripHalf, TripHalf]:
        """Two random halves of the real trips."""
        trips = _read(real, release)
        if not trips.size:
            raise InputError("trips: there is no trip to measure")
        order = SeededNoise(0).rng.permutation(trips.size)
        half = max(trips.size // 2, 1)
        order = np.resize(order, 2 * half)  # a single trip is both halves
        parts = [trips.take(order[low : low + half]) for low in (0, half)]
        one, other = (
            cls(part.xy, part.start, part.time, release.domain, release.provenance) for part in parts
        )
        return one, other


def _read(data: Any, release: Any) -> Any:
    """Trips with ``xy``, ``start`` and ``time``; frames and files are read to the domain of the release."""
    from trajectories.reading.points import Trips, read_trips

    if hasattr(data, "xy") and hasattr(data, "start"):
        return Trips(data.xy, data.start, getattr(data, "time", None))
    if isinstance(data, list | tuple) and len(data) and isinstance(data[0], np.ndarray):
        paths = Paths.of(data)
        return Trips(paths.xy, paths.start)
    # Clock times without a zone are those of the synthesizer's, as they were to its fit.
    clocks = Reading(tz=_zone(release))
    return read_trips(data, release.domain, unit=PrivacyUnit.trajectory(), reading=clocks)


def _in_metres(trips: Any, domain: Any) -> Any:
    """Trips of a domain in degrees, or in units of its own, in metres."""
    from trajectories.reading.points import metres_per_unit

    return replace(trips, xy=trips.xy * metres_per_unit(domain))


def _timed(data: Any, release: Any) -> Any:
    """The same of real trips, or of a release."""
    if data is not release or isinstance(data, TripHalf):
        return _read(data, release)
    from trajectories.reading.points import Trips

    frame = release.to_pandas()
    if "time" not in frame:
        raise InputError("ride scores need trips with times")
    time = pd.DatetimeIndex(pd.to_datetime(frame["time"], utc=True)).tz_localize(None)
    seconds = (time - pd.Timestamp(0)) / pd.Timedelta(seconds=1)
    return Trips(release.xy, release.start, np.asarray(seconds, dtype=np.float64))


def _zone(release: Any) -> str:
    return str(release.provenance.get("tz", "UTC"))


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
        kept = _thinned(self.xy, self.start, _STEP)
        owner = ragged.owners_of(self.start)[kept]
        inner = owner[1:] == owner[:-1]
        step, trip = np.diff(self.xy[kept], axis=0)[inner], owner[1:][inner]
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


@numba.njit(cache=True)
def _thinned(xy: Floats, start: Ints, metres: float) -> Ints:
    """Rows of points at least so far from the one kept before, of each trip from its first on."""
    kept = np.empty(len(xy), dtype=np.int64)
    filled = 0
    for trip in range(len(start) - 1):
        for i in range(start[trip], start[trip + 1]):
            if i > start[trip]:
                last = kept[filled - 1]
                if np.hypot(xy[i, 0] - xy[last, 0], xy[i, 1] - xy[last, 1]) < metres:
                    continue
            kept[filled] = i
            filled += 1
    return kept[:filled]


def _by_hour(true: _Rides, made: _Rides) -> float:
    worst = 0.0
    for hour in range(24):
        here, there = true.speed[true.hour == hour], made.speed[made.hour == hour]
        if len(here) > _LEAST * true.size:
            error = abs(np.nanmean(there) / np.nanmean(here) - 1) if len(there) else 1.0
            worst = max(worst, float(error))
    return worst


# What papers on synthetic mobility report beside the ten figures of ``trajectories``. For the curator only.
#
# Grids span the bounding box of the real trips, and the synthetic trips are given as many points a kilometre
# as the real ones, as there. Jensen-Shannon figures are divergences with base-2 logarithms.
#
# * ``density``: points on a 40x40 grid. ``transitions``: steps between cells of a 15x15 grid that differ.
# * ``hotspots``: the 20 cells of a 15x15 grid that synthetic points visit most, as a ranking of the real
#   visits: normalised discounted cumulative gain, 1 is best. These three as Du et al. (LDPTrace, 2023) and Hu
#   et al. (RetraSyn, 2024) define them, but for the grids.
# * ``gyration``: the root mean square distance of a trip's points from their middle, in 20 equal buckets.
# * ``flows``: metres driven on each street, the sum of absolute differences over the sum of the real ones. A
#   path is sampled every 100 metres and counts for the nearest street; off roads, for cells of a 40x40 grid.
# * ``od_paths``: trips of both sides that start in the same cell of a 15x15 grid and end in the same one, one
#   real with one synthetic: the mean Hausdorff distance of their paths in metres, at 17 points each (as HOSER
#   compares paths of the same ends, Cao et al. 2025).

_FINE, _COARSE, _TOP = 40, 15, 20
_EVERY = 100.0  # metres
_PIECES = 16


def mobility_scores(real: Any, synthetic: Any, *, domain: Any = None) -> dict[str, float]:
    """The six figures of synthetic trips against the real ones: not private. ``domain`` is that of both, and
    names the streets where it is a ``RoadDomain``.
    """
    truth, made = (_paths_in_metres(read_paths(side, domain), domain) for side in (real, synthetic))
    made = resample_like(made, truth)
    box = truth.bounds()
    fine, coarse = ScoreGrid(box, _FINE), ScoreGrid(box, _COARSE)
    visits = [_counts(coarse.cells(paths.xy), _COARSE**2) for paths in (truth, made)]
    return {
        "density": divergence(*(_counts(fine.cells(paths.xy), _FINE**2) for paths in (truth, made))),
        "transitions": divergence(*(_moves(coarse, paths) for paths in (truth, made))),
        "hotspots": hotspot_gain(*visits, top=_TOP),
        "gyration": bucket_divergence(_gyration(truth), _gyration(made)),
        "flows": _flow_error(truth, made, domain, fine),
        "od_paths": _path_distance(truth, made, coarse),
    }


def _paths_in_metres(paths: Paths, domain: Any) -> Paths:
    """Paths in a domain that is in degrees, or in units of its own, in metres. Roads are in metres."""
    from trajectories.reading.points import metres_per_unit

    if domain is None or isinstance(domain, RoadDomain):
        return paths
    return Paths(paths.xy * metres_per_unit(domain), paths.start)


def hotspot_gain(real: Floats, synthetic: Floats, *, top: int) -> float:
    """Normalised discounted cumulative gain of the ``top`` places of one ranking by the numbers of the other.

    >>> hotspot_gain(np.array([4.0, 2.0, 0.0]), np.array([9.0, 5.0, 1.0]), top=2)
    1.0
    """
    discount = 1 / np.log2(np.arange(min(top, len(real))) + 2)
    best = np.sort(real)[::-1][: len(discount)] @ discount
    found = real[np.argsort(-synthetic, kind="stable")[: len(discount)]] @ discount
    return float(found / best) if best > 0 else 1.0


def _counts(index: Ints, size: int) -> Floats:
    return np.bincount(index, minlength=size).astype(np.float64)


def _moves(grid: ScoreGrid, paths: Paths) -> Floats:
    cells, trip = grid.cells(paths.xy), paths.trip
    moved = (trip[1:] == trip[:-1]) & (cells[1:] != cells[:-1])
    size = grid.side**2
    return _counts(cells[:-1][moved] * size + cells[1:][moved], size**2)


def _gyration(paths: Paths) -> Floats:
    number = np.diff(paths.start)
    middle = sums(paths.xy, paths.start) / number[:, None]
    squares = ((paths.xy - middle[paths.trip]) ** 2).sum(axis=1)
    return np.sqrt(sums(squares, paths.start) / number)


def _flow_error(real: Paths, synthetic: Paths, domain: Any, grid: ScoreGrid) -> float:
    flows = []
    for paths in (real, synthetic):
        xy = paths.every(_EVERY).xy
        if isinstance(domain, RoadDomain):
            flow = _counts(domain.nearest(xy)[0], len(domain.network.edge_u))
        else:
            flow = _counts(grid.cells(xy), grid.side**2)
        flows.append(flow / paths.size)
    true, made = flows
    return float(np.abs(true - made).sum() / max(true.sum(), 1e-300))


def _path_distance(real: Paths, synthetic: Paths, grid: ScoreGrid) -> float:
    """Mean Hausdorff distance of paths between the same cells; NaN where none have the same."""
    size = grid.side**2
    named = []
    for paths in (real, synthetic):
        pair = grid.cells(paths.first) * size + grid.cells(paths.last)
        order = np.argsort(pair, kind="stable")
        rank = ranks_of(np.unique(pair, return_counts=True)[1])
        named.append((np.stack([pair[order], rank]), order))
    (one, order), (two, other) = named
    most = int(max(one[1].max(), two[1].max())) + 1
    _, first, second = np.intersect1d(one[0] * most + one[1], two[0] * most + two[1], return_indices=True)
    if not len(first):
        return float("nan")
    shapes = [
        paths.take(index).at(np.full(len(index), _PIECES)).xy.reshape(-1, _PIECES + 1, 2)
        for paths, index in ((real, order[first]), (synthetic, other[second]))
    ]
    apart = np.hypot(*np.moveaxis(shapes[0][:, :, None] - shapes[1][:, None], -1, 0))
    return float(np.maximum(apart.min(axis=2).max(axis=1), apart.min(axis=1).max(axis=1)).mean())

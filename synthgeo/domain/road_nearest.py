"""The nearest road segment of many points.

A grid of small squares remembers, for each square that some point fell into, the segments that can be
nearest to anything in it: with d the distance of the square's centre to the nearest segment and r half its
diagonal, these lie within d + 2r of the centre. A search tree answers that once for each square; after that
a million points are a few numpy calls. Ties go to the lowest segment number, so the answer does not depend
on what was asked before. All segments within a distance of a point are found likewise: those of its square
lie within that distance + r of the centre.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
import shapely

from synthgeo import ragged
from synthgeo.arrays import Bools, Floats, Ints, Points
from synthgeo.domain.road_network import Segments

_PAIRS = 1 << 20  # point-segment pairs at a time
_SQUARES = 1 << 21  # squares remembered before starting over


class _Memory(NamedTuple):
    square: Ints  # sorted
    first: Ints  # where each square's candidates begin
    size: Ints
    candidate: Ints


_NOTHING = _Memory(*(np.zeros(0, dtype=np.int64) for _ in range(4)))


class NearestSegment:
    """Answers ``(segment, metres along it, distance)`` for points."""

    def __init__(self, segments: Segments) -> None:
        self._segments = segments
        self._tree = shapely.STRtree(shapely.linestrings(np.stack([segments.start, segments.end], axis=1)))
        corners = np.vstack([segments.start, segments.end])
        self._low, self._high = corners.min(axis=0), corners.max(axis=0)
        width, height = self._high - self._low
        # About sixteen squares per segment: five candidates per point in a city, and few tree searches.
        self._side = float(np.clip(np.sqrt(width * height / (16 * len(segments.start))), 10.0, 500.0))
        self._memories: dict[float | None, _Memory] = {}  # by distance; None: for the nearest

    def __getstate__(self) -> dict[str, Segments]:
        return {"segments": self._segments}  # what was remembered tells where points fell: it stays here

    def __setstate__(self, state: dict[str, Segments]) -> None:
        self.__init__(state["segments"])  # type: ignore[misc]

    def __call__(self, xy: Points, max_distance: float = np.inf) -> tuple[Ints, Floats, Floats]:
        """Nearest segment (-1 when farther than ``max_distance``), metres along it, distance."""
        segment = np.full(len(xy), -1, dtype=np.int64)
        along, distance = np.zeros(len(xy)), np.full(len(xy), np.inf)
        near = self._reachable(xy, max_distance)
        square = self._squares_of(xy[near])
        order = np.argsort(square, kind="stable")
        near, square = near[order], square[order]
        memory = self._remember(np.unique(square))
        slot = np.searchsorted(memory.square, square)
        counts = memory.size[slot]
        ends = np.cumsum(counts)
        start = 0
        while start < near.size:
            done = ends[start - 1] if start else 0
            stop = max(int(np.searchsorted(ends, done + _PAIRS, side="right")), start + 1)
            part = slice(start, stop)
            candidate = memory.candidate[ragged.positions(memory.first[slot[part]], counts[part])]
            found = self._closest(xy[near[part]], candidate, counts[part])
            segment[near[part]], along[near[part]], distance[near[part]] = found
            start = stop
        far = distance > max_distance
        segment[far], along[far], distance[far] = -1, 0.0, np.inf
        return segment, along, distance

    def near(self, xy: Points, distance: float) -> Bools:
        """Whether any segment is within ``distance`` of each point: the first that is will do."""
        out = np.zeros(len(xy), dtype=bool)
        some = self._reachable(xy, distance)
        square = self._squares_of(xy[some])
        memory = self._remember(np.unique(square), distance)
        slot = np.searchsorted(memory.square, square)
        segments = self._segments
        out[some] = _any_within(
            xy[some], memory.first[slot], memory.size[slot], memory.candidate, segments.start, segments.end,
            distance,
        )  # fmt: skip
        return out

    def within(self, xy: Points, distance: float) -> tuple[Ints, Ints, Floats, Floats]:
        """All pairs within ``distance``: point, segment, metres along the segment, distance."""
        square = self._squares_of(xy)
        memory = self._remember(np.unique(square), distance)
        slot = np.searchsorted(memory.square, square)
        segments = self._segments
        return _pairs_within(
            xy, memory.first[slot], memory.size[slot], memory.candidate, segments.start, segments.end,
            segments.length, distance,
        )  # fmt: skip

    def _reachable(self, xy: Points, max_distance: float) -> Ints:
        # Beyond 2^29 squares their numbers would overflow; nothing on Earth is that far.
        reach = min(max_distance, 2**29 * self._side)
        with np.errstate(invalid="ignore"):
            ok = ((xy >= self._low - reach) & (xy <= self._high + reach)).all(axis=1)
        return np.flatnonzero(ok)

    def _squares_of(self, xy: Points) -> Ints:
        cell = np.floor((xy - self._low) / self._side).astype(np.int64) + 2**30
        square: Ints = (cell[:, 0] << 32) + cell[:, 1]
        return square

    def _remember(self, squares: Ints, distance: float | None = None) -> _Memory:
        """A memory that holds these squares, with the segments that can be nearest or, where a distance is
        given, that near; swapped in whole, so that threads may ask at once.
        """
        old = self._memories.get(distance, _NOTHING)
        if old.square.size + squares.size > _SQUARES:
            old = _NOTHING
        new = squares[~np.isin(squares, old.square, assume_unique=True)]
        if new.size:
            cell = np.column_stack([new >> 32, new & (2**32 - 1)]) - 2**30
            centre = shapely.points(self._low + (cell + 0.5) * self._side)
            if distance is None:
                found = self._tree.query_nearest(centre, return_distance=True, all_matches=False)
                radius = np.empty(new.size)
                radius[found[0][0]] = found[1] + self._side * np.sqrt(2)
            else:
                radius = np.full(new.size, distance + self._side / np.sqrt(2))
            radius = radius * (1 + 1e-9) + 1e-6  # a hair more, for rounding
            owner, candidate = self._tree.query(centre, predicate="dwithin", distance=radius)
            order = np.lexsort((candidate, owner))
            counts = np.bincount(owner, minlength=new.size)
            place = np.searchsorted(old.square, new)
            old = self._memories[distance] = _Memory(
                np.insert(old.square, place, new),
                np.insert(old.first, place, old.candidate.size + ragged.starts_of(counts)),
                np.insert(old.size, place, counts),
                np.concatenate([old.candidate, candidate[order]]),
            )
        return old

    def _closest(self, xy: Points, candidate: Ints, counts: Ints) -> tuple[Ints, Floats, Floats]:
        offsets = ragged.offsets_of(counts)
        point = ragged.owners_of(offsets)
        along, apart = self._project(xy[point], candidate)
        best = ragged.minima(apart, offsets, np.inf)[point]
        hit = np.flatnonzero(apart == best)
        owner = point[hit]
        hit = hit[np.concatenate([[True], owner[1:] != owner[:-1]])]
        return candidate[hit], along[hit], apart[hit]

    def _project(self, xy: Points, segment: Ints) -> tuple[Floats, Floats]:
        start = self._segments.start[segment]
        ax, ay = start[:, 0], start[:, 1]
        end = self._segments.end[segment]
        dx, dy = end[:, 0] - ax, end[:, 1] - ay
        px, py = xy[:, 0] - ax, xy[:, 1] - ay
        share = np.clip((px * dx + py * dy) / (dx * dx + dy * dy), 0.0, 1.0)
        apart: Floats = np.hypot(px - share * dx, py - share * dy)
        return share * self._segments.length[segment], apart


@numba.njit(cache=True, nogil=True)
def _foot(x: float, y: float, start: Floats, end: Floats) -> tuple[float, float]:
    """How much of a segment lies before its point nearest to (x, y), and how far that is."""
    dx, dy = end[0] - start[0], end[1] - start[1]
    px, py = x - start[0], y - start[1]
    share = min(max((px * dx + py * dy) / (dx * dx + dy * dy), 0.0), 1.0)
    return share, np.hypot(px - share * dx, py - share * dy)


@numba.njit(cache=True, nogil=True)
def _any_within(
    xy: Points, first: Ints, size: Ints, candidate: Ints, start: Points, end: Points, distance: float
) -> Bools:
    """Whether one of the candidates of each point is near enough."""
    out = np.zeros(len(xy), dtype=np.bool_)
    for i in range(len(xy)):
        for j in range(first[i], first[i] + size[i]):
            s = candidate[j]
            if _foot(xy[i, 0], xy[i, 1], start[s], end[s])[1] <= distance:
                out[i] = True
                break
    return out


@numba.njit(cache=True, nogil=True)
def _pairs_within(
    xy: Points, first: Ints, size: Ints, candidate: Ints, start: Points, end: Points, length: Floats,
    distance: float,
) -> tuple[Ints, Ints, Floats, Floats]:  # fmt: skip
    """The candidates of each point that are near enough, in their order."""
    most = size.sum()
    point, segment = np.empty(most, dtype=np.int64), np.empty(most, dtype=np.int64)
    along, apart = np.empty(most), np.empty(most)
    found = 0
    for i in range(len(xy)):
        for j in range(first[i], first[i] + size[i]):
            s = candidate[j]
            share, away = _foot(xy[i, 0], xy[i, 1], start[s], end[s])
            if away <= distance:
                point[found], segment[found] = i, s
                along[found], apart[found] = share * length[s], away
                found += 1
    return point[:found].copy(), segment[:found].copy(), along[:found].copy(), apart[:found].copy()

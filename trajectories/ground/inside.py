"""Ways that stay on land: lines whose segments leave it are led around, through a triangulation of the land.

A segment between two points of one triangle stays in it. So any chain of triangles that share sides gives a
way on land, by a point on each of these sides, and no grid has to be fine enough. The points slide along
their sides until the way is short.
"""

from __future__ import annotations

import numpy as np
import shapely
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from synthgeo import ragged
from synthgeo.arrays import Bools, Floats, Ints, Points
from synthgeo.polylines import Polylines

_SOURCES = 128  # triangles from which ways are looked for at once
_ROUNDS = 12  # of shortening a way


class Inside:
    """Leads lines around what is not land. Public geometry only."""

    def __init__(self, land: shapely.Geometry) -> None:
        self._land = land
        shapely.prepare(land)
        self._triangles = shapely.get_parts(shapely.constrained_delaunay_triangles(land))
        corners = shapely.get_coordinates(self._triangles).reshape(-1, 4, 2)[:, :3]
        count = len(corners)
        _, name = np.unique(corners.reshape(-1, 2), axis=0, return_inverse=True)
        name = name.reshape(-1, 3)
        sides = np.sort(np.stack([name, np.roll(name, -1, axis=1)], axis=2), axis=2).reshape(-1, 2)
        ends = np.stack([corners, np.roll(corners, -1, axis=1)], axis=2).reshape(-1, 2, 2)
        triangle = np.repeat(np.arange(count), 3)
        order = np.lexsort((sides[:, 1], sides[:, 0]))
        same = (sides[order][1:] == sides[order][:-1]).all(axis=1)
        one, two = order[:-1][same], order[1:][same]
        first, second = triangle[np.r_[one, two]], triangle[np.r_[two, one]]
        centre = corners.mean(axis=1)
        metres = np.hypot(*(centre[first] - centre[second]).T)
        self._graph = csr_array((np.maximum(metres, 1e-12), (first, second)), shape=(count, count))
        pairs = first * count + second
        rank = np.argsort(pairs)
        self._pairs, self._sides = pairs[rank], ends[np.r_[one, one]][rank]
        self._tree = shapely.STRtree(self._triangles)

    def keep(self, lines: Polylines) -> Polylines:
        """The lines, every segment that leaves the land replaced by a way on it. Between pieces of land that
        do not touch there is none: such a segment stays.
        """
        trip = ragged.owners_of(lines.offsets)
        begin = np.flatnonzero(trip[1:] == trip[:-1])
        begin = begin[~self._covers(lines.xy[begin], lines.xy[begin + 1])]
        if not len(begin):
            return lines
        points, offsets = self._ways(lines.xy[begin], lines.xy[begin + 1])
        more = np.diff(offsets)
        xy = np.insert(lines.xy, np.repeat(begin + 1, more), points, axis=0)
        added = np.bincount(trip[begin], more, minlength=len(lines.offsets) - 1).astype(np.int64)
        return Polylines(xy, lines.offsets + ragged.offsets_of(added), lines.scale)

    def _covers(self, one: Points, two: Points) -> Bools:
        inside: Bools = shapely.covers(self._land, shapely.linestrings(np.stack([one, two], axis=1)))
        return inside

    def _ways(self, one: Points, two: Points) -> tuple[Points, Ints]:
        """Points between each pair of points by which a way on land leads, and their offsets."""
        source, target = self._triangle_of(one), self._triangle_of(two)
        kept, start = np.unique(source, return_inverse=True)
        way, sides = [], []
        for low in range(0, len(kept), _SOURCES):
            here = np.flatnonzero((start >= low) & (start < low + _SOURCES))
            before = dijkstra(
                self._graph, indices=kept[low : low + _SOURCES], return_predecessors=True
            )[1]  # fmt: skip
            row, at = start[here] - low, target[here]
            step = 0
            while len(here):
                previous = before[row, at].astype(np.int64)
                on = previous >= 0  # at the source, or nowhere
                here, row, at, previous = here[on], row[on], at[on], previous[on]
                side = np.searchsorted(self._pairs, previous * self._graph.shape[0] + at)
                way.append(np.column_stack([here, np.full(len(here), -step)]))
                sides.append(self._sides[side])
                at, step = previous, step + 1
        index, side = np.concatenate(way), np.concatenate(sides)
        order = np.lexsort((index[:, 1], index[:, 0]))
        offsets = ragged.offsets_of_owners(index[order, 0], len(one))
        points = side[order].mean(axis=1)
        return self._shorter(one, two, pulled(one, two, points, side[order], offsets, 2 * _ROUNDS), offsets)

    def _triangle_of(self, xy: Points) -> Ints:
        """The triangle that holds each point, or the nearest one."""
        found: Ints = np.asarray(self._tree.nearest(shapely.points(xy)), dtype=np.int64)
        return found

    def _shorter(self, one: Points, two: Points, points: Points, offsets: Ints) -> tuple[Points, Ints]:
        """The same ways without points that can be left out."""
        for turn in range(_ROUNDS):
            asked, before, after = _neighbours(one, two, points, offsets, turn)
            kept = np.ones(len(points), dtype=bool)
            kept[asked] = ~self._covers(before, after)
            points, offsets = points[kept], ragged.where(offsets, kept)
        return points, offsets


def pulled(
    one: Points, two: Points, points: Points, sides: Floats, offsets: Ints, turns: int
) -> Points:  # fmt: skip
    """Ways from ``one`` to ``two`` by ``points``, a point on each of the ``sides``, pulled straighter: in
    each turn every other point slides to where the way from the one before to the one after is shortest.
    """
    points = points.copy()
    along = sides[:, 1] - sides[:, 0]
    metres = np.maximum(np.hypot(*along.T), 1e-300)
    for turn in range(turns):
        asked, before, after = _neighbours(one, two, points, offsets, turn)
        unit, length = along[asked] / metres[asked, None], metres[asked]
        at, far = [], []
        for xy in (before, after):
            off = xy - sides[asked, 0]
            at.append((off * unit).sum(axis=1))
            far.append(np.abs(off[:, 0] * unit[:, 1] - off[:, 1] * unit[:, 0]))
        # The mirror image of one end, seen from the other.
        crossing = (at[0] * far[1] + at[1] * far[0]) / np.maximum(far[0] + far[1], 1e-300)
        points[asked] = sides[asked, 0] + np.clip(crossing, 0.0, length)[:, None] * unit
    return points


def _neighbours(
    one: Points, two: Points, points: Points, offsets: Ints, turn: int
) -> tuple[Ints, Points, Points]:
    """Every other point of each way, with the points before and after it."""
    owner = ragged.owners_of(offsets)
    rank = np.arange(len(points)) - offsets[:-1][owner]
    asked = np.flatnonzero(rank % 2 == turn % 2)
    way = owner[asked]
    first, last = rank[asked] == 0, asked + 1 == offsets[1:][way]
    before = np.where(first[:, None], one[way], points[asked - 1])
    after = np.where(last[:, None], two[way], points[np.minimum(asked + 1, len(points) - 1)])
    return asked, before, after


__all__ = ["Inside", "pulled"]

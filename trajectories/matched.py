"""Trips as directed paths of edges, and the lines that they follow."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from synthgeo.domain.roads import RoadDomain
from trajectories.points import Trips
from trajectories.routing import Floats, Ints, RoadGraph


@dataclass(frozen=True, eq=False)
class MatchedTrips:
    """Trips as directed paths of edges. Private.

    Attributes
    ----------
    edges
        Rows of ``roads.edges``, all paths one after the other; each edge begins at the node where the one
        before ends.
    start
        (m + 1,) offsets: path i is ``edges[start[i]:start[i + 1]]``.
    first_offset, last_offset
        (m,) metres along the first edge at which the trip begins, and along the last one at which it ends.
    matched
        For each trip that was put in, whether it has a path. Trips without one are left out. Which ones,
        and how many, is private: never report it.
    time
        Seconds since 1970 at which each edge is entered (the departure, for the first), interpolated along
        the path.
    arrival
        (m,) time of each trip's end.
    user
        (m,) number of each trip's user.
    """

    edges: Ints
    start: Ints
    first_offset: Floats
    last_offset: Floats
    matched: NDArray[np.bool_]
    time: Floats | None = None
    arrival: Floats | None = None
    user: Ints | None = None

    @property
    def size(self) -> int:
        """Number of paths."""
        return len(self.start) - 1

    @property
    def trip(self) -> Ints:
        """Which path each edge belongs to."""
        return np.repeat(np.arange(self.size), np.diff(self.start))

    def lengths(self, roads: RoadDomain) -> Floats:
        """Metres driven on each path."""
        length = RoadGraph.of(roads).length[self.edges]
        whole = np.bincount(self.trip, length, minlength=self.size)
        last = length[self.start[1:] - 1]
        return whole - self.first_offset - (last - self.last_offset)

    def to_trips(self, roads: RoadDomain) -> Trips:
        """The lines that the paths follow: their ends and every vertex of the road between, without times."""
        xy, start = path_lines(roads, self.edges, self.start, self.first_offset, self.last_offset)
        return Trips(xy, start, user=self.user)

    def __repr__(self) -> str:
        return f"MatchedTrips({'with' if self.time is not None else 'without'} times)"


def path_lines(
    roads: RoadDomain, edges: Ints, start: Ints, first_offset: Floats, last_offset: Floats
) -> tuple[Floats, Ints]:
    """Points, and offsets of each path's first point, of the lines along paths of edges.

    A path begins ``first_offset`` metres along its first edge and ends ``last_offset`` metres along its last.
    """
    network = roads.network
    graph = RoadGraph.of(roads)
    low, high = np.zeros(len(edges)), graph.length[edges]
    low[start[:-1]], high[start[1:] - 1] = first_offset, last_offset
    low, high = np.minimum(low, high), np.maximum(low, high)
    vertices = np.diff(network.first_vertex)[edges]
    row = np.repeat(np.arange(len(edges)), vertices)
    vertex = np.arange(len(row)) + np.repeat(
        network.first_vertex[edges] - (np.cumsum(vertices) - vertices), vertices
    )
    reached = _metres_along(network.coordinates, network.first_vertex)[vertex]
    final = np.zeros(len(edges), dtype=bool)
    final[start[1:] - 1] = True
    # Each edge gives its place of entry and the vertices after it; only a path's last edge gives its end as
    # well.
    inside = (reached > low[row]) & (reached < high[row])
    entry = edge_points(roads, edges, low)
    ends = edge_points(roads, edges[final], high[final])
    where = np.concatenate([np.arange(len(edges)), row[inside], np.flatnonzero(final)])
    along = np.concatenate([low, reached[inside], high[final]])
    last = np.concatenate([np.zeros(len(edges) + int(inside.sum())), np.ones(int(final.sum()))])
    order = np.lexsort((last, along, where))
    xy = np.concatenate([entry, network.coordinates[vertex[inside]], ends])[order]
    path = np.repeat(np.arange(len(start) - 1), np.diff(start))
    offsets = np.searchsorted(path[where[order]], np.arange(len(start)))
    return xy, offsets.astype(np.int64)


def edge_points(roads: RoadDomain, edges: Ints, offset: Floats) -> Floats:
    """The places ``offset`` metres along edges."""
    return _places(roads.network.coordinates, roads.network.first_vertex, edges, offset)


def _metres_along(coordinates: Floats, first_vertex: Ints) -> Floats:
    """Metres from the start of its edge to each vertex."""
    step = np.zeros(len(coordinates))
    step[1:] = np.hypot(*np.diff(coordinates, axis=0).T)
    travelled = np.cumsum(step)
    return np.asarray(travelled - np.repeat(travelled[first_vertex[:-1]], np.diff(first_vertex)))


def _places(coordinates: Floats, first_vertex: Ints, edges: Ints, offset: Floats) -> Floats:
    """The places ``offset`` metres along edges."""
    step = np.zeros(len(coordinates))
    step[1:] = np.hypot(*np.diff(coordinates, axis=0).T)
    travelled = np.cumsum(step)
    first, last = first_vertex[edges], first_vertex[edges + 1] - 1
    target = travelled[first] + offset
    after = np.clip(np.searchsorted(travelled, target, side="left"), np.minimum(first + 1, last), last)
    before = np.maximum(after - 1, first)
    gap = travelled[after] - travelled[before]
    share = np.divide(target - travelled[before], gap, out=np.zeros_like(gap), where=gap > 0)
    share = np.clip(share, 0.0, 1.0)[:, None]
    return np.asarray(coordinates[before] + share * (coordinates[after] - coordinates[before]))


__all__ = ["MatchedTrips", "edge_points", "path_lines"]

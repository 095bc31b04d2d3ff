"""From matched points to connected paths: gaps routed, little excursions taken back, times carried over."""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np

from synthgeo.arrays import Array, Bools, Floats, Ints
from synthgeo.domain.roads import RoadDomain
from synthgeo.ragged import owners_of
from trajectories.reading.points import Trips
from trajectories.routing import RoadGraph, path_lines, routes_between_edges

__all__ = ["MatchedPoints", "MatchedTrips", "assemble", "only", "without_spurs"]


@dataclass(frozen=True, eq=False)
class MatchedPoints:
    """The place on an edge that each of some points of ``trips`` was put to, in the order of the points."""

    point: Ints
    edge: Ints
    offset: Floats


def assemble(
    trips: Trips,
    graph: RoadGraph,
    points: MatchedPoints,
    *,
    weight: str,
    u_turn: float,
    spur: float,
    backtrack: bool,
) -> MatchedTrips:
    """Paths through the matched points of each trip: stay on an edge, or route from its end to the next edge.

    With ``backtrack`` a point behind the one before it on the same edge has not moved; without, it is
    reached by the way round. Excursions of at most ``spur`` metres, out and back over the same road, are
    taken out.
    """
    trip = trips.trip[points.point]
    opens = np.ones(len(trip), dtype=bool)
    opens[1:] = trip[1:] != trip[:-1]
    edge, offset = points.edge, points.offset
    moves = ~opens
    moves[1:] &= (edge[1:] != edge[:-1]) | ((offset[1:] < offset[:-1]) & (not backtrack))
    mover = np.flatnonzero(moves)
    routes = routes_between_edges(graph, edge[mover - 1], edge[mover], weight=weight, u_turn=u_turn)
    # Each point adds to its path the route that leads to its edge, and the edge itself unless it stays on it.
    between = np.zeros(len(trip), dtype=np.int64)
    between[mover] = np.diff(routes.start)
    adds = between + (opens | moves)
    end = np.cumsum(adds)
    path = np.empty(end[-1] if len(end) else 0, dtype=np.int64)
    path[end[opens | moves] - 1] = edge[opens | moves]
    slot = np.repeat(end[mover] - adds[mover] - routes.start[:-1], between[mover]) + np.arange(
        len(routes.edges)
    )
    path[slot] = routes.edges
    begins = np.flatnonzero(opens)
    start = np.concatenate([(end - adds)[begins], [len(path)]]).astype(np.int64)
    place = end - 1
    if spur > 0:
        kept = without_spurs(path, start, graph.opposite, graph.length, spur, False)
        path, start, place, offset = _take_back(path, start, place, offset, kept, graph.length, begins)
    return _finished(trips, graph, points.point, path, start, place, offset, begins)


@numba.njit(cache=True, nogil=True)
def without_spurs(
    path: Array, start: Ints, opposite: Ints, length: Floats, limit: float, stop_there: bool
) -> Bools:
    """Which edges stay when excursions of at most ``limit`` metres, out and back over the same road, are
    taken out.

    An excursion is a run of edges followed by their opposites in reverse order. What is before and after it
    meet at one node, so the path stays connected. One that begins a path leaves its last edge there; one that
    ends it, with ``stop_there``, its first: the road on which the path ends, driven only once.
    """
    kept = np.ones(len(path), dtype=np.bool_)
    stack = np.empty(len(path), dtype=np.int64)
    for trip in range(len(start) - 1):
        top, i = 0, start[trip]
        while i < start[trip + 1]:
            mirrored, out = 0, 0.0
            while (
                mirrored < top
                and i + mirrored < start[trip + 1]
                and opposite[path[stack[top - 1 - mirrored]]] == path[i + mirrored]
            ):
                out += length[path[i + mirrored]]
                mirrored += 1
            if mirrored == 0 or out > limit:
                stack[top] = i
                top += 1
                i += 1
                continue
            for step in range(mirrored):
                kept[stack[top - 1 - step]] = False
                kept[i + step] = False
            top -= mirrored
            i += mirrored
            if stop_there and top > 0 and i == start[trip + 1]:
                kept[stack[top]] = True
            if top == 0:
                kept[i - 1] = True
                stack[0] = i - 1
                top = 1
    return kept


@numba.njit(cache=True, nogil=True)
def only(path: Array, start: Ints, kept: Bools) -> tuple[Array, Ints]:
    """Paths of the edges that stay, and their offsets: one pass over paths that may be many."""
    out, new_start = np.empty(kept.sum(), dtype=path.dtype), np.zeros(len(start), dtype=np.int64)
    filled = 0
    for trip in range(len(start) - 1):
        for i in range(start[trip], start[trip + 1]):
            if kept[i]:
                out[filled] = path[i]
                filled += 1
        new_start[trip + 1] = filled
    return out, new_start


def _take_back(
    path: Ints,
    start: Ints,
    place: Ints,
    offset: Floats,
    kept: Bools,
    length: Floats,
    begins: Ints,
) -> tuple[Ints, Ints, Ints, Floats]:
    """Path, starts, and the points' places on it, after edges were taken out.

    A point on an edge that went is at the end of the edge before the excursion. Where an excursion begins a
    path, the edge that stays is the opposite of the first one: the trip starts at the same place, in the
    other direction.
    """
    short, new_start = only(path, start, kept)
    owner = np.repeat(np.arange(len(begins)), np.diff(begins, append=len(place)))
    turned = np.maximum(length[path[start[:-1]]] - offset[begins], 0.0)
    index = np.cumsum(kept)[place] - 1
    early = index < new_start[owner]
    index = np.maximum(index, new_start[owner])
    offset = np.where(kept[place], offset, length[short[index]])
    return short, new_start, index, np.where(early, turned[owner], offset)


def _finished(
    trips: Trips,
    graph: RoadGraph,
    point: Ints,
    path: Ints,
    start: Ints,
    place: Ints,
    offset: Floats,
    begins: Ints,
) -> MatchedTrips:
    """Where each path begins and ends, and when each edge is entered, linear in distance between points."""
    matched = np.zeros(trips.size, dtype=bool)
    matched[trips.trip[point]] = True
    user = None if trips.user is None else trips.user[matched]
    time = np.zeros(len(point)) if trips.time is None else trips.time[point]
    first = np.append(begins, len(point))
    first_offset, last_offset, entry = _along(path, start, graph.length, first, place, offset, time)
    if trips.time is None:
        return MatchedTrips(path, start, first_offset, last_offset, matched, user=user)
    return MatchedTrips(path, start, first_offset, last_offset, matched, entry, time[first[1:] - 1], user)


@numba.njit(cache=True, nogil=True)
def _along(
    path: Ints, start: Ints, length: Floats, first: Ints, place: Ints, offset: Floats, time: Floats
) -> tuple[Floats, Floats, Floats]:
    """First and last offsets of paths, and the time at which each edge is entered.

    A trip only moves forwards: jitter never takes it back. Each trip has its own axis; sums over all trips
    would let one trip change the last digits of another's.
    """
    paths = len(start) - 1
    first_offset, last_offset, entry = np.empty(paths), np.empty(paths), np.empty(len(path))
    for trip in range(paths):
        point, last = first[trip], first[trip + 1] - 1
        here = min(offset[point], length[path[place[point]]])
        first_offset[trip] = here
        # Metres from the start of the path: of the trip so far, and of the start of the edge that it is on.
        entered = 0.0
        entry[start[trip]] = time[point]
        edge = start[trip]
        for following in range(point + 1, last + 1):
            before, moved = here, entered
            for e in range(edge, place[following]):
                moved += length[path[e]]
            there = max(here, moved + min(offset[following], length[path[place[following]]]))
            while edge < place[following]:
                entered += length[path[edge]]
                edge += 1
                share = (entered - before) / (there - before) if there > before else 1.0
                share = min(max(share, 0.0), 1.0)
                entry[edge] = time[following - 1] + share * (time[following] - time[following - 1])
            here = there
        last_offset[trip] = min(here - entered, length[path[start[trip + 1] - 1]])
    return first_offset, last_offset, entry


# Trips as directed paths of edges.


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
    matched: Bools
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
        return owners_of(self.start)

    def lengths(self, roads: RoadDomain) -> Floats:
        """Metres driven on each path."""
        length = RoadGraph.of(roads).length[self.edges]
        whole = np.bincount(self.trip, length, minlength=self.size)
        last = length[self.start[1:] - 1]
        return whole - self.first_offset - (last - self.last_offset)

    def to_trips(self, roads: RoadDomain) -> Trips:
        """The lines that the paths follow: their ends and every vertex of the road between, without times."""
        lines = path_lines(roads, self.edges, self.start, self.first_offset, self.last_offset)
        return Trips(lines.xy, lines.offsets, user=self.user)

    def __repr__(self) -> str:
        return f"MatchedTrips({'with' if self.time is not None else 'without'} times)"

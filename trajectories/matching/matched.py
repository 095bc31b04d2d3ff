"""Trips as directed paths of edges."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from synthgeo.arrays import Bools, Floats, Ints
from synthgeo.domain.roads import RoadDomain
from synthgeo.ragged import owners_of
from trajectories.reading.points import Trips
from trajectories.routing.edge_lines import path_lines
from trajectories.routing.road_graph import RoadGraph


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


__all__ = ["MatchedTrips"]

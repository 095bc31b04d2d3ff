"""Roads as ground: a state is a directed edge, a step a turn onto the next edge.

Turning round is a step in dead ends only, so a walk is a connected directed path that respects one-way
streets. An edge belongs to the cell that holds its middle.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import shapely

from synthgeo.arrays import Array, Floats, Ints, Keys, Points
from synthgeo.domain.roads import RoadDomain
from synthgeo.errors import DomainError
from synthgeo.hierarchy import morton
from synthgeo.hierarchy.cells import Partition
from synthgeo.polylines import Polylines
from synthgeo.privacy.noise import FixedPoint
from synthgeo.ragged import offsets_of_owners, owners_of, positions, ranks_of
from trajectories.ground.base import Ground, PlacedTrips
from trajectories.ground.state_graph import EndPlaces, StateGraph, extents
from trajectories.matching.match import Method, match
from trajectories.matching.path_assembly import only, without_spurs
from trajectories.reading.points import Trips
from trajectories.reading.recorded import recorded_gaps, speed_variations
from trajectories.routing import RoadGraph, edge_headings, edge_points, path_lines
from trajectories.walks.pacing import Pieces

if TYPE_CHECKING:
    from trajectories.model import TripModel
    from trajectories.walks.bridges import Walks

_GRID = FixedPoint(20)
_STRETCH = 10.0  # metres of road that make one place
_MOST = 1 << 20  # places
_METRES = (1.0, 1.0)  # roads are always in metres
# Seconds that a turn by a right angle takes on the road before it, and again on the road after it: a public
# assumption. Vehicles slow down for turns; else a synthetic one would dash around every corner.
_TURN = 2.5
_SLOW = 20.0  # metres on which they do


class RoadGround(Ground):
    """The directed edges of a road network."""

    has_ways = True
    domain: RoadDomain

    def place(self, trips: Trips, *, method: Method) -> PlacedTrips:  # type: ignore[override]
        """Match trips to directed paths; an edge has its share of the path's length."""
        roads = self.domain
        matched = match(trips, roads, method=method)
        length = np.maximum(RoadGraph.of(roads).length, 1e-3)[matched.edges]
        whole = np.bincount(matched.trip, length, minlength=matched.size)
        shares = _GRID.floor(length / whole[matched.trip] * (1 - 1e-12))
        first, last = matched.start[:-1], matched.start[1:] - 1
        ends = [
            morton.locate(edge_points(roads, matched.edges[at], offset), self.bits, roads.bounds)[0]
            for at, offset in ((first, matched.first_offset), (last, matched.last_offset))
        ]
        departure = duration = None
        if matched.time is not None and matched.arrival is not None:
            departure = matched.time[first]
            duration = matched.arrival - departure
        gap = variation = None
        if method != "ends":
            seen = trips.take(matched.matched)
            gap, variation = recorded_gaps(seen, _METRES), speed_variations(seen, _METRES)
        return PlacedTrips(
            self.edge_keys()[matched.edges], shares, np.stack(ends, axis=1), matched.edges, matched.start,
            departure, duration, gap, variation,
        )  # fmt: skip

    def edge_keys(self) -> Keys:
        """The key that stands for each edge: that of its middle."""
        middle = self._middles()
        keys, inside = self.hierarchy.locate(middle, self.bits)
        if not inside.all():  # an edge of no length lies on no road: put it in the frame's grid
            keys = np.where(inside, keys, morton.locate(middle, self.bits, self.domain.bounds)[0])
        return keys

    def _middles(self) -> Points:
        middle = shapely.line_interpolate_point(self.domain.network.lines, 0.5, normalized=True)
        xy: Points = shapely.get_coordinates(middle)
        return xy

    def graph(self, partition: Partition) -> StateGraph:
        """Directed edges and the turns between them."""
        graph = RoadGraph.of(self.domain)
        out_degree = np.diff(graph.first_out)[graph.head]
        source = np.repeat(np.arange(len(graph.head)), out_degree)
        to = graph.out_edge[positions(graph.first_out[graph.head], out_degree)]
        keep = to != graph.turning_edge()[source]
        # Where every way on is a turn round (two lanes of one dead end), turning is all there is.
        keep |= np.bincount(source[keep], minlength=len(graph.head))[source] == 0
        source, to = source[keep], to[keep]
        length = np.maximum(graph.length, 1e-3)
        leaving, entering = edge_headings(self.domain.network)
        return StateGraph(
            first=offsets_of_owners(source, len(length)),
            to=to,
            metres=length[to],
            cell=np.maximum(partition.cell_of(self.edge_keys(), self.bits), 0).astype(np.int64),
            size_of=length,
            xy=self._middles(),
            place=graph.head,
            cells=partition.size,
            turn=1.0 - np.cos(entering[to] - leaving[source]),
            twin=graph.opposite,
        )

    def paths(
        self, placed: PlacedTrips, graph: StateGraph, partition: Partition  # noqa: ARG002
    ) -> tuple[Ints, Ints, None]:  # fmt: skip
        """Matched paths are joined up already."""
        return placed.states, placed.start, None

    def end_keys(self, placed: PlacedTrips, partition: Partition, states: Ints, start: Ints) -> Keys:  # noqa: ARG002
        """Where the matched paths start and end."""
        return placed.ends[np.diff(start) > 0]

    def places(self, parts: Partition, cell: Ints) -> EndPlaces:  # noqa: ARG002
        """Stretches of road of about ten metres, in the order of their parts."""
        length = np.maximum(RoadGraph.of(self.domain).length, 1e-3)
        number = np.ceil(length / max(_STRETCH, float(length.sum()) / _MOST)).astype(np.int64)
        edge = np.repeat(np.arange(len(length)), number)
        size = (length / number)[edge]
        low = ranks_of(number) * size
        middle = edge_points(self.domain, edge, low + size / 2)
        keys, _ = morton.locate(middle, self.bits, self.domain.bounds)
        part = parts.cell_of(keys, self.bits).astype(np.int64)
        order = np.argsort(part, kind="stable")
        order = order[np.searchsorted(part[order], 0) :]  # a given partition may leave roads out
        return EndPlaces(edge[order], part[order], size[order], low[order], (low + size)[order])

    def shapes_of_trips(
        self, placed: PlacedTrips, graph: StateGraph, states: Ints, start: Ints  # noqa: ARG002
    ) -> tuple[Floats, Floats, Floats]:  # fmt: skip
        """Of the matched path."""
        return *extents(graph.xy, states, start), self._seconds(states, start)

    def usual_seconds(self, graph: StateGraph, walks: Walks, pieces: Pieces) -> Floats:  # noqa: ARG002
        """Seconds at the map's speeds: of the whole of each edge."""
        return self._seconds(walks.states, walks.start)

    def _seconds(self, states: Ints, start: Ints) -> Floats:
        seconds = RoadGraph.of(self.domain).travel_time[states]
        return np.maximum(np.bincount(owners_of(start), seconds, minlength=len(start) - 1), 1.0)

    def direct(self, walks: Walks) -> Walks:
        """Walks that do not drive into a dead end to turn round, unless they start or end there."""
        graph = RoadGraph.of(self.domain)
        kept = without_spurs(walks.states, walks.start, graph.opposite, graph.length, np.inf, True)
        states, start = only(walks.states, walks.start, kept)
        return replace(walks, states=states, start=start)

    def states_at(self, partition: Partition, xy: Points) -> Ints:  # noqa: ARG002
        """The nearest road, in both directions."""
        roads = self.domain
        edge = int(roads.nearest(xy[None], max_distance=roads.max_distance)[0][0])
        if edge < 0:
            raise DomainError(f"no road within {roads.max_distance:g} m of {xy.tolist()}")
        both = np.array([edge, roads.opposite[edge]], dtype=np.int64)
        return both[both >= 0]

    def shapes(self, partition: Partition) -> Array:  # noqa: ARG002
        """The edges."""
        return self.domain.network.lines

    def lines(self, model: TripModel, walks: Walks, rng: np.random.Generator) -> tuple[Polylines, Pieces]:
        """The edges' own curves, from a place on the first edge to a place on the last (in order, where that
        is one edge).
        """
        length, places = RoadGraph.of(self.domain).length, model.places
        offset = np.empty((2, walks.size))
        for i, at in enumerate((walks.start[:-1], walks.start[1:] - 1)):
            edge = walks.states[at]
            place = model.end_places(edge, rng)
            share = rng.random(walks.size)
            along = places.low[place] + share * (places.high[place] - places.low[place])
            offset[i] = np.where(place >= 0, along, share * length[edge])
        alone = np.diff(walks.start) == 1
        offset[:, alone] = np.sort(offset[:, alone], axis=0)
        lines = path_lines(self.domain, walks.states, walks.start, *offset)
        return lines, self.pieces(walks, *offset)

    def pieces(self, walks: Walks, first: Floats, last: Floats) -> Pieces:
        """The edges of walks, the first and the last in part."""
        graph = RoadGraph.of(self.domain)
        metres = np.maximum(graph.length[walks.states], 1e-3)
        usual = graph.free_flow[walks.states] / metres
        metres[walks.start[1:] - 1] = last
        metres[walks.start[:-1]] -= first
        metres = np.maximum(metres, 0.0)
        slow = self._turning(walks) * np.minimum(metres / _SLOW, 1.0)
        return Pieces(walks.start, metres, usual * metres + slow)

    def _turning(self, walks: Walks) -> Floats:
        """Seconds that each edge of walks takes longer for the turns onto it and off it."""
        leaving, entering = edge_headings(self.domain.network)
        turn = np.zeros(len(walks.states) + 1)  # before each state, and after the last
        turn[1:-1] = 1.0 - np.cos(entering[walks.states[1:]] - leaving[walks.states[:-1]])
        turn[walks.start] = 0.0
        seconds: Floats = _TURN * (turn[:-1] + turn[1:])
        return seconds


__all__ = ["RoadGround"]

"""A box or land as ground: a state is a cell of the partition, a step leads to a cell that touches it."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import shapely
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from synthgeo import ragged
from synthgeo.arrays import Array, Bools, Floats, Ints, Keys, Points
from synthgeo.errors import DomainError
from synthgeo.hierarchy import morton
from synthgeo.hierarchy.base import MAX_BITS, Bits, Hierarchy
from synthgeo.hierarchy.cells import Partition
from synthgeo.polylines import Polylines
from synthgeo.privacy.noise import FixedPoint
from synthgeo.ragged import offsets_of_owners, owners_of
from trajectories.ground.base import Ground, PlacedTrips
from trajectories.ground.cell_lines import CellLines, crossed_at, shortest, strayed, uniforms, with_corners
from trajectories.ground.state_graph import EndPlaces, StateGraph, extents, fill_gaps
from trajectories.reading.points import Trips, metres_per_unit
from trajectories.reading.recorded import recorded_gaps, speed_variations
from trajectories.walks.pacing import Pieces

if TYPE_CHECKING:
    from trajectories.fit.clock import Recording, TripClock
    from trajectories.model import TripModel
    from trajectories.walks.bridges import Walks
    from trajectories.walks.traits import WalkTraits

__all__ = ["Inside", "PlaneGround", "pulled"]


_GRID = FixedPoint(20)
_FASTER = 3.0  # standard deviations above a trip's speed that its fastest steps are
_METRES_PER_SECOND = 30 / 3.6  # where no map says how fast one goes


class PlaneGround(Ground):
    """The cells of a box or of land; cells that touch, at a side or at a corner, are joined."""

    has_ways = False

    def place(self, trips: Trips, *, method: str) -> PlacedTrips:
        """Locate points; each of a trip's t points has a share of 1/t."""
        keys, inside = self.hierarchy.locate(trips.xy, self.bits)
        if method == "ends":  # as on roads: a trip with one end outside is not one of the domain
            inside &= ragged.minima(inside, trips.start, False)[trips.trip]
        trips, keys = trips.only(inside), keys[inside]
        first, last = trips.start[:-1], trips.start[1:] - 1
        departure = duration = None
        if trips.time is not None:
            departure = trips.time[first]
            duration = trips.time[last] - departure
        shares = _GRID.one // np.diff(trips.start)[trips.trip]
        ends = np.stack([keys[first], keys[last]], axis=1)
        scale = metres_per_unit(self.domain)
        metres, diameter = extents(trips.xy * scale, np.arange(len(trips.xy)), trips.start)
        gap = variation = None
        if method != "ends":
            gap, variation = recorded_gaps(trips, scale), speed_variations(trips, scale)
        return PlacedTrips(
            keys, shares, ends, np.arange(len(keys)), trips.start, departure, duration, gap, variation,
            metres, diameter,
        )  # fmt: skip

    def graph(self, partition: Partition) -> StateGraph:
        """Cells and the steps between those that touch."""
        rectangles = morton.cell_bounds(partition.prefix, partition.bits, self.domain.bounds)
        boxes = shapely.box(*rectangles.T)
        a, b = shapely.STRtree(boxes).query(boxes, predicate="intersects")
        apart = a != b
        order = np.lexsort((b[apart], a[apart]))
        a, b = a[apart][order].astype(np.int64), b[apart][order].astype(np.int64)
        centre = self.centres(partition)
        return StateGraph(
            first=offsets_of_owners(a, partition.size),
            to=b,
            metres=np.hypot(*(centre[a] - centre[b]).T),
            cell=np.arange(partition.size),
            size_of=partition.measure,
            xy=centre,
            place=np.arange(partition.size),
            cells=partition.size,
            sides=self._sides(rectangles, a, b),
        )

    def _sides(self, rectangles: Floats, one: Ints, two: Ints) -> Floats:
        """What cells share of their borders, in metres."""
        low = np.maximum(rectangles[one, :2], rectangles[two, :2])
        high = np.minimum(rectangles[one, 2:], rectangles[two, 2:])
        sides = np.column_stack([low, high])
        in_metres: Floats = sides * np.tile(metres_per_unit(self.domain), 2)
        return in_metres

    def paths(
        self, placed: PlacedTrips, graph: StateGraph, partition: Partition
    ) -> tuple[Ints, Ints, Floats | None]:
        """The cells of each trip's points, gaps filled with the shortest way, and where the straight line
        between two points crosses from cell to cell.
        """
        cells = partition.cell_of(placed.keys, self.bits).astype(np.int64)
        known: Bools = cells >= 0  # a given partition may leave parts of the domain out
        keys, trip = placed.keys[known], owners_of(placed.start)[known]
        states, start, last = fill_gaps(graph, cells[known], offsets_of_owners(trip, placed.size))
        owner = owners_of(start)
        crossing = np.flatnonzero(owner[1:] == owner[:-1])
        step = graph.link_between(states[crossing], states[crossing + 1])  # every step crosses
        one, two = (self._rectangles_of(keys[last[crossing] + k], self.bits) for k in (0, 1))
        along = np.full(len(states), np.nan)
        along[crossing] = crossed_at(
            graph.sides[step], (one[:, :2] + one[:, 2:]) / 2, (two[:, :2] + two[:, 2:]) / 2
        )
        return states, start, along

    def end_keys(self, placed: PlacedTrips, partition: Partition, states: Ints, start: Ints) -> Keys:
        """Where trips start and end; one that was cut short ends anywhere in its last cell."""
        real = np.diff(start) > 0
        keys = placed.ends[real]
        ends = np.stack([states[start[:-1][real]], states[start[1:][real] - 1]], axis=1)
        same = partition.cell_of(keys, self.bits) == ends
        return np.where(same, keys, partition.start[ends] >> np.uint64(MAX_BITS - self.bits))

    def places(self, parts: Partition, cell: Ints) -> EndPlaces:
        """The parts themselves."""
        nowhere = np.zeros(parts.size)
        return EndPlaces(cell, np.arange(parts.size), parts.measure, nowhere, nowhere)

    def shapes_of_trips(
        self, placed: PlacedTrips, graph: StateGraph, states: Ints, start: Ints
    ) -> tuple[Floats, Floats, Floats]:
        """Of the line through the trip's own points: cells are too large to say. Seconds at 30 km/h."""
        metres, diameter = placed.metres, placed.diameter
        if metres is None or diameter is None:
            metres, diameter = extents(graph.xy, states, start)
        return metres, diameter, np.maximum(metres / _METRES_PER_SECOND, 1.0)

    def usual_seconds(self, graph: StateGraph, walks: Walks, pieces: Pieces) -> Floats:  # noqa: ARG002
        """Seconds at 30 km/h, along the line."""
        return np.maximum(ragged.sums(pieces.usual, pieces.offsets), 1.0)

    def fastest(self, clock: TripClock, recording: Recording | None) -> float:
        """The speed of the fastest released pace, and as much more as speeds vary within a trip."""
        variation = 0.0 if recording is None else recording.usual_variation
        return _METRES_PER_SECOND / clock.shortest_pace * (1.0 + _FASTER * variation)

    def states_at(self, partition: Partition, xy: Points) -> Ints:
        """The cell that holds a point."""
        keys, inside = self.hierarchy.locate(xy[None], self.bits)
        cell = partition.cell_of(keys, self.bits)
        if not inside[0] or cell[0] < 0:
            raise DomainError(f"{xy.tolist()} is outside the domain")
        return cell.astype(np.int64)

    def shapes(self, partition: Partition) -> Array:
        """The cells."""
        cells: Array = self.hierarchy.geometry(partition.prefix, partition.bits)
        return cells

    def numbered(self, walks: Walks, rng: np.random.Generator) -> Walks:
        """With a number each: a cell does not say where in it a line goes."""
        return replace(walks, number=rng.integers(0, 1 << 62, walks.size))

    def shapes_of_walks(
        self, model: TripModel, walks: Walks, traits: WalkTraits  # noqa: ARG002
    ) -> tuple[Floats, Floats, Ints]:  # fmt: skip
        """Of the shortest line through the cells, as much longer as trips wind."""
        found = shortest(model.graph, walks.states, walks.start, *self._ends(model, walks))
        lines = found.polylines
        metres, diameter = extents(lines.xy, np.arange(len(lines.xy)), lines.offsets)
        return model.winding * metres, diameter, found.sharp

    def lines(self, model: TripModel, walks: Walks, rng: np.random.Generator) -> tuple[Polylines, Pieces]:
        """From a point in the first cell a short way through the sides that successive cells share to a point
        in the last, with corners as trips wind; on land, around what is not land.
        """
        number = walks.number
        if number is None:
            return self.lines(model, self.numbered(walks, rng), rng)
        scale = metres_per_unit(self.domain)
        first, last = self._ends(model, walks)
        if self.domain.kind == "polygon":
            for ends, at in ((first, walks.start[:-1]), (last, walks.start[1:] - 1)):
                wet = ~self.domain.contains(ends / scale)
                ends[wet] = self._at_ends(model, walks.states[at[wet]], rng) * scale
        plain = self._strayed(model, walks, first, last).polylines
        lines = self._on_land(plain)
        direct = shortest(model.graph, walks.states, walks.start, first, last).polylines
        # Lines that stray, or go around water, are longer already.
        longer = model.winding * direct.lengths.sum() / max(lines.lengths.sum(), 1e-9)
        if longer > 1:
            cells = self._rectangles(model.partition)[walks.states]
            lines = self._on_land(with_corners(plain, cells, number, longer))
        return _in_segments(Polylines(lines.xy / scale, lines.offsets, scale))

    def crossed_along(self, model: TripModel, walks: Walks, rng: np.random.Generator) -> Floats:
        """Where lines cross the sides of cells."""
        if walks.number is None:
            walks = self.numbered(walks, rng)
        return self._strayed(model, walks, *self._ends(model, walks)).along(model.graph)

    def _strayed(self, model: TripModel, walks: Walks, first: Points, last: Points) -> CellLines:
        assert walks.number is not None
        return strayed(model.graph, walks.states, walks.start, first, last, walks.number, model.segments)

    def _on_land(self, lines: Polylines) -> Polylines:
        """Lines in metres, around what is not land."""
        if self.domain.kind != "polygon":
            return lines
        scale = metres_per_unit(self.domain)
        dry = self.domain.contains(lines.xy / scale)
        dry[lines.offsets[:-1]] = dry[lines.offsets[1:] - 1] = True
        kept = self._inside.keep(Polylines(lines.xy[dry] / scale, ragged.where(lines.offsets, dry)))
        return Polylines(kept.xy * scale, kept.offsets)

    def _rectangles(self, cells: Partition) -> Floats:
        """Bounds of cells, in metres."""
        return self._rectangles_of(cells.prefix, cells.bits)

    def _rectangles_of(self, prefix: Keys, bits: Bits) -> Floats:
        bounds = morton.cell_bounds(prefix, bits, self.domain.bounds)
        in_metres: Floats = bounds * np.tile(metres_per_unit(self.domain), 2)
        return in_metres

    def _ends(self, model: TripModel, walks: Walks) -> tuple[Points, Points]:
        """Where the lines of walks start and end, in metres, if all of each part were in the domain."""
        number = walks.number
        assert number is not None
        real = np.diff(walks.start) > 0
        parts = self._rectangles(model.parts)
        ends = np.zeros((2, walks.size, 2))
        for side, at in enumerate((walks.start[:-1], walks.start[1:] - 1)):
            share, x, y = (uniforms(number[real], 3 * side + k) for k in range(3))
            box = parts[model.places.part[model.places_at(walks.states[at[real]], share)]]
            ends[side, real] = box[:, :2] + np.column_stack([x, y]) * (box[:, 2:] - box[:, :2])
        return ends[0], ends[1]

    @cached_property
    def _inside(self) -> Inside:
        return Inside(self.domain.outline())

    def _at_ends(self, model: TripModel, cells: Ints, rng: np.random.Generator) -> Points:
        """A point in each of these cells, where trips end there."""
        part = model.places.part[model.end_places(cells, rng)]
        return _drawn(self.hierarchy, model.parts, part, rng)


def _in_segments(lines: Polylines) -> tuple[Polylines, Pieces]:
    """Lines, and their segments at 30 km/h."""
    inner = np.ones(len(lines.xy), dtype=bool)
    inner[lines.offsets[:-1]] = False
    metres = np.diff(lines.along, prepend=0.0)[inner]
    offsets = lines.offsets - np.arange(len(lines.offsets))
    return lines, Pieces(offsets, metres, metres / _METRES_PER_SECOND)


def _drawn(hierarchy: Hierarchy, cells: Partition, cell: Ints, rng: np.random.Generator) -> Points:
    """A point in each of these cells."""
    order = np.argsort(cell, kind="stable")
    used, counts = np.unique(cell, return_counts=True)
    points = np.empty((len(cell), 2))
    points[order] = hierarchy.sample(cells.prefix[used], cells.bits[used], counts, rng)
    return points


# Ways that stay on land: lines whose segments leave it are led around, through a triangulation of the land.
#
# A segment between two points of one triangle stays in it. So any chain of triangles that share sides gives a
# way on land, by a point on each of these sides, and no grid has to be fine enough. The points slide along
# their sides until the way is short.

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

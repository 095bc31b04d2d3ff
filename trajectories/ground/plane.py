"""A box or land as ground: a state is a cell of the partition, a step leads to a cell that touches it."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import shapely

from synthgeo import ragged
from synthgeo.arrays import Array, Bools, Floats, Ints, Keys, Points
from synthgeo.errors import DomainError
from synthgeo.hierarchy import morton
from synthgeo.hierarchy.base import Hierarchy
from synthgeo.hierarchy.cells import Partition
from synthgeo.hierarchy.keys import MAX_BITS
from synthgeo.polylines import Polylines
from synthgeo.privacy.noise import FixedPoint
from synthgeo.ragged import offsets_of_owners, owners_of
from trajectories.ground.base import Ground, PlacedTrips
from trajectories.ground.inside import Inside, pulled
from trajectories.ground.places import Places
from trajectories.ground.state_graph import StateGraph, fill_gaps
from trajectories.reading.points import Trips, metres_per_unit
from trajectories.reading.recorded import recorded_gaps, speed_variations
from trajectories.walks.pacing import Pieces

if TYPE_CHECKING:
    from trajectories.model import TripModel
    from trajectories.walks.bridges import Walks

_GRID = FixedPoint(20)
_PULLS = 4  # turns: people walk straighter than from one random point to the next
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
        gap = variation = None
        if method != "ends":
            scale = metres_per_unit(self.domain)
            gap, variation = recorded_gaps(trips, scale), speed_variations(trips, scale)
        return PlacedTrips(
            keys, shares, ends, np.arange(len(keys)), trips.start, departure, duration, gap, variation
        )

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
        )

    def paths(self, placed: PlacedTrips, graph: StateGraph, partition: Partition) -> tuple[Ints, Ints]:
        """The cells of each trip's points, gaps filled with the shortest way."""
        cells = partition.cell_of(placed.keys, self.bits).astype(np.int64)
        known: Bools = cells >= 0  # a given partition may leave parts of the domain out
        trip = owners_of(placed.start)[known]
        return fill_gaps(graph, cells[known], offsets_of_owners(trip, placed.size))

    def end_keys(self, placed: PlacedTrips, partition: Partition, states: Ints, start: Ints) -> Keys:
        """Where trips start and end; one that was cut short ends anywhere in its last cell."""
        real = np.diff(start) > 0
        keys = placed.ends[real]
        ends = np.stack([states[start[:-1][real]], states[start[1:][real] - 1]], axis=1)
        same = partition.cell_of(keys, self.bits) == ends
        return np.where(same, keys, partition.start[ends] >> np.uint64(MAX_BITS - self.bits))

    def places(self, parts: Partition, cell: Ints) -> Places:
        """The parts themselves."""
        nowhere = np.zeros(parts.size)
        return Places(cell, np.arange(parts.size), parts.measure, nowhere, nowhere)

    def usual_seconds(self, graph: StateGraph, states: Ints, start: Ints) -> Floats:
        """Seconds at 30 km/h, from centre to centre."""
        seconds = np.zeros(len(states))
        seconds[1:] = np.hypot(*np.diff(graph.xy[states], axis=0).T) / _METRES_PER_SECOND
        seconds[start[:-1][np.diff(start) > 0]] = 0.0
        return np.maximum(np.bincount(owners_of(start), seconds, minlength=len(start) - 1), 1.0)

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

    def lines(self, model: TripModel, walks: Walks, rng: np.random.Generator) -> tuple[Polylines, Pieces]:
        """From a point in the first cell through the sides that successive cells share to a point in the
        last, not much longer than it must be; on land, where such a side is water, through a point in the
        cell, and around what is not land.
        """
        states, partition = walks.states, model.partition
        points = _drawn(self.hierarchy, partition, states, rng)
        for at in (walks.start[:-1], walks.start[1:] - 1):
            points[at] = self._at_ends(model, states[at], rng)
        scale = metres_per_unit(self.domain)
        rectangle = morton.cell_bounds(partition.prefix[states], partition.bits[states], self.domain.bounds)
        low = np.maximum(rectangle[1:, :2], rectangle[:-1, :2])
        high = np.minimum(rectangle[1:, 2:], rectangle[:-1, 2:])
        inner = np.ones(len(states), dtype=bool)
        inner[walks.start[:-1]] = inner[walks.start[1:] - 1] = False
        into = np.flatnonzero(inner) - 1
        crossings = pulled(
            points[walks.start[:-1]], points[walks.start[1:] - 1],
            (low + rng.random(low.shape) * (high - low))[into], np.stack([low, high], axis=1)[into],
            ragged.where(walks.start, inner), _PULLS,
        )  # fmt: skip
        points[inner] = np.where(self.domain.contains(crossings)[:, None], crossings, points[inner])
        alone = np.diff(walks.start) == 1
        # A trip inside one cell: a second point in it.
        lone = walks.start[:-1][alone]
        extra = self._at_ends(model, states[lone], rng)
        start = walks.start + np.concatenate([[0], np.cumsum(alone)])
        lines = Polylines(np.insert(points, lone + 1, extra, axis=0), start, scale)
        if self.domain.kind == "polygon":
            lines = self._inside.keep(lines)
        return _in_segments(lines)

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


__all__ = ["PlaneGround"]

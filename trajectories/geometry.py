"""Walks as lines on the ground. Post-processing.

On roads the line follows the edges' own curves, from a point on the first to a point on the last. On a
plane it goes from a point in the first cell through the sides that successive cells share to a point in the
last; on land, where a shared side may be water, through a point on land in each cell.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray

from synthgeo.domain.roads import RoadDomain
from synthgeo.hierarchy import morton
from synthgeo.hierarchy.base import hierarchy_of
from trajectories.model import TripModel
from trajectories.points import metres_per_unit
from trajectories.states import Floats, Ints
from trajectories.walks import Walks


@dataclass(frozen=True, eq=False)
class Lines:
    """Polylines, one after the other: line i has the vertices ``xy[start[i]:start[i + 1]]``, at least two."""

    xy: Floats
    start: Ints
    scale: tuple[float, float]

    @cached_property
    def _along(self) -> Floats:
        """Metres along each line, at each vertex."""
        step = np.zeros(len(self.xy))
        step[1:] = np.hypot(*(np.diff(self.xy, axis=0) * self.scale).T)
        step[self.start[:-1]] = 0.0
        running = np.cumsum(step)
        return running - np.repeat(running[self.start[:-1]], np.diff(self.start))

    @property
    def lengths(self) -> Floats:
        """Metres of each line."""
        return self._along[self.start[1:] - 1] if len(self.start) > 1 else np.empty(0)

    def every(self, gaps: Ints) -> tuple[Floats, Ints]:
        """Points that cut line i into ``gaps[i]`` equal parts, ends included; and where each line's
        points begin.
        """
        count = gaps + 1
        start = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
        line = np.repeat(np.arange(len(gaps)), count)
        share = (np.arange(start[-1]) - start[:-1][line]) / gaps[line]
        # All lines end to end, with a gap between, so that one search serves them all.
        offset = np.concatenate([[0.0], np.cumsum(self.lengths + 1.0)])[:-1]
        vertex = np.repeat(offset, np.diff(self.start)) + self._along
        wanted = offset[line] + share * self.lengths[line]
        at = np.clip(
            np.searchsorted(vertex, wanted, side="right") - 1, self.start[line], self.start[line + 1] - 2
        )
        width = vertex[at + 1] - vertex[at]
        part = np.clip(
            np.divide(wanted - vertex[at], width, out=np.zeros(len(at)), where=width > 0), 0.0, 1.0
        )
        xy = self.xy[at] + part[:, None] * (self.xy[at + 1] - self.xy[at])
        return xy, start

    def shapes(self) -> NDArray[Any]:
        """LineStrings."""
        owner = np.repeat(np.arange(len(self.start) - 1), np.diff(self.start))
        lines: NDArray[Any] = shapely.linestrings(self.xy, indices=owner)
        return lines


def lines_of(model: TripModel, walks: Walks, rng: np.random.Generator) -> Lines:
    """A line for each walk."""
    if isinstance(model.domain, RoadDomain):
        return _on_roads(model, model.domain, walks, rng)
    return _on_plane(model, walks, rng)


def end_places(model: TripModel, states: Ints, rng: np.random.Generator) -> Ints:
    """A place for each trip that ends in one of ``states``, -1 where a state has none."""
    order, state = model.places.by_state
    running = np.concatenate([[0.0], np.cumsum(model.place_weight[order])])
    first, last = np.searchsorted(state, states), np.searchsorted(state, states, side="right")
    drawn = running[first] + rng.random(len(states)) * (running[last] - running[first])
    at = np.clip(np.searchsorted(running, drawn, side="right") - 1, first, np.maximum(last - 1, first))
    return np.where(last > first, order[np.minimum(at, len(order) - 1)], -1)


def _on_roads(model: TripModel, roads: RoadDomain, walks: Walks, rng: np.random.Generator) -> Lines:
    network = roads.network
    edges, begin = walks.states, network.first_vertex
    size = begin[edges + 1] - begin[edges]
    offset = np.concatenate([[0], np.cumsum(size)]).astype(np.int64)
    rows = np.repeat(begin[edges] - offset[:-1], size) + np.arange(offset[-1])
    whole = Lines(network.coordinates[rows], offset[walks.start], (1.0, 1.0))
    # Trim: to a place on the first edge and on the last (in order, where that is one edge).
    step = np.zeros(len(rows))
    step[1:] = np.hypot(*np.diff(whole.xy, axis=0).T)
    step[offset[:-1]] = 0.0
    edge_length = np.add.reduceat(step, offset[:-1]) if len(edges) else np.empty(0)
    first, last = edge_length[walks.start[:-1]], edge_length[walks.start[1:] - 1]
    drawn = np.empty((2, walks.size))
    for i, (at, length) in enumerate(((walks.start[:-1], first), (walks.start[1:] - 1, last))):
        place = end_places(model, edges[at], rng)
        low, high = model.places.low[place], model.places.high[place]
        share = rng.random(walks.size)
        drawn[i] = np.where(place >= 0, low + share * (high - low), share * length)
    alone = np.diff(walks.start) == 1
    drawn[:, alone] = np.sort(drawn[:, alone], axis=0)
    return _between(whole, drawn[0], whole.lengths - last + drawn[1])


def _between(lines: Lines, low: Floats, high: Floats) -> Lines:
    """The part of each line from ``low`` to ``high`` metres."""
    owner = np.repeat(np.arange(len(lines.start) - 1), np.diff(lines.start))
    inside = (lines._along > low[owner]) & (lines._along < high[owner])
    ends = [_at(lines, low), _at(lines, high)]
    count = np.bincount(owner[inside], minlength=len(low)) + 2
    start = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
    xy = np.empty((start[-1], 2))
    xy[start[:-1]], xy[start[1:] - 1] = ends
    between = np.ones(len(xy), dtype=bool)
    between[start[:-1]] = between[start[1:] - 1] = False
    xy[between] = lines.xy[inside]
    return Lines(xy, start, lines.scale)


def _at(lines: Lines, metres: Floats) -> Floats:
    offset = np.concatenate([[0.0], np.cumsum(lines.lengths + 1.0)])[:-1]
    vertex = np.repeat(offset, np.diff(lines.start)) + lines._along
    wanted = offset + np.clip(metres, 0.0, lines.lengths)
    at = np.clip(np.searchsorted(vertex, wanted, side="right") - 1, lines.start[:-1], lines.start[1:] - 2)
    width = vertex[at + 1] - vertex[at]
    part = np.clip(np.divide(wanted - vertex[at], width, out=np.zeros(len(at)), where=width > 0), 0.0, 1.0)
    xy: Floats = lines.xy[at] + part[:, None] * (lines.xy[at + 1] - lines.xy[at])
    return xy


def _on_plane(model: TripModel, walks: Walks, rng: np.random.Generator) -> Lines:
    partition, domain = model.partition, model.domain
    states = walks.states
    order = np.argsort(states, kind="stable")
    points = np.empty((len(states), 2))
    cells, counts = np.unique(states, return_counts=True)
    points[order] = hierarchy_of(domain).sample(partition.prefix[cells], partition.bits[cells], counts, rng)
    for at in (walks.start[:-1], walks.start[1:] - 1):
        points[at] = _in_parts(model, states[at], rng)
    scale = metres_per_unit(domain)
    alone = np.diff(walks.start) == 1
    if domain.kind == "box":
        rectangle = morton.cell_bounds(partition.prefix[states], partition.bits[states], domain.bounds)
        low = np.maximum(rectangle[1:, :2], rectangle[:-1, :2])
        high = np.minimum(rectangle[1:, 2:], rectangle[:-1, 2:])
        side = low + rng.random(low.shape) * (high - low)
        inner = np.ones(len(states), dtype=bool)
        inner[walks.start[:-1]] = inner[walks.start[1:] - 1] = False
        points[inner] = side[np.flatnonzero(inner) - 1]
    if not alone.any():
        return Lines(points, walks.start, scale)
    # A trip inside one cell: a second point in it.
    lone = walks.start[:-1][alone]
    extra = _in_parts(model, states[lone], rng)
    start = walks.start + np.concatenate([[0], np.cumsum(alone)])
    return Lines(np.insert(points, lone + 1, extra, axis=0), start, scale)


def _in_parts(model: TripModel, cells: Ints, rng: np.random.Generator) -> Floats:
    """A point in each of these cells of a plane, where trips end there."""
    part = model.places.part[end_places(model, cells, rng)]
    order = np.argsort(part, kind="stable")
    used, counts = np.unique(part, return_counts=True)
    points = np.empty((len(part), 2))
    points[order] = hierarchy_of(model.domain).sample(
        model.parts.prefix[used], model.parts.bits[used], counts, rng
    )
    return points


__all__ = ["Lines", "lines_of"]

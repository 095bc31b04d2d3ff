"""The public graph on which synthetic trips walk: places, the steps between them, and the cells that hold
them.

On roads a *state* is a directed edge and a *step* a turn onto the next edge; turning round is a step in dead
ends only, so a walk is a connected directed path that respects one-way streets. On a plane (box or land) a
state is a cell of the partition and a step leads to a cell that touches it.

A *link* is a pair of different cells that some step joins. Transitions are measured on links: all of them,
because which links exist is public.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import shapely
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from synthgeo.arrays import Keys
from synthgeo.domain.roads import RoadDomain
from synthgeo.domain.spatial import SpatialDomain
from synthgeo.hierarchy import morton
from synthgeo.hierarchy.base import hierarchy_of
from synthgeo.hierarchy.cells import Partition
from trajectories.points import metres_per_unit
from trajectories.routing import RoadGraph, turning_edge

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_BLOCK = 1 << 22  # distances held at once when gaps are filled


@dataclass(frozen=True, eq=False)
class StateGraph:
    """States, steps and cells. Nothing here depends on private data beyond the released partition.

    Attributes
    ----------
    first, to
        Steps out of state s lead to ``to[first[s]:first[s + 1]]``.
    metres
        Length of each step: of the edge that it turns onto, or from centre to centre of two cells.
    cell
        Cell of each state.
    size_of
        Public measure of each state: metres of road, or area.
    xy
        A point that stands for each state, in metres: the middle of the edge, the centre of the cell.
    place
        Number of the spot that a walk reaches with each state (the node where an edge ends; the cell).
    cells
        Number of cells.
    """

    first: Ints
    to: Ints
    metres: Floats
    cell: Ints
    size_of: Floats
    xy: Floats
    place: Ints
    cells: int

    @property
    def size(self) -> int:
        """Number of states."""
        return len(self.first) - 1

    @cached_property
    def source(self) -> Ints:
        """State that each step leaves."""
        return np.repeat(np.arange(self.size), np.diff(self.first))

    @cached_property
    def _links(self) -> tuple[Ints, Ints]:
        before, after = self.cell[self.source], self.cell[self.to]
        crosses = before != after
        key = before[crosses] * self.cells + after[crosses]
        keys, which = np.unique(key, return_inverse=True)
        link = np.full(len(self.to), -1, dtype=np.int64)
        link[crosses] = which
        return keys, link

    @property
    def link_of_step(self) -> Ints:
        """Link that each step crosses, -1 inside a cell."""
        return self._links[1]

    @property
    def links(self) -> int:
        """Number of links."""
        return len(self._links[0])

    @property
    def link_ends(self) -> tuple[Ints, Ints]:
        """Cells that each link leaves and enters."""
        keys = self._links[0]
        return keys // self.cells, keys % self.cells

    def link_between(self, before: Ints, after: Ints) -> Ints:
        """Link from one cell to another, -1 where there is none."""
        keys = self._links[0]
        wanted = before * self.cells + after
        if not len(keys):
            return np.full(len(wanted), -1, dtype=np.int64)
        at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return np.where(keys[at] == wanted, at, -1)

    @cached_property
    def by_cell(self) -> tuple[Ints, Ints]:
        """States in order of their cells, and where each cell begins."""
        order = np.argsort(self.cell, kind="stable")
        return order, np.searchsorted(self.cell[order], np.arange(self.cells + 1))


def edge_middles(roads: RoadDomain) -> Floats:
    """The middle of each edge."""
    middle = shapely.line_interpolate_point(roads.network.lines, 0.5, normalized=True)
    xy: Floats = shapely.get_coordinates(middle)
    return xy


def road_keys(roads: RoadDomain, bits: int) -> Keys:
    """The key that stands for each edge: that of its middle."""
    middle = edge_middles(roads)
    keys, inside = hierarchy_of(roads).locate(middle, bits)
    if not inside.all():  # an edge of no length lies on no road: put it in the frame's grid
        keys = np.where(inside, keys, morton.locate(middle, bits, roads.bounds)[0])
    return keys


def road_states(roads: RoadDomain, partition: Partition, bits: int) -> StateGraph:
    """Directed edges of a road network; an edge belongs to the cell that holds its middle."""
    graph = RoadGraph.of(roads)
    out_degree = np.diff(graph.first_out)[graph.head]
    source = np.repeat(np.arange(len(graph.head)), out_degree)
    begin = np.cumsum(out_degree) - out_degree
    to = graph.out_edge[np.repeat(graph.first_out[graph.head] - begin, out_degree) + np.arange(len(source))]
    turning = turning_edge(graph)
    keep = to != turning[source]
    # Where every way on is a turn round (two lanes of one dead end), turning is all there is.
    keep |= np.bincount(source[keep], minlength=len(graph.head))[source] == 0
    source, to = source[keep], to[keep]
    cell = np.maximum(partition.cell_of(road_keys(roads, bits), bits), 0).astype(np.int64)
    length = np.maximum(graph.length, 1e-3)
    return StateGraph(
        first=np.concatenate([[0], np.cumsum(np.bincount(source, minlength=len(cell)))]).astype(np.int64),
        to=to.astype(np.int64),
        metres=length[to],
        cell=cell,
        size_of=length,
        xy=edge_middles(roads),
        place=graph.head,
        cells=partition.size,
    )


def plane_states(domain: SpatialDomain, partition: Partition) -> StateGraph:
    """Cells of a box or of land; steps join cells that touch, at a side or at a corner."""
    rectangles = morton.cell_bounds(partition.prefix, partition.bits, domain.bounds)
    boxes = shapely.box(*rectangles.T)
    a, b = shapely.STRtree(boxes).query(boxes, predicate="intersects")
    apart = a != b
    order = np.lexsort((b[apart], a[apart]))
    a, b = a[apart][order].astype(np.int64), b[apart][order].astype(np.int64)
    centre = (rectangles[:, :2] + rectangles[:, 2:]) / 2 * metres_per_unit(domain)
    return StateGraph(
        first=np.searchsorted(a, np.arange(partition.size + 1)).astype(np.int64),
        to=b,
        metres=np.hypot(*(centre[a] - centre[b]).T),
        cell=np.arange(partition.size),
        size_of=partition.measure,
        xy=centre,
        place=np.arange(partition.size),
        cells=partition.size,
    )


def states_of(domain: SpatialDomain, partition: Partition, bits: int) -> StateGraph:
    """The walking graph of a domain."""
    if isinstance(domain, RoadDomain):
        return road_states(domain, partition, bits)
    return plane_states(domain, partition)


def fill_gaps(graph: StateGraph, states: Ints, start: Ints) -> tuple[Ints, Ints]:
    """Sequences of states joined up: between states that no step joins goes the shortest path.

    States that repeat count once. A sequence is cut where no path leads on, and what comes before is kept.
    Looks at one sequence at a time, and at public distances.
    """
    owner = np.repeat(np.arange(len(start) - 1), np.diff(start))
    fresh = np.ones(len(states), dtype=bool)
    fresh[1:] = (states[1:] != states[:-1]) | (owner[1:] != owner[:-1])
    states, owner = states[fresh], owner[fresh]
    inner = owner[1:] == owner[:-1]
    step = _step_exists(graph, states[:-1], states[1:])
    gaps = np.flatnonzero(inner & ~step)
    paths, path_start, found = _paths(graph, states[gaps], states[gaps + 1])
    broken = np.zeros(len(states), dtype=bool)
    broken[gaps[~found] + 1] = True
    # Everything of a sequence from its first broken gap on is left out.
    running = np.cumsum(broken)
    first_of = np.searchsorted(owner, owner)
    keep = running - running[first_of] + broken[first_of] == 0
    extra = np.zeros(len(states), dtype=np.int64)
    extra[gaps] = np.diff(path_start)
    extra[:-1][~keep[1:]] = 0
    extra[-1:] = 0
    width = np.where(keep, 1 + extra, 0)
    position = np.cumsum(width) - width
    out = np.empty(int(width.sum()), dtype=np.int64)
    out[position[keep]] = states[keep]
    used = extra[gaps] > 0
    size = np.diff(path_start)
    rows = np.repeat(used, size)
    out[(np.repeat(position[gaps] + 1 - path_start[:-1], size) + np.arange(len(paths)))[rows]] = paths[rows]
    counts = np.bincount(owner, width, minlength=len(start) - 1).astype(np.int64)
    return out, np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def _step_exists(graph: StateGraph, before: Ints, after: Ints) -> NDArray[np.bool_]:
    keys = np.sort(graph.source * graph.size + graph.to)
    if not len(keys):
        return np.zeros(len(before), dtype=bool)
    wanted = before * graph.size + after
    found: NDArray[np.bool_] = keys[np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)] == wanted
    return found


def _paths(graph: StateGraph, before: Ints, after: Ints) -> tuple[Ints, Ints, NDArray[np.bool_]]:
    """Inner states of the shortest paths, one Dijkstra for each distinct first state."""
    found = np.zeros(len(before), dtype=bool)
    pieces: list[list[int]] = [[] for _ in range(len(before))]
    matrix = csr_array((graph.metres, graph.to, graph.first), shape=(graph.size, graph.size))
    sources, which = np.unique(before, return_inverse=True)
    block = max(1, _BLOCK // max(graph.size, 1))
    for low in range(0, len(sources), block):
        distance, by = dijkstra(matrix, indices=sources[low : low + block], return_predecessors=True)
        for i in np.flatnonzero((which >= low) & (which < low + block)):
            row = which[i] - low
            if np.isfinite(distance[row, after[i]]):
                found[i] = True
                state = by[row, after[i]]
                while state != before[i]:
                    pieces[i].append(int(state))
                    state = by[row, state]
                pieces[i].reverse()
    start = np.concatenate([[0], np.cumsum([len(piece) for piece in pieces])]).astype(np.int64)
    flat = np.array([state for piece in pieces for state in piece], dtype=np.int64)
    return flat, start, found


__all__ = ["StateGraph", "fill_gaps", "plane_states", "road_keys", "road_states", "states_of"]

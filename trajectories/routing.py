"""Roads as a graph for trips: its edges and their lines, and shortest ways on it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numba
import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from synthgeo.arrays import Bools, Floats, Ints, Points
from synthgeo.domain.road_network import RoadNetwork, edge_speeds
from synthgeo.domain.roads import RoadDomain
from synthgeo.errors import ConfigError
from synthgeo.polylines import Polylines
from synthgeo.ragged import offsets_of, offsets_of_owners, positions, take

__all__ = [
    "RoadGraph",
    "Routes",
    "edge_headings",
    "edge_lines",
    "edge_points",
    "path_lines",
    "routes_between_edges",
    "search",
    "shortest_routes",
]


# A road network as arrays for routing.

_FALLBACK_KPH = 30.0


@dataclass(frozen=True, eq=False)
class RoadGraph:
    """A road network as arrays for routing. Edge i is row i of ``roads.edges``.

    Attributes
    ----------
    tail, head
        Node number at which each edge begins and ends.
    length
        Metres of each edge's line in the domain's CRS, so that offsets along lines and route lengths agree.
    travel_time
        Seconds on each edge: the graph's ``travel_time``, else from ``speed_kph``, else at 30 km/h.
    free_flow
        The same, but from limits and kinds of roads (``edge_speeds``) where the graph has no times or speeds:
        how a trip's time is shared over its roads.
    first_out, out_edge
        Edges that leave node v: ``out_edge[first_out[v]:first_out[v + 1]]``.
    opposite
        The same road in the other direction, or -1.
    component
        Strongly connected component of each node.
    """

    tail: Ints
    head: Ints
    length: Floats
    travel_time: Floats
    free_flow: Floats
    first_out: Ints
    out_edge: Ints
    opposite: Ints
    component: Ints

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return len(self.first_out) - 1

    def weight(self, name: str) -> Floats:
        """What a route adds up."""
        if name not in ("length", "travel_time"):
            raise ConfigError(f"weight must be 'length' or 'travel_time', got {name!r}")
        return self.length if name == "length" else self.travel_time

    def adjacency(self, name: str) -> tuple[Ints, Ints, Ints, Floats]:
        """Out-edges by node, side by side in memory: first_out, out_edge, their heads, their weights."""
        return self.first_out, self.out_edge, self.head[self.out_edge], self.weight(name)[self.out_edge]

    @classmethod
    def of(cls, roads: RoadDomain) -> RoadGraph:
        """The routing arrays of a road domain (the last few are remembered)."""
        return _graph_of(roads.network)

    def turning_edge(self) -> Ints:
        """For each edge the one that turns round at its end, or -1 where there is none or nothing else to
        do.
        """
        dead_end = np.diff(self.first_out)[self.head] == 1
        return np.where(dead_end, -1, self.opposite)


@lru_cache(maxsize=4)
def _graph_of(network: RoadNetwork) -> RoadGraph:
    # Remembered by identity: two domains with the same lines are equal, though their speeds may differ.
    order = np.argsort(network.node_id, kind="stable")
    known = network.node_id[order]
    tail, head = (order[np.searchsorted(known, ends)] for ends in (network.edge_u, network.edge_v))
    step = np.zeros(len(network.coordinates))
    step[1:] = np.hypot(*np.diff(network.coordinates, axis=0).T)
    step[network.first_vertex[:-1]] = 0.0
    length = np.add.reduceat(step, network.first_vertex[:-1])
    nodes = len(network.node_id)
    out_edge = np.argsort(tail, kind="stable")
    first_out = offsets_of_owners(tail, nodes)
    links = csr_array((np.ones(len(tail)), (tail, head)), shape=(nodes, nodes))
    _, component = connected_components(links, directed=True, connection="strong")
    return RoadGraph(
        tail=tail.astype(np.int64),
        head=head.astype(np.int64),
        length=length,
        travel_time=_travel_times(network, length, _FALLBACK_KPH),
        free_flow=_travel_times(network, length, edge_speeds(network)),
        first_out=first_out,
        out_edge=out_edge.astype(np.int64),
        opposite=np.asarray(network.opposite, dtype=np.int64),
        component=component.astype(np.int64),
    )


def _travel_times(network: RoadNetwork, length: Floats, otherwise: float | Floats) -> Floats:
    """Seconds on each edge, at ``otherwise`` km/h where the graph has no times and no speeds."""

    def numbers(name: str) -> Floats:
        given = network.tags.get(name)
        if given is None:
            return np.full(len(length), np.nan)
        return np.array(
            [v if isinstance(v, int | float) and v > 0 else np.nan for v in given], dtype=np.float64
        )

    time, speed = numbers("travel_time"), numbers("speed_kph")
    speed = np.where(np.isnan(speed), otherwise, speed)
    return np.where(np.isnan(time), length / (speed / 3.6), time)


# Many shortest paths on a road graph at once: one bounded Dijkstra for each distinct source.
#
# Requests are grouped by their source node; a search stops as soon as every target that is wanted from there
# is settled, or at the largest limit of its requests. ``scipy.sparse.csgraph`` gives full rows of distances
# only (nodes x sources in memory), and osmnx one pair at a time; matching asks for millions of near pairs, so
# the loop lives here, in numba.


@dataclass(frozen=True, eq=False)
class Routes:
    """Paths of edges, one after the other: path i is ``edges[start[i]:start[i + 1]]``."""

    edges: Ints
    start: Ints
    found: Bools


def shortest_routes(graph: RoadGraph, source: Ints, target: Ints, *, weight: str = "length") -> Routes:
    """The shortest path for each pair of nodes; where there is none ``found`` is False and the path empty."""
    return _routes(graph, source, np.full(len(source), -1, dtype=np.int64), target, weight, 0.0)


def routes_between_edges(
    graph: RoadGraph, before: Ints, after: Ints, *, weight: str = "length", u_turn: float = 0.0
) -> Routes:
    """The shortest path from the end of one edge to the start of another, without the two edges themselves.

    To begin by turning round, back over the road that one came by, costs ``u_turn`` more, except in a dead
    end.
    """
    return _routes(graph, graph.head[before], graph.turning_edge()[before], graph.tail[after], weight, u_turn)


def _routes(graph: RoadGraph, source: Ints, turning: Ints, target: Ints, weight: str, extra: float) -> Routes:
    order = np.lexsort((target, turning, source))
    keys = np.stack([source, turning, target])[:, order]
    fresh = np.ones(len(order), dtype=bool)
    fresh[1:] = (np.diff(keys, axis=1) != 0).any(axis=0)
    from_, turn, to = keys[:, fresh]
    opens = np.ones(len(from_), dtype=bool)
    opens[1:] = (np.diff(from_) != 0) | (np.diff(turn) != 0)
    group = np.concatenate([np.flatnonzero(opens), [len(from_)]]).astype(np.int64)
    edges, start, found = _trace_routes(*graph.adjacency(weight), graph.tail, from_, turn, to, group, extra)
    which = np.empty(len(order), dtype=np.int64)
    which[order] = np.cumsum(fresh) - 1
    rows, offsets = take(start, which)
    return Routes(edges[rows], offsets, found[which])


@numba.njit(cache=True, nogil=True)
def push(keys: Floats, items: Ints, size: int, key: float, item: int) -> int:
    """Add to a binary heap held in two arrays; its new size."""
    child = size
    while child > 0:
        parent = (child - 1) >> 1
        if keys[parent] <= key:
            break
        keys[child], items[child] = keys[parent], items[parent]
        child = parent
    keys[child], items[child] = key, item
    return size + 1


@numba.njit(cache=True, nogil=True)
def pop(keys: Floats, items: Ints, size: int) -> int:
    """Remove the smallest entry (read it at 0 before); the heap's new size."""
    size -= 1
    key, item = keys[size], items[size]
    hole = 0
    while True:
        child = 2 * hole + 1
        if child >= size:
            break
        if child + 1 < size and keys[child + 1] < keys[child]:
            child += 1
        if keys[child] >= key:
            break
        keys[hole], items[hole] = keys[child], items[child]
        hole = child
    keys[hole], items[hole] = key, item
    return size


@numba.njit(cache=True, nogil=True)
def search(
    first_out: Ints,
    out_edge: Ints,
    out_head: Ints,
    out_weight: Floats,
    source: int,
    turning: int,
    extra: float,
    wanted: Ints,
    wants: int,
    limit: float,
    turn: int,
    distance: Floats,
    seen: Ints,
    settled: Ints,
    by: Ints,
    keys: Floats,
    items: Ints,
) -> None:
    """Dijkstra from ``source`` until all ``wants`` nodes with ``wanted[node] == turn`` are settled.

    It also stops beyond ``limit``. Leaving the source by edge ``turning`` (back where one came from; -1 for
    none) costs ``extra`` more. Afterwards ``settled[node] == turn`` says that ``distance[node]`` is final,
    and ``by[node]`` is the edge that reaches it (-1 at the source). The work arrays carry over from turn to
    turn, so a search pays only for what it visits.
    """
    size = push(keys, items, 0, 0.0, source)
    distance[source], seen[source], by[source] = 0.0, turn, -1
    while size > 0 and wants > 0:
        reached, node = keys[0], items[0]
        size = pop(keys, items, size)
        if settled[node] == turn:
            continue
        if reached > limit:
            break
        settled[node] = turn
        if wanted[node] == turn:
            wants -= 1
        for i in range(first_out[node], first_out[node + 1]):
            there, cost = out_head[i], reached + out_weight[i]
            if out_edge[i] == turning and node == source:
                cost += extra
            if seen[there] != turn or cost < distance[there]:
                seen[there], distance[there], by[there] = turn, cost, out_edge[i]
                size = push(keys, items, size, cost, there)


@numba.njit(cache=True, nogil=True)
def _trace_routes(
    first_out: Ints,
    out_edge: Ints,
    out_head: Ints,
    out_weight: Floats,
    tail: Ints,
    source: Ints,
    turning: Ints,
    target: Ints,
    group: Ints,
    extra: float,
) -> tuple[Ints, Ints, Bools]:
    nodes = len(first_out) - 1
    distance, by = np.empty(nodes), np.empty(nodes, dtype=np.int64)
    wanted, seen = np.full(nodes, -1, dtype=np.int64), np.full(nodes, -1, dtype=np.int64)
    settled = np.full(nodes, -1, dtype=np.int64)
    keys, items = np.empty(len(out_head) + 1), np.empty(len(out_head) + 1, dtype=np.int64)
    start = np.zeros(len(source) + 1, dtype=np.int64)
    found = np.zeros(len(source), dtype=np.bool_)
    edges = np.empty(max(1024, 16 * len(source)), dtype=np.int64)
    end = 0
    for turn in range(len(group) - 1):
        wants = 0
        for r in range(group[turn], group[turn + 1]):
            if wanted[target[r]] != turn:
                wanted[target[r]] = turn
                wants += 1
        search(
            first_out, out_edge, out_head, out_weight, source[group[turn]], turning[group[turn]], extra,
            wanted, wants, np.inf, turn, distance, seen, settled, by, keys, items,
        )  # fmt: skip
        for r in range(group[turn], group[turn + 1]):
            if settled[target[r]] == turn:
                found[r] = True
                steps, node = 0, target[r]
                while by[node] >= 0:
                    node = tail[by[node]]
                    steps += 1
                if end + steps > len(edges):
                    larger = np.empty(2 * (end + steps), dtype=np.int64)
                    larger[:end] = edges[:end]
                    edges = larger
                node = target[r]
                for back in range(end + steps - 1, end - 1, -1):
                    edges[back] = by[node]
                    node = tail[by[node]]
                end += steps
            start[r + 1] = end
    return edges[:end], start, found


# The lines of road edges: places on them, and the lines that paths of edges follow.


@lru_cache(maxsize=4)
def edge_lines(network: RoadNetwork) -> Polylines:
    """The line of each edge (the last few networks are remembered)."""
    return Polylines(network.coordinates, network.first_vertex)


@lru_cache(maxsize=4)
def edge_headings(network: RoadNetwork) -> tuple[Floats, Floats]:
    """The direction, in radians, of each edge at its end, and at its beginning."""
    xy, first, last = network.coordinates, network.first_vertex[:-1], network.first_vertex[1:] - 1
    leaving, entering = xy[last] - xy[last - 1], xy[first + 1] - xy[first]
    return np.arctan2(leaving[:, 1], leaving[:, 0]), np.arctan2(entering[:, 1], entering[:, 0])


def edge_points(roads: RoadDomain, edges: Ints, offset: Floats) -> Points:
    """The places ``offset`` metres along edges."""
    return edge_lines(roads.network).at(edges, offset)


def path_lines(
    roads: RoadDomain, edges: Ints, offsets: Ints, first_offset: Floats, last_offset: Floats
) -> Polylines:
    """The lines along paths of edges: each from ``first_offset`` metres along its first edge to
    ``last_offset`` metres along its last, with every vertex of the road between.
    """
    lines = edge_lines(roads.network)
    size = np.diff(lines.offsets)[edges]
    whole = Polylines(lines.xy[positions(lines.offsets[:-1][edges], size)], offsets_of(size)[offsets])
    last = lines.lengths[edges[offsets[1:] - 1]]
    return whole.between(first_offset, whole.lengths - last + last_offset).without_repeats()

"""Trips of drivers over a road graph: plausible private data to try trajectory methods on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import shapely

from synthgeo import ragged, validate
from synthgeo.arrays import Floats, Ints
from synthgeo.domain.road_network import edge_speeds
from synthgeo.errors import DomainError
from synthgeo.simulate.city import generator, microseconds, timestamp, zipf_weights

if TYPE_CHECKING:
    import networkx as nx

    from synthgeo.domain.road_network import RoadNetwork
    from synthgeo.domain.roads import RoadDomain


_HABITS = 4  # kinds of drivers, each with its own idea of which streets are slow
_SOURCES = 128  # shortest-path trees in memory at a time


@dataclass(frozen=True)
class _Routes:
    """Trips as runs of edges: trip i drives edges ``edge[first[i]:first[i + 1]]``."""

    network: RoadNetwork
    edge: Ints
    first: Ints
    seconds: Floats  # time to drive each of these edges in full
    user: Ints
    depart: Floats  # seconds since the start
    enter: Floats  # share of the first edge that is skipped
    leave: Floats  # share of the last edge that is driven


def city_trips(
    graph: nx.MultiDiGraph | RoadDomain,
    *,
    trips: int = 1_000,
    users: int | None = None,
    interval: float = 30.0,
    gps_noise: float = 5.0,
    days: int = 7,
    start: Any = "2024-03-04",
    coordinates: str = "lonlat",
    seed: int,
) -> pd.DataFrame:
    """GPS points of trips over any osmnx road graph (or the ``RoadDomain`` made from one).

    Origins and destinations gather around hot spots (homes in the morning, work in the evening the other
    way); drivers have habits, so that they do not all take the shortest path; speeds follow the kind of
    street (``maxspeed``, ``highway``) and the hour; a point is recorded every ``interval`` seconds and at
    the end, ``gps_noise`` metres off.

    Columns: ``trip_id`` (from 0), ``time``, ``lon``, ``lat``, ``user_id``; with ``coordinates="xy"``, ``x``
    and ``y`` in the projected CRS that ``RoadDomain.from_graph`` gives the graph. Sorted by trip, then
    time.
    """
    validate.one_of(coordinates, "coordinates", ("lonlat", "xy"))
    interval = validate.positive(interval, "interval")
    gps_noise = validate.non_negative(gps_noise, "gps_noise")
    begin = timestamp(start)
    rng = generator(seed)
    routes = _drive(graph, trips, users, days, rng)
    trip, seconds, xy = _points(routes, interval)
    xy = xy + rng.normal(0, gps_noise, xy.shape)
    names = ("x", "y")
    if coordinates == "lonlat":
        from synthgeo.domain.coordinates import crs_text, transform

        names, xy = ("lon", "lat"), transform(xy, crs_text(routes.network.crs), "EPSG:4326")
    return pd.DataFrame(
        {
            "trip_id": trip,
            "time": microseconds(begin, routes.depart[trip] + seconds),
            names[0]: xy[:, 0],
            names[1]: xy[:, 1],
            "user_id": routes.user[trip],
        }
    )


def city_routes(
    graph: nx.MultiDiGraph | RoadDomain,
    *,
    trips: int = 1_000,
    users: int | None = None,
    days: int = 7,
    seed: int,
) -> pd.DataFrame:
    """The edges that ``city_trips`` with the same arguments drives: the truth for map matching.

    Columns: ``trip_id``, ``seq``, ``u``, ``v``, ``key`` of the graph's edges, in order.
    """
    routes = _drive(graph, trips, users, days, generator(seed))
    network, edge = routes.network, routes.edge
    return pd.DataFrame(
        {
            "trip_id": ragged.owners_of(routes.first),
            "seq": ragged.ranks_of(np.diff(routes.first)),
            "u": network.edge_u[edge],
            "v": network.edge_v[edge],
            "key": network.edge_key[edge],
        }
    )


def _drive(
    graph: nx.MultiDiGraph | RoadDomain, trips: int, users: int | None, days: int, rng: np.random.Generator
) -> _Routes:
    from synthgeo.domain.road_network import RoadNetwork
    from synthgeo.domain.roads import RoadDomain

    trips, days = validate.whole(trips, "trips", low=1), validate.whole(days, "days", low=1)
    users = max(1, trips // 8) if users is None else validate.whole(users, "users", low=1)
    network = graph.network if isinstance(graph, RoadDomain) else RoadNetwork.from_graph(graph)
    nodes = pd.Index(network.node_id)
    tail, head = nodes.get_indexer(network.edge_u), nodes.get_indexer(network.edge_v)
    metres = np.maximum(shapely.length(network.lines), 0.1)
    free_flow = metres / (edge_speeds(network) / 3.6)

    user = rng.choice(users, size=trips, p=zipf_weights(users, 0.4))
    day = rng.integers(0, days, trips)
    rush = rng.choice(3, size=trips, p=[0.3, 0.35, 0.35])
    hour = np.choose(rush, [rng.normal(8, 1, trips), rng.normal(17.5, 1.5, trips), rng.uniform(6, 24, trips)])
    depart = (day * 24 + np.clip(hour, 0, 23.99)) * 3600

    strong = _strong_nodes(tail, head, len(nodes))
    origin, destination = _ends(network.node_xy, strong, rush, rng)
    kind = rng.integers(0, _HABITS, users)[user]
    preference = np.exp(rng.normal(0, 0.35, (_HABITS, network.size)))
    edge, first = _route(tail, head, free_flow * preference, len(nodes), origin, destination, kind)
    # Congestion slows all streets at the rush hours; each trip has its own pace.
    slow = (
        1 + 0.8 * np.exp(-0.5 * ((hour - 8.5) / 1.2) ** 2) + 0.9 * np.exp(-0.5 * ((hour - 17.5) / 1.5) ** 2)
    )
    pace = slow * np.maximum(np.exp(rng.normal(0.2, 0.2, trips)), 0.95)
    seconds = free_flow[edge] * np.repeat(pace, np.diff(first)) * np.exp(rng.normal(0, 0.2, edge.size))
    return _Routes(
        network, edge, first, seconds, user, depart, rng.uniform(0, 0.9, trips), rng.uniform(0.1, 1, trips)
    )


def _strong_nodes(tail: Ints, head: Ints, nodes: int) -> Ints:
    """The largest set of nodes that can all reach each other."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    links = coo_array((np.ones(tail.size), (tail, head)), shape=(nodes, nodes)).tocsr()
    _, label = connected_components(links, connection="strong")
    strong = np.flatnonzero(label == np.bincount(label).argmax())
    if strong.size < 2:
        raise DomainError("no two nodes of the graph can reach each other: trips need connected roads")
    return strong


def _ends(xy: Floats, strong: Ints, rush: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Origin and destination nodes: homes to work in the morning, back in the evening, leisure else."""
    here = xy[strong]
    spots = min(10, strong.size)
    centre = here[rng.choice(strong.size, size=spots, replace=False)]
    size = max(float(np.hypot(*np.ptp(here, axis=0))), 1.0)
    closeness = np.exp(-np.hypot(*(here[:, None] - centre[None]).transpose(2, 0, 1)) / (0.06 * size))
    pull = {}
    for what, exponent in (("home", 0.3), ("work", 1.2), ("leisure", 0.8)):
        weights = closeness @ rng.permutation(zipf_weights(spots, exponent)) + (
            0.05 if what == "home" else 0.01
        )
        pull[what] = np.cumsum(weights / weights.sum())
    tables = [("home", "work"), ("work", "home"), ("leisure", "leisure")]
    origin = np.empty(rush.size, dtype=np.int64)
    destination = np.full(rush.size, -1, dtype=np.int64)
    for i, (source, _) in enumerate(tables):
        chosen = np.flatnonzero(rush == i)
        origin[chosen] = _draw(pull[source], chosen.size, rng)
    open_trips = np.arange(rush.size)
    for attempt in range(50):
        for i, (_, target) in enumerate(tables):
            chosen = open_trips[rush[open_trips] == i]
            destination[chosen] = _draw(pull[target], chosen.size, rng)
        apart = np.hypot(*(here[destination[open_trips]] - here[origin[open_trips]]).T)
        # Short hops are walked, very long ones are rare.
        good = (apart > 0.05 * size) & (
            rng.random(open_trips.size) < np.exp(-apart / (0.4 * size)) + attempt / 50
        )
        open_trips = open_trips[~good]
        if not open_trips.size:
            break
    same = destination == origin
    destination[same] = (origin[same] + 1) % strong.size
    return strong[origin], strong[destination]


def _draw(cumulative: Floats, size: int, rng: np.random.Generator) -> Ints:
    return np.minimum(np.searchsorted(cumulative, rng.random(size), side="right"), cumulative.size - 1)


def _route(
    tail: Ints, head: Ints, cost: Floats, nodes: int, origin: Ints, destination: Ints, kind: Ints
) -> tuple[Ints, Ints]:
    """Cheapest paths as runs of edges: one tree for each habit and origin, walked back all at once."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    trips: list[Ints] = []
    steps: list[Ints] = []
    edges: list[Ints] = []
    for habit in range(len(cost)):
        # Of parallel edges the cheapest counts; rows sorted by (tail, head) find it again.
        order = np.lexsort((cost[habit], head, tail))
        link = tail[order] * np.int64(nodes) + head[order]
        order = order[np.concatenate([[True], link[1:] != link[:-1]])]
        link = tail[order] * np.int64(nodes) + head[order]
        matrix = csr_array((cost[habit][order], (tail[order], head[order])), shape=(nodes, nodes))
        chosen = np.flatnonzero(kind == habit)
        sources, which = np.unique(origin[chosen], return_inverse=True)
        by_source = np.argsort(which, kind="stable")
        for low in range(0, sources.size, _SOURCES):
            batch = sources[low : low + _SOURCES]
            _, before = dijkstra(matrix, indices=batch, return_predecessors=True)
            a, b = np.searchsorted(which[by_source], [low, low + batch.size])
            trip = chosen[by_source[a:b]]
            row = which[by_source[a:b]] - low
            at = destination[trip]
            step = 0
            while trip.size:
                previous = before[row, at].astype(np.int64)
                edges.append(order[np.searchsorted(link, previous * np.int64(nodes) + at)])
                trips.append(trip)
                steps.append(np.full(trip.size, step))
                going = previous != origin[trip]
                trip, row, at = trip[going], row[going], previous[going]
                step -= 1
    owner = np.concatenate(trips)
    order = np.lexsort((np.concatenate(steps), owner))
    return np.concatenate(edges)[order], np.searchsorted(owner[order], np.arange(origin.size + 1))


def _points(routes: _Routes, interval: float) -> tuple[Ints, Floats, Floats]:
    """Trip, seconds since departure and coordinates of a fix every ``interval`` seconds and at the end."""
    first, last = routes.first[:-1], routes.first[1:] - 1
    counts = np.diff(routes.first)
    # A trip enters its first edge and leaves its last somewhere in the middle.
    enter, leave = np.zeros(routes.edge.size), np.ones(routes.edge.size)
    enter[first] = np.where(counts > 1, routes.enter, 0.0)
    leave[last] = np.where(counts > 1, routes.leave, 1.0)
    spent = routes.seconds * (leave - enter)
    clock = np.cumsum(spent)
    base = clock[last] - np.add.reduceat(spent, first)
    total = clock[last] - base
    fixes = np.floor(total / interval).astype(np.int64) + 1
    trip = np.repeat(np.arange(counts.size), fixes + 1)
    seconds = np.minimum(ragged.ranks_of(fixes + 1) * interval, total[trip])
    # The last regular fix may fall on the end itself.
    fresh = np.concatenate([[True], (trip[1:] != trip[:-1]) | (seconds[1:] > seconds[:-1])])
    trip, seconds = trip[fresh], seconds[fresh]
    row = np.clip(np.searchsorted(clock, base[trip] + seconds, side="left"), first[trip], last[trip])
    into = np.clip((base[trip] + seconds - (clock[row] - spent[row])) / spent[row], 0.0, 1.0)
    share = enter[row] + into * (leave[row] - enter[row])
    line = routes.network.lines[routes.edge[row]]
    place = shapely.line_interpolate_point(line, share, normalized=True)
    return trip, seconds, np.column_stack([shapely.get_x(place), shapely.get_y(place)])

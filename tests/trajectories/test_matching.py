"""Matching: true paths are found, all are directed paths of the graph, and trips do not touch each other."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from synthgeo.domain.roads import RoadDomain
from synthgeo.errors import ConfigError
from synthgeo.privacy.unit import PrivacyUnit
from trajectories.matching.match import SLACK, Candidates, match, move_costs
from trajectories.matching.path_assembly import MatchedTrips
from trajectories.reading.points import Trips, read_trips
from trajectories.routing import RoadGraph, path_lines, routes_between_edges, shortest_routes

DATA = Path(os.environ.get("SYNTHGEO_DATA", "data"))
BLOCK = 100.0
CORNER = np.array([440_000.0, 4_630_000.0])
METHODS = ("hmm", "nearest", "ends")


def make_roads(
    streets: list[tuple[Any, Any]], where: dict[Any, tuple[float, float]], **options: Any
) -> RoadDomain:
    """A domain of straight one-way streets; give both directions for a two-way street."""
    graph = nx.MultiDiGraph(crs="EPSG:32616", simplified=True)
    for node, (x, y) in where.items():
        graph.add_node(node, x=x + CORNER[0], y=y + CORNER[1], street_count=2)
    for number, (u, v) in enumerate(streets):
        length = float(np.hypot(where[u][0] - where[v][0], where[u][1] - where[v][1]))
        graph.add_edge(u, v, osmid=number, length=length, **options)
    return RoadDomain.from_graph(graph)


def city(side: int = 6, one_way: bool = True) -> RoadDomain:
    """A grid of blocks; every second street is one-way, in turn to either side, but the ring road is not."""
    where = {(i, j): (i * BLOCK, j * BLOCK) for i in range(side) for j in range(side)}
    streets = []
    for i in range(side):
        for j in range(side - 1):
            for u, v, line in (((j, i), (j + 1, i), i), ((i, j), (i, j + 1), i)):
                ring = line in (0, side - 1)
                if ring or not one_way or line % 4 != 3:
                    streets.append((u, v))
                if ring or not one_way or line % 4 != 1:
                    streets.append((v, u))
    codes = {node: number for number, node in enumerate(where)}
    return make_roads([(codes[u], codes[v]) for u, v in streets], {codes[n]: xy for n, xy in where.items()})


CITY = city()
GRAPH = RoadGraph.of(CITY)


def lines_to_trips(lines: list[Any], time: list[Any] | None = None) -> Trips:
    """Trips from coordinates relative to the city's corner."""
    parts = [np.asarray(line, dtype=float).reshape(-1, 2) + CORNER for line in lines]
    start = np.concatenate([[0], np.cumsum([len(p) for p in parts])])
    return Trips(np.concatenate(parts), start, None if time is None else np.concatenate(time).astype(float))


def drive(roads: RoadDomain, *, trips: int, every: float, noise: float, seed: int) -> tuple[Trips, list[Any]]:
    """Random drives that never turn round, recorded every so many metres with noise, and the true edges."""
    graph, rng = RoadGraph.of(roads), np.random.default_rng(seed)
    lines, truth = [], []
    for _ in range(trips):
        path = [int(rng.integers(len(graph.head)))]
        while len(path) < 14:
            node = graph.head[path[-1]]
            ways = graph.out_edge[graph.first_out[node] : graph.first_out[node + 1]]
            ways = ways[ways != graph.opposite[path[-1]]]
            path.append(int(rng.choice(ways)))
        edges = np.array(path)
        total = graph.length[edges].sum()
        line = path_lines(roads, edges, np.array([0, len(edges)]), np.zeros(1), graph.length[edges[-1:]])
        xy = line.xy
        along = np.concatenate([[0], np.cumsum(np.hypot(*np.diff(xy, axis=0).T))])
        at = np.arange(20.0, total - 20.0, every)
        points = np.column_stack([np.interp(at, along, xy[:, 0]), np.interp(at, along, xy[:, 1])])
        lines.append(points + rng.normal(0, noise, points.shape) - CORNER)
        ends = np.cumsum(graph.length[edges])
        truth.append(edges[(ends > at[0]) & (ends - graph.length[edges] < at[-1])])
    return lines_to_trips(lines), truth


def paths_of(matched: MatchedTrips) -> list[list[int]]:
    return [matched.edges[a:b].tolist() for a, b in zip(matched.start[:-1], matched.start[1:], strict=True)]


def assert_sound(matched: MatchedTrips, roads: RoadDomain, trips: Trips) -> None:
    """What every match promises."""
    graph = RoadGraph.of(roads)
    assert len(matched.matched) == trips.size
    assert matched.size == matched.matched.sum()
    assert (np.diff(matched.start) >= 1).all()
    inner = np.setdiff1d(np.arange(1, len(matched.edges)), matched.start)
    assert (graph.head[matched.edges[inner - 1]] == graph.tail[matched.edges[inner]]).all()
    first, last = matched.edges[matched.start[:-1]], matched.edges[matched.start[1:] - 1]
    assert (matched.first_offset >= 0).all()
    assert (matched.first_offset <= graph.length[first] + 1e-9).all()
    assert (matched.last_offset >= 0).all()
    assert (matched.last_offset <= graph.length[last] + 1e-9).all()
    assert (matched.lengths(roads) >= -1e-9).all()
    if trips.time is not None:
        assert matched.time is not None
        assert matched.arrival is not None
        same = np.diff(matched.trip) == 0
        assert (np.diff(matched.time)[same] >= 0).all()
        assert (matched.time <= matched.arrival[matched.trip]).all()


@pytest.mark.parametrize(
    ("every", "noise", "least"), [(25.0, 0.0, 1.0), (25.0, 6.0, 0.97), (60.0, 10.0, 0.93), (140.0, 6.0, 0.93)]
)
def test_true_paths_are_found(every: float, noise: float, least: float) -> None:
    trips, truth = drive(CITY, trips=150, every=every, noise=noise, seed=3)
    matched = match(trips, CITY)
    assert_sound(matched, CITY, trips)
    assert matched.matched.all()
    share = [
        len(set(a) & set(b)) / len(set(a) | set(b)) for a, b in zip(paths_of(matched), truth, strict=True)
    ]
    assert np.mean(share) >= least
    # The same points in the wrong order are another story: the score can tell.
    backwards = match(Trips(trips.xy[::-1], len(trips.xy) - trips.start[::-1]), CITY)
    wrong = [
        len(set(a) & set(b)) / len(set(a) | set(b))
        for a, b in zip(paths_of(backwards), truth[::-1], strict=True)
    ]
    assert np.mean(wrong) < 0.6


def test_the_nearest_road_is_an_option_and_worse() -> None:
    trips, truth = drive(CITY, trips=100, every=30.0, noise=12.0, seed=4)
    extra = {}
    for method in ("hmm", "nearest"):
        matched = match(trips, CITY, method=method)  # type: ignore[arg-type]
        assert_sound(matched, CITY, trips)
        extra[method] = sum(len(set(a) - set(b)) for a, b in zip(paths_of(matched), truth, strict=True))
    assert extra["hmm"] < 0.7 * extra["nearest"]


def test_against_a_one_way_street_the_path_goes_round() -> None:
    """Down a street that only goes up: the path is legal, and about one block longer or more."""
    one_way = np.flatnonzero(GRAPH.opposite < 0)
    wrong = [(300.0, y) for y in range(480, 20, -20)]  # column 3 goes down only, column 1 up only
    right = [(100.0, y) for y in range(480, 20, -20)]
    trips = lines_to_trips([wrong, right])
    matched = match(trips, CITY)
    assert_sound(matched, CITY, trips)
    lengths = np.sort(matched.lengths(CITY))
    assert lengths[0] == pytest.approx(440, abs=25)
    assert lengths[1] > 540
    assert set(one_way) & set(matched.edges.tolist())


def test_gaps_are_routed() -> None:
    trips = lines_to_trips([[(10, 0), (490, 0), (500, 490)]])
    matched = match(trips, CITY)
    assert_sound(matched, CITY, trips)
    assert matched.lengths(CITY)[0] == pytest.approx(980, abs=1)


def test_points_off_the_roads_are_left_out_and_the_gap_routed() -> None:
    trips = lines_to_trips([[(-900, 0), (10, 0), (90, 0), (90, -700), (190, 0), (290, 0), (9000, 0)]])
    matched = match(trips, CITY)
    assert_sound(matched, CITY, trips)
    assert matched.lengths(CITY)[0] == pytest.approx(280, abs=1)


def test_a_trip_of_one_point_is_a_place_on_an_edge() -> None:
    trips = lines_to_trips([[(130, 3)]], [[50]])
    for method in METHODS:
        matched = match(trips, CITY, method=method)  # type: ignore[arg-type]
        assert_sound(matched, CITY, trips)
        assert len(matched.edges) == 1
        assert matched.first_offset.tolist() == matched.last_offset.tolist()
        assert matched.time is not None
        assert matched.time.tolist() == [50.0]


def test_trips_away_from_all_roads_have_no_match() -> None:
    trips = lines_to_trips([[(9e5, 0), (9e5, 10)], [(10, 0), (90, 0)], [(-9e5, 0)]])
    for method in METHODS:
        matched = match(trips, CITY, method=method)  # type: ignore[arg-type]
        assert matched.matched.tolist() == [False, True, False]
        assert matched.size == 1


def test_points_that_no_projection_could_place_are_left_out() -> None:
    trips = lines_to_trips(
        [[(10, 0), (90, 0), (np.inf, np.inf), (190, 0)], [(np.inf, 0)], [(-np.inf, 1), (10, 0)]]
    )
    matched = match(trips, CITY)
    assert matched.matched.tolist() == [True, False, True]
    np.testing.assert_allclose(matched.lengths(CITY), [180, 0], atol=1e-6)
    assert match(trips, CITY, method="ends").matched.tolist() == [True, False, False]


def test_nothing_matches_nothing() -> None:
    empty = Trips(np.empty((0, 2)), np.array([0]), np.empty(0))
    far = lines_to_trips([[(9e5, 0)]], [[0]])
    for trips in (empty, far):
        for method in METHODS:
            matched = match(trips, CITY, method=method)  # type: ignore[arg-type]
            assert matched.size == 0
            assert matched.time is not None
            assert len(matched.lengths(CITY)) == 0
            assert matched.to_trips(CITY).size == 0


def test_jitter_while_standing_is_no_drive() -> None:
    rng = np.random.default_rng(0)
    stand = np.array([150.0, 0.0]) + rng.normal(0, 6, (200, 2))
    drive_on = np.column_stack([np.arange(150, 400, 15.0), np.zeros(17)])
    trips = lines_to_trips([np.concatenate([stand, drive_on])])
    matched = match(trips, CITY)
    assert_sound(matched, CITY, trips)
    assert matched.lengths(CITY)[0] < 300


def test_a_u_turn_that_was_driven_stays() -> None:
    street = make_roads([(0, 1), (1, 0)], {0: (0, 0), 1: (300, 0)})
    out = np.column_stack([np.arange(10, 300, 20.0), np.zeros(15)])
    trips = lines_to_trips([np.concatenate([out, out[::-1]])])
    matched = match(trips, street)
    assert len(matched.edges) == 2
    assert matched.lengths(street)[0] == pytest.approx(580, abs=25)


def test_short_excursions_are_taken_back() -> None:
    where = {0: (0, 0), 1: (200, 0), 2: (400, 0), 3: (200, 30)}
    stub = make_roads([(0, 1), (1, 0), (1, 2), (2, 1), (1, 3), (3, 1)], where)
    line = [(x, 0) for x in range(20, 200, 30)] + [(200, 24)] + [(x, 0) for x in range(230, 400, 30)]
    trips = lines_to_trips([line])
    kept, gone = match(trips, stub, spur=0, sigma=2), match(trips, stub, spur=40, sigma=2)
    assert len(kept.edges) == 4
    assert len(gone.edges) == 2
    for matched in (kept, gone):
        assert_sound(matched, stub, trips)


def test_an_excursion_that_begins_the_path_leaves_the_start_in_place() -> None:
    stub = make_roads([(0, 1), (1, 0), (0, 2), (2, 0)], {0: (0, 0), 1: (0, 30), 2: (300, 0)})
    trips = lines_to_trips([[(0, 10), (0, 29), (100, 0), (200, 0)]], [[0, 10, 20, 30]])
    matched = match(trips, stub, sigma=2, min_step=0)
    assert_sound(matched, stub, trips)
    assert len(matched.edges) == 2
    xy = matched.to_trips(stub).xy - CORNER
    np.testing.assert_allclose(xy[0], (0, 10), atol=1e-6)
    np.testing.assert_allclose(xy[-1], (200, 0), atol=1e-6)


def test_disconnected_parts_keep_the_part_with_more_points() -> None:
    two = make_roads([(0, 1), (1, 0), (2, 3), (3, 2)], {0: (0, 0), 1: (300, 0), 2: (2000, 0), 3: (2300, 0)})
    line = [(x, 0) for x in (30, 60, 90)] + [(x, 0) for x in range(2030, 2290, 30)]
    trips = lines_to_trips([line])
    matched = match(trips, two)
    assert_sound(matched, two, trips)
    assert matched.lengths(two)[0] == pytest.approx(240, abs=1)


def test_ends_without_a_way_between_have_no_match() -> None:
    one_way = make_roads([(0, 1), (1, 2)], {0: (0, 0), 1: (100, 0), 2: (200, 0)})
    trips = lines_to_trips(
        [[(10, 0), (190, 0)], [(190, 0), (10, 0)], [(10, 0), (9000, 0)], [(90, 0), (40, 0)]]
    )
    matched = match(trips, one_way, method="ends")
    assert matched.matched.tolist() == [True, False, False, False]
    # A hidden Markov match of the same trips follows what the graph allows.
    assert match(trips, one_way).matched.all()


def test_one_way_chain_is_followed_although_nothing_leads_back() -> None:
    chain = make_roads([(i, i + 1) for i in range(9)], {i: (i * 50.0, 0.0) for i in range(10)})
    trips = lines_to_trips([[(x, 2.0) for x in range(10, 440, 30)]])
    matched = match(trips, chain)
    assert matched.edges.tolist() == list(range(9))


def test_speeds_follow_limits_and_kinds_of_roads() -> None:
    """A limit wins over the kind of road, a speed that was given over both; what says nothing has 30 km/h."""
    kinds: list[tuple[dict[str, Any], float]] = [
        ({}, 30), ({"highway": "motorway_link"}, 90), ({"highway": ["residential", "primary"]}, 25),
        ({"highway": "primary", "maxspeed": "50"}, 50), ({"maxspeed": "30 mph"}, 48.27),
        ({"maxspeed": "50", "speed_kph": 20.0}, 20),
    ]  # fmt: skip
    for tags, kph in kinds:
        roads = make_roads([(0, 1), (1, 0)], {0: (0, 0), 1: (1000, 0)}, **tags)
        assert RoadGraph.of(roads).free_flow == pytest.approx(1000 / (kph / 3.6))


def test_ends_take_the_cheapest_way() -> None:
    where = {0: (0, 0), 1: (400, 0), 2: (200, 300)}
    roads = make_roads([(0, 1), (1, 0), (0, 2), (2, 0), (2, 1), (1, 2)], where)
    fast = make_roads([(0, 1), (1, 0), (0, 2), (2, 0), (2, 1), (1, 2)], where, speed_kph=30.0)
    graph = fast.network.graph.copy()
    for u, v, _, tags in graph.edges(keys=True, data=True):
        if 2 in (u, v):
            tags["speed_kph"] = 120.0
    fast = RoadDomain.from_graph(graph)
    trips = lines_to_trips([[(0, 0), (400, 0)]], [[0, 60]])
    assert match(trips, roads, method="ends").lengths(roads)[0] == pytest.approx(400, abs=1)
    quick = match(trips, fast, method="ends", weight="travel_time")
    assert quick.lengths(fast)[0] == pytest.approx(2 * np.hypot(200, 300), abs=1)
    assert quick.time is not None
    inside = quick.time[1:][quick.time[1:] > 0]
    assert inside[0] == pytest.approx(30, abs=1)


def test_behind_on_the_same_one_way_edge_ends_go_round() -> None:
    ring = make_roads([(0, 1), (1, 2), (2, 0)], {0: (0, 0), 1: (300, 0), 2: (150, 200)})
    trips = lines_to_trips([[(200, 0), (100, 0)]])
    matched = match(trips, ring, method="ends")
    assert_sound(matched, ring, trips)
    assert matched.lengths(ring)[0] == pytest.approx(300 + 2 * 250 - 100, abs=1)


def test_times_are_linear_in_distance() -> None:
    trips = lines_to_trips([[(0, 0), (250, 0), (500, 0)]], [[100, 150, 300]])
    matched = match(trips, CITY)
    assert matched.time is not None
    assert matched.arrival is not None
    np.testing.assert_allclose(matched.time, [100, 120, 140, 180, 240], atol=1e-6)
    assert matched.arrival.tolist() == [300.0]


def test_two_points_a_day_apart_are_a_route_of_a_day() -> None:
    trips = lines_to_trips([[(10, 0), (490, 500)]], [[0, 86_400]])
    matched = match(trips, CITY)
    assert_sound(matched, CITY, trips)
    assert matched.arrival is not None
    assert matched.arrival.tolist() == [86_400.0]


def test_a_hundred_thousand_points_in_one_trip() -> None:
    lap = np.concatenate([
        [(x, 0) for x in range(0, 500, 25)], [(500, y) for y in range(0, 500, 25)],
        [(x, 500) for x in range(500, 0, -25)], [(0, y) for y in range(500, 0, -25)],
    ])  # fmt: skip
    trips = lines_to_trips([np.tile(lap, (1250, 1))])
    assert len(trips.xy) == 100_000
    matched = match(trips, CITY)
    assert_sound(matched, CITY, trips)
    assert matched.lengths(CITY)[0] == pytest.approx(1250 * 2000, rel=0.01)


def test_lines_run_along_the_roads_between_the_ends() -> None:
    trips, _ = drive(CITY, trips=40, every=40.0, noise=5.0, seed=8)
    matched = match(trips, CITY)
    lines = matched.to_trips(CITY)
    np.testing.assert_allclose(lines.lengths(), matched.lengths(CITY), atol=1e-6)
    _, _, apart = CITY.nearest(lines.xy)
    assert apart.max() < 1e-6
    reach = shapely.distance(
        shapely.points(trips.xy),
        np.array(
            [
                shapely.LineString(lines.xy[a:b])
                for a, b in zip(lines.start[:-1], lines.start[1:], strict=True)
            ]
        )[trips.trip],
    )
    assert np.percentile(reach, 99) < 20


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.tuples(*[st.integers(-1, 12)] * 2), min_size=1, max_size=8), min_size=2,
                max_size=5), st.sampled_from(METHODS))  # fmt: skip
def test_each_trip_is_matched_as_if_it_were_alone(drawn: list[list[tuple[int, int]]], method: Any) -> None:
    """One trip in, one path or none out, the same to the last digit whatever else is there: sensitivity 1."""
    lines = [np.array(points) * 47.0 for points in drawn]
    times = [np.arange(len(line)) * 17.3 for line in lines]
    together = match(lines_to_trips(lines, times), CITY, method=method)
    alone = [
        match(lines_to_trips([line], [time]), CITY, method=method)
        for line, time in zip(lines, times, strict=True)
    ]
    assert together.matched.tolist() == [bool(m.matched[0]) for m in alone]
    for name in ("edges", "first_offset", "last_offset", "time", "arrival"):
        parts = np.concatenate([getattr(m, name) for m in alone])
        np.testing.assert_array_equal(getattr(together, name), parts)


def test_a_far_trip_does_not_lend_its_reach_to_a_near_one() -> None:
    """Searches from one edge are shared between trips; how far one trip looks must not help another."""
    where = {0: (0, 0), 1: (100, 0), 2: (100, 40), 3: (0, 40), 4: (2500, 0), 5: (2500, 40)}
    graph = RoadGraph.of(make_roads([(0, 1), (1, 4), (4, 5), (5, 2), (2, 3), (3, 0)], where))
    # Near: from (80, 0) to (80, 40), 4,840 m by road. Far: from the same place to the far end.
    edge, offset, apart = np.array([0, 4, 0, 2]), np.array([80.0, 20.0, 80.0, 10.0]), np.zeros(4)
    goes_on, straight = np.array([True, False, True, False]), np.array([40.0, 0.0, 2420.0, 0.0])

    def cost(points: int) -> float:
        some = Candidates(
            np.arange(points + 1),
            edge[:points],
            offset[:points],
            apart[:points],
            goes_on[:points],
            straight[:points],
        )
        return float(move_costs(graph, some, weight="length", u_turn=0.0, bounded=True, backtrack=True)[1][0])

    assert cost(4) == cost(2) == 20.0 + (2 * 40.0 + SLACK) + 20.0


def test_users_follow_their_trips() -> None:
    trips = lines_to_trips([[(9e5, 0)], [(10, 0), (90, 0)]])
    matched = match(Trips(trips.xy, trips.start, None, np.array([4, 7])), CITY)
    assert matched.user is not None
    assert matched.user.tolist() == [7]


@pytest.mark.parametrize(
    "option",
    [{"method": "magic"}, {"sigma": 0}, {"beta": -1}, {"stretch": -0.1}, {"candidates": 0},
     {"u_turn": np.nan}, {"spur": -1}, {"min_step": -1}, {"weight": "scenery"}],
)  # fmt: skip
def test_senseless_options_are_refused(option: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(option))):
        match(lines_to_trips([[(0, 0)]]), CITY, **option)


def test_routes_equal_networkx() -> None:
    rng = np.random.default_rng(2)
    source, target = rng.integers(0, GRAPH.nodes, (2, 200))
    routes = shortest_routes(GRAPH, source, target)
    plain = nx.DiGraph()
    plain.add_weighted_edges_from(
        zip(GRAPH.tail.tolist(), GRAPH.head.tolist(), GRAPH.length.tolist(), strict=True)
    )
    assert routes.found.all()
    for i, (a, b) in enumerate(zip(source.tolist(), target.tolist(), strict=True)):
        path = routes.edges[routes.start[i] : routes.start[i + 1]]
        assert GRAPH.length[path].sum() == pytest.approx(nx.dijkstra_path_length(plain, a, b))
        nodes = [a, *GRAPH.head[path].tolist()]
        assert nodes[-1] == b
        assert nodes[:-1] == GRAPH.tail[path].tolist()


def test_routes_say_when_there_is_none() -> None:
    chain = RoadGraph.of(make_roads([(0, 1), (1, 2)], {0: (0, 0), 1: (50, 0), 2: (90, 0)}))
    routes = shortest_routes(chain, np.array([0, 2, 1]), np.array([2, 0, 1]))
    assert routes.found.tolist() == [True, False, True]
    assert np.diff(routes.start).tolist() == [2, 0, 0]


def test_turning_round_costs_extra_except_in_a_dead_end() -> None:
    two_way = city(one_way=False)
    graph = RoadGraph.of(two_way)
    edge = int(np.flatnonzero((graph.opposite >= 0) & (np.diff(graph.first_out)[graph.head] > 2))[0])
    back = np.array([graph.opposite[edge]])
    beyond = graph.out_edge[graph.first_out[graph.tail[edge]] : graph.first_out[graph.tail[edge] + 1]]
    after = beyond[beyond != edge][:1]
    cheap = routes_between_edges(graph, np.array([edge]), after)
    dear = routes_between_edges(graph, np.array([edge]), after, u_turn=10_000.0)
    assert cheap.edges.tolist() == back.tolist()
    assert dear.edges[0] != back[0]
    street = RoadGraph.of(make_roads([(0, 1), (1, 0), (0, 2), (2, 0)], {0: (0, 0), 1: (90, 0), 2: (0, 70)}))
    into = np.flatnonzero(street.head == 1)
    out = np.flatnonzero(street.head == 2)
    assert len(routes_between_edges(street, into, out, u_turn=10_000.0).edges) == 1


@pytest.mark.realdata
@pytest.mark.slow
def test_chicago_shuttles() -> None:
    """All 889 real trips get a directed path that stays close to what was recorded, with few reversals."""
    if not (DATA / "chicago" / "roads.graphml").exists():
        pytest.skip("SYNTHGEO_DATA has no chicago/roads.graphml")
    roads = RoadDomain.from_graphml(DATA / "chicago" / "roads.graphml")
    points = pd.read_parquet(DATA / "chicago" / "trips.parquet")
    trips = read_trips(points, roads, unit=PrivacyUnit.trajectory())
    matched = match(trips, roads)
    assert_sound(matched, roads, trips)
    assert matched.matched.all()
    ratio = matched.lengths(roads) / trips.lengths()
    assert np.median(ratio) == pytest.approx(1.0, abs=0.03)
    assert np.percentile(ratio, 95) < 1.25
    opposite = RoadGraph.of(roads).opposite
    same = np.diff(matched.trip) == 0
    assert np.mean(opposite[matched.edges[:-1][same]] == matched.edges[1:][same]) < 0.005
    lines = matched.to_trips(roads)
    shapes = [
        shapely.LineString(lines.xy[a:b]) for a, b in zip(lines.start[:-1], lines.start[1:], strict=True)
    ]
    apart = shapely.distance(shapely.points(trips.xy), np.array(shapes)[trips.trip])
    assert np.median(apart) < 5
    assert np.percentile(apart, 95) < 20

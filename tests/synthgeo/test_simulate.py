"""Simulated data: the promised columns, the promised shapes, the same frame for the same seed."""

from __future__ import annotations

import networkx as nx
import numpy as np
import osmnx as ox
import pandas as pd
import pytest
import shapely

import synthgeo as sg
from synthgeo.domain.coordinates import coordinates_of
from synthgeo.errors import ConfigError, DomainError
from synthgeo.hierarchy.base import hierarchy_of

GRAPH = sg.simulate.city_graph(10, 8, seed=1)
TOWN = sg.RoadDomain.from_graph(GRAPH)
TRIPS = sg.simulate.city_trips(GRAPH, trips=300, seed=5)


def alive(frame, *, by):
    """Events in order, and how many records are there after each step."""
    return frame.groupby(by)["op"].sum().cumsum()


@pytest.mark.parametrize(
    "make",
    [
        lambda seed: sg.simulate.circles(12, 30, seed=seed),
        lambda seed: sg.simulate.checkins(2_000, deletion=True, seed=seed),
        lambda seed: sg.simulate.taxi_stream(1_000, roads=TOWN, seed=seed),
        lambda seed: sg.simulate.city_trips(GRAPH, trips=20, seed=seed),
        lambda seed: sg.simulate.city_routes(GRAPH, trips=20, seed=seed),
        lambda seed: sg.simulate.census(500, seed=seed),
    ],
)
def test_same_seed_same_frame(make):
    frame = make(3)
    pd.testing.assert_frame_equal(frame, make(3))
    assert not frame.equals(make(4))
    assert not frame.isna().any().any()
    assert isinstance(frame.index, pd.RangeIndex)
    for seed in (-1, None, 1.5, True):
        with pytest.raises(ConfigError, match="seed"):
            make(seed)


def test_circles_with_deletion_move_from_the_outer_to_the_inner_circle():
    frame = sg.simulate.circles(seed=1)
    assert list(frame.columns) == ["step", "x", "y", "op", "user_id"]
    assert (frame.groupby("step").size() == 500).all()
    assert frame["step"].nunique() == 150
    assert alive(frame, by="step").loc[[49, 149]].tolist() == [25_000, 25_000]
    radius = np.hypot(frame["x"] - 0.5, frame["y"] - 0.5)
    assert radius.between(0.14, 0.46).all()
    inserted = frame[frame["op"] == 1]
    inner = (np.hypot(inserted["x"] - 0.5, inserted["y"] - 0.5) < 0.3).groupby(inserted["step"]).mean()
    assert inner[:50].mean() < 0.1
    assert inner[50:].mean() > 0.9


def test_circles_without_deletion_grow_both():
    frame = sg.simulate.circles(20, 100, deletion=False, seed=1)
    assert (frame["op"] == 1).all()
    inner = (np.hypot(frame["x"] - 0.5, frame["y"] - 0.5) < 0.3).groupby(frame["step"]).sum()
    assert inner.between(25, 75).all()


@pytest.mark.parametrize(
    ("frame", "record"),
    [
        (sg.simulate.circles(30, 40, seed=2), ["user_id", "x", "y"]),
        (sg.simulate.checkins(3_000, days=60, deletion=True, seed=2), ["user_id", "lon", "lat"]),
        (
            sg.simulate.census(2_000, leave=0.1, seed=2).drop(columns=["step"]),
            ["person_id", "region", "age", "income"],
        ),
    ],
)
def test_a_deletion_repeats_a_record_inserted_before(frame, record):
    order = np.arange(len(frame))
    inserts, deletes = frame["op"].to_numpy() == 1, frame["op"].to_numpy() == -1
    assert deletes.any()
    born = frame[inserts].assign(at=order[inserts])
    gone = frame[deletes].assign(at=order[deletes])
    assert not gone.duplicated(record).any()
    both = gone.merge(born, on=record, suffixes=("_gone", "_born"))
    assert len(both) == len(gone)
    assert (both["at_gone"] > both["at_born"]).all()


def test_checkins_grow_are_skewed_and_recover_after_thirty_days():
    frame = sg.simulate.checkins(20_000, deletion=True, seed=3)
    assert list(frame.columns) == ["time", "lon", "lat", "user_id", "op"]
    assert frame["time"].is_monotonic_increasing
    inserts = frame[frame["op"] == 1]
    assert len(inserts) == 20_000
    weekly = inserts.groupby(pd.Grouper(key="time", freq="7D")).size()
    assert weekly.iloc[-2] > 4 * weekly.iloc[0]
    box = sg.BoxDomain(-124, 25, -67, 49, crs=4326)
    keys, inside = hierarchy_of(box).locate(inserts[["lon", "lat"]].to_numpy(), 12)
    assert inside.all()
    busiest = np.sort(np.unique(keys, return_counts=True)[1])[::-1]
    assert busiest[: max(1, busiest.size // 10)].sum() > 0.4 * len(inserts)
    assert inserts["user_id"].value_counts().iloc[0] > 20 * inserts["user_id"].value_counts().median()
    gone = frame[frame["op"] == -1].merge(inserts, on=["user_id", "lon", "lat"])
    assert (gone["time_x"] - gone["time_y"] == pd.Timedelta(days=30)).all()


def test_checkins_stay_in_a_given_domain():
    land = sg.PolygonDomain(shapely.Polygon([(0, 0), (1000, 0), (500, 900)]))
    frame = sg.simulate.checkins(500, domain=land, seed=1)
    assert list(frame.columns) == ["time", "x", "y", "user_id", "op"]
    assert hierarchy_of(land).locate(frame[["x", "y"]].to_numpy(), 5)[1].all()


def test_taxi_pickups_are_on_the_roads_and_have_a_rhythm():
    frame = sg.simulate.taxi_stream(6_000, roads=TOWN, seed=4)
    assert list(frame.columns) == ["time", "lon", "lat", "taxi_id"]
    assert frame["time"].is_monotonic_increasing
    assert frame["time"].dt.normalize().nunique() == 14
    distance = TOWN.nearest(coordinates_of(frame, TOWN))[2]
    assert np.median(distance) < 6
    assert distance.max() < 40
    hours = frame["time"].dt.hour.value_counts()
    assert hours[[18, 19, 20]].sum() > 3 * hours[[3, 4, 5]].sum()
    assert len(sg.simulate.taxi_stream(50, seed=1)) == 50


def test_the_city_is_what_osmnx_calls_a_street_network():
    ox.convert.validate_graph(GRAPH, strict=True)
    assert nx.is_strongly_connected(GRAPH)
    tags = [tags for *_, tags in GRAPH.edges(data=True)]
    assert all(
        {"osmid", "highway", "oneway", "reversed", "length", "geometry", "maxspeed"} <= set(t) for t in tags
    )
    assert 0.1 < np.mean([t["oneway"] for t in tags]) < 0.6
    assert {t["highway"] for t in tags} == {"primary", "secondary", "residential"}
    for u, v, t in GRAPH.edges(data=True):
        ends = shapely.get_coordinates(t["geometry"])[[0, -1]]
        assert ends.tolist() == [[GRAPH.nodes[n]["x"], GRAPH.nodes[n]["y"]] for n in (u, v)]
        assert t["oneway"] != GRAPH.has_edge(v, u)
    measured = shapely.length(TOWN.edges.geometry.to_numpy())
    np.testing.assert_allclose(TOWN.edges["length"], measured, rtol=1e-3)
    # osmnx's own tools take it
    ox.routing.add_edge_speeds(GRAPH.copy())
    assert ox.routing.shortest_path(GRAPH, 1, max(GRAPH.nodes)) is not None


def test_every_seed_gives_a_connected_city():
    for seed in range(15):
        graph = sg.simulate.city_graph(5, 4, one_way=0.9, seed=seed)
        assert nx.is_strongly_connected(graph)
        assert graph.number_of_nodes() > 10


def test_trips_look_like_trips():
    assert list(TRIPS.columns) == ["trip_id", "time", "lon", "lat", "user_id"]
    assert TRIPS["trip_id"].nunique() == 300
    assert TRIPS["trip_id"].is_monotonic_increasing
    by_trip = TRIPS.groupby("trip_id")
    assert by_trip["user_id"].nunique().max() == 1
    assert (by_trip.size() >= 2).all()
    gap = by_trip["time"].diff().dropna().dt.total_seconds()
    assert gap.between(0, 30.0001, inclusive="right").all()
    xy = coordinates_of(TRIPS, TOWN)
    distance = TOWN.nearest(xy)[2]
    assert np.median(distance) < 6
    assert distance.max() < 40
    quiet = sg.simulate.city_trips(GRAPH, trips=300, gps_noise=0, coordinates="xy", seed=5)
    assert list(quiet.columns) == ["trip_id", "time", "x", "y", "user_id"]
    assert TOWN.nearest(quiet[["x", "y"]].to_numpy())[2].max() < 1e-3
    step = np.hypot(quiet["x"].diff(), quiet["y"].diff())
    seconds = quiet["time"].diff().dt.total_seconds()
    speed = (3.6 * step / seconds)[(quiet["trip_id"].diff() == 0) & (seconds > 5)]
    assert speed.max() < 110  # straight-line speed, limits of 30 and 50 km/h, jittered
    assert 8 < speed.median() < 50


def test_routes_are_directed_paths_and_not_all_the_shortest():
    routes = sg.simulate.city_routes(GRAPH, trips=300, seed=5)
    assert list(routes.columns) == ["trip_id", "seq", "u", "v", "key"]
    assert all(GRAPH.has_edge(*edge) for edge in zip(routes["u"], routes["v"], routes["key"], strict=True))
    follows = routes["trip_id"].diff().shift(-1).iloc[:-1].to_numpy() == 0
    assert (routes["v"].to_numpy()[:-1] == routes["u"].to_numpy()[1:])[follows].all()
    turned = (routes["u"].to_numpy()[:-1] == routes["v"].to_numpy()[1:]) & follows
    assert not turned.any()
    length = {(u, v, k): t["length"] for u, v, k, t in GRAPH.edges(keys=True, data=True)}
    driven = routes.groupby("trip_id").apply(
        lambda r: sum(length[e] for e in zip(r["u"], r["v"], r["key"], strict=True)), include_groups=False
    )
    ends = routes.groupby("trip_id").agg(start=("u", "first"), end=("v", "last"))
    shortest = [nx.shortest_path_length(GRAPH, a, b, weight="length") for a, b in ends.to_numpy()]
    detour = driven.to_numpy() / np.array(shortest)
    assert (detour > 1 - 1e-9).all()
    assert (detour > 1.01).mean() > 0.3
    assert detour.mean() < 1.6


def test_trip_points_follow_their_routes():
    """Noise-free points lie on the edges that the routes name."""
    routes = sg.simulate.city_routes(GRAPH, trips=40, seed=6)
    points = sg.simulate.city_trips(GRAPH, trips=40, gps_noise=0, coordinates="xy", seed=6)
    lines = TOWN.edges.geometry
    for trip, group in points.groupby("trip_id"):
        path = routes[routes["trip_id"] == trip]
        driven = shapely.union_all(
            [lines.loc[edge] for edge in zip(path["u"], path["v"], path["key"], strict=True)]
        )
        assert shapely.distance(driven, shapely.points(group[["x", "y"]].to_numpy())).max() < 1e-3


def test_trips_take_a_domain_as_well_as_its_graph():
    pd.testing.assert_frame_equal(
        sg.simulate.city_trips(TOWN, trips=300, seed=5), sg.simulate.city_trips(GRAPH, trips=300, seed=5)
    )


def test_trips_avoid_what_cannot_be_reached():
    graph = GRAPH.copy()
    for node in (9_001, 9_002):
        graph.add_node(node, x=9.5 + node / 1e6, y=48.5, street_count=1)
    graph.add_edge(9_001, 9_002, osmid=1, length=10.0, highway="residential")
    trips = sg.simulate.city_routes(graph, trips=50, seed=1)
    assert not trips["u"].isin([9_001, 9_002]).any()
    for node in list(graph.nodes):
        if node < 9_000:
            graph.remove_node(node)
    with pytest.raises(DomainError, match="reach"):
        sg.simulate.city_trips(graph, trips=5, seed=1)


def test_census_is_correlated_and_drifts():
    frame = sg.simulate.census(8_000, seed=7)
    assert list(frame.columns) == [
        *("step", "time", "op", "person_id", "region", "age", "sex", "education"),
        *("occupation", "status", "household", "income"),
    ]
    assert frame["step"].is_monotonic_increasing
    assert frame["step"].max() == 23
    assert (frame["time"].dt.day == 1).all()
    people = frame[frame["op"] == 1]
    assert len(people) == 8_000
    assert people["person_id"].is_unique
    median = people.groupby("education")["income"].median()
    assert median["university"] > 1.5 * median["secondary"] > 1.2 * median["none"]
    shares = pd.crosstab(people["region"], people["education"], normalize="index")["university"]
    assert shares["Hill"] > 3 * shares["Valley"]
    assert (people.loc[people["age"] < 16, "occupation"] == "none").all()
    early, late = people[people["step"] == 0], people[people["step"] > 15]
    assert (late["region"] == "Harbour").mean() > 2 * (early["region"] == "Harbour").mean()
    assert late["age"].mean() < early["age"].mean() - 3
    assert alive(frame, by="step").iloc[-1] < 8_000


def test_the_census_fits_its_schema():
    frame = sg.simulate.census(3_000, seed=8)
    schema = sg.simulate.census_schema()
    codes = schema.encode({name: frame[name].to_numpy() for name in schema.columns})
    assert codes.shape == (len(frame), 8)
    assert (codes >= 0).all()
    assert (codes < np.array(list(schema.sizes.values()))).all()


@pytest.mark.parametrize(
    "call",
    [
        lambda: sg.simulate.circles(0, 10, seed=1),
        lambda: sg.simulate.circles(10, 2.5, seed=1),
        lambda: sg.simulate.checkins(10, lifetime=0, seed=1),
        lambda: sg.simulate.checkins(10, start="soon", seed=1),
        lambda: sg.simulate.city_graph(1, 5, seed=1),
        lambda: sg.simulate.city_graph(block=np.nan, seed=1),
        lambda: sg.simulate.city_graph(one_way=1.5, seed=1),
        lambda: sg.simulate.city_trips(GRAPH, trips=0, seed=1),
        lambda: sg.simulate.city_trips(GRAPH, interval=0, seed=1),
        lambda: sg.simulate.city_trips(GRAPH, coordinates="polar", seed=1),
        lambda: sg.simulate.census(10, initial=0, seed=1),
        lambda: sg.simulate.census(10, leave=1.0, seed=1),
    ],
)
def test_bad_arguments_are_refused(call):
    with pytest.raises(ConfigError):
        call()


def test_smallest_sizes():
    assert len(sg.simulate.circles(1, 1, seed=1)) == 1
    assert len(sg.simulate.checkins(1, days=1, seed=1)) == 1
    assert len(sg.simulate.census(1, steps=1, seed=1)) == 1
    assert (
        sg.simulate.city_trips(sg.simulate.city_graph(2, 2, seed=1), trips=1, seed=1)["trip_id"].nunique()
        == 1
    )


@pytest.mark.slow
@pytest.mark.realdata
def test_trips_on_a_real_graph(data_folder):
    graph = ox.io.load_graphml(data_folder / "chicago/roads.graphml")  # no `highway`, no `maxspeed`
    trips = sg.simulate.city_trips(graph, trips=60, seed=2)
    assert trips["trip_id"].nunique() == 60

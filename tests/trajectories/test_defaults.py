"""What a user tries first: domains of all kinds, small boxes, extra columns, a δ."""

from __future__ import annotations

import copy

import geopandas as gpd
import networkx as nx
import numpy as np
import osmnx as ox
import pandas as pd
import pytest
import shapely

import synthgeo as sg
from trajectories.baselines import PaperTrips
from trajectories.reading.points import metres_per_unit

GRAPH = sg.simulate.city_graph(8, 6, seed=1)
ROADS = sg.RoadDomain.from_graph(GRAPH)
POINTS = sg.simulate.city_trips(ROADS, trips=60, seed=2)
BOX = sg.BoxDomain(0, 0, 1000, 1000)


def synthesizer(domain=ROADS, epsilon=2.0, seed=1, **options):
    return sg.TrajectorySynthesizer.from_options(
        domain=domain, budget=sg.PrivacyBudget(epsilon), noise=sg.SeededNoise(seed), **options
    )


def test_roads_of_a_table_of_lines():
    again = sg.RoadDomain.from_edges(ROADS.edges)
    assert again.network.size == ROADS.network.size
    assert again.length == pytest.approx(ROADS.length)
    assert sorted(again.edges.index) == sorted(ROADS.edges.index)  # nodes keep their names
    degrees = sg.RoadDomain.from_edges(ROADS.edges.reset_index().to_crs(4326))
    assert degrees.length == pytest.approx(ROADS.length, rel=1e-3)
    lines = [
        shapely.LineString([(500_000, 0), (500_100, 0)]),
        shapely.LineString([(500_100, 0), (500_100, 50)]),
    ]
    table = gpd.GeoDataFrame({"oneway": [False, True]}, geometry=lines, crs="EPSG:32616")
    roads = sg.RoadDomain.from_edges(table)
    assert roads.network.size == 3
    assert roads.length == pytest.approx(150, rel=1e-3)
    assert sorted(np.bincount(roads.network.edge_v).tolist()) == [1, 1, 1]


@pytest.mark.parametrize(
    ("oneway", "ends"),
    [
        ([True, "yes", 1], [(0, 1), (1, 2), (2, 3)]),
        (["-1", "no", -1], [(1, 0), (1, 2), (2, 1), (3, 2)]),
        (["F", "T", "B"], [(0, 1), (2, 1), (2, 3), (3, 2)]),
        ([None, False, np.nan], [(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2)]),
    ],
)
def test_one_way_streets_of_a_table_of_lines(oneway, ends):
    lines = [shapely.LineString([(500_000 + at, 0), (500_100 + at, 0)]) for at in (0, 100, 200)]
    table = gpd.GeoDataFrame({"oneway": oneway}, geometry=lines, crs="EPSG:32616")
    network = sg.RoadDomain.from_edges(table).network
    assert sorted(zip(network.edge_u.tolist(), network.edge_v.tolist(), strict=True)) == ends


def test_tables_that_are_no_roads():
    lines = gpd.GeoDataFrame({"oneway": ["T"]}, geometry=[shapely.LineString([(0, 0), (1, 0)])], crs=4326)
    with pytest.raises(sg.errors.DomainError, match="oneway: cannot tell what 't' means"):
        sg.RoadDomain.from_edges(lines)
    with pytest.raises(sg.errors.DomainError, match="a graph of networkx, not 'str'"):
        sg.RoadDomain.from_graph("roads.graphml")
    with pytest.raises(sg.errors.DomainError, match="no CRS"):
        sg.RoadDomain.from_edges(ROADS.edges.set_crs(None, allow_override=True))
    with pytest.raises(sg.errors.DomainError, match="must be lines"):
        sg.RoadDomain.from_edges(gpd.GeoDataFrame(geometry=[shapely.Point(0, 0)], crs=4326))
    with pytest.raises(sg.errors.DomainError, match="from_edges makes roads of lines"):
        synthesizer(ROADS.edges)


def test_undirected_graphs_are_converted_when_asked():
    undirected = GRAPH.to_undirected()
    with pytest.raises(sg.errors.DomainError, match="both_ways=True"):
        sg.RoadDomain.from_graph(undirected)
    roads = sg.RoadDomain.from_graph(undirected, both_ways=True)
    assert roads.length == pytest.approx(ROADS.length, rel=1e-3)
    assert (roads.opposite >= 0).all()


def test_metres_are_those_of_the_ground():
    mercator = ox.projection.project_graph(GRAPH, to_crs="EPSG:3857")
    assert sg.RoadDomain.from_graph(mercator).length == pytest.approx(ROADS.length, rel=1e-6)
    with pytest.raises(sg.errors.DomainError, match="not one on the ground"):
        sg.RoadDomain.from_graph(GRAPH, crs="EPSG:3857")
    bounds = ROADS.edges.to_crs(3857).total_bounds
    assert metres_per_unit(sg.BoxDomain(*bounds, crs=3857)) == pytest.approx((0.669, 0.669), abs=0.01)


def test_roads_across_the_antimeridian_are_refused():
    graph = nx.MultiDiGraph(crs="EPSG:4326")
    for node, x in enumerate((179.99, -179.99)):
        graph.add_node(node, x=x, y=-17.0, street_count=1)
    graph.add_edge(0, 1, 0, length=2000.0, osmid=1)
    with pytest.raises(sg.errors.DomainError, match="antimeridian"):
        sg.RoadDomain.from_graph(graph)
    on = copy.deepcopy(graph)
    on.nodes[1]["x"] = 180.01
    with pytest.raises(sg.errors.DomainError, match="antimeridian"):
        sg.RoadDomain.from_graph(on)
    edges = ox.convert.graph_to_gdfs(graph, nodes=False)
    with pytest.raises(sg.errors.DomainError, match="antimeridian"):
        sg.RoadDomain.from_edges(edges)
    assert sg.RoadDomain.from_edges(edges.to_crs("EPSG:32760")).length == pytest.approx(2130, rel=0.01)


def test_boxes_across_the_antimeridian():
    with pytest.raises(sg.ConfigError, match="across the antimeridian give 170 and 190"):
        sg.BoxDomain(170, -20, -170, -10, crs=4326)
    box = sg.BoxDomain(170, -20, 190, -10, crs=4326)
    lon = np.repeat(np.linspace(178, 182, 100), 4) + np.tile([0, 0.1, 0.2, 0.3], 100)
    frame = pd.DataFrame({"trip_id": np.arange(400) // 4, "lat": -15.0, "lon": (lon + 180) % 360 - 180})
    model = synthesizer(box, epsilon=100.0)
    assert model.check(frame).figures.set_index("what").value["points outside the domain, share"] == 0
    starts = model.fit(frame).sample(100).lines.get_coordinates().groupby(level=0).x.first()
    assert 0.3 < (starts > 180).mean() < 0.7


def test_a_box_of_percent_is_a_drawing_as_the_unit_square_is():
    assert metres_per_unit(sg.BoxDomain(0, 0, 100, 100)) == (100.0, 100.0)
    assert metres_per_unit(sg.BoxDomain(0, 0, 1, 1)) == (10_000.0, 10_000.0)
    assert metres_per_unit(sg.BoxDomain(0, 0, 101, 101)) == (1.0, 1.0)


def test_small_boxes_without_units():
    rng = np.random.default_rng(0)
    xy = (
        (rng.random((100, 1, 2)) + np.cumsum(rng.normal(0, 0.05, (100, 5, 2)), axis=1))
        .clip(0, 1)
        .reshape(-1, 2)
    )
    steps = {"trip_id": np.repeat(np.arange(100), 5), "x": xy[:, 0], "y": xy[:, 1]}
    model = synthesizer(sg.BoxDomain(0, 0, 1, 1), epsilon=50.0).fit(steps)
    trips = model.sample(50, spacing=0.05)
    lengths = shapely.length(trips.lines.geometry.to_numpy())
    assert 0.05 < np.median(lengths) < 1.0  # real ones: 0.25
    steps_of = np.hypot(*np.diff(trips.xy, axis=0).T)
    assert np.quantile(steps_of[np.diff(trips.xy[:, 0]) != 0], 0.5) < 0.1


def test_a_trip_with_one_end_outside_is_left_out_on_a_plane_as_on_roads():
    half = np.arange(60) < 30
    ends = pd.DataFrame({"a": 500.0, "b": 500.0, "c": np.where(half, 600.0, 1500.0), "d": 500.0})
    plane = synthesizer(BOX, epsilon=500.0).fit(ends, origin=("a", "b"), destination=("c", "d"))
    grouped = POINTS.groupby("trip_id")
    ends = grouped.agg(
        a=("lon", "first"), b=("lat", "first"), c=("lon", "last"), d=("lat", "last")
    ).reset_index()
    ends.loc[30:, "c"] += 1.0
    roads = synthesizer(epsilon=500.0).fit(ends, origin=("a", "b"), destination=("c", "d"), crs="EPSG:4326")
    assert (plane.total, roads.total) == (30, 30)


def test_columns_that_are_not_used_are_named():
    with pytest.warns(UserWarning, match="columns fare, vendor are not used"):
        synthesizer().fit(POINTS.assign(fare=1.0, vendor="a"))
    with pytest.warns(UserWarning, match="time='Timestamp' would say when trips are"):
        synthesizer().fit(POINTS.rename(columns={"time": "Timestamp"}))


@pytest.mark.filterwarnings("default:the noise exceeds")
def test_without_signal_trips_are_spread_over_the_network_and_the_user_is_told():
    with pytest.warns(UserWarning, match="the noise exceeds the signal in .*ends"):
        trips = synthesizer(epsilon=0.002).fit(POINTS).sample(400)
    low, high = np.array(ROADS.bounds).reshape(2, 2)
    place = np.floor((trips.xy[trips.start[:-1]] - low) / (high - low) * 3).astype(int)
    shares = np.bincount(place[:, 0] * 3 + place[:, 1], minlength=9) / 400
    assert shares.max() < 0.35  # 0.11 if roads were even
    lines = trips.lines
    assert np.bincount(lines["departure"].dt.hour, minlength=24).max() < 60
    speed = 3.6 * lines["metres"] / (lines["arrival"] - lines["departure"]).dt.total_seconds()
    assert 10 < speed.median() < 60


@pytest.mark.filterwarnings("ignore:the noise exceeds")
@pytest.mark.parametrize(("epsilon", "seed"), [(0.002, 2), (0.01, 0), (0.01, 4)])
def test_noise_alone_never_sends_most_trips_to_one_place_or_hour(epsilon, seed):
    """With seed 2 noise lifts one link above all others, and 83 % of trips started beside it."""
    trips = synthesizer(epsilon=epsilon, seed=seed).fit(POINTS).sample(400)
    low, high = np.array(ROADS.bounds).reshape(2, 2)
    place = np.clip(np.floor((trips.xy[trips.start[:-1]] - low) / (high - low) * 3), 0, 2).astype(int)
    assert np.bincount(place[:, 0] * 3 + place[:, 1], minlength=9).max() < 200
    assert np.bincount(trips.lines["departure"].dt.hour, minlength=24).max() < 60


@pytest.mark.filterwarnings("ignore:the noise exceeds")
@pytest.mark.parametrize(("epsilon", "seed"), [(0.001, 2), (0.01, 2), (0.03, 5), (0.03, 9)])
def test_noise_alone_never_sends_most_trips_over_one_road(epsilon, seed):
    """Even traffic has 0.11 of the trips on the busiest road; noise once had 0.43 to 0.81 there."""
    graph = sg.simulate.city_graph(10, 8, seed=3)
    points = sg.simulate.city_trips(graph, trips=1000, seed=3)
    model = synthesizer(sg.RoadDomain.from_graph(graph), epsilon=epsilon, seed=seed).fit(points)
    assert model.sample(1000).edges.groupby("edge")["trip_id"].nunique().max() < 330


@pytest.mark.parametrize("product", [sg.TrajectorySynthesizer, sg.TrajectoryStream])
def test_a_budget_is_more_than_a_number(product):
    with pytest.raises(sg.ConfigError, match=r"such as PrivacyBudget\(epsilon=2.0\), got 2.0"):
        product(domain=BOX, budget=2.0)


def test_a_delta_is_refused():
    with pytest.raises(sg.ConfigError, match="delta=0"):
        sg.TrajectorySynthesizer(domain=BOX, budget=sg.PrivacyBudget(1.0, 1e-6))


def test_the_paper_counts_pairs_with_half_of_their_share():
    trips = (
        PaperTrips(domain=ROADS, budget=sg.PrivacyBudget(2.0), noise=sg.SeededNoise(1)).fit(POINTS).sample(5)
    )
    errors = trips.expected_error().set_index("quantity")["standard_deviation"]
    share = trips.provenance["shares"]["pairs"]
    assert errors["one block of origin-destination pairs"] == pytest.approx(np.sqrt(2) / (share / 2), rel=0.1)

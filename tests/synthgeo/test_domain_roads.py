"""Roads: snapping, length per cell, uniform points on roads, and graphs of every kind."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor

import networkx as nx
import numpy as np
import osmnx as ox
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

import synthgeo as sg
from synthgeo.domain.box import SpatialDomain
from synthgeo.domain.coordinates import coordinates_of
from synthgeo.errors import ConfigError, DomainError
from synthgeo.hierarchy import morton
from synthgeo.hierarchy.base import MAX_BITS, coarsen, hierarchy_of
from tests.statistical.goodness import chi_square_rejects
from tests.synthgeo.domain_checks import (
    ROOT,
    check_geometry_has_the_measure,
    check_measure_adds_up,
    check_nothing,
    check_samples_stay_home,
    check_saving,
    grow,
)

GRAPH = sg.simulate.city_graph(8, 6, seed=3)
TOWN = sg.RoadDomain.from_graph(GRAPH)


def graph_of(nodes, edges, *, crs="EPSG:32632", **shared):
    """A small graph in metres: nodes {id: (x, y)}, edges (u, v) or (u, v, inner vertices)."""
    graph = nx.MultiDiGraph(crs=crs)
    for node, (x, y) in nodes.items():
        graph.add_node(node, x=float(x), y=float(y), street_count=2)
    for i, (u, v, *inner) in enumerate(edges):
        tags = {"osmid": i, "length": 1.0, **shared}
        if inner:
            tags["geometry"] = shapely.LineString([nodes[u], *inner[0], nodes[v]])
        graph.add_edge(u, v, **tags)
    return graph


CROSS = {1: (0, 0), 2: (100, 0), 3: (100, 100), 4: (200, 0)}


def test_nothing_in_nothing_out():
    check_nothing(TOWN)


def test_it_is_a_spatial_domain():
    assert isinstance(TOWN, SpatialDomain)
    assert "km" in repr(TOWN)
    assert TOWN.crs.is_projected
    assert TOWN.network.size == GRAPH.number_of_edges()


def test_a_two_way_street_is_one_road():
    one = sg.RoadDomain.from_graph(graph_of(CROSS, [(1, 2), (2, 3)]))
    two = sg.RoadDomain.from_graph(graph_of(CROSS, [(1, 2), (2, 1), (2, 3)]))
    bent = sg.RoadDomain.from_graph(graph_of(CROSS, [(1, 2, [(50, 50)]), (2, 1, [(50, 50)]), (2, 3)]))
    assert one.length == two.length == 200
    assert bent.length == pytest.approx(100 + 2 * np.hypot(50, 50))
    assert one.opposite.tolist() == [-1, -1]
    assert two.opposite.tolist() == [2, -1, 0] or two.opposite.tolist() == [1, 0, -1]
    pairs = {(u, v) for u, v, _ in two.edges.index}
    for edge, other in enumerate(two.opposite):
        u, v, _ = two.edges.index[edge]
        assert (other >= 0) == ((v, u) in pairs)
    # Two different ways between the same crossings are two roads.
    parallel = sg.RoadDomain.from_graph(graph_of(CROSS, [(1, 2), (2, 1, [(50, 50)]), (2, 3)]))
    assert parallel.length == pytest.approx(200 + 2 * np.hypot(50, 50))
    assert (parallel.opposite == -1).all()


def test_measure_is_the_undirected_length_and_adds_up():
    roads = ox.convert.to_undirected(GRAPH)
    _, edges = ox.convert.graph_to_gdfs(ox.projection.project_graph(roads, to_crs=TOWN.crs))
    assert hierarchy_of(TOWN).measure(ROOT, 0)[0] == pytest.approx(edges.length.sum(), rel=1e-9)
    assert TOWN.outline().length == pytest.approx(TOWN.length, rel=1e-9)
    check_measure_adds_up(TOWN, 14)


def test_measure_against_shapely_in_every_cell():
    bits = 8
    every = np.arange(2**bits, dtype=np.uint64)
    rectangles = shapely.box(*morton.cell_bounds(every, bits, TOWN.bounds).T)
    expected = shapely.length(shapely.intersection(TOWN.outline(), rectangles))
    np.testing.assert_allclose(hierarchy_of(TOWN).measure(every, bits), expected, atol=1e-6)
    assert np.array_equal(grow(TOWN, bits), every[expected > 1e-6])


@pytest.mark.parametrize("bits", [7, 15])
def test_samples_stay_in_their_cells_on_the_road(bits):
    rng = np.random.default_rng(1)
    check_samples_stay_home(TOWN, bits, rng, each=1)
    cells = grow(TOWN, bits)
    xy = hierarchy_of(TOWN).sample(cells, bits, np.full(cells.size, 2), rng)
    assert shapely.distance(shapely.points(xy), TOWN.outline()).max() < 1e-6


def test_cells_below_the_grid():
    """Cells of millimetres: every place on a road has road in its cell, at every depth."""
    rng = np.random.default_rng(2)
    xy = hierarchy_of(TOWN).sample(ROOT, 0, np.array([2_000]), rng) + rng.normal(0, 3, (2_000, 2))
    for bits in (hierarchy_of(TOWN).pieces.bits, hierarchy_of(TOWN).pieces.bits + 1, 30, 41, MAX_BITS):
        keys, inside = hierarchy_of(TOWN).locate(xy, bits)
        assert inside.all()
        assert (hierarchy_of(TOWN).measure(keys, bits) > 0).all()
        assert np.array_equal(coarsen(keys, bits, 9), hierarchy_of(TOWN).locate(xy, 9)[0])
        cells = np.unique(keys)
        drawn = hierarchy_of(TOWN).sample(cells, bits, np.ones(cells.size, dtype=np.int64), rng)
        assert shapely.distance(shapely.points(drawn), TOWN.outline()).max() < 1e-6
        np.testing.assert_allclose(
            shapely.length(hierarchy_of(TOWN).geometry(cells, bits)),
            hierarchy_of(TOWN).measure(cells, bits),
            atol=1e-6,
        )
        assert (
            hierarchy_of(TOWN).locate(drawn, min(bits, 40))[0] == coarsen(cells, bits, min(bits, 40))
        ).mean() > 0.98


def test_geometry_is_the_roads_in_the_cell():
    check_geometry_has_the_measure(TOWN, 9, shapely.length)
    empty = np.setdiff1d(np.arange(2**9, dtype=np.uint64), grow(TOWN, 9))[:1]
    assert hierarchy_of(TOWN).geometry(empty, 9)[0].is_empty


def test_saving():
    check_saving(TOWN)
    values, arrays = TOWN.to_state()
    restored = sg.RoadDomain.from_state(values, arrays)
    ox.convert.validate_graph(restored.graph, strict=True)
    assert set(restored.graph.edges(keys=True)) == set(GRAPH.edges(keys=True))
    assert restored.edges["highway"].tolist() == TOWN.edges["highway"].tolist()
    assert np.array_equal(restored.opposite, TOWN.opposite)


def test_nearest_against_a_plain_search():
    rng = np.random.default_rng(4)
    low, high = np.array(TOWN.bounds[:2]), np.array(TOWN.bounds[2:])
    xy = low - 200 + rng.random((1_000, 2)) * (high - low + 400)
    edge, offset, distance = TOWN.nearest(xy)
    lines = TOWN.edges.geometry.to_numpy()
    plain = shapely.distance(shapely.points(xy)[:, None], lines[None, :]).min(axis=1)
    np.testing.assert_allclose(distance, plain, atol=1e-9)
    place = shapely.line_interpolate_point(lines[edge], offset)
    np.testing.assert_allclose(shapely.distance(shapely.points(xy), place), distance, atol=1e-6)
    # One by one, or in any order, the answer is the same.
    shuffled = rng.permutation(len(xy))
    assert np.array_equal(TOWN.nearest(xy[shuffled])[0], edge[shuffled])
    assert [int(TOWN.nearest(xy[[i]])[0][0]) for i in range(20)] == edge[:20].tolist()
    near, _, _ = TOWN.nearest(xy, max_distance=30)
    assert np.array_equal(near >= 0, plain <= 30)


def test_threads_may_ask_at_once():
    rng = np.random.default_rng(10)
    xy = hierarchy_of(TOWN).sample(ROOT, 0, np.array([4_000]), rng) + rng.normal(0, 20, (4_000, 2))
    fresh = pickle.loads(pickle.dumps(TOWN))
    with ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(lambda part: hierarchy_of(fresh).locate(part, 20)[0], np.array_split(xy, 40)))
    assert np.array_equal(np.concatenate(parts), hierarchy_of(TOWN).locate(xy, 20)[0])


def test_a_pickle_does_not_tell_where_points_fell():
    fresh = pickle.loads(pickle.dumps(TOWN))
    before = pickle.dumps(fresh)
    hierarchy_of(fresh).locate(
        hierarchy_of(fresh).sample(ROOT, 0, np.array([100]), np.random.default_rng(0)), 10
    )
    assert pickle.dumps(fresh) == before


def test_max_distance_decides_what_is_outside():
    road = sg.RoadDomain.from_graph(graph_of(CROSS, [(1, 2), (2, 3)]), max_distance=10)
    xy = np.array([[50, 10], [50, 10.01], [-9, 0], [-11, 0], [50, -10], [np.nan, 0], [1e300, 0], [np.inf, 0]])
    keys, inside = hierarchy_of(road).locate(xy, 6)
    assert inside.tolist() == [True, False, True, False, True, False, False, False]
    assert (keys[~inside] == 0).all()
    snapped, found = road.snap(xy)
    assert np.array_equal(found, inside)
    assert snapped[0].tolist() == [50, 0]
    assert snapped[2].tolist() == [0, 0]
    assert np.isnan(snapped[1]).all()


def test_candidates_are_all_edges_in_reach():
    rng = np.random.default_rng(5)
    xy = hierarchy_of(TOWN).sample(ROOT, 0, np.array([200]), rng) + rng.normal(0, 10, (200, 2))
    point, edge, offset, distance = TOWN.candidates(xy, 60.0)
    lines = TOWN.edges.geometry.to_numpy()
    table = shapely.distance(shapely.points(xy)[:, None], lines[None, :])
    assert set(zip(point.tolist(), edge.tolist(), strict=True)) == set(
        zip(*np.nonzero(table <= 60), strict=True)
    )
    np.testing.assert_allclose(distance, table[point, edge], atol=1e-9)
    place = shapely.line_interpolate_point(lines[edge], offset)
    np.testing.assert_allclose(shapely.distance(shapely.points(xy[point]), place), distance, atol=1e-6)
    assert (np.diff(point) >= 0).all()
    assert (np.diff(distance)[np.diff(point) == 0] >= 0).all()


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 16), st.integers(0, 16)), min_size=2, max_size=8, unique=True),
    st.integers(0, 9),
)
def test_any_network(corners, seed):
    """Roads between lattice points: along grid lines, through grid corners, crossing and overlapping."""
    nodes = {i: (50.0 * x - 1, 50.0 * y - 1) for i, (x, y) in enumerate(corners)}
    graph = graph_of(nodes, [(i, i + 1) for i in range(len(corners) - 1)])
    roads = sg.RoadDomain.from_graph(graph)
    check_measure_adds_up(roads, 10, rtol=1e-6)
    cells = grow(roads, 8)
    xy = hierarchy_of(roads).sample(cells, 8, np.full(cells.size, 2), np.random.default_rng(seed))
    keys, inside = hierarchy_of(roads).locate(xy, 8)
    assert inside.all()
    assert (hierarchy_of(roads).measure(keys, 8) > 0).all()
    keys, inside = hierarchy_of(roads).locate(np.array(list(nodes.values())), 8)
    assert inside.all()
    assert (hierarchy_of(roads).measure(keys, 8) > 0).all()


@pytest.mark.statistical
def test_samples_are_uniform_on_length():
    """Chi-square over roads (merged to expectations >= 100), 200,000 points of the whole network, α=1e-9
    (flake probability 1e-9).

    Power: the twin draws edges of the graph, so that two-way streets count twice; a one-way street then gets
    about two thirds of its share and it is rejected surely.
    """
    rng, count = np.random.default_rng(7), 200_000
    lines = TOWN.edges.geometry.to_numpy()
    road = np.where(
        TOWN.opposite < 0, np.arange(lines.size), np.minimum(np.arange(lines.size), TOWN.opposite)
    )
    kept, which = np.unique(road, return_inverse=True)
    share = shapely.length(lines[kept]) / shapely.length(lines[kept]).sum()
    assert (share * count).min() >= 100

    def observed(xy):
        return np.bincount(which[TOWN.nearest(xy)[0]], minlength=kept.size)

    assert not chi_square_rejects(observed(hierarchy_of(TOWN).sample(ROOT, 0, np.array([count]), rng)), share)
    directed = rng.choice(lines.size, size=count, p=shapely.length(lines) / shapely.length(lines).sum())
    place = shapely.line_interpolate_point(lines[directed], rng.random(count), normalized=True)
    assert chi_square_rejects(observed(shapely.get_coordinates(place)), share)


@pytest.mark.statistical
def test_samples_are_uniform_along_a_street():
    """One straight street of 1 km in a cell: position in 50 bins, 100,000 points, chi-square at α=1e-9 (flake
    probability 1e-9). Power: the twin squeezes positions by u^1.06; rejected surely."""
    street = sg.RoadDomain.from_graph(graph_of({1: (0, 0), 2: (600, 800)}, [(1, 2)]))
    xy = hierarchy_of(street).sample(ROOT, 0, np.array([100_000]), np.random.default_rng(8))
    along = np.hypot(*xy.T) / 1000
    even = np.full(50, 0.02)
    assert not chi_square_rejects(np.bincount((50 * along).astype(int), minlength=50), even)
    assert chi_square_rejects(np.bincount((50 * along**1.06).astype(int), minlength=50), even)


def test_disconnected_networks_and_loops_are_fine():
    nodes = {1: (0, 0), 2: (100, 0), 3: (5_000, 0), 4: (5_000, 100)}
    roads = sg.RoadDomain.from_graph(graph_of(nodes, [(1, 2), (3, 4), (4, 4, [(5_050, 150), (4_950, 150)])]))
    assert roads.length == pytest.approx(200 + 100 + 2 * np.hypot(50, 50))
    assert sorted(roads.graph.edges) == sorted(roads.edges.index)  # trips name edges by them
    check_measure_adds_up(roads, 10)
    assert roads.candidates(np.array([[5_000.0, 100.0]]), 1.0)[1].size == 2


def test_a_flat_network_has_a_frame():
    roads = sg.RoadDomain.from_graph(graph_of({1: (0, 0), 2: (100, 0)}, [(1, 2)]))
    assert roads.bounds[3] > roads.bounds[1]
    check_samples_stay_home(roads, 9, np.random.default_rng(0), each=1)


def test_string_node_ids_survive_saving():
    roads = sg.RoadDomain.from_graph(graph_of({"a": (0, 0), "b": (100, 50)}, [("a", "b")]))
    assert list(roads.edges.index) == [("a", "b", 0)]
    check_saving(roads)


def test_graphs_in_degrees_and_feet_become_metres():
    assert TOWN.crs.to_epsg() == 32632
    feet = ox.projection.project_graph(GRAPH, to_crs="EPSG:2263")
    with pytest.raises(DomainError, match="metres"):
        sg.RoadDomain.from_graph(feet, crs="EPSG:2263")
    assert sg.RoadDomain.from_graph(GRAPH, crs="EPSG:25832").crs.to_epsg() == 25832
    with pytest.raises(DomainError, match="metres"):
        sg.RoadDomain.from_graph(GRAPH, crs="EPSG:4326")


def test_the_given_graph_is_not_changed():
    before = {(u, v, key): dict(tags) for u, v, key, tags in GRAPH.edges(keys=True, data=True)}
    crs = GRAPH.graph["crs"]
    sg.RoadDomain.from_graph(GRAPH).edges  # noqa: B018
    assert GRAPH.graph["crs"] == crs
    assert before == {(u, v, k): dict(t) for u, v, k, t in GRAPH.edges(keys=True, data=True)}


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        (nx.MultiDiGraph(crs="EPSG:32632"), "at least 1 node"),
        (nx.Graph(), "both_ways=True"),
        (graph_of(CROSS, [(1, 2)], crs=None), "crs"),
        (graph_of(CROSS, [(1, 2)], crs="nonsense"), "crs"),
        (graph_of({1: (0, 0), 2: (np.nan, 0)}, [(1, 2)]), "node 2"),
        (graph_of({1: (0, 0), 2: (0, 0)}, [(1, 2)]), "no length"),
        (graph_of(CROSS, [(1, 2), (2, 3)], length="long"), r"edge \(1, 2, 0\): its length"),
        (graph_of(CROSS, [(1, 2)], geometry="LINESTRING (0 0, 1 1)"), "LineString"),
    ],
)
def test_bad_graphs_are_refused(graph, words):
    with pytest.raises(DomainError, match=words):
        sg.RoadDomain.from_graph(graph)


@pytest.mark.parametrize("distance", [0, -1, np.inf, np.nan])
def test_bad_distances_are_refused(distance):
    with pytest.raises(ConfigError, match="max_distance"):
        sg.RoadDomain.from_graph(GRAPH, max_distance=distance)


def test_a_cell_without_roads_cannot_be_sampled():
    for bits in (9, 40):
        empty = np.setdiff1d(np.arange(2**9, dtype=np.uint64), grow(TOWN, 9))[:1] << np.uint64(bits - 9)
        assert hierarchy_of(TOWN).measure(empty, bits)[0] == 0
        with pytest.raises(DomainError, match="without roads"):
            hierarchy_of(TOWN).sample(empty, bits, np.array([1]), np.random.default_rng(0))


def test_files(tmp_path):
    ox.io.save_graphml(GRAPH, tmp_path / "town.graphml")
    assert sg.RoadDomain.from_graphml(tmp_path / "town.graphml").length == pytest.approx(
        TOWN.length, rel=1e-6
    )
    with pytest.raises(DomainError, match="no file"):
        sg.RoadDomain.from_graphml(tmp_path / "none.graphml")
    (tmp_path / "bad.graphml").write_text("not xml")
    with pytest.raises(DomainError, match="osmnx"):
        sg.RoadDomain.from_graphml(tmp_path / "bad.graphml")


OSM = """<?xml version="1.0"?>
<osm version="0.6">
 <node id="1" lat="48.000" lon="9.000"/><node id="2" lat="48.000" lon="9.002"/>
 <node id="3" lat="48.001" lon="9.002"/><node id="4" lat="48.002" lon="9.002"/>
 <node id="5" lat="48.003" lon="9.004"/><node id="6" lat="48.003" lon="9.005"/>
 <way id="10"><nd ref="1"/><nd ref="2"/><nd ref="3"/><nd ref="4"/><tag k="highway" v="residential"/></way>
 <way id="11"><nd ref="4"/><nd ref="5"/><tag k="highway" v="primary"/><tag k="oneway" v="yes"/></way>
 <way id="12"><nd ref="2"/><nd ref="5"/><tag k="highway" v="footway"/></way>
 <way id="13"><nd ref="5"/><nd ref="6"/><nd ref="1"/><nd ref="5"/><tag k="building" v="yes"/></way>
</osm>
"""


def test_osm_xml_keeps_roads_only(tmp_path):
    path = tmp_path / "town.osm"
    path.write_text(OSM)
    roads = sg.RoadDomain.from_osm_xml(path)
    assert set(roads.edges["highway"]) == {"residential", "primary"}
    assert roads.length == pytest.approx(149 + 222 + 186, abs=5)  # 0.002 degrees of longitude are 149 m here
    assert "footway" in set(sg.RoadDomain.from_osm_xml(path, network="all").edges["highway"])
    with pytest.raises(ConfigError, match="drive"):
        sg.RoadDomain.from_osm_xml(path, network="boats")
    path.write_text(OSM.replace("highway", "waterway"))
    with pytest.raises(DomainError, match="no road"):
        sg.RoadDomain.from_osm_xml(path)


def test_a_place_needs_the_internet(monkeypatch):
    monkeypatch.setattr(ox.settings, "nominatim_url", "http://localhost:9/")
    monkeypatch.setattr(ox.settings, "use_cache", False)
    monkeypatch.setattr(ox.settings, "requests_timeout", 2)
    with pytest.raises(DomainError, match="internet"):
        sg.RoadDomain.from_place("Nowhere at all")


@pytest.mark.slow
@pytest.mark.realdata
@pytest.mark.parametrize(
    ("graph", "points", "columns", "share"),
    [
        ("nyc/manhattan_roads.graphml", "nyc/taxi_trips.parquet", ("pickup_lon", "pickup_lat"), 0.97),
        ("chicago/roads.graphml", "chicago/trips.parquet", ("lon", "lat"), 0.99),
    ],
)
def test_real_networks(data_folder, graph, points, columns, share):
    import pandas as pd

    roads = sg.RoadDomain.from_graphml(data_folder / graph)
    once = np.unique(shapely.to_wkb(shapely.normalize(roads.edges.geometry.to_numpy())))
    assert roads.length == pytest.approx(shapely.length(shapely.from_wkb(once)).sum(), rel=2e-3)
    check_measure_adds_up(roads, 18)
    rng = np.random.default_rng(9)
    cells = grow(roads, 18)
    xy = hierarchy_of(roads).sample(cells, 18, np.ones(cells.size, dtype=np.int64), rng)
    assert roads.nearest(xy)[2].max() < 0.01
    assert (hierarchy_of(roads).locate(xy, 18)[0] == cells).mean() > 0.9999
    frame = pd.read_parquet(data_folder / points).head(20_000)
    keys, inside = hierarchy_of(roads).locate(coordinates_of(frame, roads, x=columns[0], y=columns[1]), 20)
    assert inside.mean() > share
    assert (hierarchy_of(roads).measure(keys[inside], 20) > 0).all()


def test_nodes_1_and_text_1_stay_apart():
    """A file of a graph may name nodes by numbers and by text."""
    graph = nx.MultiDiGraph(crs="EPSG:32632")
    places = {1: (0.0, 0.0), "1": (1000.0, 0.0), 2: (1000.0, 800.0)}
    for name, (x, y) in places.items():
        graph.add_node(name, x=500_000 + x, y=5_000_000 + y)
    for u, v in ((1, "1"), ("1", 2), (2, 1), ("1", 1)):
        graph.add_edge(u, v, 0, length=1000.0, osmid=1)
    roads = sg.RoadDomain.from_graph(graph)
    assert len(set(roads.network.node_id.tolist())) == 3
    ends = {(u, v): round(line.length) for (u, v, _), line in roads.edges.geometry.items()}
    assert ends == {("1", "'1'"): 1000, ("'1'", "2"): 800, ("2", "1"): 1281, ("'1'", "1"): 1000}

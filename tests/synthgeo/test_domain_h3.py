"""Cells of H3 as a domain and as a hierarchy: nested by index, never by outline."""

from __future__ import annotations

import geopandas as gpd
import h3.api.basic_int as h3
import numpy as np
import pandas as pd
import pytest
import shapely

import synthgeo as sg
from synthgeo.errors import ConfigError, DomainError
from synthgeo.hierarchy.base import ROOT, hierarchy_of
from tests.synthgeo.domain_checks import (
    check_measure_adds_up,
    check_nothing,
    check_samples_stay_home,
    check_saving,
)

TOWN = shapely.box(8.45, 47.33, 8.62, 47.43)
DOMAIN = sg.H3Domain(resolution=7, within=TOWN)
# Resolution 1 around the Atlantic has a pentagon and cells of all shapes; the other one crosses 180 degrees.
PENTAGON = sg.H3Domain(resolution=3, within=shapely.box(-16, 60, 16, 70))
DATE_LINE = sg.H3Domain(
    resolution=4,
    within=gpd.GeoSeries([shapely.box(178, -18, 180, -16), shapely.box(-180, -18, -178, -16)], crs=4326),
)
ALL = pytest.mark.parametrize("domain", [DOMAIN, PENTAGON, DATE_LINE], ids=["town", "pentagon", "180"])


@ALL
def test_it_is_a_hierarchy_like_the_others(domain):
    bits = hierarchy_of(domain).bits
    check_measure_adds_up(domain, bits)
    check_samples_stay_home(domain, bits, np.random.default_rng(3))
    check_nothing(domain)
    check_saving(domain)


def test_the_pentagon_is_one():
    assert any(h3.is_pentagon(h3.cell_to_parent(cell, 0)) for cell in PENTAGON.cells.tolist())


@ALL
def test_a_coarse_cell_holds_its_finest_cells_and_not_its_hexagon(domain):
    cells = hierarchy_of(domain)
    xy = cells.sample(ROOT, 0, np.array([3_000]), np.random.default_rng(1))
    finest = np.array([h3.latlng_to_cell(lat, lon, domain.resolution) for lon, lat in xy.tolist()])
    strays = 0
    for bits in cells.levels(20, 7)[1:]:
        keys, inside = cells.locate(xy, bits)
        assert inside.all()
        names = [h3.str_to_int(name) for name in cells.names(keys, bits)]
        resolution = h3.get_resolution(names[0])
        assert names == [h3.cell_to_parent(int(cell), resolution) for cell in finest]
        drawn = np.array([h3.latlng_to_cell(lat, lon, resolution) for lon, lat in xy.tolist()])
        strays += int((drawn != np.array(names)).sum())
        area = dict.fromkeys(names, 0.0)
        for cell in domain.cells.tolist():
            parent = h3.cell_to_parent(cell, resolution)
            if parent in area:
                area[parent] += h3.cell_area(cell, "km^2")
        np.testing.assert_allclose(cells.measure(keys, bits), [area[name] for name in names], rtol=1e-9)
    assert strays > 0  # a hierarchy of hexagon outlines would have put these elsewhere


def test_points_are_uniform_on_the_ground():
    """Between resolutions 3 and 4, over ten degrees of latitude: by area, not by degrees.

    Chi-square over the cells at alpha 1e-9.
    """
    from scipy.stats import chi2

    drawn = hierarchy_of(PENTAGON).sample(ROOT, 0, np.array([40_000]), np.random.default_rng(8))
    count = np.bincount(PENTAGON.rank(drawn)[0], minlength=PENTAGON.cells.size)
    share = np.array([h3.cell_area(cell) for cell in PENTAGON.cells.tolist()])
    expected = share / share.sum() * len(drawn)
    limit = chi2.isf(1e-9, PENTAGON.cells.size - 1)
    assert ((count - expected) ** 2 / expected).sum() < limit
    flat = np.full(PENTAGON.cells.size, len(drawn) / PENTAGON.cells.size)
    assert ((count - flat) ** 2 / flat).sum() > limit
    # Inside one cell: as many in each of its children as they have of its area.
    one = int(PENTAGON.cells[PENTAGON.cells.size // 2])
    cells = hierarchy_of(sg.H3Domain.from_cells([one, *h3.grid_ring(one, 1)]))
    at = int(np.searchsorted(cells.domain.cells, np.uint64(one)))
    drawn = cells.sample(cells.keys[[at]], cells.bits, np.array([20_000]), np.random.default_rng(9))
    below = pd.Series([h3.latlng_to_cell(lat, lon, 5) for lon, lat in drawn.tolist()]).value_counts()
    inner = [cell for cell in h3.cell_to_children(h3.cell_to_center_child(one, 4), 5) if cell in below]
    expected = np.array([h3.cell_area(cell) for cell in inner]) / h3.cell_area(one) * len(drawn)
    assert len(inner) == 7
    assert ((below[inner].to_numpy() - expected) ** 2 / expected).sum() < chi2.isf(1e-9, 6)


def test_every_point_of_the_region_is_inside():
    rng = np.random.default_rng(0)
    inside = rng.random((2_000, 2)) * [0.17, 0.10] + [8.45, 47.33]
    assert DOMAIN.contains(inside).all()
    assert not DOMAIN.contains(np.array([[9.0, 47.0], [np.nan, 47.4], [8.5, 120.0]])).any()
    assert shapely.covers(DOMAIN.outline(), TOWN)


def test_the_region_is_given_in_many_ways():
    frame = gpd.GeoDataFrame(geometry=[TOWN], crs=4326)
    for within in (
        frame,
        frame.geometry,
        sg.PolygonDomain(frame),
        sg.BoxDomain(*TOWN.bounds, crs=4326),
        [TOWN],
    ):
        assert sg.H3Domain(resolution=7, within=within) == DOMAIN
    projected = sg.H3Domain(resolution=7, within=frame.to_crs(2056))
    assert projected.contains(shapely.get_coordinates(TOWN)).all()
    assert sg.H3Domain.from_cells(DOMAIN.names()) == DOMAIN
    assert sg.H3Domain.from_cells(DOMAIN.cells.tolist()) == DOMAIN


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"resolution": 16, "within": TOWN}, "resolution"),
        ({"resolution": 2, "within": TOWN}, "finer resolution"),
        ({"resolution": 15, "within": TOWN}, "coarser resolution"),
        ({"resolution": 7, "within": sg.BoxDomain(0, 0, 1, 1)}, "CRS"),
        ({"resolution": 7, "within": "Zurich"}, "polygon"),
        ({"resolution": 3, "within": shapely.box(0, 84, 90, 89)}, "latitude"),
    ],
)
def test_what_is_refused(options, message):
    with pytest.raises((ConfigError, DomainError), match=message):
        sg.H3Domain(**options)


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (["nowhere"], "891f9065927ffff"),
        ([1234], "not a cell"),
        ([], "two or more"),
        ([h3.latlng_to_cell(47, 8, 5), h3.latlng_to_cell(47, 8, 6)], "resolutions"),
    ],
)
def test_cells_that_are_refused(cells, message):
    with pytest.raises(DomainError, match=message):
        sg.H3Domain.from_cells(cells)


def test_a_stream_releases_cells_that_others_know(tmp_path):
    stream = sg.PHDStream(domain=DOMAIN, budget=sg.PrivacyBudget(2.0), noise=sg.SeededNoise(1))
    data = sg.simulate.checkins(4_000, days=1, domain=DOMAIN, seed=1)
    release = stream.update(data[["x", "y"]])
    assert DOMAIN.contains(release.xy).all()
    cells = release.cells
    known = cells["cell"].dropna()
    assert len(known) == len(cells) > 5
    parents = [h3.get_resolution(h3.str_to_int(name)) for name in known]
    assert max(parents) <= 7
    by_cell = cells.set_index("cell")["count"]
    finest = by_cell[[r == 7 for r in parents]]
    drawn = pd.Series([h3.int_to_str(h3.latlng_to_cell(y, x, 7)) for x, y in release.xy.tolist()])
    counted = drawn.value_counts()
    assert (counted.reindex(finest.index, fill_value=0) == finest).all()
    cells.to_parquet(tmp_path / "cells.parquet")
    assert gpd.read_parquet(tmp_path / "cells.parquet")["cell"].tolist() == cells["cell"].tolist()
    with pytest.raises(ConfigError, match="fanout"):
        sg.PHDStream(domain=DOMAIN, budget=sg.PrivacyBudget(1.0), settings=sg.PointSettings(fanout=2))
    with pytest.raises(ConfigError, match="BoxDomain"):
        sg.TrajectorySynthesizer(domain=DOMAIN, budget=sg.PrivacyBudget(1.0))


def test_a_place_in_a_table_is_a_cell_of_h3():
    schema = sg.Schema({"home": sg.Location(DOMAIN, missing=True), "kind": sg.Categorical(["a", "b"])})
    assert schema.sizes["home"] == DOMAIN.cells.size + 1
    rows = hierarchy_of(DOMAIN).sample(ROOT, 0, np.array([500]), np.random.default_rng(2))
    frame = pd.DataFrame({"home_lon": rows[:, 0], "home_lat": rows[:, 1], "kind": "a"})
    codes = schema.encode(frame)[:, 0]
    assert np.array_equal(codes, DOMAIN.rank(rows)[0])
    again = schema.decode(np.column_stack([codes, codes * 0]), np.random.default_rng(3))
    assert np.array_equal(schema.encode(again)[:, 0], codes)
    assert sg.Schema.from_json(schema.to_json()).to_json() == schema.to_json()


def test_it_is_drawn_and_its_cells_are_zones():
    graph = sg.simulate.city_graph(4, 4, seed=1)
    roads = sg.RoadDomain.from_graph(graph)
    points = sg.simulate.city_trips(graph, trips=60, seed=1)
    model = sg.TrajectorySynthesizer(domain=roads, budget=sg.PrivacyBudget(4.0), noise=sg.SeededNoise(1))
    trips = model.fit(points).sample(50)
    box = sg.BoxDomain(*roads.bounds, crs=roads.crs)
    zones = sg.H3Domain(resolution=9, within=box)
    of_domain, of_resolution = (trips.od(kind) for kind in (zones, 9))
    keys = ["origin", "destination"]
    pd.testing.assert_frame_equal(
        of_domain.sort_values(keys, ignore_index=True), of_resolution.sort_values(keys, ignore_index=True)
    )
    frame = gpd.GeoDataFrame(geometry=[TOWN], crs=4326)
    xy = sg.simulate.checkins(50, days=1, domain=frame, seed=1)[["x", "y"]].to_numpy()
    assert sg.PolygonDomain(frame).contains(xy).all()
    drawn = sg.PHDStream(domain=DOMAIN, budget=sg.PrivacyBudget(5.0), noise=sg.SeededNoise(1))
    everywhere = hierarchy_of(DOMAIN).sample(ROOT, 0, np.array([900]), np.random.default_rng(1))
    axes = drawn.update(everywhere).plot()
    corners = [len(path.vertices) for path in np.ravel(axes)[0].collections[1].get_paths()]
    assert min(corners) >= 7  # hexagons, not their frames

"""Origin-destination tables of synthetic trips, trips for such tables, and files of trips."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import shapely

import synthgeo as sg
from synthgeo.release import read_provenance

ROADS = sg.RoadDomain.from_graph(sg.simulate.city_graph(6, 5, seed=1))


@pytest.fixture(scope="module")
def model():
    points = sg.simulate.city_trips(ROADS, trips=200, seed=2)
    given = {"budget": sg.PrivacyBudget(4.0), "noise": sg.SeededNoise(3), "calibration": 0.0, "max_depth": 8}
    return sg.TrajectorySynthesizer.from_options(domain=ROADS, **given).fit(points)


@pytest.fixture(scope="module")
def release(model):
    return model.sample(60)


def halves(crs=None):
    """The west and the east of the town."""
    low, bottom, high, top = ROADS.bounds
    middle = (low + high) / 2
    boxes = [shapely.box(low - 500, bottom - 500, middle, top + 500)]
    boxes.append(shapely.box(middle, bottom - 500, high + 500, top + 500))
    zones = gpd.GeoDataFrame({"name": ["W", "E"]}, geometry=boxes, crs=ROADS.crs, index=["west", "east"])
    return zones if crs is None else zones.to_crs(crs)


def test_a_table_counts_every_trip_once_whatever_the_zones_crs(release):
    table = release.od(halves())
    assert table["trips"].sum() == 60
    assert set(table["origin"]) <= {"west", "east"}
    assert (table["standard_error"] > np.sqrt(table["trips"])).all()
    pd.testing.assert_frame_equal(release.od(halves("EPSG:4326")), table)
    first = release.lines.geometry.apply(lambda line: line.coords[0][0]).to_numpy()
    west = table.loc[table["origin"] == "west", "trips"].sum()
    assert west == (first <= halves().loc["west", "geometry"].bounds[2]).sum()


def test_tables_by_hour_and_by_cells_of_h3(release):
    pytest.importorskip("h3")
    by_hour = release.od(halves(), by="hour")
    assert by_hour["trips"].sum() == 60
    assert set(by_hour["hour"]) == set(release.lines["departure"].dt.hour)
    cells = release.od(9)
    assert cells["trips"].sum() == 60
    assert all(label.startswith("89") for label in cells["origin"])
    with pytest.raises(sg.ConfigError, match="by must be"):
        release.od(9, by="week")
    with pytest.raises(sg.ConfigError, match="zones"):
        release.od("districts")


def test_ends_in_no_zone_have_no_label(release):
    table = release.od(halves().loc[["west"]])
    assert table["trips"].sum() == 60
    assert table["origin"].isna().any()


def test_routes_start_and_end_where_the_table_says(model):
    od = pd.DataFrame({"origin": ["west", "east"], "destination": ["east", "east"], "trips": [12, 5.2]})
    routed = model.route(od, halves("EPSG:4326"))
    assert routed.total == 17
    west = halves().loc["west", "geometry"].bounds[2]
    lines = routed.lines.geometry
    begins = np.array([line.coords[0][0] for line in lines])
    ends = np.array([line.coords[-1][0] for line in lines])
    assert (begins[:12] < west + 100).all()  # an edge belongs to the zone of its middle
    assert (begins[12:] > west - 100).all()
    assert (ends > west - 100).all()
    with pytest.raises(sg.ConfigError, match="no zone 'north'"):
        model.route(od.assign(origin="north"), halves())
    with pytest.raises(sg.ConfigError, match="no trip"):
        model.route(od.assign(trips=0), halves())


def test_a_table_of_cells_is_routed_by_its_resolution(release, model):
    od = release.od(8)
    routed = model.route(od, 8)
    assert routed.total == release.total
    with pytest.raises(sg.ConfigError, match="no cell of H3 of resolution 7"):
        model.route(od, 7)


def test_zones_without_the_middle_of_a_road_are_routed_by_the_roads_they_touch(release, model):
    assert model.route(release.od(11), 11).total == release.total
    with pytest.raises(sg.errors.DomainError, match="nothing of the domain"):
        model.sample(3, start=shapely.box(0, 0, 1, 1))


# Files.


def test_files_in_degrees(release, tmp_path):
    release.to_parquet(tmp_path / "trips.parquet", crs="EPSG:4326")
    points = gpd.read_parquet(tmp_path / "trips.parquet")
    assert points.crs.to_epsg() == 4326
    assert points["lon"].between(-180, 180).all()
    np.testing.assert_allclose(points.to_crs(ROADS.crs).geometry.x, release.xy[:, 0], atol=1e-3)
    assert read_provenance(tmp_path / "trips.parquet")["mechanism"] == "TrajectorySynthesizer"
    release.to_csv(tmp_path / "trips.csv", crs="EPSG:4326")
    assert {"lon", "lat"} <= set(pd.read_csv(tmp_path / "trips.csv").columns)
    assert (tmp_path / "trips.csv.provenance.json").exists()


def test_geojson_has_a_line_with_times_for_each_trip(release, tmp_path):
    release.to_geojson(tmp_path / "trips.geojson")
    found = json.loads((tmp_path / "trips.geojson").read_text())["features"]
    assert len(found) == 60
    lon, lat, height, seconds = found[0]["geometry"]["coordinates"][0]
    assert (height, -180 <= lon <= 180, -90 <= lat <= 90) == (0, True, True)
    assert seconds == pytest.approx(release.lines["departure"].iloc[0].timestamp(), abs=0.01)
    assert {"trip_id", "metres", "departure"} <= set(found[0]["properties"])
    for feature, line in zip(found, release.lines.to_crs("EPSG:4326").geometry, strict=True):
        vertices = np.array(feature["geometry"]["coordinates"])
        np.testing.assert_allclose(vertices[:, :2], line.coords, atol=1e-8)  # along the streets
        assert (np.diff(vertices[:, :2], axis=0) != 0).any(axis=1).all()
        assert (np.diff(vertices[:, 3]) >= 0).all()
    arrivals = [feature["geometry"]["coordinates"][-1][3] for feature in found]
    stated = [arrival.timestamp() for arrival in release.lines["arrival"]]
    assert arrivals == pytest.approx(stated, abs=0.01)
    assert (tmp_path / "trips.geojson.provenance.json").exists()


def test_gpx_holds_every_point_and_the_trips_layer_every_vertex(release, tmp_path):
    release.to_gpx(tmp_path / "trips.gpx")
    tracks = ET.parse(tmp_path / "trips.gpx").getroot()
    space = "{http://www.topografix.com/GPX/1/1}"
    assert len(tracks.findall(f"{space}trk")) == 60
    assert len(tracks.findall(f".//{space}trkpt")) == len(release.xy)
    release.to_trips_layer(tmp_path / "layer.json")
    layer = json.loads((tmp_path / "layer.json").read_text())
    assert [len(trip["path"]) for trip in layer] == [len(line.coords) for line in release.lines.geometry]
    assert min(trip["timestamps"][0] for trip in layer) == 0
    assert all(np.diff(trip["timestamps"]).min(initial=0) >= 0 for trip in layer)

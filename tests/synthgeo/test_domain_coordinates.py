"""From columns to coordinates: conventions, projections, and what is refused."""

from __future__ import annotations

import pickle

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import shapely
from pyproj import Transformer

import synthgeo as sg
from synthgeo.domain.coordinates import coordinates_of, find_coordinates
from synthgeo.errors import ConfigError, DomainError, InputError
from synthgeo.hierarchy.base import hierarchy_of, locate_points

UTM = sg.BoxDomain(5e5, 4e6, 6e5, 4.2e6, crs="EPSG:32618")
DEGREES = sg.BoxDomain(-76, 36, -73, 38, crs="EPSG:4326")
PLAIN = sg.BoxDomain(0, 0, 1, 1)
LON, LAT = np.array([-74.9, -74.5]), np.array([36.5, 37.0])
EXPECTED = np.column_stack(Transformer.from_crs(4326, 32618, always_xy=True).transform(LON, LAT))


@pytest.mark.parametrize(
    ("lon", "lat"),
    [
        ("lon", "lat"),
        ("longitude", "latitude"),
        ("long", "lat"),
        ("LNG", "Lat"),
        ("pickup_lon", "pickup_lat"),
    ],
)
def test_degrees_are_projected(lon, lat):
    frame = pd.DataFrame({"id": [1, 2], lat: LAT, lon: LON})
    before = frame.copy()
    np.testing.assert_allclose(coordinates_of(frame, UTM), EXPECTED)
    pd.testing.assert_frame_equal(frame, before)
    assert np.array_equal(coordinates_of(frame, DEGREES), np.column_stack([LON, LAT]))


def test_x_and_y_are_in_the_domains_crs():
    given = {"x": [500_001, 500_002], "y": np.array([4e6, 4.1e6])}
    expected = np.array([[500_001, 4e6], [500_002, 4.1e6]])
    assert np.array_equal(coordinates_of(given, UTM), expected)
    assert np.array_equal(coordinates_of(expected, UTM), expected)
    assert np.array_equal(coordinates_of(expected.tolist(), UTM), expected)
    renamed = {"east": given["x"], "north": given["y"]}
    assert np.array_equal(coordinates_of(renamed, UTM, x="east", y="north"), expected)
    np.testing.assert_allclose(coordinates_of({"a": LON, "b": LAT}, UTM, x="a", y="b", crs=4326), EXPECTED)


def test_geometries_bring_their_own_crs():
    points = gpd.GeoDataFrame({"id": [1, 2]}, geometry=gpd.points_from_xy(LON, LAT), crs=4326)
    np.testing.assert_allclose(coordinates_of(points, UTM), EXPECTED)
    np.testing.assert_allclose(coordinates_of(points.geometry, UTM), EXPECTED)
    np.testing.assert_allclose(coordinates_of(points.to_crs(3857), UTM), EXPECTED, atol=1e-3)
    bare = points.set_crs(None, allow_override=True)
    assert np.array_equal(coordinates_of(bare, PLAIN), np.column_stack([LON, LAT]))
    with pytest.raises(DomainError, match="set_crs"):
        coordinates_of(bare, UTM)
    with pytest.raises(DomainError, match="the domain has no CRS"):
        coordinates_of(points, PLAIN)


def test_a_reader_is_picklable_and_reads_wkb():
    reader = pickle.loads(pickle.dumps(find_coordinates(["time", "lat", "lon"], UTM)))
    assert reader.columns == ("lon", "lat")
    np.testing.assert_allclose(reader({"lon": LON, "lat": LAT}), EXPECTED)
    reader = find_coordinates(["geometry"], UTM, geometry="geometry", crs=4326)
    wkb = shapely.to_wkb(shapely.points(LON, LAT))
    np.testing.assert_allclose(reader({"geometry": wkb}), EXPECTED)


def test_nullable_and_empty_columns():
    frame = pd.DataFrame({"x": pd.array([1, 2], dtype="Int64"), "y": pd.array([1.5, 2.5], dtype="Float64")})
    assert coordinates_of(frame, PLAIN).tolist() == [[1, 1.5], [2, 2.5]]
    assert coordinates_of(pd.DataFrame({"lon": [], "lat": []}), UTM).shape == (0, 2)
    assert coordinates_of(np.zeros((0, 2)), UTM).shape == (0, 2)


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        ({"lon": [0.0, np.nan], "lat": [1.0, 2.0]}, InputError, ["'lon'", "row 1"]),
        ({"lon": [0.0, 1.0], "lat": [1.0, -np.inf]}, InputError, ["'lat'", "row 1"]),
        ({"lon": [0.0, 1.0], "lat": [None, 1.0]}, InputError, ["'lat'", "row 0"]),
        ({"x": ["1", "two"], "y": [1, 2]}, InputError, ["'x'", "row 1"]),
        ({"x": [True, False], "y": [1, 2]}, InputError, ["'x'", "row 0"]),
        ({"x": pd.to_datetime(["2020-01-01"]), "y": [1]}, InputError, ["'x'"]),
        ({"lon": [0.0, 40.0], "lat": [10.0, -95.0]}, DomainError, ["row 1", "swapped"]),
        ({"a": [1], "b": [2]}, InputError, ["lon/lat", "2 columns"]),
        ({"x": [1], "y": [1], "lon": [1], "lat": [1]}, InputError, ["several", "x=, y="]),
        ({"a_lon": [1], "a_lat": [1], "b_lon": [1], "b_lat": [1]}, InputError, ["several"]),
        (np.zeros((3, 3)), InputError, ["(3, 3)"]),
        (np.zeros(4), InputError, ["(4,)"]),
        (np.array([[0, 0], [np.nan, 1]]), InputError, ["'x'", "row 1"]),
        (gpd.GeoSeries([shapely.Point(0, 0), None], crs=4326), InputError, ["row 1", "nothing"]),
        (gpd.GeoSeries([shapely.box(0, 0, 1, 1)], crs=4326), InputError, ["row 0", "not a point"]),
        (gpd.GeoSeries([shapely.Point()], crs=4326), InputError, ["row 0", "nothing"]),
    ],
)
def test_bad_input_names_column_and_row(data, error, words):
    with pytest.raises(error) as caught:
        coordinates_of(data, UTM)
    for word in words:
        assert word in str(caught.value)


def test_degrees_need_a_domain_with_a_crs():
    with pytest.raises(DomainError, match="no CRS"):
        coordinates_of({"lon": LON, "lat": LAT}, PLAIN)


def test_half_a_pair_and_unknown_columns():
    with pytest.raises(ConfigError, match="both"):
        coordinates_of({"a": [1], "b": [1]}, PLAIN, x="a")
    with pytest.raises(InputError, match="'c'"):
        coordinates_of({"a": [1], "b": [1]}, PLAIN, x="a", y="c")


def test_outside_is_dropped_or_refused_never_clipped():
    xy = np.array([[0.5, 0.5], [1.5, 0.5]])
    keys, inside = locate_points(hierarchy_of(PLAIN), xy, 4)
    assert inside.tolist() == [True, False]
    assert keys[1] == 0
    with pytest.raises(DomainError, match=r"row 1: .*outside") as caught:
        locate_points(hierarchy_of(PLAIN), xy, 4, outside="error")
    assert "1.5" not in str(caught.value)  # a private coordinate stays out of messages
    with pytest.raises(ConfigError, match="'drop' or 'error'"):
        locate_points(hierarchy_of(PLAIN), xy, 4, outside="clip")


def test_what_cannot_be_projected_is_outside():
    xy = coordinates_of({"lon": [105.0], "lat": [0.0]}, UTM)  # a quarter of the Earth away from zone 18
    assert not hierarchy_of(UTM).locate(xy, 4)[1].any()

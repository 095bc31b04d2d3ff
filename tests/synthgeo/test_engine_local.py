"""What goes into a chunk: one rule for every type, whatever kind of frame it comes in."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import geopandas as gpd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import shapely

from synthgeo.errors import ConfigError, DomainError, InputError
from synthgeo.sources import open_source
from synthgeo.sources.chunk import Chunk, numeric
from tests.synthgeo.engine_keys import GridKeys

NOON = pd.Timestamp("2015-01-01 12:00")


def as_array(values):
    chunk = open_source(pd.DataFrame({"v": values})).read(["v"])
    return chunk["v"]


@pytest.mark.parametrize(
    ("values", "dtype", "expected"),
    [
        (pd.Series([1, 2], dtype="int8"), "int64", [1, 2]),
        (pd.Series([1, 2], dtype="uint64"), "int64", [1, 2]),
        (pd.Series([1, 2**64 - 1], dtype="uint64"), "uint64", [1, 2**64 - 1]),
        (pd.Series([1, 2], dtype="Int32"), "int64", [1, 2]),
        (pd.Series([1, None], dtype="Int64"), "float64", [1.0, np.nan]),
        (pd.Series([1.5, 2], dtype="float32"), "float64", [1.5, 2.0]),
        (pd.Series([1.5, None], dtype="Float64"), "float64", [1.5, np.nan]),
        (pd.Series([1, 2], dtype=object), "int64", [1, 2]),
        (pd.Series([1, None], dtype=object), "float64", [1.0, np.nan]),
        (pd.Series([Decimal("1.5"), None], dtype=object), "float64", [1.5, np.nan]),
        (pd.Series([True, False]), "bool", [True, False]),
        (pd.Series([True, None], dtype="boolean"), "object", [True, None]),
        (pd.Series([True, None], dtype=object), "object", [True, None]),
        (pd.Series(["a", None]), "object", ["a", None]),
        (pd.Series(["a", None], dtype=object), "object", ["a", None]),
        (pd.Series(["a", np.nan, "b"], dtype="category"), "object", ["a", None, "b"]),
        (pd.Series([3, 5, 3], dtype="category"), "int64", [3, 5, 3]),
        (pd.Series(["a", None], dtype=pd.ArrowDtype(pa.string())), "object", ["a", None]),
        (pd.Series([1, None], dtype=pd.ArrowDtype(pa.int32())), "float64", [1.0, np.nan]),
    ],
    ids=str,
)
def test_types_of_a_frame(values, dtype, expected):
    array = as_array(values)
    assert array.dtype == dtype
    np.testing.assert_array_equal(array, np.array(expected, dtype=dtype))


@pytest.mark.parametrize(
    "values",
    [
        pd.Series([NOON, pd.NaT]),
        pd.Series([NOON, pd.NaT]).astype("datetime64[s]"),
        pd.Series([NOON.tz_localize("Europe/Paris") + pd.Timedelta("1h"), pd.NaT]),
        pd.Series([dt.datetime(2015, 1, 1, 12), None], dtype=object),
        pd.Series([NOON, None], dtype=pd.ArrowDtype(pa.timestamp("ns"))),
    ],
    ids=lambda values: str(values.dtype),
)
def test_times_are_microseconds_in_utc(values):
    array = as_array(values)
    assert array.dtype == "datetime64[us]"
    assert array[0] == np.datetime64("2015-01-01T12:00")
    assert np.isnat(array[1])


@pytest.mark.parametrize(
    ("values", "dtype", "expected"),
    [
        (pa.array([1, None], pa.int8()), "float64", [1.0, np.nan]),
        (pa.array([1, 2], pa.uint16()), "int64", [1, 2]),
        (pa.array([1.5, None], pa.float32()), "float64", [1.5, np.nan]),
        (pa.array([Decimal("1.25"), None]), "float64", [1.25, np.nan]),
        (pa.array(["a", None], pa.large_string()), "object", ["a", None]),
        (pa.array(["a", None, "a"]).dictionary_encode(), "object", ["a", None, "a"]),
        (pa.array([True, None]), "object", [True, None]),
        (pa.array([dt.date(2015, 1, 1), None]), "datetime64[us]", ["2015-01-01", "NaT"]),
        (pa.array([NOON], pa.timestamp("ms", tz="America/New_York")), "datetime64[us]", ["2015-01-01T12"]),
        (pa.chunked_array([], pa.int64()), "int64", []),
    ],
    ids=lambda value: str(getattr(value, "type", "")),
)
def test_types_of_an_arrow_table(values, dtype, expected):
    array = open_source(pa.table({"v": values})).read(["v"])["v"]
    assert array.dtype == dtype
    np.testing.assert_array_equal(array, np.array(expected, dtype=dtype))


def test_what_cannot_be_counted_is_refused():
    with pytest.raises(InputError, match="'v' holds list"):
        open_source(pa.table({"v": [[1], [2]]})).read(["v"])
    with pytest.raises(InputError, match="'v' holds complex128"):
        open_source({"v": np.array([1j])}).read(["v"])


def test_geometries_and_crs():
    points = gpd.GeoDataFrame({"a": [1, 2]}, geometry=gpd.points_from_xy([1, 2], [3, 4]), crs=4326)
    source = open_source(points)
    assert source.geometry == "geometry"
    assert source.crs.to_epsg() == 4326
    shapes = source.read(["geometry"])["geometry"]
    assert shapely.get_x(shapes).tolist() == [1, 2]
    assert open_source(points.drop(columns="geometry")).geometry is None
    arrow = open_source(pa.table(points.to_arrow(index=False)))
    assert arrow.geometry == "geometry"
    assert arrow.crs.to_epsg() == 4326
    assert shapely.get_y(arrow.read(["geometry"])["geometry"]).tolist() == [3, 4]


def test_a_users_data_is_never_changed():
    frame = pd.DataFrame({"lon": [0.1, 0.9], "lat": [0.5, 0.5], "time": [NOON, NOON], "name": ["a", None]})
    before = frame.copy(deep=True)
    array = np.array([[0.1, 0.5], [0.9, 0.5]])
    array.flags.writeable = False
    source = open_source(frame)
    source.histogram(GridKeys(), ["lon", "lat"])
    source.read(["name", "time"])
    list(source.windows(time="time", every="6h", start="2015-01-01", end="2015-01-02"))
    pd.testing.assert_frame_equal(frame, before)
    assert open_source(array).read(["x", "y"])["y"].tolist() == [0.5, 0.5]


def test_batches_can_be_read_once():
    source = open_source(pa.table({"lon": [0.1], "lat": [0.1]}).to_reader())
    source.histogram(GridKeys(), ["lon", "lat"])
    with pytest.raises(InputError, match="read already"):
        source.histogram(GridKeys(), ["lon", "lat"])


def test_arrays_take_names():
    source = open_source(np.array([[1.0, 2.0, 3.0]]), columns=["x", "y", "op"])
    assert source.columns == ["x", "y", "op"]
    with pytest.raises(InputError, match=r"expected an array of shape \(n, 2\), got \(1, 3\)"):
        open_source(np.array([[1.0, 2.0, 3.0]]))


def test_zoned_times_in_windows():
    """06:30 in Paris is 05:30 UTC: windows follow the instant, labels the zone of the start."""
    times = pd.Series([pd.Timestamp("2015-01-01 06:30", tz="Europe/Paris")])
    frame = pd.DataFrame({"lon": [0.5], "lat": [0.5], "time": times})
    for data in (frame, pa.Table.from_pandas(frame), {name: frame[name] for name in frame}):
        windows = list(
            open_source(data).windows(
                time="time", every="6h", start=pd.Timestamp("2015-01-01", tz="UTC"), end="2015-01-01T12:00Z"
            )
        )
        sizes = [window.histogram(GridKeys(), ["lon", "lat"]).size for _, window in windows]
        assert sizes == [1, 0]
        with pytest.raises(ConfigError, match="has a time zone, so start needs one too"):
            open_source(data).windows(time="time", every="6h", start="2015-01-01", end="2015-01-02")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (3, "cannot read int"),
        (["a.csv", 3], "cannot read list"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "'a' appears more than once"),
        ({"a": [1, 2], "b": [1]}, "different lengths"),
        ({"a": [[1, 2]]}, "one-dimensional"),
    ],
)
def test_unreadable_input_is_refused(data, message):
    with pytest.raises(InputError, match=message):
        open_source(data)


def test_text_is_no_time():
    with pytest.raises(InputError, match="'time' holds text, expected times"):
        open_source({"time": ["2015-01-01"]}).windows(time="time", every="6h", start="2015", end="2016")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1.0, np.nan], "'v', row 1: is missing or NaN"),
        ([1.0, np.inf], "'v', row 1: is infinite"),
        (np.array([1, "x"], dtype=object), "'v', row 1: is not a number"),
        (np.array([1, None, "x"], dtype=object), "'v', row 1: is missing"),
        (np.array(["2015-01-01"], dtype="datetime64[us]"), "'v' holds datetime64"),
    ],
)
def test_numbers_that_are_none(values, message):
    with pytest.raises(InputError, match=message):
        numeric({"v": np.asarray(values)}, "v")


def test_numbers_in_text_are_numbers():
    assert numeric({"v": np.array(["1.5", "2"], dtype=object)}, "v").tolist() == [1.5, 2.0]
    assert numeric({"v": np.array([], dtype=object)}, "v").tolist() == []


def test_an_empty_frame_counts_to_nothing():
    empty = pd.DataFrame({"lon": [], "lat": []})
    assert open_source(empty).histogram(GridKeys(), ["lon", "lat"]).size == 0
    with pytest.raises(InputError, match="missing column 'lon', 'lat'; there are none"):
        open_source(pd.DataFrame()).histogram(GridKeys(), ["lon", "lat"])


def test_an_error_is_told_about_the_row_of_the_source():
    chunk = Chunk({}, rows=9, locate="row 10{} of a.csv".format)
    told = chunk.located(DomainError("column 'row 7', row 3: is like row 4"))
    assert isinstance(told, DomainError)
    assert str(told) == "column 'row 7', row 103 of a.csv: is like row 4"
    assert str(chunk.located(InputError("row 2: lies outside"))) == "row 102 of a.csv: lies outside"
    assert str(chunk.located(InputError("nothing to tell"))) == "nothing to tell"

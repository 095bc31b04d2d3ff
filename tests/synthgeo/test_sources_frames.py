"""What goes into a chunk: one rule for every type, whatever kind of frame it comes in."""

from __future__ import annotations

import datetime as dt
import pickle
from decimal import Decimal

import geopandas as gpd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import shapely

from synthgeo.errors import ConfigError, DomainError, InputError
from synthgeo.sources import Reading, open_source
from synthgeo.sources.chunk import Chunk
from synthgeo.sources.values import as_words, finite, numbers, times
from tests.synthgeo.source_keys import GridKeys

NOON = pd.Timestamp("2015-01-01 12:00")


def chunk_of(values):
    return open_source(pd.DataFrame({"v": values})).read(["v"])


NUMBERS = [
    pd.Series([1, 2], dtype="int8"),
    pd.Series([1, 2], dtype="uint64"),
    pd.Series([1, 2], dtype="Int32"),
    pd.Series([1, None], dtype="Int64"),
    pd.Series([1.5, 2], dtype="float32"),
    pd.Series([1.5, None], dtype="Float64"),
    pd.Series([1, 2], dtype=object),
    pd.Series([1, None], dtype=object),
    pd.Series(["1", 2.0, None], dtype=object),
    pd.Series([Decimal("1.5"), None], dtype=object),
    pd.Series([True, False]),
    pd.Series([3, 5, 3], dtype="category"),
    pd.Series([1, None], dtype=pd.ArrowDtype(pa.int32())),
    pd.Series(["1.25", None], dtype="string"),
]


@pytest.mark.parametrize("values", NUMBERS, ids=str)
def test_numbers_of_every_type(values):
    expected = [np.nan if pd.isna(value) else float(value) for value in values]
    np.testing.assert_array_equal(numbers(chunk_of(values), "v"), expected)
    table = pa.table({"v": pa.Array.from_pandas(values.map(str, na_action="ignore"))})
    if values.dtype != bool:
        np.testing.assert_array_equal(numbers(open_source(table).read(["v"]), "v"), expected)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pd.Series([1, 2**64 - 1], dtype="uint64"), ["1", str(2**64 - 1)]),
        (pd.Series([2**62 + 1, None], dtype="Int64"), [str(2**62 + 1), None]),
        (pd.Series([1.0, 1.5, np.nan]), ["1", "1.5", None]),
        (pd.Series([True, None], dtype="boolean"), ["true", None]),
        (pd.Series(["a", None]), ["a", None]),
        (pd.Series(["a", None], dtype=object), ["a", None]),
        (pd.Series(["a", np.nan, "b"], dtype="category"), ["a", None, "b"]),
        (pd.Series([4, 4.0, "4", "4.0", "04", 4.5], dtype=object), ["4", "4", "4", "4", "04", "4.5"]),
        (pd.Series(["a", None], dtype=pd.ArrowDtype(pa.string())), ["a", None]),
        (pd.Series(["", "a"]), [None, "a"]),
    ],
    ids=str,
)
def test_words_of_every_type(values, expected):
    assert as_words(chunk_of(values), "v").tolist() == expected


@pytest.mark.parametrize(
    "values",
    [
        pd.Series([NOON, pd.NaT]),
        pd.Series([NOON, pd.NaT]).astype("datetime64[s]"),
        pd.Series([NOON.tz_localize("Europe/Paris") + pd.Timedelta("1h"), pd.NaT]),
        pd.Series([dt.datetime(2015, 1, 1, 12), None], dtype=object),
        pd.Series(["2015-01-01T12:00", None], dtype=object),
        pd.Series([NOON, None], dtype=pd.ArrowDtype(pa.timestamp("ns"))),
    ],
    ids=lambda values: str(values.dtype),
)
def test_times_are_microseconds_in_utc(values):
    array = times(chunk_of(values), "v")
    assert array.dtype == "datetime64[us]"
    assert array[0] == np.datetime64("2015-01-01T12:00")
    assert np.isnat(array[1])


def test_times_of_an_arrow_table():
    for values in (
        pa.array([NOON], pa.timestamp("ms", tz="America/New_York")),
        pa.array(["2015-01-01 12:00"]),
    ):
        found = times(open_source(pa.table({"v": values})).read(["v"]), "v")
        assert found.tolist() == [NOON.to_pydatetime()]
    dates = open_source(pa.table({"v": pa.array([dt.date(2015, 1, 1), None])})).read(["v"])
    assert np.isnat(times(dates, "v")).tolist() == [False, True]
    assert numbers(open_source(pa.table({"v": pa.chunked_array([], pa.int64())})).read(["v"]), "v").size == 0


def test_mixed_zones_are_read_row_by_row():
    """A zone declared: clock times are in it, times with an offset are instants, whatever stands beside."""
    values = pd.Series(
        [
            "2015-07-01 12:00",
            "2015-07-01T12:00+00:00",
            pd.Timestamp("2015-07-01 12:00"),
            NOON.tz_localize("UTC"),
        ],
        dtype=object,
    )
    zoned = open_source(pd.DataFrame({"v": values}), reading=Reading(tz="Europe/Paris")).read(["v"])
    expected = ["2015-07-01T10:00", "2015-07-01T12:00", "2015-07-01T10:00", "2015-01-01T12:00"]
    assert np.array_equal(times(zoned, "v"), np.array(expected, dtype="datetime64[us]"))
    with pytest.raises(InputError, match="'v', row 1: has a time zone, but none is declared"):
        times(chunk_of(values), "v")


def test_what_cannot_be_counted_is_refused():
    with pytest.raises(InputError, match="'v' holds list"):
        open_source(pa.table({"v": [[1], [2]]})).read(["v"])
    with pytest.raises(InputError, match="'v' holds complex128"):
        open_source({"v": np.array([1j])}).read(["v"])


def test_a_series_of_points_is_read_as_a_frame_and_another_series_is_refused():
    points = gpd.GeoSeries.from_xy([1, 2], [3, 4], crs=4326)
    read = [
        open_source(data).read(["geometry"])["geometry"] for data in (points, points.to_frame("geometry"))
    ]
    assert read[0].tolist() == read[1].tolist()
    with pytest.raises(InputError, match="cannot read Series"):
        open_source(pd.Series([1, 2]))


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
        ({"a": np.zeros((1, 2))}, "one-dimensional"),
    ],
)
def test_unreadable_input_is_refused(data, message):
    with pytest.raises(InputError, match=message):
        open_source(data)


def test_text_that_is_no_time_is_refused():
    with pytest.raises(InputError, match="'time', row 1: is not a time as declared"):
        open_source({"time": ["2015-01-01", "01/02/2015"]}).windows(
            time="time", every="6h", start="2015", end="2016"
        )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1.0, np.nan], "'v', row 1: is missing or not a number"),
        ([1.0, np.inf], "'v', row 1: is infinite"),
        (np.array([1, "x"], dtype=object), "'v', row 1: is not a number"),
        (np.array([1, None, "x"], dtype=object), "'v', row 2: is not a number"),
        (np.array(["2015-01-01"], dtype="datetime64[us]"), "'v', row 0: is not a number"),
    ],
)
def test_numbers_that_are_none(values, message):
    with pytest.raises(InputError, match=message):
        finite({"v": np.asarray(values)}, "v")


def test_numbers_in_text_are_numbers():
    assert finite({"v": np.array(["1.5", "2"], dtype=object)}, "v").tolist() == [1.5, 2.0]
    assert finite({"v": np.array([], dtype=object)}, "v").tolist() == []


def test_an_empty_frame_counts_to_nothing():
    empty = pd.DataFrame({"lon": [], "lat": []})
    assert open_source(empty).histogram(GridKeys(), ["lon", "lat"]).size == 0
    with pytest.raises(InputError, match="missing column 'lon', 'lat'; there are none"):
        open_source(pd.DataFrame()).histogram(GridKeys(), ["lon", "lat"])


def test_an_error_is_told_about_the_row_of_the_source():
    chunk = Chunk({}, rows=9, locate="row 10{} of a.csv".format)
    told = chunk.located(DomainError("is like row 4", column="row 7", row=3))
    assert isinstance(told, DomainError)
    assert str(told) == "column 'row 7', row 103 of a.csv: is like row 4"
    assert str(chunk.located(InputError("lies outside", row=2))) == "row 102 of a.csv: lies outside"
    assert str(chunk.located(InputError("nothing to tell"))) == "nothing to tell"
    assert str(pickle.loads(pickle.dumps(told))) == str(told)

"""Files through DuckDB: what is read, and what is said about files that cannot be."""

from __future__ import annotations

import gzip

import geopandas as gpd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely

from synthgeo.errors import ConfigError, ContributionError, InputError
from synthgeo.sources import Histogram, Reading, open_source, values
from synthgeo.sources import windows as windowed_module
from synthgeo.sources.grid import PrivateGridWarning
from tests.synthgeo.source_keys import GridKeys

KEY = GridKeys()


def write(folder, name, text):
    path = folder / name
    path.write_text(text)
    return path


def count(source):
    return source.histogram(KEY, KEY.columns)


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_separator_comes_from_the_header(tmp_path, separator):
    text = "lon,lat,note\n0.1,0.2,a\n0.3,0.4,b\n".replace(",", separator)
    source = open_source(write(tmp_path, "a.csv", text))
    assert source.columns == ["lon", "lat", "note"]
    assert count(source).weights.sum() == 2


def test_compressed_csv_and_quotes(tmp_path):
    path = tmp_path / "a.csv.gz"
    with gzip.open(path, "wt") as file:
        file.write('lon,lat,note\n0.1,0.2,"one line, and ""quotes"""\n0.3,0.4,\n')
    chunk = open_source(path).read(["note", "lon"])
    assert values.as_words(chunk, "note").tolist() == ['one line, and "quotes"', None]
    assert values.numbers(chunk, "lon").tolist() == [0.1, 0.3]


def test_names_and_paths_with_quotes(tmp_path):
    folder = tmp_path / "it's here"
    folder.mkdir()
    pq.write_table(pa.table({'the "lon"': [1.5], "it's": [2.5]}), folder / "a.parquet")
    chunk = open_source(folder / "a.parquet").read(['the "lon"', "it's"])
    assert [values[0] for values in chunk.values()] == [1.5, 2.5]


def test_folders_lists_and_globs(tmp_path):
    for number in range(3):
        frame = pd.DataFrame({"lon": [number / 4], "lat": [0.5]})
        frame.to_parquet(tmp_path / f"part-{number}.parquet")
    everything = open_source(tmp_path).read(["lon"])["lon"].tolist()
    assert everything == [0, 0.25, 0.5]
    assert open_source(str(tmp_path / "part-[12].parquet")).read(["lon"])["lon"].tolist() == [0.25, 0.5]
    chosen = [tmp_path / "part-2.parquet", str(tmp_path / "part-0.parquet")]
    assert open_source(chosen).read(["lon"])["lon"].tolist() == [0.5, 0]


def test_folders_that_look_like_columns_add_none_and_patterns_in_names_match_themselves(tmp_path):
    """A path is where a file lies: nothing is read out of it, and no other file is read with it."""
    folder = tmp_path / "lat=0.5"
    folder.mkdir()
    for name, lon in (("a[1].parquet", 1.5), ("a1.parquet", 2.5)):
        pq.write_table(pa.table({"lon": [lon]}), folder / name)
    source = open_source([folder / "a[1].parquet"])
    assert source.columns == ["lon"]
    assert source.read(["lon"])["lon"].tolist() == [1.5]
    with pytest.raises(InputError, match="lat"):
        source.read(["lat"])
    pq.write_table(pa.table({"lon": [0.1], "lat": [0.25]}), folder / "own.parquet")
    assert open_source([folder / "own.parquet"]).read(["lat"])["lat"].tolist() == [0.25]


def test_the_identity_of_geometries_is_one_of_their_coordinate_system(tmp_path):
    for epsg in (32632, 32633):
        points = gpd.GeoDataFrame({"a": [1]}, geometry=gpd.points_from_xy([1], [3]), crs=epsg)
        points.to_parquet(tmp_path / f"{epsg}.parquet")
    found = {
        open_source(path).fingerprint({"geometry": "point"}) for path in sorted(tmp_path.glob("*.parquet"))
    }
    assert len(found) == 2


def test_files_with_columns_in_another_order(tmp_path):
    pq.write_table(pa.table({"lon": [0.1], "lat": [0.9]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"lat": [0.9], "lon": [0.1]}), tmp_path / "b.parquet")
    assert count(open_source(tmp_path)).weights.tolist() == [[2]]


def test_geoparquet_and_geojson(tmp_path):
    points = gpd.GeoDataFrame({"a": [1, 2]}, geometry=gpd.points_from_xy([1, 2], [3, 4]), crs=32632)
    points.to_parquet(tmp_path / "a.parquet")
    source = open_source(tmp_path / "a.parquet")
    assert source.geometry == "geometry"
    assert source.crs.to_epsg() == 32632
    assert shapely.get_y(source.read(["geometry"])["geometry"]).tolist() == [3, 4]
    for number in range(2):
        points.to_crs(4326).to_file(tmp_path / f"{number}.geojson")
    features = open_source(str(tmp_path / "*.geojson"))
    assert features.crs.to_epsg() == 4326
    assert len(features.read(["geometry"])["geometry"]) == 4
    no_crs = gpd.GeoDataFrame({"a": [1]}, geometry=gpd.points_from_xy([1], [3]))
    no_crs.to_parquet(tmp_path / "b.parquet")
    assert open_source(tmp_path / "b.parquet").crs is None


def test_damaged_geometries_are_refused_row_by_row(tmp_path):
    points = gpd.GeoDataFrame({"a": [1]}, geometry=gpd.points_from_xy([1], [3]), crs=4326)
    table = pa.table(points.to_arrow(index=False, geometry_encoding="WKB"))
    broken = table.set_column(1, table.schema.field("geometry"), pa.array([b"\x01\x02\x03"], pa.binary()))
    whole = pa.concat_tables([table, broken])
    for data in (whole, tmp_path / "a.parquet"):
        pq.write_table(whole, tmp_path / "a.parquet")
        with pytest.raises(InputError, match=r"column 'geometry', row 1( of a.parquet)?: is not a point"):
            values.points(open_source(data).read(["geometry"], check=points_of), "geometry")
        kept = open_source(data, reading=Reading(bad_rows="drop")).read(["geometry"], check=points_of)
        assert values.points(kept, "geometry").tolist() == [[1.0, 3.0]]


def points_of(chunk):
    return values.points(chunk, "geometry")


def test_users_in_csv_keep_their_zeros(tmp_path):
    """Were they read as numbers, 007 and 7 would share one user's bound."""
    text = "lon,lat,user\n" + "".join(f"0.1,0.1,{user}\n" for user in [*range(100, 400), "007", "7"])
    source = open_source(write(tmp_path, "a.csv", text))
    events = source.user_events(KEY, KEY.columns, "user")
    assert len({*zip(events.users.high.tolist(), events.users.low.tolist(), strict=True)}) == 302
    frame = pd.DataFrame({"lon": 0.1, "lat": 0.1, "user": range(100, 400)})
    in_memory = open_source(frame).user_events(KEY, KEY.columns, "user")
    assert np.array_equal(events.users.low[:300], in_memory.users.low)


def test_missing_users_are_named(tmp_path):
    source = open_source(write(tmp_path, "a.csv", "lon,lat,user\n0.1,0.1,ann\n0.1,0.1,\n"))
    with pytest.raises(ContributionError, match=r"column 'user', line 3 of a.csv: the id is missing"):
        source.user_events(KEY, KEY.columns, "user")


def test_file_without_rows_is_an_empty_batch(tmp_path):
    write(tmp_path, "a.csv", "lon,lat,time,user\n")
    pd.DataFrame({"lon": [0.5], "lat": [0.5], "user": [1]}).iloc[:0].to_parquet(tmp_path / "a.parquet")
    for name in ("a.csv", "a.parquet"):
        source = open_source(tmp_path / name)
        assert count(source).equals(Histogram.empty())
        assert len(source.user_events(KEY, KEY.columns, "user").keys) == 0
        assert source.read(["lon", "lat"]).rows == 0
    windows = open_source(tmp_path / "a.csv").windows(
        time="time", every="1D", start="2015-01-01", end="2015-01-04"
    )
    assert [count(window).size for _, window in windows] == [0, 0, 0]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("bad.csv", "lon,lat\n0.1,0.2\n0.3,secret\n", "column 'lat', line 3 of bad.csv: is not a number"),
        ("bad.csv", "lon,lat\n0.1,0.2\n0.3,\n", "column 'lat', line 3 of bad.csv: is missing"),
        ("bad.csv", "lon,lat\n0.1,0.2\n0.3,inf\n", "column 'lat', line 3 of bad.csv: is not a number"),
        (
            "bad.csv",
            "lon,lat\n0.1,0.2\n0.3,0.4,secret\n",
            "line 3 of bad.csv: the line has 3 fields, the hea",
        ),
        ("bad.csv", "lon,lat\n0.1,0.2\n0.3\n", "line 3 of bad.csv: the line has 1 fields, the header 2"),
        ("bad.csv", "", "bad.csv: no header line"),
        ("bad.csv", "lon,lot\n0.1,0.2\n", "missing column 'lat'; there are lon, lot"),
        ("bad.csv", "secret,7\n0.1,0.2\n", "the first line of bad.csv is taken as the header and names 2"),
        ("bad.csv", "lon,lat,lon\n0.1,0.2,0.3\n", r"bad.csv: the header names a column more than once \(col"),
        ("bad.parquet", "no parquet", "bad.parquet: "),
        ("bad.geojson", "{", "bad.geojson: not GeoJSON"),
        ("bad.xlsx", "", "bad.xlsx: unknown kind of file"),
    ],
)
def test_bad_files_are_named_with_line_or_row(tmp_path, name, text, message):
    path = write(tmp_path, name, text)
    with pytest.raises(InputError, match=message) as caught:
        count(open_source(path))
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_bad_line_far_down_is_named(tmp_path):
    good = "".join(f"{number},{number}.5\n" for number in range(1_000_000))
    path = write(tmp_path, "long.csv", f"lon,lat\n{good}secret,1\n")
    with pytest.raises(InputError, match=r"column 'lon', line 1000002 of long.csv: is not a num") as caught:
        count(open_source(path))
    assert "secret" not in str(caught.value)
    ragged = write(tmp_path, "ragged.csv", f"lon,lat\n{good}1,2,3\n")
    with pytest.raises(InputError, match=r"line 1000002 of ragged.csv: the line has 3 fields"):
        count(open_source(ragged))


def test_every_column_with_bad_rows_is_named_at_once(tmp_path):
    bad = "".join("1;5,x\n" if n % 2 else "0.5,\n" for n in range(30))
    path = write(tmp_path, "a.csv", f"lon,lat\n{bad}")
    with pytest.raises(InputError) as caught:
        count(open_source(path))
    message = str(caught.value)
    assert (
        "column 'lon', lines 3, 5, 7, 9, 11, 13, 15, 17, 19, 21 of a.csv and 5 more rows: is not a" in message
    )
    assert "column 'lat', lines 3, 5" in message
    assert "column 'lat', lines 2, 4" in message
    assert "--decimal" in message


def test_bad_rows_in_the_second_csv_file_are_counted_from_its_start(tmp_path):
    write(tmp_path, "a.csv", "lon,lat\n0.1,0.2\n0.1,0.2\n")
    write(tmp_path, "b.csv", "lon,lat\n0.1,0.2\n0.1,nan\n")
    with pytest.raises(InputError, match=r"column 'lat', line 3 of b.csv: is not a number"):
        count(open_source(str(tmp_path / "*.csv")))


def test_files_that_are_not_there_or_of_two_kinds(tmp_path):
    with pytest.raises(InputError, match="no file matches"):
        open_source(tmp_path / "none.csv")
    with pytest.raises(InputError, match="no file matches"):
        open_source(tmp_path)
    one, two = write(tmp_path, "a.csv", "a\n1\n"), write(tmp_path, "b.geojson", "{}")
    with pytest.raises(InputError, match="several kinds"):
        open_source([one, two])


def timed_file(folder, *, order, rows=2_000, zone=None):
    rng = np.random.default_rng(3)
    hours = rng.permutation(rows) if order == "shuffled" else np.arange(rows)
    time = pd.Timestamp("2015-01-01", tz=zone) + pd.to_timedelta(hours * 60, unit="s")
    frame = pd.DataFrame({"lon": rng.uniform(0, 1, rows), "lat": rng.uniform(0, 1, rows), "time": time})
    path = folder / f"{order}.parquet"
    frame.to_parquet(path, row_group_size=100)
    return path, frame


@pytest.mark.parametrize("order", ["sorted", "shuffled"])
def test_windows_take_few_passes(tmp_path, order, monkeypatch):
    """34 windows of one hour: a group of 1, of 8, of 64; not one scan each."""
    path, frame = timed_file(tmp_path, order=order)
    passes = []
    original = windowed_module.ScannedSource.count_by_window

    def counted(self, *arguments):
        passes.append(arguments)
        return original(self, *arguments)

    monkeypatch.setattr(windowed_module.ScannedSource, "count_by_window", counted)
    grid = {"time": "time", "every": "1h", "start": "2015-01-01", "end": "2015-01-02 10:00"}
    found = [count(window) for _, window in open_source(path).windows(**grid)]
    assert len(found) == 34
    assert len(passes) == 3
    expected = [count(window) for _, window in open_source(frame).windows(**grid)]
    assert all(ours.equals(other) for ours, other in zip(found, expected, strict=True))


def test_groups_of_windows_shrink_when_counts_are_large(tmp_path, monkeypatch):
    path, frame = timed_file(tmp_path, order="shuffled")
    monkeypatch.setattr(windowed_module, "_HELD", 100)
    grid = {"time": "time", "every": "1h", "start": "2015-01-01", "end": "2015-01-02 10:00"}
    found = [count(window) for _, window in open_source(path).windows(**grid)]
    expected = [count(window) for _, window in open_source(frame).windows(**grid)]
    assert all(ours.equals(other) for ours, other in zip(found, expected, strict=True))


def test_windows_can_be_read_in_any_order_and_with_changing_keys(tmp_path):
    path, frame = timed_file(tmp_path, order="shuffled")
    grid = {"time": "time", "every": "6h", "start": "2015-01-01", "end": "2015-01-02 10:00"}
    windows = [window for _, window in open_source(path).windows(**grid)]
    expected = [window for _, window in open_source(frame).windows(**grid)]
    signed = GridKeys(op=True)
    for number in (3, 0, 5, 0):
        assert count(windows[number]).equals(count(expected[number]))
        with pytest.raises(InputError, match="missing column 'op'"):
            windows[number].histogram(signed, signed.columns, weights=2)
        assert np.array_equal(windows[number].read(["lon"])["lon"], expected[number].read(["lon"])["lon"])


def test_zoned_times_in_files(tmp_path):
    path, frame = timed_file(tmp_path, order="sorted", rows=200, zone="America/New_York")
    grid = {"time": "time", "every": "1h", "start": frame["time"].min(), "end": frame["time"].max()}
    found = [count(window) for _, window in open_source(path).windows(**grid)]
    expected = [count(window) for _, window in open_source(frame).windows(**grid)]
    assert [part.weights.sum() for part in found] == [60, 60, 60, 19]
    assert all(ours.equals(other) for ours, other in zip(found, expected, strict=True))
    with pytest.raises(ConfigError, match="has a time zone"):
        open_source(path).windows(time="time", every="1h", start="2015-01-01", end="2015-01-02")


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_of_every_resolution(tmp_path, unit):
    times = pa.array(np.array(["2015-01-01T00:59:59", "2015-01-01T01:00:00"], dtype=f"datetime64[{unit}]"))
    pq.write_table(pa.table({"lon": [0.1, 0.1], "lat": [0.1, 0.1], "time": times}), tmp_path / "a.parquet")
    grid = {"time": "time", "every": "1h", "start": "2015-01-01", "end": "2015-01-01 02:00"}
    windows = open_source(tmp_path / "a.parquet").windows(**grid)
    assert [int(count(window).weights.sum()) for _, window in windows] == [1, 1]


def test_grid_from_the_data_warns(tmp_path):
    path, frame = timed_file(tmp_path, order="shuffled")
    with pytest.warns(PrivateGridWarning):
        windows = list(open_source(path).windows(time="time", every="6h"))
    with pytest.warns(PrivateGridWarning):
        expected = list(open_source(frame).windows(time="time", every="6h"))
    assert [start for start, _ in windows] == [start for start, _ in expected]
    assert sum(int(count(window).weights.sum()) for _, window in windows) == 2_000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0.1,0.1,2015-01-01\n0.1,0.1,soon\n", "column 'time', line 3 of a.csv: is not a time as declared"),
        ("0.1,0.1,2015-01-01\n0.1,0.1,\n", "column 'time', line 3 of a.csv: the time is missing"),
        ("0.1,0.1,3\n0.1,0.1,4\n", "column 'time', lines 2, 3 of a.csv: is not a time as declared"),
        (
            "0.1,0.1,2015-01-01T00:00Z\n",
            "column 'time', line 2 of a.csv: has a time zone, but none is declared",
        ),
    ],
)
def test_bad_times_in_csv(tmp_path, text, message):
    source = open_source(write(tmp_path, "a.csv", f"lon,lat,time\n{text}"))
    with pytest.raises(InputError, match=message):
        source.windows(time="time", every="1h", start="2015-01-01", end="2015-01-02")


def test_text_that_is_none_far_down_costs_its_row_alone(tmp_path, monkeypatch):
    """DuckDB stops there: Arrow goes on behind the rows that were read, and none counts twice."""
    monkeypatch.setattr("synthgeo.sources.files.rows_per_chunk", lambda _: 3_000)
    rows = 20_000
    cells = pa.array([b"u%d" % number for number in range(rows - 2)] + [b"\xff", b"last"], pa.binary())
    users = pa.Array.from_buffers(pa.string(), rows, cells.buffers())
    table = pa.table({"user": users, "lon": np.full(rows, 0.5), "lat": np.full(rows, 0.5)})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=4_000)
    source = open_source(tmp_path / "a.parquet", reading=Reading(bad_rows="drop"))
    events = source.user_events(KEY, KEY.columns, "user")
    assert len(events.keys) == len(np.unique(events.users.codes())) == rows - 1
    with pytest.raises(InputError, match=f"column 'user', row {rows - 2} of a.parquet: is not text"):
        open_source(tmp_path / "a.parquet").user_events(KEY, KEY.columns, "user")

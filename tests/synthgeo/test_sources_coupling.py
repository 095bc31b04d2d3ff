"""One added row changes no other record, whatever its bytes: the rule on which every guarantee rests.

For files made by hypothesis, the records of F inside F plus one arbitrary row are the records of F, bit for
bit, or the file is refused. The twin, a reader that guesses types from rows, is caught.
"""

from __future__ import annotations

import datetime
import gzip
import io
import json
import os
import traceback
import warnings
from contextlib import suppress
from decimal import Decimal
from pathlib import Path

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import synthgeo as sg
from synthgeo.canonical import is_missing
from synthgeo.errors import InputError
from synthgeo.sources import Reading, open_source, values

HEADER = ["lon", "lat", "op", "time", "user", "kind"]
KINDS = {"lon": "number", "lat": "number", "op": "number", "time": "time", "user": "id", "kind": "word"}
READINGS = [
    Reading(bad_rows="drop"),
    Reading(bad_rows="drop", tz="Europe/Berlin"),
    Reading(bad_rows="drop", delimiter=",", quote=None),
    Reading(bad_rows="drop", encoding="latin-1", thousands="'"),
]

good = st.fixed_dictionaries(
    {
        "lon": st.floats(-180, 180).map(repr),
        "lat": st.floats(-90, 90).map(repr) | st.integers(-90, 90).map(str),
        "op": st.sampled_from(["1", "-1", "1.0"]),
        "time": st.datetimes(min_value=pd.Timestamp("2020-01-01"), max_value=pd.Timestamp("2026-01-01")).map(
            lambda t: t.isoformat(sep=" ", timespec="seconds")
        ),
        "user": st.integers(-5, 2**70).map(str) | st.sampled_from(["007", "7", "ann", "É"]),
        "kind": st.sampled_from(["a", "4", "4.0", "4.50", "true", "x y", "ß"]),
    }
)
# Values that make a guessing reader change its mind about everybody else's.
nasty = st.sampled_from(
    ["", "x", "04/13/2020", "1e400", "nan", "10000000000000000000", "1,5", '"', '""', "2020-01-01T00:00Z",
     "2025-10-26 02:30:00", "NULL", "true", "0x10", "\t1", "1 ", "-0", "+3", "é", "1'000"]
)  # fmt: skip
line_bytes = st.binary(max_size=40).map(lambda raw: raw.replace(b"\n", b""))
fields = st.lists(nasty, min_size=1, max_size=8).map(lambda cells: ",".join(cells).encode())
any_line = line_bytes | fields | st.tuples(fields, line_bytes).map(b",".join)


def records(source, rows=None):
    """Every record as one tuple of canonical values."""
    chunk = source.read(
        HEADER, check=lambda chunk: [values.record_hash(chunk, n, k) for n, k in KINDS.items()]
    )
    parts = [part for name, kind in KINDS.items() for part in values.record_hash(chunk, name, kind)]
    return list(zip(*(part.tolist() for part in parts), strict=True))


def without_one(more, fewer):
    """Whether ``fewer`` is ``more``, in order, with at most one record left out."""
    if more == fewer:
        return True
    return any(more[:at] + more[at + 1 :] == fewer for at in range(len(more)))


def csv_bytes(rows):
    out = io.StringIO()
    pd.DataFrame(rows, columns=HEADER).to_csv(out, index=False)
    return out.getvalue().encode()


def write_csv(folder, content, *, packed=False):
    path = folder / ("a.csv.gz" if packed else "a.csv")
    path.write_bytes(gzip.compress(content) if packed else content)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("coupling")


quick = settings(
    max_examples=25 if os.environ.get("HYPOTHESIS_PROFILE") != "fuzz" else 1_000,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.mark.parametrize("reading", READINGS, ids=Reading.describe)
@pytest.mark.parametrize("packed", [False, True], ids=["csv", "gz"])
@quick
@given(rows=st.lists(good, max_size=5), line=any_line, place=st.integers(0, 5))
def test_a_line_of_any_bytes_couples_nobody(folder, reading, packed, rows, line, place):
    content = csv_bytes(rows)
    lines = content.split(b"\n")[:-1]
    at = 1 + min(place, len(rows))
    longer = b"\n".join([*lines[:at], line, *lines[at:], b""])
    fewer = records(open_source(write_csv(folder, content, packed=packed), reading=reading))
    more = records(open_source(write_csv(folder, longer, packed=packed), reading=reading))
    assert without_one(more, fewer)
    strict = reading.but(bad_rows="error")
    with suppress(InputError):  # refused: an act of the curator, before anything is spent
        assert without_one(records(open_source(write_csv(folder, longer), reading=strict)), fewer)


json_value = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
    | st.lists(st.integers(), max_size=2)
)  # fmt: skip


def json_rows(rows, extra):
    return "".join(json.dumps(row) + "\n" for row in rows) + (extra or "")


@quick
@given(
    rows=st.lists(good, max_size=4),
    extra=st.dictionaries(st.sampled_from(HEADER), json_value, max_size=6).map(json.dumps)
    | st.text(max_size=20).map(lambda text: text.replace("\n", "").replace("\r", "")),
)  # fmt: skip
@pytest.mark.slow
def test_a_line_of_json_couples_nobody(folder, rows, extra):
    reading = Reading(bad_rows="drop")
    path = folder / "a.jsonl"
    path.write_text(json_rows(rows, None), encoding="utf-8", errors="replace")
    fewer = records(open_source(path, reading=reading))
    path.write_text(json_rows(rows, extra + "\n"), encoding="utf-8", errors="replace")
    assert without_one(records(open_source(path, reading=reading)), fewer)


cell = (
    st.none() | st.booleans() | st.integers(-(2**66), 2**66) | st.floats() | st.text(max_size=8) | nasty
    | st.datetimes() | st.dates() | st.just(pd.NaT) | st.just(pd.NA) | st.binary(max_size=3)
    | st.datetimes(timezones=st.just(__import__("datetime").timezone.utc))
)  # fmt: skip
objects = st.fixed_dictionaries(dict.fromkeys(HEADER, cell))


def frame_of(rows):
    return pd.DataFrame({name: pd.Series([row[name] for row in rows], dtype=object) for name in HEADER})


def dask_source(frame, reading):
    with dask.config.set({"dataframe.convert-string": False}):
        return open_source(dd.from_pandas(frame, npartitions=2, sort=False), reading=reading)


ENGINES = {
    "frame": lambda frame, reading: open_source(frame, reading=reading),
    "dict": lambda frame, reading: open_source({n: frame[n].tolist() for n in HEADER}, reading=reading),
    "dask": dask_source,
}


@pytest.mark.parametrize("engine", ENGINES)
@quick
@given(rows=st.lists(good | objects, max_size=4), row=objects)
def test_an_object_of_any_kind_couples_nobody(engine, rows, row):
    reading = Reading(bad_rows="drop")
    # A list of booleans where times belong is refused whole: its type says it, and no row is read.
    with suppress(InputError), dask.config.set(scheduler="synchronous"):
        fewer = records(ENGINES[engine](frame_of(rows), reading))
        more = records(ENGINES[engine](frame_of([*rows, row]), reading))
        assert without_one(more, fewer)


typed = st.fixed_dictionaries(
    {
        "lon": st.none() | st.floats(),
        "lat": st.none() | st.floats(width=32),
        "op": st.none() | st.integers(-2, 2),
        "time": st.none()
        | st.datetimes(min_value=pd.Timestamp("1700-01-01"), max_value=pd.Timestamp("2200-01-01")),
        "user": st.none() | st.integers(0, 2**64 - 1),
        "kind": st.none() | st.text(max_size=5),
    }
)
TYPES = [("lon", pa.float64()), ("lat", pa.float32()), ("op", pa.int8()), ("time", pa.timestamp("us")),
         ("user", pa.uint64()), ("kind", pa.string())]  # fmt: skip


def parquet_source(table, folder, reading):
    pq.write_table(table, folder / "a.parquet", row_group_size=2)
    return open_source(folder / "a.parquet", reading=reading)


@pytest.mark.parametrize("engine", ["arrow", "parquet"])
@quick
@given(rows=st.lists(typed, max_size=4), row=typed)
def test_a_typed_row_couples_nobody(folder, engine, rows, row):
    """Nulls among whole numbers must not round the ids of others."""
    reading = Reading(bad_rows="drop")
    found = []
    for part in (rows, [*rows, row]):
        table = pa.Table.from_pylist(part, schema=pa.schema(TYPES))
        source = (
            open_source(table, reading=reading)
            if engine == "arrow"
            else parquet_source(table, folder, reading)
        )
        found.append(records(source))
    assert without_one(found[1], found[0])


features = st.fixed_dictionaries(
    {name: st.none() | st.integers(-(2**66), 2**66) | nasty for name in HEADER[2:]}
)


@quick
@given(rows=st.lists(st.tuples(st.floats(-180, 180), features), max_size=4), row=features)
def test_a_feature_couples_nobody(folder, rows, row):
    def source(rows):
        path = folder / "a.geojson"
        points = [
            {
                "type": "Feature",
                "geometry": {"type": "Point", "coordinates": [x, 0.5]},
                "properties": properties,
            }
            for x, properties in rows
        ]
        path.write_text(json.dumps({"type": "FeatureCollection", "features": points}))
        return open_source(path, reading=Reading(bad_rows="drop"))

    def read(source):
        kinds = {"geometry": "point"} | {name: KINDS[name] for name in HEADER[2:]}
        check = lambda chunk: [values.record_hash(chunk, n, k) for n, k in kinds.items()]  # noqa: E731
        chunk = source.read(list(kinds), check=check)
        return list(zip(*(part.tolist() for parts in check(chunk) for part in parts), strict=True))

    assert without_one(read(source([*rows, (1.0, row)])), read(source(rows)))


@pytest.mark.parametrize("odd", [7, None, [], {}, {"type": "Feature", "properties": 3}, {"type": "Point"}])
def test_what_is_no_feature_is_left_out_alone(folder, odd):
    good = {
        "type": "Feature",
        "geometry": {"type": "Point", "coordinates": [1, 2]},
        "properties": {"kind": "a"},
    }
    path = folder / "a.geojson"
    path.write_text(json.dumps({"type": "FeatureCollection", "features": [good, odd, good]}))
    source = open_source(path, reading=Reading(bad_rows="drop"))
    assert values.words(source.read(["kind"]), "kind").codes.tolist() == [0, 0]
    with pytest.raises(InputError, match="feature 1 is not a GeoJSON feature"):
        open_source(path)


class GuessingReader:
    """The twin: what pandas makes of the file, types guessed from all of its rows."""

    def __init__(self, content):
        self.frame = pd.read_csv(io.BytesIO(content))
        if self.frame["time"].dtype.kind != "M":
            self.frame["time"] = pd.to_datetime(self.frame["time"], errors="coerce")


@pytest.mark.parametrize("line", [b"1,2,1,04/13/2020,x,4", b"1,2,1,2020-01-01,10000000000000000000,4"])
def test_the_twin_that_guesses_types_is_caught(folder, line):
    rows = [
        {"lon": "1", "lat": "2", "op": "1", "time": f"2020-0{m}-02", "user": str(m), "kind": "4"}
        for m in (1, 3)
    ]
    content = csv_bytes(rows)
    alone, beside = (GuessingReader(part).frame.iloc[:2] for part in (content, content + line + b"\n"))
    assert [str(value) for value in alone["user"]] != [str(value) for value in beside["user"]] or (
        alone["user"].dtype != beside["user"].dtype
    )
    ours = [records(open_source(write_csv(folder, part), reading=Reading(bad_rows="drop")))
            for part in (content, content + line + b"\n")]  # fmt: skip
    assert ours[1][:2] == ours[0]


def test_a_clock_time_that_occurs_twice_is_the_first_of_the_two():
    reading = Reading(tz="Europe/Berlin")
    times = ["2025-10-26 01:30", "2025-10-26 02:30", "2025-10-26 03:30", "2025-03-30 02:30"]
    chunk = open_source({"time": times}, reading=reading).read(["time"])
    found = values.times(chunk, "time").astype("datetime64[m]").astype(str).tolist()
    assert found == ["2025-10-25T23:30", "2025-10-26T00:30", "2025-10-26T02:30", "2025-03-30T01:00"]
    for alone in range(4):
        one = open_source({"time": [times[alone]]}, reading=reading).read(["time"])
        assert np.array_equal(values.times(one, "time"), values.times(chunk, "time")[alone : alone + 1])


def test_an_open_quote_ends_with_its_line(folder):
    content = (
        b'lon,lat,op,time,user,kind\n1,2,1,2020-01-01,1,"a\n3,4,1,2020-01-01,2,b"c\n5,6,1,2020-01-01,3,d\n'
    )
    assert len(records(open_source(write_csv(folder, content)))) == 3


# --- one value, whatever holds it ---

FINE = datetime.datetime(2020, 1, 2)
SECONDS = Reading(bad_rows="drop", time_format="unix")
#: By what a column is asked for: values that are fine, and values that make a container change its type.
VALUES = {
    "number": (Reading(bad_rows="drop"), [1, 2, 3], [None, 4.5, "x", 2**70, 10**400, True, b"1", FINE]),
    "coordinate": (Reading(bad_rows="drop"), [1.0, 2.0], [None, True, "x", "4.5", np.timedelta64(4, "s")]),
    "time": (
        Reading(bad_rows="drop"),
        [pd.Timestamp("2020-01-02 03:04"), pd.Timestamp("2020-01-03")],
        [None, 5, 4.5, "2020-01-04", pd.Timestamp("2020-01-04", tz="UTC"), datetime.date(2020, 1, 4),
         datetime.datetime(9999, 12, 31, 23, 59, 59), pd.Timedelta("1s"), True, "x"],
    ),
    "zoned time": (
        Reading(bad_rows="drop", tz="America/New_York"),
        ["2020-01-02 03:04", "2020-01-03"],
        [None, "9999-12-31T23:59:59", "0001-01-01", datetime.datetime(9999, 12, 31, 23, 59, 59), "x", 7],
    ),
    "instant": (
        Reading(bad_rows="drop"),
        [pd.Timestamp("2020-01-02 03:04", tz="UTC"), pd.Timestamp("2020-01-03", tz="UTC")],
        [None, pd.Timestamp("2020-01-04"), pd.Timestamp("2020-01-04", tz="Asia/Tokyo"), "2020-01-04", 7],
    ),
    "seconds": (SECONDS, [10, 20, 50], [None, 4.5, 60.5, "7", "x", 1e18, -1e18, float("inf"), True, 2**70]),
    "id": (
        Reading(bad_rows="drop"),
        [1, 2**53 + 1, 2**62 + 1],
        [None, 4.5, "x", " 7 ", "", "\ud800", 2**70, 10**5000, True, float("inf"), Decimal("inf"),
         Decimal("1e5000"), np.timedelta64(3, "s"), b"1", datetime.date(2020, 1, 1)],
    ),
    "text id": (Reading(bad_rows="drop"), ["ann", "É", "007"], [None, 7, " ann", "E\u0301", "\ud800", " "]),
    "word": (
        Reading(bad_rows="drop"),
        [1, 2, 3],
        [None, 4.5, "x", True, 2**70, 10**5000, "\ud800", b"1", pd.Timestamp("2020-01-01"), float("inf")],
    ),
    "text": (Reading(bad_rows="drop"), ["a", "4.0", ""], [None, 7, 4.0, True, "\ud800", b"a"]),
    "moment": (Reading(bad_rows="drop"), [pd.Timestamp(FINE)], [None, "x", 7, datetime.date(2020, 1, 4)]),
    "length": (Reading(bad_rows="drop"), [pd.Timedelta("1s")], [None, "x", 7, datetime.timedelta(seconds=3)]),
    "flag": (Reading(bad_rows="drop"), [True, False], [None, 1, "true", 0.0]),
}  # fmt: skip
ASKED = {
    "coordinate": "number", "zoned time": "time", "instant": "time", "seconds": "time", "text id": "id",
    "text": "word", "moment": "word", "length": "word", "flag": "word",
}  # fmt: skip


def in_parquet(table, folder):
    pq.write_table(table, folder / "v.parquet", row_group_size=2)
    return folder / "v.parquet"


#: Containers, most of which choose one type for all values of a column, or hold the values in another way.
CONTAINERS = {
    "list": lambda held, _: {"v": held},
    "objects": lambda held, _: pd.DataFrame({"v": pd.Series(held, dtype=object)}),
    "series": lambda held, _: pd.DataFrame({"v": held}),
    "converted": lambda held, _: pd.DataFrame({"v": held}).convert_dtypes(),
    "array": lambda held, _: {"v": np.array(held)},
    "categories": lambda held, _: pd.DataFrame({"v": pd.Categorical(held)}),
    "text categories": lambda held, _: pd.DataFrame({"v": pd.Series(held, dtype="str").astype("category")}),
    "masked": lambda held, _: pd.DataFrame({"v": pd.array(held, dtype="Int64")}),
    "arrow": lambda held, _: pa.table({"v": held}),
    "dictionary": lambda held, _: pa.table({"v": pa.array(held).dictionary_encode()}),
    "arrow series": lambda held, _: pd.DataFrame({"v": pd.arrays.ArrowExtensionArray(pa.array(held))}),
    "parquet": lambda held, folder: in_parquet(pa.table({"v": held}), folder),
    "dask": lambda held, _: dd.from_pandas(pd.DataFrame({"v": held}), npartitions=2, sort=False),
}  # fmt: skip


def container_of(name, held, folder):
    """The data in a container, None where it does not take these values, or changes them itself."""
    try:
        with warnings.catch_warnings(), dask.config.set({"dataframe.convert-string": False}):
            warnings.simplefilter("ignore")
            data = CONTAINERS[name](held, folder)
    except (TypeError, ValueError, OverflowError, pa.ArrowException, NotImplementedError):
        return None
    kept = pq.read_table(data) if isinstance(data, Path) else data
    kept = kept.compute() if name == "dask" else kept
    if isinstance(kept, pd.DataFrame):
        kept = kept["v"].astype(object).tolist()
    else:
        kept = kept["v"].to_pylist() if isinstance(kept, pa.Table) else list(kept["v"])
    return data if all(map(is_same, kept, held)) else None


def is_same(kept, given):
    kept = kept.item() if isinstance(kept, np.number) and not isinstance(kept, np.timedelta64) else kept
    if is_missing(kept) or is_missing(given):
        return is_missing(kept) and is_missing(given)
    kinds = (bool | np.bool_, str, datetime.timedelta | np.timedelta64)
    alike = all(isinstance(kept, kind) == isinstance(given, kind) for kind in kinds)
    return alike and bool(kept == given)


def records_of(data, kind):
    reading, asked = VALUES[kind][0], ASKED.get(kind, kind)
    source = open_source(data, reading=reading)

    def read(chunk):
        if kind == "coordinate":
            return [values.numbers(chunk, "v", booleans=False).view(np.uint64)]
        if asked == "time":
            return [values.times(chunk, "v").view(np.uint64)]
        return values.record_hash(chunk, "v", asked)

    with dask.config.set(scheduler="synchronous"):
        parts = read(source.read(["v"], check=read))
    return list(zip(*(part.tolist() for part in parts), strict=True))


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("kind", VALUES)
def test_a_value_is_the_same_record_whatever_holds_it(folder, kind, container):
    """One more value may change the type of what holds all: the others stay the same records, and it becomes
    the record that it is alone in a list.
    """
    _, fine, hostile = VALUES[kind]
    usual = records_of({"v": fine}, kind)
    assert len(usual) == len(fine)
    for value in [fine[0], *hostile]:
        alone = records_of({"v": [value]}, kind)
        assert len(alone) <= 1
        for held, expected in (([*fine, value], [*usual, *alone]), ([value, *fine], [*alone, *usual])):
            data = container_of(container, held, folder)
            if data is not None:
                assert records_of(data, kind) == expected, (kind, container, type(value))


# --- files whose rows make an engine stop ---

STOPS = "magic7731"  # no message may show it


def a_parquet(folder, table):
    pq.write_table(table, folder / "a.parquet")
    return folder / "a.parquet"


def text_of_bytes(cells):
    """A column of text whose bytes nobody has checked."""
    held = pa.array(cells, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(cells), held.buffers())


def wkb(*cells):
    geo = {
        "version": "1.1.0",
        "primary_column": "v",
        "columns": {"v": {"encoding": "WKB", "geometry_types": []}},
    }
    table = pa.table({"v": pa.array(cells, pa.binary())})
    return table.replace_schema_metadata({"geo": json.dumps(geo)})


def geojson(folder, *coordinates):
    features = ",".join(
        f'{{"type": "Feature", "properties": {{}}, "geometry": {{"type": "Point", "coordinates": {xy}}}}}'
        for xy in coordinates
    )
    (folder / "a.geojson").write_text(f'{{"type": "FeatureCollection", "features": [{features}]}}')
    return folder / "a.geojson"


def json_line(folder, *cells):
    (folder / "a.jsonl").write_text("".join(f'{{"v": {cell}}}\n' for cell in cells))
    return folder / "a.jsonl"


POINT = shapely.to_wkb(shapely.Point(1, 2))
BERLIN = {"tz": "Europe/Berlin"}
# What a column is asked for, the declarations, and data of which one row of three (or two) cannot be used.
ROWS_THAT_STOP = {
    "parquet text": ("word", {}, lambda f: a_parquet(f, pa.table({"v": text_of_bytes(
        [b"a", STOPS.encode() + b"\xff\xfe", b"b"])}))),
    "parquet ids": ("id", {}, lambda f: a_parquet(f, pa.table({"v": text_of_bytes(
        [b"a", STOPS.encode() + b"\xff\xfe", b"b"])}))),
    "arrow text": ("word", {}, lambda _: pa.table({"v": text_of_bytes([b"a", b"\xff", b"b"])})),
    "parquet milliseconds": ("time", {}, lambda f: a_parquet(f, pa.table({"v": pa.array(
        [0, 2**62, 86_400_000]).cast(pa.timestamp("ms"))}))),
    "parquet milliseconds in a zone": ("time", BERLIN, lambda f: a_parquet(f, pa.table({"v": pa.array(
        [0, -(2**62), 86_400_000]).cast(pa.timestamp("ms", tz="UTC"))}))),
    "parquet microseconds": ("time", BERLIN, lambda f: a_parquet(f, pa.table({"v": pa.array(
        [0, 2**62, 86_400_000]).cast(pa.timestamp("us"))}))),
    "frame seconds": ("time", {}, lambda _: {"v": np.array([0, 2**62, 86_400], "datetime64[s]")}),
    "parquet dates": ("time", {}, lambda f: a_parquet(f, pa.table({"v": pa.array(
        [0, 2**31 - 1, 9], pa.int32()).cast(pa.date32())}))),
    "last second": ("time", {"tz": "America/New_York"}, lambda _: {"v": [FINE, "9999-12-31T23:59:59", FINE]}),
    "truncated WKB": ("point", {}, lambda f: a_parquet(f, wkb(POINT, POINT[:9], POINT))),
    "WKB of another shape": ("point", {}, lambda f: a_parquet(f, wkb(
        POINT, shapely.to_wkb(shapely.box(0, 0, 1, 1)), POINT))),
    "WKB first a geometry": ("point", {}, lambda _: {"v": [shapely.Point(1, 2), POINT, STOPS]}),
    "geometries and bytes": ("point", {}, lambda _: {"v": [shapely.Point(1, 2), b"\x01", POINT]}),
    "geometries and text": ("point", {}, lambda _: {"v": [shapely.Point(1, 2), STOPS, shapely.Point(3, 4)]}),
    "a huge coordinate": ("point", {}, lambda f: geojson(f, [1, 2], [10**400, 2], [3, 4])),
    "a longer one": ("point", {}, lambda f: geojson(f, [1, 2], "[1" + "0" * 5_000 + ", 2]", [3, 4])),
    "a surrogate": ("word", {}, lambda f: json_line(f, '"a"', f'"{STOPS}\\ud800"', '"b"')),
    "a surrogate id": ("id", {}, lambda f: json_line(f, '"a"', f'"{STOPS}\\ud800"', '"b"')),
}  # fmt: skip


@pytest.mark.parametrize("case", ROWS_THAT_STOP)
def test_a_row_that_stops_an_engine_is_left_out_alone(folder, case):
    kind, declared, make = ROWS_THAT_STOP[case]
    data = make(folder)

    def read(chunk):
        return values.times(chunk, "v") if kind == "time" else values.record_hash(chunk, name, kind)

    name = "geometry" if str(data).endswith("geojson") else "v"
    for reading in (Reading(bad_rows="drop", **declared), Reading(**declared)):
        source = open_source(data, reading=reading)
        source.geometry = name if kind == "point" else None
        if reading.bad_rows == "drop":
            assert source.read([name], check=read).rows == 2
            continue
        with pytest.raises(InputError, match=rf"column '{name}', (row|line) \d") as caught:
            source.read([name], check=read)
        assert STOPS not in "".join(traceback.format_exception(caught.value))


def test_one_row_without_a_value_in_the_last_chunk_of_categories(monkeypatch):
    monkeypatch.setattr("synthgeo.sources.source.CHUNK_ROWS", 2)
    for dtype in ("string", object, pd.ArrowDtype(pa.string())):
        column = pd.Series(["a", "b", "a", None], dtype=dtype).astype("category")
        chunk = open_source(pd.DataFrame({"v": column})).read(["v"])
        assert values.as_words(chunk, "v").tolist() == ["a", "b", "a", None]
    numbers = pd.Series(pd.Categorical([2**53 + 1, 2, 2, None]))
    chunk = open_source(pd.DataFrame({"v": numbers}), reading=Reading(bad_rows="drop")).read(["v"])
    assert values.as_words(chunk, "v").tolist() == [str(2**53 + 1), "2", "2", None]


def test_clock_times_and_lengths_of_a_parquet_file_are_those_of_a_frame(folder):
    clock, length = datetime.time(9, 5, 30), datetime.timedelta(hours=1)
    frame = {"at": [clock, None, "9:05:30"], "took": [length, None, "1:00"]}
    schema = pa.schema([("at", pa.time64("us")), ("took", pa.duration("ms"))])
    typed = pa.table({"at": [clock, None, clock], "took": [length, None, length]}, schema=schema)
    columns = {"at": sg.TimeOfDay(resolution="s", missing=True), "took": sg.Duration(0, "2h", missing=True)}
    for name, column in columns.items():
        codes = [
            column.encode(name, open_source(data).read([name])).ravel().tolist()
            for data in (frame, typed, a_parquet(folder, typed))
        ]
        assert codes[0] == codes[1] == codes[2]


def test_a_time_among_written_ones_is_the_time_that_it_is():
    column = sg.Date("2020-01-01", "2020-12-31", bins=366, format="%d.%m.%Y")
    typed = open_source({"d": np.array(["2020-03-01"], "datetime64[us]")}).read(["d"])
    mixed = open_source({"d": ["02.03.2020", pd.Timestamp("2020-03-01")]}).read(["d"])
    assert column.encode("d", mixed)[1:].tolist() == column.encode("d", typed).tolist()

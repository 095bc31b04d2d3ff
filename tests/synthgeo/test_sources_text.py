"""The reader of text: what a field becomes, by an independent parser, and what no file may do."""

from __future__ import annotations

import gzip
import subprocess
import sys
from datetime import datetime, timedelta, timezone

import geopandas as gpd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import synthgeo as sg
from synthgeo.errors import ConfigError, InputError
from synthgeo.sources import Reading, kernels, open_source, values
from synthgeo.sources import text as text_module
from synthgeo.sources.text_column import TextColumn

many = settings(max_examples=200, deadline=None)


def column(texts, **declared):
    return TextColumn.of(pa.array(texts, pa.large_string()), Reading(**declared))


@many
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
def test_numbers_are_rounded_as_python_rounds_them(numbers):
    for form in ("{!r}", "{:.17g}", "{:.25e}", "{:+.3f}", " {} \t"):
        texts = [form.format(number) for number in numbers]
        found, state = column(texts).numbers()
        assert (state == kernels.GOOD).all()
        assert found.tolist() == [float(text) + 0.0 for text in texts]


@many
@given(st.lists(st.text(alphabet="0123456789+-.eE, '_xnaif", max_size=12), min_size=1, max_size=20))
def test_what_is_a_number_is_a_number_in_python_too(texts):
    found, state = column(texts, missing=()).numbers()
    for text, number, became in zip(texts, found, state, strict=True):
        if became == kernels.GOOD:
            assert float(text) == number
        else:
            try:
                value = float(text.replace("_", "?"))
            except ValueError:
                continue
            assert not np.isfinite(value)  # nan and inf are no numbers of a file


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1.234.567,5", 1234567.5),
        ("12.345", 12345.0),
        ("-1.000", -1000.0),
        ("1,5", 1.5),
        ("1.23", None),  # no group of three
        ("1234.567", None),
        (".5", None),
        ("1..000", None),
        ("1.000.", None),
        ("1.000,5.0", None),
    ],
)
def test_marks_of_decimals_and_thousands(text, number):
    found, state = column([text], decimal=",", thousands=".").numbers()
    assert (state[0] == kernels.GOOD) == (number is not None)
    assert number is None or found[0] == number


moments = st.datetimes(min_value=datetime(1, 1, 1), max_value=datetime(9999, 12, 31))
offsets = st.integers(-18 * 60, 18 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@many
@given(moments, offsets)
def test_iso_times_are_those_of_the_library(moment, offset):
    texts = [moment.isoformat(), moment.isoformat(sep=" ", timespec="minutes"), moment.date().isoformat()]
    micros, state = column(texts).times()
    assert (state == kernels.GOOD).all()
    floors = [moment, moment.replace(second=0, microsecond=0), datetime.combine(moment, datetime.min.time())]
    assert micros.tolist() == [(m - datetime(1970, 1, 1)) // timedelta(microseconds=1) for m in floors]
    aware = moment.replace(tzinfo=offset)
    micros, state = column([aware.isoformat()]).times()
    assert state[0] == kernels.OFFSET
    expected = (moment - datetime(1970, 1, 1)) // timedelta(microseconds=1) - offset.utcoffset(
        None
    ) // timedelta(microseconds=1)
    assert micros[0] == expected


FORMATS = [
    "%m/%d/%Y %H:%M",
    "%d.%m.%y",
    "%Y%m%d %H%M%S",
    "%d %b %Y %I:%M:%S %p",
    "%B %d, %Y",
    "%Y-%j",
    "%d/%m/%YT%T.%f",
]


@pytest.mark.slow
@many
@given(
    st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(2068, 12, 31)), st.sampled_from(FORMATS)
)
def test_formats_are_those_of_strptime(moment, form):
    text = moment.strftime(form)
    micros, state = column([text], time_format=form).times()
    expected = datetime.strptime(text, form.replace("%T", "%H:%M:%S"))
    assert state[0] == kernels.GOOD
    assert micros[0] == (expected - datetime(1970, 1, 1)) // timedelta(microseconds=1)


@many
@given(st.text(alphabet="0123456789/-.: TZ+apmAPMjJ", max_size=20), st.sampled_from(["iso", *FORMATS]))
def test_nothing_is_left_over_and_no_day_is_made_up(text, form):
    micros, state = column([text], time_format=form, missing=()).times()
    if state[0] in (kernels.GOOD, kernels.OFFSET) and form != "iso":
        again = datetime.strptime(text, form.replace("%T", "%H:%M:%S"))
        assert micros[0] == (again - datetime(1970, 1, 1)) // timedelta(microseconds=1)


@pytest.mark.parametrize(
    "text",
    ["2021-02-29", "2020-13-01", "2020-01-01T24:00", "2020-01-01 1:00", "20200101", "2020-01-01T00:00+25:00"],
)
def test_days_and_hours_that_do_not_exist(text):
    assert column([text]).times()[1][0] == kernels.BAD


def test_declarations_that_make_no_sense_are_refused():
    for wrong in (
        {"delimiter": ",,"}, {"decimal": ""}, {"decimal": ",", "thousands": ","}, {"encoding": "utf-16"},
        {"encoding": "klingon"}, {"time_format": "%Q"}, {"time_format": "%H:%M"}, {"tz": "Mars"},
        {"bad_rows": "keep"}, {"missing": "NA"}, {"columns": ("a", "a")}, {"delimiter": '"'},
    ):  # fmt: skip
        with pytest.raises(ConfigError):
            Reading(**wrong)
    reading = Reading(delimiter=";", missing=("", "NA"), tz="Europe/Berlin")
    assert Reading.from_dict(reading.to_dict()) == reading


def write(path, content):
    path.write_bytes(content)
    return path


def test_a_field_of_megabytes_is_one_bad_line(tmp_path):
    content = b"x,y\n0.1,0.2\n" + b"9" * (3 << 20) + b",0.2\n0.3,0.4\n"
    source = open_source(write(tmp_path / "a.csv", content), reading=Reading(bad_rows="drop"))
    assert values.numbers(source.read(["x"], check=lambda chunk: None), "x").tolist() == [0.1, 0.3]
    with pytest.raises(InputError, match=r"line 3 of a.csv: the line is longer than 1,048,576 bytes"):
        open_source(tmp_path / "a.csv").read(["x"], check=lambda chunk: values.numbers(chunk, "x"))


def test_blocks_of_every_size_hold_the_same_lines(tmp_path, monkeypatch):
    lines = [f"{n / 7!r},{'x' * (n % 23)}" for n in range(200)]
    path = write(tmp_path / "a.csv", "\r\n".join(["n,t", *lines]).encode())
    whole = values.numbers(open_source(path).read(["n"]), "n")
    assert len(whole) == 200
    for size in (1, 3, 50, 1000):
        monkeypatch.setattr(text_module, "BLOCK", size)
        source = open_source(path)
        assert np.array_equal(values.numbers(source.read(["n"]), "n"), whole)
        for part in (7, 64, 5000):
            chunks = [chunk for piece in source.parts(part) for chunk in source.chunks_of(piece, ["n"])]
            found = np.concatenate([values.numbers(chunk, "n") for chunk in chunks])
            assert np.array_equal(found, whole)


@pytest.mark.slow
def test_a_compressed_file_without_lines_takes_no_memory(tmp_path):
    """3 MB of gzip held 6.3 GB when it was read whole."""
    path = tmp_path / "bomb.csv.gz"
    with gzip.open(path, "wb", compresslevel=9) as file:
        file.write(b"x,y\n")
        for _ in range(600):
            file.write(b"1" * (1 << 20))
    code = (
        "import sys; from synthgeo.sources import open_source, values, Reading; "
        "source = open_source(sys.argv[1], reading=Reading(bad_rows='drop')); "
        "chunk = source.read(['x'], check=lambda chunk: values.numbers(chunk, 'x')); "
        "peak = next(line for line in open('/proc/self/status') if line.startswith('VmHWM')); "
        "print(chunk.rows, peak.split()[1])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    rows, kilobytes = map(int, found.stdout.split())
    assert rows == 0
    assert kilobytes < 700_000


def test_late_bytes_that_are_no_utf8_are_named_and_shown_to_nobody(tmp_path):
    path = write(tmp_path / "a.csv", b"x,name\n" + b"0.1,ann\n" * 5000 + b"0.2,caf\xe9secret\n")
    with pytest.raises(
        InputError, match=r"column 'name', line 5002 of a.csv: is not text in the declared"
    ) as caught:
        open_source(path).read(["name"], check=lambda chunk: values.words(chunk, "name"))
    assert "secret" not in str(caught.value)
    chunk = open_source(path, reading=Reading(encoding="latin-1")).read(["name"])
    assert values.as_words(chunk, "name")[-1] == "cafésecret"
    assert (
        values.numbers(open_source(path).read(["x"]), "x").size == 5001
    )  # a column not asked for is not read


def test_files_that_are_no_text_or_change_while_they_are_read(tmp_path):
    with pytest.raises(InputError, match="UTF-16"):
        open_source(write(tmp_path / "a.csv", "x,y\n1,2\n".encode("utf-16")))
    with pytest.raises(InputError, match="not a text file"):
        open_source(write(tmp_path / "b.csv", b"x\0,y\n"))
    path = write(tmp_path / "c.csv", b"x\n" + b"1\n" * 10)
    loads = open_source(path).loads(["x"])
    next(loads)
    path.write_bytes(b"x\n" + b"2\n" * 11)
    with pytest.raises(InputError, match="changed while it was read"):
        list(loads)


def test_a_file_without_a_header_needs_names(tmp_path):
    path = write(tmp_path / "a.csv", b"0.1;ann\n0.2;bob\n")
    with pytest.raises(InputError) as caught:
        open_source(path).read(["x"])
    assert "ann" not in str(caught.value)
    with pytest.raises(InputError, match="delimiter must be declared"):
        open_source(path, reading=Reading(columns=("x", "name")))
    source = open_source(path, reading=Reading(columns=("x", "name"), delimiter=";"))
    assert values.numbers(source.read(["x"]), "x").tolist() == [0.1, 0.2]


def test_a_header_that_ends_in_the_middle_of_a_field_is_refused_in_words(tmp_path):
    """Found by fuzzing: a lone carriage return."""
    (tmp_path / "a.csv").write_bytes(b"x,y\rz,time\n1,2,3\n")
    with pytest.raises(InputError, match=r"a\.csv: the header is no line of names"):
        open_source(tmp_path / "a.csv").read(["x"])


def test_headers_must_agree_and_a_file_counts_once(tmp_path):
    one, two = write(tmp_path / "a.csv", b"x,y\n1,2\n"), write(tmp_path / "b.csv", b"y,x\n3,4\n")
    chunk = open_source([one, two]).read(["x"])
    assert values.numbers(chunk, "x").tolist() == [1, 4]
    other = write(tmp_path / "c.csv", b"x,z\n1,2\n")
    with pytest.raises(InputError, match=r"c.csv has other columns than a.csv"):
        open_source([one, other])
    with pytest.raises(InputError, match=r"a.csv is given twice"):
        open_source([one, tmp_path / "." / "a.csv"])
    with pytest.raises(InputError, match="is an address, not a path"):
        open_source("https://example.org/a.csv")


def test_json_lines_name_their_own_columns(tmp_path):
    lines = (
        b'{"lon": 0.1, "lat": 0.2, "op": 1}\n{"lat": "0.4", "lon": 0.3}\n{"lon": 0.5, "lat": 0.6, "op": -1}\n'
    )
    path = write(tmp_path / "a.jsonl", lines)
    stream = sg.PHDStream(
        domain=sg.BoxDomain(0, 0, 1, 1),
        budget=sg.PrivacyBudget(1000.0),
        columns=sg.ColumnNames(x="lon", y="lat", crs=None),
    )
    with pytest.raises(sg.errors.DomainError):
        stream.update(path)  # degrees need a domain with a CRS, as in a file with a header
    stream = sg.PHDStream(
        domain=sg.BoxDomain(0, 0, 1, 1, crs="EPSG:4326"),
        budget=sg.PrivacyBudget(1000.0),
        columns=sg.ColumnNames(x="lon", y="lat"),
    )
    assert stream.update(path).total == 1  # two inserts, one of them without an op, and a delete
    broken = write(tmp_path / "b.jsonl", lines + b"[1]\n{\n")
    with pytest.raises(InputError, match=r"lines 4, 5 of b.jsonl: the line is not a JSON object"):
        stream.update(broken)


def test_a_second_layer_is_refused(tmp_path):
    points = gpd.GeoDataFrame(
        {"a": [2**60 + 1, 2**60]}, geometry=gpd.points_from_xy([1, 2], [3, 4]), crs=4326
    )
    path = tmp_path / "a.gpkg"
    points.to_file(path, layer="one")
    source = open_source(path)
    assert source.crs.to_epsg() == 4326
    assert values.as_words(source.read(["a"]), "a").tolist() == [str(2**60 + 1), str(2**60)]
    points.to_file(path, layer="two")
    with pytest.raises(InputError, match="has 2 layers"):
        open_source(path)


def test_one_identity_for_one_content_whatever_holds_it(tmp_path):
    """Integers above 2^53, times and ids: the same on every engine, other for other content."""
    frame = pd.DataFrame(
        {"x": [0.1, 0.25], "user": [2**53 + 1, 2**53], "time": pd.to_datetime(["2020-01-01", "2020-01-02"])}
    )
    kinds = {"x": "number", "user": "id", "time": "time"}
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.iloc[::-1].to_parquet(tmp_path / "b.parquet")
    with gzip.open(tmp_path / "c.csv.gz", "wt") as file:
        frame.to_csv(file, index=False, sep=";")
    (tmp_path / "d.jsonl").write_text(
        frame.assign(time=frame["time"].astype(str)).to_json(orient="records", lines=True)
    )
    table = pa.Table.from_pandas(frame)
    forms = [
        frame,
        table,
        *(tmp_path / name for name in ("a.csv", "b.parquet", "c.csv.gz", "d.jsonl")),
        [tmp_path / "a.csv"],
    ]
    prints = {open_source(form).fingerprint(kinds, key=b"1") for form in forms}
    assert len(prints) == 1
    others = [
        frame.assign(user=2**53),
        frame.assign(x=[0.1, np.nextafter(0.25, 1)]),
        pd.concat([frame, frame]),
        frame.iloc[:1],
        frame.rename(columns={"x": "user", "user": "x"}),
        frame.assign(time=frame["time"] + pd.Timedelta("1us")),
    ]
    assert len({open_source(form).fingerprint(kinds, key=b"1") for form in others} | prints) == 7
    assert open_source(frame).fingerprint(kinds, key=b"2") not in prints
    berlin = open_source(frame, reading=Reading(tz="Europe/Berlin"))
    assert berlin.fingerprint(kinds, key=b"1") not in prints


def test_parquet_files_keep_their_own_types(tmp_path):
    """A file of floats beside one of integers must not round the ids of the other."""
    pq.write_table(pa.table({"u": pa.array([2**53 + 1], pa.int64())}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"u": pa.array([1.5], pa.float64())}), tmp_path / "b.parquet")
    source = open_source([tmp_path / "a.parquet", tmp_path / "b.parquet"])
    words = [values.as_words(chunk, "u").tolist() for chunk in source.chunks(["u"])]
    assert words == [[str(2**53 + 1)], ["1.5"]]

"""Files from a stranger: whatever the bytes, every loader answers or refuses with one typed line."""

from __future__ import annotations

import copy
import hashlib
import io
import json
import os
import struct
import tempfile
import time
import tracemalloc
import zipfile
from pathlib import Path

import geopandas as gpd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely

import synthgeo as sg
from synthgeo import validate
from synthgeo.sources import Reading, open_source, values
from synthgeo.sources.chunk import collecting
from synthgeo.sources.declared import MAX_LINE
from synthgeo.sources.geometry import geometry_of_schema
from synthgeo.sources.text_column import TextColumn
from synthgeo.state import _header, _members, dump_state, kind_of, parse_state
from tools.fuzz import TARGETS, Target, attempt, kept, mutated, random_search
from tools.hostile import _geopackage
from tools.hostile import attempt as attempt_apart
from trajectories.drawing import Drawing

HUGE = 10**400


def stream(**options):
    box = sg.BoxDomain(0, 0, 1, 1, crs="EPSG:4326")
    return sg.PHDStream.from_options(domain=box, budget=sg.PrivacyBudget(1.0), **{"max_depth": 4} | options)


def table(**options):
    model = sg.TabularSynthesizer.from_options(
        schema=sg.Schema({"a": sg.Categorical(["x", "y"])}), budget=sg.PrivacyBudget(1.0), **options
    )
    return model.fit(pd.DataFrame({"a": ["x"] * 20}))


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_random_changes_break_no_loader(target, tmp_path):
    assert attempt(target, target.seed(), tmp_path) is None
    assert [problem for _, problem in random_search(target, tries=25, seconds=20, seed=1)] == []


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_inputs_that_were_kept_break_no_loader(target, tmp_path):
    assert [problem for one in kept(target) if (problem := attempt(target, one, tmp_path))] == []


@pytest.mark.parametrize("name", ["table", "trips", "stream"])
def test_a_model_that_was_made_up_is_refused(name, tmp_path):
    """Each value and each array taken away in turn, under a checksum that fits: one typed line."""
    (target,) = (target for target in TARGETS if target.name == name)
    content = target.seed()
    header = _header(_members(content[47:]))
    values, arrays = parse_state(content, header["kind"], header["version"])
    changed = [({k: v for k, v in values.items() if k != gone}, arrays) for gone in values]
    changed += [({**values, name: "odd"}, arrays) for name in values]
    changed += [(values, {k: v for k, v in arrays.items() if k != gone}) for gone in arrays]
    for number, (facts, left) in enumerate(changed):
        made = dump_state(header["kind"], header["version"], facts, left)
        assert attempt(target, made, tmp_path) is None, number


def test_a_loader_that_lets_a_raw_error_through_is_noticed(tmp_path):
    def fragile(path):
        path.read_bytes().decode()

    twin = Target("fragile", ".txt", lambda: b"text", fragile)
    assert attempt(twin, b"\xff", tmp_path).startswith("UnicodeDecodeError at ")
    assert random_search(twin, tries=100, seconds=20, seed=1)


def test_changes_are_changes():
    rng = np.random.default_rng(1)
    assert len({mutated(b"0123456789" * 5, rng) for _ in range(50)}) > 45


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("csv", b"lon,lat,user\n1,2," + b"9" * 400 + b"\n"),
        ("csv", b"lon,lat\n" + b"1" * 2_000_000 + b"\n"),
        ("jsonl", b'{"lon": 1' + b"0" * 400 + b', "lat": 2}\n' + b"[" * 100_000 + b"\n"),
        ("geojson", b"[" * 100_000),
        ("geojson", b'{"type": "FeatureCollection", "features": [7], "crs": {"properties": {"name": 3}}}'),
        ("schema", b'{"columns": {"a": {"type": "categorical", "values": [' + b"[" * 50_000),
        ("graphml", b'<!DOCTYPE a [<!ENTITY x "y"><!ENTITY z "&x;&x;">]><graphml>&z;</graphml>'),
        ("state", b"synthgeo state\n" + b"\0" * 32 + b"PK\x05\x06" + b"\0" * 18),
    ],
    ids=range(8),
)  # fmt: skip
def test_files_that_were_made_to_hurt(name, content, tmp_path):
    (target,) = (target for target in TARGETS if target.name == name)
    assert attempt(target, content, tmp_path) is None


GEO = '{"primary_column": "geometry", "columns": {"geometry": %s}}'


@pytest.mark.parametrize(
    "metadata",
    [b"{", b"[]", b"\xff", b'{"columns": 5}', b"[" * 100_000, GEO % "5", GEO % '{"encoding": "point"}',
     GEO % '{"crs": {"a": "b"}}', GEO % '{"encoding": "WKB", "bbox": "a"}',
     GEO.replace('"geometry",', '["a"],')],
    ids=range(10),
)  # fmt: skip
def test_bad_geo_metadata_are_refused_in_a_line(metadata, tmp_path):
    table = pa.table({"geometry": [b"\x00\x01"], "lon": [0.5], "lat": [0.5]})
    pq.write_table(table.replace_schema_metadata({b"geo": metadata}), tmp_path / "a.parquet")
    with pytest.raises(sg.SynthGeoError) as refused:
        stream().update(tmp_path / "a.parquet")
    assert "\n" not in str(refused.value)


def test_bad_geoarrow_metadata_are_refused_in_a_line():
    about = {b"ARROW:extension:name": b"geoarrow.wkb", b"ARROW:extension:metadata": b"{"}
    schema = pa.schema([pa.field("geometry", pa.binary(), metadata=about)])
    with pytest.raises(sg.InputError, match="malformed"):
        geometry_of_schema(schema)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_file_name_that_is_not_utf8_is_refused(suffix, tmp_path):
    path = tmp_path / os.fsdecode(b"a\xff." + suffix.encode())
    path.write_bytes(b"lon,lat\n0.5,0.5\n")
    for given in (path, tmp_path, tmp_path / "*"):
        with pytest.raises(sg.ConfigError, match="not UTF-8"):
            stream().update(given)


def test_runs_and_ledgers_with_names_that_are_not_utf8_leave_nothing(tmp_path):
    odd = tmp_path / os.fsdecode(b"a\xff")
    with pytest.raises(sg.ConfigError, match="not UTF-8"):
        sg.StreamRun.open(odd, stream())
    with pytest.raises(sg.ConfigError, match="not UTF-8"):
        sg.Ledger.open(odd, dataset="a", cap=sg.PrivacyBudget(1.0))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "use",
    [
        lambda: sg.PrivacyBudget(HUGE),
        lambda: sg.PrivacyBudget(1.0, HUGE),
        lambda: sg.Numeric(0, HUGE, bins=4),
        lambda: sg.BoxDomain(0, 0, HUGE, 1),
        lambda: stream(structure_share=HUGE),
        lambda: stream(max_depth=HUGE),
        lambda: sg.series.release_series([1, HUGE], mechanism="lpa", budget=sg.PrivacyBudget(1.0)),
        lambda: stream().update(pd.DataFrame({"lon": [HUGE], "lat": [0.5]}, dtype=object)),
        lambda: sg.series.LPA(budget=sg.PrivacyBudget(1.0), horizon=HUGE),
        lambda: sg.series.LPA(budget=sg.PrivacyBudget(1.0), max_steps=10**5000),
        lambda: sg.series.BudgetAbsorption(budget=sg.PrivacyBudget(1.0), window=2**63 - 1),
        lambda: sg.series.BudgetDistribution(budget=sg.PrivacyBudget(1.0), window=5, dimensions=2**40),
        lambda: sg.series.SIPBatched(
            states=[0.0, 1.0], prior=[0.5, 0.5], transition=[[0.8, 0.2], [0.3, 0.7]],
            budget=sg.PrivacyBudget(1.0), horizon=5, batch=2**63 - 1,
        ),
        lambda: sg.PrivacyUnit.user(max_events=HUGE),
        lambda: table().sample(HUGE),
        lambda: table().sample(2**63 - 1),
        lambda: table(public_total=HUGE),
        lambda: Drawing(HUGE),
        lambda: sg.simulate.circles(points=HUGE, seed=0),
    ],
    ids=range(19),
)  # fmt: skip
def test_integers_of_hundreds_of_digits_are_refused(use):
    with pytest.raises(sg.SynthGeoError) as refused:
        use()
    assert len(str(refused.value)) < 300


def test_more_than_memory_holds_is_refused_before_anything_is_drawn(monkeypatch):
    steps = {"trip_id": np.repeat(np.arange(30), 3), "x": np.linspace(0, 1, 90), "y": np.linspace(0, 1, 90)}
    trips = sg.TrajectorySynthesizer(
        domain=sg.BoxDomain(0, 0, 1, 1), budget=sg.PrivacyBudget(1.0), noise=sg.SeededNoise(1)
    ).fit(steps)
    rows, before = table(), trips.noise.state()
    monkeypatch.setattr(validate, "_memory", lambda: 16_000)
    for draw in (rows.sample, rows.sample(1000).sample):
        with pytest.raises(
            sg.ConfigError, match=r"rows must be at most 1000, .* \(draw more in parts\), got"
        ):
            draw(10**12)
    with pytest.raises(sg.ConfigError, match=r"n must be at most 250, .* \(sample_to_parquet writes more"):
        trips.sample(10**12)
    assert trips.noise.state() == before


@pytest.mark.parametrize("suffix", ["gpkg", "parquet", "geojson"])
def test_files_in_different_coordinate_systems_are_refused(suffix, tmp_path):
    for number, epsg in enumerate((32632, 32633)):
        points = gpd.GeoDataFrame({"a": [1]}, geometry=gpd.points_from_xy([5e5], [5e6]), crs=epsg)
        path = tmp_path / f"{number}.{suffix}"
        points.to_parquet(path) if suffix == "parquet" else points.to_file(path)
    with pytest.raises(sg.InputError, match="different coordinate systems"):
        open_source(tmp_path)
    assert open_source(tmp_path / f"0.{suffix}").crs.to_epsg() == 32632


SQL = """x", 1); DROP TABLE releases; --'\\"""


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl"])
def test_sql_in_the_name_of_a_column_or_a_file_is_a_name(suffix, tmp_path):
    frame = pd.DataFrame({SQL: [0.25, 0.75], "lat": [0.5, 0.5], "' OR 1=1 --": [1, 2]})
    path = tmp_path / f"a'); DROP TABLE b; --.{suffix}"
    write = {"csv": frame.to_csv, "parquet": frame.to_parquet, "jsonl": frame.to_json}[suffix]
    write(path, **({"orient": "records", "lines": True} if suffix == "jsonl" else {"index": False}))
    for given in (path, tmp_path):
        source = open_source(given)
        assert source.open_schema or set(source.columns) == set(frame.columns)
        chunk = source.read([SQL, "' OR 1=1 --"])
        assert values.numbers(chunk, SQL).tolist() == [0.25, 0.75]
        assert values.as_words(chunk, "' OR 1=1 --").tolist() == ["1", "2"]
    made = stream(x=SQL, y="lat", max_depth=2, noise=sg.SeededNoise(0)).update(path)
    named = frame.rename(columns={SQL: "lon"})
    assert made.data.equals(stream(max_depth=2, noise=sg.SeededNoise(0)).update(named).data)


def test_sql_in_the_name_of_a_batch_a_run_or_a_dataset_is_a_name(tmp_path):
    odd = "1'); DELETE FROM steps; --"
    with sg.Ledger.open(tmp_path / "ledger", dataset=odd, cap=sg.PrivacyBudget(9.0)) as ledger:
        with sg.StreamRun.open(tmp_path / "run'; --", stream(), ledger=ledger) as run:
            for number, batch in enumerate(("a", odd, '"; DROP TABLE steps')):
                run.step(batch, pd.DataFrame({"lon": [number / 4], "lat": [0.5]}))
            assert run.steps == 3
        with sg.StreamRun.open(tmp_path / "run'; --", ledger=ledger) as run:
            assert run.steps == 3
        assert ledger.spent.epsilon == 1.0


def overlapping(parts=200, size=1 << 20):
    """A state whose archive names one part of a megabyte again and again."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("header.npy", np.lib.format.MAGIC_PREFIX + b"\0" * size)
        first = archive.infolist()[0]
        for number in range(parts):
            again = copy.copy(first)
            again.filename = f"array/{number}.npy"
            archive.filelist.append(again)
    payload = out.getvalue()
    return b"synthgeo state\n" + hashlib.sha256(payload).digest() + payload


def peak_of(use):
    """The most memory that a refused use takes, in bytes."""
    tracemalloc.start()
    try:
        with pytest.raises(sg.SynthGeoError) as refused:
            use()
        assert "\n" not in str(refused.value)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_parts_of_a_state_that_share_bytes_take_no_memory(tmp_path):
    path = tmp_path / "a.state"
    path.write_bytes(overlapping())
    assert peak_of(lambda: sg.PHDStream.load(path)) < 20 << 20
    assert peak_of(lambda: kind_of(path)) < 20 << 20


@pytest.mark.parametrize(
    "columns",
    [
        {"a": {"type": "numeric", "low": 0, "high": 9, "bins": 10**7}},
        {"a": {"type": "date", "start": "2020-01-01", "end": "2021-01-01", "bins": 10**7}},
        {"a": {"type": "time_of_day", "bins": 10**7}},
        {"a": {"type": "datetime", "start": "1700-01-01", "end": "2200-01-01"}},
        {f"a{n}": {"type": "numeric", "low": 0, "high": 9, "bins": 1 << 20} for n in range(5)},
    ],
    ids=["numeric", "date", "time of day", "hours", "together"],
)
def test_a_schema_with_too_many_bins_takes_no_memory(columns):
    assert peak_of(lambda: sg.Schema.from_json({"columns": columns})) < 10 << 20


@pytest.mark.slow
def test_a_parquet_file_with_cells_of_gigabytes_loses_those_rows_or_is_refused(tmp_path):
    long = ["7"] + ["7" * 2_000_000] * 3
    columns = {"lon": [0.5] * 4, "lat": [0.5] * 4, "user": long}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", compression="zstd")
    with pytest.raises(sg.InputError, match="longer than 1,048,576 bytes"):
        open_source(tmp_path / "a.parquet").read(["lon", "user"])
    kept = open_source(tmp_path / "a.parquet", reading=Reading(bad_rows="drop")).read(["lon", "user"])
    assert kept.rows == 1
    huge = {"lon": [0.5], "lat": [0.5], "user": ["7" * 700_000_000]}
    pq.write_table(pa.table(huge), tmp_path / "b.parquet", compression="zstd")
    with pytest.raises(sg.InputError, match="more than 640MB") as refused:
        open_source(tmp_path / "b.parquet").read(["user"])
    assert "\n" not in str(refused.value)


def test_a_view_in_a_geopackage_is_refused(tmp_path):
    (tmp_path / "a.gpkg").write_bytes(_geopackage("CREATE VIEW a AS SELECT 1 AS fid, zeroblob(9) AS geom"))
    with pytest.raises(sg.InputError, match="only tables are read"):
        open_source(tmp_path / "a.gpkg")


POINT = struct.pack("<BIdd", 1, 1, 0.5, 0.25)


def nested(kind, order="<", depth=50_000):
    system = struct.pack(f"{order}I", 4326) if kind & 0x20000000 else b""
    head = struct.pack(f"{order}BI", order == "<", kind) + system + struct.pack(f"{order}I", 1)
    return head * depth + POINT


def geo_parquet(path, cell):
    geo = {"version": "1.0.0", "primary_column": "g", "columns": {"g": {"encoding": "WKB"}}}
    table = pa.table({"g": pa.array([POINT, cell], pa.binary())})
    pq.write_table(table.replace_schema_metadata({b"geo": json.dumps(geo)}), path.with_suffix(".parquet"))
    return path.with_suffix(".parquet")


def geo_arrow(path, cell):
    return pq.read_table(geo_parquet(path, cell))


def geo_json(path, cell):
    deep = 300  # Python reads no list that is much deeper
    inner = '{"type": "GeometryCollection", "geometries": [' * deep + "]}" * deep
    shapes = ['{"type": "Point", "coordinates": [0.5, 0.25]}', inner]
    features = ", ".join(f'{{"type": "Feature", "properties": {{}}, "geometry": {one}}}' for one in shapes)
    path.with_suffix(".geojson").write_text(f'{{"type": "FeatureCollection", "features": [{features}]}}')
    return path.with_suffix(".geojson")


def chunk_of_bytes(path, cell):
    return {"geometry": np.array([POINT, bytearray(cell)], dtype=object)}


@pytest.mark.parametrize("kind", [4, 7, 1007, 0x20000007])
@pytest.mark.parametrize("given", [geo_parquet, geo_arrow, geo_json, chunk_of_bytes])
def test_shapes_that_nest_deeply_are_bad_rows(given, kind, tmp_path):
    """In a process of its own: GEOS follows them until its stack ends."""

    def load(path):
        for order in "<>":
            data = given(path, nested(kind, order))
            if isinstance(data, dict):
                with collecting() as refusals:
                    xy = values.points(data, "geometry")
                assert refusals.found[0][1].tolist() == [1]
            else:
                source = open_source(data, reading=Reading(bad_rows="drop"))
                xy = values.points(source.read([source.geometry]), source.geometry)
                xy = xy[np.isfinite(xy).all(axis=1)]
            assert xy[0].tolist() == [0.5, 0.25]
            assert len(xy) == 1 or isinstance(data, dict)

    assert attempt_apart(Target("deep", ".txt", bytes, load), b"", tmp_path).problem is None


def test_a_state_whose_land_nests_deeply_is_refused(tmp_path):
    def load(path):
        for wkb in (nested(6), nested(7), nested(6)[:9] + nested(6), POINT, b"\1", b""):
            arrays = {"wkb": np.frombuffer(wkb, dtype=np.uint8)}
            with pytest.raises(ValueError):
                sg.PolygonDomain.from_state({"crs": "EPSG:4326"}, arrays)
        parts = [shapely.box(0, 0, 1, 1) - shapely.box(0.2, 0.2, 0.4, 0.4), shapely.box(2, 0, 3, 1)]
        for land in (parts[:1], parts):
            domain = sg.PolygonDomain(land, crs="EPSG:4326")
            assert sg.PolygonDomain.from_state(*domain.to_state()) == domain

    assert attempt_apart(Target("deep", ".txt", bytes, load), b"", tmp_path).problem is None


LONG = {
    "equal texts": lambda: ["7", *["7" * 20_000_000] * 60],
    "texts with a dictionary": lambda: pa.array(["7", *["7" * 20_000_000] * 60]).dictionary_encode(),
    "equal bytes": lambda: pa.array([b"7", *[POINT * 1_000_000] * 60], pa.large_binary()),
    "all else": lambda: ["7", *("7" * (20_000_000 + row) for row in range(60))],
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", LONG)
def test_parts_of_a_file_hold_no_longer_cells_than_the_whole(kind, tmp_path):
    """As tasks of a cluster read them, and what follows text that is no UTF-8."""
    source = tmp_path / "long.parquet"
    pq.write_table(pa.table({"lon": np.full(61, 0.5), "user": LONG[kind]()}), source, compression="zstd")

    def load(path):
        rows = open_source(source, reading=Reading(bad_rows="drop"))
        try:
            found = [chunk.broken for part in rows.parts() for chunk in rows.chunks_of(part, ["lon", "user"])]
        except sg.InputError:
            assert kind == "all else"
        else:
            assert [sorted(broken) for broken in found] == [list(range(1, 61))]

    apart = Path(tempfile.mkdtemp(dir=tmp_path))
    outcome = attempt_apart(Target("long", ".txt", bytes, load), b"", apart)
    assert outcome.problem is None
    assert outcome.memory < 400 << 20


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.binary(), pa.dictionary(pa.int32(), pa.string())]
)
def test_parts_of_a_file_have_the_limit_of_the_whole(kind, tmp_path):
    cells = [b"7", None, b"8" * (MAX_LINE + 1), b"9" * MAX_LINE]
    if kind != pa.binary():
        cells = [None if cell is None else cell.decode() for cell in cells]
    pq.write_table(
        pa.table({"lon": np.full(4, 0.5), "user": pa.array(cells).cast(kind)}), tmp_path / "a.parquet"
    )
    rows = open_source(tmp_path / "a.parquet")
    apart = [chunk for part in rows.parts() for chunk in rows.chunks_of(part, ["user"])]
    whole = [load() for load in rows.loads(["user"])]
    for (chunk,) in (apart, whole):
        held = chunk["user"].objects() if isinstance(chunk["user"], TextColumn) else chunk["user"]
        assert held.tolist() == [cells[0], None, None, cells[3]]
        assert list(chunk.broken) == [2]


@pytest.mark.parametrize("names", [["a"] * 200_000, [f"c{n}" for n in range(60_000)] + ["c1"]])
def test_a_header_of_many_columns_is_read_once(names, tmp_path):
    """Each name was looked for in all the others: hours for a line of a megabyte."""
    (tmp_path / "a.csv").write_text(",".join(names) + "\n")
    before = time.process_time()
    with pytest.raises(sg.InputError, match="more than once"):
        open_source(tmp_path / "a.csv")
    assert time.process_time() - before < 10

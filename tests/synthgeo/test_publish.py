"""A published folder: only what may be handed on, readable by everybody, true to its card."""

from __future__ import annotations

import ctypes
import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path

import duckdb
import geopandas as gpd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow.parquet as pq
import pyogrio
import pytest
import yaml
from jsonschema import Draft7Validator

import synthgeo as sg
import synthgeo.publishing.folder as publishing
from synthgeo.publishing import writers
from synthgeo.publishing.folder import publish

REGISTRY = json.loads((Path(__file__).parents[1] / "fixtures" / "deployments_registry.json").read_text())
ALL = ("geoparquet", "gpkg", "csv", "xlsx")
WORDS = {
    "title": "Check-ins | of a town",
    "curator": "Town of Example",
    "curator_type": "Government",
    "region": "Example",
    "use": "Teaching",
}
BOX = sg.BoxDomain(8.4, 47.3, 8.7, 47.5, crs="EPSG:4326")


def points(steps: int = 1, **options):
    rng = np.random.default_rng(1)
    n = 400
    day = pd.Timestamp("2026-03-02")
    frame = pd.DataFrame(
        {
            "lon": rng.uniform(8.4, 8.7, n),
            "lat": rng.uniform(47.3, 47.5, n),
            "time": day + pd.to_timedelta(rng.integers(0, 24 * steps, n), unit="h"),
        }
    )
    stream = sg.PHDStream.from_options(
        domain=BOX, budget=sg.PrivacyBudget(epsilon=1.0), lifetime=1, **options
    )
    end = day + pd.Timedelta(days=steps)
    return list(stream.run(frame, time="time", every="1D", start=day, end=end, progress=False))


@pytest.fixture(scope="module")
def table():
    schema = sg.Schema(
        {
            "kind": sg.Categorical(["=A1", "plain", "ümlaut"], missing=True),
            "age": sg.Numeric(0, 100, bins=4, integer=True),
            "flag": sg.Categorical([True, False]),
            "when": sg.DateTime("2026-01-01", "2026-02-01", parts=("date",)),
        }
    )
    rng = np.random.default_rng(2)
    n = 300
    frame = pd.DataFrame(
        {
            "kind": rng.choice(np.array(["=A1", "plain", "ümlaut", None], dtype=object), n),
            "age": rng.integers(0, 100, n),
            "flag": rng.random(n) < 0.5,
            "when": pd.Timestamp("2026-01-01") + pd.to_timedelta(rng.integers(0, 30, n), unit="D"),
        }
    )
    budget = sg.PrivacyBudget(epsilon=5.0, delta=1e-9)
    return sg.TabularSynthesizer(schema=schema, budget=budget).fit(frame).sample(250)


@pytest.fixture(scope="module")
def trips():
    graph = sg.simulate.city_graph(seed=1)
    frame = sg.simulate.city_trips(graph, trips=100, seed=1)
    domain = sg.RoadDomain.from_graph(graph)
    return sg.TrajectorySynthesizer(domain=domain, budget=sg.PrivacyBudget(epsilon=2.0)).fit(frame).sample(40)


def test_every_reader_opens_points_and_types_are_kept(tmp_path):
    releases = points(steps=2)
    publish(releases, tmp_path / "out", formats=ALL)
    out = tmp_path / "out"
    total = sum(release.total for release in releases)
    geo = gpd.read_parquet(out / "points.parquet")
    assert json.loads(pq.read_schema(out / "points.parquet").metadata[b"geo"])["version"] == "1.1.0"
    assert geo.crs.to_epsg() == 4326
    frames = {
        "csv": pd.read_csv(out / "points.csv", parse_dates=["window_start"]),
        "gpkg": gpd.read_file(out / "points.gpkg", layer="points"),
        "xlsx": pd.read_excel(out / "points.xlsx", sheet_name="points"),
        "duckdb": duckdb.sql(f"select * from '{out}/points.csv'").df(),
        "duckdb parquet": duckdb.sql(f"select * exclude geometry from '{out}/points.parquet'").df(),
        "polars": pl.read_csv(out / "points.csv", try_parse_dates=True).to_pandas(),
    }
    for name, frame in frames.items():
        assert len(frame) == len(geo) == total, name
        assert list(frame.columns[:5]) == ["step", "id", "window_start", "lon", "lat"], name
        assert frame["lon"].between(8.4, 8.7).all(), name
        assert frame["lat"].between(47.3, 47.5).all(), name
        assert frame["step"].dtype.kind == "i", name
        assert pd.api.types.is_datetime64_any_dtype(frame["window_start"]), name
        assert frame["window_start"].nunique() == 2, name


def test_a_table_keeps_gaps_text_and_types(table, tmp_path):
    table.publish(tmp_path / "out", formats=ALL)
    out = tmp_path / "out"
    real = table.data.reset_index(drop=True)
    parquet = pd.read_parquet(out / "table.parquet")
    pd.testing.assert_frame_equal(parquet, real, check_dtype=False)
    sheets = pd.read_excel(out / "table.xlsx", sheet_name=None)
    assert list(sheets) == ["table", "columns of table"]
    excel = sheets["table"]
    assert excel["kind"].fillna("").tolist() == real["kind"].fillna("").tolist()  # "=A1" is text, no formula
    assert excel["age"].dtype.kind == "i"
    assert excel["flag"].tolist() == real["flag"].tolist()
    assert ((excel["when"] - real["when"]).abs() < pd.Timedelta("1s")).all()
    csv = pd.read_csv(out / "table.csv", parse_dates=["when"])
    assert csv["kind"].fillna("").str.removeprefix("'").tolist() == real["kind"].fillna("").tolist()
    assert len(gpd.read_file(out / "table.gpkg")) == 250


def test_trips_have_ends_times_and_both_layers(trips, tmp_path):
    trips.publish(tmp_path / "out", formats=ALL)
    out = tmp_path / "out"
    assert {name for name, _ in pyogrio.list_layers(out / "trips.gpkg")} == {"trips", "points"}
    rows = pd.read_csv(out / "trips.csv", parse_dates=["departure", "arrival"])
    assert len(rows) == 40
    assert (rows["arrival"] >= rows["departure"]).all()
    lines = gpd.read_parquet(out / "trips.parquet")
    first = lines.geometry.iloc[0].coords[0]
    assert first == pytest.approx((rows["start_lon"][0], rows["start_lat"][0]), abs=1e-6)
    along = pd.read_csv(out / "points.csv", parse_dates=["time"])
    assert str(along["time"].dtype).endswith("UTC]")
    assert set(along.columns) == {"trip_id", "seq", "time", "lon", "lat"}


OGRINFO = shutil.which("ogrinfo")


@pytest.mark.skipif(OGRINFO is None, reason="no ogrinfo here (Debian: apt-get install gdal-bin)")
@pytest.mark.parametrize(("product", "layers"), [("points", 1), ("table", 1), ("trips", 2)])
def test_gdal_opens_what_was_published(product, layers, request, tmp_path):
    releases = points(steps=2) if product == "points" else [request.getfixturevalue(product)]
    publish(releases, tmp_path / "out", formats=("gpkg", "csv"))

    def info(path: Path, *options: str) -> str:
        ran = subprocess.run(
            [OGRINFO, "-ro", "-so", "-al", *options, path], capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stderr
        assert "ERROR" not in ran.stderr
        return ran.stdout

    package = info(tmp_path / "out" / f"{product}.gpkg")
    assert package.count("Layer name:") == layers
    rows = [int(count) for count in re.findall(r"Feature Count: (\d+)", package)]
    csv = info(tmp_path / "out" / f"{product}.csv", "-oo", "AUTODETECT_TYPE=YES")
    assert int(re.search(r"Feature Count: (\d+)", csv)[1]) in rows
    if product == "points":
        assert rows == [sum(release.total for release in releases)]
        assert "Geometry: Point" in package
        assert '"EPSG",4326' in package
        assert "step: Integer" in package
        assert "window_start: DateTime" in package
        assert "lon: Real" in csv
        west, south, east, north = map(
            float, re.search(r"Extent: \((.+?), (.+?)\) - \((.+?), (.+?)\)", package).groups()
        )
        assert 8.4 <= west < east <= 8.7
        assert 47.3 <= south < north <= 47.5
    elif product == "table":
        assert "age: Integer" in package
        assert "kind: String" in package
    else:
        assert "Geometry: Line String" in package
        assert "departure: DateTime" in package


def test_another_crs_moves_geometries_and_keeps_degrees(trips, tmp_path):
    trips.publish(tmp_path / "out", formats=("geoparquet", "csv"), crs="EPSG:32632")
    assert gpd.read_parquet(tmp_path / "out" / "trips.parquet").crs.to_epsg() == 32632
    assert pd.read_csv(tmp_path / "out" / "points.csv")["lat"].between(47, 49).all()


def test_files_are_readable_and_match_their_checksums(tmp_path):
    out = points()[0].publish(tmp_path / "out", formats=ALL, **WORDS)
    assert out.stat().st_mode & 0o777 == 0o755
    sums = dict(reversed(line.split("  ")) for line in (out / "SHA256SUMS").read_text().splitlines())
    there = {path.name: path for path in out.iterdir() if path.name != "SHA256SUMS"}
    assert set(sums) == set(there)
    for name, path in there.items():
        assert path.stat().st_mode & 0o777 == 0o644, name
        assert hashlib.sha256(path.read_bytes()).hexdigest() == sums[name], name


def test_the_card_says_what_it_must(table, tmp_path):
    out = table.publish(tmp_path / "out", formats="csv", after_looking="categories of kind", **WORDS)
    for card in ((out / "README.md").read_text(), (out / "data-card.html").read_text()):
        words = " ".join(card.split())
        for part in (
            "What it is not", "Known limits", "Expected errors", "ε = 5", "1e-09", "Town of Example",
            "250 rows", "categories of kind", "one of: =A1, plain, ümlaut; may be missing",
            "from 0 to 100 in 4 bins", f"synthgeo {sg.__version__}", "SHA256SUMS",
        ):  # fmt: skip
            assert part in words.replace("&#x27;", "'"), part
    assert "http" not in re.sub(r"<!doctype.*?>", "", (out / "data-card.html").read_text())
    assert "# Check-ins | of a town" in (out / "README.md").read_text()
    statement = json.loads((out / "statement.json").read_text())
    assert statement["declared_after_looking"] == ["categories of kind"]
    assert statement["statements"][0]["budget"] == {"epsilon": 5.0, "delta": 1e-9}
    assert statement["schema"]["columns"]["age"]["high"] == 100


@pytest.mark.parametrize("product", ["points", "table", "trips"])
def test_the_registry_takes_the_entry(product, request, tmp_path):
    release = points()[0] if product == "points" else request.getfixturevalue(product)
    out = release.publish(tmp_path / "out", formats="csv", sector="Government", **WORDS)
    entry = yaml.safe_load((out / "registry-entry.yaml").read_text())
    validator = Draft7Validator(REGISTRY, format_checker=Draft7Validator.FORMAT_CHECKER)
    assert [error.message for error in validator.iter_errors(entry)] == []
    assert entry["deployment"]["privacy_loss"]["privacy_parameters"]["epsilon"] == release.spent.epsilon
    del entry["deployment"]["basic"]["data_curators"]
    assert list(validator.iter_errors(entry))  # the check can fail


def test_an_entry_says_what_it_lacks(tmp_path):
    out = points()[0].publish(tmp_path / "out", formats="csv")
    head = (out / "registry-entry.yaml").read_text().splitlines()[0]
    assert head.startswith("# Fill in")
    assert "data_curators" in head


def test_what_is_not_releasable_is_refused_and_leaves_nothing(tmp_path):
    release = points(noise=sg.SeededNoise(1))[0]
    with pytest.raises(sg.ConfigError, match="seed"):
        release.publish(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_one_seeded_release_among_others_is_enough_to_refuse(tmp_path):
    fair, seeded = points(2)[0], points(noise=sg.SeededNoise(1))[0]
    for releases in ((seeded, fair), (fair, seeded), (fair, seeded, fair)):
        with pytest.raises(sg.ConfigError, match="may not be published"):
            publish(releases, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_the_statement_has_one_of_every_release(tmp_path):
    releases = points(3)
    publish(releases, tmp_path / "out", formats="csv")
    stated = json.loads((tmp_path / "out" / "statement.json").read_text())["statements"]
    assert [one["step"] for one in stated] == [1, 2, 3]


def test_a_folder_is_not_overwritten_by_accident(tmp_path):
    release = points()[0]
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work")
    for overwrite in (False, True):
        with pytest.raises(sg.ConfigError, match=r"not empty|not made by publish"):
            release.publish(mine, overwrite=overwrite)
    assert [path.name for path in mine.iterdir()] == ["thesis.txt"]
    release.publish(tmp_path / "out", formats="csv")
    with pytest.raises(sg.ConfigError, match="not empty"):
        release.publish(tmp_path / "out")
    release.publish(tmp_path / "out", formats="geoparquet", overwrite=True)
    assert not (tmp_path / "out" / "points.csv").exists()
    with pytest.raises(sg.ConfigError, match="no folder"):
        release.publish(tmp_path / "nowhere" / "out")


@pytest.mark.parametrize("how", ["exchange", "renames", "no exchange"])
def test_a_folder_is_replaced_at_once(tmp_path, monkeypatch, how):
    """A process that dies at any move of files leaves the old folder or the new one."""
    old, new = points(2)
    out = old.publish(tmp_path / "out", formats="csv")
    before = (out / "SHA256SUMS").read_bytes()
    real, seen, whole = Path.rename, [], []

    def look():
        """What somebody finds who looks now."""
        there = out / "SHA256SUMS"
        seen.append(there.read_bytes() if there.exists() else None)
        done = subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=tmp_path / "out", capture_output=True)
        whole.append(done.returncode == 0)

    def watched(function):
        def moved(*args, **options):
            look()
            result = function(*args, **options)
            look()
            return result

        return moved

    monkeypatch.setattr(publishing.shutil, "rmtree", watched(shutil.rmtree))
    if how == "exchange":
        if not hasattr(ctypes.CDLL(None), "renameat2"):
            pytest.skip("this system cannot exchange two names")
        monkeypatch.setattr(Path, "rename", watched(real))
    else:
        monkeypatch.setattr(publishing, "_exchange", lambda *_: False)
    if how == "renames":  # what has the name is put back if the new folder cannot have it

        def fails(self, target):
            if self.name.startswith(".out."):
                raise OSError(28, "No space left on device")
            return real(self, target)

        monkeypatch.setattr(Path, "rename", fails)
        with pytest.raises(OSError, match="No space"):
            new.publish(out, formats="csv", overwrite=True)
        assert (out / "SHA256SUMS").read_bytes() == before
    else:
        new.publish(out, formats="csv", overwrite=True)
        assert (out / "SHA256SUMS").read_bytes() != before
    assert seen
    assert None not in seen
    assert all(whole)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_publication_survives_where_no_folder_can_be_renamed(tmp_path, monkeypatch):
    old, new = points()[0], points()[-1]
    out, real, moves = tmp_path / "out", Path.rename, []
    old.publish(out, formats="csv")
    before = {path.name: path.read_bytes() for path in out.iterdir()}

    def fails(self, target):
        moves.append(self)
        if len(moves) > 1:
            raise OSError(30, "Read-only file system")
        return real(self, target)

    monkeypatch.setattr(publishing, "_exchange", lambda *_: False)
    monkeypatch.setattr(Path, "rename", fails)
    with pytest.raises(sg.ConfigError, match="what was there is in") as refused:
        new.publish(out, formats="csv", overwrite=True)
    kept = Path(str(refused.value).rpartition(" is in ")[2])
    assert len(moves) == 3
    assert {path.name: path.read_bytes() for path in kept.iterdir()} == before


def test_excel_refuses_more_rows_than_a_sheet_has(tmp_path, monkeypatch):
    release = points()[0]
    monkeypatch.setattr(writers, "MOST_EXCEL_ROWS", release.total - 1)
    with pytest.raises(sg.ConfigError, match="Excel holds"):
        release.publish(tmp_path / "out", formats=("csv", "xlsx"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("wrong", [{"formats": "shp"}, {"formats": ()}, {"colour": "red"}, {"sector": "Fun"}])
def test_wrong_words_are_refused(wrong, tmp_path):
    with pytest.raises(sg.ConfigError):
        points()[0].publish(tmp_path / "out", **wrong)
    assert list(tmp_path.iterdir()) == []

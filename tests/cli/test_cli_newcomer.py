"""Somebody's first hour: a CSV with names of its own, and the mistakes that everybody makes once."""

from __future__ import annotations

import geopandas as gpd
import numpy as np
import osmnx as ox
import pandas as pd
import pytest

import synthgeo as sg
from synthgeo.release import read_provenance
from tests.cli.conftest import one_line

BOX = ["--bounds=-0.25,51.44,0.01,51.58", "--crs=EPSG:4326", "--epsilon=1"]
NAMES = ["--x=long_deg", "--y=lat_deg"]


@pytest.fixture
def visits(tmp_path):
    rng = np.random.default_rng(5)
    frame = pd.DataFrame(
        {
            "when": pd.Timestamp("2026-05-01") + pd.to_timedelta(rng.uniform(0, 48, 800), unit="h"),
            "long_deg": rng.normal(-0.12, 0.03, 800),
            "lat_deg": rng.normal(51.51, 0.02, 800),
            "customer": rng.integers(0, 90, 800),
        }
    )
    frame.to_csv(tmp_path / "visits.csv", index=False)
    return tmp_path / "visits.csv"


def test_own_column_names_from_csv_to_geoparquet(synthgeo, visits, tmp_path):
    windows = ["--time=when", "--every=1D", "--start=2026-05-01", "--end=2026-05-03"]
    users = ["--user=customer", "--max-events=4"]
    outcome = synthgeo("stream", "run", tmp_path / "run", visits, *BOX, *NAMES, *windows, *users)
    assert outcome.code == 0, outcome.err
    files = sorted((tmp_path / "run" / "releases").rglob("*.parquet"))
    assert len(files) == 2
    points = gpd.read_parquet(files[-1])
    assert points.crs == "EPSG:4326"
    assert points.total_bounds[0] >= -0.25
    assert "at most 4" in read_provenance(files[-1])["unit"]
    judged = synthgeo("evaluate", tmp_path / "run", "--real", visits, "--repeats=1", "--json")
    assert judged.code == 0, judged.err  # the run remembers which columns hold the coordinates


@pytest.mark.parametrize(
    ("wrong", "right", "said"),
    [
        ([], NAMES, "with --x, --y"),
        (["--x=long_deg", "--y=lat"], NAMES, "no column 'lat'"),
        ([*NAMES, "--user=client", "--max-events=2"], NAMES, "'client'"),
        ([*NAMES, "--parts=points"], NAMES, "data, cells, changes"),
        ([*NAMES, "--parts=changes"], NAMES, "--persist"),
        ([*NAMES, "--time=at", "--every=1D", "--start=2026-05-01", "--end=2026-05-03"], NAMES, "'at'"),
    ],
)
def test_a_wrong_name_does_not_begin_a_run(synthgeo, visits, tmp_path, wrong, right, said):
    """The mended command must work in the same folder, and the ledger must not have paid for the mistake."""
    ledger, run = tmp_path / "ledger.sqlite", tmp_path / "run"
    assert synthgeo("ledger", "create", ledger, "--dataset=visits", "--epsilon=1").code == 0
    refused = synthgeo("stream", "run", run, visits, *BOX, *wrong, "--ledger", ledger)
    assert refused.code in (3, 4)
    assert said in one_line(refused.err)
    assert synthgeo("ledger", "show", ledger, "--json").json["entries"] == []
    mended = synthgeo("stream", "run", run, visits, *BOX, *right, "--ledger", ledger)
    assert mended.code == 0, mended.err


def test_a_bad_row_can_be_mended_in_the_file(synthgeo, visits, tmp_path):
    good = pd.read_csv(visits)
    good.assign(lat_deg=good["lat_deg"].where(good.index != 10)).to_csv(visits, index=False)
    command = ["stream", "run", tmp_path / "run", visits, *BOX, *NAMES]
    refused = synthgeo(*command)
    assert refused.code == 4
    assert "column 'lat_deg', line 12 of visits.csv" in one_line(refused.err)
    good.to_csv(visits, index=False)
    assert synthgeo(*command).code == 0


def test_a_table_stream_checks_its_columns_first(synthgeo, visits, tmp_path):
    sg.Schema({"shop": sg.Categorical(["a", "b"])}).save(tmp_path / "schema.json")
    refused = synthgeo(
        "table", "stream", tmp_path / "run", visits, "--schema", tmp_path / "schema.json", "--epsilon=1"
    )
    assert refused.code == 4
    assert "'shop'" in one_line(refused.err)
    assert not (tmp_path / "run").exists()


def test_degrees_with_own_names_on_roads(synthgeo, tmp_path):
    """Roads are in metres: --xy-crs says that the columns are not. Trips are evaluated from their model."""
    graph = sg.simulate.city_graph(6, 5, seed=3)
    ox.save_graphml(graph, tmp_path / "roads.graphml")
    tracks = sg.simulate.city_trips(graph, trips=120, seed=3)
    tracks = tracks.rename(columns={"lon": "long_deg", "lat": "lat_deg"})
    tracks.to_csv(tmp_path / "tracks.csv", index=False)
    degrees = [*NAMES, "--xy-crs=EPSG:4326"]
    fit = ["trips", "fit", tmp_path / "tracks.csv", "--roads", tmp_path / "roads.graphml", "--epsilon=5"]
    fitted = synthgeo(*fit, "--out", tmp_path / "model", "--seed=1", "--depth=8", *degrees)
    assert fitted.code == 0, fitted.err
    judge = ["evaluate", tmp_path / "model", "--real", tmp_path / "tracks.csv", "--repeats=1", "--json"]
    judged = synthgeo(*judge, *degrees)
    assert judged.code == 0, judged.err
    values = {row["metric"]: row["value"] for row in judged.json["metrics"]}
    assert values["tau"] > 0.2
    assert "with --x, --y" in one_line(synthgeo(*judge).err)


def test_a_draft_of_a_schema_that_nobody_filled_in(synthgeo, visits, tmp_path):
    draft = tmp_path / "schema.json"
    assert synthgeo("table", "schema", visits, "--out", draft).code == 0
    refused = synthgeo("table", "fit", visits, "--schema", draft, "--epsilon=1", "--out", tmp_path / "model")
    assert refused.code == 3
    assert "has no 'values' yet" in one_line(refused.err)

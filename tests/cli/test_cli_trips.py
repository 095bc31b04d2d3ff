"""``synthgeo trips``, run for real."""

from __future__ import annotations

import json

import geopandas as gpd
import osmnx as ox
import pandas as pd
import pytest

import synthgeo as sg
from tests.cli.conftest import one_line


@pytest.fixture(scope="module")
def town(tmp_path_factory):
    folder = tmp_path_factory.mktemp("town")
    graph = sg.simulate.city_graph(6, 5, seed=3)
    ox.save_graphml(graph, folder / "roads.graphml")
    sg.simulate.city_trips(graph, trips=150, users=30, seed=3).to_parquet(folder / "trips.parquet")
    return folder


@pytest.fixture(scope="module")
def model(town):
    from synthgeo.cli.app import run

    target = town / "model.state"
    fit = ["trips", "fit", str(town / "trips.parquet"), "--roads", str(town / "roads.graphml")]
    assert run([*fit, "--epsilon=4", "--seed=1", "--depth=8", "--out", str(target)]) == 0
    return target


def test_the_check_shows_figures_of_trips(synthgeo, town):
    fit = ["trips", "fit", town / "trips.parquet", "--roads", town / "roads.graphml", "--epsilon=4"]
    done = synthgeo("check", *fit)
    assert done.code == 0, done.err
    for words in ("points off the network, share", "gap between points, s, median", "speed between points"):
        assert words in done.out


def test_a_plan_chooses_the_bound_per_user(synthgeo, town):
    fit = ["trips", "fit", town / "trips.parquet", "--roads", town / "roads.graphml", "--epsilon=2"]
    options = ["--rows", 300, "--epsilons", "2", "--users", 20, "--bounds"]
    done = synthgeo("plan", *options, "1,15", *fit, "--user=user_id", "--max-trips=5", "--json")
    assert done.code == 0, done.err
    assert [row["bound"] for row in done.json["plan"]] == [1, 15]
    assert done.json["best_bound"] in (1, 15)
    wrong = synthgeo("plan", *options, "few", *fit, "--user=user_id", "--max-trips=5")
    assert "--bounds must be whole numbers with commas" in one_line(wrong.err)


def test_plan_of_a_fit(synthgeo, town):
    fit = [
        "trips",
        "fit",
        town / "trips.parquet",
        "--roads",
        town / "roads.graphml",
        "--epsilon=4",
        "--dry-run",
    ]
    plan = synthgeo(*fit, "--json").json["plan"]
    assert plan["budget"]["epsilon"] == 4
    assert plan["protects"] == "one whole trajectory"
    users = synthgeo(*fit, "--user=user_id", "--max-trips=2")
    assert "one user, who contributes at most 2 trajectories" in users.out
    assert "together" in one_line(synthgeo(*fit, "--user=user_id").err)
    assert synthgeo(*fit, "--length=nonsense").code == 3


def test_fit_and_sample_points(synthgeo, model, tmp_path):
    outcome = synthgeo("trips", "sample", model, "--out", tmp_path / "trips.parquet", "-n", 40, "--json")
    assert outcome.code == 0, outcome.err
    assert "do not publish" in outcome.err
    points = gpd.read_parquet(tmp_path / "trips.parquet")
    assert points["trip_id"].nunique() == 40
    assert {"seq", "time"} <= set(points.columns)


def test_sample_lines_and_csv(synthgeo, model, tmp_path):
    lines = synthgeo("trips", "sample", model, "--out", tmp_path / "lines.parquet", "--lines", "-n", 10)
    assert lines.code == 0, lines.err
    assert set(gpd.read_parquet(tmp_path / "lines.parquet").geom_type) <= {"LineString", "MultiLineString"}
    assert synthgeo("trips", "sample", model, "--out", tmp_path / "t.csv", "-n", 5, "--hour=8").code == 0
    assert pd.read_csv(tmp_path / "t.csv")["trip_id"].nunique() == 5
    assert synthgeo("trips", "sample", model, "--out", tmp_path / "t.csv", "-n", 5, "--hour=25").code == 3
    rows = synthgeo("trips", "sample", model, "--out", tmp_path / "rows.csv", "--lines", "-n", 6)
    assert rows.code == 0, rows.err
    written = pd.read_csv(tmp_path / "rows.csv")
    assert len(written) == 6
    ends = ["start_lon", "start_lat", "end_lon", "end_lat"]
    assert list(written.columns) == ["trip_id", *ends, "metres", "departure", "arrival"]
    assert "two numbers" in one_line(synthgeo("trips", "sample", model, "--out", "x.csv", "--start=a").err)
    assert "cannot write .xyz" in synthgeo("trips", "sample", model, "--out", tmp_path / "a.xyz").err


def test_wrong_input_to_trips(synthgeo, town, tmp_path):
    fit = ["trips", "fit", town / "trips.parquet", "--roads", town / "roads.graphml", "--epsilon=4"]
    assert "give --out" in one_line(synthgeo(*fit).err)
    missing = synthgeo(*fit, "--trip=nonsense", "--out", tmp_path / "m")
    assert missing.code == 4
    assert "nonsense" in missing.err
    assert "two columns" in one_line(synthgeo(*fit, "--origin=lon", "--out", tmp_path / "m").err)
    assert synthgeo("trips", "sample", town / "trips.parquet", "--out", tmp_path / "x.parquet").code == 7


def test_a_run_of_trips_by_window(synthgeo, town, tmp_path):
    run, ledger = tmp_path / "run", tmp_path / "ledger.sqlite"
    assert synthgeo("ledger", "create", ledger, "--dataset=town", "--epsilon=8").code == 0
    go = ["trips", "run", run, town / "trips.parquet", "--roads", town / "roads.graphml", "--every=4D"]
    go += ["--start=2024-03-04", "--end=2024-03-12", "--epsilon=4", "--lifetime=1", "--depth=6", "--seed=1"]
    plan = synthgeo(*go, "--dry-run").out
    assert "in its own batch" in plan
    outcome = synthgeo(*go, "--ledger", ledger, "--parts=data,lines", "--no-check", "--json")
    assert outcome.code == 0, outcome.err
    assert [line["step"] for line in outcome.lines] == [1, 2]
    with sg.StreamRun.view(run) as view:
        assert view.mechanism == "TrajectoryStream"
        assert {"data", "lines"} == set(view.release(view.batches[1]).parts)
    again = synthgeo("trips", "run", run, town / "trips.parquet", "--ledger", ledger, "--json")
    assert [line["repeated"] for line in again.lines] == [True, True]
    assert "do not add up" in synthgeo("ledger", "show", ledger, "--json").out
    other = [part for part in go if not str(part).startswith("--depth")]
    assert "max_depth" in one_line(synthgeo(*other, "--depth=9", "--ledger", ledger, "--no-check").err)


def test_attributes_formats_and_coordinates(synthgeo, town, tmp_path):
    rows = pd.read_parquet(town / "trips.parquet")
    rows["vehicle"] = (rows["trip_id"] % 3 == 0).map({True: "van", False: "car"})
    rows.to_csv(tmp_path / "trips.csv", index=False)
    schema = tmp_path / "schema.json"
    vehicles = sg.Schema({"vehicle": sg.Categorical(["car", "van"])})
    schema.write_text(json.dumps(vehicles.to_json()))
    fit = ["trips", "fit", tmp_path / "trips.csv", "--roads", town / "roads.graphml", "--epsilon=4"]
    fit += ["--seed=1", "--depth=8", "--workers=1", "--out", tmp_path / "model"]
    assert synthgeo(*fit, "--attributes", schema).code == 0
    sample = ["trips", "sample", tmp_path / "model", "-n", 8, "--given", "vehicle=van"]
    assert synthgeo(*sample, "--out", tmp_path / "vans.geojson").code == 0
    lines = json.loads((tmp_path / "vans.geojson").read_text())["features"]
    assert {line["properties"]["vehicle"] for line in lines} == {"van"}
    assert synthgeo(*sample, "--out", tmp_path / "vans.json").code == 0
    assert len(json.loads((tmp_path / "vans.json").read_text())) == 8
    assert synthgeo(*sample, "--crs=EPSG:3857", "--out", tmp_path / "vans.csv").code == 0
    assert {"x", "y"} <= set(pd.read_csv(tmp_path / "vans.csv").columns)
    assert synthgeo(*sample, "--out", tmp_path / "degrees.csv").code == 0
    assert {"lon", "lat"} <= set(pd.read_csv(tmp_path / "degrees.csv").columns)
    assert "no value 'bus'" in synthgeo(*sample[:-1], "vehicle=bus", "--out", tmp_path / "a.csv").err


def test_a_run_with_its_own_names_of_columns_is_evaluated_by_them(synthgeo, town, tmp_path):
    rows = pd.read_parquet(town / "trips.parquet").rename(columns={"trip_id": "ride", "time": "at"})
    rows.to_csv(tmp_path / "rides.csv", index=False)
    go = ["trips", "run", tmp_path / "run", tmp_path / "rides.csv", "--roads", town / "roads.graphml"]
    go += ["--epsilon=4", "--depth=6", "--seed=1", "--trip=ride", "--time=at"]
    assert synthgeo(*go).code == 0
    look = ["evaluate", tmp_path / "run", "--real", tmp_path / "rides.csv", "--metric=length", "--repeats=1"]
    assert synthgeo(*look).code == 0
    assert "ride_id" in one_line(synthgeo(*look, "--trip=ride_id").err)


def test_a_run_with_attributes_is_checked_and_stores_them(synthgeo, town, tmp_path):
    rows = pd.read_parquet(town / "trips.parquet").assign(vehicle="car")
    rows.to_csv(tmp_path / "trips.csv", index=False)
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps(sg.Schema({"vehicle": sg.Categorical(["car", "van"])}).to_json()))
    go = ["trips", "run", tmp_path / "run", tmp_path / "trips.csv", "--roads", town / "roads.graphml"]
    go += ["--epsilon=4", "--lifetime=1", "--depth=6", "--seed=1"]
    assert "a release holds   the last batch\n" in synthgeo(*go, "--dry-run").out
    assert synthgeo("check", *go, "--attributes", schema).code == 0
    schema.write_text(json.dumps(sg.Schema({"vehicle": sg.Categorical(["bus", "van"])}).to_json()))
    assert "is not one of the 2 categories" in synthgeo("check", *go, "--attributes", schema).out
    assert "vehicle are not used" in synthgeo(*go, "--no-check").err
    schema.write_text(json.dumps(sg.Schema({"vehicle": sg.Categorical(["car", "van"])}).to_json()))
    go[2] = tmp_path / "priced"
    assert synthgeo(*go, "--attributes", schema).code == 0
    stored = gpd.read_parquet(next((tmp_path / "priced" / "releases").glob("*/trips.parquet")))
    assert set(stored["vehicle"]) <= {"car", "van"}


def test_given_needs_attributes(synthgeo, model, tmp_path):
    outcome = synthgeo("trips", "sample", model, "--given", "vehicle=van", "--out", tmp_path / "a.csv")
    assert "without attributes" in one_line(outcome.err)

"""Demo, series, tables, ledger: each command run for real."""

from __future__ import annotations

import json

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest

import synthgeo as sg
from synthgeo.release import read_provenance
from tests.cli.conftest import one_line


@pytest.mark.slow
def test_demo_leaves_datasets_that_may_be_published(synthgeo, tmp_path):
    out = tmp_path / "demo"
    outcome = synthgeo("demo", "--out", out, "--quick", "--json")
    assert outcome.code == 0, outcome.err
    assert outcome.json["facts"]["spent"] == "ε = 3"
    for name in ("checkins", "residents", "trips"):
        assert read_provenance(out / f"{name}.parquet")["releasable"] is True
    assert gpd.read_parquet(out / "checkins.parquet").crs is not None
    assert len(gpd.read_parquet(out / "trips.parquet")) > 1000
    assert "For the curator only" in (out / "report-curator-only.html").read_text()
    assert "May be published" in (out / "report-public.html").read_text()
    again = synthgeo("demo", "--out", out)
    assert again.code != 0
    assert "already" in one_line(again.err)


def test_ledger(synthgeo, tmp_path):
    book = tmp_path / "book.sqlite"
    made = synthgeo("ledger", "create", book, "--dataset=taxi-2015", "--epsilon=4")
    assert made.code == 0
    assert "cap ε = 4" in made.out
    assert synthgeo("ledger", "create", book, "--dataset=taxi-2015", "--epsilon=4").code == 3
    frame = pd.DataFrame({"visits": [5, 6, 7, 8]})
    frame.to_csv(tmp_path / "in.csv", index=False)
    file = tmp_path / "series.toml"
    file.write_text(
        'kind = "series"\n[data]\nfiles = "in.csv"\n[columns]\nvalue = "visits"\n[privacy]\nepsilon = 3\n'
        'ledger = "book.sqlite"\n[method]\nmechanism = "lpa"\n'
    )
    assert synthgeo("run", file).code == 0
    other = ["run", file, "--set", "folder=second"]
    wrong = synthgeo(*other, "--set", "privacy.epsilon=0.5", "--set", "method.window=3")
    assert wrong.code == 3  # and nothing was charged for it
    shown = synthgeo("ledger", "show", book)
    assert "series lpa" in shown.out
    assert "spent ε = 3 of ε = 4, left ε = 1" in shown.out
    refused = synthgeo(*other)
    assert refused.code == 6
    assert synthgeo("ledger", "show", book, "--json").json["remaining"]["epsilon"] == 1.0
    book.write_bytes(b"not a ledger")
    assert synthgeo("ledger", "show", book).code == 7


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    folder = tmp_path_factory.mktemp("people")
    rng = np.random.default_rng(5)
    sex = rng.choice(["F", "M"], 2000)
    frame = pd.DataFrame(
        {
            "sex": sex,
            "age": rng.integers(0, 100, 2000),
            "job": np.where(sex == "F", "care", rng.choice(["care", "craft"], 2000)),
        }
    )
    frame.to_parquet(folder / "people.parquet")
    frame.iloc[:1000].to_csv(folder / "day-1.csv", index=False)
    frame.iloc[1000:].to_csv(folder / "day-2.csv", index=False)
    columns = {
        "sex": {"type": "categorical", "values": ["F", "M"]},
        "age": {"type": "numeric", "low": 0, "high": 100, "bins": 5, "integer": True},
        "job": {"type": "categorical", "values": ["care", "craft"]},
    }
    (folder / "schema.json").write_text(json.dumps({"columns": columns}))
    return folder


def test_schema_is_checked_and_drafted(synthgeo, people, tmp_path):
    checked = synthgeo("table", "schema", people / "schema.json", "--json").json
    assert checked["attributes"] == {"sex": 2, "age": 5, "job": 2}
    assert "fingerprint" in synthgeo("table", "schema", people / "schema.json").out
    draft = tmp_path / "draft.json"
    assert synthgeo("table", "schema", people / "people.parquet", "--out", draft).code == 0
    drafted = json.loads(draft.read_text())["columns"]
    assert drafted["sex"] == {"type": "categorical", "values": []}
    assert drafted["age"] == {"type": "numeric", "low": None, "high": None, "bins": 20, "integer": True}
    unfinished = synthgeo("table", "schema", draft)
    assert unfinished.code == 3
    one_line(unfinished.err)


@pytest.mark.slow
def test_a_draft_with_values_is_refused_until_its_line_is_deleted(synthgeo, people, tmp_path):
    path, model = tmp_path / "draft.json", tmp_path / "model"
    data = people / "people.parquet"
    drafted = synthgeo("table", "schema", data, "--values", "--out", path)
    assert drafted.code == 0
    assert "PRIVATE" in drafted.err
    assert path.stat().st_mode & 0o777 == 0o600
    facts = json.loads(path.read_text())
    frame = pd.read_parquet(data)
    assert facts["columns"]["sex"]["values"] == sorted(frame["sex"].unique())
    assert facts["columns"]["age"]["low"] == frame["age"].min()
    assert facts["columns"]["age"]["high"] == frame["age"].max()
    for arguments in (["schema", path], ["fit", data, "--schema", path, "--epsilon=1", "--out", model]):
        refused = synthgeo("table", *arguments)
        assert refused.code == 3
        assert "delete this line" in refused.err
    del facts["draft"]
    path.write_text(json.dumps(facts))
    assert synthgeo("table", "schema", path).code == 0


def test_table_fit_and_sample(synthgeo, people, tmp_path):
    model = tmp_path / "model.state"
    command = [
        "table",
        "fit",
        people / "people.parquet",
        "--schema",
        people / "schema.json",
        "--epsilon=5",
        "--seed=1",
    ]
    plan = synthgeo(*command, "--dry-run", "--json").json["plan"]
    assert plan["budget"]["epsilon"] == 5
    assert not model.exists()
    fitted = synthgeo(*command, "--out", model)
    assert fitted.code == 0, fitted.err
    out = tmp_path / "synthetic.csv"
    sampled = synthgeo("table", "sample", model, "--out", out, "--rows=500", "--given=sex=F")
    assert sampled.code == 0, sampled.err
    table = pd.read_csv(out)
    assert len(table) == 500
    assert set(table["sex"]) == {"F"}
    assert (table["job"] == "care").mean() > 0.9
    assert "has no value 'X'" in one_line(
        synthgeo("table", "sample", model, "--out", out, "--force", "--given=sex=X").err
    )
    there = out.read_bytes()
    again = synthgeo("table", "sample", model, "--out", out, "--rows=5")
    assert again.code == 3
    assert "exists already; --force replaces it" in one_line(again.err)
    assert out.read_bytes() == there
    assert synthgeo("table", "sample", model, "--out", out, "--rows=5", "--force").code == 0
    assert len(pd.read_csv(out)) == 5
    assert "cannot write .xyz" in synthgeo("table", "sample", model, "--out", tmp_path / "a.xyz").err


def test_conditions_on_dates_lists_places_and_missing_values(synthgeo, tmp_path):
    schema = sg.Schema(
        {
            "day": sg.Date("2026-01-01", "2026-01-31"),
            "kind": sg.Categorical(["a", "b", "c"], missing=True),
            "home": sg.Location(sg.BoxDomain(0, 0, 4, 4), cells=16),
        }
    )
    rng = np.random.default_rng(1)
    rows = pd.DataFrame(
        {
            "day": pd.Timestamp("2026-01-01") + pd.to_timedelta(rng.integers(0, 30, 400), unit="D"),
            "kind": rng.choice(["a", "b", "c", None], 400),
            "home_x": rng.random(400) * 4,
            "home_y": rng.random(400) * 4,
        }
    )
    rows.iloc[:200].to_csv(tmp_path / "rows-1.csv", index=False)
    rows.iloc[200:].to_csv(tmp_path / "rows-2.csv", index=False)
    # a schema is drafted from what fit takes: several files, a glob
    drafted = synthgeo("table", "schema", tmp_path / "rows-*.csv", "--out", tmp_path / "draft.json")
    assert drafted.code == 0, drafted.err
    assert set(json.loads((tmp_path / "draft.json").read_text())["columns"]) == set(rows.columns)
    assert "exists already" in one_line(
        synthgeo("table", "schema", tmp_path / "rows-*.csv", "--out", tmp_path / "draft.json").err
    )
    (tmp_path / "schema.json").write_text(json.dumps(schema.to_json()))
    model = tmp_path / "model"
    fitted = synthgeo(
        "table", "fit", tmp_path / "rows-*.csv", "--schema", tmp_path / "schema.json", "--epsilon=9",
        "--seed=1", "--out", model,
    )  # fmt: skip
    assert fitted.code == 0, fitted.err

    def drawn(*given):
        conditions = [f"--given={one}" for one in given]
        out = tmp_path / "out.csv"
        made = synthgeo("table", "sample", model, "--out", out, "--force", "--rows=60", *conditions)
        assert made.code == 0, made.err
        return pd.read_csv(out, keep_default_na=True)

    days = pd.to_datetime(drawn("day=2026-01-05..2026-01-09")["day"])
    assert days.between("2026-01-05", "2026-01-10").all()
    assert set(drawn("kind=a", "kind=b")["kind"]) == {"a", "b"}
    assert drawn("kind=")["kind"].isna().all()
    place = drawn("home=0.5,0.5")
    assert (place["home_x"].max(), place["home_y"].max()) <= (1.0, 1.0)
    wrong = synthgeo("table", "sample", model, "--out", tmp_path / "b.csv", "--given=home=here")
    assert "no place X,Y" in one_line(wrong.err)


@pytest.mark.slow
def test_table_stream(synthgeo, people, tmp_path):
    run = tmp_path / "run"
    command = ["table", "stream", run, people / "day-*.csv"]
    settings = ["--schema", people / "schema.json", "--epsilon=5", "--seed=1"]
    assert synthgeo(*command, *settings, "--dry-run", "--json").json["plan"]["batches"] == [
        "day-1.csv",
        "day-2.csv",
    ]
    outcome = synthgeo(*command, *settings, "--json")
    assert outcome.code == 0, outcome.err
    assert [line["step"] for line in outcome.lines] == [1, 2]
    assert synthgeo("stream", "status", run, "--json").json["mechanism"] == "TabularStream"
    assert synthgeo("stream", "verify", run, "--json").json["releases"] == 2


def test_households_are_checked_run_and_sampled(synthgeo, tmp_path):
    households, persons = sg.simulate.households(400, seed=1)
    parent, child = sg.simulate.household_schemas()
    households.to_csv(tmp_path / "households.csv", index=False)
    persons.to_csv(tmp_path / "persons.csv", index=False)
    budget = sg.PrivacyBudget(2, 1e-6)
    product = sg.HouseholdSynthesizer(parent=parent, child=child, max_children=6, budget=budget)
    data = {"files": {"parents": "households.csv", "children": "persons.csv"}}
    file = sg.ReleaseFile.from_product(product, data=data).save(tmp_path / "homes.toml")
    looked = synthgeo("check", file, "--json")
    assert looked.code == 0, looked.err
    assert looked.json["rows"] == len(households) + len(persons)
    made = synthgeo("run", file)
    assert made.code == 0, made.err
    drawn = synthgeo(
        "sample", file, "--out", tmp_path / "h.csv", "-n", 50, "--given", "type=family", "--json"
    )
    assert drawn.code == 0, drawn.err
    above, below = (pd.read_csv(tmp_path / f"h-{name}.csv") for name in ("parents", "children"))
    assert len(above) == 50 == drawn.json["parents"]
    assert (above["type"] == "family").all()
    assert set(below["household_id"]) <= set(above["household_id"])
    persons.assign(household_id=10**9).to_csv(tmp_path / "persons.csv", index=False)
    lost = synthgeo("check", file)
    assert lost.code == 4
    assert "has no row in the parent table" in lost.out

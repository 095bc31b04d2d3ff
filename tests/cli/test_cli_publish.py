"""``synthgeo publish``: from a run and from models."""

from __future__ import annotations

import json

import pandas as pd
import pytest

import synthgeo as sg
from tests.cli.conftest import BOX, one_line, write_points


@pytest.fixture
def run(tmp_path, synthgeo):
    """A run of two days in a box of degrees."""
    for day in (1, 2):
        write_points(tmp_path / f"day{day}.csv", seed=day)
    files = [tmp_path / "day1.csv", tmp_path / "day2.csv"]
    done = synthgeo("stream", "run", tmp_path / "run", *files, BOX, "--crs", "EPSG:4326", "--epsilon", 1)
    assert done.code == 0, done.err
    return tmp_path / "run"


def test_a_run_becomes_a_folder(run, synthgeo, tmp_path):
    done = synthgeo("publish", run, "--to", tmp_path / "last", "--json")
    assert done.code == 0, done.err
    assert done.json["registry_lacks"]
    assert "step" not in pd.read_csv(tmp_path / "last" / "points.csv")
    done = synthgeo("publish", run, "--to", tmp_path / "all", "--steps", "all", "--formats", "csv")
    assert done.code == 0, done.err
    assert set(pd.read_csv(tmp_path / "all" / "points.csv")["step"]) == {1, 2}
    statement = json.loads((tmp_path / "all" / "statement.json").read_text())
    assert len(statement["statements"]) == 2
    assert statement["expected_error"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--steps", "9"], "steps 1 to 2"),
        (["--steps", "x"], "--steps must be"),
        (["--rows", "9"], "--rows is for models"),
        (["--formats", "shp"], "format"),
        (["--curator-type", "Club"], "curator_type"),
    ],
)
def test_wrong_options_are_one_line(run, synthgeo, tmp_path, options, says):
    done = synthgeo("publish", run, "--to", tmp_path / "out", *options)
    assert done.code == 3
    assert says in one_line(done.err)
    assert not (tmp_path / "out").exists()


def test_nowhere_to_and_nothing_from(run, synthgeo, tmp_path):
    assert "give --to" in synthgeo("publish", run).err
    assert "no folder" in synthgeo("publish", run, "--to", tmp_path / "a" / "b").err
    assert synthgeo("publish", tmp_path / "no", "--to", tmp_path / "out").code == 3
    (tmp_path / "empty").mkdir()
    assert "there is no run" in synthgeo("publish", tmp_path / "empty", "--to", tmp_path / "out").err


def test_seeded_runs_and_states_stay_here(synthgeo, tmp_path, run):
    write_points(tmp_path / "a.csv", seed=1)
    synthgeo("stream", "run", tmp_path / "seeded", tmp_path / "a.csv", BOX, "--epsilon", 1, "--seed", 3)
    done = synthgeo("publish", tmp_path / "seeded", "--to", tmp_path / "out")
    assert done.code == 3
    assert "may not be published" in one_line(done.err)
    state = next((run / "state").iterdir())
    done = synthgeo("publish", state, "--to", tmp_path / "out")
    assert "private" in one_line(done.err)


def test_a_model_of_a_table_is_sampled(synthgeo, tmp_path):
    schema = sg.simulate.census_schema()
    people = sg.simulate.census(500, steps=1, seed=1)[list(schema.columns)]
    model = sg.TabularSynthesizer(schema=schema, budget=sg.PrivacyBudget(epsilon=1.0)).fit(people)
    model.save(tmp_path / "people.model")
    done = synthgeo(
        "publish", tmp_path / "people.model", "--to", tmp_path / "out", "--rows", 70, "--formats", "csv"
    )
    assert done.code == 0, done.err
    assert len(pd.read_csv(tmp_path / "out" / "table.csv")) == 70
    assert "Harbour" in (tmp_path / "out" / "README.md").read_text()
    done = synthgeo("publish", tmp_path / "people.model", "--to", tmp_path / "x", "--steps", "all")
    assert "--steps is for runs" in done.err

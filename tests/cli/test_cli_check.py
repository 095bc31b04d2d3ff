"""``synthgeo check``, and the look that runs and fits take before they spend."""

from __future__ import annotations

import pandas as pd
import pytest

import synthgeo as sg
from tests.cli.conftest import BOX, one_line, write_points

DAY = ["--time", "time", "--every", "6h", "--start", "2015-01-01", "--end", "2015-01-02"]


@pytest.fixture
def points(tmp_path):
    """Points of one day in the west of the unit square."""
    frame = write_points(tmp_path / "a.csv", seed=1).assign(x=lambda f: f["x"] * 0.4)
    frame.to_csv(tmp_path / "a.csv", index=False)
    return tmp_path / "a.csv"


def test_check_shows_and_spends_nothing(synthgeo, tmp_path, points):
    command = ["stream", "run", tmp_path / "run", points, BOX, "--epsilon", 1, *DAY]
    done = synthgeo("check", *command)
    assert done.code == 0, done.err
    assert "ready" in done.out
    assert "curator only" in done.err
    assert not (tmp_path / "run").exists()
    done = synthgeo("check", *command, "--json")
    assert done.json["ok"]
    assert done.json["rows"] == 300


def test_a_swap_is_shown_by_check_and_stops_a_run(synthgeo, tmp_path, points):
    box = "--bounds=0,0,0.4,1"
    command = ["stream", "run", tmp_path / "run", points, box, "--epsilon", 1, "--x", "y", "--y", "x"]
    far = pd.read_csv(points).assign(y=lambda f: f["y"] * 0.3 + 0.65)
    far.to_csv(points, index=False)
    done = synthgeo("check", *command)
    assert done.code == 4
    assert "look swapped" in done.out
    done = synthgeo(*command)
    assert done.code == 4
    assert "look swapped" in one_line(done.err)
    assert not (tmp_path / "run").exists()
    done = synthgeo(*command, "--no-check")
    assert done.code == 0, done.err


def test_windows_without_data_and_outside_error(synthgeo, tmp_path, points):
    command = ["stream", "run", tmp_path / "run", points, BOX, "--epsilon", 1]
    done = synthgeo(*command, *DAY[:4], "--start", "2016-01-01", "--end", "2016-01-02")
    assert done.code == 4
    assert "right year" in one_line(done.err)
    done = synthgeo(*command, *DAY[:4], "--start", "2015-01-02", "--end", "2015-01-01")
    assert done.code == 3
    assert "must lie before" in one_line(done.err)
    done = synthgeo(
        "stream", "run", tmp_path / "run", points, "--bounds=0,0,0.3,1", "--epsilon", 1, "--outside=error"
    )
    assert done.code == 4
    assert not (tmp_path / "run").exists()


def test_an_empty_file_stops_a_new_run_and_is_a_step_of_an_old_one(synthgeo, tmp_path, points):
    (tmp_path / "b.csv").write_text("x,y,time,user_id\n")
    run = tmp_path / "run"
    done = synthgeo("stream", "run", run, tmp_path / "b.csv", BOX, "--epsilon", 1)
    assert done.code == 4
    assert "no rows" in one_line(done.err)
    assert synthgeo("stream", "run", run, points, BOX, "--epsilon", 1).code == 0
    done = synthgeo("stream", "run", run, tmp_path / "b.csv")
    assert done.code == 0
    assert "b.csv: the file is empty; it is a step all the same" in done.err


def test_the_same_file_under_another_name_stops_a_fit(synthgeo, tmp_path):
    schema = sg.Schema({"kind": sg.Categorical(["a", "b"])})
    schema.save(tmp_path / "schema.json")
    pd.DataFrame({"kind": ["a", "b", "b"]}).to_csv(tmp_path / "1.csv", index=False)
    pd.DataFrame({"kind": ["b", "b", "a"]}).to_csv(tmp_path / "2.csv", index=False)
    files = [tmp_path / "1.csv", tmp_path / "2.csv"]
    options = ["--schema", tmp_path / "schema.json", "--epsilon", 1]
    done = synthgeo("check", "table", "fit", *files, *options)
    assert done.code == 4
    assert "same records" in done.out
    done = synthgeo("table", "fit", *files, *options, "--out", tmp_path / "model")
    assert "same records" in one_line(done.err)
    assert not (tmp_path / "model").exists()
    assert synthgeo("table", "fit", files[0], *options, "--out", tmp_path / "model").code == 0


def test_check_stands_in_front_of_commands_that_spend(synthgeo):
    assert "stands in front" in one_line(synthgeo("check", "report", "x").err)

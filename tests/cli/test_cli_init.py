"""``synthgeo init`` where nobody answers: flags, defaults, and what is refused."""

from __future__ import annotations

import json
import tomllib

import pytest

from tests.cli.conftest import one_line, write_points

POINTS = ["--kind", "points", "--unattended", "--bounds", "8,47,9,48", "--epsilon", 0.5]
WINDOWS = ["--start", "2015-01-01", "--end", "2015-01-02"]


@pytest.fixture
def points(tmp_path):
    write_points(tmp_path / "a.csv", seed=1)
    return tmp_path / "a.csv"


def test_flags_and_defaults_make_a_file_with_comments(synthgeo, points):
    done = synthgeo("init", points, *POINTS, *WINDOWS)
    assert done.code == 0, done.err
    text = points.with_suffix(".toml").read_text()
    made = tomllib.loads(text)
    assert made["bounds"] == "8,47,9,48"
    assert made["crs"] == "EPSG:4326"
    assert (made["x"], made["y"], made["time"], made["every"]) == ("x", "y", "time", "1D")
    assert made["epsilon"] == 0.5
    assert "# even odds about one contribution become at most 62%" in text
    assert done.out.splitlines()[0].startswith("synthgeo check stream run runs/a ")
    assert "0.1" not in done.out
    done = synthgeo("init", points, *POINTS, *WINDOWS)
    assert "exists already" in one_line(done.err)
    assert synthgeo("init", points, *POINTS, *WINDOWS, "--force").code == 0


def test_no_row_is_read_unless_asked_for(synthgeo, tmp_path):
    data = tmp_path / "b.csv"
    data.write_bytes(b"x,y,time\nSECRET,1,\xff\xfe\n")
    done = synthgeo("init", data, *POINTS, *WINDOWS)
    assert done.code == 0, done.err
    assert "SECRET" not in done.err + done.out
    data.write_text("x,y,time\nSECRET,1,2\n")
    done = synthgeo("init", data, *POINTS, *WINDOWS, "--look", "--force")
    assert "CURATOR ONLY" in done.err
    assert "SECRET | 1 | 2" in done.err


def test_a_table_gets_a_schema(synthgeo, tmp_path):
    (tmp_path / "p.csv").write_text("id;age;sex;since;pay\n")
    columns = ["id=skip", "age=0..100", "sex=F,M?", "since=2020-01-01..2021-01-01", "pay=0..1.5"]
    flags = [part for text in columns for part in ("--column", text)]
    done = synthgeo("init", tmp_path / "p.csv", "--kind", "table", "--unattended", "--epsilon", 1, *flags)
    assert done.code == 0, done.err
    schema = json.loads((tmp_path / "p.json").read_text())["columns"]
    assert list(schema) == ["age", "sex", "since", "pay"]
    assert schema["age"]["integer"]
    assert schema["sex"] == {"type": "categorical", "values": ["F", "M"], "missing": True}
    assert schema["since"]["type"] == "datetime"
    assert tomllib.loads((tmp_path / "p.toml").read_text())["schema"].endswith("p.json")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([*POINTS], "give --start"),
        ([*POINTS, "--start", "2015-01-02", "--end", "2015-01-01"], "must lie before"),
        ([*POINTS, *WINDOWS, "--time", "when"], "no column 'when'"),
        (["--unattended", "--kind", "points", "--bounds", "459000,4970000,480000,5000000"], "no longitudes"),
        (["--unattended", "--kind", "clouds"], "--kind is one of"),
        (["--unattended"], "give --kind"),
        ([*POINTS, *WINDOWS, "--user", "user_id"], "give --max-events"),
        ([*POINTS, *WINDOWS, "--out", "/nowhere/x.toml"], "there is no folder"),
        (["--unattended", "--kind", "table", "--column", "colour=a,b"], "no column 'colour'"),
    ],
)
def test_what_makes_no_sense_is_refused_and_nothing_is_written(synthgeo, points, options, says):
    done = synthgeo("init", points, *options)
    assert done.code in (3, 4)
    assert says in one_line(done.err.splitlines()[-1] + "\n")
    assert not points.with_suffix(".toml").exists()

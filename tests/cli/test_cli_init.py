"""``synthgeo init`` where nobody answers: ``--set``, defaults, and what is refused."""

from __future__ import annotations

import tomllib

import pytest

import synthgeo as sg
from tests.cli.conftest import one_line, write_points


def sets(**answers):
    return [part for key, value in answers.items() for part in ("--set", f"{key.replace('__', '.')}={value}")]


BOX = sets(place__bounds="8,47,9,48", privacy__epsilon=0.5)
POINTS = ["--kind", "points", "--unattended", *BOX]
WINDOWS = sets(time__start="2015-01-01", time__end="2015-01-02")


@pytest.fixture
def points(tmp_path):
    write_points(tmp_path / "a.csv", seed=1)
    return tmp_path / "a.csv"


def test_answers_and_defaults_make_a_file_with_comments(synthgeo, points):
    done = synthgeo("init", points, *POINTS, *WINDOWS)
    assert done.code == 0, done.err
    path = points.with_suffix(".toml")
    text = path.read_text()
    made = tomllib.loads(text)
    assert made["place"] == {"bounds": [8, 47, 9, 48], "crs": "EPSG:4326"}
    assert made["columns"] == {"x": "x", "y": "y", "crs": "EPSG:4326", "time": "time"}
    assert made["time"]["every"] == "1D"
    assert made["data"]["files"] == "a.csv"
    assert "# even odds about one contribution become at most 62%" in text
    assert done.out.splitlines() == [
        f"synthgeo check {path}", f"synthgeo run {path}", f"synthgeo publish {path} --to a-public"
    ]  # fmt: skip
    assert sg.ReleaseFile.load(path).product().budget.epsilon == 0.5
    assert "exists already" in one_line(synthgeo("init", points, *POINTS, *WINDOWS).err)
    assert synthgeo("init", points, *POINTS, *WINDOWS, "--force", "--json").json["kind"] == "points"


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


def test_people_are_protected_with_a_bound(synthgeo, points):
    bound = sets(columns__user="user_id", privacy__unit__max_events=3)
    assert synthgeo("init", points, *POINTS, *WINDOWS, *bound).code == 0
    made = tomllib.loads(points.with_suffix(".toml").read_text())
    assert made["privacy"]["unit"] == {"of": "user", "max_events": 3}
    assert made["columns"]["user"] == "user_id"
    assert made["method"]["deletions"] is False


def test_a_table_gets_a_schema(synthgeo, tmp_path):
    """Decimals are kept, bins are found, dates without time stay dates, a quoted value keeps its comma."""
    (tmp_path / "p.csv").write_text("id;age;sex;since;pay;seen\n")
    columns = [
        "id=skip", "age=0..100", 'sex="F, or f",M?', "since=2020-01-01..2021-01-01", "pay=0..1.50",
        "seen=2020-01-01T00:00..2021-01-01T00:00",
    ]  # fmt: skip
    flags = [part for text in columns for part in ("--column", text)]
    done = synthgeo("init", tmp_path / "p.csv", "--kind", "table", "--unattended", *flags)
    assert done.code == 0, done.err
    schema = tomllib.loads((tmp_path / "p.toml").read_text())["schema"]
    assert list(schema) == ["age", "sex", "since", "pay", "seen"]
    assert schema["age"] == {"type": "numeric", "low": 0, "high": 100, "integer": True, "bins": "auto"}
    assert schema["sex"] == {"type": "categorical", "values": ["F, or f", "M"], "missing": True}
    assert schema["since"]["type"] == "date"
    assert schema["pay"]["decimals"] == 2
    assert schema["seen"]["parts"] == ["date", "hour"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([*POINTS], "give --set time.start"),
        ([*POINTS, *sets(time__start="2015-01-02", time__end="2015-01-01")], "must lie before"),
        ([*POINTS, *WINDOWS, *sets(columns__time="when")], "no column 'when'"),
        ([*POINTS[:3], *sets(place__bounds="459000,4970000,480000,5000000")], "no longitudes"),
        (["--unattended", "--kind", "clouds"], "kind is one of"),
        (["--unattended"], "give --set kind"),
        ([*POINTS, *WINDOWS, *sets(columns__user="user_id")], "give --set privacy.unit.max_events"),
        ([*POINTS, *WINDOWS, *sets(data__reading__decimals=",")], "reading has no 'decimals'"),
        ([*POINTS, *WINDOWS, *sets(method__max_depht=3)], "the nearest is 'max_depth'"),
        ([*POINTS, *WINDOWS, "--out", "/nowhere/x.toml"], "there is no folder"),
        (["--unattended", "--kind", "table", "--column", "colour=a,b"], "no column 'colour'"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_and_nothing_is_written(synthgeo, points, options, says):
    done = synthgeo("init", points, *options)
    assert done.code in (3, 4)
    assert says in one_line(done.err.splitlines()[-1] + "\n")
    assert not points.with_suffix(".toml").exists()

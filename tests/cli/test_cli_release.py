"""``run``, ``status``, ``sample``, ``publish`` and the others with a release file."""

from __future__ import annotations

import json
import shutil

import pandas as pd
import pytest

from tests.cli.conftest import one_line, write_points
from tests.cli.test_cli_basics import commands

POINTS = """\
kind = "points"

[data]
files = "in/*.csv"

[columns]
x = "x"
y = "y"
time = "time"

[privacy]
epsilon = 1.0

[place]
bounds = [0, 0, 1, 1]

[time]
every = "6h"
start = 2015-01-01
end = "2015-01-01T12:00"

[method]
max_depth = 6
"""
TABLE = """\
kind = "table"

[data]
files = "people.csv"

[privacy]
epsilon = 4.0

[schema.age]
type = "numeric"
low = 0
high = 100
bins = 4

[schema.sex]
type = "categorical"
values = ["F", "M"]
"""


@pytest.fixture
def points(tmp_path):
    (tmp_path / "in").mkdir()
    write_points(tmp_path / "in" / "a.csv", seed=1)
    path = tmp_path / "points.toml"
    path.write_text(POINTS)
    return path


@pytest.fixture
def table(tmp_path):
    pd.DataFrame({"age": range(100), "sex": ["F", "M"] * 50}).to_csv(tmp_path / "people.csv", index=False)
    path = tmp_path / "table.toml"
    path.write_text(TABLE)
    return path


def test_a_run_takes_what_is_new_and_says_why_nothing_is(synthgeo, points, tmp_path):
    assert "nothing yet" in synthgeo("status", points).out
    assert synthgeo("check", points).code == 0
    assert not (tmp_path / "runs").exists()
    first = synthgeo("run", points)
    assert first.code == 0
    assert "2 new, 2 in all; spent ε = 1" in first.out
    assert "2015-01-01T06:00:00: step 2" in first.err
    again = synthgeo("run", points)
    assert (again.code, again.out) == (0, "all 2 windows up to [time] end are released; nothing new\n")
    status = synthgeo("status", points, "--verify")
    assert "spends nothing more" in status.out
    assert "2 releases, all as the ledger remembers them" in status.out
    assert synthgeo("status", points, "--json").json["released"] is True


def test_a_second_month_is_a_new_file_and_the_same_command(synthgeo, points, tmp_path):
    synthgeo("run", points)
    write_points(tmp_path / "in" / "b.csv", seed=2, hours=12)  # rows of windows that are released
    write_points(tmp_path / "in" / "c.csv", seed=3, hours=18)
    late = synthgeo("run", points)
    assert late.code == 0
    longer = synthgeo("run", points, "--set", 'time.end="2015-01-01T18:00"', "--json")
    assert longer.code == 0
    assert [line.get("batch") for line in longer.lines] == ["2015-01-01T12:00:00", None]
    assert longer.lines[-1]["new"] == 1
    assert longer.lines[-1]["steps"] == 3
    assert "rows came after their window was released" in longer.err
    assert points.read_text() == POINTS, "--set leaves the file as it is"


def test_a_run_is_not_cut_anew(synthgeo, points):
    synthgeo("run", points)
    anew = synthgeo("run", points, "--set", "time.every=3h")
    assert anew.code == 6
    assert "was cut with every = '6h'" in one_line(anew.err)
    dearer = synthgeo("run", points, "--set", "privacy.epsilon=2")
    assert dearer.code == 6


def test_what_does_not_fit_stops_before_anything_is_spent(synthgeo, points, tmp_path):
    (tmp_path / "in" / "bad.csv").write_text("x,y,time,user_id\n0.1,nonsense,2015-01-01 01:00,3\n")
    checked, ran = synthgeo("check", points), synthgeo("run", points)
    assert (checked.code, ran.code) == (4, 4)
    assert "'y'" in checked.out
    assert "'y'" in one_line(ran.err)
    assert not (tmp_path / "runs").exists()
    dropped = synthgeo("run", points, "--set", 'data.reading.bad_rows="drop"')
    assert dropped.code == 0


def test_a_wrong_file_or_option_is_one_line(synthgeo, points, tmp_path):
    for arguments, code, said in (
        (["run", tmp_path / "none.toml"], 3, "cannot read the release file"),
        (["run", points, "--set", "privacy.epsilom=1"], 3, "the nearest is 'epsilon'"),
        (["run", points, "--set", "privacy.epsilon"], 3, "section.key=value"),
        (["run", points, "--watch", tmp_path], 3, 'every = "file"'),
        (["publish", points, "--title", "x"], 3, "--title does not go with a release file"),
        (["evaluate", points, "--x", "x"], 3, "--x does not go with a release file"),
        (["publish", points], 3, "nothing is released"),
        (["sample", points, "--out", tmp_path / "s.csv"], 3, "nothing is released"),
        (["check", points, "--nonsense"], 3, "not --nonsense"),
        (["plan", points], 3, "give --rows"),
    ):
        outcome = synthgeo(*arguments)
        assert (outcome.code, said in one_line(outcome.err)) == (code, True), outcome


def test_a_table_is_released_once_drawn_and_handed_on(synthgeo, table, tmp_path):
    assert "1 new, 1 in all; spent ε = 4" in synthgeo("run", table).out
    assert "nothing new" in synthgeo("run", table).out
    out = tmp_path / "drawn.csv"
    drawn = synthgeo("sample", table, "--out", out, "-n", 40, "--given", "sex=F", "--json")
    assert drawn.json["rows"] == 40
    assert set(pd.read_csv(out)["sex"]) == {"F"}
    assert synthgeo("sample", table, "--out", out).code == 3, "what is there is not replaced"
    assert synthgeo("sample", table, "--out", tmp_path / "x.csv", "--hour", 3).code == 3
    made = synthgeo(
        "publish", table, "--to", tmp_path / "public", "--set", 'publish.formats=["csv"]', "--json"
    )
    assert "table.csv" in made.json["files"]
    assert synthgeo("publish", table, "--to", tmp_path / "public").code == 3
    assert synthgeo("publish", table, "--to", tmp_path / "public", "--force").code == 0
    metrics = synthgeo("evaluate", table, "--repeats", 1, "--json")
    assert metrics.json["metrics"]
    page = synthgeo("report", table, "--public", "--out", tmp_path / "page.html")
    assert "may be published" in page.err


def test_a_watched_folder_is_a_run_whose_steps_are_files(synthgeo, points, tmp_path):
    shutil.copy(tmp_path / "in" / "a.csv", tmp_path / "in" / "b.csv")
    write_points(tmp_path / "in" / "b.csv", seed=2)
    text = POINTS.partition("[time]")[0] + '[time]\nevery = "file"\n'
    points.write_text(text)
    watched = synthgeo("run", points, "--watch", tmp_path / "in", "--idle", 0, "--settle", 0)
    assert watched.code == 0, watched.err
    assert "2 new, 2 in all" in watched.out
    assert "every file is released" in synthgeo("run", points).out


def test_seeded_noise_is_said_and_not_published(synthgeo, table, tmp_path):
    ran = synthgeo("run", table, "--set", "privacy.seed=3")
    assert "do not publish" in ran.err
    assert synthgeo("publish", table, "--to", tmp_path / "p", "--set", "privacy.seed=3").code == 3


def test_plan_reads_no_data(synthgeo, table, tmp_path):
    (tmp_path / "people.csv").unlink()
    planned = synthgeo("plan", "--rows", 500, "--epsilons", "1", table, "--json")
    assert planned.json["rows"] == 500


def test_evaluate_compares_with_the_released_windows_alone(synthgeo, points, tmp_path):
    """Rows of windows that are still to come are no part of what the release stands for."""
    import synthgeo as sg
    from synthgeo.release_file.released import last_release, truth_of

    write_points(tmp_path / "in" / "b.csv", seed=2, hours=48)
    synthgeo("run", points)
    file = sg.ReleaseFile.load(points)
    rows = pd.concat([pd.read_csv(path) for path in (tmp_path / "in").glob("*.csv")])
    early = rows[pd.to_datetime(rows["time"]) < "2015-01-01T12:00"]
    assert len(truth_of(file, *last_release(file))) == len(early) < len(rows)
    lately = file.but({"time.lifetime": 1, "folder": "runs/lately"})
    lately.run()
    last = early[pd.to_datetime(early["time"]) >= "2015-01-01T06:00"]
    assert len(truth_of(lately, *last_release(lately))) == len(last)


def test_a_release_is_withdrawn(synthgeo, table, tmp_path):
    nothing = synthgeo("withdraw", table, "--reason", "why")
    assert "nothing to withdraw" in one_line(nothing.err)
    public = tmp_path / "public"
    synthgeo("run", table)
    synthgeo("publish", table, "--to", public)
    done = synthgeo("withdraw", table, "--reason", "a <column> too many", "--published", public)
    assert done.code == 0, done.err
    assert "a <column> too many" in synthgeo("status", table).out
    for verb in (["run", table], ["publish", table, "--to", tmp_path / "again"]):
        refused = synthgeo(*verb)
        assert refused.code == 3
        assert "what it spent stays spent" in one_line(refused.err)
    assert "WITHDRAWN" in (public / "README.md").read_text()
    assert "a &lt;column&gt; too many" in (public / "data-card.html").read_text()
    assert json.loads((public / "statement.json").read_text())["reason"] == "a <column> too many"
    assert synthgeo("verify", public).code == 0


def test_the_json_schema_is_printed(synthgeo):
    assert json.loads(synthgeo("schema").out)["required"] == ["kind", "privacy"]


def test_no_command_for_release_files_has_more_than_twelve_options():
    for path, command in commands():
        if path[0] in ("run", "status", "sample", "schema"):
            options = [
                one for one in command.params if one.param_type_name == "option" and one.name != "help"
            ]
            assert len(options) <= 12, path

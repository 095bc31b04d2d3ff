"""``stream run`` and ``table stream`` on a run that exists: it keeps its promise, its cut and its batches."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pandas as pd
import pytest

import synthgeo as sg
from tests.cli.conftest import BOX, one_line, write_points

POINTS = [BOX, "--epsilon=1", "--seed=7", "--depth=8"]


@pytest.fixture
def points(synthgeo, tmp_path):
    """A run of points with one step, and the file of the next."""
    for number in (1, 2):
        write_points(tmp_path / f"day-{number}.csv", seed=number)
    run = tmp_path / "run"
    assert synthgeo("stream", "run", run, tmp_path / "day-1.csv", *POINTS).code == 0
    return ["stream", "run", run, tmp_path / "day-2.csv"]


@pytest.fixture
def table(synthgeo, tmp_path):
    """A run of a table with one step, and the file of the next."""
    for number in (1, 2):
        frame = pd.DataFrame({"sex": ["F", "M"] * (20 + number), "who": range(40 + 2 * number)})
        frame.to_csv(tmp_path / f"month-{number}.csv", index=False)
    for name, values in (("schema", ["F", "M"]), ("other", ["F", "M", "X"])):
        columns = {"sex": {"type": "categorical", "values": values}}
        (tmp_path / f"{name}.json").write_text(json.dumps({"columns": columns}))
    run = tmp_path / "table"
    new = ["--schema", tmp_path / "schema.json", "--epsilon=1", "--seed=7"]
    assert synthgeo("table", "stream", run, tmp_path / "month-1.csv", *new).code == 0
    return ["table", "stream", run, tmp_path / "month-2.csv"]


def steps(synthgeo, run):
    return len(synthgeo("stream", "status", run, "--json").json["steps"])


@pytest.mark.parametrize(
    ("option", "named"),
    [
        ("--epsilon=2", "budget"),
        ("--user=user_id --max-events=3", "unit"),
        ("--seed=8", "noise"),
        ("--depth=9", "max_depth"),
        ("--persist", "persist"),
        ("--lifetime=3", "lifetime"),
        ("--user=user_id --max-events=3 --per=4", "unit"),
        ("--counter=binary", "counter"),
        ("--schedule=every_step", "schedule"),
        ("--bounds=0,0,1,2", "domain"),
        (f"{BOX} --crs=EPSG:4326", "domain"),
        ("--x=lon --y=lat", "columns"),
        ("--xy-crs=EPSG:4326", "columns"),
        ("--parts=data,cells", "stores"),
        ("--delta=1e-6", "delta=0"),
        ("--time=time --every=6h", "takes each file as one batch"),
    ],
)
def test_options_that_change_a_run_of_points_are_refused(synthgeo, points, option, named):
    refused = synthgeo(*points, *option.split())
    assert refused.code in (3, 6)
    assert named in one_line(refused.err)
    assert steps(synthgeo, points[2]) == 1


def test_options_that_change_a_run_in_the_settings_file_are_refused(synthgeo, points, tmp_path):
    (tmp_path / "run.toml").write_text("max-events = 3\nuser = 'user_id'\n")
    refused = synthgeo(*points, "--config", tmp_path / "run.toml")
    assert refused.code == 6
    assert "unit" in one_line(refused.err)
    (tmp_path / "run.toml").write_text("bounds = [0, 0, 1, 1]\nepsilon = 1.0\nseed = 7\ndepth = 8\n")
    assert synthgeo(*points, "--config", tmp_path / "run.toml").code == 0


@pytest.mark.parametrize(
    "option", ["--epsilon=1", "--seed=7 --depth=8", " ".join(POINTS), "--parts=data", ""]
)
def test_the_same_options_go_on_with_points(synthgeo, points, option):
    done = synthgeo(*points, *option.split())
    assert done.code == 0, done.err
    assert steps(synthgeo, points[2]) == 2


@pytest.mark.parametrize(
    ("option", "named"),
    [
        ("--epsilon=2", "budget"),
        ("--user=who --max-events=3", "unit"),
        ("--seed=8", "noise"),
        ("--marginals=2", "marginals_per_step"),
        ("--counter=binary", "counter"),
        ("--schedule=every_step", "schedule"),
        ("--schema=OTHER", "schema"),
    ],
)
def test_options_that_change_a_run_of_a_table_are_refused(synthgeo, table, tmp_path, option, named):
    option = option.replace("OTHER", str(tmp_path / "other.json"))
    refused = synthgeo(*table, *option.split())
    assert refused.code in (3, 6)
    assert named in one_line(refused.err)
    assert steps(synthgeo, table[2]) == 1


@pytest.mark.parametrize("option", ["--epsilon=1 --marginals=4", "--seed=7", ""])
def test_the_same_options_go_on_with_a_table(synthgeo, table, option):
    assert synthgeo(*table, *option.split()).code == 0
    assert steps(synthgeo, table[2]) == 2


def test_points_and_tables_are_told_apart(synthgeo, points, table):
    refused = synthgeo("stream", "run", table[2], table[3], "--depth=9")
    assert "a run of TabularStream" in one_line(refused.err)


def test_a_run_of_users_keeps_its_bound(synthgeo, tmp_path):
    for number in (1, 2):
        write_points(tmp_path / f"day-{number}.csv", seed=number)
    begin = ["stream", "run", tmp_path / "run", tmp_path / "day-1.csv", *POINTS]
    assert synthgeo(*begin, "--user=user_id", "--max-events=3").code == 0
    go_on = ["stream", "run", tmp_path / "run", tmp_path / "day-2.csv"]
    assert "unit" in one_line(synthgeo(*go_on, "--max-events=30").err)
    assert synthgeo(*go_on, "--max-events=3").code == 0


def test_the_same_file_under_another_name_is_refused(synthgeo, points, tmp_path):
    shutil.copy(tmp_path / "day-1.csv", tmp_path / "day-3.csv")
    again = ["stream", "run", points[2], tmp_path / "day-3.csv"]
    refused = synthgeo(*again)
    assert refused.code == 6
    assert "holds the records of batch 'day-1.csv', step 1" in one_line(refused.err)
    assert "--allow-repeat" in refused.err
    assert steps(synthgeo, points[2]) == 1
    assert synthgeo(*again, "--allow-repeat").code == 0


GRID = ["--time=time", "--every=6h", "--start=2015-01-01"]


@pytest.fixture
def windows(synthgeo, tmp_path):
    """A run of two windows of six hours, of a file that holds four."""
    write_points(tmp_path / "a.parquet", seed=1, hours=24)
    run = tmp_path / "run"
    begun = synthgeo("stream", "run", run, tmp_path / "a.parquet", *POINTS, *GRID, "--end=2015-01-01T12:00")
    assert begun.code == 0, begun.err
    return ["stream", "run", run, tmp_path / "a.parquet"]


def test_a_run_goes_on_as_it_was_cut(synthgeo, windows):
    """Not with the whole file as one more step, in which every event would pay again."""
    plain = synthgeo(*windows, "--json")
    assert plain.code == 0, plain.err
    assert [line["repeated"] for line in plain.lines] == [True, True]
    longer = synthgeo(*windows, "--end=2015-01-02", "--json")
    assert [line["batch"][-8:] for line in longer.lines] == ["00:00:00", "06:00:00", "12:00:00", "18:00:00"]
    assert [line["repeated"] for line in longer.lines] == [True, True, False, False]


@pytest.mark.parametrize("option", ["--every=3h --time=time", "--start=2015-01-01T03:00", "--start=soon"])
def test_other_windows_are_refused(synthgeo, windows, option):
    refused = synthgeo(*windows, *option.split(), "--end=2015-01-02")
    assert refused.code in (3, 6)
    one_line(refused.err)
    assert steps(synthgeo, windows[2]) == 2


def test_later_windows_of_the_same_grid_are_taken(synthgeo, windows):
    later = synthgeo(*windows, "--start=2015-01-01T12:00", "--end=2015-01-02", "--json")
    assert later.code == 0, later.err
    assert [line["repeated"] for line in later.lines] == [False, False]


def test_windows_and_folders_do_not_mix(synthgeo, windows, tmp_path):
    refused = synthgeo("stream", "run", windows[2], "--watch", tmp_path, "--idle=0")
    assert "--watch does not go with that" in one_line(refused.err)


def test_empty_windows_are_steps(synthgeo, tmp_path):
    write_points(tmp_path / "a.parquet", seed=1, hours=6)
    grid = [*GRID, "--end=2015-01-02"]
    done = synthgeo("stream", "run", tmp_path / "run", tmp_path / "a.parquet", *POINTS, *grid, "--json")
    assert done.code == 0, done.err
    assert [line["repeated"] for line in done.lines] == [False] * 4


def test_seeded_runs_are_not_to_be_published(synthgeo, points, table):
    for run in (points[2], table[2]):
        status = synthgeo("stream", "status", run)
        assert "do not publish" in status.err
        assert "may be published  NO" in status.out
        assert synthgeo("stream", "status", run, "--json").json["releasable"] is False
    for command in (points, table):
        assert "do not publish" in synthgeo(*command).err


def test_runs_with_real_noise_may_be_published(synthgeo, tmp_path):
    write_points(tmp_path / "day.csv", seed=1)
    run = tmp_path / "run"
    done = synthgeo("stream", "run", run, tmp_path / "day.csv", BOX, "--epsilon=1", "--depth=6")
    assert done.code == 0
    status = synthgeo("stream", "status", run)
    assert "publish" not in done.err + status.err
    assert "may be published  yes" in status.out


def test_names_with_brackets_are_shown_as_they_are(synthgeo, tmp_path):
    stream = sg.PHDStream(
        domain=sg.BoxDomain(0, 0, 1, 1), budget=sg.PrivacyBudget(1.0), settings=sg.PointSettings(max_depth=6)
    )
    with sg.StreamRun.open(tmp_path / "run", stream) as run:
        run.step("[/]", np.full((5, 2), 0.5))
        run.step("[red]day", np.full((6, 2), 0.5))
    status = synthgeo("stream", "status", tmp_path / "run")
    assert status.code == 0, status.err
    assert "[/]" in status.out
    assert "[red]day" in status.out


def test_looking_at_a_run_writes_nothing(synthgeo, points, tmp_path):
    run = points[2]
    before = {path: path.stat().st_mtime_ns for path in [run, *run.rglob("*")]}
    page = tmp_path / "page.html"
    for command in (
        ["stream", "status", run],
        ["stream", "verify", run],
        ["evaluate", run, "--real", tmp_path / "day-1.csv", "--repeats=1"],
        ["report", run, "--real", tmp_path / "day-1.csv", "--out", page],
    ):
        done = synthgeo(*command)
        assert done.code == 0, done.err
    assert {path: path.stat().st_mtime_ns for path in [run, *run.rglob("*")]} == before


def test_a_lifetime_in_time_is_kept_and_releases_know_their_window(synthgeo, tmp_path):
    when = pd.Timestamp("2026-03-01") + pd.to_timedelta(np.repeat(np.arange(4), 30), unit="D")
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"x": rng.random(120), "y": rng.random(120), "when": when, "who": range(120)})
    frame.to_csv(tmp_path / "a.csv", index=False)
    run = tmp_path / "run"
    cut = ["--time=when", "--every=1D", "--start=2026-03-01"]
    new = [*POINTS, "--lifetime=2D", "--user=who", "--max-events=1", "--per=1MS"]
    assert synthgeo("stream", "run", run, tmp_path / "a.csv", *new, *cut, "--end=2026-03-03").code == 0
    assert synthgeo("stream", "run", run, tmp_path / "a.csv", "--lifetime=2D", "--end=2026-03-05").code == 0
    refused = synthgeo("stream", "run", run, tmp_path / "a.csv", "--lifetime=3D", "--end=2026-03-05")
    assert refused.code == 6
    with sg.StreamRun.view(run) as view:
        last = view.release(view.batches[-1])
        assert view.stream().lifetime == 2
        assert "one calendar month" in view.unit.describe()
    assert last.provenance["window_start"] == "2026-03-04T00:00:00"
    assert set(last.data["window_start"].dt.day) == {3, 4}


def test_times_inside_windows_and_deletions_of_tables_from_the_command_line(synthgeo, tmp_path):
    when = pd.Timestamp("2026-03-01T07:00") + pd.to_timedelta(np.repeat(np.arange(3), 40), unit="D")
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"x": rng.random(120), "y": rng.random(120), "sex": "F", "when": when})
    gone = frame[:10].assign(op=-1, since=frame["when"][:10], when=frame["when"].max())
    frame.to_csv(tmp_path / "points.csv", index=False)
    pd.concat([frame.assign(op=1, since=frame["when"]), gone]).to_csv(tmp_path / "rows.csv", index=False)
    columns = {"columns": {"sex": {"type": "categorical", "values": ["F", "M"]}}}
    (tmp_path / "schema.json").write_text(json.dumps(columns))
    cut = ["--time=when", "--every=1D", "--start=2026-03-01", "--end=2026-03-04", "--lifetime=3D"]
    asked = ["--epsilon=200", "--times=hour", "--times-share=0.2", "--no-borrow"]
    table = ["--schema", tmp_path / "schema.json", "--seed=7", "--inserted=since"]
    for command, run, file, own in (
        (["stream", "run"], tmp_path / "points", tmp_path / "points.csv", [BOX, "--seed=7"]),
        (["table", "stream"], tmp_path / "table", tmp_path / "rows.csv", table),
    ):
        done = synthgeo(*command, run, file, *own, *asked, *cut)
        assert done.code == 0, done.err
        refused = synthgeo(*command, run, file, "--times=minute")
        assert refused.code == 6, refused.err
        with sg.StreamRun.view(run) as view:
            last, stream = view.release(view.batches[-1]), view.stream()
        assert (last.data["time"].dt.hour == 7).all()
        chosen = stream.settings
        assert (chosen.times, chosen.times_share, chosen.borrow) == ("hour", 0.2, False)
        assert last.provenance["times_share"] == 0.2
        assert abs(len(last.data) - (120 if command[0] == "stream" else 110)) <= 5


def test_files_that_repeat_are_found_where_windows_are_cut_out_of_all_of_them(synthgeo, tmp_path):
    """``check`` found the second file, and a run counted each of its events twice."""
    rng = np.random.default_rng(1)
    when = pd.Timestamp("2026-03-01") + pd.to_timedelta(rng.integers(0, 2 * 86_400, 400), unit="s")
    frame = pd.DataFrame({"x": rng.random(400), "y": rng.random(400), "time": when})
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.sample(frac=1, random_state=1).to_csv(tmp_path / "b.csv", index=False)
    frame[:150].to_csv(tmp_path / "c.csv", index=False)
    cut = ["--time=time", "--every=1D", "--start=2026-03-01", "--end=2026-03-03"]
    new = ["--bounds=0,0,1,1", "--crs=EPSG:4326", "--epsilon=1", "--seed=1"]

    def files(*names):
        return [tmp_path / f"{name}.csv" for name in names]

    for name, words in (("b", "holds the same records as"), ("c", "share some 100%")):
        refused = synthgeo("stream", "run", tmp_path / f"new-{name}", *files("a", name), *cut, *new)
        assert refused.code == 4
        assert words in refused.err
        assert not (tmp_path / f"new-{name}").exists()
        run = tmp_path / f"old-{name}"
        assert synthgeo("stream", "run", run, *files("a"), *cut, *new).code == 0
        later = synthgeo("stream", "run", run, *files("a", name))
        assert later.code == 4
        assert words in later.err
    alone = tmp_path / "unattended"
    done = synthgeo("stream", "run", alone, *files("a", "b"), *cut, *new, "--unattended", "--json")
    assert done.code == 0
    assert len(done.lines) == 2
    assert "same records" not in done.err


def test_a_watched_folder_takes_a_repeated_file_and_status_tells_the_curator(synthgeo, tmp_path):
    """It used to end the watch, so that nothing more was released."""
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"x": rng.random(100), "y": rng.random(100)})
    for name, rows in {"1": frame, "2": frame, "3": frame + 5, "4": frame[:0]}.items():
        rows.to_csv(inbox / f"{name}.csv", index=False)
    watch = ["--watch", inbox, "--poll=0.05", "--settle=0", "--idle=0"]
    new = ["--bounds=0,0,1,1", "--crs=EPSG:4326", "--epsilon=1", "--seed=1"]
    done = synthgeo("stream", "run", tmp_path / "run", *watch, *new, "--json")
    assert done.code == 0, done.err
    assert [line["step"] for line in done.lines] == [1, 2, 3, 4]
    assert "1.csv" not in done.err.replace("watching", "")
    assert "empty" not in done.err
    status = synthgeo("stream", "status", tmp_path / "run", "--json")
    remarks = status.lines[0]["for_the_curator_only"]
    assert list(remarks) == ["2.csv", "4.csv"]
    assert "records of batch '1.csv'" in remarks["2.csv"][0]
    assert "holds the records" in synthgeo("stream", "status", tmp_path / "run").out

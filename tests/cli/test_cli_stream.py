"""``synthgeo stream``: durable runs, windows, folders that fill up, signals."""

from __future__ import annotations

import signal
import time

import geopandas as gpd
import pandas as pd
import pytest

from synthgeo.release import read_provenance
from tests.cli.conftest import BOX, one_line, start, write_points

NEW = [BOX, "--epsilon=1", "--seed=7", "--depth=8"]


def releases(run):
    return sorted(path for path in (run / "releases").rglob("data.parquet"))


def test_run_goes_on_where_it_stopped_and_repeats_nothing(synthgeo, tmp_path):
    for number in range(3):
        write_points(tmp_path / f"day-{number}.csv", seed=number)
    run = tmp_path / "run"
    first = synthgeo("stream", "run", run, tmp_path / "day-0.csv", *NEW, "--json")
    assert first.code == 0, first.err
    assert [line["batch"] for line in first.lines] == ["day-0.csv"]
    again = synthgeo("stream", "run", run, tmp_path / "day-*.csv", "--json")
    assert again.code == 0, again.err
    assert [(line["batch"], line["step"], line["repeated"]) for line in again.lines] == [
        ("day-0.csv", 1, True),
        ("day-1.csv", 2, False),
        ("day-2.csv", 3, False),
    ]
    assert len(releases(run)) == 3
    points = gpd.read_parquet(releases(run)[0])
    assert points.geometry.within(
        gpd.GeoSeries.from_wkt(["POLYGON((0 0,1 0,1 1,0 1,0 0))"])[0].buffer(1e-9)
    ).all()
    assert read_provenance(releases(run)[0])["releasable"] is False


def test_status_and_verify(synthgeo, tmp_path):
    write_points(tmp_path / "day.csv", seed=1)
    run = tmp_path / "run"
    assert synthgeo("stream", "run", run, tmp_path / "day.csv", *NEW).code == 0
    status = synthgeo("stream", "status", run, "--json").json
    assert status["mechanism"] == "PHDStream"
    assert status["spent"] == {"epsilon": 1.0, "delta": 0.0}
    assert [step["batch"] for step in status["steps"]] == ["day.csv"]
    shown = synthgeo("stream", "status", run)
    assert "day.csv" in shown.out
    assert "ε = 1 of ε = 1" in shown.out
    verified = synthgeo("stream", "verify", run, "--json")
    assert verified.json["releases"] == 1
    file = releases(run)[0]
    file.chmod(0o600)
    file.write_bytes(file.read_bytes() + b"x")
    damaged = synthgeo("stream", "verify", run)
    assert damaged.code == 7
    one_line(damaged.err)


def test_a_long_run_can_be_looked_at_and_compacted(synthgeo, tmp_path, monkeypatch):
    for number in range(5):
        write_points(tmp_path / f"day-{number}.csv", seed=number, rows=30)
    run = tmp_path / "run"
    assert synthgeo("stream", "run", run, tmp_path / "day-*.csv", *NEW).code == 0
    status = synthgeo("stream", "status", run, "--last=2")
    assert "the last 2 of them" in status.out
    assert "day-4.csv" in status.out
    assert "day-2.csv" not in status.out
    assert "day-0.csv" in synthgeo("stream", "status", run, "--last=0").out
    monkeypatch.setattr("synthgeo.cli.runs._NEWEST", 2)
    file = releases(run)[1]
    whole = file.read_bytes()
    file.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    assert "the last 2 were read" in synthgeo("stream", "verify", run).out
    deep = synthgeo("stream", "verify", run, "--deep")
    assert deep.code == 7
    assert "000002-day-1.csv" in one_line(deep.err)
    file.write_bytes(whole)
    assert "all as the ledger remembers them" in synthgeo("stream", "verify", run, "--deep").out
    done = synthgeo("stream", "compact", run, "--keep-every=3", "--json")
    assert done.json["removed"] == 3
    assert [path.parent.name[:6] for path in releases(run)] == ["000003", "000005"]
    again = synthgeo("stream", "run", run, tmp_path / "day-*.csv", "--json")
    assert again.code == 0, again.err
    assert [line["repeated"] for line in again.lines] == [True] * 5
    assert synthgeo("stream", "verify", run, "--deep").code == 0
    assert "2 releases removed" not in synthgeo("stream", "compact", run, "--keep-every=3").out
    assert synthgeo("stream", "compact", run, "--keep-every=2").code == 3


def test_other_content_under_a_known_name_is_refused(synthgeo, tmp_path):
    write_points(tmp_path / "day.csv", seed=1)
    run = tmp_path / "run"
    assert synthgeo("stream", "run", run, tmp_path / "day.csv", *NEW).code == 0
    write_points(tmp_path / "day.csv", seed=2)
    refused = synthgeo("stream", "run", run, tmp_path / "day.csv")
    assert refused.code == 6
    assert "other content" in one_line(refused.err)
    assert len(releases(run)) == 1


def test_windows_are_steps_and_can_be_repeated(synthgeo, tmp_path):
    write_points(tmp_path / "a.parquet", seed=1, hours=12)
    write_points(tmp_path / "b.parquet", seed=2, hours=12)
    grid = ["--time=time", "--every=6h", "--start=2015-01-01", "--end=2015-01-02"]
    run = tmp_path / "run"
    first = synthgeo("stream", "run", run, tmp_path / "*.parquet", *grid, *NEW, "--json")
    assert first.code == 0, first.err
    assert [line["batch"] for line in first.lines] == [
        f"2015-01-01T{hour:02d}:00:00" for hour in (0, 6, 12, 18)
    ]
    again = synthgeo("stream", "run", run, tmp_path / "*.parquet", *grid, "--json")
    assert [line["repeated"] for line in again.lines] == [True] * 4


def test_ends_from_the_data_are_announced(synthgeo, tmp_path):
    write_points(tmp_path / "a.parquet", seed=1, hours=6)
    outcome = synthgeo(
        "stream", "run", tmp_path / "run", tmp_path / "a.parquet", "--time=time", "--every=6h", *NEW
    )
    assert outcome.code == 0
    assert "warning: start and end of the grid" in outcome.err


def test_dry_run_spends_nothing(synthgeo, tmp_path):
    write_points(tmp_path / "a.csv", seed=1)
    run = tmp_path / "run"
    plan = synthgeo("stream", "run", run, tmp_path / "a.csv", *NEW, "--dry-run", "--json").json["plan"]
    assert plan["batches"] == ["a.csv"]
    assert plan["exists"] is False
    assert not run.exists()
    assert synthgeo("stream", "run", run, tmp_path / "a.csv", *NEW).code == 0
    write_points(tmp_path / "b.csv", seed=1)
    shown = synthgeo("stream", "run", run, tmp_path / "*.csv", "--dry-run")
    assert "b.csv" in shown.out
    assert "ε = 1" in shown.out
    assert len(releases(run)) == 1
    grid = ["--time=time", "--every=6h", "--start=2015-01-01", "--end=2015-01-02"]
    windows = synthgeo(
        "stream", "run", tmp_path / "other", tmp_path / "a.csv", *NEW, *grid, "--dry-run", "--json"
    )
    assert len(windows.json["plan"]["batches"]) == 4
    private = synthgeo("stream", "run", tmp_path / "other", tmp_path / "a.csv", *NEW, *grid[:2], "--dry-run")
    assert private.code == 3
    assert "would read private data" in one_line(private.err)


def test_settings_from_a_file_and_flags_that_win(synthgeo, tmp_path):
    write_points(tmp_path / "a.csv", seed=1)
    config = tmp_path / "run.toml"
    config.write_text('bounds = [0, 0, 1, 1]\nepsilon = 2.0\ndepth = 8\nseed = 7\nschedule = "every_step"\n')
    run = tmp_path / "run"
    outcome = synthgeo("stream", "run", run, tmp_path / "a.csv", "--config", config, "--epsilon=0.5")
    assert outcome.code == 0, outcome.err
    status = synthgeo("stream", "status", run, "--json").json
    assert status["budget"]["epsilon"] == 0.5
    config.write_text("epsilom = 2.0\n")
    unknown = synthgeo("stream", "run", run, tmp_path / "a.csv", "--config", config)
    assert unknown.code == 3
    assert "unknown setting 'epsilom'" in one_line(unknown.err)
    config.write_text("epsilon = = 2\n")
    assert "not a TOML file" in one_line(
        synthgeo("stream", "run", run, tmp_path / "a.csv", "--config", config).err
    )


def test_users_are_bounded_and_a_ledger_charged(synthgeo, tmp_path):
    write_points(tmp_path / "a.csv", seed=1)
    book = tmp_path / "book.sqlite"
    assert synthgeo("ledger", "create", book, "--dataset=taxi", "--epsilon=1.5").code == 0
    users = ["--user=user_id", "--max-events=4", f"--ledger={book}"]
    outcome = synthgeo("stream", "run", tmp_path / "run", tmp_path / "a.csv", *NEW, *users)
    assert outcome.code == 0, outcome.err
    shown = synthgeo("ledger", "show", book, "--json").json
    assert shown["spent"] == {"epsilon": 1.0, "delta": 0.0}
    assert shown["entries"][0]["unit"] == "one user, who contributes at most 4 events"
    over = synthgeo("stream", "run", tmp_path / "other", tmp_path / "a.csv", *NEW, *users)
    assert over.code == 6
    assert "above its cap" in one_line(over.err)
    missing = synthgeo(
        "stream", "run", tmp_path / "third", tmp_path / "a.csv", *NEW, "--user=nobody", "--max-events=4"
    )
    assert missing.code == 4
    assert "missing column 'nobody'" in missing.err


def test_land_and_wrong_options(synthgeo, tmp_path):
    square = gpd.GeoDataFrame(geometry=gpd.GeoSeries.from_wkt(["POLYGON((0 0,1 0,1 1,0 1,0 0))"]), crs=4326)
    square.to_file(tmp_path / "land.geojson")
    frame = write_points(tmp_path / "a.parquet", seed=1).rename(columns={"x": "lon", "y": "lat"})
    frame.to_parquet(tmp_path / "a.parquet")
    land = ["--land", tmp_path / "land.geojson", "--epsilon=1", "--seed=7", "--depth=8"]
    assert synthgeo("stream", "run", tmp_path / "run", tmp_path / "a.parquet", *land).code == 0
    both = synthgeo("stream", "run", tmp_path / "b", tmp_path / "a.parquet", *land, BOX)
    assert "give the domain once" in one_line(both.err)
    assert "--crs goes with --bounds" in one_line(
        synthgeo("stream", "run", tmp_path / "b", tmp_path / "a.parquet", *land, "--crs=EPSG:4326").err
    )
    hexagons = [*land[:-1], "--h3=5"]
    assert synthgeo("stream", "run", tmp_path / "h3", tmp_path / "a.parquet", *hexagons).code == 0
    assert len(synthgeo("stream", "status", tmp_path / "h3", "--json").json["steps"]) == 1
    other = synthgeo("stream", "run", tmp_path / "h3", tmp_path / "a.parquet", "--h3=6")
    assert other.code != 0, "the cells of a run are those that it began with"
    nothing = synthgeo("stream", "run", tmp_path / "b", *land)
    assert "give input files, or --watch a folder" in one_line(nothing.err)


def test_two_processes_cannot_run_at_once(synthgeo, tmp_path):
    from streams.runs.run import StreamRun

    write_points(tmp_path / "a.csv", seed=1)
    run = tmp_path / "run"
    assert synthgeo("stream", "run", run, tmp_path / "a.csv", *NEW).code == 0
    with StreamRun.open(run):
        busy = synthgeo("stream", "run", run, tmp_path / "a.csv")
        assert busy.code == 6
        one_line(busy.err)
        assert synthgeo("stream", "status", run).code == 0


def test_watch_takes_files_in_order_and_leaves_when_idle(synthgeo, tmp_path):
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    for number in (2, 1, 3):
        write_points(inbox / f"day-{number}.csv", seed=number)
    (inbox / ".hidden.csv").write_text("no")
    (inbox / "day-0.csv.tmp").write_text("no")
    (inbox / "notes.md").write_text("no")
    watching = ["--watch", inbox, "--poll=0.05", "--settle=0", "--idle=0.3"]
    outcome = synthgeo("stream", "run", tmp_path / "run", *watching, *NEW, "--json")
    assert outcome.code == 0, outcome.err
    assert [line["batch"] for line in outcome.lines] == ["day-1.csv", "day-2.csv", "day-3.csv"]
    again = synthgeo("stream", "run", tmp_path / "run", *watching, "--json")
    assert [line["repeated"] for line in again.lines] == [True] * 3


def wait_for(condition, process, seconds=300):
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.slow
def test_watch_stops_cleanly_on_sigterm(synthgeo, tmp_path):
    inbox, run = tmp_path / "inbox", tmp_path / "run"
    inbox.mkdir()
    write_points(inbox / "day-1.csv", seed=1)
    process = start("stream", "run", run, "--watch", inbox, "--poll=0.1", "--settle=0", *NEW)
    wait_for(lambda: (run / "releases").exists() and len(releases(run)) == 1, process)
    write_points(tmp_path / "day-2.csv", seed=2)
    (tmp_path / "day-2.csv").rename(inbox / "day-2.csv")
    wait_for(lambda: len(releases(run)) == 2, process)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert "stopped on request: 2 new of 2 steps" in err
    assert synthgeo("stream", "verify", run).code == 0
    late = tmp_path / "inbox" / "day-0.csv"
    write_points(late, seed=3)
    process = start("stream", "run", run, "--watch", inbox, "--poll=0.1", "--settle=0", "--idle=0.5")
    _, err = process.communicate(timeout=300)
    assert process.returncode == 4
    assert "day-0.csv came after day-2.csv was taken" in err


def test_a_file_that_comes_late_is_refused(tmp_path):
    """Out of order: the folder had day-2 when day-1 arrived."""
    from synthgeo.errors import InputError
    from synthgeo.release_file.arrivals import Stop, arriving

    write_points(tmp_path / "day-2.csv", seed=2)
    stop = Stop()
    try:
        batches = arriving(tmp_path, stop, poll=0.01, settle=0, idle=5)
        assert next(batches).name == "day-2.csv"
        write_points(tmp_path / "day-1.csv", seed=1)
        with pytest.raises(InputError, match=r"day-1.csv came after day-2.csv was taken"):
            next(batches)
    finally:
        stop.restore()


def test_finished_files_of_a_folder_are_looked_for_once(tmp_path, monkeypatch):
    """To look again after each of them would make a restart quadratic."""
    from synthgeo.release_file import arrivals as module

    names = [f"day-{number:02d}.csv" for number in range(40)]
    for name in names:
        (tmp_path / name).write_text("x,y\n")
    looks, look = [], module._candidates
    monkeypatch.setattr(module, "_candidates", lambda folder: looks.append(1) or look(folder))
    stop = module.Stop()
    try:
        found = module.arriving(tmp_path, stop, done=names[:38], poll=0.01, settle=0, idle=0)
        assert [batch.name for batch in found] == names
    finally:
        stop.restore()
    assert len(looks) <= 5


def test_a_file_still_being_written_waits(tmp_path):
    from synthgeo.release_file.arrivals import Stop, arriving

    began = time.monotonic()
    write_points(tmp_path / "day-1.csv", seed=2)
    stop = Stop()
    try:
        batches = arriving(tmp_path, stop, poll=0.02, settle=0.4, idle=5)
        assert next(batches).name == "day-1.csv"
        assert time.monotonic() - began > 0.2
    finally:
        stop.restore()


def test_unreadable_times_are_named(synthgeo, tmp_path):
    pd.DataFrame({"x": [0.1], "y": [0.1], "time": ["soon"]}).to_csv(tmp_path / "a.csv", index=False)
    grid = ["--time=time", "--every=6h", "--start=2015-01-01", "--end=2015-01-02"]
    outcome = synthgeo("stream", "run", tmp_path / "run", tmp_path / "a.csv", *NEW, *grid)
    assert outcome.code == 4
    assert "column 'time', line 2 of a.csv: is not a time" in outcome.err

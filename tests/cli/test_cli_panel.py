"""``synthgeo panel``: waves from files, from a column, by times; the run goes on, and is handed on."""

from __future__ import annotations

import json
import tomllib

import pandas as pd
import pytest

import synthgeo as sg
from tests.cli.conftest import one_line


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """A folder with a panel of four waves, in one file and in one per wave, and its schema."""
    folder = tmp_path_factory.mktemp("panel")
    frame = sg.simulate.panel(300, waves=4, seed=1)
    frame.sample(frac=1, random_state=1).to_csv(folder / "all.csv", index=False)
    for name, wave in frame.groupby("wave"):
        wave.to_csv(folder / f"w{name}.csv", index=False)
    (folder / "schema.json").write_text(json.dumps(sg.simulate.panel_schema().to_json()))
    return folder


def options(folder, **more):
    made = {
        "schema": folder / "schema.json",
        "user": "person_id",
        "max-waves": 4,
        "epsilon": 4,
        "delta": 1e-6,
    }
    return [part for name, value in (made | more).items() for part in (f"--{name}", value)]


WAVES = ["--wave", "wave", "--waves", "1..4"]


@pytest.mark.slow
def test_a_run_goes_on_with_the_next_wave_and_is_published(synthgeo, answers, tmp_path):
    run, data = tmp_path / "run", answers / "all.csv"
    begun = synthgeo("panel", "run", run, data, *options(answers), "--wave=wave", "--waves=1,2,3", "--json")
    assert begun.code == 0, begun.err
    assert [line["batch"] for line in begun.lines] == ["1", "2", "3"]
    further = synthgeo("panel", "run", run, data, "--waves", "1..4", "--json")
    assert further.code == 0, further.err
    assert [line["repeated"] for line in further.lines] == [True, True, True, False]
    waves = [pd.read_parquet(path) for path in sorted(run.glob("releases/*/data.parquet"))]
    assert len(waves) == 4
    stayed = set(waves[0]["person_id"]) & set(waves[3]["person_id"])
    assert len(stayed) > 0.5 * len(waves[0])
    status = synthgeo("stream", "status", run, "--json").json
    assert status["mechanism"] == "PanelStream"
    made = synthgeo("publish", run, "--to", tmp_path / "public", "--formats", "csv")
    assert made.code == 0, made.err
    table = pd.read_csv(tmp_path / "public" / "table.csv")
    assert sorted(table["step"].unique()) == [1, 2, 3, 4]
    assert not table.duplicated(["step", "person_id"]).any()
    assert "stands for nobody" in (tmp_path / "public" / "README.md").read_text()


@pytest.mark.slow
def test_files_column_and_times_cut_the_same_waves(synthgeo, answers, tmp_path):
    ways = {
        "files": [answers / f"w{number}.csv" for number in range(1, 5)],
        "column": [answers / "all.csv", *WAVES],
        "times": [
            answers / "all.csv", "--time=time", "--every=1MS", "--start=2025-01-01", "--end=2025-05-01",
        ],
    }  # fmt: skip
    found = {}
    for name, inputs in ways.items():
        run = tmp_path / name
        done = synthgeo("panel", "run", run, *inputs, *options(answers), "--seed", 5)
        assert done.code == 0, done.err
        found[name] = [pd.read_parquet(path) for path in sorted(run.glob("releases/*/data.parquet"))]
    for name in ("column", "times"):
        for one, other in zip(found["files"], found[name], strict=True):
            pd.testing.assert_frame_equal(one, other)


def test_check_shows_what_does_not_fit_a_panel(synthgeo, answers, tmp_path):
    frame = pd.read_csv(answers / "all.csv")
    first = frame[frame["wave"] == 1].head(20)
    pd.concat([frame, first]).to_csv(tmp_path / "twice.csv", index=False)
    command = ["check", "panel", "run", tmp_path / "run", tmp_path / "twice.csv", *options(answers)]
    looked = synthgeo(*command, "--wave=wave", "--waves=1,2,3,5")
    assert looked.code == 0, looked.err
    assert "20 rows" in looked.out
    assert "repeat a person inside a wave" in looked.out
    assert "most of them in 1" in looked.out
    assert "of a wave that is not listed" in looked.out
    assert "no rows in wave 5" in looked.out
    assert not (tmp_path / "run").exists()
    none = synthgeo(*command, "--wave=wave", "--waves=W1,W2")
    assert none.code == 4
    assert "every row of a wave that is not listed" in none.out
    frame.loc[3, "wave"] = None
    frame.to_csv(tmp_path / "twice.csv", index=False)
    missing = synthgeo(*command, *WAVES)
    assert missing.code == 4
    assert "the wave is missing" in missing.out
    by_file = [answers / f"w{number}.csv" for number in (1, 2)]
    files = synthgeo("check", "panel", "run", tmp_path / "run", *by_file, *options(answers))
    assert files.code == 0, files.err
    assert "repeat a person" not in files.out  # a person in two files is one who stayed


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--wave", "wave"], "give --waves"),
        (["--waves", "1..4"], "--waves goes with --wave"),
        (["--wave", "wave", "--waves", "a..b"], "whole numbers such as 1..12"),
        (["--wave", "wave", "--waves", "1,2,1"], "listed twice"),
        (["--wave", "wave", "--waves", "4..1"], "there is none"),
        (["--wave", "round", "--waves", "1..4"], "missing column 'round'"),
        ([*WAVES, "--time", "time", "--every", "1MS"], "neither --watch nor --time"),
        ([*WAVES, "--max-waves", "0"], "--max-waves must be a whole number >= 1"),
        ([*WAVES, "--user", "region"], "is no column of the schema"),
    ],
)
def test_wrong_settings_are_one_line_and_spend_nothing(synthgeo, answers, tmp_path, more, says):
    done = synthgeo("panel", "run", tmp_path / "run", answers / "all.csv", *options(answers), *more)
    assert done.code in (3, 4)
    assert says in one_line(done.err)
    assert not (tmp_path / "run").exists()


def test_what_everybody_forgets_is_asked_for_by_name(synthgeo, answers, tmp_path):
    command = ["panel", "run", tmp_path / "run", answers / "all.csv", *WAVES]
    given = ["--schema", answers / "schema.json", "--epsilon", 1]
    assert "give --schema" in one_line(synthgeo(*command).err)
    assert "give --user" in one_line(synthgeo(*command, *given).err)
    assert "give --max-waves" in one_line(synthgeo(*command, *given, "--user", "person_id").err)


def test_files_whose_names_put_the_tenth_wave_first_are_refused(synthgeo, answers, tmp_path):
    for number in (2, 10):
        (tmp_path / f"w{number}.csv").write_text((answers / "w1.csv").read_text())
    done = synthgeo("panel", "run", tmp_path / "run", tmp_path / "w*.csv", *options(answers))
    assert done.code == 3
    assert "w10.csv comes before w2.csv" in one_line(done.err)
    assert "w02.csv" in done.err


@pytest.mark.slow
def test_a_run_refuses_to_be_cut_anew(synthgeo, answers, tmp_path):
    run, data = tmp_path / "run", answers / "all.csv"
    assert synthgeo("panel", "run", run, data, *options(answers), *WAVES).code == 0
    for more, says in (
        (["--waves", "2..4"], "must begin with them"),
        (["--wave", "region"], "was cut with --wave wave"),
        (["--time", "time", "--every", "1MS"], "was cut with --wave wave"),
        (["--max-waves", "9"], "other settings"),
    ):
        again = synthgeo("panel", "run", run, data, *more)
        assert again.code == 6, again.err
        assert says in one_line(again.err)


def test_a_plan_has_the_same_persons_in_every_wave(synthgeo, answers, tmp_path):
    command = ["panel", "run", tmp_path / "run", answers / "all.csv", *options(answers), *WAVES, "--json"]
    planned = synthgeo("plan", "--rows", 1200, "--steps", 3, "--epsilons", "0.05,20", *command)
    assert planned.code == 0, planned.err
    low, high = planned.json["plan"]
    assert high["error"] < low["error"]
    assert high["signal"] == pytest.approx(low["signal"])
    assert 400 / 9 <= high["signal"] <= 400  # of 400 persons, not of 1,200 rows
    waiting = synthgeo(*command, "--dry-run").json["plan"]
    assert waiting["batches"] == ["1", "2", "3", "4"]
    assert not (tmp_path / "run").exists()


def test_init_writes_the_facts_of_a_panel(synthgeo, answers, tmp_path):
    data = tmp_path / "panel.csv"
    data.write_text("pid;wave;work;pay\n")
    columns = ["--column", "work=yes,no", "--column", "pay=0..100?"]
    flags = ["--kind", "panel", "--unattended", *columns]
    done = synthgeo("init", data, *flags, "--set", "time.waves=1..6", "--set", "data.reading.missing=n/a")
    assert done.code == 0, done.err
    made = tomllib.loads(data.with_suffix(".toml").read_text())
    assert made["columns"] == {"user": "pid", "wave": "wave"}
    assert made["time"]["waves"] == ["1", "2", "3", "4", "5", "6"]
    assert made["privacy"]["unit"] == {"of": "user", "max_events": 6}
    assert made["privacy"]["delta"] == 1e-9
    assert "n/a" in made["data"]["reading"]["missing"]
    assert list(made["schema"]) == ["work", "pay"]
    assert done.out.splitlines()[1].startswith("synthgeo run ")
    refused = synthgeo("init", data, "--force", *flags)
    assert "give --set time.waves" in refused.err.splitlines()[-1]

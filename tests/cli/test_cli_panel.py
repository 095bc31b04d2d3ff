"""Panels: waves from files, from a column, by times; the run goes on, and is handed on."""

from __future__ import annotations

import tomllib

import pandas as pd
import pytest

import synthgeo as sg
from tests.cli.conftest import one_line


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """A folder with a panel of four waves, in one file and in one per wave."""
    folder = tmp_path_factory.mktemp("panel")
    frame = sg.simulate.panel(300, waves=4, seed=1)
    frame.sample(frac=1, random_state=1).to_csv(folder / "all.csv", index=False)
    for name, wave in frame.groupby("wave"):
        wave.to_csv(folder / f"w{name}.csv", index=False)
    return folder


def described(path, files, *, columns=None, seed=None, **time):
    """The release file of a panel: its public facts, and how its files are cut."""
    unit = sg.PrivacyUnit.user(max_events=4, key="person_id")
    panel = sg.PanelStream(schema=sg.simulate.panel_schema(), unit=unit, budget=sg.PrivacyBudget(4, 1e-6))
    sections = {"data": {"files": [str(file) for file in files]}, "columns": columns or {}, "time": time}
    if seed is not None:
        sections["privacy"] = {"seed": seed}
    return sg.ReleaseFile.from_product(panel, **sections).save(path)


def by_column(path, answers, waves=("1", "2", "3", "4"), **more):
    return described(path, [answers / "all.csv"], columns={"wave": "wave"}, waves=list(waves), **more)


@pytest.mark.slow
def test_a_run_goes_on_with_the_next_wave_and_is_published(synthgeo, answers, tmp_path):
    file = by_column(tmp_path / "panel.toml", answers, "123")
    begun = synthgeo("run", file, "--json")
    assert begun.code == 0, begun.err
    assert [line["batch"] for line in begun.lines[:-1]] == ["1", "2", "3"]
    assert "all 3 waves that [time] waves lists are released" in synthgeo("run", file).out
    by_column(file, answers)
    further = synthgeo("run", file, "--json")
    assert further.code == 0, further.err
    assert [line["repeated"] for line in further.lines[:-1]] == [True, True, True, False]
    waves = [pd.read_parquet(path) for path in sorted(tmp_path.glob("runs/panel/releases/*/data.parquet"))]
    assert len(waves) == 4
    stayed = set(waves[0]["person_id"]) & set(waves[3]["person_id"])
    assert len(stayed) > 0.5 * len(waves[0])
    assert synthgeo("status", file, "--json").json["mechanism"] == "PanelStream"
    made = synthgeo("publish", file, "--to", tmp_path / "public", "--set", 'publish.formats=["csv"]')
    assert made.code == 0, made.err
    table = pd.read_csv(tmp_path / "public" / "table.csv")
    assert sorted(table["step"].unique()) == [1, 2, 3, 4]
    assert not table.duplicated(["step", "person_id"]).any()
    assert "stands for nobody" in (tmp_path / "public" / "README.md").read_text()
    for change, says in (
        ('time.waves=["2", "3"]', "must begin with them"),
        ("columns.wave=region", "was cut with wave = 'wave'"),
        ("privacy.unit.max_events=9", "other settings"),
    ):
        again = synthgeo("run", file, "--set", change)
        assert again.code == 6, again.err
        assert says in one_line(again.err)


@pytest.mark.slow
def test_files_column_and_times_cut_the_same_waves(synthgeo, answers, tmp_path):
    grid = {"every": "1MS", "start": "2025-01-01", "end": "2025-05-01"}
    described(tmp_path / "files.toml", [answers / f"w{number}.csv" for number in range(1, 5)], seed=5)
    by_column(tmp_path / "column.toml", answers, seed=5)
    described(tmp_path / "times.toml", [answers / "all.csv"], columns={"time": "time"}, seed=5, **grid)
    found = {}
    for name in ("files", "column", "times"):
        done = synthgeo("run", tmp_path / f"{name}.toml")
        assert done.code == 0, done.err
        paths = sorted(tmp_path.glob(f"runs/{name}/releases/*/data.parquet"))
        found[name] = [pd.read_parquet(path) for path in paths]
    for name in ("column", "times"):
        for one, other in zip(found["files"], found[name], strict=True):
            pd.testing.assert_frame_equal(one, other)


def test_check_shows_what_does_not_fit_a_panel(synthgeo, answers, tmp_path):
    frame = pd.read_csv(answers / "all.csv")
    first = frame[frame["wave"] == 1].head(20)
    pd.concat([frame, first]).to_csv(tmp_path / "all.csv", index=False)
    looked = synthgeo("check", by_column(tmp_path / "panel.toml", tmp_path, "1235"))
    assert looked.code == 0, looked.err
    assert "20 rows" in looked.out
    assert "repeat a person inside a wave" in looked.out
    assert "most of them in 1" in looked.out
    assert "of a wave that is not listed" in looked.out
    assert "no rows in wave 5" in looked.out
    assert not (tmp_path / "runs").exists()
    none = synthgeo("check", by_column(tmp_path / "panel.toml", tmp_path, ["W1", "W2"]))
    assert none.code == 4
    assert "every row of a wave that is not listed" in none.out
    frame.loc[3, "wave"] = None
    frame.to_csv(tmp_path / "all.csv", index=False)
    missing = synthgeo("check", by_column(tmp_path / "panel.toml", tmp_path))
    assert missing.code == 4
    assert "the wave is missing" in missing.out
    by_file = described(tmp_path / "files.toml", [answers / f"w{number}.csv" for number in (1, 2)])
    files = synthgeo("check", by_file)
    assert files.code == 0, files.err
    assert "repeat a person" not in files.out  # a person in two files is one who stayed


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ('time.waves=["1", "2", "1"]', "listed twice"),
        ("time.waves=[]", "there is none"),
        ("columns.wave=round", "missing column 'round'"),
        ("time.every=1MS", "both cut the rows"),
        ("privacy.unit.max_events=0", "must be a whole number >= 1"),
        ("columns.user=region", "is no column of the schema"),
    ],
)
def test_wrong_settings_are_one_line_and_spend_nothing(synthgeo, answers, tmp_path, change, says):
    done = synthgeo("run", by_column(tmp_path / "panel.toml", answers), "--set", change)
    assert done.code in (3, 4)
    assert says in one_line(done.err)
    assert not (tmp_path / "runs").exists()


def test_what_everybody_forgets_is_asked_for_by_name(synthgeo, answers, tmp_path):
    file = by_column(tmp_path / "panel.toml", answers)
    text = file.read_text()
    schema = text[text.index("[schema.region]") :]
    for without, says in (
        (schema, "give [schema.NAME]"),
        ('user = "person_id"\n', "give [columns] user"),
        ('wave = "wave"\n', "wave and [time] waves go together"),
        ('unit = { of = "user", max_events = 4 }\n', "whose each row is"),
        ("epsilon = 4.0\n", "give [privacy] epsilon"),
    ):
        assert without in text
        file.write_text(text.replace(without, ""))
        assert says in one_line(synthgeo("run", file).err)


def test_files_whose_names_put_the_tenth_wave_first_are_refused(synthgeo, answers, tmp_path):
    for number in (2, 10):
        (tmp_path / f"w{number}.csv").write_text((answers / "w1.csv").read_text())
    done = synthgeo("run", described(tmp_path / "panel.toml", [tmp_path / "w*.csv"]))
    assert done.code == 3
    assert "w10.csv comes before w2.csv" in one_line(done.err)
    assert "w02.csv" in done.err


@pytest.mark.slow
def test_a_panel_is_planned_from_public_numbers(synthgeo, answers, tmp_path):
    file = by_column(tmp_path / "panel.toml", answers)
    (tmp_path / "all.csv").unlink(missing_ok=True)
    planned = synthgeo("plan", "--rows", 1200, "--steps", 3, "--epsilons", "0.05,20", file, "--json")
    assert planned.code == 0, planned.err
    low, high = planned.json["plan"]
    assert high["error"] < low["error"]
    assert high["signal"] == pytest.approx(low["signal"])
    assert 400 / 9 <= high["signal"] <= 400  # of 400 persons, not of 1,200 rows


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

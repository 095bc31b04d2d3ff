"""Messy files from the command line: what is declared is what is read."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import synthgeo as sg

MESSY = (
    "Längengrad;Breitengrad;Wann;Betrag\n"
    "0,25;0,5;03/05/2026 10:00;1.234,5\n"
    "0,75;0,5;12/24/2026 23:59;-\n"
    '0,5;"0,5";03/06/2026 00:00;12,0\n'
)
OPTIONS = [
    "--delimiter=;",
    "--decimal=,",
    "--encoding=latin-1",
    "--time-format=%m/%d/%Y %H:%M",
    "--missing=-",
]
POINTS = ["--bounds=0,0,1,1", "--epsilon=1", "--seed=1", "--x=Längengrad", "--y=Breitengrad"]
WINDOWS = ["--time=Wann", "--every=MS", "--start=2026-01-01", "--end=2027-01-01"]


@pytest.fixture
def messy(tmp_path):
    path = tmp_path / "messy.csv"
    path.write_bytes(MESSY.encode("latin-1"))
    return path


def test_a_messy_file_is_read_as_declared(synthgeo, messy, tmp_path):
    done = synthgeo("stream", "run", tmp_path / "run", messy, *POINTS, *OPTIONS, *WINDOWS)
    assert done.code == 0, done.err
    assert synthgeo("stream", "status", tmp_path / "run", "--json").json["steps"][-1]["step"] == 12
    # The run remembers how files are read, and refuses to read them otherwise.
    again = synthgeo("stream", "run", tmp_path / "run", messy, "--json")
    assert again.code == 0, again.err
    assert all(line["repeated"] for line in again.lines)
    other = synthgeo("stream", "run", tmp_path / "run", messy, "--time-format=%d/%m/%Y %H:%M")
    assert other.code == 6, other.err


def test_declarations_can_stand_in_the_config_file(synthgeo, messy, tmp_path):
    config = tmp_path / "run.toml"
    config.write_text(
        'delimiter = ";"\ndecimal = ","\nencoding = "latin-1"\nmissing = ["-"]\n'
        'time-format = "%m/%d/%Y %H:%M"\n',
        encoding="utf-8",
    )
    done = synthgeo("stream", "run", tmp_path / "run", messy, *POINTS, *WINDOWS, "--config", config)
    assert done.code == 0, done.err


def test_what_is_wrong_says_which_option_mends_it(synthgeo, messy, tmp_path):
    wrong = synthgeo("stream", "run", tmp_path / "run", messy, *POINTS, "--encoding=latin-1", *WINDOWS)
    assert wrong.code == 4
    for word in ("'Längengrad', lines 2, 3, 4", "--decimal", "'Wann', lines 2, 3, 4", "--time-format"):
        assert word in wrong.err
    assert "0,25" not in wrong.err
    assert not (tmp_path / "run").exists()
    assert "--encoding" in synthgeo("stream", "run", tmp_path / "run", messy, *POINTS).err


def test_tables_take_the_same_declarations(synthgeo, messy, tmp_path):
    schema = sg.Schema({"Betrag": sg.Numeric(0, 2_000, bins=4, missing=True)})
    schema.save(tmp_path / "schema.json")
    fit = ["table", "fit", messy, "--schema", tmp_path / "schema.json", "--epsilon=1", "--seed=1"]
    refused = synthgeo(*fit, *OPTIONS, "--out", tmp_path / "model")
    assert refused.code == 4
    assert "--thousands" in refused.err
    done = synthgeo(*fit, *OPTIONS, "--thousands=.", "--out", tmp_path / "model")
    assert done.code == 0, done.err


def test_a_watched_folder_drops_bad_rows_and_goes_on(synthgeo, tmp_path):
    """A release that is missing can be seen: nobody is there to mend the file."""
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.csv").write_text("x,y\n0.5,0.5\nx,0.5\n0.1\n")
    watch = ["--watch", folder, "--idle=0", "--settle=0", "--poll=0.05"]
    done = synthgeo("stream", "run", tmp_path / "run", *watch, "--bounds=0,0,1,1", "--epsilon=1", "--seed=1")
    assert done.code == 0, done.err
    strict = synthgeo(
        "stream", "run", tmp_path / "strict", *watch, "--bounds=0,0,1,1", "--epsilon=1", "--bad-rows=error"
    )
    assert strict.code == 4
    assert "line 3 of a.csv" in strict.err


@pytest.mark.parametrize("text", ["a\n", "a\nnobody\n", "a\nx\n"])
def test_an_unattended_fit_ends_alike_whatever_one_row_says(synthgeo, tmp_path, text):
    """Neighbours: no row, one that does not fit, one that does. A fit that is refused can be seen."""
    sg.Schema({"a": sg.Categorical(["x", "y"])}).save(tmp_path / "schema.json")
    (tmp_path / "rows.csv").write_text(text)
    fit = ["table", "fit", tmp_path / "rows.csv", "--schema", tmp_path / "schema.json", "--epsilon=1"]
    done = synthgeo(*fit, "--unattended", "--out", tmp_path / "model")
    assert (done.code, done.err) == (0, "")
    attended = synthgeo(*fit, "--out", tmp_path / "attended", "--bad-rows=drop")
    assert (attended.code == 0) == text.endswith("x\n")


def test_a_watched_folder_goes_on_past_rows_that_stop_an_engine(synthgeo, tmp_path):
    """One such row in each file: every file is a step, and no value of it is printed."""
    folder, secret = tmp_path / "in", "magic7731"
    folder.mkdir()
    text = pa.array([b"ann", secret.encode() + b"\xff", b"bob"], pa.binary())
    users = pa.Array.from_buffers(pa.string(), 3, text.buffers())
    places = {"x": [0.5, 0.25, 0.75], "y": [0.5] * 3}
    pq.write_table(pa.table(places | {"user_id": users}), folder / "a.parquet")
    (folder / "c.csv").write_bytes(
        b"x,y,user_id\n0.5,0.5, \n0.5,0.25,\xff" + secret.encode() + b"\n0.1,0.1,a\n"
    )
    watch = ["--watch", folder, "--idle=0.2", "--settle=0", "--poll=0.05", "--user=user_id", "--max-events=2"]
    done = synthgeo("stream", "run", tmp_path / "run", *watch, "--bounds=0,0,1,1", "--epsilon=1", "--json")
    assert done.code == 0, done.err
    assert secret not in done.out + done.err
    assert [line["batch"] for line in done.lines] == ["a.parquet", "c.csv"]


def test_a_file_whose_name_is_a_pattern_is_that_file(synthgeo, tmp_path):
    """``day[1].csv`` used to read ``day1.csv`` twice, so that its events paid twice."""
    for name, rows in (("day1", 3), ("day[1]", 50)):
        pd.DataFrame({"x": [0.5] * rows, "y": 0.5}).to_csv(tmp_path / f"{name}.csv", index=False)
    stream = sg.PHDStream(domain=sg.BoxDomain(0, 0, 1, 1), budget=sg.PrivacyBudget(1000.0))
    assert stream.update(str(tmp_path / "day[1].csv")).total == pytest.approx(50, abs=2)
    assert stream.update([str(tmp_path / "day[1].csv")]).total == pytest.approx(100, abs=2)


def test_folder_names_are_no_columns(tmp_path):
    folder = tmp_path / "op=-1" / "x=7"
    folder.mkdir(parents=True)
    for kind in ("parquet", "csv"):
        frame = pd.DataFrame({"x": [0.5] * 40, "y": 0.5})
        path = folder / f"a.{kind}"
        frame.to_parquet(path) if kind == "parquet" else frame.to_csv(path, index=False)
        stream = sg.PHDStream(domain=sg.BoxDomain(0, 0, 1, 1), budget=sg.PrivacyBudget(1000.0))
        assert stream.update(path).total == pytest.approx(40, abs=2)

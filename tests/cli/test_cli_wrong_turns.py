"""Ten wrong turns of newcomers: each is stopped before ε is spent, and the ledger proves it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import synthgeo as sg
from synthgeo.domain.coordinates import transform
from tests.cli.conftest import one_line

BOUNDS, UTM = "8.4,47.3,8.7,47.5", "454000,5238000,478000,5262000"
GOOD = {
    "--bounds": BOUNDS,
    "--crs": "EPSG:4326",
    "--x": "lon",
    "--y": "lat",
    "--xy-crs": "EPSG:4326",
    "--time": "time",
    "--every": "1D",
    "--start": "2026-03-02",
    "--end": "2026-03-05",
    "--epsilon": "1",
}


@pytest.fixture
def folder(tmp_path, synthgeo):
    """Points of three days near Zürich, the same in metres and with US dates, and a ledger."""
    rng = np.random.default_rng(5)
    n = 500
    frame = pd.DataFrame(
        {
            "lon": rng.uniform(8.4, 8.7, n),
            "lat": rng.uniform(47.3, 47.5, n),
            "time": pd.Timestamp("2026-03-02") + pd.to_timedelta(rng.integers(0, 72, n), unit="h"),
        }
    )
    frame.to_csv(tmp_path / "points.csv", index=False)
    xy = transform(frame[["lon", "lat"]].to_numpy(), "EPSG:4326", "EPSG:32632")
    frame.assign(lon=xy[:, 0], lat=xy[:, 1]).to_csv(tmp_path / "metres.csv", index=False)
    frame.assign(time=frame["time"].dt.strftime("%m/%d/%Y %H:%M")).to_csv(tmp_path / "us.csv", index=False)
    frame.sample(frac=1, random_state=1).to_csv(tmp_path / "points (1).csv", index=False)
    sg.Schema({"lon": sg.Numeric(8, 9), "lat": sg.Numeric(47, 48)}).save(tmp_path / "schema.json")
    done = synthgeo("ledger", "create", tmp_path / "l.sqlite", "--dataset", "d", "--epsilon", "5")
    assert done.code == 0, done.err
    return tmp_path


TURNS = {
    "x and y swapped": ({"--x": "lat", "--y": "lon"}, "points.csv", "look swapped"),
    "bounds swapped": ({"--bounds": "47.3,8.4,47.5,8.7"}, "points.csv", "look swapped"),
    "bounds in another CRS than named": ({"--bounds": UTM}, "points.csv", "no longitudes"),
    "coordinates in another CRS than named": ({}, "metres.csv", "look like EPSG:32632"),
    "windows in a year without data": (
        {"--start": "2025-03-02", "--end": "2025-03-05"},
        "points.csv",
        "right year",
    ),
    "dates in another format": ({}, "us.csv", "time-format"),
    "a column that does not exist": ({"--x": "longitude"}, "points.csv", "no column 'longitude'"),
}


@pytest.mark.parametrize("turn", TURNS)
def test_a_run_is_stopped(turn, folder, synthgeo):
    change, file, says = TURNS[turn]
    options = [f"{name}={value}" for name, value in (GOOD | change).items()]
    ledger = ["--ledger", folder / "l.sqlite"]
    done = synthgeo("stream", "run", folder / "run", folder / file, *options, *ledger)
    assert done.code in (3, 4), done.err
    assert says in one_line(done.err)
    assert not (folder / "run").exists()
    assert spent(folder) is None


@pytest.mark.parametrize(
    ("files", "out", "says"),
    [
        (["points.csv", "points (1).csv"], "model", "same records"),
        (["points.csv"], "nowhere/model", "cannot write"),
        (["points.csv"], "points.csv", "exists already"),
    ],
    ids=["the same file under another name", "a folder that does not exist", "what would be overwritten"],
)
def test_a_fit_is_stopped(files, out, says, folder, synthgeo):
    before = (folder / "points.csv").read_bytes()
    options = ["--schema", folder / "schema.json", "--epsilon", 1, "--ledger", folder / "l.sqlite"]
    data = [folder / name for name in files]
    done = synthgeo("table", "fit", *data, *options, "--out", folder / out)
    assert done.code in (3, 4), done.err
    assert says in one_line(done.err)
    assert spent(folder) is None
    assert (folder / "points.csv").read_bytes() == before


def test_the_right_way_is_open(folder, synthgeo):
    options = [f"{name}={value}" for name, value in GOOD.items()]
    ledger = ["--ledger", folder / "l.sqlite"]
    done = synthgeo("stream", "run", folder / "run", folder / "points.csv", *options, *ledger)
    assert done.code == 0, done.err
    assert spent(folder).epsilon == 1
    changed = [*options[:-1], "--epsilon=2"]
    done = synthgeo("stream", "run", folder / "run", folder / "points.csv", *changed, *ledger)
    assert done.code == 6  # a run that exists is not begun anew
    assert spent(folder).epsilon == 1


def spent(folder):
    with sg.Ledger.open(folder / "l.sqlite", read_only=True) as ledger:
        return ledger.spent

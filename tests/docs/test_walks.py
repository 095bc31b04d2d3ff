"""The walks of a tutorial, typed into a terminal: from a messy file to a folder that can be handed on."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import geopandas as gpd
import pandas as pd
import pytest

from tests.conftest import seeded_environment

pexpect = pytest.importorskip("pexpect", reason="the dev extra is not installed")

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "tutorials" / "from-a-messy-file.md").read_text()
WALKS = dict(
    zip(
        ("points", "table", "trips", "panel", "wrong turn"),
        re.findall(r"^```console\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL),
        strict=True,
    )
)
ANSWER = re.compile(r"(?P<question>.*[?\]]): ?(?P<answer>.*)")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the files of the page."""
    made = tmp_path_factory.mktemp("walk")
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
    subprocess.run([sys.executable, "-c", code], cwd=made, env=seeded_environment("walk"), check=True)
    return made


def walk(folder: Path, text: str) -> tuple[str, list[int]]:
    """Type a walk; what the screen showed, and the exit code of each command."""
    environment = seeded_environment("walk", COLUMNS="200")
    screen, codes, child = "", [], None
    for line in [*text.splitlines(), "$ "]:
        if line.startswith("$ "):
            if child is not None:
                child.expect(pexpect.EOF, timeout=600)
                screen += child.before
                child.close()
                codes.append(child.exitstatus)
            if line != "$ ":
                arguments = shlex.split(line.removeprefix("$ synthgeo "))
                child = pexpect.spawn(
                    sys.executable, ["-m", "synthgeo.cli", *arguments], cwd=folder, env=environment,
                    encoding="utf-8", timeout=600, dimensions=(50, 200),
                )  # fmt: skip
            continue
        found = ANSWER.fullmatch(line)
        assert found is not None, line
        child.expect_exact(found["question"] + ": ")
        screen += child.before + child.after
        child.sendline(found["answer"])
    return screen, codes


@pytest.mark.slow
def test_points(folder):
    screen, codes = walk(folder, WALKS["points"])
    assert codes == [0, 0, 0, 0, 0], screen
    assert "synthgeo check accidents.toml" in screen
    assert "all 3 windows up to [time] end are released; nothing new" in screen
    assert "ready" in screen
    points = gpd.read_parquet(folder / "accidents-public" / "points.parquet")
    assert abs(len(points) - 2_000) < 200
    assert abs(points["lon"].mean() - 8.55) < 0.02
    assert (folder / "accidents-public" / "points.gpkg").exists()
    screen, codes = walk(folder, WALKS["wrong turn"])  # asked about, and answered with no
    assert codes == [4]
    assert "look swapped" in screen
    assert not (folder / "runs" / "swapped").exists()


@pytest.mark.slow
def test_table(folder):
    screen, codes = walk(folder, WALKS["table"])
    assert codes == [0, 0, 0, 0], screen
    table = pd.read_excel(folder / "people-public" / "table.xlsx", sheet_name="table")
    assert set(table["sex"]) == {"F", "M"}
    assert table["since"].between("2026-03-01", "2026-04-01").all()
    assert table["income"].median() > 1_000


@pytest.mark.slow
def test_trips(folder):
    screen, codes = walk(folder, WALKS["trips"])
    assert codes == [0, 0, 0, 0], screen
    trips = gpd.read_parquet(folder / "trips-public" / "trips.parquet")
    assert len(trips) == 100
    assert trips["start_lat"].between(47.9, 48.1).all()


@pytest.mark.slow
def test_panel(folder):
    screen, codes = walk(folder, WALKS["panel"])
    assert codes == [0, 0, 0, 0], screen
    assert "repeat a person inside a wave" in screen
    waves = pd.read_csv(folder / "panel-public" / "table.csv")
    assert sorted(waves["step"].unique()) == [1, 2, 3]
    assert not waves.duplicated(["step", "pid"]).any()
    first, third = (set(waves.loc[waves["step"] == step, "pid"]) for step in (1, 3))
    assert len(first & third) > 500  # most of 800 persons stay

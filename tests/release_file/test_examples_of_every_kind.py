"""A release file of every kind in ``examples/``, run on data that the project makes."""

from __future__ import annotations

import json
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import synthgeo as sg
from synthgeo.errors import ConfigError, LedgerError
from synthgeo.release_file.sections import KINDS
from tests.conftest import seeded_environment

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "release-files"
SMALL = {"points": {"method.max_depth": 10}, "table": {"method.rounds": 3}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("examples")
    for path in EXAMPLES.iterdir():
        if path.is_file():
            shutil.copy(path, made)
    subprocess.run([sys.executable, made / "data.py"], env=seeded_environment("data"), check=True)
    return made


def test_every_kind_has_an_example():
    assert {path.stem for path in EXAMPLES.glob("*.toml")} == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_release_file_is_checked_run_and_published(folder, kind):
    file = sg.ReleaseFile.load(folder / f"{kind}.toml", changes=SMALL.get(kind))
    assert file.kind == kind
    assert file.status().numbers["released"] is False
    assert file.check().ok
    assert not file.folder.exists(), "check leaves nothing"
    ran = file.run()
    assert ran.new >= 1
    assert ran.why is None
    assert ran.spent.epsilon <= file.privacy.epsilon + 1e-9
    assert stat.S_IMODE(file.folder.stat().st_mode) == 0o700
    again = file.run()
    assert again.new == 0
    assert "nothing new" in str(again)
    assert again.steps == ran.steps
    assert file.status().numbers["released"] is True
    if kind == "series":
        released = pd.read_csv(file.folder / "released.csv")
        assert list(released) == ["day", "released"]
        assert len(released) == 90
        return
    made = file.publish(folder / f"{kind}-public")
    assert sum(made.rows.values()) > 50
    statement = json.loads((folder / f"{kind}-public" / "statement.json").read_text())
    assert statement["title"] == file.title


def test_what_was_released_once_is_not_made_anew(folder):
    path = shutil.copy(folder / "series.toml", folder / "series-again.toml")
    file = sg.ReleaseFile.load(path).but({"folder": "data/runs/again", "privacy.epsilon": 0.5})
    file.run()
    with pytest.raises(LedgerError, match=r"\[privacy\] changed since the release"):
        file.but({"privacy.epsilon": 1.0}).run()


def test_a_ledger_is_charged_once(folder):
    with sg.Ledger.open(folder / "ledger.sqlite", dataset="people", cap=sg.PrivacyBudget(1.5)):
        pass
    changes = {"folder": "data/runs/paid", "privacy.ledger": "ledger.sqlite", "method.rounds": 2}
    file = sg.ReleaseFile.load(folder / "table.toml", changes=changes)
    assert "left in the ledger" in file.status().facts
    file.run()
    file.run()
    assert file.status().numbers["ledger"]["left"]["epsilon"] == pytest.approx(0.5)
    with pytest.raises(LedgerError, match="above its cap"):
        file.but({"folder": "data/runs/second"}).run()
    with pytest.raises(ConfigError, match="there is no ledger"):
        file.but({"folder": "data/runs/third", "privacy.ledger": "none.sqlite"}).run()

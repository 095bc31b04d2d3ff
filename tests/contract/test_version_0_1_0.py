"""What version 0.1.0 saved still opens, and goes on as that version would have: bit for bit under a seed.

Series, one-off tables and trips are in ``tests/pinned``, beside the outputs of their present code.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import synthgeo as sg
from streams.runs.run import StreamRun
from tests.cli import conftest as fixtures
from tests.fixtures.v0_1_0 import make

HERE = Path(make.__file__).parent
EXPECTED = json.loads((HERE / "expected.json").read_text())
synthgeo = fixtures.synthgeo  # the command, in this process


@pytest.mark.pinned
@pytest.mark.parametrize("name", EXPECTED["states"])
def test_a_saved_stream_goes_on(name):
    _, batch = make.streams()[name]
    stream = getattr(sg, name.partition("-")[0]).load(HERE / "states" / f"{name}.state")
    assert stream.step == make.STEPS
    assert stream.spent == stream.budget
    assert make.released(stream, stream.update(batch(make.STEPS))) == EXPECTED["states"][name]


@pytest.fixture
def run_of(tmp_path):
    """A run's folder as it was: git keeps no modes and no empty folders."""

    def copy(name):
        folder = tmp_path / name
        shutil.copytree(HERE / "runs" / name, folder)
        for path in [folder, *folder.rglob("*")]:
            path.chmod(0o700 if path.is_dir() else 0o600)
        return folder

    return copy


@pytest.mark.parametrize("name", EXPECTED["runs"])
def test_a_run_is_whole_and_tells_what_it_did(name, run_of):
    folder = run_of(name)
    with StreamRun.open(folder) as run:
        assert run.verify() == run.steps == make.STEPS
        assert run.report().spent == run.budget
        assert all(run.release(batch).releasable is False for batch in run.batches)


@pytest.mark.pinned
@pytest.mark.parametrize("name", make.RUNS)
def test_a_run_goes_on(name, run_of, synthgeo):
    """Given all its files again: those that were taken are known, and the next one is released as it was."""
    folder, facts = run_of(name), make.RUNS[name]
    files = [HERE / "inputs" / file for file in facts["inputs"]]
    done = synthgeo(*facts["begin"][:2], folder, *files, "--json")
    assert done.code == 0, done.err
    assert [line["repeated"] for line in done.lines] == [True] * make.STEPS + [False]
    assert make.last_release(folder) == EXPECTED["runs"][name]


@pytest.mark.pinned
def test_a_run_of_windows_goes_on(run_of, synthgeo):
    folder, end = run_of("windows"), f"--end=2026-03-{2 + make.STEPS + 1:02d}"
    done = synthgeo("stream", "run", folder, HERE / "inputs" / "events.parquet", *make.WINDOWS, end, "--json")
    assert done.code == 0, done.err
    assert [line["repeated"] for line in done.lines] == [True] * make.STEPS + [False]
    assert make.last_release(folder) == EXPECTED["runs"]["windows"]


@pytest.mark.parametrize("name", ["points", "table"])
def test_other_content_under_a_known_name_is_still_refused(name, run_of, synthgeo, tmp_path):
    folder, facts = run_of(name), make.RUNS[name]
    first, second = [HERE / "inputs" / file for file in list(facts["inputs"])[:2]]
    shutil.copy(second, tmp_path / first.name)
    refused = synthgeo(*facts["begin"][:2], folder, tmp_path / first.name)
    assert refused.code == 6
    assert "other content" in refused.err


def test_a_dataset_ledger_knows_its_runs(run_of, tmp_path):
    shutil.copy(HERE / "ledger.sqlite", tmp_path / "ledger.sqlite")
    with sg.Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        assert ledger.verify() == 2
        assert ledger.spent == sg.PrivacyBudget(3.0)
        for name in ("points", "table"):
            StreamRun.open(run_of(name), ledger=ledger).close()
        assert ledger.spent == sg.PrivacyBudget(3.0), "both are known to have paid"


def test_repeats_are_refused_and_empty_batches_are_not(run_of):
    with StreamRun.open(run_of("points")) as run:
        with pytest.raises(sg.LedgerError, match="each would pay twice"):
            run.step("again.csv", HERE / "inputs" / "day-1.csv")
        for night in ("night-1", "night-2"):
            run.step(night, make.points(0).head(0))
        assert run.steps == make.STEPS + 2

"""``synthgeo evaluate``, ``report`` and ``audit``, run for real."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.cli.conftest import BOX, one_line, write_points


@pytest.fixture(scope="module")
def city(tmp_path_factory):
    """A run with one step, its data, and the box it lies in."""
    from synthgeo.cli.app import run

    folder = tmp_path_factory.mktemp("city")
    write_points(folder / "points.csv", seed=3, rows=4000)
    code = run(
        ["stream", "run", str(folder / "run"), str(folder / "points.csv"), BOX, "--epsilon=2", "--depth=8"]
    )
    assert code == 0
    return folder


def test_evaluate_is_for_the_curator(synthgeo, city):
    command = ["evaluate", city / "run", "--real", city / "points.csv", "--repeats=2"]
    found = synthgeo(*command, "--json")
    assert found.code == 0, found.err
    values = {row["metric"]: row["value"] for row in found.json["metrics"]}
    assert values["total"] < 0.05
    assert values["range_large"] < 0.5
    assert "curator only" in found.json["notice"]
    shown = synthgeo(*command, "--metric=total")
    assert "range_large" not in shown.out
    assert "curator only" in shown.out
    assert "no metric 'nonsense'" in one_line(synthgeo(*command, "--metric=nonsense").err)


def test_what_cannot_be_evaluated_is_said(synthgeo, city, tmp_path):
    real = ["--real", city / "points.csv"]
    assert "no run and no model" in one_line(synthgeo("evaluate", tmp_path / "none", *real).err)
    assert "there is no run in" in one_line(synthgeo("evaluate", tmp_path, *real).err)
    (tmp_path / "file").write_text("no model")
    assert synthgeo("evaluate", tmp_path / "file", *real).code == 7
    events = write_points(tmp_path / "events.csv", seed=1, rows=10)
    events.assign(op=-1).to_csv(tmp_path / "events.csv", index=False)
    gone = synthgeo("evaluate", city / "run", "--real", tmp_path / "events.csv")
    assert gone.code == 4
    assert "points that are there now" in one_line(gone.err)


def test_a_run_of_numbers_cannot_be_evaluated(synthgeo, city, tmp_path):
    import synthgeo as sg

    mechanism = sg.series.LPA(budget=sg.PrivacyBudget(1.0), horizon=3)
    with sg.StreamRun.open(tmp_path / "run", mechanism) as run:
        run.step(batch_id="first", batch=5)
    refused = synthgeo("evaluate", tmp_path / "run", "--real", city / "points.csv")
    assert refused.code == 3
    assert "releases numbers" in one_line(refused.err)


def test_report_for_the_curator_and_for_everybody(synthgeo, city, tmp_path):
    mine, theirs = tmp_path / "mine.html", tmp_path / "theirs.html"
    assert synthgeo("report", city / "run", "--real", city / "points.csv", "--out", mine).code == 0
    outcome = synthgeo("report", city / "run", "--public", "--out", theirs)
    assert outcome.code == 0, outcome.err
    assert "may be published" in outcome.err
    assert "true points" in mine.read_text()
    assert "true points" not in theirs.read_text()
    assert synthgeo("report", city / "run", "--out", mine).code == 3


@pytest.mark.parametrize("mechanism", ["noise", "counter"])
def test_audit_finds_no_fault_where_there_is_none(synthgeo, mechanism):
    outcome = synthgeo("audit", mechanism, "--runs=20000", "--seed=1", "--json", "--counter=binary")
    assert outcome.code == 0, outcome.err
    assert 0.3 < outcome.json["epsilon_lower"] <= 1.0
    assert outcome.json["violates"] is False


def test_audit_of_a_stream_runs(synthgeo):
    outcome = synthgeo("audit", "stream", "--runs=200", "--seed=1")
    assert outcome.code == 0, outcome.err
    assert "not refuted" in outcome.out


def test_audit_refutes_a_broken_promise(synthgeo, monkeypatch):
    """A twin with half of the noise it claims: the command must catch it and say so in its exit code."""
    from synthgeo.cli import audit

    def too_quiet(self, count, noise, runs):
        return count + noise.discrete_laplace(0.5 / self.epsilon, runs)[:, None]

    monkeypatch.setattr(audit.NoisyCount, "__call__", too_quiet)
    outcome = synthgeo("audit", "noise", "--runs=20000", "--seed=1", "--json")
    assert outcome.code == 9
    assert outcome.json["violates"] is True
    assert np.isclose(outcome.json["epsilon_lower"], 1.9, atol=0.2)
    assert synthgeo("audit", "nonsense").code == 3
    assert synthgeo("audit", "noise", "--epsilon=-1").code == 3


@pytest.mark.slow
def test_evaluate_a_table(synthgeo, tmp_path):
    rng = np.random.default_rng(2)
    lines = [f"{a},{b}" for a, b in zip(rng.choice(["x", "y"], 500), rng.integers(0, 10, 500), strict=True)]
    (tmp_path / "data.csv").write_text("a,b\n" + "\n".join(lines) + "\n")
    columns = {
        "a": {"type": "categorical", "values": ["x", "y"]},
        "b": {"type": "numeric", "low": 0, "high": 10, "bins": 5, "integer": True},
    }
    (tmp_path / "schema.json").write_text(json.dumps({"columns": columns}))
    fit = ["table", "fit", tmp_path / "data.csv", "--schema", tmp_path / "schema.json", "--epsilon=20"]
    assert synthgeo(*fit, "--out", tmp_path / "model").code == 0
    found = synthgeo("evaluate", tmp_path / "model", "--real", tmp_path / "data.csv", "--repeats=1", "--json")
    assert found.code == 0, found.err
    values = {row["metric"]: row["value"] for row in found.json["metrics"]}
    assert values["tv_1way"] < 0.2

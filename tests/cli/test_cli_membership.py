"""``synthgeo membership``, run for real."""

from __future__ import annotations

import pandas as pd
import pytest

from tests.cli.conftest import BOX, one_line, write_points


@pytest.fixture(scope="module")
def city(tmp_path_factory):
    """A run on some points, those points, and others that were kept back."""
    from synthgeo.cli.app import run

    folder = tmp_path_factory.mktemp("members")
    write_points(folder / "in.csv", seed=3, rows=600)
    write_points(folder / "out.csv", seed=4, rows=600)
    command = ["stream", "run", str(folder / "run"), str(folder / "in.csv"), BOX, "--epsilon=1", "--depth=8"]
    assert run(command) == 0
    return folder


def test_a_release_stays_within_its_bound(synthgeo, city):
    command = ["membership", city / "run", "--members", city / "in.csv", "--others", city / "out.csv"]
    found = synthgeo(*command, "--json")
    assert found.code == 0, found.err
    low, high = found.json["interval"]
    assert low <= found.json["advantage"] <= high
    assert found.json["allowed"] == pytest.approx(0.4621, abs=1e-4)
    assert "curator only" in found.json["notice"]
    shown = synthgeo(*command)
    assert "epsilon allows" in shown.out
    assert "600 members" in shown.out


def test_named_columns_give_the_same_answer(synthgeo, city, tmp_path):
    for name in ("in", "out"):
        frame = pd.read_csv(city / f"{name}.csv")
        frame.columns = ["east", "north", *frame.columns[2:]]
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    plain = ["membership", city / "run", "--members", city / "in.csv", "--others", city / "out.csv", "--json"]
    named = ["--members", tmp_path / "in.csv", "--others", tmp_path / "out.csv", "--x=east", "--y=north"]
    other = synthgeo("membership", city / "run", *named, "--json")
    assert other.code == 0, other.err
    assert other.json["members"] == synthgeo(*plain).json["members"]


def test_what_cannot_be_attacked_is_said(synthgeo, city, tmp_path):
    rest = ["--members", city / "in.csv", "--others", city / "out.csv"]
    assert "no run and no model" in one_line(synthgeo("membership", tmp_path / "none", *rest).err)
    write_points(tmp_path / "few.csv", seed=1, rows=5)
    few = synthgeo(
        "membership", city / "run", "--members", tmp_path / "few.csv", "--others", city / "out.csv"
    )
    assert few.code == 4
    assert "at least 20" in one_line(few.err)
    wrong = synthgeo("membership", city / "run", *rest, "--confidence=2")
    assert wrong.code == 3
    assert synthgeo("membership", city / "run", "--members", city / "in.csv").code == 2


def test_toeplitz_has_no_epsilon_to_audit(synthgeo):
    refused = synthgeo("audit", "counter", "--counter=toeplitz")
    assert refused.code == 3
    assert "--counter" in one_line(refused.err)


def test_too_few_runs_are_called_that(synthgeo):
    """ε = 9 needs odds of 8000 to 1, which 400 runs cannot show. No infinity, in words or in JSON."""
    command = ["audit", "noise", "--epsilon=9", "--runs=400", "--seed=1"]
    assert "too few --runs" in synthgeo(*command).out
    assert synthgeo(*command, "--json").json["detectable_epsilon"] is None

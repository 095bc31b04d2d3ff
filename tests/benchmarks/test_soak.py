"""Kills and damage: a few of those of ``make soak``, and faults that it has to notice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import damage

ROOT = Path(__file__).parents[2]


def drive(folder, *, name="points", noise="system", kills=0, fault=""):
    """A campaign in a process of its own: what it found, and what it complained of."""
    words = [
        sys.executable,
        "-m",
        "tests.benchmarks.soak_driver",
        str(folder),
        name,
        noise,
        str(kills),
        fault,
    ]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.parametrize(
    ("name", "noise"), [("points", "seeded"), ("points, two runs on one ledger", "system")]
)
def test_a_run_that_is_killed_loses_nothing(tmp_path, name, noise):
    done = drive(tmp_path, name=name, noise=noise, kills=12)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["kills"] >= 6
    assert found["lines"] >= 4
    assert found["steps"] >= 3


@pytest.mark.parametrize(
    ("fault", "complaint"),
    [
        ("visible too early", "its ledger ends at step"),
        ("changed", "changed after it was visible"),
        ("gone", "a release is lost"),
    ],
)
def test_what_must_not_happen_is_noticed(tmp_path, fault, complaint):
    done = drive(tmp_path, kills=60 if fault == "visible too early" else 0, fault=fault)
    assert done.returncode == 1
    assert complaint in done.stderr


@pytest.mark.parametrize("name", ["a run of points", "a saved stream", "a ledger"])
def test_damage_is_refused_or_harmless(name):
    found, wrong = damage.campaign(name, 12, 5)
    assert wrong == []
    assert found["refused"] >= 6


def test_a_damage_that_is_taken_for_whole_is_noticed(monkeypatch):
    """A reader that does not look tells the bytes that it finds."""
    credulous = damage.Subject(
        lambda folder: (folder / "model").write_bytes(b"0123456789"),
        lambda folder: (folder / "model").read_bytes() if (folder / "model").exists() else b"",
    )
    monkeypatch.setitem(damage.DAMAGED, "credulous", credulous)
    assert damage.campaign("credulous", 5, 1)[1]

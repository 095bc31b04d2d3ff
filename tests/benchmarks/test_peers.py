"""The benchmark of peers: what it does when a peer is not there, fails, or takes too long."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import synthgeo as sg
from benchmarks import _peer_release, peers_tabular


def test_a_peer_that_cannot_be_installed_is_left_out_with_a_reason_that_names_no_path(
    monkeypatch, tmp_path, capsys
):
    monkeypatch.setenv("SYNTHGEO_PEERS", str(tmp_path))

    def run(command, **_):
        if "install" in command:
            raise subprocess.CalledProcessError(1, command)
        return subprocess.CompletedProcess(command, 0, stdout="")

    monkeypatch.setattr(peers_tabular.subprocess, "run", run)
    found, left_out = peers_tabular.environments(["dpmm", "SmartNoise"])
    assert not found
    assert left_out == {
        "dpmm": "no environment: pip install dpmm ended with CalledProcessError",
        "SmartNoise": "no environment: pip install torch==2.13.0 ended with CalledProcessError",
    }
    assert str(tmp_path) not in capsys.readouterr().out


def test_every_peer_has_an_environment_of_its_own(monkeypatch, tmp_path):
    monkeypatch.setenv("SYNTHGEO_PEERS", str(tmp_path))
    monkeypatch.setattr(
        peers_tabular.subprocess,
        "run",
        lambda command, **_: subprocess.CompletedProcess(command, 0, stdout="a warning\n1.2.3\n"),
    )
    found, left_out = peers_tabular.environments(list(peers_tabular.PEERS))
    assert not left_out
    assert {version for _, version in found.values()} == {"1.2.3"}
    assert len({python for python, _ in found.values()}) == len(peers_tabular.PEERS)


def test_every_run_names_a_peer_that_the_script_knows():
    assert {run.split()[0] for run in peers_tabular.RUNS} == set(peers_tabular.PEERS)
    assert set(peers_tabular.PEERS) == set(_peer_release.PEERS)


@pytest.mark.parametrize(("limit", "what"), [(60.0, {"failed": 1}), (0.001, {"stopped_after": 0.001})])
def test_a_release_that_fails_or_takes_too_long_has_a_row_without_figures(limit, what):
    frame = pd.DataFrame({"a": [0, 1]})
    schema = sg.Schema({"a": sg.Categorical(range(2))})
    python = Path(sys.executable)
    rows = peers_tabular.theirs("nobody", "MST", python, frame, schema, limit, 1)
    assert rows == [{"method": "nobody MST", "seconds": None, **what}]

"""Running the command as its users do: in a process of its own, or in this one where that is enough."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.conftest import seeded_environment

ROOT = Path(__file__).parents[2]
BOX = "--bounds=0,0,1,1"


@dataclass
class Outcome:
    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)

    @property
    def lines(self):
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture
def synthgeo(capsys, monkeypatch):
    """Run ``synthgeo ...`` in this process; the whole of it but for the interpreter's start. However it ends,
    it closes every database that it opened.
    """
    import warnings

    from synthgeo.cli.app import run

    opened, connect = [], sqlite3.connect

    def connected(*args, **options):
        opened.append(connect(*args, **options))
        return opened[-1]

    monkeypatch.setattr(sqlite3, "connect", connected)

    def command(*arguments):
        before = len(opened)
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            code = run([str(argument) for argument in arguments])
        assert not any(map(_is_open, opened[before:])), arguments
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return command


def _is_open(connection):
    try:
        return connection.total_changes >= 0
    except sqlite3.ProgrammingError:
        return False


def start(*arguments, **options):
    """Start ``synthgeo ...`` in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "synthgeo.cli", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=seeded_environment("command"),
        **options,
    )


def write_points(path, *, seed, rows=300, users=20, hours=24):
    """Points in the unit square with times and users, as CSV or Parquet."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "x": rng.uniform(0, 1, rows),
            "y": rng.uniform(0, 1, rows),
            "time": pd.Timestamp("2015-01-01")
            + pd.to_timedelta(rng.integers(0, hours * 3600, rows), unit="s"),
            "user_id": rng.integers(0, users, rows),
        }
    )
    frame.to_csv(path, index=False) if path.suffix == ".csv" else frame.to_parquet(path)
    return frame


def one_line(text):
    """An error is one line that starts with what it is."""
    assert text.count("\n") == 1, text
    assert text.startswith("error: ")
    assert "Traceback" not in text
    return text

"""The benchmarks' own arithmetic: exponents, clocks, what is run and what is left alone."""

from __future__ import annotations

import importlib.util
import itertools
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import streams.spatial.structure
from benchmarks import __main__ as command
from benchmarks import _common, growth, profiles, sweeps
from benchmarks._markdown import number, table_of


def test_the_exponent_of_a_power_law_is_its_power():
    sizes = [10.0, 100.0, 1000.0]
    assert growth.slope(sizes, [3 * size**1.5 for size in sizes]) == pytest.approx(1.5)
    assert growth.slope(sizes, [0.0, 1.0, 2.0]) is None
    rows = [{"n": size, "seconds": 5 + size, "more_mib": 2 * size} for size in sizes]
    found = growth.exponents(rows, "n")
    assert found["time"] < found["time, last two sizes"] < 1
    assert found["memory, last two sizes"] == pytest.approx(1)


def test_a_part_is_charged_without_the_parts_inside_it(monkeypatch):
    """A clock that ticks once for each look at it: outer 1-6, inner 2-3 and 4-5."""
    ticks = itertools.count(1)
    monkeypatch.setattr(profiles.time, "perf_counter", lambda: float(next(ticks)))
    work = SimpleNamespace(inner=lambda: None)
    work.outer = lambda: (work.inner(), work.inner())
    clock = profiles.Clock()
    with clock.on({"outside": [(work, "outer")], "inside": [(work, "inner")]}):
        work.outer()
    assert clock.seconds == {"inside": 2.0, "outside": 3.0}
    work.outer()
    assert clock.seconds == {"inside": 2.0, "outside": 3.0}, "the functions are put back"


PEAK = """
import numpy as np
from benchmarks import _common

before = _common.restart_peak()
block = np.ones(32 * 2**20)  # 256 MiB
print(_common.peak_memory_mib() - before)
"""


def test_a_peak_of_memory_is_that_of_the_work():
    """In a process of its own: not every system can forget the peak that the tests before it had."""
    done = subprocess.run([sys.executable, "-c", PEAK], check=True, capture_output=True, text=True)
    assert 240 < float(done.stdout) < 300


def test_results_are_read_back_as_they_were_written(tmp_path, monkeypatch):
    monkeypatch.setattr(_common, "RESULTS", tmp_path)
    assert _common.recorded("x") is None
    _common.record("x", {"seed": 1}, {"values": np.arange(3), "one": np.float64(0.5)})
    found = _common.recorded("x")
    assert found is not None
    assert found["results"] == {"values": [0, 1, 2], "one": 0.5}
    assert list(tmp_path.iterdir()) == [tmp_path / "x.json"]
    with pytest.raises(TypeError):
        _common.record("x", {}, {"bad": object()})
    assert _common.recorded("x") == found, "a result that cannot be written leaves the old one"


def test_sweeps_move_one_knob_and_put_the_thresholds_back():
    usual = (streams.spatial.structure.SPLIT_AT, streams.spatial.structure.MERGE_AT)
    sweeps.maker("split, merge", (4.0, 2.0), 10)
    assert (streams.spatial.structure.SPLIT_AT, streams.spatial.structure.MERGE_AT) == (4.0, 2.0)
    sweeps.maker("theta", 5.0, 10)
    assert usual == (streams.spatial.structure.SPLIT_AT, streams.spatial.structure.MERGE_AT)
    every = [(knob, sweeps.label(value)) for knob, value in sweeps.lines(1.0)]
    assert len(every) == len(set(every))
    assert every.count(("default", "default")) == 1
    for knob, value in sweeps.DEFAULTS.items():
        assert value not in sweeps.KNOBS[knob], "the default stands once, as the default"


def test_every_benchmark_that_the_command_names_is_there():
    for name in command.RUNS:
        assert importlib.util.find_spec(f"benchmarks.{name}") is not None, name
    shown = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--help"], capture_output=True, text=True, check=True
    ).stdout
    assert all(name in shown for name in command.RUNS)


def test_numbers_and_tables_as_people_read_them():
    assert [number(v) for v in (0.123456, 1234.5, 12, 1234567, None, float("nan"), True, "x", 2.0)] == [
        "0.123", "1,234", "12", "1,234,567", "–", "–", "yes", "x", "2",
    ]  # fmt: skip
    assert table_of([{"a_b": 1}, {"a_b": 2, "c": 0.5}])[:4] == [
        "| a b | c |",
        "|---|---|",
        "| 1 | – |",
        "| 2 | 0.5 |",
    ]

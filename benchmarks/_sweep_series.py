"""The sweep behind the defaults of FAST: one setting at a time away from the default, on five series.

Linear, flu and demand are those that the defaults were chosen on; sunspots and aircraft in the air were not
looked at for that. ``process_variance`` is public knowledge of the size of a step and the user's to give.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import synthgeo as sg
from benchmarks._common import record
from benchmarks._series import Report, aircraft_in_the_air, linear, mean_of, read_csv, sunspots

RUNS = 5
EPSILONS = (0.1, 1.0, 10.0)
SETTINGS: dict[str, tuple[Any, ...]] = {
    "pace": (0.0, 0.5, 0.7, 0.85),
    "filter": ("particle",),
    "set_point": (0.05, 0.2),
    "theta": (5.0, 20.0),
    "sampling": (5, 10, 20),
}
DEFAULTS = {"pace": 1.0, "filter": "kalman", "set_point": 0.1, "theta": 10.0, "sampling": "adaptive"}


def series() -> dict[str, tuple[np.ndarray, float]]:
    """Name -> values and the variance of a step; those that are not there are left out."""
    report = Report()
    found: dict[str, tuple[np.ndarray | None, float]] = {
        "linear": (linear(), 1e5),
        "flu": (read_csv(report, "flu_weekly_us.csv", "ilitotal"), 1e7),
        "demand": (read_csv(report, "nyc_taxi_demand.csv", "value"), 3e6),
        "aircraft": (aircraft_in_the_air(report, 2016), 25.0),
        "sunspots": (sunspots(report), 400.0),
    }
    return {name: (x[:2016].round(), q) for name, (x, q) in found.items() if x is not None}


def sweep() -> None:
    """Relative error of each value on each series, recorded."""
    table: list[dict[str, Any]] = []
    everything = [("default", "default"), *((k, v) for k, values in SETTINGS.items() for v in values)]
    for epsilon in EPSILONS:
        for setting, value in everything:
            row: dict[str, Any] = {"setting": setting, "value": str(value), "epsilon": epsilon}
            for name, (x, variance) in series().items():
                options: dict[str, Any] = {"filter": "kalman"} | (
                    {} if setting == "default" else {setting: value}
                )
                options |= {
                    "budget": sg.PrivacyBudget(epsilon),
                    "horizon": x.size,
                    "process_variance": variance,
                }

                def make(noise: Any, options: dict[str, Any] = options) -> Any:
                    return sg.series.FAST(**options, noise=noise)

                row[name] = mean_of(sg.series.metrics.relative_error, x, make, RUNS)
            table.append(row)
            print(row, flush=True)
    why = (
        f"Relative error of FAST with one setting moved from its default, mean over {RUNS} runs. The "
        "defaults were chosen on linear, flu and demand; aircraft and sunspots, whose counts are small, were "
        "not looked at."
    )
    record("sweep_series", {"runs": RUNS, "defaults": DEFAULTS}, {"table": table, "why": why})


if __name__ == "__main__":
    sweep()

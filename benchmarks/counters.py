"""How much a bank of 10^5 counters costs beside drawing its noise, and how good each kind of counter is.

Run with ``python -m benchmarks.counters``. The promise: at most three times the cost of the noise alone.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import pandas as pd

from benchmarks._common import record
from streams.counters import LAPLACE_KINDS, expected_rmse, make_bank
from synthgeo.privacy.noise import SeededNoise, SystemNoise

LIMIT = 3.0
HORIZONS = (30, 100, 365, 1024, 10_000, 65_536, 10**6)


class TimedNoise(SystemNoise):
    """The operating system's noise, with a clock around each call."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0
        self.draws = 0

    def discrete_laplace(self, scale: object, size: int | None = None) -> np.ndarray:
        start = time.perf_counter()
        out = super().discrete_laplace(scale, size)
        self.seconds += time.perf_counter() - start
        self.draws += out.size
        return out


def time_bank(kind: str, *, counters: int, steps: int, mixed: bool) -> dict[str, float]:
    """Seconds for ``steps`` updates of a bank, and of that in the noise."""
    noise = TimedNoise()
    bank = make_bank(kind, epsilon=1.0, horizon=365, noise=noise)
    slots = bank.add(counters)
    values = np.ones(counters, dtype=np.int64)
    if mixed:  # ages from 0 to 99, as after many joins
        for age in range(1, 100):
            old = slots[np.arange(counters) % 100 >= age]
            bank.step(old, values[: old.size])
    noise.seconds, noise.draws = 0.0, 0
    start = time.perf_counter()
    for _ in range(steps):
        bank.step(slots, values)
    seconds = time.perf_counter() - start
    return {
        "seconds": seconds,
        "noise": noise.seconds,
        "draws": noise.draws,
        "ratio": seconds / noise.seconds,
    }


def cost(counters: int, steps: int) -> list[dict[str, Any]]:
    """A line for each kind of counter, with slots of one age and of many."""
    rows = []
    for kind in LAPLACE_KINDS:
        for mixed in (False, True):
            took = time_bank(kind, counters=counters, steps=steps, mixed=mixed)
            row = {
                "counter": kind,
                "clocks": "mixed" if mixed else "equal",
                "update_ms": took["seconds"] / steps * 1000,
                "noise_ms": took["noise"] / steps * 1000,
                "draws_an_update": took["draws"] / steps,
                "ratio": took["ratio"],
            }
            rows.append(row)
    return rows


def errors() -> list[dict[str, Any]]:
    """Expected RMSE of the noisy sum over the horizon, ε = 1, or ρ = 0.5 for the Gaussian counter."""
    rows: list[dict[str, Any]] = []
    for kind in (*LAPLACE_KINDS, "auto"):
        found = {str(horizon): expected_rmse(kind, epsilon=1.0, horizon=horizon) for horizon in HORIZONS}
        rows.append({"counter": kind, **found})
    gaussian = [horizon for horizon in HORIZONS if horizon <= 10_000]  # its closed form sums over all times
    found = {str(horizon): expected_rmse("toeplitz", rho=0.5, horizon=horizon) for horizon in gaussian}
    rows.append({"counter": "toeplitz", **found})
    return rows


def over_time(horizon: int = 365, *, copies: int = 20_000) -> dict[str, Any]:
    """RMSE of the noisy sum at each time, in closed form, and as measured on ``copies`` counters of zeros."""
    times = np.arange(1, horizon + 1)
    found: dict[str, Any] = {"step": times, "closed_form": {}, "measured": {}}
    zeros = np.zeros(copies, dtype=np.int64)
    for kind in ("simple", "block", "binary", "kary"):
        bank = make_bank(kind, epsilon=1.0, horizon=horizon, noise=SeededNoise(1))
        slots = bank.add(copies)
        noisy = [np.sqrt(np.mean(np.square(bank.step(slots, zeros), dtype=np.float64))) for _ in times]
        found["closed_form"][kind] = np.sqrt(bank.variance(times)).round(4)
        found["measured"][kind] = np.round(noisy, 4)
    return found


def main() -> None:
    """Print the two tables and write ``benchmarks/results/counters.json``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--counters", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--errors-only", action="store_true", help="leave the costs as they are recorded")
    options = parser.parse_args()
    found = over_time()
    record("counters_over_time", {"horizon": 365, "epsilon": 1.0, "seed": 1, "copies": 20_000}, found)
    if options.errors_only:
        return
    costs, rmse = cost(options.counters, options.steps), errors()
    worst = max(row["ratio"] for row in costs)
    print(f"{options.counters} counters, {options.steps} updates, horizon 365, ε = 1")
    print(pd.DataFrame(costs).round(2).to_string(index=False))
    print(f"worst ratio {worst:.2f}, promised at most {LIMIT:g}: {'kept' if worst <= LIMIT else 'NOT KEPT'}")
    print(f"\nexpected RMSE over the horizon\n{pd.DataFrame(rmse).round(2).to_string(index=False)}")
    config = {
        "counters": options.counters,
        "steps": options.steps,
        "horizon": 365,
        "epsilon": 1.0,
        "rho": 0.5,
    }
    record(
        "counters",
        config,
        {"cost": costs, "worst_ratio": worst, "limit": LIMIT, "rmse": rmse, "over_time": over_time()},
    )


if __name__ == "__main__":
    main()

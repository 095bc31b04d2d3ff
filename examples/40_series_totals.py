"""Publish a weekly total as it comes in: FAST, plain noise, AR(1) release, and one sample in five.

    SYNTHGEO_DATA=... python examples/40_series_totals.py

Reads series/flu_weekly_us.csv (490 weeks of visits for influenza-like illness); without it, simulates a
series with seasons. Leaves examples/out/40_series_totals.png and .csv. The picture shows the true series: for
the curator only.
"""

from __future__ import annotations

import os
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd

import synthgeo as sg

matplotlib.use("Agg")
import matplotlib.pyplot as plt

OUT = Path(__file__).parent / "out"
FLU = Path(os.environ.get("SYNTHGEO_DATA", "data")) / "series" / "flu_weekly_us.csv"


def weekly_visits() -> np.ndarray:
    """The real series, or one with seasons."""
    if FLU.exists():
        return pd.read_csv(FLU)["ilitotal"].to_numpy(dtype=float)
    weeks = np.arange(490)
    season = np.exp(3 * np.cos(2 * np.pi * (weeks - 14) / 52.2))
    return np.rint(5000 + 2500 * season + np.random.default_rng(3).normal(0, 300, weeks.size))


def main() -> None:
    visits = weekly_visits()
    pure, approximate = sg.PrivacyBudget(0.1), sg.PrivacyBudget(0.1, delta=1e-6)
    weeks = visits.size
    mechanisms = {
        "LPA": sg.series.LPA(budget=pure, horizon=weeks, nonnegative=True),
        "FAST": sg.series.FAST(
            budget=pure,
            horizon=weeks,
            settings=sg.series.FASTSettings(process_variance=1e7),
            nonnegative=True,
        ),
        "sampling, every 5th": sg.series.Sampling(budget=pure, horizon=weeks, interval=5, nonnegative=True),
        "AR(1), δ = 1e-6": sg.series.AR1Release(
            budget=approximate, horizon=weeks, weights=0.9, nonnegative=True
        ),
    }
    released = pd.DataFrame({"week": np.arange(weeks)})
    for name, mechanism in mechanisms.items():
        released[name] = [mechanism.update(value) for value in visits]
    OUT.mkdir(exist_ok=True)
    released.to_csv(OUT / "40_series_totals.csv", index=False)

    figure, axes = plt.subplots(
        len(mechanisms), 1, figsize=(11, 10), layout="constrained", sharex=True, sharey=True
    )
    for axis, (name, mechanism) in zip(axes, mechanisms.items(), strict=True):
        error = sg.series.metrics.relative_error(visits, released[name])
        axis.plot(visits, color="0.6", label="true (curator only)")
        axis.plot(released[name], lw=1, label=f"{name}: relative error {error:.2f}")
        axis.set_ylim(-5000, 1.3 * visits.max())
        axis.legend(loc="upper right")
        print(f"{name:22} relative error {error:.3f}, spent {mechanism.spent}")
        print(f"{'':22} {mechanism.guarantee.describe()}")
    figure.suptitle("Weekly visits, one user in any number of weeks protected at ε = 0.1")
    figure.savefig(OUT / "40_series_totals.png", dpi=110)
    print(f"wrote {OUT / '40_series_totals.png'} and .csv")


if __name__ == "__main__":
    main()

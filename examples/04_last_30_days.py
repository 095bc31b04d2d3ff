"""The last 30 days, from a CSV: a dataset that forgets, real beside synthetic, day by day.

    python examples/04_last_30_days.py

Leaves examples/out/04_last_30_days.png and the last release as Parquet. The picture shows simulated "real"
data; with real data it would be for the curator only.
"""

from __future__ import annotations

import os
from pathlib import Path

import matplotlib
import pandas as pd

import synthgeo as sg

matplotlib.use("Agg")
import matplotlib.pyplot as plt

OUT = Path(__file__).parent / "out"
EVENTS = 6_000 if os.environ.get("SYNTHGEO_EXAMPLE_SIZE") == "small" else 40_000
DAYS = 75
START = pd.Timestamp("2026-03-01", tz="America/Chicago")


def write_csv(path: Path) -> pd.DataFrame:
    """Simulated reports of 75 days with the instant of each, as a system would log them."""
    events = sg.simulate.checkins(EVENTS, days=DAYS, seed=3)
    clock = events["time"] - events["time"].min().normalize() + START.tz_localize(None)
    zoned = clock.dt.tz_localize("America/Chicago", ambiguous=True, nonexistent="shift_forward")
    events = pd.DataFrame({"when": zoned.dt.tz_convert("UTC"), "lon": events["lon"], "lat": events["lat"]})
    events.to_csv(path, index=False, date_format="%Y-%m-%dT%H:%M:%SZ")
    return events


def main() -> None:
    OUT.mkdir(exist_ok=True)
    path = OUT / "04_reports.csv"
    events = write_csv(path)

    stream = sg.PHDStream(
        domain=sg.BoxDomain(-124, 25, -67, 49, crs="EPSG:4326"),
        budget=sg.PrivacyBudget(epsilon=1.0),
        reading=sg.Reading(tz="UTC"),
    )
    looks = [10, 25, 40, 55, 70]
    figure, axes = plt.subplots(
        2, len(looks), figsize=(15, 5.2), layout="constrained", sharex=True, sharey=True
    )
    end = START + pd.DateOffset(days=DAYS)
    run = stream.run(
        str(path), time="when", every="1D", start=START, end=end, tz="America/Chicago", lifetime="30D"
    )
    for release in run:
        if release.step not in looks:
            continue
        day = pd.Timestamp(release.provenance["window_start"])
        after = day + pd.DateOffset(days=1)
        real = events[events["when"].between(after - pd.DateOffset(days=30), after, inclusive="left")]
        column = looks.index(release.step)
        for row, points in enumerate((real[["lon", "lat"]].to_numpy(), release.xy)):
            axes[row, column].plot(*points.T, ".", ms=1, alpha=0.5, color=("#8a8a8a", "#0b5cad")[row])
        axes[0, column].set_title(f"{day:%d %B}: the 30 days to here", fontsize=10)
    axes[0, 0].set_ylabel("real (simulated)")
    axes[1, 0].set_ylabel(f"synthetic, ε = {stream.budget.epsilon:g}")
    figure.savefig(OUT / "04_last_30_days.png", dpi=100)

    release.to_parquet(OUT / "04_last_30_days.parquet")
    by_day = release.data["window_start"].dt.date.value_counts().sort_index()
    print(f"the last release holds {release.total:,} synthetic points of {len(by_day)} days:")
    print(by_day.head(3).to_string())
    print(release.expected_error().to_string(index=False))
    print(f"no event paid more than {stream.costs['total'].max():g} over all {stream.step} releases")


if __name__ == "__main__":
    main()

"""Taxi pickups every six hours, on Manhattan's roads.

    SYNTHGEO_DATA=... python examples/02_new_york_pickups.py

Reads nyc/taxi_trips.parquet and nyc/manhattan_roads.graphml from SYNTHGEO_DATA (50,000 real trips of January
2015). Without them it simulates a street network and pickups on it. Leaves
examples/out/02_new_york_pickups.png with true and synthetic at four times.
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


def load() -> tuple[sg.RoadDomain, pd.DataFrame, str, str]:
    """The roads, pickups with columns lon, lat (or x, y) and time, and the public ends of the grid of
    windows.
    """
    folder = Path(os.environ.get("SYNTHGEO_DATA", "data")) / "nyc"
    if (folder / "taxi_trips.parquet").exists():
        roads = sg.RoadDomain.from_graphml(folder / "manhattan_roads.graphml", max_distance=50)
        trips = pd.read_parquet(folder / "taxi_trips.parquet")
        pickups = trips[["pickup_lon", "pickup_lat", "tpep_pickup_datetime"]].set_axis(
            ["lon", "lat", "time"], axis=1
        )
        return roads, pickups, "2015-01-01", "2015-02-01"
    roads = sg.RoadDomain.from_graph(sg.simulate.city_graph(seed=1), max_distance=50)
    pickups = sg.simulate.taxi_stream(20_000, roads=roads, days=14, start="2015-01-01", seed=1)
    return roads, pickups, "2015-01-01", "2015-01-15"


def main() -> None:
    roads, pickups, start, end = load()
    stream = sg.PHDStream(domain=roads, budget=sg.PrivacyBudget(epsilon=1.0))
    windows = pd.date_range(start, end, freq="6h", inclusive="left")
    looks = [windows[int(share * (len(windows) - 1))] for share in (0.05, 0.3, 0.6, 1.0)]
    figure, axes = plt.subplots(2, 4, figsize=(11, 10), layout="constrained", sharex=True, sharey=True)
    for release in stream.run(pickups, time="time", every="6h", start=start, end=end):
        when = pd.Timestamp(release.provenance["window_start"])
        if when in looks:
            column = looks.index(when)
            so_far = pickups[pickups["time"] < when + pd.Timedelta("6h")]
            release.plot(true=so_far.drop(columns="time"), ax=axes[:, column])
            axes[0, column].set_title(
                f"true, up to {when + pd.Timedelta('6h'):%d %b %H:%M} (curator only)", fontsize=8
            )
    figure.suptitle("Taxi pickups so far, true and synthetic, on the roads; ε = 1 for each pickup")
    OUT.mkdir(exist_ok=True)
    figure.savefig(OUT / "02_new_york_pickups.png", dpi=110)
    release.to_parquet(OUT / "02_new_york_pickups.parquet")
    print(f"{stream.step} steps, {release.total:,} synthetic pickups, all on roads; wrote {OUT}")


if __name__ == "__main__":
    main()

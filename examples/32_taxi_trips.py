"""Taxi records know the two ends of a trip only: route them over Manhattan, release synthetic rides.

    SYNTHGEO_DATA=... python examples/32_taxi_trips.py

Reads 50,000 yellow-cab records of January 2015 and Manhattan's roads from `nyc/` in SYNTHGEO_DATA; without
them it takes the ends of simulated trips. Leaves examples/out/32_taxi_trips.png and 32_taxi_trips.parquet
(GeoParquet, provenance in the file). The printed comparison is for whoever holds the data: it is not private.
"""

from __future__ import annotations

import os
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd

import synthgeo as sg
from synthgeo.evaluation.trajectories import read_paths, trip_floor, trip_scores
from trajectories.reading.points import read_ends

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.collections import LineCollection

OUT = Path(__file__).parent / "out"
DATA = Path(os.environ.get("SYNTHGEO_DATA", "data")) / "nyc"
ENDS = {
    "origin": ("pickup_lon", "pickup_lat"),
    "destination": ("dropoff_lon", "dropoff_lat"),
    "departure": "pickup_time",
    "arrival": "dropoff_time",
}


def load() -> tuple[sg.RoadDomain, pd.DataFrame]:
    """Real records where they are, the ends of simulated trips elsewhere."""
    if (DATA / "taxi_trips.parquet").exists():
        names = {"tpep_pickup_datetime": "pickup_time", "tpep_dropoff_datetime": "dropoff_time"}
        rides = pd.read_parquet(DATA / "taxi_trips.parquet").rename(columns=names)
        return sg.RoadDomain.from_graphml(DATA / "manhattan_roads.graphml"), rides
    graph = sg.simulate.city_graph(seed=2)
    trips = sg.simulate.city_trips(graph, trips=5_000, seed=2).groupby("trip_id")[["lon", "lat", "time"]]
    rides = trips.first().add_prefix("pickup_").join(trips.last().add_prefix("dropoff_"))
    return sg.RoadDomain.from_graph(graph), rides


def main() -> None:
    roads, rides = load()
    model = sg.TrajectorySynthesizer(
        domain=roads, budget=sg.PrivacyBudget(epsilon=1.0), unit=sg.PrivacyUnit.trajectory()
    )
    model.fit(rides.filter(regex="^(pickup|dropoff)_"), **ENDS)
    release = model.sample(20_000, spacing=100)

    real = read_ends(rides, roads, unit=sg.PrivacyUnit.trajectory(), **ENDS)
    _, near = roads.snap(real.xy)
    real = real.take(near.reshape(-1, 2).all(axis=1))  # rides to other boroughs are outside the domain
    made = read_paths(release.data, roads)
    ends = [np.stack(pair) for pair in zip(made.first, made.last, strict=True)]
    scores = pd.DataFrame({
        "synthetic": trip_scores(real, ends, resample=False).as_dict(),
        "real halves": trip_floor(real).as_dict(),
    })  # fmt: skip
    print(scores.loc[["se_jsd", "se_are", "trip", "diameter"]].round(3).to_string())

    OUT.mkdir(exist_ok=True)
    release.to_parquet(OUT / "32_taxi_trips.parquet")
    fig, ax = plt.subplots(figsize=(7, 9), layout="constrained")
    roads.edges.plot(ax=ax, color="0.85", linewidth=0.5)
    lines = np.split(made.xy, made.start[1:-1])[:3000]
    ax.add_collection(LineCollection(lines, colors="tab:orange", alpha=0.04, linewidths=1.2))
    ax.set(title="3,000 synthetic rides, ε = 1")
    ax.set_axis_off()
    fig.savefig(OUT / "32_taxi_trips.png", dpi=110)


if __name__ == "__main__":
    main()

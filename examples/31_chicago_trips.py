"""Synthetic shuttle trips on Chicago's streets, beside the real ones.

    SYNTHGEO_DATA=... python examples/31_chicago_trips.py

Reads 889 real trips and their road graph from `chicago/` in SYNTHGEO_DATA; without them it simulates a city
of its own. Leaves examples/out/31_chicago_trips.png, and prints how close the synthetic trips are, beside
what two halves of the real data are to each other. The comparison is for whoever holds the data: it is not
private.
"""

from __future__ import annotations

import os
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd

import synthgeo as sg
from synthgeo.evaluation.trajectories import read_paths, trip_floor, trip_scores

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.collections import LineCollection

OUT = Path(__file__).parent / "out"
DATA = Path(os.environ.get("SYNTHGEO_DATA", "data")) / "chicago"


def load() -> tuple[sg.RoadDomain, pd.DataFrame]:
    """Real trips and roads where they are, simulated ones elsewhere."""
    if (DATA / "trips.parquet").exists():
        return sg.RoadDomain.from_graphml(DATA / "roads.graphml"), pd.read_parquet(DATA / "trips.parquet")
    graph = sg.simulate.city_graph(seed=1)
    return sg.RoadDomain.from_graph(graph), sg.simulate.city_trips(graph, trips=900, interval=5, seed=1)


def main() -> None:
    roads, points = load()
    model = sg.TrajectorySynthesizer(
        domain=roads, budget=sg.PrivacyBudget(epsilon=1.0), unit=sg.PrivacyUnit.trajectory()
    )
    model.fit(points)
    release = model.sample(900)
    real, made = read_paths(points, roads), read_paths(release.data, roads)

    scores = pd.DataFrame(
        {"synthetic": trip_scores(real, made).as_dict(), "real halves": trip_floor(real).as_dict()}
    )
    print(scores.round(3).to_string())

    OUT.mkdir(exist_ok=True)
    fig, axes = plt.subplots(1, 2, figsize=(13, 5), sharex=True, sharey=True, layout="constrained")
    minx, miny, maxx, maxy = real.bounds()
    for ax, title, trips in ((axes[0], "real (private)", real), (axes[1], "synthetic, ε = 1", made)):
        roads.edges.plot(ax=ax, color="0.85", linewidth=0.5)
        lines = np.split(trips.xy, trips.start[1:-1])
        ax.add_collection(LineCollection(lines, colors="tab:blue", alpha=0.06, linewidths=1.2))
        ax.set(title=title, xlim=(minx - 200, maxx + 200), ylim=(miny - 200, maxy + 200))
        ax.set_axis_off()
    fig.savefig(OUT / "31_chicago_trips.png", dpi=110)


if __name__ == "__main__":
    main()

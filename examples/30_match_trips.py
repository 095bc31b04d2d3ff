"""GPS points to paths on the road: clean and match simulated trips, and compare with the truth.

    python examples/30_match_trips.py

Needs no download: the city is made up. Leaves examples/out/30_match_trips.png. Matching reads private data
and its result is private too; it is the first step of a trajectory synthesizer, shown here on its own.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd

import synthgeo as sg
from trajectories.matching.match import match
from trajectories.matching.path_assembly import MatchedTrips
from trajectories.reading.cleaning import clean
from trajectories.reading.points import Trips, read_trips

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.collections import LineCollection

OUT = Path(__file__).parent / "out"
TRIPS, SEED = 500, 7


def lines(trips: Trips) -> list[np.ndarray]:
    """One array of points per trip."""
    return np.split(trips.xy, trips.start[1:-1])


def agreement(matched: MatchedTrips, roads: sg.RoadDomain, truth: pd.DataFrame) -> tuple[float, float]:
    """Share of the true length that was found, and of the matched length that is true."""
    row = pd.Series(np.arange(len(roads.edges)), index=roads.edges.index)
    driven = set(
        zip(
            truth["trip_id"],
            row.loc[list(zip(truth["u"], truth["v"], truth["key"], strict=True))],
            strict=True,
        )
    )
    trip = np.flatnonzero(matched.matched)[matched.trip]
    found = set(zip(trip.tolist(), matched.edges.tolist(), strict=True))
    length = roads.edges["length"].to_numpy()

    def metres(pairs: set[tuple[int, int]]) -> float:
        return float(sum(length[edge] for _, edge in pairs))

    return metres(driven & found) / metres(driven), metres(driven & found) / metres(found)


def main() -> None:
    graph = sg.simulate.city_graph(seed=SEED)
    roads = sg.RoadDomain.from_graph(graph)
    points = sg.simulate.city_trips(graph, trips=TRIPS, interval=20, gps_noise=8, seed=SEED)
    truth = sg.simulate.city_routes(graph, trips=TRIPS, seed=SEED)

    trips = read_trips(points, roads, unit=sg.PrivacyUnit.trajectory())
    matched = match(clean(trips, domain=roads), roads)
    found, right = agreement(matched, roads, truth)
    print(f"{len(points):,} points of {TRIPS} trips matched to {len(roads.edges):,} directed edges")
    print(f"{found:.1%} of the true way was found, {right:.1%} of the matched way is true")

    OUT.mkdir(exist_ok=True)
    fig, axes = plt.subplots(1, 2, figsize=(13, 6), sharex=True, sharey=True, layout="constrained")
    for ax, title, some in (
        (axes[0], "recorded", lines(trips)),
        (axes[1], "matched", lines(matched.to_trips(roads))),
    ):
        roads.edges.plot(ax=ax, color="0.85", linewidth=0.6)
        ax.add_collection(LineCollection(some[:60], colors="tab:blue", alpha=0.5, linewidths=1.0))
        ax.set_title(title)
        ax.set_axis_off()
    fig.savefig(OUT / "30_match_trips.png", dpi=110)


if __name__ == "__main__":
    main()

"""Map matching and trip metrics: how fast, and how often right.

``python -m benchmarks.matching`` simulates trips over Manhattan's one-way streets (a made-up city where
``SYNTHGEO_DATA`` is not there), matches them and compares with the edges that were driven. Chicago's real
shuttles and New York's taxi records have no truth; there it reports times and how close paths lie to points.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import shapely

import synthgeo as sg
from benchmarks._common import record, seconds
from synthgeo.evaluation.spatial import RangeQueries
from synthgeo.evaluation.trajectories import trip_floor, trip_scores
from trajectories.matching.match import match
from trajectories.matching.path_assembly import MatchedTrips
from trajectories.reading.points import Trips, read_ends, read_trips
from trajectories.routing import RoadGraph

DATA = Path(os.environ.get("SYNTHGEO_DATA", "data"))
UNIT = sg.PrivacyUnit.trajectory()
SEED = 11


def manhattan() -> tuple[str, sg.RoadDomain]:
    """Manhattan where the file is there, a made-up city elsewhere."""
    path = DATA / "nyc" / "manhattan_roads.graphml"
    if path.exists():
        return "Manhattan", sg.RoadDomain.from_graphml(path)
    return "made-up city", sg.RoadDomain.from_graph(sg.simulate.city_graph(40, 32, seed=SEED))


def accuracy(matched: MatchedTrips, roads: sg.RoadDomain, truth: pd.DataFrame) -> dict[str, float]:
    """Shares of the true length that is missed, and of length that is added; ends of trips included."""
    length = RoadGraph.of(roads).length
    row = pd.Series(np.arange(len(length)), index=roads.edges.index)
    edge = row.loc[list(zip(truth["u"], truth["v"], truth["key"], strict=True))].to_numpy()
    driven = np.unique(truth["trip_id"].to_numpy() * len(length) + edge)
    found = np.unique(np.flatnonzero(matched.matched)[matched.trip] * len(length) + matched.edges)

    def metres(codes: np.ndarray) -> float:
        return float(length[codes % len(length)].sum())

    return {
        "missed": metres(np.setdiff1d(driven, found)) / metres(driven),
        "added": metres(np.setdiff1d(found, driven)) / metres(driven),
    }


def reversals(matched: MatchedTrips, roads: sg.RoadDomain) -> float:
    """Share of steps that turn round on the spot."""
    same = np.diff(matched.trip) == 0
    return float(np.mean(RoadGraph.of(roads).opposite[matched.edges[:-1]][same] == matched.edges[1:][same]))


def simulated() -> list[dict[str, Any]]:
    """Against the truth."""
    name, roads = manhattan()
    graph = roads.graph
    truth = sg.simulate.city_routes(graph, trips=2_000, seed=SEED)
    rows = []
    for interval, noise in ((5, 5), (5, 12), (30, 8), (60, 10)):
        points = sg.simulate.city_trips(graph, trips=2_000, interval=interval, gps_noise=noise, seed=SEED)
        trips = read_trips(points, roads, unit=UNIT)
        matched = match(trips, roads)
        score = accuracy(matched, roads, truth)
        rows.append(
            {
                "roads": name,
                "every_s": interval,
                "noise_m": noise,
                **score,
                "reversals": reversals(matched, roads),
            }
        )
    return rows


def speed() -> list[dict[str, Any]]:
    """Seconds for whole datasets."""
    name, roads = manhattan()
    points = sg.simulate.city_trips(roads.graph, trips=20_000, interval=80, seed=SEED)
    trips = read_trips(points, roads, unit=UNIT)
    rows = [_timed(f"{name}, 20,000 simulated trips", trips, roads, "hmm")]
    if (DATA / "nyc" / "taxi_trips.parquet").exists():
        rides = read_ends(
            DATA / "nyc" / "taxi_trips.parquet", roads, unit=UNIT, origin=("pickup_lon", "pickup_lat"),
            destination=("dropoff_lon", "dropoff_lat"),
        )  # fmt: skip
        rows.append(_timed("New York taxi records, ends", rides, roads, "ends"))
    if (DATA / "chicago" / "trips.parquet").exists():
        city = sg.RoadDomain.from_graphml(DATA / "chicago" / "roads.graphml")
        shuttles = read_trips(DATA / "chicago" / "trips.parquet", city, unit=UNIT)
        row = _timed("Chicago shuttles", shuttles, city, "hmm")
        matched = match(shuttles, city)
        paths = matched.to_trips(city)
        lines = np.array([shapely.LineString(line) for line in np.split(paths.xy, paths.start[1:-1])])
        apart = shapely.distance(shapely.points(shuttles.xy), lines[shuttles.trip])
        ratio = matched.lengths(city) / shuttles.lengths()
        row |= {"points_to_path_m": np.median(apart), "length_ratio": np.median(ratio)}
        row |= {"reversals": reversals(matched, city)}
        rows.append(row)
        rows.append(clocked("floor of the ten trip metrics", lambda: trip_floor(shuttles, repeats=1)))
        rows.append(clocked("the ten trip metrics", lambda: trip_scores(shuttles, paths)))
    rng = np.random.default_rng(SEED)
    real, made = rng.random((2, 10**6, 2))
    queries = RangeQueries.draw((0.0, 0.0, 1.0, 1.0))
    rows.append(clocked("16,000 range queries, 10^6 points a side", lambda: queries.error(real, made)))
    return rows


def _timed(what: str, trips: Trips, roads: sg.RoadDomain, method: Any) -> dict[str, Any]:
    match(trips.take(np.arange(min(2, trips.size))), roads, method=method)  # compiles
    return clocked(what, lambda: match(trips, roads, method=method)) | {"points": len(trips.xy)}


def clocked(what: str, work: Callable[[], Any]) -> dict[str, Any]:
    """Wall and processor seconds. All of this runs on one core: the second is what an idle machine needs."""
    before, wall = time.process_time(), seconds(work, repeat=1)
    return {"what": what, "seconds": wall, "cpu_seconds": time.process_time() - before}


def main() -> None:
    quality, times = simulated(), speed()
    for title, rows in (("against the truth", quality), ("speed", times)):
        print(f"\n{title}\n{pd.DataFrame(rows).round(4).to_string(index=False)}")
    record("matching", {"seed": SEED}, {"quality": quality, "speed": times})


if __name__ == "__main__":
    main()

"""Synthetic trips: how close, how fast. ``python -m benchmarks.trips [--only
chicago|manhattan|taxis|speed|walks]``.

Chicago's real shuttles at ε = 1 and 2; simulated trips over Manhattan; New York's taxi records, known by
their ends; the time of fit and sample, and of conditional walks alone. Every table has its floor, two
random halves of the real trips against each other. Real data come from ``SYNTHGEO_DATA``; without it a
made-up city takes Manhattan's place and the rest is left out.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import synthgeo as sg
from benchmarks._common import peak_memory_mib, record
from benchmarks.pages import references
from synthgeo.evaluation.trajectories import TripScores, trip_floor, trip_scores
from trajectories.points import Trips, read_ends, read_trips
from trajectories.walks import Chain, KilledBridge, exponential_steps, fixed_walks, probable_hops

DATA = Path(os.environ.get("SYNTHGEO_DATA", "data"))
UNIT = sg.PrivacyUnit.trajectory()
SEEDS = 5
COLUMNS = ("se_jsd", "fp_jsd", "qe", "tau", "f1", "trip", "diameter", "length")


def line(name: str, scores: TripScores) -> dict[str, Any]:
    """A row of the table."""
    figures = scores.as_dict()
    return {"method": name, **{column: figures[column] for column in COLUMNS}}


def reversals(edges: pd.DataFrame) -> float:
    """Share of steps that turn round on the spot; raises if a trip is not a connected directed path."""
    same = edges["trip_id"].to_numpy()[1:] == edges["trip_id"].to_numpy()[:-1]
    u, v = edges["u"].to_numpy(), edges["v"].to_numpy()
    if not (v[:-1] == u[1:])[same].all():
        raise AssertionError("a synthetic trip is not a connected directed path")
    return float((u[:-1] == v[1:])[same].mean())


def score(
    name: str, real: Trips, domain: sg.RoadDomain, epsilon: float, *, seeds: int, **options: Any
) -> tuple[dict[str, Any], float]:
    """Mean scores over seeds, and the share of immediate reversals."""
    scores, turns = [], []
    for seed in range(seeds):
        model = sg.TrajectorySynthesizer(
            domain=domain, budget=sg.PrivacyBudget(epsilon), noise=sg.SeededNoise(seed), times=0.0, **options
        )
        trips = model.fit_trips(real).sample(real.size)
        turns.append(reversals(trips.edges))
        scores.append(trip_scores(real, trips))
    return line(f"{name}, ε={epsilon:g}", TripScores.mean(scores)), float(np.mean(turns))


def compare(name: str, real: Trips, domain: sg.RoadDomain, seeds: int, extra: list[dict[str, Any]]) -> None:
    """The table of one data set, and what each part of the method buys at ε = 1."""
    rows = [line("floor (real halves)", trip_floor(real)), *extra]
    turns = {}
    for epsilon in (1.0, 2.0):
        row, turns[f"ε={epsilon:g}"] = score("synthgeo", real, domain, epsilon, seeds=seeds)
        rows.append(row)
    for label, options in (
        ("without lengths", {"calibration": 0.0}),
        ("weights='ends'", {"weights": "ends"}),
        ("length='median'", {"length": "median"}),
    ):
        rows.append(score(label, real, domain, 1.0, seeds=seeds, **options)[0])
    record(f"trips_{name}", {"seeds": seeds}, {"table": rows, "reversals": turns})
    print(pd.DataFrame(rows).round(3).to_string(index=False), turns, flush=True)


def chicago(seeds: int) -> None:
    """889 real trips of campus shuttles."""
    if not (DATA / "chicago").exists():
        return
    roads = sg.RoadDomain.from_graphml(DATA / "chicago" / "roads.graphml", max_distance=80)
    real = read_trips(pd.read_parquet(DATA / "chicago" / "trips.parquet"), roads, unit=UNIT)
    elsewhere = references()["adatrace_chicago"]["scores"]
    compare("chicago", real, roads, seeds, [{"method": "AdaTrace, ε=1 (elsewhere)", **elsewhere}])


def manhattan_roads() -> sg.RoadDomain:
    """Manhattan, or a made-up city."""
    path = DATA / "nyc" / "manhattan_roads.graphml"
    if path.exists():
        return sg.RoadDomain.from_graphml(path)
    return sg.RoadDomain.from_graph(sg.simulate.city_graph(40, 32, seed=11))


def manhattan(seeds: int) -> None:
    """20,000 simulated trips whose drivers do not all take the shortest path."""
    roads = manhattan_roads()
    points = sg.simulate.city_trips(roads, trips=20_000, seed=3)
    compare("manhattan", read_trips(points, roads, unit=UNIT), roads, seeds, [])


def taxis(seeds: int) -> None:
    """New York's taxi records: two ends only."""
    path = DATA / "nyc" / "taxi_trips.parquet"
    if not path.exists():
        return
    roads, frame = manhattan_roads(), pd.read_parquet(path)
    real = read_ends(
        frame,
        roads,
        unit=UNIT,
        origin=("pickup_lon", "pickup_lat"),
        destination=("dropoff_lon", "dropoff_lat"),
    )
    inside = (roads.nearest(real.xy)[2] <= roads.max_distance).reshape(-1, 2).all(axis=1)
    seen = real.take(inside)
    rows = [line("floor (real halves)", trip_floor(seen))]
    for epsilon in (1.0, 2.0):
        scores = []
        for seed in range(seeds):
            model = sg.TrajectorySynthesizer(
                domain=roads, budget=sg.PrivacyBudget(epsilon), noise=sg.SeededNoise(seed), times=0.0
            )
            made = model.fit_trips(real, ends_only=True).sample(seen.size)
            two = Trips(made.xy, made.start).ends()
            scores.append(trip_scores(seen, two, resample=False))
        rows.append(line(f"synthgeo, ε={epsilon:g}", TripScores.mean(scores)))
    kept = ("method", "se_jsd", "trip", "diameter")
    rows = [{name: row[name] for name in kept} for row in rows]
    record("trips_taxis", {"seeds": seeds}, {"table": rows})
    print(pd.DataFrame(rows).round(3).to_string(index=False), flush=True)


def speed() -> None:
    """20,000 trips in, 20,000 out; then 10^5 to a file."""
    roads = manhattan_roads()
    points = sg.simulate.city_trips(roads, trips=20_000, seed=3, interval=60.0)
    small = sg.simulate.city_trips(roads, trips=200, seed=4)
    sg.TrajectorySynthesizer(domain=roads, budget=sg.PrivacyBudget(1.0)).fit(small).sample(50)  # compiles
    rows = []
    bits = 13
    prefix = np.arange(1 << bits, dtype=np.uint64)
    measure = roads.measure(prefix, bits)
    from synthgeo.partition.cells import Partition

    given = Partition(prefix[measure > 0], np.full(int((measure > 0).sum()), bits), measure[measure > 0])
    for name, options in (("private cells", {}), (f"{given.size} given cells", {"partition": given})):
        model = sg.TrajectorySynthesizer(domain=roads, budget=sg.PrivacyBudget(1.0), **options)
        began = time.perf_counter()
        model.fit(points)
        fitted = time.perf_counter() - began
        began = time.perf_counter()
        model.sample(20_000)
        rows.append({"what": name, "fit_s": fitted, "sample_s": time.perf_counter() - began})
    began = time.perf_counter()
    target = Path("trips_speed.parquet.tmp")
    model.sample_to_parquet(target, 100_000)
    rows.append({"what": "10^5 trips to a file", "fit_s": 0.0, "sample_s": time.perf_counter() - began})
    target.unlink()
    record("trips_speed", {"points": len(points)}, {"table": rows, "peak_mib": peak_memory_mib()})
    print(pd.DataFrame(rows).round(1).to_string(index=False), flush=True)


def walks() -> None:
    """10^5 conditional walks to 1,000 destinations on a 10^4-cell graph."""
    rng, side = np.random.default_rng(0), 100
    row, column = np.divmod(np.arange(side * side), side)
    steps = []
    for down in (-1, 0, 1):
        for right in (-1, 0, 1):
            inside = (row + down >= 0) & (row + down < side) & (column + right >= 0) & (column + right < side)
            if down or right:
                here = np.flatnonzero(inside)
                steps.append(np.stack([here, here + down * side + right]))
    source, to = np.concatenate(steps, axis=1)
    order = np.lexsort((to, source))
    source, to = source[order], to[order]
    weight = rng.random(len(to))
    weight *= 0.95 / np.bincount(source, weight)[source]
    chain = Chain(np.searchsorted(source, np.arange(side * side + 1)), to, weight)
    destination = rng.choice(side * side, 1000, replace=False)[rng.integers(0, 1000, 100_000)]
    origin = rng.integers(0, side * side, 100_000)
    KilledBridge(chain).walks(origin[:1], destination[:1], rng)
    fixed_walks(chain, origin[:1], destination[:1], np.array([99]), rng)
    began = time.perf_counter()
    KilledBridge(chain).walks(origin, destination, rng)
    killed = time.perf_counter() - began
    began = time.perf_counter()
    steps_wanted = exponential_steps(probable_hops(chain, origin, destination), rng)
    fixed_walks(chain, origin, destination, steps_wanted, rng)
    rows = [
        {"walks": "killed", "seconds": killed},
        {"walks": "median", "seconds": time.perf_counter() - began},
    ]
    record("trips_walks", {"cells": side * side, "destinations": 1000, "walks": 100_000}, {"table": rows})
    print(pd.DataFrame(rows).round(1).to_string(index=False), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=["chicago", "manhattan", "taxis", "speed", "walks"])
    parser.add_argument("--seeds", type=int, default=SEEDS)
    options = parser.parse_args()
    for name, work in (
        ("chicago", lambda: chicago(options.seeds)),
        ("manhattan", lambda: manhattan(min(options.seeds, 2))),
        ("taxis", lambda: taxis(min(options.seeds, 2))),
        ("speed", speed),
        ("walks", walks),
    ):
        if options.only in (None, name):
            print(f"-- {name}", flush=True)
            work()


if __name__ == "__main__":
    main()

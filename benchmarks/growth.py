"""Time and peak memory as the work grows, and the exponent with which they do.

``python -m benchmarks.growth [points] [events] [steps] [cells] [trips]``; every size runs in its own process,
so that the peak of memory is its own. An exponent is the slope of a line through the logarithms of all sizes;
beside it stands the slope of the last two sizes, where what does not grow with the work counts least.
Memory is what comes on top of the imports and of the input. ``cpu_seconds`` are of the whole process, imports
and preparation included: on a machine that does other work they say more than the clock.
"""

from __future__ import annotations

import argparse
import gc
import json
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

import synthgeo as sg
from benchmarks._common import in_a_process, peak_memory_mib, record, recorded, restart_peak
from benchmarks.spatial import hotspots, one_step

SEED = 7
BOX = (0.0, 0.0, 1.0, 1.0)
SPACING = 100.0  # metres between the points of synthetic trips: 10^6 trips are some GB of Parquet


def points(size: int) -> dict[str, float]:
    """One step of so many points."""
    xy = hotspots(size, np.random.default_rng(SEED))
    one_step(xy[:1000])  # compiles
    before = restart_peak()
    took = []
    for _ in range(3):
        start = time.perf_counter()
        one_step(xy)
        took.append(time.perf_counter() - start)
    return {"seconds": min(took), "more_mib": peak_memory_mib() - before}


def users(size: int, suffix: str) -> dict[str, float]:
    """One step of so many events of a tenth as many users, from a file, with users bounded and without; what
    bounding holds of each event.
    """
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        few, many = (Path(folder) / f"{name}.{suffix}" for name in ("few", "many"))
        _write_users(few, 10**4), _write_users(many, size)
        for protects, unit in (
            ("events", sg.PrivacyUnit.event()),
            ("users", sg.PrivacyUnit.user(max_events=4, key="user")),
        ):
            box, budget = sg.BoxDomain(*BOX), sg.PrivacyBudget(1.0)
            for path in (few, many):  # the first one compiles
                stream = sg.PHDStream(
                    domain=box,
                    budget=budget,
                    unit=unit,
                    settings=sg.PointSettings(max_depth=14),
                    deletions=False,
                )
                before, start = restart_peak(), time.process_time()
                stream.update(path)
            found[f"{protects}_s"] = time.process_time() - start
            found[f"{protects}_mib"] = peak_memory_mib() - before
    more = found["users_mib"] - found["events_mib"]
    return {"seconds": found.pop("users_s"), "more_mib": found["users_mib"], **found} | {
        "bytes_per_event": more * 2**20 / size
    }


def _write_users(path: Path, size: int) -> None:
    rng = np.random.default_rng(SEED)
    write = pq.ParquetWriter if path.suffix == ".parquet" else csv.CSVWriter
    schema = pa.schema([("x", pa.float64()), ("y", pa.float64()), ("user", pa.int64())])
    with write(path, schema) as file:
        for begin in range(0, size, 500_000):
            rows = min(500_000, size - begin)
            x, y = rng.random((2, rows)).round(6)
            file.write_table(pa.table([x, y, rng.integers(0, size // 10, rows)], schema=schema))


def steps(size: int, stay: int = 0) -> dict[str, float]:
    """A stream of so many steps, each with 500 new points in a place that wanders. With ``stay`` they leave
    after so many steps. In processor time: there is one thread, and long runs meet other work.
    """
    rng = np.random.default_rng(SEED)
    stream = sg.PHDStream(domain=sg.BoxDomain(*BOX), budget=sg.PrivacyBudget(1.0))
    one_step(hotspots(1000, rng))
    there: list[np.ndarray] = []  # batches that will leave, oldest first
    before = restart_peak()
    spent = 0.0
    for step in range(size):
        centre = 0.5 + 0.3 * np.array([np.cos(step / 50), np.sin(step / 50)])
        come = np.clip(rng.normal(centre, 0.05, (500, 2)), 0, 1)
        there += [come] if stay else []
        gone = there.pop(0) if len(there) > stay else come[:0]
        xy, op = np.concatenate([come, gone]), np.repeat([1, -1], [len(come), len(gone)])
        batch = pd.DataFrame({"x": xy[:, 0], "y": xy[:, 1], "op": op})
        start = time.process_time()
        release = stream.update(batch)
        spent += time.process_time() - start
    more = {"more_mib": peak_memory_mib() - before, "leaves": release.counts.size}  # type: ignore[attr-defined]
    return {"seconds": spent, "seconds_per_step": spent / size, **more}


def turnover(size: int) -> dict[str, float]:
    """The same with points that leave after 30 steps."""
    return steps(size, stay=30)


def bank(size: int) -> dict[str, float]:
    """An update of a bank of so many counters, horizon 365."""
    from streams.counters import make_bank
    from synthgeo.privacy.noise import SystemNoise

    counters = make_bank("auto", epsilon=1.0, horizon=365, noise=SystemNoise())
    before = restart_peak()
    slots, values = counters.add(size), np.ones(size, dtype=np.int64)
    start = time.perf_counter()
    for _ in range(100):
        counters.step(slots, values)
    return {"seconds": (time.perf_counter() - start) / 100, "more_mib": peak_memory_mib() - before}


def leaves(size: int) -> dict[str, float]:
    """A step of 500 points of a stream with so many leaves, about."""
    rng = np.random.default_rng(SEED)
    stream = sg.PHDStream(domain=sg.BoxDomain(*BOX), budget=sg.PrivacyBudget(1.0))
    # A leaf is split above two standard deviations, 2.7 at the second step: some four points make a leaf.
    stream.update(rng.random((4 * size, 2)))
    stream.update(rng.random((500, 2)))
    before = restart_peak()
    start = time.perf_counter()
    there = [stream.update(rng.random((500, 2))).counts.size for _ in range(20)]  # type: ignore[attr-defined]
    spent = (time.perf_counter() - start) / 20
    return {"seconds": spent, "more_mib": peak_memory_mib() - before, "leaves": float(np.mean(there))}


def chain(size: int) -> dict[str, float]:
    """A thousand walks to a hundred destinations on a square grid of so many cells, with diagonals."""
    from benchmarks._grid import square_chain
    from trajectories.walks.bridges import KilledBridge

    rng, side = np.random.default_rng(SEED), round(size**0.5)
    cells = square_chain(side, rng)
    destination = rng.choice(side * side, 100, replace=False)[rng.integers(0, 100, 1000)]
    origin = rng.integers(0, side * side, 1000)
    KilledBridge(cells).walks(origin[:1], destination[:1], rng)  # compiles
    before = restart_peak()
    start = time.perf_counter()
    KilledBridge(cells).walks(origin, destination, rng)
    return {"seconds": time.perf_counter() - start, "more_mib": peak_memory_mib() - before}


def _small_model() -> None:
    """Compile what trips need."""
    graph = sg.simulate.city_graph(seed=1)
    model = sg.TrajectorySynthesizer(domain=sg.RoadDomain.from_graph(graph), budget=sg.PrivacyBudget(1.0))
    with tempfile.TemporaryDirectory() as folder:
        model.fit(sg.simulate.city_trips(graph, trips=100, seed=1)).sample_to_parquet(
            Path(folder) / "small.parquet", 20
        )
    gc.collect()


def simulate_trips(size: int, target: Path) -> None:
    from benchmarks.trips import manhattan_roads

    sg.simulate.city_trips(manhattan_roads(), trips=size, seed=3, interval=60.0).to_parquet(target)


def fit_trips(size: int, folder: Path) -> dict[str, float]:
    """Fit so many trips from a file and write as many synthetic ones to another."""
    from benchmarks.trips import manhattan_roads

    roads = manhattan_roads()
    _small_model()
    before = restart_peak()
    start = time.perf_counter()
    model = sg.TrajectorySynthesizer(domain=roads, budget=sg.PrivacyBudget(1.0)).fit(
        str(folder / f"real-{size}.parquet")
    )
    fitted = time.perf_counter() - start
    start = time.perf_counter()
    model.sample_to_parquet(folder / "made.parquet", size, spacing=SPACING)
    sampled = time.perf_counter() - start
    more = peak_memory_mib() - before
    if not (folder / "model").exists():
        model.save(folder / "model")
    return {"seconds": fitted + sampled, "fit_s": fitted, "sample_s": sampled, "more_mib": more}


def sample_trips(size: int, folder: Path) -> dict[str, float]:
    """Write so many trips from a saved model, in batches."""
    _small_model()
    model = sg.TrajectorySynthesizer.load(folder / "model")
    before = restart_peak()
    start = time.perf_counter()
    model.sample_to_parquet(folder / "made.parquet", size, spacing=SPACING)
    spent = time.perf_counter() - start
    made = (folder / "made.parquet").stat().st_size / 2**20
    return {"seconds": spent, "more_mib": peak_memory_mib() - before, "file_mib": made}


#: part -> (what it is called, what grows, the sizes, the measurement)
PARTS: dict[str, tuple[str, str, tuple[int, ...], Callable[[int], dict[str, float]]]] = {
    "points": ("one step", "points", (10**4, 10**5, 10**6, 10**7), points),
    "users_csv": (
        "one step of users' events, CSV (processor time)",
        "events",
        (10**6, 10**7, 3 * 10**7),
        partial(users, suffix="csv"),
    ),
    "users_parquet": (
        "one step of users' events, Parquet (processor time)",
        "events",
        (10**6, 10**7, 3 * 10**7),
        partial(users, suffix="parquet"),
    ),
    "steps": ("500 new points per step, all stay (processor time)", "steps", (10, 100, 1000), steps),
    "turnover": (
        "500 new points per step, gone after 30 (processor time)",
        "steps",
        (10, 100, 1000, 10**4),
        turnover,
    ),
    "bank": ("an update of a bank of counters", "cells", (10**2, 10**3, 10**4, 10**5), bank),
    "leaves": ("a step of 500 points over so many leaves", "cells", (10**2, 10**3, 10**4, 10**5), leaves),
    "chain": ("1,000 walks to 100 destinations", "cells", (10**2, 10**3, 10**4, 10**5), chain),
}
KINDS = {
    "points": ("points",),
    "events": ("users_csv", "users_parquet"),
    "steps": ("steps", "turnover"),
    "cells": ("bank", "leaves", "chain"),
}


def slope(sizes: list[float], values: list[float]) -> float | None:
    """Of the line through the logarithms; None where nothing was measured."""
    if min(values) <= 0:
        return None
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def exponents(rows: list[dict[str, Any]], grows: str) -> dict[str, Any]:
    """Of time over all sizes and over the last two, and of memory over the last two."""
    sizes = [row[grows] for row in rows]
    took, held = [row["seconds"] for row in rows], [row["more_mib"] for row in rows]
    return {
        "time": slope(sizes, took),
        "time, last two sizes": slope(sizes[-2:], took[-2:]),
        "memory, last two sizes": slope(sizes[-2:], held[-2:]),
    }


def grow(kind: str) -> None:
    """Measure one kind of growth and record it."""
    table, fitted = [], {}
    for part in KINDS[kind]:
        what, grows, sizes, _ = PARTS[part]
        rows = []
        for size in sizes:
            found = in_a_process("benchmarks.growth", "--measure", part, "--size", str(size))
            if part == "leaves":  # what was asked for is only about what there was
                size = round(found.pop("leaves"))
            rows.append({"what": what, grows: size, **found})
            print(rows[-1], flush=True)
        fitted[what] = exponents(rows, grows)
        table += rows
    record(f"growth_{kind}", {"seed": SEED}, {"table": table, "exponent": fitted})
    print(fitted, flush=True)


def grow_trips(largest: int) -> None:
    """Trips over Manhattan (a made-up city where it is not there): fit and sample, then sample alone.
    Recorded after every size, for the last ones take long.
    """
    table: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        for part, what, sizes in (
            ("fit", "fit and write as many", (10**4, 10**3)),  # the first one's model is kept
            ("sample", "write from a saved model", (10**3, 10**4, 10**5, 10**6)),
            ("fit", "fit and write as many", (10**5,)),
        ):
            for size in (size for size in sizes if size <= largest):
                given = ["--size", str(size), "--folder", temporary]
                if part == "fit":
                    in_a_process("benchmarks.growth", "--measure", "simulate", *given)
                found = in_a_process("benchmarks.growth", "--measure", part, *given)
                rows = table.setdefault(what, [])
                rows.append({"what": what, "trips": size, **found})
                rows.sort(key=lambda row: row["trips"])
                print({"what": what, "trips": size, **found}, flush=True)
                fitted = {name: exponents(group, "trips") for name, group in table.items() if len(group) > 1}
                every = [row for group in table.values() for row in group]
                config = {"seed": 3, "epsilon": 1.0, "spacing": SPACING, "model of trips": 10**4}
                record("growth_trips", config, {"table": every, "exponent": fitted})
    print(fitted, flush=True)


def missing(kind: str, largest: int) -> bool:
    """Whether there is something left to measure."""
    found = recorded(f"growth_{kind}")
    if found is None:
        return True
    return kind == "trips" and max(row["trips"] for row in found["results"]["table"]) < largest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="kind", help="of points, events, steps, cells, trips")
    parser.add_argument("--again", action="store_true", help="also what is recorded already")
    parser.add_argument("--largest", type=int, default=10**6, help="the largest number of trips")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    parser.add_argument("--size", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if unknown := set(options.kinds) - {*KINDS, "trips"}:
        parser.error(f"nothing grows by {min(unknown)!r}")
    if options.measure in PARTS:
        print(json.dumps(PARTS[options.measure][3](options.size) | {"cpu_seconds": time.process_time()}))
    elif options.measure == "simulate":
        simulate_trips(options.size, options.folder / f"real-{options.size}.parquet")
        print(json.dumps(None))
    elif options.measure:
        work = fit_trips if options.measure == "fit" else sample_trips
        found = work(options.size, options.folder)
        print(json.dumps(found | {"cpu_seconds": time.process_time()}))
    else:
        for kind in options.kinds or [*KINDS, "trips"]:
            if options.kinds or options.again or missing(kind, options.largest):
                grow_trips(options.largest) if kind == "trips" else grow(kind)


if __name__ == "__main__":
    main()

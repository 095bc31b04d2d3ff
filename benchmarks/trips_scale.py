"""Trips larger than memory: time and peak memory of fitting files of simulated trips, in processes and on a
cluster. ``python -m benchmarks.trips_scale [SIZE ...]``.

Trips over Manhattan (or a made-up city), about ten points each, one file of Parquet for 10^5 trips. 4,000
trips are simulated; the others are copies of them with other ids and fresh errors of the receiver: copies
cost as much to match and count as trips of their own. Each size runs in a process of its own. ``more_mib``
is the largest sum over the processes of what is theirs alone (the private part of their memory).
"""

from __future__ import annotations

import argparse
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import synthgeo as sg
from benchmarks._common import in_a_process, made_once, record, recorded
from benchmarks.growth import exponents
from benchmarks.trips import manhattan_roads

SEED, BASE, FILE = 3, 4_000, 100_000
WORKERS = {"one process": 1, "processes": 2, "dask": None}


def write(folder: Path, trips: int, roads: sg.RoadDomain) -> int:
    """Files of so many trips; the number of points."""
    base = sg.simulate.city_trips(roads, trips=BASE, seed=SEED, interval=90.0, coordinates="xy")
    base = base.drop(columns="user_id")
    rng, points = np.random.default_rng(SEED), 0
    for number, low in enumerate(range(0, trips, FILE)):
        size = min(FILE, trips - low)
        copies = []
        for first in range(low, low + size, BASE):
            some = base[base["trip_id"] < min(BASE, low + size - first)]
            xy = some[["x", "y"]].to_numpy() + rng.normal(0, 3, (len(some), 2))
            copies.append(some.assign(trip_id=some["trip_id"] + first, x=xy[:, 0], y=xy[:, 1]))
        whole = pd.concat(copies, ignore_index=True)
        points += len(whole)
        path = folder / f"{number:03d}.parquet"
        if not path.exists():
            whole.to_parquet(path.with_suffix(".part"))
            path.with_suffix(".part").replace(path)
    return points


class Peak(threading.Thread):
    """Watches the memory and the processor time of this process and of its children."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.mib, self.over = 0.0, threading.Event()
        self.seconds: dict[int, float] = {}  # of each process, as last seen
        self.own = 0.0  # seconds of watching: 8 ms for each GB looked at

    def run(self) -> None:
        while not self.over.wait(0.5):
            processes = family(os.getpid())
            self.mib = max(self.mib, sum(map(private_mib, processes)))
            self.seconds |= {process: processor_seconds(process) for process in processes}
            self.own = time.thread_time()


def family(process: int) -> list[int]:
    """A process and all that descend from it."""
    found = [process]
    for task in Path(f"/proc/{process}/task").iterdir():
        try:
            children = (task / "children").read_text().split()
        except OSError:
            continue
        for child in children:
            found += family(int(child)) if Path(f"/proc/{child}/task").exists() else []
    return found


def private_mib(process: int) -> float:
    """Memory that is a process's alone."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith(("Private_", "Shared_Dirty"))) / 1024


def processor_seconds(process: int) -> float:
    """Processor time of a process so far."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def fit(size: int, engine: str) -> dict[str, float]:
    """Fit a folder of so many trips."""
    roads = manhattan_roads()
    with made_once(f"trips-{size}") as folder:
        points = write(folder, size, roads)
        model = sg.TrajectorySynthesizer(
            domain=roads, budget=sg.PrivacyBudget(1.0), noise=sg.SeededNoise(SEED), workers=WORKERS[engine]
        )
        peak = Peak()
        peak.start()
        cpu, began = time.process_time(), time.perf_counter()
        if engine != "dask":
            model.fit(str(folder / "*.parquet"))
        else:
            on_dask(model, str(folder))
        seconds = time.perf_counter() - began
        peak.over.set()
        peak.join()
        spent = sum(peak.seconds.values()) - cpu - peak.own
    return {"seconds": seconds, "cpu_seconds": spent, "points": points, "more_mib": peak.mib}


def on_dask(model: sg.TrajectorySynthesizer, folder: str) -> None:
    """Fit on a cluster of two processes."""
    import dask.dataframe as dd
    from dask.distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster),
    ):
        model.fit(dd.read_parquet(folder))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="*", type=int, default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--engine", choices=list(WORKERS), default="processes")
    parser.add_argument("--one", action="store_true")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(fit(options.sizes[0], options.engine)))
        return
    before = recorded("scale_trips")
    table: list[dict[str, Any]] = before["results"]["table"] if before else []
    for size in options.sizes:
        found = in_a_process("benchmarks.trips_scale", "--one", "--engine", options.engine, str(size))
        row = {"engine": options.engine, "trips": size, **found}
        table = [old for old in table if (old["engine"], old["trips"]) != (options.engine, size)] + [row]
        print(row, flush=True)
        record("scale_trips", {"seed": SEED, "epsilon": 1.0}, {"table": table, "exponent": growth(table)})


def growth(table: list[dict[str, Any]]) -> dict[str, Any]:
    """Exponents of processor time and memory, for each engine that was measured at several sizes."""
    found = {}
    for engine in WORKERS:
        ours = sorted((row for row in table if row["engine"] == engine), key=lambda row: row["trips"])
        if len(ours) > 1:
            found[engine] = exponents([row | {"seconds": row["cpu_seconds"]} for row in ours], "trips")
    return found


if __name__ == "__main__":
    main()

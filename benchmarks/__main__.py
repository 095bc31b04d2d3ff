"""Run the benchmarks, then write docs/benchmarks.md from all results.

A full run measures what has no file in benchmarks/results yet, and goes on where it was stopped; delete a
file to measure it again. A quick run takes less than ten minutes, writes to benchmarks/results/quick, leaves
the documentation alone, and prints what was promised beside what it measured.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass

from benchmarks._common import RESULTS, TRIP_PARTS


@dataclass(frozen=True)
class Run:
    """A module of this folder: what it shows, and the arguments of its parts.

    A part with a file is run where there is no such result; one without knows by itself what is missing.
    """

    about: str
    full: tuple[tuple[tuple[str, ...], str | None], ...] = (((), None),)
    quick: tuple[str, ...] | None = None


def alone(file: str) -> tuple[tuple[tuple[str, ...], str | None], ...]:
    """One part without arguments that leaves one file."""
    return (((), file),)


TRIPS = (
    *((("--only", part), f"trips_{part}") for part in TRIP_PARTS),
    (("--only", "sweep"), "sweep_trips"),
)
RUNS: dict[str, Run] = {
    "noise": Run("exact noise against OpenDP", alone("noise"), ()),
    "counters": Run("error and cost of counters", alone("counters"), ("--steps", "20")),
    "spatial": Run("spatial streams: error on six streams, cost", quick=("cost",)),
    "sweeps": Run("the sweeps behind the spatial defaults"),
    "dissertation": Run("sensitivity, batch size, land, and counters for tables"),
    "time": Run(
        "datasets that expire, single windows, streams without an end",
        tuple(((part,), f"time-{part}") for part in ("windows", "table", "circles", "deletes", "bias")),
        ("table",),
    ),
    "tabular": Run("tables over time and once, growth, profile, sweep", quick=("--only", "once_1_1e-09")),
    "peers_tabular": Run("peers for one-off tables, in environments of their own", alone("peers_tabular")),
    "trips": Run(
        "trips: four places, models trained on them, taxis, speed",
        TRIPS,
        ("--only", "walks"),
    ),
    "trip_streams": Run(
        "trips over time, and trips with attributes",
        (
            *((("--only", part), f"trip_streams_{part}") for part in ("sf", "manhattan", "city")),
            (("--only", "attributes"), "trip_attributes"),
        ),
        ("--only", "city"),
    ),
    "trips_scale": Run("trips larger than memory", alone("scale_trips"), ("4000",)),
    "matching": Run("map matching: speed, and against the truth", alone("matching")),
    "series": Run("the papers' claims on scalar series", quick=("speed",)),
    "engines": Run("counting files larger than memory", alone("engines"), ("--rows", "2000000")),
    "clusters": Run(
        "counting, users and wide tables on dask and Spark",
        tuple(((part,), f"clusters_{part}") for part in ("count", "users", "marginals")),
    ),
    "growth": Run("time and memory as the work grows", quick=("points", "cells")),
    "profiles": Run("where the time goes", quick=("spatial", "series")),
}


def measure(name: str, *, quick: bool, environment: dict[str, str]) -> bool:
    """Run one module where there is something to do; whether it went well."""
    run = RUNS[name]
    parts = ((run.quick, None),) if quick else run.full
    well = True
    for arguments, file in parts:
        if arguments is None:
            continue
        what = " ".join((name, *arguments))
        if file is not None and (RESULTS / f"{file}.json").exists():
            print(f"== {what}: recorded already", flush=True)
            continue
        print(f"== {what}", flush=True)
        began = time.perf_counter()
        command = [sys.executable, "-m", f"benchmarks.{name}", *arguments]
        done = subprocess.run(command, check=False, env=environment)
        print(f"== {what}: {time.perf_counter() - began:.0f} s", flush=True)
        well = well and done.returncode == 0
    return well


def main() -> None:
    listed = "\n".join(f"  {name:14} {run.about}" for name, run in RUNS.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        epilog=f"benchmarks:\n{listed}\n\nEach is a module too: python -m benchmarks.growth --help",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="name", help="only these; all when none is given")
    parser.add_argument("--quick", action="store_true", help="the short ones, less than ten minutes in all")
    options = parser.parse_args()
    if unknown := set(options.names) - set(RUNS):
        parser.error(f"no benchmark {min(unknown)!r}")
    environment = dict(os.environ)
    if options.quick:
        environment["SYNTHGEO_RESULTS"] = str(RESULTS / "quick")
        shutil.rmtree(RESULTS / "quick", ignore_errors=True)
    names = options.names or list(RUNS)
    failed = [name for name in names if not measure(name, quick=options.quick, environment=environment)]
    page = "from benchmarks._page_verdict import promised; print('\\n'.join(promised()))"
    command = ["-c", page] if options.quick else ["-m", "benchmarks.pages"]
    subprocess.run([sys.executable, *command], check=True, env=environment)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()

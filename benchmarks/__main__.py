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

from benchmarks._common import RESULTS


@dataclass(frozen=True)
class Run:
    """A module of this folder: what it shows, its arguments, and the file that says it was run.

    Modules without such a file know by themselves what is missing.
    """

    about: str
    full: tuple[str, ...] = ()
    quick: tuple[str, ...] | None = None
    file: str | None = None


RUNS: dict[str, Run] = {
    "noise": Run("exact noise against OpenDP", (), (), "noise"),
    "counters": Run("error and cost of counters", (), ("--steps", "20"), "counters"),
    "spatial": Run("spatial streams: error on six streams, cost", ("all",), ("cost",)),
    "sweeps": Run("the sweeps behind the spatial defaults"),
    "tabular": Run("tables over time and once, growth, profile, sweep", (), ("--only", "once_1_1e-09")),
    "peers_tabular": Run("peers for one-off tables, in environments of their own"),
    "trips": Run("trips: Chicago, Manhattan, taxis, speed", (), ("--only", "walks")),
    "matching": Run("map matching: speed, and against the truth", (), None, "matching"),
    "series": Run("the papers' claims on scalar series", (), ("--runs", "2"), "series"),
    "engines": Run("counting files larger than memory", (), ("--rows", "2000000"), "engines"),
    "growth": Run("time and memory as the work grows", (), ("points", "cells")),
    "profiles": Run("where the time goes", (), ("spatial", "series")),
}


def measure(name: str, *, quick: bool, environment: dict[str, str]) -> bool:
    """Run one module where there is something to do; whether it went well."""
    run = RUNS[name]
    arguments = run.quick if quick else run.full
    if arguments is None:
        return True
    if not quick and run.file is not None and (RESULTS / f"{run.file}.json").exists():
        print(f"== {name}: recorded already", flush=True)
        return True
    print(f"== {name} {' '.join(arguments)}", flush=True)
    began = time.perf_counter()
    command = [sys.executable, "-m", f"benchmarks.{name}", *arguments]
    done = subprocess.run(command, check=False, env=environment)
    print(f"== {name}: {time.perf_counter() - began:.0f} s", flush=True)
    return done.returncode == 0


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
    page = "import benchmarks.pages as p; print('\\n'.join(p.verdict.promised()))"
    command = ["-c", page] if options.quick else ["-m", "benchmarks.pages"]
    subprocess.run([sys.executable, *command], check=True, env=environment)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()

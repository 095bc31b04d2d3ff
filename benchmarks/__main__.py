"""Run the benchmarks, then write docs/benchmarks.md: ``python -m benchmarks [--quick] [name ...]``."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

from benchmarks.pages import write_page

# name -> (arguments of a full run, arguments of a quick one; None: not part of a quick run)
RUNS: dict[str, tuple[list[str], list[str] | None]] = {
    "noise": ([], []),
    "counters": ([], []),
    "spatial": (["all"], ["cost"]),
    "tabular": ([], ["--only", "once"]),
    "trips": ([], None),
    "matching": ([], None),
    "series": ([], ["--runs", "2"]),
    "engines": ([], ["--rows", "2000000"]),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"which ones of {', '.join(RUNS)}")
    parser.add_argument("--quick", action="store_true", help="less than ten minutes in all")
    options = parser.parse_args()
    if unknown := set(options.names) - set(RUNS):
        parser.error(f"no benchmark {min(unknown)!r}")
    failed = []
    for name in options.names or RUNS:
        full, quick = RUNS[name]
        arguments = quick if options.quick else full
        if arguments is None:
            continue
        print(f"== {name} {' '.join(arguments)}", flush=True)
        began = time.perf_counter()
        done = subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *arguments], check=False)
        print(f"== {name}: {time.perf_counter() - began:.0f} s", flush=True)
        if done.returncode:
            failed.append(name)
    print(f"wrote {write_page()}")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()

"""Coverage-guided fuzzing of every loader, written down: how long, how many inputs, what broke.

``python -m benchmarks.fuzz --seconds 600`` (``make fuzz-guided``) lets atheris look for inputs that break a
loader, each in its own process, and adds what was done to ``benchmarks/results/fuzz.json``. A loader that
breaks is left at its first bad input, which is written to ``fuzz-found/``; the time until then does not
count.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys

from benchmarks._common import record, recorded
from tools.fuzz import TARGETS, kept

NAME = "fuzz"
_DONE = re.compile(r"^Done (\d+) runs in (\d+) second", re.MULTILINE)


def guided(name: str, seconds: int) -> tuple[int, int] | None:
    """Inputs tried on a loader and seconds taken; None if it broke, after saying how."""
    command = [sys.executable, "-m", "tools.fuzz", "--guided", "--seconds", str(seconds), name]
    told = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, text=True,
                          errors="replace")  # fmt: skip
    done = _DONE.search(told.stdout)
    if told.returncode or done is None:
        print(told.stdout[-2000:], flush=True)
        return None
    return int(done[1]), int(done[2])


def main() -> None:
    """Fuzz the loaders that were asked for, and add up what was done."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("names", nargs="*", help="loaders; default: all")
    options.add_argument("--seconds", type=int, default=600, help="for each loader")
    chosen = options.parse_args()
    broken = []
    for name in chosen.names or [target.name for target in TARGETS]:
        done = guided(name, chosen.seconds)
        known = (recorded(NAME) or {"results": {}})["results"]
        own = known.setdefault(name, {"inputs": 0, "seconds": 0, "found": 0})
        if done is None:
            own["found"] += 1
            broken.append(name)
        else:
            own["inputs"], own["seconds"] = own["inputs"] + done[0], own["seconds"] + done[1]
        record(NAME, {}, known)
        print(f"{own['inputs']:9,} inputs, {own['seconds']:5,} s  {name}", flush=True)
    if broken:
        raise SystemExit(f"broken: {', '.join(broken)}")


def table() -> list[str]:
    """The block of docs/audit.md."""
    found = recorded(NAME)
    if found is None:
        return []
    kept_of = {target.name: len(kept(target)) for target in TARGETS}
    lines = ["| loader | minutes | inputs | mended since | inputs kept |", "|---|---|---|---|---|"]
    rows = [
        (name, own["seconds"], own["inputs"], own["found"], kept_of.get(name, 0))
        for name, own in found["results"].items()
    ]
    totals = [sum(column) for column in list(zip(*rows, strict=True))[1:]]
    for name, seconds, inputs, mended, saved in [*rows, ("together", *totals)]:
        lines.append(f"| {name} | {seconds / 60:.1f} | {inputs:,} | {mended or ''} | {saved or ''} |")
    return lines


if __name__ == "__main__":
    main()

"""One-off tables beside a peer from PyPI: Adult at (1, 1e-9), the same table, the same machine, one metric.

The peer is dpmm (MST and AIM), in an environment of its own outside the repository: the folder that
``SYNTHGEO_PEERS`` names, or one among the temporary files. Where it cannot be installed the benchmark says
so in one line and records nothing. smartnoise-synth is left out: it needs torch, with CUDA several GB.

Run with ``python -m benchmarks.peers_tabular [--limit SECONDS]``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import synthgeo as sg
from benchmarks._common import record
from benchmarks._tabular_data import adult
from synthgeo.evaluation.tabular import marginal_counts, total_variation

PEER = "dpmm"
EPSILON, DELTA, SEED = 1.0, 1e-9, 1


def environment(*, limit: float = 900.0) -> Path | None:
    """The interpreter of an environment with the peer; None, with a line that says why, if there is none."""
    folder = Path(os.environ.get("SYNTHGEO_PEERS") or Path(tempfile.gettempdir()) / "synthgeo-peers")
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    steps = [[str(python), "-m", "pip", "install", "--quiet", PEER], [str(python), "-c", f"import {PEER}"]]
    if not python.exists():
        steps.insert(0, [sys.executable, "-m", "venv", str(folder)])
    for step in steps:
        try:
            subprocess.run(step, check=True, timeout=limit, capture_output=True)
        except (subprocess.SubprocessError, OSError) as problem:
            print(f"skipped: no environment with {PEER} ({type(problem).__name__} at {step[1:]})")
            return None
    return python


def score(frame: pd.DataFrame, made: pd.DataFrame, schema: sg.Schema) -> dict[str, float]:
    """Mean total variation over columns and over pairs of columns."""
    out = {}
    for width in (1, 2):
        cliques = list(combinations(schema.sizes, width))
        apart = total_variation(
            marginal_counts(frame, schema, cliques), marginal_counts(made, schema, cliques)
        )
        out[f"tv_{width}way"] = float(np.mean(list(apart.values())))
    return out


def ours(frame: pd.DataFrame, schema: sg.Schema) -> dict[str, Any]:
    """The same release by this project."""
    start, spent = time.perf_counter(), time.process_time()
    budget = sg.PrivacyBudget(EPSILON, DELTA)
    made = sg.TabularSynthesizer(schema=schema, budget=budget, noise=sg.SeededNoise(SEED)).fit(frame)
    data = made.sample().data
    took = {"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - spent}
    return {"method": "synthgeo", **took, **score(frame, data, schema)}


def theirs(python: Path, method: str, frame: pd.DataFrame, schema: sg.Schema, limit: float) -> dict[str, Any]:
    """The release by the peer, stopped after ``limit`` seconds."""
    name = f"{PEER} {method}"
    with tempfile.TemporaryDirectory() as folder:
        data, domain, out = (Path(folder) / part for part in ("data.csv", "domain.json", "made.csv"))
        frame.to_csv(data, index=False)
        domain.write_text(json.dumps(schema.sizes))
        command = [python, Path(__file__).with_name("_peer_dpmm.py"), method, data, domain]
        command += [EPSILON, DELTA, SEED, out]
        try:
            done = subprocess.run(
                [str(part) for part in command], check=True, timeout=limit, capture_output=True, text=True
            )
        except subprocess.TimeoutExpired:
            return {"method": name, "seconds": None, "stopped_after": limit}
        except subprocess.CalledProcessError as problem:
            print(f"{name} ended with {problem.returncode}: {(problem.stderr or '').strip()[-500:]}")
            return {"method": name, "seconds": None, "failed": problem.returncode}
        took = json.loads(done.stdout.splitlines()[-1])
        return {"method": name, **took, **score(frame, pd.read_csv(out), schema)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds that a peer may take")
    parser.add_argument("--methods", nargs="+", default=["MST", "AIM"], choices=["MST", "AIM"])
    options = parser.parse_args()
    python = environment()
    if python is None:
        return
    listed = subprocess.run(
        [str(python), "-m", "pip", "list", "--format=json"], check=True, capture_output=True, text=True
    )
    version = next(one["version"] for one in json.loads(listed.stdout) if one["name"] == PEER)
    frame, schema = adult()
    table = [ours(frame, schema)]
    print(table[-1], flush=True)
    settings = {"data": "adult", "epsilon": EPSILON, "delta": DELTA, "seed": SEED, "limit": options.limit}
    for method in options.methods:
        table.append(theirs(python, method, frame, schema, options.limit))
        print(table[-1], flush=True)
        record("peers_tabular", {**settings, PEER: version}, {"table": table})  # whatever comes next


if __name__ == "__main__":
    main()

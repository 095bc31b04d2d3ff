"""One-off tables beside peers from PyPI: Adult at (1, 1e-9), the same table, the same machine, one metric.

The peers are dpmm and SmartNoise (MST and AIM of both), each in an environment of its own outside the
repository: below the folder that ``SYNTHGEO_PEERS`` names, or among the temporary files. A peer that cannot
be installed is left out and the reason recorded; without any peer nothing is recorded.

Run with ``python -m benchmarks.peers_tabular [--limit SECONDS] [--runs "dpmm MST" ...]``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import synthgeo as sg
from benchmarks._common import record
from benchmarks._tabular_data import adult
from synthgeo.evaluation.tabular import marginal_counts, total_variation

EPSILON, DELTA, SEED = 1.0, 1e-9, 1


@dataclass(frozen=True)
class Peer:
    """What is installed for a peer, what of it is imported, and what a reader of its figures should know."""

    name: str
    package: str
    module: str
    first: tuple[str, ...] = ()
    note: str = ""


PEERS = {
    peer.name: peer
    for peer in (
        Peer("dpmm", "dpmm", "dpmm"),
        Peer(
            "SmartNoise",
            "smartnoise-synth",
            "snsynth",
            # One release of torch, so that the same is installed everywhere; no method here uses it.
            first=("torch==2.13.0",),
            note="SmartNoise's noise takes no seed. The release of mbi that it is tied to draws rows with "
            "two faults that mbi 2 has mended (mbi#145): columns that the model holds apart come out tied, "
            "and AIM's depend on too few others. *Rows drawn independently* is the same fitted model of MST "
            "without the first fault, by an option of mbi that SmartNoise does not offer.",
        ),
    )
}
#: The quick ones first: what has been recorded stays if a run is stopped.
RUNS = [f"{peer} {method}" for method in ("MST", "AIM") for peer in PEERS]


class LeftOutError(Exception):
    """A peer has no environment; the message is the reason, without paths."""


def environment(peer: Peer, *, limit: float = 900.0) -> tuple[Path, str]:
    """The interpreter of an environment with the peer, made if need be, and the peer's version."""
    base = Path(os.environ.get("SYNTHGEO_PEERS") or Path(tempfile.gettempdir()) / "synthgeo-peers")
    folder = base / peer.name.lower()
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    ask = f"import {peer.module}, importlib.metadata as m; print(m.version({peer.package!r}))"
    steps = {
        f"pip install {part}": [str(python), "-m", "pip", "install", "--quiet", part]
        for part in (*peer.first, peer.package)
    }
    steps[f"import {peer.module}"] = [str(python), "-c", ask]
    if not python.exists():
        steps = {"venv": [sys.executable, "-m", "venv", str(folder)], **steps}
    for step, command in steps.items():
        try:
            done = subprocess.run(command, check=True, timeout=limit, capture_output=True, text=True)
        except (subprocess.SubprocessError, OSError) as problem:
            raise LeftOutError(f"no environment: {step} ended with {type(problem).__name__}") from problem
    return python, done.stdout.split()[-1]


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


def theirs(
    peer: str, method: str, python: Path, frame: pd.DataFrame, schema: sg.Schema, limit: float
) -> list[dict[str, Any]]:
    """The release by a peer, stopped after ``limit`` seconds."""
    name = f"{peer} {method}"
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        frame.to_csv(folder / "data.csv", index=False)
        (folder / "domain.json").write_text(json.dumps(schema.sizes))
        command = [python, Path(__file__).with_name("_peer_release.py"), peer, method]
        command += [EPSILON, DELTA, SEED, folder]
        try:
            done = subprocess.run(
                [str(part) for part in command], check=True, timeout=limit, capture_output=True, text=True
            )
        except subprocess.TimeoutExpired:
            return [{"method": name, "seconds": None, "stopped_after": limit}]
        except subprocess.CalledProcessError as problem:
            print(f"{name} ended with {problem.returncode}: {(problem.stderr or '').strip()[-500:]}")
            return [{"method": name, "seconds": None, "failed": problem.returncode}]
        took = json.loads(done.stdout.splitlines()[-1])
        rows = [{"method": name, **took, **score(frame, pd.read_csv(folder / "made.csv"), schema)}]
        if (folder / "drawn.csv").exists():
            drawn = score(frame, pd.read_csv(folder / "drawn.csv"), schema)
            rows.append({"method": f"{name}, rows drawn independently", **drawn})
        return rows


def environments(names: list[str]) -> tuple[dict[str, tuple[Path, str]], dict[str, str]]:
    """The interpreter and version of every peer that can be had, and why the others cannot."""
    found, left_out = {}, {}
    for name in names:
        try:
            found[name] = environment(PEERS[name])
        except LeftOutError as reason:
            left_out[name] = str(reason)
            print(f"{name} is left out: {reason}", flush=True)
    return found, left_out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--limit", type=float, default=2100.0, help="seconds that a release may take")
    parser.add_argument("--runs", nargs="+", default=RUNS, choices=RUNS)
    options = parser.parse_args()
    wanted = [run.split() for run in options.runs]
    found, left_out = environments(list(dict.fromkeys(peer for peer, _ in wanted)))
    if not found:
        return
    frame, schema = adult()
    table = [ours(frame, schema)]
    print(table[-1], flush=True)
    settings = {"data": "adult", "epsilon": EPSILON, "delta": DELTA, "seed": SEED, "limit": options.limit}
    settings |= {PEERS[name].package: version for name, (_, version) in found.items()}
    note = " ".join(PEERS[name].note for name in found).strip()
    for peer, method in wanted:
        if peer in found:
            table += theirs(peer, method, found[peer][0], frame, schema, options.limit)
            print(table[-1], flush=True)
            content = {"note": note, "table": table, "left_out": left_out}
            record("peers_tabular", settings, content)  # whatever comes next


if __name__ == "__main__":
    main()

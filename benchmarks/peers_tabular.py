"""One-off tables beside peers from PyPI at (1, 1e-9): the same tables, the same machine, one metric.

The peers are dpmm and SmartNoise (MST and AIM of both), each in an environment of its own outside the
repository: below the folder that ``SYNTHGEO_PEERS`` names, or among the temporary files. A peer that cannot
be installed is left out and the reason recorded; without any peer nothing is recorded. Every table leaves a
file of its own, ``peers_<table>``.

Run with ``python -m benchmarks.peers_tabular [--tables nltcs ...] [--runs "dpmm MST" ...] [--limit SECONDS]``
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import synthgeo as sg
from benchmarks._common import record
from benchmarks._tabular_data import coded
from synthgeo.evaluation.tables import marginal_counts, total_variation

EPSILON, DELTA = 1.0, 1e-9
#: As many as there is time for: none is begun after so many processor seconds of a method on a table.
SEEDS, PATIENCE = (1, 2, 3), 120.0
#: The quick ones first: what has been recorded stays if a run is stopped.
TABLES = ("titanic", "nltcs", "salary", "adult")


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
#: Likewise the quick ones first.
RUNS = [f"{peer} {method}" for method in ("MST", "AIM") for peer in PEERS]


Row = dict[str, Any]


class LeftOutError(Exception):
    """A peer has no environment; the message is the reason, without paths."""


def environment(peer: Peer, *, limit: float = 900.0) -> tuple[Path, str]:
    """The interpreter of an environment with the peer, made if need be, and the peer's version."""
    base = Path(os.environ.get("SYNTHGEO_PEERS") or Path(tempfile.gettempdir()) / "synthgeo-peers")
    folder = base / peer.name.lower()
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    ask = f"import {peer.module}, importlib.metadata as m; print(m.version({peer.package!r}))"
    steps = {
        "venv": [sys.executable, "-m", "venv", str(folder)],
        **{
            f"pip install {part}": [str(python), "-m", "pip", "install", "--quiet", part]
            for part in (*peer.first, peer.package)
        },
    }
    if (
        python.exists()
        and subprocess.run([str(python), "-c", ask], check=False, capture_output=True).returncode == 0
    ):
        steps = {}
    steps[f"import {peer.module}"] = [str(python), "-c", ask]
    for step, command in steps.items():
        try:
            done = subprocess.run(command, check=True, timeout=limit, capture_output=True, text=True)
        except (subprocess.SubprocessError, OSError) as problem:
            raise LeftOutError(f"no environment: {step} ended with {type(problem).__name__}") from problem
    return python, done.stdout.split()[-1]


def score(frame: pd.DataFrame, made: pd.DataFrame, schema: sg.Schema) -> dict[str, float]:
    """Mean total variation over columns, pairs and triples of columns."""
    out = {}
    for width in (1, 2, 3):
        cliques = list(combinations(schema.sizes, width))
        apart = total_variation(
            marginal_counts(frame, schema, cliques), marginal_counts(made, schema, cliques)
        )
        out[f"tv_{width}way"] = float(np.mean(list(apart.values())))
    return out


def ours(frame: pd.DataFrame, schema: sg.Schema, seed: int) -> list[Row]:
    """The same release by this project."""
    start, spent = time.perf_counter(), time.process_time()
    budget = sg.PrivacyBudget(EPSILON, DELTA)
    made = sg.TabularSynthesizer(schema=schema, budget=budget, noise=sg.SeededNoise(seed)).fit(frame)
    data = made.sample().data
    took = {"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - spent}
    return [{"method": "synthgeo", **took, **score(frame, data, schema)}]


def theirs(
    peer: str, method: str, python: Path, frame: pd.DataFrame, schema: sg.Schema, limit: float, seed: int
) -> list[Row]:
    """The release by a peer, stopped after ``limit`` seconds of the processor, or four times that by the
    clock.
    """
    name = f"{peer} {method}"
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        frame.to_csv(folder / "data.csv", index=False)
        (folder / "domain.json").write_text(json.dumps(schema.sizes))
        command = [python, Path(__file__).with_name("_peer_release.py"), peer, method]
        command += [EPSILON, DELTA, seed, folder, math.ceil(limit)]
        try:
            done = subprocess.run(
                [str(part) for part in command], check=True, timeout=4 * limit, capture_output=True, text=True
            )
        except subprocess.TimeoutExpired:
            return [{"method": name, "seconds": None, "stopped_after": limit}]
        except subprocess.CalledProcessError as problem:
            if problem.returncode == -signal.SIGXCPU:
                return [{"method": name, "seconds": None, "stopped_after": limit}]
            print(f"{name} ended with {problem.returncode}: {(problem.stderr or '').strip()[-500:]}")
            return [{"method": name, "seconds": None, "failed": problem.returncode}]
        took = json.loads(done.stdout.splitlines()[-1])
        rows = [{"method": name, **took, **score(frame, pd.read_csv(folder / "made.csv"), schema)}]
        if (folder / "drawn.csv").exists():
            drawn = score(frame, pd.read_csv(folder / "drawn.csv"), schema)
            rows.append({"method": f"{name}, rows drawn independently", **drawn})
        return rows


def over_seeds(release: Callable[[int], list[Row]]) -> list[Row]:
    """The means of a method's releases over the seeds that there is time for, and how many these are."""
    found: list[list[Row]] = []
    for seed in SEEDS:
        found.append(release(seed))
        if sum(rows[0].get("cpu_seconds", PATIENCE) for rows in found) >= PATIENCE:
            break
    whole = [rows for rows in found if rows[0].get("seconds") is not None] or found[:1]
    return [_mean(rows) for rows in zip(*whole, strict=True)]


def _mean(rows: tuple[Row, ...]) -> Row:
    figures = {
        name: float(np.mean([row[name] for row in rows]))
        for name, value in rows[0].items()
        if isinstance(value, float) and name != "stopped_after"
    }
    return rows[0] | figures | {"seeds": len(rows)}


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
    parser.add_argument(
        "--limit", type=float, default=900.0, help="seconds of the processor that a release may take"
    )
    parser.add_argument("--runs", nargs="+", default=RUNS, choices=RUNS)
    parser.add_argument("--tables", nargs="+", default=TABLES, choices=TABLES)
    options = parser.parse_args()
    wanted = [run.split() for run in options.runs]
    found, left_out = environments(list(dict.fromkeys(peer for peer, _ in wanted)))
    if not found:
        return
    for name in options.tables:
        _one_table(name, [run for run in wanted if run[0] in found], found, left_out, options.limit)


def _one_table(
    name: str,
    runs: list[list[str]],
    found: dict[str, tuple[Path, str]],
    left_out: dict[str, str],
    limit: float,
) -> None:
    """Every method on one table."""
    frame, schema = coded(name)
    settings = {"data": name, "epsilon": EPSILON, "delta": DELTA, "seeds": SEEDS, "limit": limit}
    settings |= {PEERS[peer].package: version for peer, (_, version) in found.items()}
    note = " ".join(PEERS[peer].note for peer in found).strip()
    table = over_seeds(partial(ours, frame, schema))
    print(name, table[-1], flush=True)
    for peer, method in runs:
        python = found[peer][0]
        table += over_seeds(partial(theirs, peer, method, python, frame, schema, limit))
        print(name, table[-1], flush=True)
        content = {"note": note, "table": table, "left_out": left_out}
        record(f"peers_{name}", settings, content)  # whatever comes next


if __name__ == "__main__":
    main()

"""The sweeps behind the defaults of spatial streams and of counters.

``python -m benchmarks.sweeps`` moves one knob of ``PHDStream`` at a time away from its default, on four
streams, five seeds each; errors are those of ``benchmarks.spatial``. Every line is written as soon as it is
measured, so a run that was stopped goes on where it was. A change of a default makes all lines stale, and
they are measured anew. The branching of k-ary counters needs no run: their variance has a closed form.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

import streams.spatial.structure
import synthgeo as sg
from benchmarks._common import record, recorded
from benchmarks.spatial import DATASETS, METHODS, Dataset, errors
from streams.counters import expected_rmse
from streams.counters.bounded import KaryBank
from streams.schedule import Growing
from synthgeo.privacy.noise import SystemNoise

SEEDS = 5
STREAMS = ("circles-deletion", "checkins", "minneapolis", "nyc")
EPSILONS = (1.0, 0.5, 2.0)
#: What PHDStream does when nobody says otherwise, read from the product itself.
DEFAULTS: dict[str, Any] = {
    "split, merge": (streams.spatial.structure.SPLIT_AT, streams.spatial.structure.MERGE_AT),
    "structure share": 0.5,
    "counter": "auto",
    "schedule": "auto",
    "theta": 0.0,
    "fanout": 2,
    "t0": 0,
}
KNOBS: dict[str, tuple[Any, ...]] = {
    "split, merge": (
        (1.0, 0.5),
        (1.5, 0.5),
        (1.5, 0.75),
        (1.5, 1.0),
        (2.0, 0.5),
        (2.0, 1.5),
        (2.5, 1.0),
        (3.0, 1.0),
        (3.0, 1.5),
        (4.0, 2.0),
    ),
    "structure share": (0.1, 0.25, 0.75),
    "counter": ("simple", "block", "kary", "binary", "unbounded_kary"),
    "schedule": ("every_step", "growing", "growing and adapting", "once", "once, kary"),
    "theta": (2.0, 5.0, 10.0),
    "fanout": (4,),
    "t0": (5, 10),
}
#: Knobs that are swept at ε = 1 alone.
ONE_EPSILON = ("t0", "theta", "fanout")


def maker(knob: str, value: Any, steps: int) -> Callable[..., Any]:
    """PHDStream with one knob moved. The thresholds are constants of its module: nobody needs to set them."""
    streams.spatial.structure.SPLIT_AT, streams.spatial.structure.MERGE_AT = (
        value if knob == "split, merge" else DEFAULTS["split, merge"]
    )
    options: dict[str, Any] = {}
    if knob == "counter":
        options = {"counter": value, "horizon": None if value == "simple" else steps}
    elif value == "growing and adapting":
        options = {"schedule": Growing(adapts=True)}
    elif value == "once, kary":
        options = {"schedule": "once", "counter": "kary", "horizon": steps}
    elif knob not in ("split, merge", "default"):
        options = {knob.replace(" ", "_"): value}
    return lambda **given: sg.PHDStream.from_options(**given, **options)


def lines(epsilon: float) -> Iterator[tuple[str, Any]]:
    """Knob and value of every line of a stream at one ε; the default stands once."""
    yield "default", "default"
    for knob, values in KNOBS.items():
        if epsilon == EPSILONS[0] or knob not in ONE_EPSILON:
            yield from ((knob, value) for value in values)


def spatial(streams_wanted: list[str], epsilon: float) -> None:
    """Measure what is missing at one ε."""
    base = {knob: label(value) for knob, value in DEFAULTS.items()}
    before = recorded("sweep_spatial")
    table = before["results"]["table"] if before and before["config"]["defaults"] == base else []
    there = {(row["knob"], row["value"], row["stream"], row["epsilon"]) for row in table}
    for stream in streams_wanted:
        data: Dataset | None = None
        for knob, value in lines(epsilon):
            if (knob, label(value), stream, epsilon) in there:
                continue
            data = data or DATASETS[stream]()
            make = maker(knob, value, len(data.batches))
            found = pd.DataFrame([errors(data, make, epsilon, seed).mean() for seed in range(SEEDS)]).mean()
            row = {"knob": knob, "value": label(value), "stream": stream, "epsilon": epsilon}
            table.append(row | found.to_dict())
            record("sweep_spatial", {"seeds": SEEDS, "defaults": base}, {"table": table})
            shown = found.round(4).to_dict()
            print(f"{stream:18} ε={epsilon:<4g} {knob:16} {label(value):22} {shown}", flush=True)


def initialisation(streams_wanted: list[str]) -> None:
    """Error over time when the first t0 batches are held back and released together (Kumar 2024, figure
    3.5): t0 as a share of the stream.
    """
    before = recorded("spatial_t0")
    found: dict[str, Any] = before["results"] if before else {}
    for stream in streams_wanted:
        if stream in found:
            continue
        data, rows = DATASETS[stream](), []
        for share in (0.0, 0.05, 0.1, 0.2):
            t0 = round(share * len(data.batches))
            for method in ("auto", "every_step", "baseline 3"):
                make = partial(METHODS[method], t0=t0)
                runs = [errors(data, make, 1.0, seed) for seed in range(SEEDS)]
                mean = sum(runs[1:], runs[0]) / SEEDS
                after = mean[mean.index >= t0]  # before t0 nothing is released
                over_time = {"step": list(after.index), **after.round(5).to_dict("list")}
                rows.append({"t0": t0, "method": method, "over_time": over_time})
                print(f"{stream:18} t0={t0:<4} {method:12} {after.mean().round(4).to_dict()}", flush=True)
        found[stream] = rows
        record("spatial_t0", {"seeds": SEEDS, "epsilon": 1.0}, found)


def label(value: Any) -> str:
    return ", ".join(f"{part:g}" for part in value) if isinstance(value, tuple) else f"{value}"


def branching() -> None:
    """Expected RMSE of k-ary counters by branching, at ε = 1, beside the other kinds."""
    rows: list[dict[str, Any]] = []
    for horizon in (30, 365, 1000):
        times = np.arange(1, horizon + 1)
        for k in (3, 5, 7, 9, 11, 15, 21, 29, 45, 61):
            levels = next(h for h in range(1, 40) if (k**h - 1) // 2 >= horizon)
            bank = KaryBank(epsilon=1.0, noise=SystemNoise(), branching=k, levels=levels)
            rmse = math.sqrt(float(np.mean(bank.variance(times))))
            rows.append({"horizon": horizon, "counter": "kary", "k": k, "levels": levels, "rmse": rmse})
        for kind in ("simple", "block", "binary", "auto"):
            rmse = expected_rmse(kind, epsilon=1.0, horizon=horizon)
            rows.append({"horizon": horizon, "counter": kind, "k": None, "levels": None, "rmse": rmse})
    record("sweep_counters", {"epsilon": 1.0, "how": "closed form"}, {"table": rows})
    print(pd.DataFrame(rows).round(2).to_string(index=False))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", nargs="*", default=list(STREAMS), choices=list(DATASETS))
    options = parser.parse_args()
    if recorded("sweep_counters") is None:
        branching()
    for epsilon in EPSILONS:
        spatial(options.streams, epsilon)
        if epsilon == EPSILONS[0]:
            initialisation(options.streams)


if __name__ == "__main__":
    main()

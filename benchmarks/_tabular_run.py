"""One stream, or one release, of a tabular benchmark: what came out, how long it took, what it held."""

from __future__ import annotations

import time
from dataclasses import asdict
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

import synthgeo as sg
from benchmarks._common import peak_memory_mib
from benchmarks._tabular_data import Config, adult, batches_of, coded, money
from synthgeo.evaluation.tables import (
    marginal_counts,
    table_scores,
    total_variation,
    train_on_synthetic,
    workload_errors,
)

LAST = 10
#: A table is cut into halves so many times: one cut of columns that go together can be far off by chance.
SPLITS = 10


def stream_of(config: Config, schema: sg.Schema, **options: Any) -> Any:
    """The stream that a configuration asks for."""
    options |= {"schema": schema, "budget": sg.PrivacyBudget(config.epsilon)}
    options["noise"] = sg.SeededNoise(config.seed)
    if config.method == "baseline":
        return sg.baselines.StreamingMWEM.from_options(**options)
    return sg.TabularStream.from_options(**{"schedule": config.method, **options})


def run(config: Config, *, steps: int | None = None, **options: Any) -> dict[str, Any]:
    """One stream from start to end."""
    schema, batches = batches_of(config.data, config.order, config.batch)
    batches = batches[:steps]
    stream = stream_of(config, schema, **options)
    pairs = list(combinations(schema.sizes, 2))
    truth: dict[tuple[str, ...], np.ndarray] = {}
    seconds: list[float] = []
    errors: list[dict[str, float]] = []
    early_memory = 0.0
    begin = time.perf_counter()
    for i, batch in enumerate(batches):
        start = time.perf_counter()
        release = stream.update(batch)
        seconds.append(time.perf_counter() - start)
        fresh = marginal_counts(batch, schema, pairs)
        truth = {pair: truth.get(pair, 0) + fresh[pair] for pair in pairs}
        if i >= len(batches) - LAST:
            errors.append(asdict(workload_errors(truth, release.marginals(pairs))))
        if i == len(batches) // 2:
            early_memory = peak_memory_mib()
    return {
        **{key: float(np.mean([error[key] for error in errors])) for key in errors[0]},
        "steps": len(batches),
        "seconds": time.perf_counter() - begin,
        "median_step": float(np.median(seconds)),
        "median_step_last_half": float(np.median(seconds[len(seconds) // 2 :])),
        "worst_step": float(np.max(seconds)),
        "memory_mib": peak_memory_mib(),
        "memory_mib_halfway": early_memory,
    }


def random_halves(frame: pd.DataFrame, schema: sg.Schema, cliques: list[tuple[str, ...]]) -> float:
    """The mean total variation of marginals between two random halves of a table, over several cuts."""
    rng, middle, found = np.random.default_rng(0), len(frame) // 2, []
    for _ in range(SPLITS):
        order = rng.permutation(len(frame))
        halves = (frame.iloc[order[:middle]], frame.iloc[order[middle:]])
        apart = total_variation(*(marginal_counts(half, schema, cliques) for half in halves))
        found.append(np.mean(list(apart.values())))
    return float(np.mean(found))


def once(epsilon: float, delta: float, seed: int) -> dict[str, Any]:
    """Adult released once: total variation, and training on synthetic rows."""
    frame, schema = adult()
    start = time.perf_counter()
    model = sg.TabularSynthesizer(
        schema=schema, budget=sg.PrivacyBudget(epsilon, delta), noise=sg.SeededNoise(seed)
    ).fit(frame)
    fitted = time.perf_counter() - start
    release = model.sample()
    release.data  # noqa: B018
    seconds = time.perf_counter() - start
    order = np.random.default_rng(0).permutation(len(frame))
    pairs = list(combinations(schema.sizes, 2))
    cut = int(0.8 * len(frame))
    train, test = frame.iloc[order[:cut]], frame.iloc[order[cut:]]
    learner = sg.TabularSynthesizer(
        schema=schema, budget=sg.PrivacyBudget(epsilon, delta), noise=sg.SeededNoise(seed + 1)
    ).fit(train)
    trained = train_on_synthetic(train, learner.sample().data, test, schema=schema, target="income>50K")
    return {
        **table_scores(frame, release),
        "seconds_fit": fitted,
        "seconds": seconds,
        "random_halves_tv_2way": random_halves(frame, schema, pairs),
        "memory_mib": peak_memory_mib(),
        **{f"tstr_{key}": value for key, value in trained.items()},
    }


SETS = {
    "data": ["adult", "nltcs", "salary", "titanic", "fares and tips"],
    "epsilon": 1.0,
    "delta": 1e-9,
    "seeds": [0, 1, 2],
}


def sets() -> dict[str, Any]:
    """Tables released once with the defaults: total variation of all pairs; of amounts, the distance of their
    distributions and the shares of zeros and of the ten most frequent values.
    """
    budget = sg.PrivacyBudget(SETS["epsilon"], SETS["delta"])
    out: dict[str, Any] = {}
    for name in SETS["data"][:4]:
        frame, schema = coded(name)
        pairs = list(combinations(schema.sizes, 2))
        truth = marginal_counts(frame, schema, pairs)
        errors, seconds = [], []
        for seed in SETS["seeds"]:
            begin = time.process_time()
            model = sg.TabularSynthesizer(schema=schema, budget=budget, noise=sg.SeededNoise(seed)).fit(frame)
            made = marginal_counts(model.sample().data, schema, pairs)
            seconds.append(time.process_time() - begin)
            errors.append(float(np.mean(list(total_variation(truth, made).values()))))
        out[name] = {
            "tv_2way": float(np.mean(errors)),
            "tv_2way_by_seed": errors,
            "random_halves_tv_2way": random_halves(frame, schema, pairs),
            "processor_seconds": float(np.mean(seconds)),
        }
    frame, schema = money()
    release = sg.TabularSynthesizer(schema=schema, budget=budget, noise=sg.SeededNoise(0)).fit(frame).sample()
    distance = sg.metrics.wasserstein(frame, release)
    for name in frame:
        top = frame[name].value_counts().index[:10]
        sides = {"real": frame[name], "synthetic": release.data[name]}
        out[str(name)] = {
            "wasserstein_over_quartiles": distance[str(name)],
            **{f"zeros_{side}": float((values == 0).mean()) for side, values in sides.items()},
            **{f"top_ten_{side}": float(values.isin(top).mean()) for side, values in sides.items()},
        }
    return out

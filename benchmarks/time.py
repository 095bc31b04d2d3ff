"""Time: datasets that expire, datasets of single windows, and streams without an end.

``python -m benchmarks.time [circles] [windows] [deletes] [table] [bias]`` measures what is not recorded yet,
all of it where nothing is named; ``--again`` measures it anew. Pieces of a part are kept when they are done,
in ``unfinished_time-<part>.json``, and a run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd

import synthgeo as sg
from benchmarks import _tabular_data, spatial
from benchmarks._common import RESULTS, record, recorded
from benchmarks._time_bias import KINDS, bias
from synthgeo.evaluation.spatial import RangeQueries
from synthgeo.sources import open_source

BOX = sg.BoxDomain(0, 0, 1, 1)
CLASSES = ("small", "medium", "large")
ENDS = (150, 1_000, 10_000)
# One period of the circles: how long the crowd takes from the inner one to the outer one and back.
_PERIOD = 150


def kept(part: str, piece: str, work: Callable[[], Any]) -> Any:
    """What a piece of a part came to, measured unless an earlier run that was stopped has it."""
    file = f"unfinished_time-{part}"
    before = recorded(file)
    done: dict[str, Any] = before["results"] if before else {}
    if piece not in done:
        done[piece] = work()
        record(file, {}, done)
        print(f"{part}: {piece}", flush=True)
    return done[piece]


def moving_circles(steps: int, points: int, seed: int) -> list[np.ndarray]:
    """Points on two concentric circles, step by step; the crowd moves from one to the other and back."""
    rng = np.random.default_rng(seed)
    found = []
    for step in range(steps):
        inner = rng.random(points) < 0.5 + 0.45 * np.cos(2 * np.pi * step / _PERIOD)
        radius = np.where(inner, 0.2, 0.4) + np.clip(rng.normal(0, 0.01, points), -0.05, 0.05)
        angle = rng.uniform(0, 2 * np.pi, points)
        found.append(np.column_stack([0.5 + radius * np.cos(angle), 0.5 + radius * np.sin(angle)]))
    return found


def looks_before(ends: tuple[int, ...], every: int = 10) -> dict[int, int]:
    """The steps at which errors are measured, in the hundred before each end, and that end."""
    return {step: end for end in ends for step in range(end - 100 + every, end + 1, every)}


def circles_of(seed: int, steps: int = 10_000, lifetime: int = 30, points: int = 500) -> dict[str, Any]:
    """Circles with a lifetime, for one seed: errors and totals at the looks, and the seconds of all steps."""
    looks = looks_before(tuple(end for end in ENDS if end <= steps))
    queries = RangeQueries.draw(BOX.bounds, seed=99, counts=spatial.QUERIES)
    batches = moving_circles(steps, points, seed)
    budget, noise = sg.PrivacyBudget(1.0), sg.SeededNoise(seed)
    stream = sg.PHDStream(domain=BOX, budget=budget, lifetime=lifetime, noise=noise)
    rows, seconds = [], 0.0
    for step, batch in enumerate(batches, start=1):
        began = time.process_time()
        release = stream.update(batch)
        seconds += time.process_time() - began
        if step in looks:
            true = np.concatenate(batches[max(0, step - lifetime) : step])
            off = float(stream.mechanism.cells.estimate.values.sum()) - len(true)
            rows.append({"seed": seed, "end": looks[step], "total": off, **queries.error(true, release.xy)})
    return {"rows": rows, "seconds": seconds}


def circles(seeds: int = 5) -> dict[str, Any]:
    """Circles with a lifetime: the error early and late, the total, and the time it takes."""
    found = [kept("circles", f"seed {seed}", lambda s=seed: circles_of(s)) for seed in range(1, seeds + 1)]
    frame = pd.DataFrame([row for one in found for row in one["rows"]])
    means = frame.groupby("end")[list(CLASSES)].mean()
    totals = {}
    for end, total in frame.groupby(["end", "seed"])["total"].mean().groupby("end"):
        totals[int(end)] = {"mean": float(total.mean()), "standard_error": float(total.sem())}
    return {
        "seeds": len(found),
        "errors": {int(end): row.to_dict() for end, row in means.iterrows()},
        "total_off_by": totals,
        "seconds": [one["seconds"] for one in found],
    }


def random_lives(
    steps: int, points: int, longest: int, seed: int
) -> Iterator[tuple[pd.DataFrame, np.ndarray]]:
    """Batches of circles whose points are deleted after 1 to ``longest`` steps, and who is there."""
    rng = np.random.default_rng(seed)
    batches = moving_circles(steps, points, seed)
    leaving: dict[int, list[np.ndarray]] = {}
    recent: list[tuple[np.ndarray, np.ndarray]] = []
    for step, batch in enumerate(batches, start=1):
        dies = step + rng.integers(1, longest + 1, points)
        for when in np.unique(dies).tolist():
            leaving.setdefault(when, []).append(batch[dies == when])
        recent = [*recent[-longest:], (batch, dies)]
        gone = np.concatenate(leaving.pop(step, [np.empty((0, 2))]))
        both = np.concatenate([batch, gone])
        frame = pd.DataFrame({"x": both[:, 0], "y": both[:, 1]})
        frame["op"] = np.repeat([1, -1], [len(batch), len(gone)])
        yield frame, np.concatenate([xy[dies > step] for xy, dies in recent])


def with_random_lives(counter: str, seed: int, steps: int, looks: Any) -> list[dict[str, float]]:
    """Errors, at some steps, of a stream without a lifetime whose points are deleted at random."""
    queries = RangeQueries.draw(BOX.bounds, seed=99, counts=spatial.QUERIES)
    budget, noise = sg.PrivacyBudget(1.0), sg.SeededNoise(seed)
    stream = sg.PHDStream(domain=BOX, budget=budget, settings=sg.PointSettings(counter=counter), noise=noise)
    rows = []
    for step, (batch, true) in enumerate(random_lives(steps, 500, 300, seed), start=1):
        release = stream.update(batch)
        if step in looks:
            rows.append({"step": step, **queries.error(true, release.xy)})
    return rows


def deletes(steps: int = 10_000, early: int = 500, seeds: int = 3, late_seeds: int = 3) -> dict[str, Any]:
    """Arbitrary deletes: the default, late against early, and against the simple counter at first."""
    looks = looks_before(tuple(end for end in (1_000, 10_000) if end <= steps))
    late, ratios = [], []
    for seed in range(1, seeds + 1):
        if seed <= late_seeds:
            late += kept(
                "deletes", f"late, {seed}", lambda s=seed: with_random_lives("auto", s, steps, looks)
            )
        default, simple = (
            pd.DataFrame(
                kept(
                    "deletes",
                    f"early, {counter}, {seed}",
                    lambda c=counter, s=seed: with_random_lives(c, s, early, range(10, early + 1, 10)),
                )
            ).set_index("step")
            for counter in ("auto", "simple")
        )
        ratios.append((default / simple)[list(CLASSES)].mean(axis=1))
    frame = pd.DataFrame(late).set_index("step")
    by_step = pd.concat(ratios, axis=1).mean(axis=1)
    by_fifty = by_step.groupby((by_step.index - 1) // 50 * 50 + 50).mean()
    ends = frame.groupby(np.ceil(frame.index / 100) * 100)
    return {
        "seeds": seeds,
        "late_seeds": late_seeds,
        "errors": {int(end): row.to_dict() for end, row in ends.mean().iterrows()},
        "default_over_simple": {int(end): float(ratio) for end, ratio in by_fifty.items()},
    }


# How to load it, its lifetime in windows, when the first window begins, and how long one is.
WINDOWS: dict[str, tuple[Callable[[], spatial.Dataset], int, str, str]] = {
    "check-ins, the last 30 days": (lambda: spatial.checkins(deletion=False), 30, "2010-01-01", "1D"),
    "New York pickups on roads, per 6 hours": (spatial.new_york, 1, "2015-01-01", "6h"),
    "Minneapolis stops, per day": (lambda: spatial.minneapolis(days=1), 1, "2017-01-01", "1D"),
    "Minneapolis stops, per week": (lambda: spatial.minneapolis(days=7), 1, "2017-01-01", "7D"),
}


def in_windows(batches: list[pd.DataFrame], start: str, every: str) -> Iterator[Any]:
    """Batches as windows, which say when they begin and end."""
    edges = pd.date_range(start, periods=len(batches) + 1, freq=every)
    for batch, begin, end in zip(batches, edges[:-1], edges[1:], strict=True):
        source = open_source(batch)
        source.window = (begin, end)
        yield source


def _with_deletes(batches: list[pd.DataFrame], lifetime: int) -> list[pd.DataFrame]:
    """The same windows for a stream that holds everything so far: what expires is deleted."""
    gone = [batch.assign(op=-1) for batch in batches]
    return [
        batch if step < lifetime else pd.concat([batch, gone[step - lifetime]], ignore_index=True)
        for step, batch in enumerate(batches)
    ]


# The ways to make datasets of windows: which product, with which options besides the lifetime, and whether
# what expires is deleted in place of a lifetime.
METHODS: dict[str, tuple[Callable[..., Any], dict[str, Any], bool]] = {
    "borrow=True": (sg.PHDStream, {"borrow": True}, False),
    "borrow=False": (sg.PHDStream, {"borrow": False}, False),
    "deletes": (sg.PHDStream, {}, True),
    "fresh PrivTree": (sg.baselines.DifferentialPrivTree, {}, False),
}


def looks_at(steps: int, lifetime: int) -> list[int]:
    """Steps at which windows are looked at, from the first third on: 20 of those that overlap, else all, for
    some of them would be of some hours and weekdays more than of others.
    """
    return sorted({int(step) for step in np.linspace(steps / 3, steps, 20 if lifetime > 1 else steps)})


def windows_by(name: str, method: str, seeds: int) -> dict[str, dict[str, float]]:
    """The errors of one method on one stream of windows: mean over all looks, and over the last quarter."""
    load, lifetime, start, every = WINDOWS[name]
    data = load()
    kind, options, deleted = METHODS[method]
    if not deleted:
        options = options | {"lifetime": lifetime}
    queries = RangeQueries.draw(data.domain.bounds, seed=99, counts=spatial.QUERIES)
    steps = len(data.batches)
    batches = _with_deletes(data.batches, lifetime) if deleted else data.batches
    when = looks_at(steps, lifetime)
    rows = []
    for seed in range(1, seeds + 1):
        noise = sg.SeededNoise(seed)
        stream = kind.from_options(domain=data.domain, budget=sg.PrivacyBudget(1.0), noise=noise, **options)
        for step, batch in enumerate(in_windows(batches, start, every), start=1):
            release = stream.update(batch)
            true = pd.concat(data.batches[max(0, step - lifetime) : step])[["x", "y"]].to_numpy()
            if step in when and len(true):
                rows.append({"step": step, **queries.error(true, release.xy)})
    frame = pd.DataFrame(rows)
    found = {"all": frame, "end": frame[frame["step"] >= when[-len(when) // 4]]}
    return {part: looked[list(CLASSES)].mean().to_dict() for part, looked in found.items()}


def windows(seeds: int = 3) -> dict[str, Any]:
    """Datasets of windows: lifetimes with and without borrowing, deletes, a fresh tree per window."""
    results = {}
    for name, (load, lifetime, _, _) in WINDOWS.items():
        found = {
            method: kept("windows", f"{name}: {method}", lambda n=name, m=method: windows_by(n, m, seeds))
            for method in METHODS
        }
        data = load()
        usual = sg.PHDStream(domain=data.domain, budget=sg.PrivacyBudget(1.0), lifetime=lifetime)
        when = set(looks_at(len(data.batches), lifetime))
        queries = RangeQueries.draw(data.domain.bounds, seed=99, counts=spatial.QUERIES)
        results[name] = {
            "steps": len(data.batches),
            "lifetime": lifetime,
            "seeds": seeds,
            "borrows": usual.mechanism.facts()["borrow"],
            "errors": {method: errors["all"] for method, errors in found.items()},
            "end": {method: errors["end"] for method, errors in found.items()},
            "other windows": _floor(data.batches, when, queries, lifetime),
        }
    return results


def _floor(
    batches: list[pd.DataFrame], when: set[int], queries: RangeQueries, lifetime: int
) -> dict[str, float]:
    """The error of as many points drawn from the *true* points of all other windows: what no prediction from
    other windows can beat by much, without any noise at all. Not private.
    """
    rng, rows = np.random.default_rng(1), []
    every = [batch[["x", "y"]].to_numpy() for batch in batches]
    for step in when:
        true = np.concatenate(every[max(0, step - lifetime) : step])
        others = np.concatenate([*every[: max(0, step - lifetime)], *every[step:]])
        if len(true) and len(others):
            rows.append(queries.error(true, others[rng.integers(len(others), size=len(true))]))
    return pd.DataFrame(rows)[list(CLASSES)].mean().to_dict()


def table(days: int = 60, seeds: int = 2) -> dict[str, Any]:
    """Flights per day as a table: total variation of all pairs of columns, per day."""
    schema, batches = _tabular_data.flights()
    batches = batches[:days]
    pairs = sg.all_k_way(schema, 2)
    methods = {
        "lifetime": (sg.TabularStream, {}),
        "lifetime, borrow=False": (sg.TabularStream, {"borrow": False}),
        "fresh fit": (sg.baselines.StreamingMWEM, {}),
    }
    found: dict[str, list[float]] = {method: [] for method in methods}

    def variations(method: str, seed: int) -> list[float]:
        kind, options = methods[method]
        budget, noise = sg.PrivacyBudget(1.0), sg.SeededNoise(seed)
        stream = kind.from_options(schema=schema, budget=budget, lifetime=1, noise=noise, **options)
        values = []
        for step, window in enumerate(in_windows(batches, "2013-01-01", "1D"), start=1):
            release = stream.update(window)
            if step > days // 3:
                values.append(_variation(schema, pairs, batches[step - 1], release))
        return values

    for seed in range(1, seeds + 1):
        for method in methods:
            found[method] += kept("table", f"{method}, {seed}", lambda m=method, s=seed: variations(m, s))
    return {
        "days": days,
        "seeds": seeds,
        "tv_2way": {method: float(np.mean(values)) for method, values in found.items()},
    }


def _variation(schema: Any, pairs: Any, batch: pd.DataFrame, release: Any) -> float:
    """Mean total variation of the released pairs from those of the day's true table."""
    from tabular.marginals import MarginalIndex

    index = MarginalIndex(schema, list(pairs))
    true = index.split(open_source(batch).histogram(index, schema.inputs))
    released = release.marginals(list(pairs))
    apart = [
        np.abs(true[c] / max(true[c].sum(), 1) - released[c] / max(released[c].sum(), 1e-9)).sum() / 2
        for c in pairs
    ]
    return float(np.mean(apart))


def noise_on_average(runs: int = 200) -> dict[str, Any]:
    """Means of the noise over their standard errors: the total, and four parts that are busy by truth."""
    return {
        "runs": runs,
        "mean_over_standard_error": {
            name: kept("bias", name, lambda m=make: bias(m, runs)) for name, make in KINDS.items()
        },
    }


PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "windows": windows,
    "table": table,
    "circles": circles,
    "deletes": deletes,
    "bias": noise_on_average,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="which; all where none is named")
    parser.add_argument("--again", action="store_true", help="also what is recorded")
    options = parser.parse_args()
    for name in options.parts or PARTS:
        if options.again or not (RESULTS / f"time-{name}.json").exists():
            record(f"time-{name}", {"epsilon": 1.0}, PARTS[name]())
            (RESULTS / f"unfinished_time-{name}.json").unlink(missing_ok=True)


if __name__ == "__main__":
    main()

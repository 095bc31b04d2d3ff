"""The tables of docs/benchmarks.md on noise, counters and spatial streams."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from benchmarks._markdown import folded, load, machine, measured, number, references, table
from benchmarks._plots import CLASSES, STREAMS

PRIVATE = ("auto", "every_step", "baseline 2", "baseline 3")
METHODS = (*PRIVATE, "baseline 1 (not private)")
EPSILONS = ("0.5", "1", "2")


def noise() -> list[str]:
    result = load("noise")
    if result is None:
        return []
    rows = [[r["scale"], r["ours_s"], r["opendp_s"], r["ratio"]] for r in result["results"]["laplace"]]
    return [*table(["scale", "synthgeo", "OpenDP", "times faster"], rows), *measured(result)]


def counters() -> list[str]:
    result = load("counters")
    if result is None:
        return []
    content = result["results"]
    horizons = [key for key in content["rmse"][0] if key != "counter"]
    rmse = [[row["counter"], *(row.get(horizon) for horizon in horizons)] for row in content["rmse"]]
    cost = [[r["counter"], r["clocks"], r["update_ms"], r["noise_ms"], r["ratio"]] for r in content["cost"]]
    config = result["config"]
    return [
        *table(["counter", *(f"T = {int(horizon):,}" for horizon in horizons)], rmse),
        *folded(
            f"What an update of {config['counters']:,} counters costs, beside drawing its noise ({machine(result)})",
            table(["counter", "ages", "update, ms", "noise alone, ms", "ratio"], cost),
        ),
    ]


def branching() -> list[str]:
    """RMSE of the k-ary counter by k."""
    result = load("sweep_counters")
    if result is None:
        return []
    rows = result["results"]["table"]
    ks = list(dict.fromkeys(row["k"] for row in rows if row["k"] is not None))
    out = []
    for horizon in dict.fromkeys(row["horizon"] for row in rows):
        of = {row["k"]: row["rmse"] for row in rows if row["horizon"] == horizon and row["counter"] == "kary"}
        best = next(row["rmse"] for row in rows if row["horizon"] == horizon and row["counter"] == "auto")
        out.append([f"T = {horizon:,}", *(of[k] for k in ks), best])
    return table(["horizon", *(f"k = {k}" for k in ks), "auto"], out)


def error_results() -> dict[str, Any]:
    """The recorded streams, by name."""
    return {name: result for name in STREAMS if (result := load(f"spatial-error-{name}")) is not None}


def error() -> list[str]:
    found = error_results()
    lines: list[str] = []
    for epsilon in ("1", "0.5", "2"):
        rows = [
            [STREAMS[name], kind, *(result["results"][f"{epsilon} {m}"]["mean"][kind] for m in METHODS)]
            for name, result in found.items()
            for kind in CLASSES
        ]
        shown = table(["stream", "queries", *METHODS], rows)
        lines += ["ε = 1:", "", *shown] if epsilon == "1" else folded(f"ε = {epsilon}", shown)
    steps = ", ".join(f"{STREAMS[name]} {result['config']['steps']}" for name, result in found.items())
    seeds = sorted({result["config"]["seeds"] for result in found.values()})
    return [*lines, f"Means over {' or '.join(map(str, seeds))} seeds. Steps: {steps}.", ""]


def ratios(found: dict[str, Any]) -> list[tuple[str, str, str, float, float]]:
    """Stream, ε, class, error of ``auto`` over that of ``every_step``, and over the best private other."""
    out = []
    for name, result in found.items():
        for epsilon in EPSILONS:
            for kind in CLASSES:
                of = {method: result["results"][f"{epsilon} {method}"]["mean"][kind] for method in PRIVATE}
                others = [value for method, value in of.items() if method != "auto"]
                out.append((name, epsilon, kind, of["auto"] / of["every_step"], of["auto"] / min(others)))
    return out


def initialisation() -> list[str]:
    """Where holding back batches pays, in a sentence."""
    result = load("spatial_t0")
    if result is None:
        return []
    ahead, worst = [], 0.0
    for name, rows in result["results"].items():
        last = max(row["t0"] for row in rows)
        small = {row["method"]: sum(row["over_time"]["small"]) for row in rows if row["t0"] == last}
        ahead += [STREAMS[name]] if small["baseline 3"] < small["every_step"] else []
        worst = max(worst, small["auto"] / min(small["every_step"], small["baseline 3"]))
    return [
        f"With the longest t0, baseline 3 is better than `every_step` on {' and '.join(ahead) or 'none of the streams'}; there `auto` has at most "
        f"{number(worst)} times the error of the better of the two (means over {result['config']['seeds']} seeds).",
        "",
    ]


def defaults() -> list[str]:
    """Why these defaults: every value tried, as a ratio to the default's error."""
    result = load("sweep_spatial")
    if result is None:
        return []
    rows = result["results"]["table"]
    base = {(r["stream"], r["epsilon"]): r for r in rows if r["knob"] == "default"}
    epsilons = sorted({r["epsilon"] for r in rows})
    lines = []
    for knob, value in dict.fromkeys((r["knob"], r["value"]) for r in rows if r["knob"] != "default"):
        cells: list[Any] = [knob, value]
        for epsilon in epsilons:
            quotients = [
                r[kind] / base[r["stream"], epsilon][kind]
                for r in rows
                if (r["knob"], r["value"], r["epsilon"]) == (knob, value, epsilon)
                for kind in CLASSES
            ]
            cells.append(_spread(quotients))
        lines.append(cells)
    streams = ", ".join(STREAMS[name] for name in dict.fromkeys(r["stream"] for r in rows))
    given = "; ".join(f"{knob} {value}" for knob, value in result["config"]["defaults"].items())
    better = [
        f"{knob} {value}"
        for knob, value, *cells in lines
        if all(_mean(c) < 0.97 for c in cells if c is not None)
    ]
    verdict = (
        f"Better than the default at every ε by more than 3 % on average: {', '.join(better)}."
        if better
        else "No value is better than the default by more than 3 % on average at every ε that it was tried at."
    )
    return [
        f"The default: {given}. Streams: {streams}; {result['config']['seeds']} seeds. {verdict} {_divided(rows, base)}",
        "",
        *table(
            [
                "knob",
                "value",
                *(f"ε = {number(epsilon)} ({_streams(rows, epsilon)})" for epsilon in epsilons),
            ],
            [[knob, value, *(_shown(c) for c in cells)] for knob, value, *cells in lines],
        ),
    ]


def _divided(rows: list[dict[str, Any]], base: dict[tuple[str, float], dict[str, Any]]) -> str:
    """Values that help some streams by 5 % or more and hurt others by 2 % or more, over all ε."""
    out = []
    for knob, value in dict.fromkeys((r["knob"], r["value"]) for r in rows if r["knob"] != "default"):
        by: dict[str, list[float]] = {}
        for r in rows:
            if (r["knob"], r["value"]) == (knob, value):
                by.setdefault(r["stream"], []).extend(
                    r[k] / base[r["stream"], r["epsilon"]][k] for k in CLASSES
                )
        mean = {name: math.exp(sum(map(math.log, q)) / len(q)) for name, q in by.items()}
        helped = [f"{STREAMS[name]} {m:.2f}" for name, m in mean.items() if m <= 0.95]
        hurt = [f"{STREAMS[name]} {m:.2f}" for name, m in mean.items() if m >= 1.02]
        if helped and hurt:
            out.append(f"{knob} = {value} ({', '.join(helped)}, but {', '.join(hurt)})")
    if not out:
        return ""
    return f"Values that help some streams and hurt others, mean over ε: {'; '.join(out)}. A default has to serve both."


def _streams(rows: list[dict[str, Any]], epsilon: float) -> str:
    """How many streams were swept at one ε."""
    return f"{len({r['stream'] for r in rows if r['epsilon'] == epsilon and r['knob'] != 'default'})} streams"


def _spread(values: list[float]) -> tuple[float, float, float] | None:
    if not values:
        return None
    return math.exp(sum(map(math.log, values)) / len(values)), min(values), max(values)


def _mean(spread: tuple[float, float, float]) -> float:
    return spread[0]


def _shown(spread: tuple[float, float, float] | None) -> str:
    return "–" if spread is None else f"{spread[0]:.2f} ({spread[1]:.2f} to {spread[2]:.2f})"


def cost() -> list[str]:
    result = load("spatial-cost")
    if result is None:
        return []
    rows = []
    for name, value in result["results"].items():
        if isinstance(value, dict):
            rows += [[f"{name}, {size} points", inner] for size, inner in value.items()]
        else:
            rows.append([name, value])
    long = load("spatial-long")
    if long is not None:
        rows.append(["6 million points over 300 steps, s", long["results"]["seconds"]])
    authors = references()["phdstream"]
    note = f"For orientation, the authors' public code *(elsewhere: {authors['source']})*: {authors['steps']} such steps in {authors['seconds']} s."
    return [*table(["what", "value"], rows), *measured(result), note, ""]


BLOCKS: dict[str, Callable[[], list[str]]] = {
    "noise": noise,
    "counters": counters,
    "counters branching": branching,
    "spatial error": error,
    "spatial initialisation": initialisation,
    "spatial defaults": defaults,
    "spatial cost": cost,
}

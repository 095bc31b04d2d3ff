"""The section of docs/benchmarks.md on time: lifetimes, single windows, borrowing, long streams."""

from __future__ import annotations

from typing import Any

from benchmarks._markdown import load, machine, number, picture, table

CLASSES = ("small", "medium", "large")


def time() -> list[str]:
    lines = [*_windows(), *_table(), *_circles(), *_deletes()]
    if not lines:
        return []
    return [
        "## Time: datasets that expire",
        "",
        "ε = 1 for each event over all releases. Errors of range queries as above, means over the looks and seeds of each run.",
        "",
        *lines,
    ]


def _mean_ratio(errors: dict[str, dict[str, float]], method: str, other: str) -> float:
    return sum(errors[method][c] / errors[other][c] for c in CLASSES) / len(CLASSES)


def _windows() -> list[str]:
    result = load("time-windows")
    if result is None:
        return []
    rows: list[list[Any]] = []
    ratios: list[list[Any]] = []
    for name, found in result["results"].items():
        errors = found["errors"]
        for method, error in errors.items():
            rows.append([name, method, *(error[c] for c in CLASSES)])
        rows.append(
            [
                name,
                "*drawn from the true points of all other windows*",
                *(found["other windows"][c] for c in CLASSES),
            ]
        )
        without = "lifetime, borrow=False"
        borrowing = _mean_ratio(errors, "lifetime", without) if without in errors else "the same"
        ratios.append(
            [
                name,
                _mean_ratio(errors, "lifetime", "deletes"),
                borrowing,
                _mean_ratio(errors, "lifetime", "fresh PrivTree"),
            ]
        )
    return [
        f"**Windows.** `lifetime` is `PHDStream(lifetime=L)` (which borrows from earlier releases where L is 1), *deletes* the stream that holds everything so far and deletes what expires, "
        f"*fresh PrivTree* a tree and its counts from each window alone at the same ε ({machine(result)}).",
        "",
        *table(["stream", "method", *CLASSES], rows),
        "Error of `lifetime` as a multiple of the others', mean of the three classes:",
        "",
        *table(["stream", "over deletes", "over borrow=False", "over a fresh PrivTree"], ratios),
        *picture(
            "bench-windows.png",
            "Error of each method on datasets of windows, by class of queries; the dashed line is what the true points of all other windows would give",
        ),
        "Borrowing cannot know which individual events a window will hold. The rows in italics are not private and have no noise: as many points as the window has, drawn from the true points of all *other* windows. "
        "Where that is no better than the window's own noisy counts (stops per day), there is nothing to borrow, and borrowing costs a little: `borrow=False` is for such streams.",
        "",
    ]


def _table() -> list[str]:
    result = load("time-table")
    if result is None:
        return []
    found = result["results"]
    rows = [[method, value] for method, value in found["tv_2way"].items()]
    return [
        f"**Flights per day as a table** (`TabularStream(lifetime=1)`, {found['days']} days; total variation of all pairs of columns from the day's own; *fresh fit* is `StreamingMWEM`).",
        "",
        *table(["method", "total variation"], rows),
    ]


def _circles() -> list[str]:
    result = load("time-circles")
    if result is None:
        return []
    found = result["results"]
    rows = [
        [
            f"{int(end):,}",
            *(error[c] for c in CLASSES),
            found["total_off_by"][end]["mean"],
            found["total_off_by"][end]["standard_error"],
        ]
        for end, error in found["errors"].items()
    ]
    return [
        f"**Circles with a lifetime of 30 steps**, 500 points a step, {found['seeds']} seeds; means over the 100 steps that end there. "
        f"{max(map(int, found['errors'])):,} steps take {number(max(found['seconds']))} s of processor time at most ({machine(result)}).",
        "",
        *table(["step", *CLASSES, "total off by", "standard error"], rows),
    ]


def _deletes() -> list[str]:
    result = load("time-deletes")
    if result is None:
        return []
    found = result["results"]
    late = [[f"{int(end):,}", *(error[c] for c in CLASSES)] for end, error in found["errors"].items()]
    early = [[f"{int(end) - 49} to {end}", ratio] for end, ratio in found["default_over_simple"].items()]
    return [
        "**Arbitrary deletes** (random lives of 1 to 300 steps, no lifetime): the default's error late in the stream, and its error over that of counting every step by itself, the default of 0.1.",
        "",
        *table(["step", *CLASSES], late),
        *table(["steps", "default over simple"], early),
    ]

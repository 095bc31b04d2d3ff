"""The tables of docs/benchmarks.md on time: lifetimes, single windows, borrowing, long streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks._markdown import load, measured, number, table

CLASSES = ("small", "medium", "large")


def _mean_ratio(errors: dict[str, dict[str, float]], method: str, other: str) -> float:
    return sum(errors[method][c] / errors[other][c] for c in CLASSES) / len(CLASSES)


def labelled(found: dict[str, Any], which: str = "errors") -> dict[str, dict[str, float]]:
    """The errors of a stream of windows by method; ``lifetime`` is what it does unless told otherwise."""
    usual = f"borrow={found['borrows']}"
    names = {usual: "lifetime"} | {m: f"lifetime, {m}" for m in ("borrow=True", "borrow=False") if m != usual}
    errors = {names.get(method, method): error for method, error in found[which].items()}
    return {"lifetime": errors["lifetime"], **errors}


def windows() -> list[str]:
    result = load("time-windows")
    if result is None:
        return []
    rows: list[list[Any]] = []
    ratios: list[list[Any]] = []
    for name, found in result["results"].items():
        errors, end = labelled(found), labelled(found, "end")
        for method, error in errors.items():
            rows.append([name, method, *(error[c] for c in CLASSES)])
        rows.append(
            [
                name,
                "*drawn from the true points of all other windows*",
                *(found["other windows"][c] for c in CLASSES),
            ]
        )
        by_name = found["errors"]
        ratios.append(
            [
                name,
                _mean_ratio(errors, "lifetime", "deletes"),
                _mean_ratio(end, "lifetime", "deletes"),
                _mean_ratio(by_name, "borrow=True", "borrow=False"),
                _mean_ratio(errors, "lifetime", "fresh PrivTree"),
            ]
        )
    return [
        *table(["stream", "method", *CLASSES], rows),
        "Error as a multiple of another's, mean of the three classes:",
        "",
        *table(
            [
                "stream",
                "lifetime over deletes",
                "the same at the end of the stream",
                "borrow=True over borrow=False",
                "lifetime over a fresh PrivTree",
            ],
            ratios,
        ),
        *measured(result),
    ]


def flights() -> list[str]:
    result = load("time-table")
    if result is None:
        return []
    found = result["results"]
    rows = [[method, value] for method, value in found["tv_2way"].items()]
    return [
        *table(["method", "total variation"], rows),
        f"{found['days']} days, {found['seeds']} seeds.",
        "",
        *measured(result),
    ]


def circles() -> list[str]:
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
        *table(["step", *CLASSES, "total off by", "standard error"], rows),
        f"{found['seeds']} seeds. {max(map(int, found['errors'])):,} steps take {number(max(found['seconds']))} s of processor time at most.",
        "",
        *measured(result),
    ]


def deletes() -> list[str]:
    result = load("time-deletes")
    if result is None:
        return []
    found = result["results"]
    late = [[f"{int(end):,}", *(error[c] for c in CLASSES)] for end, error in found["errors"].items()]
    early = [[f"{int(end) - 49} to {end}", ratio] for end, ratio in found["default_over_simple"].items()]
    return [
        *table(["step", *CLASSES], late),
        *table(["steps", "default over simple"], early),
        f"{found['late_seeds']} seeds late, {found['seeds']} early.",
        "",
        *measured(result),
    ]


def bias() -> list[str]:
    result = load("time-bias")
    if result is None:
        return []
    found = result["results"]
    rows = [
        [name, values[0], max(values[1:], key=abs)]
        for name, values in found["mean_over_standard_error"].items()
    ]
    return [
        *table(["stream", "total", "busiest parts, the largest of four"], rows),
        f"{found['runs']} runs of 160 steps.",
        "",
        *measured(result),
    ]


BLOCKS: dict[str, Callable[[], list[str]]] = {
    "time windows": windows,
    "time table": flights,
    "time circles": circles,
    "time deletes": deletes,
    "time bias": bias,
}

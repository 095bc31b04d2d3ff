"""The tables of docs/benchmarks.md on scalar series and on the dissertation's sweeps: claims, tables, and
every comparison that is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from benchmarks._markdown import folded, load_all, machine, measured, number, table_of

#: What is ours in a table, by the beginning of its title; ours beside ours is no comparison.
OURS: dict[str, tuple[str, ...]] = {
    "Relative error": ("FAST", "FAST, guess", "KF+PID", "PF+PID"),
    "Which mechanism": ("auto", "absorption", "distribution"),
    "All methods": ("proposed", "FAST (ours)"),
    "Mean absolute error at": ("subsampled", "filtered", "FAST (online)"),
    "Error by the relative sampling frequency": ("subsampled", "filtered", "FAST (online)"),
    "A binary chain": ("instant", "batch 2", "batch 4"),
    "Clicks in 8 categories": ("instant", "batch 2"),
}
#: Columns that are no method.
SETTINGS = (
    "series", "epsilon", "ε per step", "ε per value", "ε of the normal", "weight", "T", "I", "frequency",
    "observation noise", "correlation",
)  # fmt: skip


def results() -> dict[str, dict[str, Any]]:
    """The recorded parts, by name."""
    return {name.removeprefix("series_"): found for name, found in load_all("series_*").items()}


def claims() -> Iterator[dict[str, Any]]:
    """Every claim of every part, and of the dissertation's sweeps."""
    for found in (*results().values(), *load_all("kumar_*").values()):
        yield from found["results"]["claims"]


def tables() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Every table of every part."""
    for found in results().values():
        yield from found["results"]["tables"].items()


def summary() -> list[str]:
    """How many claims hold, and what the run took."""
    found = results()
    every = [c for result in found.values() for c in result["results"]["claims"]]
    printed = [c for c in every if c["claim"].startswith("as printed")]
    held = sum(c["holds"] for c in printed)
    newest = max(found.values(), key=lambda result: result["when"])
    cpu = sum(result["config"]["cpu_seconds"] for result in found.values())
    return [
        f"Of {len(printed)} claims *as printed*, {held} hold here and **{len(printed) - held} are not reproduced** "
        f"({number(cpu / 60)} minutes of one core; {machine(newest)}).",
        "",
    ]


def part(name: str) -> list[str]:
    """How often it was run, its claims, and its tables on request."""
    found = results()[name]
    content, runs = found["results"], found["config"]["runs"]
    lines = [
        f"*{runs} run{'s' * (runs > 1)} with different noise behind each number; {found['when'][:10]}*",
        "",
    ]
    lines += table_of(_claims_table(content["claims"]))
    for title, rows in content["tables"].items():
        lines += folded(title, table_of(rows))
    return lines


def _claims_table(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"claim": c["claim"], "holds": "yes" if c["holds"] else "**no**", "numbers": c["numbers"]}
        for c in found
    ]


def dissertation() -> list[str]:
    """What Kumar's dissertation claims, and what it sweeps besides ε."""
    titles = {
        "kumar_sensitivity": "Sensitivity and batch size: circles with deletion, 20,000 points, ε = 1",
        "kumar_land": "Check-ins on an archipelago, and on the box around it, ε = 1",
        "kumar_counters": "Algorithm 14 with simple and with block counters: Adult, batches of {batch}, {steps} steps",
        "kumar_trips": "Chicago's trips by Algorithm 21 and by ours (table 5.1)",
    }
    found = load_all("kumar_*")
    if not found:
        return []
    lines = measured(next(iter(found.values())))
    lines += table_of(_claims_table([c for result in found.values() for c in result["results"]["claims"]]))
    for name in (name for name in titles if name in found):
        title = titles[name].format(**found[name]["config"])
        lines += folded(title, table_of(found[name]["results"]["table"]))
    return lines


def choice() -> list[str]:
    """For the guide: every mechanism beside what ``auto`` picks."""
    found = results().get("choice")
    if found is None:
        return ["Not measured yet: `make bench-series`.", ""]
    tables = found["results"]["tables"]
    summary = next(rows for title, rows in tables.items() if title.startswith("Every mechanism beside auto"))
    worst = [c["numbers"] for c in found["results"]["claims"]]
    return [
        *table_of(summary),
        "How near `auto` comes to the best online mechanism (mean, and worst setting): "
        + "; ".join(worst)
        + ".",
        "",
    ]


BLOCKS: dict[str, Callable[[], list[str]]] = {
    "series choice": choice,
    "series": summary,
    **{f"series {name} claims": partial(part, name) for name in results()},
    "dissertation": dissertation,
}


def lost() -> Iterator[str]:
    """Each of ours against every other column of its table: settings lost, and by how much at most."""
    for title, rows in tables():
        if "outbreak F1" in rows[0]:
            yield from _ranks_lost(rows)
        ours = next((names for begin, names in OURS.items() if title.startswith(begin)), ())
        others = [key for key in rows[0] if key not in SETTINGS and key not in ours]
        for mine in (name for name in ours if name in rows[0]):
            parts = []
            for other in others:
                worse = [(row[mine] / row[other], row) for row in rows if row[mine] > row[other]]
                if worse:
                    ratio, row = max(worse, key=lambda pair: pair[0])
                    where = ", ".join(f"{key} {number(row[key])}" for key in SETTINGS[:4] if key in row)
                    most = f"at most {number(float(ratio))} times, {where}"
                    parts.append(f"to {other} in {len(worse)} of {len(rows)} settings ({most})")
            if parts:
                yield f"Series, {mine}, *{title}*: {'; '.join(parts)}."


def _ranks_lost(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Outbreaks and ranks, where higher is better."""
    by = {(row["series"], row["mechanism"]): row for row in rows}
    for metric in ("outbreak F1", "Spearman"):
        for mine in ("FAST", "KF+PID", "PF+PID"):
            for other in ("LPA", "DFT (offline)"):
                worse = [
                    f"{name} {number(by[name, mine][metric])} against {number(row[metric])}"
                    for (name, mechanism), row in by.items()
                    if mechanism == other and by[name, mine][metric] < row[metric]
                ]
                if worse:
                    yield f"Series, {mine} to {other}, {metric} at ε = 1: {'; '.join(worse)}."

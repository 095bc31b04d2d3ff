"""The tables of docs/benchmarks.md on tables, trips, peers, growth, profiles and engines."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks import _tabular_defaults as sweep_of_defaults
from benchmarks._common import TRIP_PARTS
from benchmarks._markdown import (
    folded,
    load,
    load_all,
    machine,
    measured,
    number,
    references,
    table,
    table_of,
)

TABLE_ERRORS = {"avg_we": "AvgWE", "max_we": "MaxWE", "avg_rel_we": "AvgRelWE", "max_rel_we": "MaxRelWE"}
DATA = {"adult": "Adult", "stops": "Minneapolis stops", "flights": "New York flights", "wages": "GSS wages"}
ONCE = {"adult": "Adult", "nltcs": "NLTCS", "salary": "salaries", "titanic": "Titanic"}
METHODS = {"auto": "auto", "every_step": "every_step (Algorithm 14)", "baseline": "baseline (Algorithm 13)"}


def table_streams() -> list[dict[str, Any]]:
    """Every configuration of the tabular streams, its figures averaged over seeds."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for result in load_all("tabular_*_s*").values():
        if "method" in (config := result["config"]):
            key = tuple(config[name] for name in ("data", "order", "batch", "method", "epsilon"))
            groups.setdefault(key, []).append(result["results"])
    out = []
    for (data, order, batch, method, epsilon), runs in groups.items():
        row = {"data": data, "order": order, "batch": batch, "method": method, "epsilon": epsilon}
        row["seeds"] = len(runs)
        for name in (*TABLE_ERRORS, "memory_mib"):
            row[name] = sum(run[name] for run in runs) / len(runs)
        for name in ("median_step", "seconds"):  # none where the machine was busy with other work
            timed = [run[name] for run in runs if run[name] is not None]
            row[name] = sum(timed) / len(timed) if timed else None
        if all("avg_sum_we" in run for run in runs):
            row |= {name: sum(run[name] for run in runs) / len(runs) for name in ("avg_sum_we", "max_sum_we")}
        out.append(row | {"steps": runs[0]["steps"]})
    order_of = list(METHODS)
    out.sort(
        key=lambda r: (
            list(DATA).index(r["data"]),
            r["order"],
            -r["batch"],
            r["epsilon"],
            order_of.index(r["method"]),
        )
    )
    return out


def tables_once() -> list[str]:
    found = load("tables_once")
    if found is None:
        return []
    sets = {name: r for name, r in found["results"].items() if "tv_2way" in r}
    swift, other = references()["dpsynth"], references()["adult_once"]["methods"]
    rows = [
        ["synthgeo", *(r["tv_2way"] for r in sets.values())],
        *(
            [f"dpsynth {way.upper()} *(elsewhere)*", *(swift[way].get(name) for name in sets)]
            for way in ("swift", "mst")
        ),
        *([f"{name} *(elsewhere)*", v["tv_2way"], None, None, None] for name, v in other.items()),
        ["two random halves of the data", *(r["random_halves_tv_2way"] for r in sets.values())],
        ["synthgeo, processor seconds", *(r["processor_seconds"] for r in sets.values())],
    ]
    return table(["method", *(ONCE[name] for name in sets)], rows)


def tables_defaults() -> list[str]:
    """The defaults beside a sweep of settings, table by table."""
    found = load(sweep_of_defaults.NAME)
    if found is None:
        return []
    header = [
        "table", "default", "best other setting", "its error", "default over best", "seeds",
        "setting that is best on the other tables", "default over it", "3-way", "processor s",
    ]  # fmt: skip
    rows = [
        [ONCE.get(r["table"], r["table"]), *list((r | {"default over best": f"{r['default over best']:.3f}"}).values())[1:]]
        for r in sweep_of_defaults.summary()
    ]  # fmt: skip
    settings = [
        [name, ", ".join(f"{key} = {number(value)}" for key, value in moved.items()) or "as it is"]
        for name, moved in found["config"]["settings"].items()
    ]
    return [*table(header, rows), *folded("The settings", table(["setting", "what is moved"], settings))]


def tables_uses() -> list[str]:
    """Households, panels, bird strikes and wide tables, as far as they are measured."""
    lines: list[str] = []
    if (found := load("tables_households")) is not None:
        pairs = found["results"]["pairs"]
        rows = [[name, r["tv"], r["independent"]] for name, r in pairs.items()]
        lines += table(["household x person", "total variation", "persons dealt at random"], rows)
        lines.append("")
    if (found := load("tables_panel")) is not None:
        moves = found["results"]["transitions"]
        rows = [
            [name, r["tv"], r["worst_wave_tv"], r["independent"], *r["changed"]] for name, r in moves.items()
        ]
        lines += table(
            ["answer", "transitions, total variation", "worst wave", "answers dealt at random", "changes, real", "changes, synthetic"],
            rows,
        )  # fmt: skip
        lines.append("")
    if (found := load("tables_birds")) is not None:
        ways = {way: r for way, r in found["results"].items() if isinstance(r, dict)}
        rows = [
            [f"operator x {name}", *(r["operator_pairs"][name]["tv"] for r in ways.values()), one["halves"], one["independent"]]
            for name, one in next(iter(ways.values()))["operator_pairs"].items()
        ]  # fmt: skip
        lines += table(["bird strikes", *ways, "two halves", "independent"], rows)
        lines.append("")
    if (found := load("tables_discovery")) is not None:
        rows = [
            [
                name, column, r["values"], *(r["gaussian"][key] for key in ("threshold", "named", "rows")),
                *(r["laplace"][key] for key in ("threshold", "named", "rows")),
            ]
            for name, columns in found["results"].items()
            for column, r in columns.items()
        ]  # fmt: skip
        lines += table(
            ["table", "values of", "are", "named from", "named", "rows with one", "Laplace: from", "named", "rows with one"],
            rows,
        )  # fmt: skip
        lines.append("")
    if (found := load("tables_wide")) is not None:
        rows = [
            [columns, r["processor_seconds"], r["tv_2way"], r["tv_2way_mst"], r["tv_2way_halves"]]
            for columns, r in found["results"].items()
        ]
        lines += table(
            ["columns", "processor s", "2-way total variation", "MST (our code)", "two halves"], rows
        )
    return lines


def why(name: str) -> list[str]:
    """The sweep behind a product's defaults, with what its author says about it."""
    sweep = load(name)
    if sweep is None:
        return []
    lines = [str(sweep["results"].get("why", "")), "", *table_of(sweep["results"]["table"])]
    if "leave_one_out" in sweep["results"]:
        lines += ["", "Chosen for each by the others, by the geometric mean of the eight errors:", ""]
        lines += table_of(sweep["results"]["leave_one_out"])
    return lines


def peers() -> list[str]:
    """Peers that were installed in environments of their own and ran on the same data."""
    found = load_all("peers_*").values()
    lines = [line for note in dict.fromkeys(r["results"]["note"] for r in found) for line in (note, "")]
    for result in found:
        config = result["config"]
        about = f"**{ONCE[config['data']]}**, at most {config['limit']:,.0f} seconds per release"
        lines += [f"{about} ({machine(result)})", "", *table_of(result["results"]["table"]), ""]
    return lines


def tables() -> list[str]:
    rows = table_streams()
    if not rows:
        return []
    header = [
        "data",
        "order",
        "rows per batch",
        "ε",
        "method",
        *TABLE_ERRORS.values(),
        "median step, s",
        "MiB",
        "seeds",
    ]
    body = [
        [
            DATA[r["data"]],
            r["order"],
            r["batch"] if r["data"] == "adult" else "by time",
            r["epsilon"],
            METHODS[r["method"]],
            *(r[name] for name in (*TABLE_ERRORS, "median_step", "memory_mib")),
            r["seeds"],
        ]
        for r in rows
    ]
    return [*table(header, body), *_published()]


def _published() -> list[str]:
    """Kumar's own figures, where references.json has them."""
    known = references().get("kumar_tables")
    if not known:
        return []
    return folded(
        "The dissertation's own figures (elsewhere)", [known["source"], "", *table_of(known["table"])]
    )


def trips(name: str) -> list[str]:
    """One recorded set of trips: its settings, what its author says, the table."""
    result = load(f"trips_{name}")
    if result is None:
        return []
    content = result["results"]
    about = [
        f"{key} {number(value)}"
        for key, value in result["config"].items()
        if not isinstance(value, list | dict)
    ]
    lines = [f"({', '.join([*about, machine(result)])})", ""]
    if isinstance(content.get("why"), str):
        lines += [content["why"], ""]
    lines += table_of(content["table"])
    for key, what in (
        ("reversals", "Steps that turn round on the spot"), ("outside", "Trips that leave the land")
    ):  # fmt: skip
        if content.get(key):
            shares = ", ".join(f"{label}: {value:.2%}" for label, value in content[key].items())
            lines += [f"{what}: {shares}.", ""]
    if "epsilon" in content:
        shares = ", ".join(f"{key} {value:.3f}" for key, value in content["epsilon"].items())
        lines += [f"What each measurement costs of ε = 1: {shares}.", ""]
    if "cpu" in content:
        costs = ", ".join(
            f"{label}: {fit:.1f} + {sample:.1f}" for label, (fit, sample) in content["cpu"].items()
        )
        lines += [f"Processor seconds of fit and sample, on a busy machine: {costs}.", ""]
    for key, what in (("mobility", "As other papers report (first seed)"), ("rides", "Rides")):
        if content.get(key):
            lines += folded(what, table_of(content[key]))
    return lines


def matching() -> list[str]:
    result = load("matching")
    if result is None:
        return []
    speed = [{k: row.get(k) for k in ("what", "points", "seconds")} for row in result["results"]["speed"]]
    return [*table_of(result["results"]["quality"]), *table_of(speed), *measured(result)]


def growth() -> list[str]:
    """Time and memory as the work grows, and the exponents."""
    found = load_all("growth_*")
    if not found:
        return []
    lines = unfinished_growth()
    fitted = [
        [kind, what, *(e.get(key) for key in ("time", "time, last two sizes", "memory, last two sizes"))]
        for kind, what, e in growth_exponents()
    ]
    lines += table(["grows", "what", "exponent of time", "last two", "of memory, last two"], fitted)
    for name, result in found.items():
        lines += folded(
            f"{name.removeprefix('growth_')} ({machine(result)})", table_of(result["results"]["table"])
        )
    return lines


def unfinished_growth() -> list[str]:
    """What is known to be missing."""
    trips = load("growth_trips")
    largest = max(row["trips"] for row in trips["results"]["table"]) if trips is not None else 0
    if largest >= 10**6:
        return []
    return [
        f"Trips are measured up to {largest:,} here, on a machine that was busy with other work, so their seconds are upper bounds; "
        "a run to 1,000,000 is not finished (`python -m benchmarks.growth trips`).",
        "",
    ]


def growth_exponents() -> list[tuple[str, str, dict[str, float | None]]]:
    """What grows, what was measured, and its exponents."""
    return [
        (name.removeprefix("growth_"), what, exponent)
        for name, result in load_all("growth_*").items()
        for what, exponent in _exponents(result["results"]).items()
    ]


def _exponents(results: dict[str, Any]) -> dict[str, dict[str, float | None]]:
    """By what was measured; a bare number is the exponent of time."""
    given = results["exponent"]
    if isinstance(given, dict):
        return {what: value if isinstance(value, dict) else {"time": value} for what, value in given.items()}
    out: dict[str, dict[str, float | None]] = {"released once": {"time": given}}
    if "stream_exponent" in results:
        out["a stream"] = {"time": results["stream_exponent"]}
    return out


def profiles() -> list[str]:
    found = load_all("profile_*")
    if not found:
        return []
    lines: list[str] = []
    for name, result in found.items():
        by_case: dict[str, list[dict[str, Any]]] = {}
        for row in result["results"]["table"]:
            by_case.setdefault(str(row.get("case", row.get("what", ""))), []).append(row)
        for case, rows in by_case.items():
            title = f"{name.removeprefix('profile_')}{': ' if case else ''}{case}"
            first = max(rows, key=lambda row: row["seconds"])
            shown = [[row["part"], row["seconds"], f"{row['share']:.0%}"] for row in rows]
            summary = f"{title} — most in: {first['part']}, {first['share']:.0%} ({machine(result)})"
            lines += folded(summary, table(["part", "seconds", "share"], shown))
    return lines


def engines() -> list[str]:
    result = load("engines")
    if result is None:
        return []
    rows = [
        [name.replace("_", " "), r["seconds"], r.get("times_sql"), r["peak_mib"]]
        for name, r in result["results"].items()
        if isinstance(r, dict) and "peak_mib" in r
    ]
    count = result["results"]["rows"]
    return [
        f"{count:,} rows in Parquet:",
        "",
        *table(["what", "seconds", "times SQL", "peak MiB"], rows),
        *measured(result),
    ]


def plans() -> list[str]:
    """What plans said, beside what the data then gave."""
    result = load("plans")
    if result is None:
        return []
    rows = [
        (
            name,
            one["rows"],
            one["steps"],
            one["noise"],
            one["planned_noise"],
            one["error"],
            one["planned_error"],
        )
        for name, one in result["results"].items()
    ]
    header = ["data", "rows", "steps", "noise", "planned", "error", "planned"]
    return [*table(header, rows), *measured(result)]


BLOCKS: dict[str, Callable[[], list[str]]] = {
    "tables once": tables_once,
    "tables once defaults": tables_defaults,
    "tables uses": tables_uses,
    "peers": peers,
    "tables over time": tables,
    "tables over time defaults": partial(why, "sweep_tabular"),
    **{f"trips {name}": partial(trips, name) for name in TRIP_PARTS},
    "trips defaults": partial(why, "sweep_trips"),
    "matching": matching,
    "growth": growth,
    "profiles": profiles,
    "engines": engines,
    "plans": plans,
}

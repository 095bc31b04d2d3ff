"""The sections of docs/benchmarks.md on tables, trips, series, peers, growth, profiles and engines."""

from __future__ import annotations

from typing import Any

from benchmarks._markdown import folded, load, load_all, machine, number, picture, references, table, table_of

TABLE_ERRORS = {"avg_we": "AvgWE", "max_we": "MaxWE", "avg_rel_we": "AvgRelWE", "max_rel_we": "MaxRelWE"}
DATA = {"adult": "Adult", "stops": "Minneapolis stops", "flights": "New York flights", "wages": "GSS wages"}
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
        for name in (*TABLE_ERRORS, "median_step", "seconds", "memory_mib"):
            row[name] = sum(run[name] for run in runs) / len(runs)
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
    found = [r for r in load_all("tabular_adult_once_*_s*").values() if r["config"]["delta"] > 0]
    if not found:
        return []
    r, other = found[0]["results"], references()["adult_once"]
    config = found[0]["config"]
    tv = sum(one["results"]["tv_2way"] for one in found) / len(found)
    kept = sum(one["results"]["tstr_kept"] for one in found) / len(found)
    rows = [
        ["synthgeo", tv, r["seconds"]],
        *([f"{name} *(elsewhere)*", v["tv_2way"], v["seconds"]] for name, v in other["methods"].items()),
        ["two random halves of the data", r["random_halves_tv_2way"], None],
    ]
    return [
        "## Tables released once",
        "",
        f"Adult, 14 columns, ({number(config['epsilon'])}, {config['delta']:g}), {len(found)} seed{'s' if len(found) > 1 else ''}: mean total variation over all pairs of columns. "
        f"A classifier of income trained on the synthetic table keeps {kept:.0%} of the accuracy above the majority class that real data gives. The settings were chosen on Adult. "
        "Our line is the default of version 0.1, chosen before the present one; `benchmarks/results/tables_once.json` has the present default on four data sets. "
        f"{other['source']}",
        "",
        *table(["method", "2-way total variation", "seconds"], rows),
        *peers(),
        *why("sweep_table_once"),
    ]


def why(name: str, title: str = "Why these defaults") -> list[str]:
    """The sweep behind a product's defaults, with what its author says about it."""
    sweep = load(name)
    if sweep is None:
        return []
    return [
        f"### {title}",
        "",
        str(sweep["results"].get("why", "")),
        "",
        *table_of(sweep["results"]["table"]),
    ]


def peers() -> list[str]:
    """Peers that were installed in environments of their own and ran on the same data."""
    lines: list[str] = []
    for name, result in load_all("peers_*").items():
        content = result["results"]
        rows = content.get("table") if isinstance(content, dict) else None
        if rows:
            lines += [f"### Peers: {name.removeprefix('peers_')}", ""]
            if isinstance(content.get("note"), str):
                lines += [content["note"], ""]
            lines += [f"({machine(result)})", "", *table_of(rows)]
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
    lines = [
        "## Tables over time",
        "",
        "Errors of all pairs of columns, means over the last ten steps, as in Kumar's tables 4.1 to 4.5. Algorithm 14 with workloads is the paper's method "
        "with right constants, Algorithm 13 its baseline; `auto` is the default. Measured with the optimiser of version 0.1; not yet again with the present one.",
        "",
        *table(header, body),
        *_published(),
    ]
    return [*lines, *why("sweep_tabular")]


def _published() -> list[str]:
    """Kumar's own figures, where references.json has them."""
    known = references().get("kumar_tables")
    if not known:
        return []
    return folded(
        "The dissertation's own figures (elsewhere)", [known["source"], "", *table_of(known["table"])]
    )


def trips() -> list[str]:
    lines: list[str] = []
    for name, result in load_all("trips_*").items():
        content = result["results"]
        rows = content.get("table") if isinstance(content, dict) else None
        if not rows:
            continue
        about = [
            f"{key} {number(value)}"
            for key, value in result["config"].items()
            if not isinstance(value, list | dict)
        ]
        lines += [
            f"### {name.removeprefix('trips_').replace('_', ' ').capitalize()}",
            "",
            f"({', '.join([*about, machine(result)])})",
            "",
        ]
        if isinstance(content.get("why"), str):
            lines += [content["why"], ""]
        lines += table_of(rows)
        if "reversals" in content:
            shares = ", ".join(f"{key}: {value:.2%}" for key, value in content["reversals"].items())
            lines += [f"Steps that turn round on the spot: {shares}.", ""]
    if not lines:
        return []
    source = references()["adatrace_chicago"]["source"]
    text = (
        "Lower is better, but for tau and f1. The floor is two random halves of the real trips against each other. "
        "Our lines are the method of version 0.1, which had no clocks; the present one has not been measured here. "
        f"Lines marked *(elsewhere)*: {source}"
    )
    return ["## Trips", "", text, "", *lines, *why("sweep_trips"), *_matching()]


def _matching() -> list[str]:
    result = load("matching")
    if result is None:
        return []
    speed = [{k: row.get(k) for k in ("what", "points", "seconds")} for row in result["results"]["speed"]]
    return [
        "### Map matching",
        "",
        f"Simulated trips against the edges that were driven: shares of the true length that are missed and added ({machine(result)}).",
        "",
        *table_of(result["results"]["quality"]),
        *table_of(speed),
    ]


def growth() -> list[str]:
    """Time and memory as the work grows, and the exponents."""
    found = load_all("growth_*")
    if not found:
        return []
    lines = [
        "## Growth",
        "",
        "Each size in a process of its own; `more mib` is the peak of memory on top of imports and input. An exponent is the slope of a line through the logarithms of all "
        'sizes; "last two" is the slope between the two largest, where fixed costs matter least. 1 is proportional to the work, 0 is constant.',
        "",
        *picture(
            "bench-growth.png",
            "Seconds against the size of the work, both logarithmic. Good: no line steeper than the dashed one, which is proportional to the work.",
        ),
    ]
    lines += unfinished_growth()
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
    lines = [
        "## Where the time goes",
        "",
        "Seconds of each part of the work, without the parts inside it.",
        "",
    ]
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
    text = f"{count:,} rows in Parquet, against a plain DuckDB `count(*) group by` of the same keys in the same run ({machine(result)})."
    return ["## Counting at scale", "", text, "", *table(["what", "seconds", "times SQL", "peak MiB"], rows)]

"""docs/benchmarks.md, written from benchmarks/results and benchmarks/references.json: no figure is typed by
hand.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "benchmarks.md"


def load(name: str) -> dict[str, Any] | None:
    """One result file, or None."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def references() -> dict[str, Any]:
    """Figures that were measured or read elsewhere, each with its source."""
    content: dict[str, Any] = json.loads((ROOT / "benchmarks" / "references.json").read_text())
    return content


def table(header: list[str], rows: list[list[Any]]) -> list[str]:
    """A Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return [*lines, *("| " + " | ".join(number(v) for v in row) + " |" for row in rows), ""]


def number(value: Any) -> str:
    """Three significant digits for floats, everything else as it is."""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return str(value)


def write_page() -> Path:
    """Write the page from whatever results are there."""
    lines = [
        "# Benchmarks",
        "",
        "Written by `make bench` from the files in `benchmarks/results`, each of which holds the machine's facts, versions, settings and seeds. "
        "Figures from elsewhere come from `benchmarks/references.json` and are marked *(elsewhere)*.",
        "",
        *_noise(),
        *_spatial_error(),
        *_spatial_cost(),
        *_tables(),
        *_trips(),
        *_engines(),
        *_series(),
    ]
    PAGE.write_text("\n".join(lines).rstrip() + "\n")
    return PAGE.relative_to(ROOT)


def _machine(result: dict[str, Any]) -> str:
    facts = result["machine"]
    return f"{facts['cores']} cores, {facts['memory_gib']} GiB, {facts['processor']}, Python {facts['python']}, {result['when'][:10]}"


def _noise() -> list[str]:
    result = load("noise")
    if result is None:
        return []
    rows = [[r["scale"], r["ours_s"], r["opendp_s"], r["ratio"]] for r in result["results"]["laplace"]]
    return [
        "## Noise",
        "",
        f"A million exact discrete Laplace draws, seconds, against OpenDP's vector Laplace in the same run ({_machine(result)}).",
        "",
        *table(["scale", "synthgeo", "OpenDP", "times faster"], rows),
    ]


def _spatial_error() -> list[str]:
    found = {
        path.stem[14:]: json.loads(path.read_text()) for path in sorted(RESULTS.glob("spatial-error-*.json"))
    }
    if not found:
        return []
    lines = [
        "## Spatial streams: error",
        "",
        "Mean relative error of range queries (small, medium, large), averaged over ten times of the stream and over seeds. `auto` is the default, `every_step` the method of the "
        "paper with tight constants and mended scores; baseline 1 is not private and stands for orientation.",
        "",
    ]
    for name, result in found.items():
        rows = []
        for label, values in result["results"].items():
            epsilon, _, method = label.partition(" ")
            mean = values["mean"]
            rows.append([float(epsilon), method, mean["small"], mean["medium"], mean["large"]])
        config = result["config"]
        lines += [f"### {name}: {config['steps']} steps, {config['seeds']} seeds", ""]
        lines += table(["ε", "method", "small", "medium", "large"], rows)
    lines += [
        "**Why these defaults.** The split and merge thresholds (2 and 1 standard deviations), the first step's half share and the simple counter were chosen in trials on the circles alone, "
        "whose runs are not kept here; the other streams were looked at afterwards. See [ADR 2](adr/0002-structure-from-releases.md) for what was tried and lost.",
        "",
    ]
    return lines


def _spatial_cost() -> list[str]:
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
    return [
        "## Spatial streams: cost",
        "",
        f"{_machine(result)}. {note}",
        "",
        *table(["what", "value"], rows),
    ]


def _tables() -> list[str]:
    once = load("tabular_adult_once_1_1e-09_s1")
    lines: list[str] = []
    if once is not None:
        r, other = once["results"], references()["adult_once"]
        rows = [
            ["synthgeo", r["tv_2way"], r["seconds"]],
            *([f"{name} *(elsewhere)*", v["tv_2way"], v["seconds"]] for name, v in other["methods"].items()),
            ["two random halves of the data", r["random_halves_tv_2way"], "–"],
        ]
        kept = f"A classifier of income trained on the synthetic table keeps {r['tstr_kept']:.0%} of the accuracy above the majority class that real data gives."
        lines += [
            "## Tables released once",
            "",
            f"Adult, 14 columns, (1, 1e-9): mean total variation over all pairs of columns. {kept} {other['source']}",
            "",
        ]
        lines += table(["method", "2-way total variation", "seconds"], rows)
    rows = []
    for path in sorted(RESULTS.glob("tabular_*_s1.json")):
        if "_once_" in path.stem:
            continue
        r = json.loads(path.read_text())["results"]
        rows.append(
            [
                path.stem[8:-3].replace("_", " "),
                r["avg_we"],
                r["max_we"],
                r["avg_rel_we"],
                r["max_rel_we"],
                r["median_step"],
                r["memory_mib"],
            ]
        )
    if rows:
        header = [
            "stream, batch, schedule, ε",
            "AvgWE",
            "MaxWE",
            "AvgRelWE",
            "MaxRelWE",
            "median step, s",
            "MiB",
        ]
        lines += [
            "## Tables over time",
            "",
            "Errors of all pairs of columns, means over the last ten steps.",
            "",
            *table(header, rows),
        ]
    return lines


def _trips() -> list[str]:
    lines: list[str] = []
    for path in sorted(RESULTS.glob("trips*.json")):
        result = json.loads(path.read_text())
        rows = result["results"].get("table") if isinstance(result["results"], dict) else None
        if rows:
            lines += [f"### {path.stem}", "", *table(list(rows[0]), [list(row.values()) for row in rows])]
    if lines:
        source = references()["adatrace_chicago"]["source"]
        lines = ["## Trips", "", f"Lines marked *(elsewhere)*: {source}", "", *lines]
    return lines


def _engines() -> list[str]:
    result = load("engines")
    if result is None:
        return []
    rows = [
        [name.replace("_", " "), r["seconds"], r.get("times_sql", "–"), r["peak_mib"]]
        for name, r in result["results"].items()
        if isinstance(r, dict) and "seconds" in r
    ]
    count = result["results"]["rows"]
    text = f"{count:,} rows in Parquet, against a plain DuckDB `count(*) group by` of the same keys in the same run ({_machine(result)})."
    return ["## Counting at scale", "", text, "", *table(["what", "seconds", "times SQL", "peak MiB"], rows)]


def _series() -> list[str]:
    result = load("series")
    if result is None:
        return []
    note = (
        "What the papers' figures claim, checked. FAST's process noise and pacing were chosen on the very series reported here, so read its lines as what it can do, "
        "not as what it does unseen; `benchmarks/series.py` says which settings those are."
    )
    lines = ["## Scalar series", "", note, ""]
    content = result["results"]
    claims = content.get("claims", content) if isinstance(content, dict) else content
    if isinstance(claims, list):
        lines += table(list(claims[0]), [list(claim.values()) for claim in claims])
    return lines if len(lines) > 4 else []


if __name__ == "__main__":
    print(f"wrote {write_page()}")

"""Measured figures in README.md and docs: each carries the expression that gives it, and a test evaluates it.

A figure is followed by a comment that no reader sees::

    0.49<!--= engines["engine_20_bits"]["times_sql"] : .2f --> times

Whole parts of a page that a function writes stand between ``<!-- begin: name -->`` and ``<!-- end -->``.

The names in the expression are the result files (``-`` and ``.`` become ``_``) and ``references``; what
follows the colon is a format. ``python -m benchmarks.pages`` brings all figures up to date. A figure with a
unit that carries no expression must be in the list of facts of the test, with a reason: nobody measured it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import (
    _page_products,
    _page_scale,
    _page_series,
    _page_spatial,
    _page_time,
    _page_trips,
    _page_verdict,
)
from benchmarks._common import RESULTS
from benchmarks._markdown import DOCS, ROOT, references
from benchmarks._page_spatial import error_results, ratios
from benchmarks._plots import CLASSES

BLOCKS: dict[str, Callable[[], list[str]]] = {
    name: write
    for page in (
        _page_products,
        _page_scale,
        _page_series,
        _page_spatial,
        _page_time,
        _page_trips,
        _page_verdict,
    )
    for name, write in page.BLOCKS.items()
}
MARKED = re.compile(r"(?P<figure>−?\d[\d,.]*)<!--= (?P<expression>.+?) : (?P<format>\S+) -->")
BLOCK = re.compile(r"<!-- begin: (?P<name>[\w -]+?) -->\n.*?<!-- end -->", re.DOTALL)
_CODE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_UNITS = (
    r"%|[µmn]?s\b|seconds?\b|min\b|minutes?\b|hours?\b|[KMG]i?B\b|kB\b|times\b|bytes\b|million\b|"
    r"(?:rows|points|keys|events|draws|walks|trips|steps) (?:a|per)\b"
)
_FIGURE = re.compile(rf"(?<![\w.,])\d[\d,.]*(?:\s|&nbsp;)*(?:{_UNITS})")

#: Pages whose figures are written by a program from results, whole.
GENERATED = ("docs/audit.md",)


def _over_every_step(method: str) -> list[float]:
    """Errors of a schedule over those of ``every_step``: all streams, ε and classes of the sweep."""
    rows = json.loads((RESULTS / "sweep_spatial.json").read_text())["results"]["table"]
    of = {(row["value"], row["stream"], row["epsilon"]): row for row in rows if row["knob"] == "schedule"}
    return [
        row[kind] / of["every_step", stream, epsilon][kind]
        for (value_, stream, epsilon), row in of.items()
        if value_ == method and ("every_step", stream, epsilon) in of
        for kind in CLASSES
    ]


def _kary_over_simple() -> list[float]:
    """Errors with the k-ary counter over those with the default, all streams, ε and classes of the sweep."""
    rows = json.loads((RESULTS / "sweep_spatial.json").read_text())["results"]["table"]
    base = {(row["stream"], row["epsilon"]): row for row in rows if row["knob"] == "default"}
    mine = [row for row in rows if (row["knob"], row["value"]) == ("counter", "kary")]
    return [row[kind] / base[row["stream"], row["epsilon"]][kind] for row in mine for kind in CLASSES]


def _auto_over_every_step() -> list[float]:
    return [ratio for *_, ratio, _ in ratios(error_results())]


def _auto_over_the_best() -> list[float]:
    return [ratio for *_, ratio in ratios(error_results())]


#: Names in expressions that are no result file but computed from several figures.
DERIVED: dict[str, Callable[[], Any]] = {
    "references": references,
    "auto_over_every_step": _auto_over_every_step,
    "auto_over_the_best": _auto_over_the_best,
    "kary_over_simple": _kary_over_simple,
    "growing_over_every_step": lambda: _over_every_step("growing"),
}


class Results(dict[str, Any]):
    """The results by name, read when first asked for."""

    def __missing__(self, name: str) -> Any:
        if name in DERIVED:
            return DERIVED[name]()
        for path in RESULTS.glob("*.json"):
            if re.sub(r"[-.]", "_", path.stem) == name:
                self[name] = json.loads(path.read_text())["results"]
                return self[name]
        raise KeyError(f"no result file {name!r}")


_TOOLS = {"__builtins__": {}, "min": min, "max": max, "sum": sum, "len": len, "exp": math.exp, "round": round}


def value(expression: str, results: Results | None = None) -> Any:
    """What an expression over the results comes to."""
    return eval(expression, dict(_TOOLS), Results() if results is None else results)


def refreshed(text: str) -> str:
    """The text with every marked figure as the results have it now."""
    results = Results()

    def write(match: re.Match[str]) -> str:
        figure = format(value(match["expression"], results), match["format"]).replace("-", "−")
        return match[0].replace(match["figure"], figure, 1)

    def write_block(match: re.Match[str]) -> str:
        lines = BLOCKS[match["name"]]() or ["*Not measured yet.*", ""]
        return "\n".join([f"<!-- begin: {match['name']} -->", "", *lines, "<!-- end -->"])

    return BLOCK.sub(write_block, MARKED.sub(write, text))


def unmarked(text: str) -> list[str]:
    """Figures with a unit, outside code, that carry no expression."""
    prose = _CODE.sub("", BLOCK.sub("", text))
    prose = re.sub(r"`[^`\n]*`", "", prose)
    prose = MARKED.sub("(marked)", prose)
    prose = re.sub(r"<!--.*?-->", "", prose, flags=re.DOTALL)
    return [match[0] for match in _FIGURE.finditer(prose)]


def pages() -> list[Path]:
    """Every page whose figures are marked one by one."""
    found = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
    return [path for path in found if path.relative_to(ROOT).as_posix() not in GENERATED]

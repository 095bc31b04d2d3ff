"""What the sections of docs/benchmarks.md share: reading results, and tables in Markdown."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks._common import RESULTS

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"


def load(name: str) -> dict[str, Any] | None:
    """One result file, or None."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def load_all(pattern: str) -> dict[str, dict[str, Any]]:
    """All result files whose name fits, by name."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(RESULTS.glob(f"{pattern}.json"))}


def references() -> dict[str, Any]:
    """Figures that were measured or read elsewhere, each with its source."""
    content: dict[str, Any] = json.loads((ROOT / "benchmarks" / "references.json").read_text())
    return content


def number(value: Any) -> str:
    """Three significant digits for floats, everything else as it is."""
    if value is None or value != value:
        return "–"
    if isinstance(value, float):
        if value == round(value) and abs(value) < 1e15:
            return f"{value:,.0f}"
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    """A Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return [*lines, *("| " + " | ".join(number(v) for v in row) + " |" for row in rows), ""]


def table_of(rows: Sequence[dict[str, Any]], names: dict[str, str] | None = None) -> list[str]:
    """A table of like rows; ``names`` are headings for some of the keys."""
    keys = list(dict.fromkeys(key for row in rows for key in row))
    header = [(names or {}).get(key, key.replace("_", " ")) for key in keys]
    return table(header, [[row.get(key) for key in keys] for row in rows])


def folded(summary: str, lines: list[str]) -> list[str]:
    """Lines that are shown on request."""
    return [f'<details markdown="1"><summary>{summary}</summary>', "", *lines, "</details>", ""]


def picture(name: str, caption: str) -> list[str]:
    """A picture of docs/img with its caption, where it has been drawn."""
    if not (DOCS / "img" / name).exists():
        return []
    return [f"![{caption}](img/{name})", "", f"*{caption}*", ""]


def measured(result: dict[str, Any]) -> list[str]:
    """The line under a table that says where it comes from."""
    return [f"*{machine(result)}*", ""]


def machine(result: dict[str, Any]) -> str:
    """The machine that a result was measured on."""
    facts = result["machine"]
    cores = f"{facts['cores']} core" + ("s" if facts["cores"] != 1 else "")
    where = f"{cores}, {facts['memory_gib']} GiB, {facts['processor']}, Python {facts['python']}"
    return f"{where}, {result['when'][:10]}"

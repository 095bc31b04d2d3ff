"""Results for people (tables on a terminal) and for machines (JSON)."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from synthgeo.privacy.budget import PrivacyBudget


def emit(values: Mapping[str, Any]) -> None:
    """One JSON document on one line, so that several make JSON lines."""
    print(json.dumps(values, default=_plain), flush=True)


def say(text: str) -> None:
    """A line for people, on stderr: stdout is for results."""
    print(text, file=sys.stderr, flush=True)


def warn_not_publishable(why: str | None = None) -> None:
    """Say that a result may not be handed on."""
    say(f"warning: {why or 'made with seeded noise'}; do not publish this")


def for_owner_only(path: Path) -> Path:
    """The file, there and readable by its owner only, before anything private is written to it."""
    path.touch(mode=0o600)
    path.chmod(0o600)
    return path


_remarks: list[str] = []


def remark(text: str) -> None:
    """Keep a line for the end of a command that succeeds: an error stays a single line."""
    _remarks.append(text)


def take_remarks() -> list[str]:
    """The lines kept so far, once."""
    taken = _remarks.copy()
    _remarks.clear()
    return taken


def show_facts(title: str, facts: Mapping[str, Any]) -> None:
    """Names and values."""
    print(title)
    width = max(len(name) for name in facts)
    for name, value in facts.items():
        print(f"  {name:<{width}}  {value}")


def show_table(columns: Iterable[str], rows: Iterable[Iterable[Any]], *, title: str | None = None) -> None:
    """A table as wide as the terminal allows."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", show_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        # As text, so that a name in brackets is a name and no markup.
        table.add_row(*(Text("" if value is None else _text(value)) for value in row))
    Console(width=None if sys.stdout.isatty() else 160).print(table)


def words(budget: PrivacyBudget | None) -> str:
    """A budget in words."""
    if budget is None:
        return "nothing"
    return f"ε = {budget.epsilon:g}" + (f", δ = {budget.delta:g}" if budget.delta else "")


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _plain(value: Any) -> Any:
    """numpy values, missing ones, times and paths for JSON."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return str(value)

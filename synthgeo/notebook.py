"""How objects show themselves in a notebook: a heading and a table of facts, as HTML."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any


def facts_html(title: str, facts: Mapping[str, Any], *, below: str = "") -> str:
    """A heading and a table of names and values; ``below`` is HTML already."""
    rows = "".join(
        f'<tr><th style="text-align:left">{escape(str(name))}</th>'
        f'<td style="text-align:left">{escape(str(value))}</td></tr>'
        for name, value in facts.items()
        if value is not None
    )
    return f"<div><b>{escape(title)}</b><table>{rows}</table>{below}</div>"

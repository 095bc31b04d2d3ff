"""The data card: what a published dataset is, what it is not, and what it promises, in words.

A card is a list of sections; ``markdown`` and ``html`` write the same sections down.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import pandas as pd

from synthgeo.errors import ConfigError
from synthgeo.publishing.statement import statement_lines

_MOST_ERRORS = 40  # rows of expected errors in the card; the statement for machines has them all


@dataclass(frozen=True)
class Description:
    """What only the curator can tell about a dataset. All of it is published as it is given.

    ``after_looking`` lists declarations (bounds, categories, windows) that were changed after somebody had
    looked at the private data: the promise does not cover what these give away, and the card says so.
    """

    title: str | None = None
    summary: str | None = None
    curator: str | None = None
    curator_type: str | None = None
    contact: str | None = None
    license: str | None = None
    region: str | None = None
    sector: str | None = None
    use: str | None = None
    period: str | None = None
    after_looking: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        changed = self.after_looking
        object.__setattr__(self, "after_looking", (changed,) if isinstance(changed, str) else tuple(changed))
        for name, choices in (("curator_type", CURATOR_TYPES), ("sector", SECTORS)):
            value = getattr(self, name)
            if value is not None and value not in choices:
                raise ConfigError(f"{name} must be one of {', '.join(choices)}, got {value!r}")


# As the registry of privacy deployments knows them.
CURATOR_TYPES = ("Government", "Industry", "Nonprofit")
SECTORS = ("Technology", "Healthcare", "Education", "Government", "Energy", "Finance")

THINGS = {"points": "points", "table": "rows", "trips": "trips"}

_IS = {
    "points": "Synthetic points: places and, where stated, time windows, drawn at random from noisy counts "
    "of the cells of a public map.",
    "table": "A synthetic table: rows drawn at random from a model that was fitted to noisy counts of a few "
    "columns at a time.",
    "trips": "Synthetic trips: routes drawn at random from a model that was fitted to noisy counts of where "
    "trips start, pass and end, how long they are and when they begin.",
}
_IS_NOT = (
    "No row is a real person, event or trip, and no row belongs to one. A row that looks like somebody you "
    "know looks so by chance.",
    "Counts are not exact. Every number computed from the data has the noise of the table of expected errors "
    "below, and the error of the model on top.",
    "An empty place or category does not show that nobody was there, and a small number does not show that "
    "somebody was.",
    "The data is not for decisions about single people, addresses or firms.",
)
_LIMITS = {
    "points": (
        "Inside a cell of the released map points are spread evenly: detail finer than the cells is not "
        "there.",
        "Where the noise is larger than the count, cells are merged or empty.",
    ),
    "table": (
        "Only relations of columns that were measured are in the data; all others follow from these as if "
        "nothing else connected the columns.",
        "Numbers are spread evenly inside their bins.",
    ),
    "trips": (
        "Trips are not linked to each other: nobody's trips of several days can be followed.",
        "Times fall in one nominal week, in UTC; the pace is the same along a trip.",
        "Rare connections of places are noise, or are missing.",
    ),
}


@dataclass
class Section:
    """A heading with paragraphs, lists of bullets and tables below it."""

    title: str
    blocks: list[str | list[str] | pd.DataFrame] = field(default_factory=list)


def data_card(
    *,
    product: str,
    provenance: Mapping[str, Any],
    description: Description,
    title: str,
    files: pd.DataFrame,
    dictionary: Mapping[str, pd.DataFrame],
    counts: Mapping[str, int],
    steps: Sequence[int],
    period: str | None,
    crs: str | None,
    expected_error: pd.DataFrame | None,
    published: str,
) -> list[Section]:
    """The sections of a card."""
    about: list[str | list[str] | pd.DataFrame] = [_IS[product]]
    if description.summary:
        about.insert(0, description.summary)
    facts = {
        "Published": published,
        "By": description.curator,
        "Contact": description.contact,
        "Licence": description.license,
        "Region": description.region,
        "Intended use": description.use,
        "Period": description.period or period,
        "Releases": _steps(steps),
        "Counts": "; ".join(f"{number:,} rows in {name}" for name, number in counts.items()),
        "Coordinate system": crs,
        "Made with": f"synthgeo {provenance['synthgeo']}, {provenance['mechanism']}",
    }
    about.append(
        pd.DataFrame([(name, value) for name, value in facts.items() if value], columns=["fact", "value"])
    )
    promise = [f"{head} {text}" for head, text in statement_lines(dict(provenance))]
    guarantee: list[str | list[str] | pd.DataFrame] = [promise]
    if description.after_looking:
        guarantee += [
            "The promise does not cover the following, which was declared or changed after the private data "
            "had been looked at:",
            list(description.after_looking),
        ]
    sections = [
        Section("What it is", about),
        Section("What it is not", [list(_IS_NOT)]),
        Section("Files", [files]),
        Section("Columns", [part for name, table in dictionary.items() for part in (f"**{name}**", table)]),
        Section("Privacy", guarantee),
        Section("Expected errors", _errors(expected_error)),
        Section("Known limits", [list(_LIMITS[product])]),
        Section(
            "How to check the files",
            ["Run `sha256sum -c SHA256SUMS` in this folder. `statement.json` says the same for machines."],
        ),
    ]
    return [Section(title), *sections]


def _steps(steps: Sequence[int]) -> str:
    return f"step {steps[0]}" if len(steps) == 1 else f"{len(steps)}, steps {steps[0]} to {steps[-1]}"


def _errors(expected: pd.DataFrame | None) -> list[str | list[str] | pd.DataFrame]:
    if expected is None:
        return ["They were not stored with this release."]
    words = (
        "What the noise alone does to the numbers that were released, as standard deviations. It follows "
        "from public parameters, so it gives nothing away. The error of the model comes on top."
    )
    if len(expected) > _MOST_ERRORS:
        words += f" The first {_MOST_ERRORS} of {len(expected)}; `statement.json` has all."
    return [words, expected.head(_MOST_ERRORS)]


def markdown(sections: Sequence[Section]) -> str:
    """The card as Markdown."""
    lines: list[str] = []
    for depth, section in enumerate(sections):
        lines += [f"{'#' if depth == 0 else '##'} {_line(section.title)}", ""]
        for block in section.blocks:
            if isinstance(block, pd.DataFrame):
                rows = [list(block.columns), ["---"] * block.shape[1], *block.to_numpy(dtype=object).tolist()]
                lines += ["| " + " | ".join(_line(_shown(v), bar=True) for v in row) + " |" for row in rows]
            elif isinstance(block, list):
                lines += [f"- {_line(item)}" for item in block]
            else:
                lines.append(_plain(block))
            lines.append("")
    return "\n".join(lines)


def html(sections: Sequence[Section]) -> str:
    """The card as a page of its own: no network, no script."""
    body: list[str] = []
    for depth, section in enumerate(sections):
        tag = "h1" if depth == 0 else "h2"
        body.append(f"<{tag}>{escape(section.title)}</{tag}>")
        for block in section.blocks:
            if isinstance(block, pd.DataFrame):
                body.append(_html_table(block, section.title))
            elif isinstance(block, list):
                body.append("<ul>" + "".join(f"<li>{escape(item)}</li>" for item in block) + "</ul>")
            elif block.startswith("**") and block.endswith("**"):
                body.append(f"<h3>{escape(block[2:-2])}</h3>")
            else:
                body.append(f"<p>{escape(block).replace('`', '')}</p>")
    return _PAGE.format(title=escape(sections[0].title), body="\n".join(body))


def _html_table(table: pd.DataFrame, name: str) -> str:
    head = "".join(f'<th scope="col">{escape(str(column))}</th>' for column in table.columns)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(_shown(value))}</td>" for value in row) + "</tr>"
        for row in table.to_numpy(dtype=object).tolist()
    )
    # A table wider than a phone scrolls by itself, also with the keyboard.
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(name)}"><table><thead><tr>{head}'
        f"</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _shown(value: Any) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else str(value)


def _line(text: str, *, bar: bool = False) -> str:
    """One line of Markdown; a bar would end a cell of a table."""
    flat = _plain(" ".join(text.split()))
    return flat.replace("|", "\\|") if bar else flat


def _plain(text: str) -> str:
    """Text as Markdown that is text: no HTML, no links, no images. Names may come from anywhere."""
    for mark, written in (("\\", "\\\\"), ("&", "&amp;"), ("<", "&lt;"), ("[", "\\["), ("]", "\\]")):
        text = text.replace(mark, written)
    return text


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; --ink: #1d2733; --paper: #fff; --line: #d5dae1; --soft: #f4f6f8; }}
@media (prefers-color-scheme: dark) {{
  :root {{ --ink: #e4e9ef; --paper: #14191f; --line: #39424d; --soft: #1d242c; }}
}}
body {{ margin: 0 auto; max-width: 52rem; padding: 1.5rem; font: 1rem/1.55 system-ui, sans-serif;
  color: var(--ink); background: var(--paper); }}
h1 {{ font-size: 1.7rem; }} h2 {{ margin-top: 2rem; border-bottom: 1px solid var(--line); }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; width: 100%; font-size: .92rem; }}
th, td {{ text-align: left; vertical-align: top; padding: .35rem .6rem; border-bottom: 1px solid var(--line);
  overflow-wrap: anywhere; }}
th {{ background: var(--soft); }}
</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""

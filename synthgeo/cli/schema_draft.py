"""Drafts of schemas: column names and types, and on request the values that the data hold.

A schema is public. A draft without values tells nothing but names and types. A draft *with* values reads
private data: it says so in its first line, and is refused as a schema until the curator deletes that line.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from synthgeo.errors import ConfigError, InputError
from synthgeo.sources.text_column import TextColumn
from synthgeo.sources.values import as_words, numbers, times

MOST_VALUES = 100
NOTE = (
    "this draft holds values read from PRIVATE data: keep what is publicly known, replace the rest, "
    "then delete this line"
)


def draft(files: list[str], *, values: bool, reading: Any = None) -> dict[str, Any]:
    """The draft for files. Text files have no types, so without values their columns are categorical."""
    from synthgeo.sources import open_source

    source = open_source(files, reading=reading)
    names = [name for name in source.columns if name != source.geometry]
    if not values:
        first = next(iter(source.chunks(names)))
        return {"columns": {name: _blank(_kind(first[name])) for name in names}}
    chunk = source.read(names)
    seen = {name: _Seen() for name in names}
    for name in names:
        seen[name].look(_typed(chunk, name))
    return {"draft": NOTE, "columns": {name: column.drafted() for name, column in seen.items()}}


def check_filled_in(path: Path) -> None:
    """A draft that nobody has filled in is told apart from a schema that is wrong."""
    try:
        columns = json.loads(path.read_text())["columns"].items()
        empty = [(name, key) for name, facts in columns for key in facts if facts[key] in (None, [])]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return  # whoever reads it says what is wrong with it
    if empty:
        name, key = empty[0]
        raise ConfigError(f"{path.name}: column {name!r} has no {key!r} yet: fill in what is publicly known")


def _kind(column: Any) -> str:
    return "O" if isinstance(column, TextColumn) else str(column.dtype.kind)


def _typed(chunk: Any, name: str) -> np.ndarray:
    """A column as what all of its values are: for a draft, which the curator alone sees."""
    if not isinstance(chunk[name], TextColumn):
        return np.asarray(chunk[name])
    for read in (numbers, times):
        try:
            return read(chunk, name)
        except InputError:
            continue
    return as_words(chunk, name)


def _blank(kind: str) -> dict[str, Any]:
    if kind == "M":
        return {"type": "datetime", "start": None, "end": None}
    if kind == "f":
        return {"type": "numeric", "low": None, "high": None, "bins": 20}
    if kind in "iu":
        return {"type": "numeric", "low": None, "high": None, "bins": 20, "integer": True}
    return {"type": "categorical", "values": [True, False] if kind == "b" else []}


class _Seen:
    """What has been seen of one column."""

    def __init__(self) -> None:
        self.kind = ""
        self.missing = False
        self.whole = True
        self.low: Any = None
        self.high: Any = None
        self.values: set[Any] = set()

    def look(self, column: np.ndarray) -> None:
        known = column[~pd.isna(column)]
        self.missing |= len(known) < len(column)
        self.kind = column.dtype.kind if not self.kind or column.dtype.kind == "O" else self.kind
        if not len(known):
            return
        if self.kind in "Mfiu":
            self.low = _extreme(min, self.low, known.min())
            self.high = _extreme(max, self.high, known.max())
            self.whole &= self.kind == "M" or bool((known == np.floor(known)).all())
        elif len(self.values) <= MOST_VALUES:
            self.values |= set(pd.unique(known).tolist())

    def drafted(self) -> dict[str, Any]:
        facts = _blank(self.kind)
        if self.kind == "M" and self.low is not None:
            facts["start"] = f"{pd.Timestamp(self.low).year}-01-01"
            facts["end"] = f"{pd.Timestamp(self.high).year + 1}-01-01"
        elif self.kind in "fiu" and self.low is not None:
            # A whole number with gaps arrives as floats.
            facts |= {"low": self.low.item(), "high": self.high.item()}
            if self.whole:
                facts |= {"integer": True}
        elif self.kind not in "Mfiu" and len(self.values) <= MOST_VALUES:
            facts["values"] = sorted(self.values, key=str)
        return facts | ({"missing": True} if self.missing else {})


def _extreme(choose: Any, before: Any, now: Any) -> Any:
    values: Iterable[Any] = [now] if before is None else [before, now]
    return choose(values)

"""What a report shows of a table: each column, and how columns go together."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from synthgeo.arrays import Floats, Ints
from synthgeo.canonical import word_of
from synthgeo.reporting import charts

# Bars of a chart, rows and columns of a picture of two columns.
_BINS = 12
_MOST_PAIRS = 60
_PICTURES = 4
_DAY = 86_400


@dataclass(frozen=True)
class Coded:
    """A column as numbers of its labels (-1: none of them), in the synthetic table and, where it is known, in
    the true one.
    """

    labels: list[str]
    codes: list[Ints]

    def shares(self) -> list[list[float]]:
        """The share of the rows that each label has."""
        return [
            list(np.bincount(codes[codes >= 0], minlength=len(self.labels)) / max(len(codes), 1))
            for codes in self.codes
        ]


def coded(synthetic: pd.Series, real: pd.Series | None) -> Coded:
    """The values of a column, or twelve bins of it.

    Values are compared in their canonical form: 4, 4.0 and "4" are one. Bins are those of the synthetic
    column; dates are in order of time.
    """
    both = [synthetic] if real is None else [synthetic, real]
    if pd.api.types.is_datetime64_any_dtype(synthetic):
        times = [pd.to_datetime(column, errors="coerce", utc=True) for column in both]
        numbers = [((t - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(1, "s")).to_numpy(float) for t in times]
        edges = _edges(numbers[0])
        return Coded(time_labels(edges), [_binned(column, edges) for column in numbers])
    if pd.api.types.is_numeric_dtype(synthetic) and synthetic.nunique() > _BINS:
        numbers = [pd.to_numeric(column, errors="coerce").to_numpy(float, na_value=np.nan) for column in both]
        edges = _edges(numbers[0])
        labels = [f"{edge:,.0f}" if abs(edge) >= 1000 else f"{edge:.3g}" for edge in edges[:-1]]
        return Coded(labels, [_binned(column, edges) for column in numbers])
    texts = [
        column.astype(object).map(lambda v: "(missing)" if pd.isna(v) else word_of(v)) for column in both
    ]
    labels = list(texts[0].value_counts().index[:_BINS])
    return Coded(labels, [pd.Index(labels).get_indexer(text).astype(np.int64) for text in texts])


def time_labels(edges: Floats) -> list[str]:
    """Names of bins of time (seconds since 1970): hours, days, months or years, by how long they are.

    >>> time_labels(np.array([0.0, 86_400.0 * 31, 86_400.0 * 59, 86_400.0 * 365]))
    ['Jan 1970', 'Feb 1970', 'Mar 1970']
    """
    span = edges[-1] - edges[0]
    pattern = "%Y" if span > 2_000 * _DAY else "%b %Y" if span > 200 * _DAY else "%d %b"
    if span <= 2 * _DAY:
        pattern = "%H:%M"
    return [f"{pd.Timestamp(edge, unit='s'):{pattern}}" for edge in edges[:-1]]


def _edges(numbers: Floats) -> Floats:
    known = numbers[np.isfinite(numbers)]
    return np.histogram_bin_edges(known if known.size else [0.0], bins=_BINS)


def _binned(numbers: Floats, edges: Floats) -> Ints:
    """The bin of each number, the last one closed; -1 outside."""
    at = np.searchsorted(edges, numbers, side="right") - 1
    at[numbers == edges[-1]] = len(edges) - 2
    return np.where((at >= 0) & (at < len(edges) - 1) & np.isfinite(numbers), at, -1)


def relation_blocks(columns: dict[str, Coded], *, compared: bool) -> list[dict[str, Any]]:
    """How pairs of columns go together: those farthest from the truth where it is ``compared``, else those
    that depend on each other the most, of the synthetic table alone.
    """
    if len(columns) < 2:
        return []
    found = []
    for a, b in combinations(columns, 2):
        tables = _joint(columns[a], columns[b])
        score = np.abs(tables[0] - tables[1]).sum() / 2 if compared else _dependence(tables[0])
        found.append((float(score), a, b, tables))
    found.sort(key=lambda pair: -pair[0])
    drawn = [_picture(columns, *pair, compared=compared) for pair in found[:_PICTURES]]
    what = "Pairs of columns, worst first" if compared else "How columns go together, strongest first"
    blocks = [{"kind": "charts", "title": what, "charts": drawn, "search": False}]
    if compared:
        frame = pd.DataFrame([(a, b, score) for score, a, b, _ in found[:_MOST_PAIRS]])
        frame.columns = pd.Index(["column", "with", "apart"])
        some = f"{len(frame)} of {len(found):,} pairs" if len(found) > len(frame) else f"{len(found)} pairs"
        caption = f"{some}: total variation distance over at most {_BINS} values of each column, 0 is best."
        blocks.append(table_block("Error of pairs", frame, caption=caption))
    return blocks


def _joint(a: Coded, b: Coded) -> list[Floats]:
    """Shares of both columns' labels together, in each table; the last row and column are what has none."""
    shape = (len(a.labels) + 1, len(b.labels) + 1)
    tables = []
    for one, other in zip(a.codes, b.codes, strict=True):
        cell = (one % shape[0]) * shape[1] + other % shape[1]  # -1 is the last
        tables.append((np.bincount(cell, minlength=shape[0] * shape[1]) / max(len(one), 1)).reshape(shape))
    return tables


def _dependence(table: Floats) -> float:
    """How far a joint table is from that of independent columns, in total variation."""
    alone = np.outer(table.sum(axis=1), table.sum(axis=0))
    return float(np.abs(table - alone).sum() / 2)


def _picture(
    columns: dict[str, Coded], score: float, a: str, b: str, tables: list[Floats], *, compared: bool
) -> dict[str, Any]:
    inner = [table[:-1, :-1] for table in tables]
    panels = [("true", inner[1]), ("synthetic", inner[0])] if compared else [("synthetic", inner[0])]
    svg = charts.heatmaps(columns[a].labels, columns[b].labels, panels, x=a, y=b)
    apart = "apart; both pictures should be dark in the same places." if compared else "from independent."
    return {"svg": svg, "caption": f"{a} with {b}: {score:.1%} {apart}"}


def table_block(title: str, frame: pd.DataFrame, *, caption: str = "") -> dict[str, Any]:
    """A table of a frame's rows."""
    numeric = [bool(pd.api.types.is_numeric_dtype(dtype)) for dtype in frame.dtypes]
    rows = [[_cell(value) for value in row] for row in frame.itertuples(index=False)]
    return {
        "kind": "table",
        "title": title,
        "caption": caption,
        "columns": list(frame.columns),
        "rows": rows,
        "numeric": numeric,
    }


def _cell(value: Any) -> str:
    if isinstance(value, float | np.floating):
        return "–" if np.isnan(value) else f"{value:.4g}"
    return str(value)

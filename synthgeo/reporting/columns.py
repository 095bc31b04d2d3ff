"""What a report shows of a table: each column, and how columns go together."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from synthgeo import ragged
from synthgeo.arrays import Floats, Ints
from synthgeo.canonical import word_of
from synthgeo.polylines import Polylines
from synthgeo.reporting import charts

if TYPE_CHECKING:
    from synthgeo.reporting.page import Builder


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


# What a report shows of trips: lines on the roads, lengths, hours, and the busiest flows.

_SIDE = 6  # flows are counted between the cells of a 6x6 grid
_MOST_FLOWS = 10


def true_trips(real: Any, domain: Any) -> Any:
    """Private trips as arrays: what ``read_trips`` makes of points, or trips as they are."""
    if hasattr(real, "xy") and hasattr(real, "start"):
        return real
    from synthgeo.privacy.unit import PrivacyUnit
    from trajectories.reading.points import read_trips

    return read_trips(real, domain, unit=PrivacyUnit.trajectory())


def true_lines(real: Any, release: Any) -> Polylines:
    """Private trips as lines in the domain's CRS. **For the curator only.**"""
    trips = true_trips(real, release.domain)
    return Polylines(trips.xy, trips.start).take(np.flatnonzero(np.diff(trips.start) > 1))


def trip_blocks(builder: Builder, real: Any, release: Any) -> list[dict[str, Any]]:
    """Map, distributions and flows of a release of trips, beside the truth where there is one."""
    domain = release.domain
    synthetic = release.lines
    truth = None if real is None else true_trips(real, domain)
    known = None if truth is None else true_lines(truth, release)
    zone = synthetic["departure"].dt.tz if "departure" in synthetic else None
    panels = []
    if truth is not None:
        shown = _true_panel(truth, domain.bounds, zone)
        panels.append({"kind": "true", "caption": f"true trips (private), {shown['shown']:,} shown", **shown})
    xy, offsets, seconds = release.vertices
    lines = Polylines(xy, offsets)
    leaves = None if zone is None else _second_of_day(synthetic["departure"])
    shown = charts.trips(lines, domain.bounds, seconds=seconds, leaves=leaves)
    caption = f"synthetic trips, {shown['shown']:,} of {shown['total']:,} shown"
    panels.append({"kind": "synthetic", "caption": caption, **shown})
    base = charts.paths([domain.outline()], domain.bounds, most=60_000)
    frame = charts.frame_of(domain.bounds, geographic=domain.crs is not None and domain.crs.is_geographic)
    good = "A good result: the same streets busy and quiet on both maps."
    alone = "Every synthetic trip follows the domain from start to end."
    drawn = builder.map(panels, frame, good if truth is not None else alone, base=base)
    if zone is not None:
        drawn |= {
            "steps": [f"{minute // 60:02d}:{minute % 60:02d}" for minute in range(24 * 60)],
            "day": True,
        }
    same = (
        ": bars of a pair should have the same height." if truth is not None else " of the synthetic trips."
    )
    lengths = charts.histogram(
        None if known is None else known.lengths / 1000,
        synthetic.length / 1000,
        x="length of the trip (km)",
    )
    figures = [{"svg": lengths, "caption": f"Lengths{same}"}]
    if zone is not None:
        hours = _hours(truth, synthetic["departure"])
        figures.append({"svg": hours, "caption": f"Departures by hour of the day ({zone}){same}"})
    flows = _flows(known, lines, domain.bounds)
    return [
        drawn,
        {"kind": "charts", "title": "Lengths and hours", "charts": figures},
        builder.table(
            "Busiest flows",
            flows,
            caption=f"Shares of trips between cells of a {_SIDE}x{_SIDE} grid: (column, row).",
        ),
    ]


def _true_panel(trips: Any, bounds: tuple[float, float, float, float], zone: Any) -> dict[str, Any]:
    long = np.flatnonzero(np.diff(trips.start) > 1)
    lines = Polylines(trips.xy, trips.start).take(long)
    if trips.time is None or zone is None:
        return charts.trips(lines, bounds)
    rows, offsets = ragged.take(trips.start, long)
    first = trips.time[rows][offsets[:-1]]
    seconds = trips.time[rows] - first[ragged.owners_of(offsets)]
    return charts.trips(lines, bounds, seconds=seconds, leaves=_second_of_day(_local(first, zone)))


def _local(instants: Any, zone: Any) -> pd.Series:
    return pd.Series(pd.to_datetime(np.asarray(instants), unit="s", utc=True)).dt.tz_convert(zone)


def _second_of_day(times: pd.Series) -> np.ndarray:
    clock = times.dt
    return np.asarray(clock.hour * 3600 + clock.minute * 60 + clock.second, dtype=np.float64)


def _hours(truth: Any, departures: pd.Series) -> str:
    """Departures by the hour that local clocks showed."""
    labels = [str(hour) for hour in range(24)]

    def share(hours: Any) -> list[float]:
        counts = np.bincount(np.asarray(hours, dtype=np.int64) % 24, minlength=24)
        return list(counts / max(counts.sum(), 1))

    series = [charts.Series("synthetic", share(departures.dt.hour))]
    if truth is not None and truth.time is not None:
        first = truth.time[truth.start[:-1][np.diff(truth.start) > 0]]
        local = _local(first, departures.dt.tz).dt.hour
        series.insert(0, charts.Series("true", share(local), true=True))
    return charts.bars(labels, series, x=f"hour of departure ({departures.dt.tz})", y="share of trips")


def _flows(
    truth: Polylines | None, synthetic: Polylines, bounds: tuple[float, float, float, float]
) -> pd.DataFrame:
    """The largest synthetic flows, with the true share beside them where it is known."""

    def flows(lines: Polylines) -> pd.Series:
        ends = np.column_stack([lines.xy[lines.offsets[:-1]], lines.xy[lines.offsets[1:] - 1]])
        low, size = np.array(bounds[:2] * 2), np.array([bounds[2] - bounds[0], bounds[3] - bounds[1]] * 2)
        cell = np.clip(np.floor((ends - low) / size * _SIDE), 0, _SIDE - 1).astype(int)
        names = pd.Series([f"({a},{b}) → ({c},{d})" for a, b, c, d in cell], dtype=object)
        return names.value_counts(normalize=True)

    made = flows(synthetic).head(_MOST_FLOWS)
    table = {"flow": made.index, "synthetic": made.to_numpy()}
    if truth is not None:
        table["true (private)"] = flows(truth).reindex(made.index, fill_value=0.0).to_numpy()
    return pd.DataFrame(table)

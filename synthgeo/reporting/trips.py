"""What a report shows of trips: lines on the roads, lengths, hours, and the busiest flows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from synthgeo import ragged
from synthgeo.polylines import Polylines
from synthgeo.reporting import charts, maps

if TYPE_CHECKING:
    from synthgeo.reporting.sections import Builder

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
    shown = maps.trips(lines, domain.bounds, seconds=seconds, leaves=leaves)
    caption = f"synthetic trips, {shown['shown']:,} of {shown['total']:,} shown"
    panels.append({"kind": "synthetic", "caption": caption, **shown})
    base = maps.paths([domain.outline()], domain.bounds, most=60_000)
    frame = maps.frame_of(domain.bounds, geographic=domain.crs is not None and domain.crs.is_geographic)
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
        return maps.trips(lines, bounds)
    rows, offsets = ragged.take(trips.start, long)
    first = trips.time[rows][offsets[:-1]]
    seconds = trips.time[rows] - first[ragged.owners_of(offsets)]
    return maps.trips(lines, bounds, seconds=seconds, leaves=_second_of_day(_local(first, zone)))


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

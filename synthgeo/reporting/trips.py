"""What a report shows of trips: lines on the roads, lengths, hours, and the busiest flows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import shapely

from synthgeo.reporting import charts, maps

if TYPE_CHECKING:
    import geopandas as gpd

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


def true_lines(real: Any, release: Any) -> gpd.GeoSeries:
    """Private trips as lines in the domain's CRS. **For the curator only.**"""
    import geopandas as gpd

    trips = true_trips(real, release.domain)
    sizes = np.diff(trips.start)
    long = np.repeat(sizes > 1, sizes)
    which = np.repeat(np.cumsum(sizes > 1) - 1, sizes)
    return gpd.GeoSeries(shapely.linestrings(trips.xy[long], indices=which[long]), crs=release.domain.crs)


def trip_blocks(builder: Builder, real: Any, release: Any) -> list[dict[str, Any]]:
    """Map, distributions and flows of a release of trips, beside the truth where there is one."""
    domain = release.domain
    synthetic = release.lines
    truth = None if real is None else true_lines(real, release)
    panels = []
    if truth is not None:
        shown = maps.paths(truth.to_numpy(), domain.bounds)
        panels.append({"kind": "true", "caption": f"true trips (private), {shown['shown']:,} shown", **shown})
    shown = maps.paths(synthetic.geometry.to_numpy(), domain.bounds)
    caption = f"synthetic trips, {shown['shown']:,} of {shown['total']:,} shown"
    panels.append({"kind": "synthetic", "caption": caption, **shown})
    base = maps.paths([domain.outline()], domain.bounds, most=60_000)
    frame = maps.frame_of(domain.bounds, geographic=domain.crs is not None and domain.crs.is_geographic)
    good = "A good result: the same streets busy and quiet on both maps."
    alone = "Every synthetic trip follows the domain from start to end."
    drawn = builder.map(panels, frame, good if truth is not None else alone, base=base)
    lengths = charts.histogram(
        None if truth is None else truth.length / 1000, synthetic.length / 1000, x="length of the trip (km)"
    )
    figures = [{"svg": lengths, "caption": "Lengths: bars of a pair should have the same height."}]
    if "departure" in synthetic:
        figures.append(
            {
                "svg": _hours(real, release, synthetic["departure"]),
                "caption": "Departures by hour of the day: bars of a pair should have the same height.",
            }
        )
    flows = _flows(truth, synthetic.geometry, domain.bounds)
    return [
        drawn,
        {"kind": "charts", "title": "Lengths and hours", "charts": figures},
        builder.table(
            "Busiest flows",
            flows,
            caption=f"Shares of trips between cells of a {_SIDE}x{_SIDE} grid: (column, row).",
        ),
    ]


def _hours(real: Any, release: Any, departures: pd.Series) -> str:
    labels = [str(hour) for hour in range(24)]

    def share(hours: Any) -> list[float]:
        counts = np.bincount(np.asarray(hours, dtype=np.int64) % 24, minlength=24)
        return list(counts / max(counts.sum(), 1))

    series = [charts.Series("synthetic", share(departures.dt.hour))]
    if real is not None:
        trips = true_trips(real, release.domain)
        if trips.time is not None:
            first = trips.time[trips.start[:-1][np.diff(trips.start) > 0]]
            series.insert(0, charts.Series("true", share(first // 3600), true=True))
    return charts.bars(labels, series, x="hour of departure (UTC)", y="share of trips")


def _flows(truth: Any, synthetic: Any, bounds: tuple[float, float, float, float]) -> pd.DataFrame:
    """The largest synthetic flows, with the true share beside them where it is known."""

    def flows(lines: Any) -> pd.Series:
        ends = np.column_stack(
            [shapely.get_coordinates(shapely.get_point(np.asarray(lines), i)) for i in (0, -1)]
        )
        low, size = np.array(bounds[:2] * 2), np.array([bounds[2] - bounds[0], bounds[3] - bounds[1]] * 2)
        cell = np.clip(np.floor((ends - low) / size * _SIDE), 0, _SIDE - 1).astype(int)
        names = pd.Series([f"({a},{b}) → ({c},{d})" for a, b, c, d in cell], dtype=object)
        return names.value_counts(normalize=True)

    made = flows(synthetic).head(_MOST_FLOWS)
    table = {"flow": made.index, "synthetic": made.to_numpy()}
    if truth is not None:
        table["true (private)"] = flows(truth).reindex(made.index, fill_value=0.0).to_numpy()
    return pd.DataFrame(table)

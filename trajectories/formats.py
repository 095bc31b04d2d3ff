"""Files of synthetic trips for maps and tools: GeoJSON, GPX, deck.gl and kepler.gl.

Coordinates are longitude and latitude, times are UTC. None of these formats has a place for the statement of
a release, so it stands beside each file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

import numpy as np
import pandas as pd

from synthgeo.arrays import Floats, Points
from synthgeo.domain.coordinates import WGS84, transform
from synthgeo.domain.crs import crs_text, parse_crs
from synthgeo.errors import ConfigError
from synthgeo.ragged import owners_of

if TYPE_CHECKING:
    from trajectories.release import TrajectoryRelease

_DIGITS = 7  # of degrees: a centimetre
_LINE_DIGITS = 9  # of degrees: finer than any two vertices of a line are apart


def points_in(release: TrajectoryRelease, crs: Any, xy: Points | None = None) -> Points:
    """The points of a release, or others of its domain, in a coordinate system, by default the domain's."""
    own, xy = release.domain.crs, release.xy if xy is None else xy
    if crs is None:
        return xy
    if own is None:
        raise ConfigError("crs: this domain has no CRS to come from")
    return transform(xy, crs_text(own), crs_text(parse_crs(crs)))


def in_crs(release: TrajectoryRelease, crs: Any) -> pd.DataFrame:
    """One row for each point, with lon and lat, or x and y, in a coordinate system."""
    import geopandas as gpd
    import shapely

    wanted = parse_crs(crs)
    xy = points_in(release, crs)
    names = ("lon", "lat") if wanted is not None and wanted.is_geographic else ("x", "y")
    columns = release.point_columns() | dict(zip(names, xy.T, strict=True))
    return gpd.GeoDataFrame(columns, geometry=shapely.points(xy), crs=wanted)


def write_geojson(release: TrajectoryRelease, path: str | os.PathLike[str]) -> None:
    """A line for each trip, its attributes as properties. With times, coordinates are [lon, lat, 0, seconds
    since 1970], which kepler.gl shows as moving trips.
    """
    ranges, lonlat, seconds = _lines(release)
    rows = json.loads(release.trips.drop(columns="geometry").to_json(orient="records", date_format="iso"))
    features = []
    for (low, high), row in zip(ranges, rows, strict=True):
        line = lonlat[low:high].tolist()
        if seconds is not None:
            times = seconds[low:high].tolist()
            line = [[*place, 0, time] for place, time in zip(line, times, strict=True)]
        geometry = {"type": "LineString", "coordinates": line}
        features.append({"type": "Feature", "properties": row, "geometry": geometry})
    _write(path, json.dumps({"type": "FeatureCollection", "features": features}))


def write_trips_layer(release: TrajectoryRelease, path: str | os.PathLike[str]) -> None:
    """Data of deck.gl's TripsLayer: for each trip its path and the seconds since the first departure."""
    ranges, lonlat, seconds = _lines(release)
    if seconds is None:
        raise ConfigError("these trips have no times: fit with a time column and times > 0")
    begin = float(seconds.min(initial=np.inf))
    ids = release.trips["trip_id"].tolist()
    layer = [
        {
            "trip_id": trip,
            "path": lonlat[low:high].tolist(),
            "timestamps": np.round(seconds[low:high] - begin, 3).tolist(),
        }
        for trip, (low, high) in zip(ids, ranges, strict=True)
    ]
    _write(path, json.dumps(layer))


def write_gpx(release: TrajectoryRelease, path: str | os.PathLike[str]) -> None:
    """GPX 1.1 with a track for each trip."""
    lonlat: Points = np.round(points_in(release, WGS84), _DIGITS)
    stamps = _stamps(release) if "time" in release.data else None
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        '<gpx version="1.1" creator="synthgeo" xmlns="http://www.topografix.com/GPX/1/1">',
    ]
    for trip, (low, high) in zip(
        release.trips["trip_id"].tolist(), pairwise(release.start.tolist()), strict=True
    ):
        lines.append(f"<trk><name>{escape(str(trip))}</name><trkseg>")
        for row in range(low, high):
            lon, lat = lonlat[row].tolist()
            when = "" if stamps is None else f"<time>{stamps[row]}</time>"
            lines.append(f'<trkpt lat="{lat}" lon="{lon}">{when}</trkpt>')
        lines.append("</trkseg></trk>")
    _write(path, "\n".join([*lines, "</gpx>"]) + "\n")


def _lines(release: TrajectoryRelease) -> tuple[Iterable[tuple[int, int]], Points, Floats | None]:
    """Of the lines of trips: where the vertices of each begin and end, these, and seconds since 1970."""
    xy, offsets, seconds = release.vertices
    lonlat: Points = np.round(points_in(release, WGS84, xy), _LINE_DIGITS)
    if seconds is not None:
        leaves = pd.DatetimeIndex(release.lines["departure"]).tz_convert("UTC").as_unit("ms").asi8 / 1000.0
        seconds = np.round(leaves[owners_of(offsets)] + seconds, 3)
    return pairwise(offsets.tolist()), lonlat, seconds


def _stamps(release: TrajectoryRelease) -> list[str]:
    times = pd.DatetimeIndex(release.data["time"]).tz_convert("UTC")
    return list(times.strftime("%Y-%m-%dT%H:%M:%S.%fZ"))


def _write(path: str | os.PathLike[str], text: str) -> None:
    Path(path).write_text(text, encoding="utf-8")


__all__ = ["in_crs", "points_in", "write_geojson", "write_gpx", "write_trips_layer"]

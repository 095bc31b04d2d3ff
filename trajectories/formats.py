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

import geopandas as gpd
import numpy as np
import pandas as pd
import shapely

from synthgeo import validate
from synthgeo.arrays import Floats, Ints, Points
from synthgeo.domain.box import SpatialDomain
from synthgeo.domain.coordinates import WGS84, crs_text, parse_crs, transform
from synthgeo.domain.h3 import H3Domain
from synthgeo.errors import ConfigError
from synthgeo.extras import require
from synthgeo.ragged import owners_of

if TYPE_CHECKING:
    from trajectories.release import TrajectoryRelease

__all__ = [
    "in_crs",
    "legs_of",
    "od_table",
    "points_in",
    "write_geojson",
    "write_gpx",
    "write_trips_layer",
    "zones_of",
]


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


# Origin-destination tables: counted from synthetic trips, and walked as synthetic trips. Post-processing.
#
# Zones are polygons of any kind: districts, traffic zones, cells of H3. They are public.


def zones_of(zones: Any, domain: SpatialDomain, points: Points) -> tuple[pd.Index, Ints]:
    """Labels of zones, and the zone of each point (-1: none).

    ``zones`` is a GeoDataFrame of polygons, whose index are the labels, an ``H3Domain``, or a resolution of
    H3.
    """
    if isinstance(zones, H3Domain):
        rank, inside = zones.rank(_degrees(domain, points))
        return pd.Index(zones.names()), np.where(inside, rank, -1).astype(np.int64)
    if isinstance(zones, gpd.GeoDataFrame | gpd.GeoSeries):
        return _in_polygons(zones, domain, points)
    if isinstance(zones, int | np.integer) and not isinstance(zones, bool):
        return _in_h3(validate.whole(zones, "zones (a resolution of H3)", low=0, high=15), domain, points)
    raise validate.refuse("zones", "a GeoDataFrame of polygons, an H3Domain, or a resolution of H3", zones)


def _in_polygons(zones: Any, domain: SpatialDomain, points: Points) -> tuple[pd.Index, Ints]:
    labels, polygons = _placed(zones, domain)
    point, zone = shapely.STRtree(polygons).query(shapely.points(points), predicate="intersects")
    found = np.full(len(points), -1, dtype=np.int64)
    found[point[::-1]] = zone[::-1]  # of zones that overlap, the first
    return labels, found


def _in_h3(resolution: int, domain: SpatialDomain, points: Points) -> tuple[pd.Index, Ints]:
    h3 = require("h3", extra="h3")
    labels = [h3.latlng_to_cell(lat, lon, resolution) for lon, lat in _degrees(domain, points).tolist()]
    codes, cells = pd.factorize(np.array(labels, dtype=object), sort=True)
    return pd.Index(cells), codes.astype(np.int64)


def _degrees(domain: SpatialDomain, points: Points) -> Points:
    """Points as longitude and latitude."""
    if domain.crs is None:
        raise ConfigError("cells of H3 are places on Earth: this domain has no CRS")
    return points if domain.crs.is_geographic else transform(points, crs_text(domain.crs), WGS84)


def od_table(
    domain: SpatialDomain,
    ends: Points,
    zones: Any,
    *,
    hours: Ints | None,
    deviation: float,
) -> pd.DataFrame:
    """Trips by origin, destination and, where ``hours`` are given, hour of departure.

    ``standard_error`` is the error to expect of each number: of the noise in a block of pairs
    (``deviation``), and of drawing so many trips.
    """
    labels, zone = zones_of(zones, domain, ends)
    names = np.array([*labels, None], dtype=object)  # an end in no zone has the number -1: the last
    frame = pd.DataFrame({"origin": names[zone[::2]], "destination": names[zone[1::2]]})
    keys = ["origin", "destination"]
    if hours is not None:
        frame["hour"] = hours
        keys.append("hour")
    table = frame.groupby(keys, dropna=False, sort=True).size().rename("trips").reset_index()
    table["standard_error"] = np.sqrt(deviation**2 + table["trips"])
    return table


def legs_of(od: Any, zones: Any, domain: SpatialDomain) -> tuple[tuple[Any, Any, int], ...]:
    """Start area, end area and number of trips of each row of a table that is to be routed."""
    if not isinstance(od, pd.DataFrame) or not {"origin", "destination", "trips"} <= set(od.columns):
        raise ConfigError("od must be a table with the columns origin, destination and trips")
    if isinstance(zones, int | np.integer) and not isinstance(zones, bool):
        zones = _cells_of(od, int(zones))
    areas = dict(zip(*_placed(zones, domain), strict=True))
    for label in [*od["origin"], *od["destination"]]:
        if label not in areas:
            raise ConfigError(f"od: there is no zone {label!r}")
    trips = od["trips"].to_numpy(dtype=np.float64)
    if not (np.isfinite(trips).all() and (trips >= 0).all()):
        raise ConfigError("od: trips must be numbers >= 0")
    rows = zip(od["origin"], od["destination"], np.rint(trips).astype(np.int64).tolist(), strict=True)
    legs = tuple(
        (areas[origin], areas[destination], number) for origin, destination, number in rows if number
    )
    if not legs:
        raise ConfigError("od: there is no trip to route")
    return legs


def _cells_of(od: pd.DataFrame, resolution: int) -> gpd.GeoSeries:
    """The cells of H3 that a table names, by name; all must be of one resolution."""
    h3 = require("h3", extra="h3")
    names = pd.unique(pd.concat([od["origin"], od["destination"]])).tolist()
    for name in names:
        if not (isinstance(name, str) and h3.is_valid_cell(name) and h3.get_resolution(name) == resolution):
            raise ConfigError(f"od: {name!r} is no cell of H3 of resolution {resolution}")
    outlines = [[(lon, lat) for lat, lon in h3.cell_to_boundary(name)] for name in names]
    return gpd.GeoSeries([shapely.Polygon(outline) for outline in outlines], index=names, crs=WGS84)


def _placed(zones: Any, domain: SpatialDomain) -> tuple[pd.Index, np.ndarray]:
    """Labels and polygons of zones, in the domain's CRS."""
    if not isinstance(zones, gpd.GeoDataFrame | gpd.GeoSeries):
        raise validate.refuse("zones", "a GeoDataFrame of polygons, or a resolution of H3", zones)
    if not zones.index.is_unique:
        raise ConfigError("zones: the index labels the zones and must be unique")
    placed = zones.geometry
    if placed.crs is not None and domain.crs is not None and placed.crs != domain.crs:
        placed = placed.to_crs(domain.crs)
    return zones.index, placed.to_numpy()

"""Origin-destination tables: counted from synthetic trips, and walked as synthetic trips. Post-processing.

Zones are polygons of any kind: districts, traffic zones, cells of H3. They are public.
"""

from __future__ import annotations

from typing import Any

import geopandas as gpd
import numpy as np
import pandas as pd
import shapely

from synthgeo import validate
from synthgeo.arrays import Ints, Points
from synthgeo.domain.coordinates import WGS84, transform
from synthgeo.domain.crs import crs_text
from synthgeo.domain.h3 import H3Domain
from synthgeo.domain.spatial import SpatialDomain
from synthgeo.errors import ConfigError
from synthgeo.extras import require


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


__all__ = ["legs_of", "od_table", "zones_of"]

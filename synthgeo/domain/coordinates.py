"""From a user's columns to coordinates in the domain's system.

Conventions, the same everywhere:

* columns ``lon``/``lat`` (also ``longitude``/``latitude``, ``long``, ``lng``; with any prefix, as in
  ``pickup_lon``/``pickup_lat``) are degrees, EPSG:4326, and are projected to the domain's CRS;
* columns ``x``/``y``, other columns named by ``x=``, ``y=``, and plain (n, 2) arrays are in the domain's CRS;
* point geometries are in their own CRS and are projected.

What is wrong is said with column and row. Nothing is clipped: what lies outside is dropped or refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from pyproj import CRS, Transformer

from synthgeo.arrays import Points
from synthgeo.domain.crs import crs_text, parse_crs
from synthgeo.domain.spatial import SpatialDomain
from synthgeo.errors import ConfigError, DomainError, InputError
from synthgeo.sources.chunk import refuse
from synthgeo.sources.values import numbers, points

LONGITUDE_NAMES = ("lon", "long", "lng", "longitude")
LATITUDE_NAMES = ("lat", "latitude")
WGS84 = CRS.from_epsg(4326)


@dataclass(frozen=True)
class CoordinateReader:
    """Reads coordinates from chunks of columns: what ``find_coordinates`` decided. Picklable.

    ``columns`` are the columns it needs: two numeric ones, or one of point geometries (shapely or WKB).
    """

    columns: tuple[str, ...]
    source: str | None  # CRS of the columns; None when they are in the domain's already
    target: str | None
    west: float | None = None  # of a domain across the antimeridian, whose longitudes go on beyond 180

    @property
    def kinds(self) -> dict[str, str]:
        """What each column is asked for."""
        return dict.fromkeys(self.columns, "point" if len(self.columns) == 1 else "number")

    def __call__(self, chunk: Mapping[str, Any]) -> Points:
        """Coordinates of a chunk in the domain's CRS; rows that hold none are refused."""
        if len(self.columns) == 1:
            xy = points(chunk, self.columns[0])
        else:
            xy = np.column_stack([numbers(chunk, name, booleans=False) for name in self.columns])
        for axis, name in enumerate(self.columns * (3 - len(self.columns))):
            refuse(~np.isfinite(xy[:, axis]), name, "is missing or not finite: not a coordinate")
        if self.source is None or self.source == self.target:
            return self._beyond(xy)
        if self.source == "EPSG:4326":
            wrong = (np.abs(xy[:, 1]) > 90) | (xy[:, 0] < -180) | (xy[:, 0] > 360)
            problem = (
                f"with {self.columns[-1]!r}: no longitude and latitude in degrees; are they swapped, or in "
                f"another CRS?"
            )
            refuse(wrong, self.columns[0], problem, DomainError)
        return self._beyond(transform(xy, self.source, self.target))

    def _beyond(self, xy: Points) -> Points:
        """The same places by longitudes of the domain: -179 is 181 in one from 170 to 190."""
        if self.west is None:
            return xy
        return np.column_stack([np.where(xy[:, 0] < self.west, xy[:, 0] + 360, xy[:, 0]), xy[:, 1]])


def find_coordinates(
    columns: Iterable[str],
    domain: SpatialDomain,
    *,
    x: str | None = None,
    y: str | None = None,
    crs: Any = None,
    geometry: str | None = None,
    open_schema: bool = False,
) -> CoordinateReader:
    """Decide which columns hold the coordinates.

    ``x`` and ``y`` name them where the conventions do not; ``crs`` says what they hold where that is neither
    degrees nor the domain's system. ``geometry`` names a column of points in ``crs``. ``open_schema`` says
    that rows name their own columns, so that those named here need not be in the list.
    """
    names = [str(column) for column in columns]
    if open_schema:
        names += [name for name in (x, y) if name is not None and name not in names]
    if geometry is not None:
        _require(names, geometry)
        return CoordinateReader((geometry,), *_crs_pair(parse_crs(crs), domain, "the points"), _west(domain))
    if (x is None) != (y is None):
        raise ConfigError("give both x= and y=, or neither")
    if x is None or y is None:
        x, y = _guess(names)
    _require(names, x)
    _require(names, y)
    given = parse_crs(crs)
    if given is None and _is_degrees(x, y):
        given = WGS84
    if given is None:
        return CoordinateReader((x, y), None, None, _west(domain))
    return CoordinateReader((x, y), *_crs_pair(given, domain, f"columns {x!r}, {y!r}"), _west(domain))


def coordinates_of(
    data: Any, domain: SpatialDomain, *, x: str | None = None, y: str | None = None, crs: Any = None
) -> Points:
    """Coordinates, in the domain's CRS, of a GeoDataFrame, DataFrame, dict of columns or (n, 2) array."""
    geometry = _geometry_of(data)
    if geometry is not None and x is None and y is None:
        reader = find_coordinates(["geometry"], domain, geometry="geometry", crs=geometry.crs)
        return reader({"geometry": geometry.to_numpy()})
    if isinstance(data, pd.DataFrame | Mapping):
        return find_coordinates(data.keys(), domain, x=x, y=y, crs=crs)(data)
    array = np.asarray(data)
    if array.ndim != 2 or array.shape[1] != 2:
        raise InputError(f"expected an array of shape (n, 2), got shape {array.shape}")
    columns = {"x": array[:, 0], "y": array[:, 1]}
    return find_coordinates(columns, domain, x="x", y="y", crs=crs)(columns)


def check_outside(outside: str) -> str:
    """The policy for points outside the domain, if it is one."""
    if outside not in ("drop", "error"):
        raise ConfigError(f"outside must be 'drop' or 'error', got {outside!r}")
    return outside


def transform(xy: Points, source: Any, target: Any) -> Points:
    """Project coordinates, x or longitude first; what cannot be projected becomes infinite, hence outside."""
    projected = _transformer(source, target).transform(xy[:, 0], xy[:, 1])
    return np.column_stack(projected)


@lru_cache(maxsize=64)
def _transformer(source: Any, target: Any) -> Transformer:
    return Transformer.from_crs(source, target, always_xy=True)


def _guess(names: list[str]) -> tuple[str, str]:
    lower = {name.lower(): name for name in names}
    usual = [("x", "y"), *((a, b) for a in LONGITUDE_NAMES for b in LATITUDE_NAMES)]
    pairs = [(lower[a], lower[b]) for a, b in usual if a in lower and b in lower]
    if not pairs:
        pairs = [(a, b) for a in names for b in names if _is_degrees(a, b) and _stem(a) == _stem(b)]
    if len(pairs) == 1:
        return pairs[0]
    if not pairs:
        # The names are not shown: a file without a header line has a record in its place.
        raise InputError(
            f"no coordinates among the {len(names)} columns: name them lon/lat (degrees) or x/y (the "
            "domain's CRS), or say which they are with x=, y="
        )
    raise InputError(f"several pairs of coordinates {pairs}: say which with x=, y=")


def _stem(name: str) -> str:
    return name.lower().rpartition("_")[0]


def _is_degrees(x: str, y: str) -> bool:
    return x.lower().rpartition("_")[2] in LONGITUDE_NAMES and y.lower().rpartition("_")[2] in LATITUDE_NAMES


def _require(names: list[str], name: str) -> None:
    if name not in names:
        raise InputError(f"no column {name!r} among the {len(names)} columns")


def _crs_pair(source: CRS | None, domain: SpatialDomain, what: str) -> tuple[str | None, str | None]:
    if domain.crs is None:
        if source is None:
            return None, None
        raise DomainError(
            f"{what} are in {crs_text(source)} but the domain has no CRS: make the domain with crs=..., "
            "or give x/y columns in the domain's own numbers"
        )
    if source is None:
        raise DomainError(
            f"{what} have no CRS, the domain's is {crs_text(domain.crs)}: set theirs (GeoDataFrame.set_crs)"
        )
    if source == domain.crs:
        return None, None
    return crs_text(source), crs_text(domain.crs)


def _west(domain: SpatialDomain) -> float | None:
    """Where a domain in degrees that goes on beyond 180 begins."""
    beyond = domain.crs is not None and domain.crs.is_geographic and domain.bounds[2] > 180
    return domain.bounds[0] if beyond else None


def _geometry_of(data: Any) -> Any:
    """The active geometry of a GeoDataFrame, a GeoSeries itself, None for anything else."""
    if not isinstance(data, pd.DataFrame | pd.Series):
        return None
    import geopandas as gpd

    if isinstance(data, gpd.GeoSeries):
        return data
    if isinstance(data, gpd.GeoDataFrame) and data.active_geometry_name in data.columns:
        return data.geometry
    return None

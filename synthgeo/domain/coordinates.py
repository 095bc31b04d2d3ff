"""From a user's columns to coordinates in the domain's system.

Conventions, the same everywhere:

* columns ``lon``/``lat`` (also ``longitude``/``latitude``, ``long``, ``lng``; with any prefix, as in
  ``pickup_lon``/``pickup_lat``) are degrees, EPSG:4326, and are projected to the domain's CRS;
* columns ``x``/``y``, other columns named by ``x=``, ``y=``, and plain (n, 2) arrays are in the domain's CRS;
* point geometries are in their own CRS and are projected.

What is wrong is said with column and row. Nothing is clipped: what lies outside is dropped or refused.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from pyproj import CRS, Proj, Transformer
from pyproj.exceptions import CRSError, ProjError

from synthgeo.arrays import Points
from synthgeo.errors import ConfigError, DomainError, InputError, StateError
from synthgeo.sources.chunk import refuse
from synthgeo.sources.values import numbers, points

if TYPE_CHECKING:
    from synthgeo.domain.box import SpatialDomain

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


# What boxes, land and road networks share: checked bounds, coordinate systems, fingerprints, saved form.

Bounds = tuple[float, float, float, float]

# The domains by their kind, as saved states name it.
DOMAINS = {
    "box": "synthgeo.domain.box:BoxDomain",
    "h3": "synthgeo.domain.h3:H3Domain",
    "polygon": "synthgeo.domain.polygon:PolygonDomain",
    "roads": "synthgeo.domain.roads:RoadDomain",
}


def parse_crs(crs: Any) -> CRS | None:
    """A pyproj CRS from anything that pyproj takes; None stays None."""
    if crs is None:
        return None
    try:
        return CRS.from_user_input(crs)
    except CRSError as problem:
        raise DomainError(
            f"{crs!r} is not a coordinate system that pyproj knows; give e.g. crs='EPSG:4326'"
        ) from problem


def crs_text(crs: CRS | None) -> str | None:
    """A short name where the CRS has one (EPSG:4326), its full definition where it has not."""
    if crs is None:
        return None
    authority = crs.to_authority(min_confidence=100)
    if authority is not None and CRS.from_authority(*authority) == crs:  # a near match is another CRS
        return ":".join(authority)
    return str(crs.to_wkt())


def check_bounds(minx: Any, miny: Any, maxx: Any, maxy: Any) -> Bounds:
    """The four numbers as floats, if they make a rectangle."""
    try:
        bounds = (float(minx), float(miny), float(maxx), float(maxy))
    except OverflowError:
        raise ConfigError("bounds must be finite numbers, got one of hundreds of digits") from None
    except (TypeError, ValueError):
        raise ConfigError(f"bounds must be four numbers, got {(minx, miny, maxx, maxy)!r}") from None
    for low, high, axis in ((bounds[0], bounds[2], "x"), (bounds[1], bounds[3], "y")):
        # Below 1e-200 the number of cells per unit would overflow a float.
        if not (
            math.isfinite(low) and math.isfinite(high) and math.isfinite(high - low) and high - low > 1e-200
        ):
            across = ""
            if axis == "x" and 0 <= high + 180 < low <= 180:
                across = f"; across the antimeridian give {low:g} and {high + 360:g}"
            raise ConfigError(
                f"bounds must be finite with min{axis} < max{axis}, got {low!r} and {high!r}{across}"
            )
    return bounds


def check_area_of_use(bounds: Bounds, crs: CRS | None) -> None:
    """Refuse bounds that cannot be where the coordinate system is meant for: mostly those of another one."""
    area = None if crs is None else crs.area_of_use
    if crs is None or area is None:
        return
    minx, miny, maxx, maxy = bounds
    if crs.is_geographic:
        if miny < -90 or maxy > 90 or minx < -180 or maxx > 360:
            raise DomainError(
                f"bounds {_numbers(bounds)} are no longitudes and latitudes in degrees ({crs_text(crs)}): "
                "are they swapped, or in another coordinate system?"
            )
        return
    x, y = np.meshgrid(np.linspace(minx, maxx, 3), np.linspace(miny, maxy, 3))
    lon, lat = Transformer.from_crs(crs, "EPSG:4326", always_xy=True).transform(x, y)
    good = np.isfinite(lon) & np.isfinite(lat)
    west, east = area.west, area.east + (360 if area.east < area.west else 0)
    for turn in (0, 360):
        across = good & (lon + turn >= west - _NEAR) & (lon + turn <= east + _NEAR)
        if (across & (lat >= area.south - _NEAR) & (lat <= area.north + _NEAR)).any():
            return
    raise DomainError(
        f"bounds {_numbers(bounds)} lie outside the area that {crs_text(crs)} is meant for "
        f"({area.name[:60]}): are they in another coordinate system?"
    )


def stretch(bounds: Bounds, crs: CRS) -> tuple[float, float]:
    """Metres of a projected coordinate system for one metre on the ground, along x and y, in the middle of
    ``bounds``: about 1 in UTM, 1.5 in Web Mercator at Chicago's latitude. (1, 1) where pyproj cannot say.

    >>> [round(found, 2) for found in stretch((-9.76e6, 5.13e6, -9.75e6, 5.14e6), CRS.from_epsg(3857))]
    [1.34, 1.34]
    """
    x, y = (bounds[0] + bounds[2]) / 2, (bounds[1] + bounds[3]) / 2
    try:
        lon, lat = Transformer.from_crs(crs, crs.geodetic_crs, always_xy=True).transform(x, y)
        factors = Proj(crs).get_factors(lon, lat)
    except ProjError:
        return 1.0, 1.0
    found = float(factors.parallel_scale), float(factors.meridional_scale)
    return found if all(math.isfinite(one) and one > 0 for one in found) else (1.0, 1.0)


# Degrees beyond the area of use at which a grid is still in use.
_NEAR = 1.0


def _numbers(bounds: Bounds) -> str:
    return ", ".join(f"{bound:g}" for bound in bounds)


def fingerprint(*parts: Any) -> str:
    """A short hash of public geometry: tells two domains apart in provenance and saved states."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            digest.update(f"{part.dtype.str}{part.shape}".encode())
            digest.update(np.ascontiguousarray(part).tobytes())
        elif isinstance(part, bytes):
            digest.update(part)
        else:
            digest.update(repr(part).encode())
        digest.update(b"|")
    return digest.hexdigest()[:16]


def domain_from_state(values: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> SpatialDomain:
    """The domain whose ``to_state`` gave these values and arrays."""
    kind = values.get("kind")
    if kind not in DOMAINS:
        raise StateError(f"unknown kind of domain {kind!r} in the saved state")
    module, _, name = DOMAINS[kind].partition(":")
    try:
        domain: SpatialDomain = getattr(import_module(module), name).from_state(values, arrays)
    except (KeyError, TypeError, ValueError, IndexError) as problem:
        raise StateError(f"the saved domain is damaged ({type(problem).__name__}: {problem})") from problem
    return domain

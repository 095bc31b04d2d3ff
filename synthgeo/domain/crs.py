"""What boxes, land and road networks share: checked bounds, coordinate systems, fingerprints, saved form."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np
from pyproj import CRS, Proj, Transformer
from pyproj.exceptions import CRSError, ProjError

from synthgeo.domain.spatial import SpatialDomain
from synthgeo.errors import ConfigError, DomainError, StateError

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

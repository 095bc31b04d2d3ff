"""Land: a union of polygons."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import shapely
from pyproj import CRS

from synthgeo.arrays import Array, Bools, Points
from synthgeo.domain.coordinates import (
    Bounds,
    check_area_of_use,
    check_bounds,
    crs_text,
    fingerprint,
    parse_crs,
)
from synthgeo.errors import DomainError

if TYPE_CHECKING:
    import geopandas as gpd


class PolygonDomain:
    """Everything inside the given polygons, boundary included.

    ``land`` is a GeoDataFrame, a GeoSeries, a polygon or a list of polygons; overlaps count once. A frame
    brings its own CRS and is projected when ``crs`` asks for another; bare geometries are in ``crs``. The
    measure is area in the units of the CRS: in degrees it is not area on the ground, so project first where
    that matters.
    """

    kind = "polygon"

    def __init__(self, land: Any, *, crs: Any = None) -> None:
        geometries, self.crs = _read(land, parse_crs(crs))
        union = shapely.force_2d(shapely.union_all(_checked(geometries)))
        self._set(union)
        check_area_of_use(self.bounds, self.crs)

    def _set(self, land: shapely.Geometry) -> None:
        self._land = land
        self.bounds: Bounds = check_bounds(*shapely.bounds(land))

    def contains(self, xy: Points) -> Bools:
        """Whether each point is on land, its boundary included."""
        shapely.prepare(self._land)
        inside: Bools = shapely.intersects_xy(self._land, *np.asarray(xy, dtype=np.float64).T)
        return inside

    def outline(self) -> shapely.Geometry:
        """The land."""
        return self._land

    def describe(self) -> dict[str, Any]:
        """Public facts for provenance."""
        return {
            "kind": self.kind,
            "crs": crs_text(self.crs),
            "bounds": list(self.bounds),
            "area": float(self._land.area),
            "fingerprint": self._fingerprint,
        }

    @cached_property
    def _fingerprint(self) -> str:
        return fingerprint(self.kind, crs_text(self.crs), shapely.to_wkb(self._land, byte_order=1))

    def to_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """JSON values and arrays from which ``domain_from_state`` rebuilds the domain."""
        wkb = np.frombuffer(shapely.to_wkb(self._land, byte_order=1), dtype=np.uint8)
        return {"kind": self.kind, "crs": crs_text(self.crs)}, {"wkb": wkb}

    @classmethod
    def from_state(cls, values: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> PolygonDomain:
        """The inverse of ``to_state``."""
        domain = cls.__new__(cls)
        domain.crs = parse_crs(values["crs"])
        try:
            wkb = arrays["wkb"].tobytes()
            if not _holds_polygons(wkb):
                raise ValueError("the land of a state is neither a polygon nor several")
            domain._set(shapely.from_wkb(wkb))  # noqa: SLF001 - its own class
        except (shapely.errors.GEOSException, struct.error) as problem:
            raise ValueError(str(problem)) from problem
        return domain

    def __reduce__(self) -> tuple[Any, ...]:
        return PolygonDomain.from_state, self.to_state()  # the index is rebuilt where it is needed

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PolygonDomain) and self._fingerprint == other._fingerprint

    def __hash__(self) -> int:
        return hash(self._fingerprint)

    def __repr__(self) -> str:
        vertices = shapely.get_num_coordinates(self._land)
        return f"PolygonDomain({vertices} vertices, area {self._land.area:g}, crs={crs_text(self.crs)!r})"


def _holds_polygons(wkb: bytes) -> bool:
    """Whether WKB holds polygons side by side: GEOS follows what is nested until its stack ends."""
    _, kind, parts = struct.unpack_from("<BII", wkb)
    place = 9 if kind == shapely.GeometryType.MULTIPOLYGON else 0
    for _ in range(parts if place else 1):
        order, kind, rings = struct.unpack_from("<BII", wkb, place)
        if order != 1 or kind != shapely.GeometryType.POLYGON:
            return False
        place += 9
        for _ in range(rings):
            place += 4 + 16 * int(struct.unpack_from("<I", wkb, place)[0])
    return True


def as_domain(domain: Any) -> Any:
    """A GeoDataFrame or GeoSeries of polygons as the domain that it means; anything else as it is."""
    return domain if _geometries(domain) is None else PolygonDomain(domain)


def _geometries(land: Any) -> gpd.GeoSeries | None:
    """The geometries of a frame or a series of geopandas, which is imported only where it can be one."""
    if not isinstance(land, pd.DataFrame | pd.Series):
        return None
    import geopandas as gpd

    if isinstance(land, gpd.GeoDataFrame):
        return land.geometry
    return land if isinstance(land, gpd.GeoSeries) else None


def _read(land: Any, crs: CRS | None) -> tuple[Array, CRS | None]:
    series = _geometries(land)
    if series is not None:
        if series.crs is None and crs is None:
            raise DomainError("the polygons have no CRS: set it (GeoDataFrame.set_crs), or give crs=")
        if series.crs is not None and crs is not None and series.crs != crs:
            series = series.to_crs(crs)
        return series.to_numpy(), crs if series.crs is None else CRS.from_user_input(series.crs)
    try:
        geometries = [land] if isinstance(land, shapely.Geometry) else list(land)
    except TypeError:
        raise DomainError(f"expected polygons, got {type(land).__name__}") from None
    return np.array(geometries, dtype=object), crs


def _checked(geometries: Array) -> Array:
    if not len(geometries):
        raise DomainError("no polygons: the domain would be empty")
    for row, geometry in enumerate(geometries):
        if not isinstance(geometry, shapely.Polygon | shapely.MultiPolygon):
            kind = "missing" if geometry is None else f"a {type(geometry).__name__}"
            hint = "; RoadDomain.from_edges makes roads of lines" if "Line" in kind else ""
            raise DomainError(f"row {row}: the geometry is {kind}, not a polygon{hint}")
        if not np.isfinite(shapely.get_coordinates(geometry)).all():
            raise DomainError(f"row {row}: the polygon has coordinates that are not finite")
        if not geometry.is_valid:
            why = shapely.is_valid_reason(geometry)
            raise DomainError(f"row {row}: the polygon is not valid ({why}); use shapely.make_valid")
    if not shapely.area(geometries).sum() > 0:
        raise DomainError("the polygons have no area: the domain would be empty")
    return geometries

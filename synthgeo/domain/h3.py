"""Cells of Uber's H3: land in hexagons that other people's tables are keyed by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import repeat
from types import ModuleType
from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray

from synthgeo import validate
from synthgeo.arrays import Array, Bools, Keys, Points
from synthgeo.domain.coordinates import Bounds, check_bounds, crs_text, fingerprint, parse_crs
from synthgeo.domain.polygon import PolygonDomain, as_domain
from synthgeo.errors import DomainError
from synthgeo.extras import require

FINEST = 15  # resolutions are 0 to 15
# More cells than this make every step slow; the next coarser resolution has a seventh of them.
MOST_CELLS = 3_000_000
# How far north and south a domain may reach: cells around a pole have no outline in longitude and latitude.
_MOST_LATITUDE = 85.0


class H3Domain:
    """The cells of H3 at one resolution that meet a region.

    ``within`` is that region: a GeoDataFrame or GeoSeries of polygons in any CRS, a box or polygon domain
    with a CRS, or polygons in degrees (EPSG:4326). Every cell that has a point of it belongs to the domain,
    whole. ``from_cells`` takes cells by their names instead.

    Coordinates are longitude and latitude. H3 is nested by index only: the hexagon of a coarser cell is not
    the union of the hexagons below it. Here a coarser cell *is* that union, so a point is in the cell that
    its finest cell belongs to, and the measure is the area on the ground of the finest cells, in km².
    Needs the extra ``h3``.

    >>> domain = H3Domain(resolution=7, within=shapely.box(8.50, 47.35, 8.56, 47.40))
    >>> domain
    H3Domain(11 cells of resolution 7)
    >>> domain.contains(np.array([[8.53, 47.37], [8.9, 47.37]])).tolist()
    [True, False]
    """

    kind = "h3"

    def __init__(self, *, resolution: int, within: Any) -> None:
        validate.whole(resolution, "resolution", low=0, high=FINEST)
        region = _region(within)
        h3 = h3_module()
        average = h3.average_hexagon_area(resolution, unit="km^2")
        if _square_km(region) / average > MOST_CELLS:
            raise DomainError(
                f"the region has about {_square_km(region) / average:,.0f} cells of resolution {resolution}, "
                f"more than {MOST_CELLS:,}: choose a coarser resolution"
            )
        found: set[int] = set()
        for part in shapely.get_parts(region):
            shape = h3.geo_to_h3shape(part)
            found.update(h3.h3shape_to_cells_experimental(shape, resolution, contain="overlap"))
        self._set(np.fromiter(found, dtype=np.uint64, count=len(found)), resolution)

    @classmethod
    def from_cells(cls, cells: Iterable[str | int]) -> H3Domain:
        """The domain of these cells, given as H3 writes them ("891f9065927ffff") or as whole numbers.

        >>> H3Domain.from_cells(["871f8eca8ffffff", "871f8ecaaffffff"]).resolution
        7
        """
        h3 = h3_module()
        try:
            given = [h3.str_to_int(cell) if isinstance(cell, str) else int(cell) for cell in cells]
        except (TypeError, ValueError):
            raise DomainError("cells of H3 are texts such as '891f9065927ffff', or whole numbers") from None
        wrong = [cell for cell in given if not h3.is_valid_cell(cell)]
        if wrong:
            raise DomainError(f"{h3.int_to_str(wrong[0])!r} is not a cell of H3")
        resolutions = {h3.get_resolution(cell) for cell in given}
        if len(resolutions) > 1:
            raise DomainError(f"the cells have the resolutions {sorted(resolutions)}: give them all at one")
        domain = cls.__new__(cls)
        domain._set(np.array(given, dtype=np.uint64), resolutions.pop() if resolutions else 0)  # noqa: SLF001
        return domain

    def _set(self, cells: Keys, resolution: int) -> None:
        self.cells: Keys = np.unique(cells)
        self.resolution = resolution
        self.crs = parse_crs("EPSG:4326")
        if self.cells.size < 2:
            raise DomainError(
                f"the domain has {self.cells.size} cells of resolution {resolution}, it needs two or more: "
                "choose a finer resolution"
            )
        corners = shapely.bounds(self.hexagons).reshape(-1, 2, 2)
        self.bounds: Bounds = check_bounds(*corners[:, 0].min(axis=0), *corners[:, 1].max(axis=0))

    @cached_property
    def hexagons(self) -> Array:
        """The outline of each cell, in the order of ``cells``."""
        boundary = h3_module().cell_to_boundary
        rings = [boundary(cell) for cell in self.cells.tolist()]
        owner = np.repeat(np.arange(len(rings)), [len(ring) for ring in rings])
        lat, lon = np.concatenate(rings).T
        if np.abs(lat).max() > _MOST_LATITUDE:
            raise DomainError(f"cells beyond {_MOST_LATITUDE:g} degrees of latitude are not supported")
        # A ring over the antimeridian jumps from 180 to -180: its western part is read as beyond 180.
        low, high = np.minimum.reduceat(lon, _firsts(owner)), np.maximum.reduceat(lon, _firsts(owner))
        over = high - low > 180
        lon = np.where(over[owner] & (lon < 0), lon + 360, lon)
        hexagons = shapely.polygons(shapely.linearrings(lon, lat, indices=owner))
        hexagons[over] = [_cut_at_180(hexagon) for hexagon in hexagons[over]]
        return np.asarray(hexagons)

    def rank(self, xy: Points) -> tuple[NDArray[np.intp], Bools]:
        """The place in ``cells`` of the cell of each point, and whether it is one of the domain's."""
        lon, lat = np.asarray(xy, dtype=np.float64).T
        inside = np.isfinite(lon) & (np.abs(lat) <= 90)
        index = np.zeros(len(lon), dtype=np.uint64)
        degrees = lat[inside].tolist(), lon[inside].tolist()
        index[inside] = np.fromiter(
            map(h3_module().latlng_to_cell, *degrees, repeat(self.resolution)), np.uint64, len(degrees[0])
        )
        at = np.minimum(np.searchsorted(self.cells, index), self.cells.size - 1)
        return at, inside & (self.cells[at] == index)

    def contains(self, xy: Points) -> Bools:
        """Whether each point is in a cell of the domain."""
        return self.rank(xy)[1]

    def outline(self) -> shapely.Geometry:
        """The union of the cells."""
        return shapely.union_all(self.hexagons)

    def names(self) -> list[str]:
        """The cells as H3 writes them."""
        return list(map(h3_module().int_to_str, self.cells.tolist()))

    def describe(self) -> dict[str, Any]:
        """Public facts for provenance."""
        return {
            "kind": self.kind,
            "crs": crs_text(self.crs),
            "bounds": list(self.bounds),
            "resolution": self.resolution,
            "cells": int(self.cells.size),
            "fingerprint": self._fingerprint,
        }

    @cached_property
    def _fingerprint(self) -> str:
        return fingerprint(self.kind, self.resolution, self.cells)

    def to_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """JSON values and arrays from which ``domain_from_state`` rebuilds the domain."""
        return {"kind": self.kind}, {"cells": self.cells}

    @classmethod
    def from_state(cls, _values: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> H3Domain:
        """The inverse of ``to_state``."""
        try:
            return cls.from_cells(arrays["cells"].tolist())
        except DomainError as problem:
            raise ValueError(str(problem)) from problem

    def __reduce__(self) -> tuple[Any, ...]:
        return H3Domain.from_state, self.to_state()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, H3Domain) and self._fingerprint == other._fingerprint

    def __hash__(self) -> int:
        return hash(self._fingerprint)

    def __repr__(self) -> str:
        return f"H3Domain({self.cells.size} cells of resolution {self.resolution})"


def h3_module() -> ModuleType:
    """The functions of H3 on whole numbers, or the line that says what to install."""
    return require("h3.api.basic_int", extra="h3")


def _region(within: Any) -> shapely.Geometry:
    """The polygons of a region, in degrees."""
    import geopandas as gpd  # heavy, and tables load this module

    domain = as_domain(within)
    if isinstance(domain, H3Domain):
        return domain.outline()
    if getattr(domain, "kind", None) not in ("box", "polygon"):
        domain = PolygonDomain(within, crs="EPSG:4326")
    if domain.crs is None:
        raise DomainError("cells of H3 are places on Earth: give within= a domain with a CRS")
    outline = domain.outline()
    if not domain.crs.is_geographic:  # a straight edge of a projection is a curve in degrees
        minx, miny, maxx, maxy = domain.bounds
        outline = shapely.segmentize(outline, max(maxx - minx, maxy - miny) / 256)
    region = gpd.GeoSeries([outline], crs=domain.crs).to_crs("EPSG:4326").iloc[0]
    if not np.isfinite(shapely.bounds(region)).all():
        raise DomainError("the region cannot be projected to longitude and latitude")
    return region


def _square_km(region: shapely.Geometry) -> float:
    """About the area of a region given in degrees."""
    _, south, _, north = shapely.bounds(region)
    nearest = 0.0 if south < 0 < north else min(abs(south), abs(north))
    return float(region.area * 111.2**2 * np.cos(np.radians(min(nearest, 90.0))))


def _firsts(owner: NDArray[np.int64]) -> NDArray[np.intp]:
    return np.flatnonzero(np.diff(owner, prepend=-1))


def _cut_at_180(hexagon: shapely.Geometry) -> shapely.Geometry:
    """A hexagon that reaches beyond 180 degrees, as two parts."""
    west = shapely.box(180, -90, 540, 90)
    beyond = shapely.transform(hexagon.intersection(west), lambda xy: xy - np.array([360.0, 0.0]))
    return shapely.union_all([hexagon.difference(west), beyond])

"""Land: a union of polygons. Cells without land are pruned, points are drawn on land only."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import geopandas as gpd
import numpy as np
import shapely
from numpy.typing import NDArray
from pyproj import CRS

from synthgeo.domain.crs import Bounds, check_bounds, crs_text, fingerprint, parse_crs
from synthgeo.domain.land_index import DEPTH, LandIndex, clip, rectangle_areas
from synthgeo.domain.sampling import draw_by_weight, uniform_in_polygons, uniform_in_rectangles
from synthgeo.domain.spatial import MAX_BITS, Keys, Points
from synthgeo.errors import DomainError
from synthgeo.hierarchy import morton

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


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

    def _set(self, land: shapely.Geometry) -> None:
        self._land = land
        self.bounds: Bounds = check_bounds(*shapely.bounds(land))

    @cached_property
    def _index(self) -> LandIndex:
        return LandIndex(self._land, self.bounds)

    def locate(self, xy: Points, bits: int) -> tuple[Keys, NDArray[np.bool_]]:
        """Key of each point at ``bits`` bits, and whether it is on land (keys elsewhere are 0)."""
        morton.check_bits(bits)
        xy = np.asarray(xy, dtype=np.float64)
        finest, inside = morton.locate(xy, MAX_BITS, self.bounds)
        leaf = np.where(inside, self._index.leaf_of(morton.coarsen(finest, MAX_BITS, DEPTH)), -1)
        inside = self._touches(leaf, xy)
        keys = np.where(inside, morton.coarsen(finest, MAX_BITS, bits), np.uint64(0))
        coastal = np.flatnonzero(inside & ~self._index.full[leaf])
        # In a sliver that rounding makes empty a point would sit in a pruned cell: it counts as off land.
        empty = coastal[~self._has_land(keys[coastal], bits)]
        inside[empty], keys[empty] = False, 0
        near_x, near_y = self._near_lines(xy)
        near = np.flatnonzero(near_x | near_y)
        if near.size:
            axes = np.stack([near_x[near], near_y[near]], axis=1)
            keys[near], inside[near] = self._beside_lines(xy[near], axes, bits)
        return keys, inside

    def _touches(self, leaf: Ints, xy: Points) -> NDArray[np.bool_]:
        """Whether points touch the land of the leaves they are in (-1: no leaf)."""
        touches = leaf >= 0
        coastal = np.flatnonzero(touches & ~self._index.full[leaf])
        land = self._index.geometry[leaf[coastal]]
        touches[coastal] = shapely.intersects_xy(land, *xy[coastal].T)
        # Cutting moves a slanted coast by a rounding error: what lies on it must not fall off.
        off = np.flatnonzero(~touches[coastal])
        touches[coastal[off]] = shapely.dwithin(land[off], shapely.points(xy[coastal[off]]), self._index.hair)
        return touches

    def _has_land(self, keys: Keys, bits: int) -> NDArray[np.bool_]:
        cells, which = np.unique(keys, return_inverse=True)
        has: NDArray[np.bool_] = self.measure(cells, bits)[which] > 0
        return has

    def _near_lines(self, xy: Points) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which points lie on a vertical, a horizontal line of the finest grid (or very near one)."""
        low, high = np.array(self.bounds[:2]), np.array(self.bounds[2:])
        with np.errstate(invalid="ignore"):
            place = (xy - low) / (high - low) * 2.0 ** (MAX_BITS // 2)
            near = np.abs(place - np.rint(place)) < 1e-3
        return near[:, 0], near[:, 1]

    def _beside_lines(self, xy: Points, axes: NDArray[np.bool_], bits: int) -> tuple[Keys, NDArray[np.bool_]]:
        """Keys of points on grid lines: of the cell that owns the line if it has land, else of one across it.

        A cell owns its lower and left edges. Where land ends exactly on such an edge, the cell has no land
        though the edge has: its points belong to the neighbour.
        """
        low, high = np.array(self.bounds[:2]), np.array(self.bounds[2:])
        step = np.maximum((high - low) * 2.0**-40, 4 * np.spacing(np.abs(self.bounds).max()))
        keys, found = np.zeros(len(xy), dtype=np.uint64), np.zeros(len(xy), dtype=bool)
        for across in ((False, False), (True, False), (False, True), (True, True)):
            place = np.where(axes & np.array(across), xy - step, xy)
            key, inside = morton.locate(place, MAX_BITS, self.bounds)
            leaf = np.where(inside & ~found, self._index.leaf_of(morton.coarsen(key, MAX_BITS, DEPTH)), -1)
            good = np.flatnonzero(self._touches(leaf, xy))
            good = good[self._has_land(key[good], MAX_BITS)]
            keys[good], found[good] = morton.coarsen(key[good], MAX_BITS, bits), True
        return keys, found

    def measure(self, prefix: Keys, bits: int | NDArray[np.int64]) -> Floats:
        """Area of the land in cells; 0 means that a cell has none."""
        prefix, depth = self._cells(prefix, bits)
        index = self._index
        holder = index.holder(prefix, depth)
        above = holder < 0
        area = np.empty(prefix.size)
        area[above] = index.area_above(prefix[above], depth[above])
        cell = morton.cell_bounds(prefix, depth, self.bounds)
        full = ~above & index.full[holder]
        area[full] = rectangle_areas(cell[full])
        whole = ~above & (index.bits[holder] == depth)
        area[whole] = index.area[holder[whole]]
        part = ~above & ~full & ~whole
        area[part] = shapely.area(clip(index.geometry[holder[part]], cell[part], index.dust))
        return area

    def sample(
        self, prefix: Keys, bits: int | NDArray[np.int64], counts: NDArray[np.int64], rng: np.random.Generator
    ) -> Points:
        """``counts[i]`` points uniform on the land inside cell i, all cells concatenated in order."""
        prefix, depth = self._cells(prefix, bits)
        counts = np.asarray(counts, dtype=np.int64)
        used = np.flatnonzero(counts > 0)
        prefix, depth, counts = prefix[used], depth[used], counts[used]
        if np.any(self.measure(prefix, depth) <= 0):
            raise DomainError("cannot place points in a cell without land")
        index = self._index
        holder = index.holder(prefix, depth)
        above = holder < 0
        # Above the leaves: draw a leaf by area first. A region is then a leaf, or a cell inside a leaf.
        first, last = index.leaves_under(prefix[above], depth[above])
        drawn_leaf = draw_by_weight(index.cumulative, first, last, counts[above], rng)
        leaves, drawn = np.unique(drawn_leaf, return_inverse=True)
        own = morton.cell_bounds(prefix[~above], depth[~above], self.bounds)
        cells = np.vstack([index.rectangles()[leaves], own])
        inside_leaf = np.concatenate([leaves, holder[~above]])
        region = np.empty(int(counts.sum()), dtype=np.int64)
        owner = np.repeat(above, counts)
        region[owner] = drawn
        region[~owner] = leaves.size + np.repeat(np.arange(int((~above).sum())), counts[~above])
        order = np.argsort(region, kind="stable")
        out = np.empty((region.size, 2))
        out[order] = self._fill(cells, inside_leaf, np.bincount(region, minlength=len(cells)), rng)
        return out

    def _fill(self, cells: Floats, leaf: Ints, counts: Ints, rng: np.random.Generator) -> Points:
        """Uniform points in the land of rectangles that lie in one leaf each."""
        index = self._index
        full = index.full[leaf]
        out = np.empty((int(counts.sum()), 2))
        in_full = np.repeat(full, counts)
        out[in_full] = uniform_in_rectangles(cells[full], counts[full], rng)
        land = clip(index.geometry[leaf[~full]], cells[~full], index.dust)
        drawn = uniform_in_polygons(land, counts[~full], rng)
        # Rounding must not leave the cell, whose upper edges belong to the next one.
        low = np.repeat(cells[~full, :2], counts[~full], axis=0)
        high = np.repeat(np.nextafter(cells[~full, 2:], -np.inf), counts[~full], axis=0)
        out[~in_full] = np.clip(drawn, low, np.maximum(low, high))
        return out

    def geometry(self, prefix: Keys, bits: int | NDArray[np.int64]) -> NDArray[Any]:
        """The land inside each cell."""
        prefix, depth = self._cells(prefix, bits)
        index = self._index
        holder = index.holder(prefix, depth)
        above = holder < 0
        out = np.empty(prefix.size, dtype=object)
        out[above] = index.geometry_above(prefix[above], depth[above])
        cell = morton.cell_bounds(prefix, depth, self.bounds)
        full = ~above & index.full[holder]
        out[full] = shapely.box(*cell[full].T)
        part = ~above & ~full
        out[part] = clip(index.geometry[holder[part]], cell[part], index.dust)
        return out

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
            domain._set(shapely.from_wkb(arrays["wkb"].tobytes()))
        except shapely.errors.GEOSException as problem:
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

    def _cells(self, prefix: Keys, bits: int | NDArray[np.int64]) -> tuple[Keys, Ints]:
        morton.check_bits(bits)
        prefix = np.asarray(prefix, dtype=np.uint64)
        return prefix, np.broadcast_to(np.asarray(bits, dtype=np.int64), prefix.shape)


def _read(land: Any, crs: CRS | None) -> tuple[NDArray[Any], CRS | None]:
    if isinstance(land, gpd.GeoDataFrame):
        land = land.geometry
    if isinstance(land, gpd.GeoSeries):
        if land.crs is None and crs is None:
            raise DomainError("the polygons have no CRS: set it (GeoDataFrame.set_crs), or give crs=")
        if land.crs is not None and crs is not None and land.crs != crs:
            land = land.to_crs(crs)
        return land.to_numpy(), crs if land.crs is None else CRS.from_user_input(land.crs)
    try:
        geometries = [land] if isinstance(land, shapely.Geometry) else list(land)
    except TypeError:
        raise DomainError(f"expected polygons, got {type(land).__name__}") from None
    return np.array(geometries, dtype=object), crs


def _checked(geometries: NDArray[Any]) -> NDArray[Any]:
    if not len(geometries):
        raise DomainError("no polygons: the domain would be empty")
    for row, geometry in enumerate(geometries):
        if not isinstance(geometry, shapely.Polygon | shapely.MultiPolygon):
            kind = "missing" if geometry is None else f"a {type(geometry).__name__}"
            raise DomainError(f"row {row}: the geometry is {kind}, not a polygon")
        if not np.isfinite(shapely.get_coordinates(geometry)).all():
            raise DomainError(f"row {row}: the polygon has coordinates that are not finite")
        if not geometry.is_valid:
            why = shapely.is_valid_reason(geometry)
            raise DomainError(f"row {row}: the polygon is not valid ({why}); use shapely.make_valid")
    if not shapely.area(geometries).sum() > 0:
        raise DomainError("the polygons have no area: the domain would be empty")
    return geometries

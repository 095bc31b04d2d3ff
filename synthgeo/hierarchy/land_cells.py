"""Cells of land: halves of the frame of a polygon domain, measured by the land in them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import shapely

from synthgeo import ragged
from synthgeo.arrays import Array, Bools, Floats, Ints, Keys, Points
from synthgeo.domain.coordinates import Bounds
from synthgeo.domain.polygon import PolygonDomain
from synthgeo.errors import DomainError
from synthgeo.hierarchy import morton
from synthgeo.hierarchy.base import (
    MAX_BITS,
    ROOT,
    Bits,
    as_cells,
    check_bits,
    children,
    coarsen,
    draw_by_weight,
    key_range,
    uniform_in_polygons,
    uniform_in_rectangles,
)
from synthgeo.hierarchy.morton import Halving


class LandCells(Halving[PolygonDomain]):
    """Cells without land are pruned, points are drawn on land only."""

    @cached_property
    def index(self) -> LandIndex:
        """The land cut into small pieces, once."""
        return LandIndex(self.domain.outline(), self.domain.bounds)

    @property
    def _bounds(self) -> Bounds:
        return self.domain.bounds

    def locate(self, xy: Points, bits: int) -> tuple[Keys, Bools]:
        """Key of each point at ``bits`` bits, and whether it is on land (keys elsewhere are 0)."""
        check_bits(bits)
        xy = np.asarray(xy, dtype=np.float64)
        finest, inside = morton.locate(xy, MAX_BITS, self._bounds)
        leaf = np.where(inside, self.index.leaf_of(coarsen(finest, MAX_BITS, DEPTH)), -1)
        inside = self._touches(leaf, xy)
        keys = np.where(inside, coarsen(finest, MAX_BITS, bits), np.uint64(0))
        coastal = np.flatnonzero(inside & ~self.index.full[leaf])
        # In a sliver that rounding makes empty a point would sit in a pruned cell: it counts as off land.
        empty = coastal[~self._has_land(keys[coastal], bits)]
        inside[empty], keys[empty] = False, 0
        near_x, near_y = self._near_lines(xy)
        near = np.flatnonzero(near_x | near_y)
        if near.size:
            axes = np.stack([near_x[near], near_y[near]], axis=1)
            keys[near], inside[near] = self._beside_lines(xy[near], axes, bits)
        return keys, inside

    def _touches(self, leaf: Ints, xy: Points) -> Bools:
        """Whether points touch the land of the leaves they are in (-1: no leaf)."""
        touches = leaf >= 0
        coastal = np.flatnonzero(touches & ~self.index.full[leaf])
        land = self.index.geometry[leaf[coastal]]
        touches[coastal] = shapely.intersects_xy(land, *xy[coastal].T)
        # Cutting moves a slanted coast by a rounding error: what lies on it must not fall off.
        off = np.flatnonzero(~touches[coastal])
        touches[coastal[off]] = shapely.dwithin(land[off], shapely.points(xy[coastal[off]]), self.index.hair)
        return touches

    def _has_land(self, keys: Keys, bits: int) -> Bools:
        cells, which = np.unique(keys, return_inverse=True)
        has: Bools = self.measure(cells, bits)[which] > 0
        return has

    def _near_lines(self, xy: Points) -> tuple[Bools, Bools]:
        """Which points lie on a vertical, a horizontal line of the finest grid (or very near one)."""
        low, high = np.array(self._bounds[:2]), np.array(self._bounds[2:])
        with np.errstate(invalid="ignore"):
            place = (xy - low) / (high - low) * 2.0 ** (MAX_BITS // 2)
            near = np.abs(place - np.rint(place)) < 1e-3
        return near[:, 0], near[:, 1]

    def _beside_lines(self, xy: Points, axes: Bools, bits: int) -> tuple[Keys, Bools]:
        """Keys of points on grid lines: of the cell that owns the line if it has land, else of one across it.

        A cell owns its lower and left edges. Where land ends exactly on such an edge, the cell has no land
        though the edge has: its points belong to the neighbour.
        """
        low, high = np.array(self._bounds[:2]), np.array(self._bounds[2:])
        step = np.maximum((high - low) * 2.0**-40, 4 * np.spacing(np.abs(self._bounds).max()))
        keys, found = np.zeros(len(xy), dtype=np.uint64), np.zeros(len(xy), dtype=bool)
        for across in ((False, False), (True, False), (False, True), (True, True)):
            place = np.where(axes & np.array(across), xy - step, xy)
            key, inside = morton.locate(place, MAX_BITS, self._bounds)
            leaf = np.where(inside & ~found, self.index.leaf_of(coarsen(key, MAX_BITS, DEPTH)), -1)
            good = np.flatnonzero(self._touches(leaf, xy))
            good = good[self._has_land(key[good], MAX_BITS)]
            keys[good], found[good] = coarsen(key[good], MAX_BITS, bits), True
        return keys, found

    def measure(self, prefix: Keys, bits: Bits) -> Floats:
        """Area of the land in cells; 0 means that a cell has none."""
        prefix, depth = as_cells(prefix, bits)
        index = self.index
        holder = index.holder(prefix, depth)
        above = holder < 0
        area = np.empty(prefix.size)
        area[above] = index.area_above(prefix[above], depth[above])
        cell = morton.cell_bounds(prefix, depth, self._bounds)
        full = ~above & index.full[holder]
        area[full] = morton.rectangle_areas(cell[full])
        whole = ~above & (index.bits[holder] == depth)
        area[whole] = index.area[holder[whole]]
        part = ~above & ~full & ~whole
        area[part] = shapely.area(clip(index.geometry[holder[part]], cell[part], index.dust))
        return area

    def sample(self, prefix: Keys, bits: Bits, counts: Ints, rng: np.random.Generator) -> Points:
        """``counts[i]`` points uniform on the land inside cell i, all cells concatenated in order."""
        prefix, depth = as_cells(prefix, bits)
        counts = np.asarray(counts, dtype=np.int64)
        used = np.flatnonzero(counts > 0)
        prefix, depth, counts = prefix[used], depth[used], counts[used]
        if np.any(self.measure(prefix, depth) <= 0):
            raise DomainError("cannot place points in a cell without land")
        index = self.index
        holder = index.holder(prefix, depth)
        above = holder < 0
        # Above the leaves: draw a leaf by area first. A region is then a leaf, or a cell inside a leaf.
        first, last = index.leaves_under(prefix[above], depth[above])
        drawn_leaf = draw_by_weight(index.cumulative, first, last, counts[above], rng)
        leaves, drawn = np.unique(drawn_leaf, return_inverse=True)
        own = morton.cell_bounds(prefix[~above], depth[~above], self._bounds)
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
        index = self.index
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

    def geometry(self, prefix: Keys, bits: Bits) -> Array:
        """The land inside each cell."""
        prefix, depth = as_cells(prefix, bits)
        index = self.index
        holder = index.holder(prefix, depth)
        above = holder < 0
        out = np.empty(prefix.size, dtype=object)
        out[above] = index.geometry_above(prefix[above], depth[above])
        cell = morton.cell_bounds(prefix, depth, self._bounds)
        full = ~above & index.full[holder]
        out[full] = shapely.box(*cell[full].T)
        part = ~above & ~full
        out[part] = clip(index.geometry[holder[part]], cell[part], index.dust)
        return out


# Land cut into cells, coarse inland and fine along the coast, computed once.
#
# Cells that are neither all land nor empty are halved until each holds a small piece of the coast. What
# remains are *leaves*: full cells, which need no geometry, and coastal cells with a few dozen vertices. Cells
# above the leaves know their area as the sum of their children's; a cell inside a coastal leaf is clipped
# from the leaf's small piece. Cells without land are not stored at all.

DEPTH = 24  # bits of the finest leaves
_SHALLOWEST = 14  # coastal cells are cut at least this far, so that most cells are full or empty
_VERTICES = 48  # a coastal piece with no more than this many is small
_MOST_CUT = 1 << 17  # cells cut at one level; a coast of needles would otherwise never get small
_FULL = 1 - 1e-12  # clipping is exact to about 1e-15 of a cell


@dataclass(frozen=True)
class _Level:
    prefix: Keys  # sorted
    area: Floats
    geometry: Array


class LandIndex:
    """Cells of a polygon's bounding frame, as described above."""

    def __init__(self, land: shapely.Geometry, bounds: Bounds) -> None:
        self._bounds = bounds
        # Lengths and areas that rounding can make out of nothing.
        unit = float(np.spacing(np.abs(bounds).max()))
        smallest = (bounds[2] - bounds[0]) * (bounds[3] - bounds[1]) * 2.0**-MAX_BITS
        self.hair = 8 * unit
        self.dust = min((64 * unit) ** 2, 1e-3 * smallest)
        above, leaves = _divide(land, bounds, self.dust)
        prefix, bits, full, geometry = leaves
        low, high = key_range(prefix, bits, DEPTH)
        order = np.argsort(low)
        self.low, self.high, self.bits = low[order], high[order], bits[order]
        self.prefix, self.full, self.geometry = prefix[order], full[order], geometry[order]
        self.area = np.where(
            self.full, morton.rectangle_areas(self.rectangles()), shapely.area(self.geometry)
        )
        self.cumulative = ragged.cumulative(self.area)
        shapely.prepare(self.geometry[~self.full])
        self._levels = self._sum_up(above)

    def _sum_up(self, above: list[tuple[Keys, Array]]) -> list[_Level]:
        """Areas of the cells above the leaves, each the sum of its two children's."""
        levels: list[_Level] = []
        below: tuple[Keys, Floats] = np.zeros(0, dtype=np.uint64), np.zeros(0)
        for bits in range(len(above), 0, -1):  # children at `bits`, parents at `bits - 1`
            leaf = self.bits == bits
            child = np.concatenate([below[0], self.prefix[leaf]])
            area = np.concatenate([below[1], self.area[leaf]])
            prefix, geometry = above[bits - 1]
            parent = np.searchsorted(prefix, child >> np.uint64(1))
            total: Floats = np.zeros(prefix.size)
            np.add.at(total, parent, area)
            levels.append(_Level(prefix, total, geometry))
            below = prefix, total
        return levels[::-1]

    def rectangles(self) -> Floats:
        """The rectangles of the leaves."""
        return morton.cell_bounds(self.prefix, self.bits, self._bounds)

    def leaf_of(self, fine: Keys) -> Ints:
        """The leaf that holds each key at ``DEPTH`` bits, or -1 where there is no land."""
        leaf = np.searchsorted(self.low, fine, side="right") - 1
        found: Ints = np.where((leaf >= 0) & (fine < self.high[leaf]), leaf, -1)
        return found

    def holder(self, prefix: Keys, bits: Ints) -> Ints:
        """The leaf that each cell lies in (or is); -1 for cells above the leaves and without land."""
        fine = bits > DEPTH
        down, up = np.where(fine, 0, DEPTH - bits), np.where(fine, bits - DEPTH, 0)
        leaf = self.leaf_of((prefix << down.astype(np.uint64)) >> up.astype(np.uint64))
        return np.where((leaf >= 0) & (self.bits[leaf] <= bits), leaf, -1)

    def leaves_under(self, prefix: Keys, bits: Ints) -> tuple[Ints, Ints]:
        """First leaf, and the one after the last, below cells of at most ``DEPTH`` bits."""
        low, high = key_range(prefix, bits, DEPTH)
        return np.searchsorted(self.low, low), np.searchsorted(self.low, high)

    def area_above(self, prefix: Keys, bits: Ints) -> Floats:
        """Areas of cells above the leaves (0 for cells without land)."""
        area = np.zeros(prefix.size)
        for level in np.unique(bits[bits < len(self._levels)]):
            here = np.flatnonzero(bits == level)
            place, found = _find(self._levels[level].prefix, prefix[here])
            area[here] = np.where(found, self._levels[level].area[place], 0.0)
        return area

    def geometry_above(self, prefix: Keys, bits: Ints) -> Array:
        """Land in cells above the leaves."""
        out = np.full(prefix.size, shapely.Polygon(), dtype=object)
        for level in np.unique(bits[bits < len(self._levels)]):
            here = np.flatnonzero(bits == level)
            place, found = _find(self._levels[level].prefix, prefix[here])
            out[here[found]] = self._levels[level].geometry[place[found]]
        return out


def clip(land: Array, rectangles: Floats, dust: float) -> Array:
    """Land inside rectangles, pair by pair; nothing where its area is no more than ``dust``."""
    out: Array = shapely.intersection(land, shapely.box(*rectangles.T))
    # Where land merely touches the rectangle, GEOS gives lines and points.
    mixed = np.flatnonzero(shapely.get_type_id(out) == shapely.GeometryType.GEOMETRYCOLLECTION)
    for i in mixed:
        out[i] = shapely.union_all([part for part in out[i].geoms if part.area > 0])
    out[shapely.area(out) <= dust] = shapely.Polygon()
    return out


def _find(sorted_prefix: Keys, prefix: Keys) -> tuple[Ints, Bools]:
    place = np.minimum(np.searchsorted(sorted_prefix, prefix), max(0, sorted_prefix.size - 1))
    found = sorted_prefix[place] == prefix if sorted_prefix.size else np.zeros(prefix.size, dtype=bool)
    return place, found


def _divide(
    land: shapely.Geometry, bounds: Bounds, dust: float
) -> tuple[list[tuple[Keys, Array]], tuple[Keys, Ints, Bools, Array]]:
    """Cells that were cut, level by level, with their land; and the leaves: prefix, bits, full, land."""
    above: list[tuple[Keys, Array]] = []
    prefixes: list[Keys] = []
    depths: list[Ints] = []
    fulls: list[Bools] = []
    pieces: list[Array] = []
    prefix = ROOT
    geometry = np.array([land], dtype=object)
    for bits in range(DEPTH + 1):
        cell = morton.cell_bounds(prefix, bits, bounds)
        if bits:
            geometry = clip(geometry, cell, dust)
        area = shapely.area(geometry)
        some = area > 0
        prefix, geometry, area, cell = prefix[some], geometry[some], area[some], cell[some]
        full = area >= _FULL * morton.rectangle_areas(cell)
        small = shapely.get_num_coordinates(geometry) <= _VERTICES
        leaf = full | (small & (bits >= _SHALLOWEST)) | (bits == DEPTH)
        if (~leaf).sum() > _MOST_CUT:
            leaf[:] = True
        prefixes.append(prefix[leaf])
        depths.append(np.full(int(leaf.sum()), bits))
        fulls.append(full[leaf])
        coast: Array = geometry[leaf]
        coast[full[leaf]] = None
        pieces.append(coast)
        if leaf.all():
            break
        above.append((prefix[~leaf], geometry[~leaf]))
        prefix = children(prefix[~leaf]).ravel()
        geometry = np.repeat(geometry[~leaf], 2)
    return above, tuple(np.concatenate(part) for part in (prefixes, depths, fulls, pieces))  # type: ignore[return-value]

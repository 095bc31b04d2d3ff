"""Cells of land: halves of the frame of a polygon domain, measured by the land in them."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import shapely

from synthgeo.arrays import Array, Bools, Floats, Ints, Keys, Points
from synthgeo.domain.crs import Bounds
from synthgeo.domain.polygon import PolygonDomain
from synthgeo.errors import DomainError
from synthgeo.hierarchy import morton
from synthgeo.hierarchy.halving import Halving
from synthgeo.hierarchy.keys import MAX_BITS, Bits, as_cells, check_bits, coarsen
from synthgeo.hierarchy.land_index import DEPTH, LandIndex, clip
from synthgeo.hierarchy.sampling import draw_by_weight, uniform_in_polygons, uniform_in_rectangles


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

"""Land cut into cells, coarse inland and fine along the coast, computed once.

Cells that are neither all land nor empty are halved until each holds a small piece of the coast. What
remains are *leaves*: full cells, which need no geometry, and coastal cells with a few dozen vertices. Cells
above the leaves know their area as the sum of their children's; a cell inside a coastal leaf is clipped
from the leaf's small piece. Cells without land are not stored at all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import shapely

from synthgeo import ragged
from synthgeo.arrays import Array, Bools, Floats, Ints, Keys
from synthgeo.domain.crs import Bounds
from synthgeo.hierarchy import keys, morton
from synthgeo.hierarchy.keys import MAX_BITS

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
        low, high = keys.key_range(prefix, bits, DEPTH)
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
        low, high = keys.key_range(prefix, bits, DEPTH)
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
    prefix = keys.ROOT
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
        prefix = keys.children(prefix[~leaf]).ravel()
        geometry = np.repeat(geometry[~leaf], 2)
    return above, tuple(np.concatenate(part) for part in (prefixes, depths, fulls, pieces))  # type: ignore[return-value]

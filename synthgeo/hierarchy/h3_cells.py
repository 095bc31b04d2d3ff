"""Cells of H3 as a hierarchy: nested by index, measured by the finest cells below."""

from __future__ import annotations

from functools import cached_property
from itertools import repeat
from typing import Any

import numpy as np
import shapely

from synthgeo import ragged, validate
from synthgeo.arrays import Array, Bools, Floats, Ints, Keys, Points
from synthgeo.domain.h3 import FINEST, H3Domain, h3_module
from synthgeo.errors import ConfigError, DomainError
from synthgeo.hierarchy.base import (
    MAX_BITS,
    Bits,
    aligned,
    as_cells,
    check_bits,
    coarsen,
    draw_by_weight,
    hierarchy_of,
)

_DIGIT = 3  # bits of one resolution: a cell has up to seven children
_FANOUT = 7


class H3Cells:
    """A coarse cell is the union of the finest cells of the domain below it, never its own hexagon.

    The first level of a tree is the coarsest resolution at which the domain has as many cells as one cell has
    children, numbered in H3's order; each further level is one resolution. All of it is public. Between two
    resolutions, one bit at a time, lie unions of neighbouring children.
    """

    fanout = _FANOUT

    def __init__(self, domain: H3Domain) -> None:
        self.domain = domain
        self._first = next(
            (r for r in range(domain.resolution) if np.unique(_parents(domain.cells, r)).size >= _FANOUT),
            domain.resolution,
        )
        self._top, rank = np.unique(_parents(domain.cells, self._first), return_inverse=True)
        self._top_bits = max(int(self._top.size - 1).bit_length(), 1)
        self._below = domain.resolution - self._first
        self.bits = self._top_bits + _DIGIT * self._below  # of the finest cells
        digits = (domain.cells >> np.uint64(_DIGIT * (FINEST - domain.resolution))) & np.uint64(
            (1 << _DIGIT * self._below) - 1
        )
        self.keys: Keys = (rank.astype(np.uint64) << np.uint64(_DIGIT * self._below)) | digits
        self._starts = aligned(self.keys, self.bits)

    @cached_property
    def _area(self) -> Floats:
        """Running total of the areas of the finest cells, in km²."""
        cells = self.domain.cells
        area = map(h3_module().cell_area, cells.tolist(), repeat("km^2"))
        return ragged.cumulative(np.fromiter(area, np.float64, cells.size))

    def levels(self, max_depth: int, fanout: int) -> tuple[int, ...]:
        """Bits of the cells at depth 0, 1, ..., to the domain's resolution or to ``max_depth``."""
        if fanout != _FANOUT:
            raise ConfigError(f"cells of H3 have {_FANOUT} children: leave fanout alone, got {fanout!r}")
        validate.whole(max_depth, "max_depth", low=1, high=MAX_BITS)
        return (0, *range(self._top_bits, self.bits + 1, _DIGIT))[: max_depth + 1]

    def locate(self, xy: Points, bits: int) -> tuple[Keys, Bools]:
        """Key of the finest cell of each point at ``bits`` bits, and whether it is one of the domain's."""
        check_bits(bits)
        at, inside = self.domain.rank(xy)
        return np.where(inside, coarsen(self._starts[at], MAX_BITS, bits), np.uint64(0)), inside

    def _finest(self, prefix: Keys, bits: Bits) -> tuple[Ints, Ints]:
        """Where the finest cells below each cell begin and end."""
        prefix, depth = as_cells(prefix, bits)
        first = np.searchsorted(self._starts, aligned(prefix, depth))
        return first, np.searchsorted(self._starts, aligned(prefix + np.uint64(1), depth))

    def measure(self, prefix: Keys, bits: Bits) -> Floats:
        """Area on the ground, in km²."""
        first, last = self._finest(prefix, bits)
        return np.where(last > first, self._area[last] - self._area[first], 0.0)

    def sample(self, prefix: Keys, bits: Bits, counts: Ints, rng: np.random.Generator) -> Points:
        """``counts[i]`` points uniform on the ground inside cell i, all cells concatenated in order."""
        first, last = self._finest(prefix, bits)
        counts = np.asarray(counts, dtype=np.int64)
        if np.any((counts > 0) & (last == first)):
            raise DomainError("cannot place points in a cell outside the domain")
        return self._uniform(draw_by_weight(self._area, first, last, counts, rng), rng)

    def _uniform(self, rank: Ints, rng: np.random.Generator) -> Points:
        """One point in each of these finest cells: uniform in the cap around it, until H3 says it is inside.

        What a cell holds is H3's decision on the sphere, not that of an outline drawn in degrees, so a point
        is always in the cell that it was drawn for.
        """
        cells, which = np.unique(rank, return_inverse=True)
        centre = np.array([h3_module().cell_to_latlng(cell) for cell in self.domain.cells[cells].tolist()])
        centre = centre.reshape(-1, 2)[:, ::-1]
        corners, owner = shapely.get_coordinates(self.domain.hexagons[cells], return_index=True)
        reach = np.zeros(cells.size)
        np.maximum.at(reach, owner, _angles(corners, centre[owner]))
        out = np.empty((rank.size, 2))
        open_ = np.arange(rank.size)
        while open_.size:
            of = which[open_]
            out[open_] = _in_caps(centre[of], reach[of] * 1.001, rng)
            at, inside = self.domain.rank(out[open_])
            open_ = open_[~inside | (at != rank[open_])]
        return out

    def geometry(self, prefix: Keys, bits: Bits) -> Array:
        """The union of the finest cells below each cell."""
        first, last = self._finest(prefix, bits)
        hexagons = self.domain.hexagons
        out = np.empty(first.size, dtype=object)
        out[:] = [shapely.union_all(hexagons[a:b]) for a, b in zip(first, last, strict=True)]
        return out

    def names(self, prefix: Keys, bits: Bits) -> list[str | None]:
        """Each cell as H3 writes it; None for what is no cell of H3 (the whole domain, halves of cells)."""
        prefix, depth = as_cells(prefix, bits)
        first, last = self._finest(prefix, depth)
        steps, rest = np.divmod(depth - self._top_bits, _DIGIT)
        known = (depth >= self._top_bits) & (rest == 0) & (steps <= self._below) & (last > first)
        texts: list[str | None] = [None] * prefix.size
        for cell in np.flatnonzero(known).tolist():
            index = _parents(self.domain.cells[first[cell]], self._first + int(steps[cell]))
            texts[cell] = h3_module().int_to_str(int(index))
        return texts

    def __reduce__(self) -> tuple[Any, ...]:
        return hierarchy_of, (self.domain,)

    def __repr__(self) -> str:
        return f"H3Cells({self.domain!r})"


def _parents(cells: Keys, resolution: int) -> Keys:
    """The cells at ``resolution`` that hold cells, by H3's bit layout: the resolution in bits 52 to 55, then
    the base cell, then fifteen digits of three bits, all ones below the resolution.
    """
    unused = (1 << _DIGIT * (FINEST - resolution)) - 1
    cleared = cells & np.uint64(~(0xF << 52) & (2**64 - 1))
    parents: Keys = cleared | np.uint64((resolution << 52) | unused)
    return parents


def _angles(corners: Points, centre: Points) -> Floats:
    """Great-circle distances in radians, by the haversine."""
    lon, lat = np.radians(corners).T
    lon0, lat0 = np.radians(centre).T
    square = np.sin((lat - lat0) / 2) ** 2 + np.cos(lat) * np.cos(lat0) * np.sin((lon - lon0) / 2) ** 2
    distance: Floats = 2 * np.arcsin(np.sqrt(square))
    return distance


def _in_caps(centre: Points, reach: Floats, rng: np.random.Generator) -> Points:
    """A point uniform in each spherical cap: the height of the cap is uniform, and so is the direction."""
    lon0, lat0 = np.radians(centre).T
    turn = rng.random(len(centre)) * 2 * np.pi
    half = np.sqrt(rng.random(len(centre))) * np.sin(reach / 2)  # sine of half the distance
    sine, cosine = 2 * half * np.sqrt(1 - half**2), 1 - 2 * half**2
    up = np.sin(lat0) * cosine + np.cos(lat0) * sine * np.cos(turn)
    lat = np.arcsin(np.clip(up, -1.0, 1.0))
    lon = lon0 + np.arctan2(np.sin(turn) * sine * np.cos(lat0), cosine - np.sin(lat0) * up)
    return np.column_stack([(np.degrees(lon) + 180) % 360 - 180, np.degrees(lat)])

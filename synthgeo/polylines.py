"""Polylines: lines of straight segments, kept one after the other in flat arrays."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import shapely

from synthgeo.arrays import Array, Floats, Ints, Points
from synthgeo.ragged import interpolate, offsets_of, owners_of, ranks_of, running, take, where


@dataclass(frozen=True, eq=False)
class Polylines:
    """Lines with the vertices ``xy[offsets[i]:offsets[i + 1]]``, at least one each. Distances are in metres.

    ``scale`` turns units of the coordinates into metres, along x and along y.

    >>> lines = Polylines(np.array([[0.0, 0.0], [3.0, 4.0], [3.0, 9.0], [1.0, 1.0]]), np.array([0, 3, 4]))
    >>> lines.lengths.tolist()
    [10.0, 0.0]
    >>> lines.at(np.array([0, 0]), np.array([2.5, 8.0])).tolist()
    [[1.5, 2.0], [3.0, 7.0]]
    """

    xy: Points
    offsets: Ints
    scale: tuple[float, float] = (1.0, 1.0)

    @cached_property
    def along(self) -> Floats:
        """Metres from the start of its line to each vertex."""
        step = np.zeros(len(self.xy))
        step[1:] = np.hypot(*(np.diff(self.xy, axis=0) * self.scale).T)
        return running(step, self.offsets)

    @property
    def lengths(self) -> Floats:
        """Metres of each line."""
        return self.along[self.offsets[1:] - 1]

    def at(self, line: Ints, metres: Floats) -> Points:
        """The points so many metres along these lines; no farther than their ends."""
        return interpolate(self.along, self.xy, self.offsets, line, metres)

    def between(self, low: Floats, high: Floats) -> Polylines:
        """The part of each line from ``low`` to ``high`` metres: two points at least."""
        owner = owners_of(self.offsets)
        inside = (self.along > low[owner]) & (self.along < high[owner])
        lines = np.arange(len(low))
        offsets = offsets_of(np.bincount(owner[inside], minlength=len(low)) + 2)
        xy = np.empty((offsets[-1], 2))
        xy[offsets[:-1]], xy[offsets[1:] - 1] = self.at(lines, low), self.at(lines, high)
        inner = np.ones(len(xy), dtype=bool)
        inner[offsets[:-1]] = inner[offsets[1:] - 1] = False
        xy[inner] = self.xy[inside]
        return Polylines(xy, offsets, self.scale)

    def without_repeats(self) -> Polylines:
        """The same lines without vertices that repeat the one before; a line of no length keeps two."""
        keep = np.ones(len(self.xy), dtype=bool)
        keep[1:] = np.diff(self.along) != 0.0
        keep[self.offsets[:-1]] = True
        alone = np.diff(where(self.offsets, keep)) == 1
        keep[self.offsets[1:][alone] - 1] = True
        return Polylines(self.xy[keep], where(self.offsets, keep), self.scale)

    def cut(self, pieces: Ints) -> tuple[Points, Ints]:
        """Points that cut line i into ``pieces[i]`` parts of equal length, both ends included; and offsets of
        each line's points.
        """
        offsets = offsets_of(pieces + 1)
        line = owners_of(offsets)
        share = ranks_of(pieces + 1) / pieces[line]
        return self.at(line, share * self.lengths[line]), offsets

    def take(self, index: Ints) -> Polylines:
        """The lines at these positions, in that order."""
        rows, offsets = take(self.offsets, index)
        return Polylines(self.xy[rows], offsets, self.scale)

    def shapes(self) -> Array:
        """LineStrings; every line must have two vertices."""
        lines: Any = shapely.linestrings(self.xy, indices=owners_of(self.offsets))
        return np.asarray(lines)


__all__ = ["Polylines"]

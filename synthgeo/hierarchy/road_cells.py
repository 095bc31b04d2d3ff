"""Cells of roads: halves of the frame of a road network, measured by the metres of road in them."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from synthgeo.arrays import Array, Bools, Floats, Ints, Keys, Points
from synthgeo.domain.roads import RoadDomain
from synthgeo.hierarchy.halving import Halving
from synthgeo.hierarchy.keys import Bits, as_cells, check_bits
from synthgeo.hierarchy.road_pieces import RoadPieces


class RoadCells(Halving[RoadDomain]):
    """A point's cell is the cell of the place on the road that it snaps to."""

    @cached_property
    def pieces(self) -> RoadPieces:
        """The roads cut at the lines of a fine grid, once."""
        return RoadPieces(self.domain.network.segments, self.domain.bounds)

    def locate(self, xy: Points, bits: int) -> tuple[Keys, Bools]:
        """Key of the place on the road that each point snaps to, and whether a road is near enough."""
        check_bits(bits)
        segment, along = self.domain.nearest_segment(xy)
        inside = segment >= 0
        keys = np.zeros(len(segment), dtype=np.uint64)
        keys[inside] = self.pieces.keys(segment[inside], along[inside], bits)
        return keys, inside

    def measure(self, prefix: Keys, bits: Bits) -> Floats:
        """Metres of road in cells."""
        return self.pieces.measure(*as_cells(prefix, bits))

    def sample(self, prefix: Keys, bits: Bits, counts: Ints, rng: np.random.Generator) -> Points:
        """``counts[i]`` points uniform on the roads inside cell i, all cells concatenated in order."""
        return self.pieces.sample(*as_cells(prefix, bits), np.asarray(counts, dtype=np.int64), rng)

    def geometry(self, prefix: Keys, bits: Bits) -> Array:
        """The roads inside each cell, as multi-lines."""
        return self.pieces.lines(*as_cells(prefix, bits))

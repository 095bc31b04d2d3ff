"""What a hierarchy is: a way to cut a domain into cells, and the cells' public measure on the domain."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from typing import Protocol

import numpy as np

from synthgeo.arrays import Array, Bools, Floats, Ints, Keys, Points
from synthgeo.domain.coordinates import check_outside
from synthgeo.domain.spatial import SpatialDomain
from synthgeo.errors import ConfigError, DomainError
from synthgeo.hierarchy.keys import Bits
from synthgeo.sources.chunk import refuse

# How domains are cut, by their kind.
HIERARCHIES = {
    "box": "synthgeo.hierarchy.halving:BoxCells",
    "h3": "synthgeo.hierarchy.h3_cells:H3Cells",
    "polygon": "synthgeo.hierarchy.land_cells:LandCells",
    "roads": "synthgeo.hierarchy.road_cells:RoadCells",
}


class Hierarchy(Protocol):
    """Nested cells over a domain. Cells are addressed as ``synthgeo.hierarchy.keys`` describes.

    The measure (area, length of road) of the cells below a cell adds up to its own. Cells of measure 0 hold
    nothing by public knowledge, so they are pruned without touching private data; no point is ever located
    in one. Picklable.
    """

    @property
    def domain(self) -> SpatialDomain:
        """What is cut."""
        ...

    @property
    def fanout(self) -> int:
        """Into how many a cell is cut where nobody says: 2 for halves, 7 for H3."""
        ...

    def levels(self, max_depth: int, fanout: int) -> tuple[int, ...]:
        """Bits of the cells at depth 0 (where it is 0), 1, ..., for trees of that fanout: to ``max_depth``,
        or to the finest cells that there are.
        """
        ...

    def locate(self, xy: Points, bits: int) -> tuple[Keys, Bools]:
        """Key of each point at ``bits`` bits, and whether it is in the domain (keys elsewhere are 0)."""
        ...

    def measure(self, prefix: Keys, bits: Bits) -> Floats:
        """Measure of the domain in cells; 0 means that the domain has nothing there."""
        ...

    def sample(self, prefix: Keys, bits: Bits, counts: Ints, rng: np.random.Generator) -> Points:
        """``counts[i]`` points uniform on the domain inside cell i, all cells concatenated in order."""
        ...

    def names(self, prefix: Keys, bits: Bits) -> list[str | None] | None:
        """What the rest of the world calls each cell, None where it has no name for one; None for cells that
        are only ours.
        """
        ...

    def geometry(self, prefix: Keys, bits: Bits) -> Array:
        """The domain inside each cell: rectangles for boxes, clipped land, pieces of road, hexagons."""
        ...


@lru_cache(maxsize=8)
def hierarchy_of(domain: SpatialDomain) -> Hierarchy:
    """The hierarchy that cuts this domain. Equal domains share one: what it computed is worth keeping."""
    if domain.kind not in HIERARCHIES:
        raise ConfigError(f"no hierarchy cuts domains of kind {domain.kind!r}")
    module, _, name = HIERARCHIES[domain.kind].partition(":")
    made: Hierarchy = getattr(import_module(module), name)(domain)
    return made


def locate_points(
    hierarchy: Hierarchy, xy: Points, bits: int, *, outside: str = "drop"
) -> tuple[Keys, Bools]:
    """Keys of points; what lies outside the domain is dropped, or an error (``outside="error"``)."""
    check_outside(outside)
    keys, inside = hierarchy.locate(xy, bits)
    if outside == "error":
        refuse(~inside, None, f"the point lies outside the {hierarchy.domain.kind} domain", DomainError)
    return keys, inside

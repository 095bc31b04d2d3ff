"""Cells made by halving the frame of a domain, its bounding box, in x and y in turn; here of a plain box."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import numpy as np
import shapely

from synthgeo import validate
from synthgeo.arrays import Array, Bools, Floats, Ints, Keys, Points
from synthgeo.domain.box import BoxDomain
from synthgeo.domain.spatial import SpatialDomain
from synthgeo.errors import ConfigError
from synthgeo.hierarchy import morton
from synthgeo.hierarchy.base import hierarchy_of
from synthgeo.hierarchy.keys import MAX_BITS, Bits
from synthgeo.hierarchy.sampling import uniform_in_rectangles

D = TypeVar("D", bound=SpatialDomain)


class Halving(Generic[D]):
    """What the hierarchies of halves share: a level is as many halvings as the fanout needs."""

    fanout = 2

    def __init__(self, domain: D) -> None:
        self.domain: D = domain

    def levels(self, max_depth: int, fanout: int) -> tuple[int, ...]:
        """Bits of the cells at depth 0, 1, ..., ``max_depth``."""
        step = int(fanout).bit_length() - 1
        if fanout < 2 or fanout != 1 << step:
            raise ConfigError(f"fanout must be a power of two (2, 4, 8, ...), got {fanout!r}")
        validate.whole(max_depth, f"max_depth at fanout {fanout}", low=1, high=MAX_BITS // step)
        return tuple(range(0, max_depth * step + 1, step))

    def names(self, prefix: Keys, bits: Bits) -> None:  # noqa: ARG002
        """None: halves of a frame have no names elsewhere."""
        return

    def __reduce__(self) -> tuple[Any, ...]:
        return hierarchy_of, (self.domain,)  # indices are rebuilt once, where they are needed

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.domain!r})"


class BoxCells(Halving[BoxDomain]):
    """Rectangles, measured by their area in the units of the CRS.

    >>> cells = BoxCells(BoxDomain(0, 0, 4, 2))
    >>> keys, inside = cells.locate(np.array([[0.5, 1.5], [4.0, 2.0], [9.0, 9.0]]), bits=2)
    >>> keys.tolist(), inside.tolist()
    ([1, 3, 0], [True, True, False])
    """

    def locate(self, xy: Points, bits: int) -> tuple[Keys, Bools]:
        """Key of each point at ``bits`` bits, and whether it is in the box (keys elsewhere are 0)."""
        return morton.locate(xy, bits, self.domain.bounds)

    def measure(self, prefix: Keys, bits: Bits) -> Floats:
        """Area of cells."""
        return morton.rectangle_areas(morton.cell_bounds(prefix, bits, self.domain.bounds))

    def sample(self, prefix: Keys, bits: Bits, counts: Ints, rng: np.random.Generator) -> Points:
        """``counts[i]`` points uniform in cell i, all cells concatenated in order."""
        return uniform_in_rectangles(morton.cell_bounds(prefix, bits, self.domain.bounds), counts, rng)

    def geometry(self, prefix: Keys, bits: Bits) -> Array:
        """Each cell as a rectangle."""
        rectangles: Array = shapely.box(*morton.cell_bounds(prefix, bits, self.domain.bounds).T)
        return rectangles

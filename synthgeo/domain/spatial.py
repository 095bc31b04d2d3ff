"""What every spatial domain offers: a frame of Morton cells, and a public measure on them.

A *cell* is a pair (prefix, bits): the frame (the domain's bounding box) is halved ``bits`` times, in x and
y in turn, x first, and ``prefix`` holds the halves taken, first one in the highest bit. The cell of 0 bits
is the whole frame. A *key* is the prefix of a point at the finest level asked for. Keys are ``uint64``, at
most ``MAX_BITS`` bits, and cells below a cell are a contiguous range of keys: that is what makes a level of
a tree one ``searchsorted``.

The measure is area (boxes, land) or road length. Cells of measure 0 hold nothing by public knowledge, so
they are pruned without touching private data.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
import shapely
from numpy.typing import NDArray
from pyproj import CRS

MAX_BITS = 62

Keys = NDArray[np.uint64]
Points = NDArray[np.float64]


@runtime_checkable
class SpatialDomain(Protocol):
    """Boxes, land and road networks, seen by partitions and synthesizers."""

    @property
    def kind(self) -> str:
        """``"box"``, ``"polygon"`` or ``"roads"``."""
        ...

    @property
    def crs(self) -> CRS | None:
        """The coordinate system of all coordinates here; None for plain numbers."""
        ...

    @property
    def bounds(self) -> tuple[float, float, float, float]:
        """The frame: (minx, miny, maxx, maxy)."""
        ...

    def locate(self, xy: Points, bits: int) -> tuple[Keys, NDArray[np.bool_]]:
        """Key of each point at ``bits`` bits, and whether it is in the domain (keys elsewhere are 0)."""
        ...

    def measure(self, prefix: Keys, bits: int | NDArray[np.int64]) -> NDArray[np.float64]:
        """Area or road length of cells; 0 means that the domain has nothing there."""
        ...

    def sample(
        self, prefix: Keys, bits: int | NDArray[np.int64], counts: NDArray[np.int64], rng: np.random.Generator
    ) -> Points:
        """``counts[i]`` points uniform on the domain inside cell i, all cells concatenated in order."""
        ...

    def geometry(self, prefix: Keys, bits: int | NDArray[np.int64]) -> NDArray[Any]:
        """The domain inside each cell: rectangles for boxes, clipped land, road pieces."""
        ...

    def outline(self) -> shapely.Geometry:
        """The whole domain, for maps."""
        ...

    def describe(self) -> dict[str, Any]:
        """Public facts for provenance: kind, CRS, bounds and a fingerprint of the geometry."""
        ...

    def to_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """JSON values and arrays from which ``domain_from_state`` rebuilds the domain."""
        ...

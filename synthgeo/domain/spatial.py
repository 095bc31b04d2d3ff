"""What every spatial domain says: where points can be. How it is cut into cells is ``synthgeo.hierarchy``'s
business.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
import shapely
from pyproj import CRS

from synthgeo.arrays import Bools, Points


@runtime_checkable
class SpatialDomain(Protocol):
    """Boxes, land, road networks and cells of H3. Public knowledge, immutable, hashable and picklable."""

    @property
    def kind(self) -> str:
        """``"box"``, ``"polygon"``, ``"roads"`` or ``"h3"``: by it ``synthgeo.hierarchy`` knows how to
        cut it.
        """
        ...

    @property
    def crs(self) -> CRS | None:
        """The coordinate system of all coordinates here; None for plain numbers."""
        ...

    @property
    def bounds(self) -> tuple[float, float, float, float]:
        """The frame: (minx, miny, maxx, maxy)."""
        ...

    def __hash__(self) -> int: ...

    def contains(self, xy: Points) -> Bools:
        """Whether each point is in the domain."""
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

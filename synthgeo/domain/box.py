"""A rectangle: the domain of whoever knows no more than the extent of the data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import shapely
from pyproj import CRS

from synthgeo.arrays import Bools, Points
from synthgeo.domain.coordinates import (
    Bounds,
    check_area_of_use,
    check_bounds,
    crs_text,
    fingerprint,
    parse_crs,
)


@dataclass(frozen=True, init=False)
class BoxDomain:
    """All points with minx <= x <= maxx and miny <= y <= maxy.

    Without ``crs`` the box is plain numbers: it takes arrays and x/y columns, but no lon/lat columns. The
    measure is area in the units of the CRS: in degrees it is not area on the ground, so project first where
    that matters.

    >>> BoxDomain(0, 0, 4, 2).contains(np.array([[0.5, 1.5], [4.0, 2.0], [9.0, 9.0]])).tolist()
    [True, True, False]
    """

    bounds: Bounds
    crs: CRS | None
    kind = "box"

    def __init__(self, minx: float, miny: float, maxx: float, maxy: float, *, crs: Any = None) -> None:
        object.__setattr__(self, "bounds", check_bounds(minx, miny, maxx, maxy))
        object.__setattr__(self, "crs", parse_crs(crs))
        check_area_of_use(self.bounds, self.crs)

    def contains(self, xy: Points) -> Bools:
        """Whether each point is in the box, its boundary included."""
        minx, miny, maxx, maxy = self.bounds
        x, y = np.asarray(xy, dtype=np.float64).T
        inside: Bools = (x >= minx) & (x <= maxx) & (y >= miny) & (y <= maxy)
        return inside

    def outline(self) -> shapely.Geometry:
        """The box as a polygon."""
        return shapely.box(*self.bounds)

    def describe(self) -> dict[str, Any]:
        """Public facts for provenance."""
        crs = crs_text(self.crs)
        return {
            "kind": self.kind,
            "crs": crs,
            "bounds": list(self.bounds),
            "fingerprint": fingerprint(self.kind, crs, self.bounds),
        }

    def to_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """JSON values and arrays from which ``domain_from_state`` rebuilds the domain."""
        return {"kind": self.kind, "crs": crs_text(self.crs), "bounds": list(self.bounds)}, {}

    @classmethod
    def from_state(cls, values: Mapping[str, Any], _arrays: Mapping[str, np.ndarray]) -> BoxDomain:
        """The inverse of ``to_state``. A box that was saved is taken as it is, wherever it lies."""
        box = cls.__new__(cls)
        object.__setattr__(box, "bounds", check_bounds(*values["bounds"]))
        object.__setattr__(box, "crs", parse_crs(values["crs"]))
        return box

    def __repr__(self) -> str:
        numbers = ", ".join(f"{bound:g}" for bound in self.bounds)
        return (
            f"BoxDomain({numbers})"
            if self.crs is None
            else f"BoxDomain({numbers}, crs={crs_text(self.crs)!r})"
        )


# What every spatial domain says: where points can be. How it is cut into cells is ``synthgeo.hierarchy``'s
# business.


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

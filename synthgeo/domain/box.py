"""A rectangle: the domain of whoever knows no more than the extent of the data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray
from pyproj import CRS

from synthgeo.domain.crs import Bounds, check_bounds, crs_text, fingerprint, parse_crs
from synthgeo.domain.sampling import uniform_in_rectangles
from synthgeo.domain.spatial import Keys, Points
from synthgeo.hierarchy import morton


@dataclass(frozen=True, init=False)
class BoxDomain:
    """All points with minx <= x <= maxx and miny <= y <= maxy.

    Without ``crs`` the box is plain numbers: it takes arrays and x/y columns, but no lon/lat columns. The
    measure is area in the units of the CRS: in degrees it is not area on the ground, so project first where
    that matters.

    >>> city = BoxDomain(0, 0, 4, 2)
    >>> keys, inside = city.locate(np.array([[0.5, 1.5], [4.0, 2.0], [9.0, 9.0]]), bits=2)
    >>> keys.tolist(), inside.tolist()
    ([1, 3, 0], [True, True, False])
    """

    bounds: Bounds
    crs: CRS | None
    kind = "box"

    def __init__(self, minx: float, miny: float, maxx: float, maxy: float, *, crs: Any = None) -> None:
        object.__setattr__(self, "bounds", check_bounds(minx, miny, maxx, maxy))
        object.__setattr__(self, "crs", parse_crs(crs))

    def locate(self, xy: Points, bits: int) -> tuple[Keys, NDArray[np.bool_]]:
        """Key of each point at ``bits`` bits, and whether the point is in the box (keys elsewhere are 0)."""
        return morton.locate(xy, bits, self.bounds)

    def measure(self, prefix: Keys, bits: int | NDArray[np.int64]) -> NDArray[np.float64]:
        """Area of cells."""
        cell = morton.cell_bounds(prefix, bits, self.bounds)
        area: NDArray[np.float64] = (cell[:, 2] - cell[:, 0]) * (cell[:, 3] - cell[:, 1])
        return area

    def sample(
        self, prefix: Keys, bits: int | NDArray[np.int64], counts: NDArray[np.int64], rng: np.random.Generator
    ) -> Points:
        """``counts[i]`` points uniform in cell i, all cells concatenated in order."""
        return uniform_in_rectangles(morton.cell_bounds(prefix, bits, self.bounds), counts, rng)

    def geometry(self, prefix: Keys, bits: int | NDArray[np.int64]) -> NDArray[Any]:
        """Each cell as a rectangle."""
        rectangles: NDArray[Any] = shapely.box(*morton.cell_bounds(prefix, bits, self.bounds).T)
        return rectangles

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
        """The inverse of ``to_state``."""
        return cls(*values["bounds"], crs=values["crs"])

    def __repr__(self) -> str:
        numbers = ", ".join(f"{bound:g}" for bound in self.bounds)
        return (
            f"BoxDomain({numbers})"
            if self.crs is None
            else f"BoxDomain({numbers}, crs={crs_text(self.crs)!r})"
        )

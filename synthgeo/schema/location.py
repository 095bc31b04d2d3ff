"""Places as columns of a table: cells of a public grid over a spatial domain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from synthgeo.arrays import Bools, Floats, Keys
from synthgeo.domain.box import SpatialDomain
from synthgeo.domain.coordinates import (
    WGS84,
    CoordinateReader,
    domain_from_state,
    find_coordinates,
    transform,
)
from synthgeo.domain.polygon import as_domain
from synthgeo.errors import ConfigError, DomainError
from synthgeo.hierarchy.base import hierarchy_of
from synthgeo.hierarchy.h3_cells import H3Cells
from synthgeo.schema.columns import Attribute, Chunk, Codes, Column, Condition
from synthgeo.sources.chunk import refuse
from synthgeo.sources.values import numbers


@dataclass(frozen=True, eq=False)
class Location(Column):
    """A place: a cell of a public grid over a spatial domain.

    ``cells`` (a power of two) is how many Morton cells the frame of the domain is cut into; cells that
    hold nothing of the domain are left out. An ``H3Domain`` has its own cells, and ``cells`` says nothing.
    The coordinates come from the columns ``columns``, by default
    ``<name>_lon`` and ``<name>_lat`` in degrees when the domain has a CRS, else ``<name>_x`` and
    ``<name>_y``. Places outside the domain are an error, or a category of their own with
    ``outside="category"``. A place drawn outside has no coordinates, and a row without them is read as
    outside there, or as missing where ``missing=True``."""

    domain: SpatialDomain
    cells: int = 64
    columns: tuple[str, str] | None = None
    missing: bool = False
    outside: str = "error"
    prefix: Keys = field(init=False, repr=False)
    kind: ClassVar[str] = "location"
    reads: ClassVar[str] = "number"

    def __init__(
        self,
        domain: SpatialDomain,
        *,
        cells: int = 64,
        columns: tuple[str, str] | None = None,
        missing: bool = False,
        outside: str = "error",
    ) -> None:
        if (
            isinstance(cells, bool)
            or not isinstance(cells, int)
            or cells < 2
            or cells & (cells - 1)
            or cells > 2**20
        ):
            raise ConfigError(f"cells must be a power of two from 2 to 2^20, got {cells!r}")
        if outside not in ("error", "category"):
            raise ConfigError(f"outside must be 'error' or 'category', got {outside!r}")
        domain = as_domain(domain)
        if not isinstance(domain, SpatialDomain):
            raise ConfigError(f"a location needs a spatial domain, got {domain!r}")
        cut = hierarchy_of(domain)
        if isinstance(cut, H3Cells):
            kept = cut.keys
        else:
            grid = np.arange(cells, dtype=np.uint64)
            kept = grid[cut.measure(grid, cells.bit_length() - 1) > 0]
        if kept.size == 0:
            raise ConfigError("the domain of a location is empty")
        for name, value in (
            ("domain", domain), ("cells", cells), ("columns", None if columns is None else tuple(columns)),
            ("missing", bool(missing)), ("outside", outside), ("prefix", kept),
        ):  # fmt: skip
            object.__setattr__(self, name, value)

    @property
    def bits(self) -> int:
        """How often the frame is halved; of cells of H3, the bits of their keys."""
        cut = hierarchy_of(self.domain)
        return cut.bits if isinstance(cut, H3Cells) else self.cells.bit_length() - 1

    def geometry(self) -> NDArray[Any]:
        """The shape of each cell, in the domain's CRS."""
        return hierarchy_of(self.domain).geometry(self.prefix, self.bits)

    def inputs(self, name: str) -> tuple[str, ...]:
        if self.columns is not None:
            return self.columns
        return (f"{name}_lon", f"{name}_lat") if self.domain.crs is not None else (f"{name}_x", f"{name}_y")

    def attributes(self, name: str) -> tuple[Attribute, ...]:
        size = self.prefix.size + (self.outside == "category") + self.missing
        return (Attribute(name, size, apart=tuple(range(self.prefix.size, size))),)

    def encode(self, name: str, chunk: Chunk) -> Codes:
        x, y = self.inputs(name)
        reader = find_coordinates([x, y], self.domain, x=x, y=y)
        given = {x: numbers(chunk, x), y: numbers(chunk, y)}
        absent = np.isnan(given[x]) | np.isnan(given[y])
        if not self.missing and self.outside == "error":
            refuse(absent, x, "is missing; the schema does not say missing=True", DomainError)
        # A missing place is read as any point of the domain's frame, so that row numbers stay right.
        stand_in = dict(zip((x, y), self._anywhere(reader), strict=True))
        xy = reader({key: np.where(absent, stand_in[key], values) for key, values in given.items()})
        keys, inside = hierarchy_of(self.domain).locate(xy, self.bits)
        at = np.minimum(np.searchsorted(self.prefix, keys), self.prefix.size - 1)
        inside &= self.prefix[at] == keys
        if self.outside == "error":
            refuse(~inside & ~absent, x, f"the place lies outside the {self.domain.kind} domain", DomainError)
        codes = np.where(inside, at, self.prefix.size if self.outside == "category" else 0)
        codes[absent] = self.prefix.size + (self.missing and self.outside == "category")
        return codes.astype(np.int64)[:, None]

    @property
    def takes_others(self) -> bool:
        return self.outside == "category"

    def declared(self, name: str, chunk: Chunk) -> tuple[Bools, Bools]:
        codes = self.encode(name, chunk)[:, 0]
        return codes <= self.prefix.size, codes < self.prefix.size

    def _anywhere(self, reader: CoordinateReader) -> tuple[float, float]:
        """One point of the domain's frame, in the coordinates of the data."""
        minx, miny, maxx, maxy = self.domain.bounds
        middle = np.array([[(minx + maxx) / 2, (miny + maxy) / 2]])
        if reader.source is not None and reader.source != reader.target:
            middle = transform(middle, reader.target, reader.source)
        return float(middle[0, 0]), float(middle[0, 1])

    def decode(
        self,
        name: str,
        codes: Codes,
        rng: np.random.Generator,
        within: Any = None,  # noqa: ARG002
    ) -> dict[str, Any]:
        flat = codes[:, 0]
        xy = np.full((len(flat), 2), np.nan)
        order = np.argsort(flat, kind="stable")
        counts = np.bincount(flat, minlength=self.prefix.size)[: self.prefix.size].astype(np.int64)
        points = hierarchy_of(self.domain).sample(self.prefix, self.bits, counts, rng)
        # neighbours in memory are neighbours in space (roads): shuffle within a cell
        shuffled = np.lexsort((rng.random(len(points)), np.repeat(np.arange(counts.size), counts)))
        xy[order[: len(points)]] = points[shuffled]
        x, y = self.inputs(name)
        reader = find_coordinates([x, y], self.domain, x=x, y=y)
        if reader.source is not None and reader.source != reader.target:
            xy = transform(xy, reader.target, reader.source if reader.source != "EPSG:4326" else WGS84)
        xy[~np.isfinite(xy).all(axis=1)] = np.nan
        return {x: pd.Series(xy[:, 0]), y: pd.Series(xy[:, 1])}

    def matching(self, name: str, wanted: Any, masses: Floats | None = None) -> Condition:  # noqa: ARG002
        """A condition on a place is one point (x, y) in the domain's CRS, or a list of them: their cells; or
        None for a missing place.
        """
        accepted = np.zeros(self.attributes(name)[0].size)
        if wanted is None:
            if not self.missing:
                raise ConfigError(f"given: column {name!r} has no missing values")
            accepted[-1] = 1.0
            return Condition({(name,): accepted})
        try:
            points = np.asarray(wanted, dtype=np.float64).reshape(-1, 2)
        except (TypeError, ValueError):
            raise ConfigError(f"given: column {name!r} takes a point (x, y), got {wanted!r}") from None
        keys, inside = hierarchy_of(self.domain).locate(points, self.bits)
        met = np.isin(keys, self.prefix)
        if not len(points) or not (inside & met).all():
            raise ConfigError(f"given: the point for column {name!r} lies outside the domain")
        accepted[: self.prefix.size] = np.isin(self.prefix, keys)
        return Condition({(name,): accepted})

    def to_json(self) -> dict[str, Any]:
        values, arrays = self.domain.to_state()
        plain = {
            key: {"dtype": a.dtype.str, "shape": list(a.shape), "data": a.ravel().tolist()}
            for key, a in arrays.items()
        }
        out: dict[str, Any] = {
            "type": self.kind,
            "cells": self.cells,
            "domain": {"values": values, "arrays": plain},
        }
        if self.columns is not None:
            out["columns"] = list(self.columns)
        if self.missing:
            out["missing"] = True
        return out if self.outside == "error" else {**out, "outside": self.outside}


def location_from_json(value: Mapping[str, Any]) -> Location:
    """The location whose ``to_json`` gave this."""
    arrays = {
        key: np.array(a["data"], dtype=np.dtype(a["dtype"])).reshape(a["shape"])
        for key, a in value["domain"].get("arrays", {}).items()
    }
    columns = value.get("columns")
    return Location(
        domain_from_state(value["domain"]["values"], arrays),
        cells=value["cells"],
        columns=None if columns is None else (columns[0], columns[1]),
        missing=value.get("missing", False),
        outside=value.get("outside", "error"),
    )

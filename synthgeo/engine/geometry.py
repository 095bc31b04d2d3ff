"""Where the points are: the geometry column of Arrow data, and coordinates from any usual pair of columns."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyproj import CRS, Transformer
from pyproj.exceptions import CRSError

from synthgeo.engine.chunk import Array, bad_row, first, numeric
from synthgeo.engine.source import Source
from synthgeo.errors import DomainError, InputError

_LONLAT = CRS.from_epsg(4326)
# Names under which longitude and latitude come, in the order in which they are looked for.
_LONLAT_NAMES = (("lon", "lat"), ("lng", "lat"), ("long", "lat"), ("longitude", "latitude"))


def geometry_of_schema(schema: Any) -> tuple[str | None, CRS | None]:
    """The WKB geometry column of an Arrow schema and its CRS, from GeoParquet or GeoArrow metadata."""
    metadata = schema.metadata or {}
    if b"geo" in metadata:
        geo = json.loads(metadata[b"geo"])
        name = geo["primary_column"]
        column = geo["columns"][name]
        if column.get("encoding", "WKB") != "WKB":
            raise InputError(f"column {name!r} is encoded as {column['encoding']!r}; only WKB is read")
        # GeoParquet: no CRS entry means longitude and latitude, null means unknown.
        return name, _crs(column["crs"]) if column.get("crs", "absent") != "absent" else _LONLAT
    for field in schema:
        details = field.metadata or {}
        if details.get(b"ARROW:extension:name") in (b"geoarrow.wkb", b"ogc.wkb"):
            about = json.loads(details.get(b"ARROW:extension:metadata") or b"{}")
            return field.name, _crs(about.get("crs"))
    return None, None


def _crs(value: Any) -> CRS | None:
    if value is None:
        return None
    try:
        return CRS.from_user_input(value)
    except CRSError as problem:
        raise DomainError(f"the geometry's CRS cannot be read: {problem}") from problem


@dataclass(frozen=True)
class PointReader:
    """Coordinates of a chunk's rows in one CRS, whatever columns they come in. Pure and picklable.

    Looked for in this order: a geometry column, longitude and latitude (EPSG:4326), x and y (taken as they are).
    """

    columns: tuple[str, ...]
    source_crs: str | None = None  # WKT; None: already in the target's
    target_crs: str | None = None

    @classmethod
    def of(cls, source: Source, crs: CRS | None, *, columns: tuple[str, str] | None = None) -> PointReader:
        """The reader for a source; ``columns`` names two other columns, in the target's CRS."""
        if columns is not None:
            source.require(columns)
            return cls(tuple(columns))
        if source.geometry is not None:
            if crs is not None and source.crs is None:
                raise DomainError(
                    f"column {source.geometry!r} has no CRS, the domain has {crs.to_string()}: set one"
                )
            if crs is None and source.crs is not None:
                raise DomainError(
                    f"column {source.geometry!r} has a CRS ({source.crs.to_string()}), the domain has none"
                )
            return cls((source.geometry,), *_change(source.crs, crs))
        for pair in _LONLAT_NAMES:
            if set(pair) <= set(source.columns):
                if crs is None:
                    raise DomainError(
                        f"columns {pair[0]!r} and {pair[1]!r} are longitude and latitude, the domain has no CRS"
                    )
                return cls(pair, *_change(_LONLAT, crs))
        if {"x", "y"} <= set(source.columns):
            return cls(("x", "y"))
        raise InputError(
            f"no coordinates: expected a geometry, columns lon and lat, or x and y; "
            f"there are {', '.join(source.columns) or 'no columns'}"
        )

    def __call__(self, chunk: Mapping[str, Array]) -> NDArray[np.float64]:
        """Coordinates (n, 2); a missing, infinite or impossible one is an error that names its row."""
        if len(self.columns) == 1:
            xy = chunk[self.columns[0]]
            good = np.isfinite(xy).all(axis=1)
            if not good.all():
                raise bad_row(
                    chunk, self.columns[0], first(~good), "the point is missing or empty", DomainError
                )
        else:
            xy = np.column_stack([numeric(chunk, name) for name in self.columns])
        if self.source_crs is None or self.target_crs is None:
            return xy
        if CRS.from_wkt(self.source_crs).is_geographic:
            self._refuse_off_globe(chunk, xy)
        change = Transformer.from_crs(self.source_crs, self.target_crs, always_xy=True)
        moved = np.column_stack(change.transform(xy[:, 0], xy[:, 1]))
        lost = ~np.isfinite(moved).all(axis=1)
        if lost.any():
            raise bad_row(
                chunk, self.columns[0], first(lost), "lies where the domain's CRS is not defined", DomainError
            )
        return moved

    def _refuse_off_globe(self, chunk: Mapping[str, Array], xy: NDArray[np.float64]) -> None:
        for axis, limit in ((0, 360.0), (1, 90.0)):
            wrong = np.abs(xy[:, axis]) > limit
            if wrong.any():
                name = self.columns[min(axis, len(self.columns) - 1)]
                what = "latitude beyond 90 degrees" if axis else "longitude beyond 360 degrees"
                raise bad_row(chunk, name, first(wrong), f"has a {what}", DomainError)


def _change(source: CRS | None, target: CRS | None) -> tuple[str | None, str | None]:
    if source is None or target is None or source.equals(target, ignore_axis_order=True):
        return None, None
    return source.to_wkt(), target.to_wkt()

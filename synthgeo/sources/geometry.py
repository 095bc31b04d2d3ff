"""Geometries in Arrow data and in Parquet files: which column holds them, in which CRS, and their points."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from typing import Any

import numpy as np
from pyproj import CRS
from pyproj.exceptions import CRSError

from synthgeo.arrays import Array
from synthgeo.errors import DomainError, InputError

_LONLAT = CRS.from_epsg(4326)
# How the WKB of a point begins: in either byte order, with Z and M as ISO or PostGIS write them, and an SRID.
_POINTS = frozenset(
    struct.pack(f"{order}BI", order == "<", kind | flags << 29)
    for order in "<>"
    for kind in (1, 1001, 2001, 3001)
    for flags in range(8)
)


def points_of_wkb(cells: Iterable[Any]) -> Array:
    """The points in cells of WKB, None for everything else: who asks for points refuses these rows.

    GEOS follows collections in collections until its stack ends, which ends the process. It sees points only.
    """
    import shapely

    points = [cell if cell is not None and cell[:5] in _POINTS else None for cell in cells]
    return np.asarray(shapely.from_wkb(np.array([*points, None], dtype=object)[:-1], on_invalid="ignore"))


def geometry_of_schema(schema: Any) -> tuple[str | None, CRS | None]:
    """The WKB geometry column of an Arrow schema and its CRS, from GeoParquet or GeoArrow metadata."""
    metadata = schema.metadata or {}
    if b"geo" in metadata:
        try:
            geo = json.loads(metadata[b"geo"])
            name = geo["primary_column"]
            column = geo["columns"][name]
            encoding = column.get("encoding", "WKB")
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as problem:
            raise InputError(
                f"the file's GeoParquet metadata is malformed ({type(problem).__name__})"
            ) from None
        if encoding != "WKB":
            raise InputError(f"column {name!r} is encoded as {encoding!r}; only WKB is read")
        # GeoParquet: no CRS entry means longitude and latitude, null means unknown.
        return name, _crs(column["crs"]) if column.get("crs", "absent") != "absent" else _LONLAT
    for field in schema:
        details = field.metadata or {}
        if details.get(b"ARROW:extension:name") in (b"geoarrow.wkb", b"ogc.wkb"):
            try:
                crs = json.loads(details.get(b"ARROW:extension:metadata") or b"{}").get("crs")
            except (ValueError, AttributeError, RecursionError) as problem:
                name = type(problem).__name__
                raise InputError(f"the GeoArrow metadata of {field.name!r} is malformed ({name})") from None
            return field.name, _crs(crs)
    return None, None


def _crs(value: Any) -> CRS | None:
    if value is None:
        return None
    try:
        return CRS.from_user_input(value)
    except CRSError as problem:
        raise DomainError(f"the geometry's CRS cannot be read: {problem}") from problem

"""Which column of Arrow data or of a Parquet file holds the geometries, and in which CRS."""

from __future__ import annotations

import json
from typing import Any

from pyproj import CRS
from pyproj.exceptions import CRSError

from synthgeo.errors import DomainError, InputError

_LONLAT = CRS.from_epsg(4326)


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

"""The column dictionary: what each column of a published file holds, in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd

from synthgeo.schema import Categorical, DateTime, Location, Numeric, Ordinal, Schema

_MOST_VALUES = 25  # listed in the card; the statement for machines has them all

_FRESH = "number that was made afresh; it stands for nobody"
_MEANINGS = {
    "step": "number of the release that the row belongs to",
    "id": "number of a synthetic record; it stands for nobody",
    "household_id": "number of a synthetic household; it stands for nobody",
    "person_id": "number of a synthetic person; it stands for nobody",
    "window_start": "start of the time window that the record belongs to",
    "trip_id": "number of a synthetic trip; it stands for nobody's trip",
    "seq": "place of the point in its trip, from 0",
    "time": "synthetic time of the point, UTC, in one nominal week",
    "departure": "synthetic time of departure, UTC, in one nominal week",
    "arrival": "synthetic time of arrival, UTC, in one nominal week",
    "metres": "length of the trip in metres",
    "lon": "longitude in degrees (WGS 84)",
    "lat": "latitude in degrees (WGS 84)",
    "x": "x in the domain's own coordinates",
    "y": "y in the domain's own coordinates",
    "start_lon": "longitude where the trip starts, in degrees (WGS 84)",
    "start_lat": "latitude where the trip starts, in degrees (WGS 84)",
    "end_lon": "longitude where the trip ends, in degrees (WGS 84)",
    "end_lat": "latitude where the trip ends, in degrees (WGS 84)",
    "start_x": "x where the trip starts, in the domain's own coordinates",
    "start_y": "y where the trip starts, in the domain's own coordinates",
    "end_x": "x where the trip ends, in the domain's own coordinates",
    "end_y": "y where the trip ends, in the domain's own coordinates",
    "geometry": "the place (GeoParquet and GeoPackage)",
}


def column_dictionary(frame: pd.DataFrame, schema: Schema | None, *, key: str | None = None) -> pd.DataFrame:
    """Columns ``column``, ``type``, ``meaning`` for a published frame. Public facts only.

    ``key`` is the column of ids that were made afresh, where there is one.
    """
    words = _MEANINGS | ({} if key is None else {key: _MEANINGS.get(key, _FRESH)})
    words |= {} if schema is None else _words_of(schema)
    rows = [
        (str(name), _type_of(frame[name]), words.get(str(name), "as in the data")) for name in frame.columns
    ]
    return pd.DataFrame(rows, columns=["column", "type", "meaning"])


def _type_of(values: pd.Series) -> str:
    kind = values.dtype
    if kind.name == "geometry":
        return "geometry"
    if pd.api.types.is_bool_dtype(kind):
        return "true or false"
    if pd.api.types.is_integer_dtype(kind):
        return "whole number"
    if pd.api.types.is_float_dtype(kind):
        return "number"
    if isinstance(kind, pd.DatetimeTZDtype):
        return f"time ({kind.tz})"
    if pd.api.types.is_datetime64_any_dtype(kind):
        return "time"
    return "text"


def _words_of(schema: Schema) -> dict[str, str]:
    """What a schema says about each column of the data, in words."""
    found: dict[str, str] = {}
    for name, column in schema.columns.items():
        words = next((make(column) for kind, make in _KINDS if isinstance(column, kind)), column.kind)
        if getattr(column, "missing", False):
            words += "; may be missing"
        found |= dict.fromkeys(column.inputs(name), words)
    return found


def _listed(values: tuple[Any, ...]) -> str:
    shown = ", ".join(str(value) for value in values[:_MOST_VALUES])
    return shown if len(values) <= _MOST_VALUES else f"{shown} and {len(values) - _MOST_VALUES} more"


def _numeric(column: Any) -> str:
    bins = "" if column.edges is None else f" in {column.bins} bins, spread evenly inside each"
    return f"from {column.low:g} to {column.high:g}{bins}"


_KINDS: tuple[tuple[type, Callable[[Any], str]], ...] = (
    (Ordinal, lambda column: f"one of, in order: {_listed(column.values)}"),
    (Categorical, lambda column: f"one of: {_listed(column.values)}"),
    (Numeric, _numeric),
    (
        DateTime,
        lambda column: f"from {column.start} until {column.end}; modelled by {', '.join(column.parts)}",
    ),
    (Location, lambda column: f"a place, exact to one of {column.prefix.size} cells of the public domain"),
)

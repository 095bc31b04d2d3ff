"""Chunks: a few columns of some rows as plain numpy arrays, the same whichever engine read them.

Key functions see nothing else, so the conversion rules here are what makes engines agree:

    integers          int64 (uint64 only when a value needs it); with nulls float64 and NaN
    floats, decimals  float64, nulls are NaN
    booleans          bool; with nulls an object array of True, False, None
    text, categories  object array of str, nulls are None
    dates and times   datetime64[us], nulls are NaT; with a time zone: the instant in UTC
    geometries        object array of shapely geometries, nulls are None
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from synthgeo.errors import DomainError, InputError

Array = NDArray[Any]
Locate = Callable[[int], str]


class KeyFunction(Protocol):
    """Pure, picklable, vectorised: a chunk in, one key (and integer weights, or None for 1) per row out.

    A row is dropped by giving it weight 0. (Leaving its key out works for plain histograms too.) An
    ``InputError`` counts rows from 0 inside the chunk, as ``row N``; the engine puts the row of the input
    in its place.
    """

    def __call__(self, chunk: Any, /) -> tuple[NDArray[np.uint64], NDArray[np.int64] | None]:
        """Keys (n,) and weights (n, m)."""
        ...


class Chunk(dict[str, Array]):
    """Columns by name. Knows where its rows come from, so that an error can say it."""

    def __init__(self, columns: Mapping[str, Array], *, rows: int, locate: Locate | None = None) -> None:
        super().__init__(columns)
        self.rows = rows
        self._locate = locate

    def where(self, row: int) -> str:
        """The name of a row of this chunk in its source; rows count from 0."""
        return self._locate(row) if self._locate is not None else f"row {row}"

    def located(self, problem: InputError) -> InputError:
        """An error about ``row N`` of this chunk, said about that row of the source."""
        text = re.sub(
            r"(?:^|(?<=, ))row (\d+)", lambda found: self.where(int(found[1])), str(problem), count=1
        )
        return type(problem)(text)


def bad_row(
    _chunk: Mapping[str, Array], column: str, row: int, problem: str, error: type[InputError] = InputError
) -> InputError:
    """The error for one bad value: names the column and the row of the chunk, never the value."""
    return error(f"column {column!r}, row {int(row)}: {problem}")


def first(mask: Array) -> int:
    """Position of the first True."""
    return int(np.argmax(mask))


def numeric(chunk: Mapping[str, Array], column: str) -> NDArray[np.float64]:
    """A column as finite numbers, or the error that names the first row that is not one."""
    values = chunk[column]
    if values.dtype == object or values.dtype.kind in "US":
        numbers = pd.to_numeric(pd.Series(values, dtype=object), errors="coerce").to_numpy(np.float64)
        if len(values) and np.isnan(numbers).any():
            row = first(np.isnan(numbers))
            missing = bool(pd.isna(values[row]))
            raise bad_row(chunk, column, row, "is missing" if missing else "is not a number")
        values = numbers
    if values.dtype.kind not in "iufb":
        raise InputError(f"column {column!r} holds {values.dtype}, expected numbers")
    values = values.astype(np.float64, copy=False)
    good = np.isfinite(values)
    if not good.all():
        row = first(~good)
        raise bad_row(chunk, column, row, "is missing or NaN" if np.isnan(values[row]) else "is infinite")
    return values


def from_numpy(values: Array, name: str) -> Array:
    """A numpy column by the rules of this module. Never changes its input."""
    kind = values.dtype.kind
    if kind in "iu":
        if values.dtype == np.uint64:
            big = len(values) > 0 and int(values.max()) > np.iinfo(np.int64).max
            return values if big else values.astype(np.int64)
        return values.astype(np.int64, copy=False)
    if kind == "f":
        return values.astype(np.float64, copy=False)
    if kind == "b":
        return values
    if kind == "M":
        return values.astype("datetime64[us]", copy=False)
    if kind == "U":
        return values.astype(object)
    if kind == "O":
        return _from_objects(values, name)
    raise InputError(f"column {name!r} holds {values.dtype}, which cannot be counted")


def _from_objects(values: Array, name: str) -> Array:
    inferred = pd.api.types.infer_dtype(values, skipna=True)
    if inferred in ("datetime", "datetime64", "date"):
        return _naive_utc(pd.Series(pd.to_datetime(pd.Series(values, dtype=object))))
    if inferred in ("integer", "floating", "mixed-integer-float", "decimal"):
        missing = pd.isna(values)
        if inferred == "integer" and not missing.any():
            return from_numpy(np.array(values.tolist()), name) if len(values) else values.astype(np.int64)
        numbers = pd.to_numeric(pd.Series(values, dtype=object).where(~missing, np.nan))
        return np.asarray(numbers, dtype=np.float64)
    if inferred == "boolean" and not pd.isna(values).any():
        return values.astype(bool)
    if inferred in ("string", "boolean"):
        return _none_where(pd.isna(values), values)
    return values  # mixed types: whoever reads the column says what is wrong with it


def from_series(series: pd.Series) -> Array:
    """A pandas column by the rules of this module."""
    name, dtype = str(series.name), series.dtype
    if dtype.name == "geometry":
        return np.asarray(series.to_numpy(), dtype=object)
    if isinstance(dtype, pd.CategoricalDtype):
        return from_series(
            series.astype(dtype.categories.dtype) if not series.isna().any() else series.astype(object)
        )
    if isinstance(dtype, pd.DatetimeTZDtype) or dtype.kind == "M":
        return _naive_utc(series)
    if isinstance(dtype, np.dtype):
        return from_numpy(series.to_numpy(), name)
    if isinstance(dtype, pd.ArrowDtype):
        import pyarrow as pa

        return from_arrow(pa.array(series.array), name)
    missing = series.isna().to_numpy()
    if dtype.kind in "iuf":
        if missing.any() or dtype.kind == "f":
            return np.asarray(series.to_numpy(np.float64, na_value=np.nan))
        return from_numpy(series.to_numpy(dtype.numpy_dtype), name)
    if dtype.kind == "b" and not missing.any():
        return np.asarray(series.to_numpy(bool))
    values = series.to_numpy(object)
    return _none_where(missing, values)


def _none_where(missing: Any, values: Array) -> Array:
    if not missing.any():
        return values
    values = values.copy()
    values[missing] = None
    return values


def _naive_utc(series: pd.Series) -> Array:
    if isinstance(series.dtype, pd.DatetimeTZDtype):
        series = series.dt.tz_convert("UTC").dt.tz_localize(None)
    return np.asarray(series.to_numpy(), dtype="datetime64[us]")


def from_arrow(column: Any, name: str, *, geometry: bool = False) -> Array:
    """An Arrow array or chunked array by the rules of this module; ``geometry`` marks WKB."""
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):  # no rows, or too large for one array
            parts = column.chunks or [pa.array([], column.type)]
            return np.concatenate([from_arrow(part, name, geometry=geometry) for part in parts])
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if geometry:
        return _shapes(column, name)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        if column.null_count or pa.types.is_floating(kind):
            return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)
        return from_numpy(column.to_numpy(zero_copy_only=False), name)
    if pa.types.is_decimal(kind):
        return np.asarray(column.cast(pa.float64()).to_numpy(zero_copy_only=False))
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        unit = getattr(kind, "unit", "s" if pa.types.is_date32(kind) else "ms")
        naive = column.cast(pa.timestamp(unit))  # a zoned timestamp is stored as its UTC instant
        return np.asarray(naive.to_numpy(zero_copy_only=False), dtype="datetime64[us]")
    if pa.types.is_boolean(kind) or pa.types.is_null(kind) or pa.types.is_string(kind):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    raise InputError(f"column {name!r} holds {kind}, which cannot be counted")


def _shapes(column: Any, name: str) -> Array:
    import shapely

    try:
        return np.asarray(shapely.from_wkb(column.to_numpy(zero_copy_only=False)), dtype=object)
    except (shapely.errors.GEOSException, TypeError) as problem:
        raise DomainError(f"column {name!r} holds geometries that cannot be read: {problem}") from problem

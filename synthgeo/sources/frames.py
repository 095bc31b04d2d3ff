"""The local engine: frames, Arrow tables and arrays that are in memory, Arrow batches as they come.

A column stays as it is held: what its values mean is decided value by value (``synthgeo.sources.values``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import time as clock_time
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from synthgeo.errors import InputError
from synthgeo.sources.chunk import Array, Chunk
from synthgeo.sources.declared import Reading
from synthgeo.sources.grid import make_grid
from synthgeo.sources.source import Source, refused_rows, rows_per_chunk
from synthgeo.sources.text_column import TextColumn
from synthgeo.sources.windows import KnownTimes

Selection = slice | np.ndarray
_USUAL = Reading()


class Frame(ABC):
    """Columns of equal length: the few things the engine asks of a DataFrame, an Arrow table, or arrays."""

    columns: list[str]
    rows: int
    geometry: str | None = None
    crs: Any = None
    open_schema: bool = False

    @abstractmethod
    def take(self, column: str, rows: Selection, reading: Reading) -> Array:
        """Some rows of a column as a chunk holds them."""

    @abstractmethod
    def zoned(self, column: str) -> bool | None:
        """Whether a column has a time zone by its type; None where its type does not say it."""

    def _check_names(self) -> None:
        repeated = {name for name, times in Counter(self.columns).items() if times > 1}
        if repeated:
            raise InputError(f"column {min(repeated)!r} appears more than once")


class LocalSource(Source):
    """A frame in memory, or some of its rows."""

    def __init__(
        self, frame: Frame, *, reading: Reading | None = None, index: np.ndarray | None = None
    ) -> None:
        self._frame = frame
        self._index = index
        self.reading = _USUAL if reading is None else reading
        self.columns = frame.columns
        self.geometry = frame.geometry
        self.crs = frame.crs
        self.open_schema = frame.open_schema

    def loads(self, columns: Sequence[str], *, ordered: bool = True) -> Iterator[Callable[[], Chunk]]:  # noqa: ARG002
        total = self._frame.rows if self._index is None else len(self._index)
        zoned = [name for name in columns if self._frame.zoned(name)]
        size = rows_per_chunk(columns)
        for start in range(0, max(total, 1), size):
            stop = min(start + size, total)
            rows = slice(start, stop) if self._index is None else self._index[start:stop]
            arrays = {name: self._frame.take(name, rows, self.reading) for name in columns}
            chunk = Chunk(
                arrays,
                rows=stop - start,
                locate=Rows(rows),
                reading=self.reading,
                zoned=zoned,
                open_schema=self.open_schema,
            )
            yield lambda chunk=chunk: chunk  # type: ignore[misc]

    def is_zoned(self, column: str) -> bool:
        return bool(self._frame.zoned(column)) or self.reading.tz is not None

    def windows(
        self, *, time: str, every: str, start: Any = None, end: Any = None, tz: str | None = None
    ) -> Iterator[tuple[pd.Timestamp, Source]]:
        self.require([time])
        check = KnownTimes(time)
        chunk = self.read([time])
        good = np.flatnonzero(~refused_rows(chunk, (check,)))
        if len(good) < chunk.rows and self.reading.bad_rows != "drop":
            first = int(np.argmax(refused_rows(chunk, (check,))))
            problem = InputError("the time cannot be read", column=time, row=first)
            raise self.diagnosed(problem, [time], (check,))
        times = check(chunk.take(good) if len(good) < chunk.rows else chunk)
        span = (times.min(), times.max()) if len(times) else None
        zoned, tz = self.is_zoned(time), tz or self.reading.tz
        grid = make_grid(every, start, end, zoned=zoned, span=span, column=time, tz=tz)
        window = grid.window_of(times)
        order = np.argsort(window, kind="stable")
        bounds = np.searchsorted(window[order], np.arange(grid.size + 1))
        rows = good[order] if self._index is None else self._index[good[order]]
        windows = (
            LocalSource(self._frame, reading=self.reading, index=rows[low:high])
            for low, high in pairwise(bounds)
        )
        return grid.marked(windows, time)


class Rows:
    """Names rows by their position in the whole input."""

    def __init__(self, rows: Selection) -> None:
        self._rows = rows

    def __call__(self, row: int) -> str:
        return f"row {self._rows.start + row if isinstance(self._rows, slice) else int(self._rows[row])}"


class PandasFrame(Frame):
    """A DataFrame or GeoDataFrame."""

    def __init__(self, data: pd.DataFrame) -> None:
        self._data = data
        self.columns = [str(name) for name in data.columns]
        self._check_names()
        self.rows = len(data)
        name = data.active_geometry_name if hasattr(type(data), "active_geometry_name") else None
        if name is not None and name in data.columns:
            self.geometry = str(name)
            self.crs = data.crs

    def take(self, column: str, rows: Selection, reading: Reading) -> Array:
        series = self._data.iloc[:, self.columns.index(column)]
        return from_series(series.iloc[rows], reading)

    def zoned(self, column: str) -> bool | None:
        return _zoned(self._data.iloc[:, self.columns.index(column)])


class ArrowFrame(Frame):
    """An Arrow table; a column that GeoArrow or GeoParquet metadata calls WKB is the geometry."""

    def __init__(self, table: Any) -> None:
        from synthgeo.sources.geometry import geometry_of_schema

        self._table = table
        self.columns = list(table.column_names)
        self._check_names()
        self.rows = table.num_rows
        self.geometry, self.crs = geometry_of_schema(table.schema)

    def take(self, column: str, rows: Selection, reading: Reading) -> Array:
        data = self._table.column(column)
        part = data.slice(rows.start, rows.stop - rows.start) if isinstance(rows, slice) else data.take(rows)
        return from_arrow(part, column, reading, geometry=column == self.geometry)

    def zoned(self, column: str) -> bool | None:
        return zoned_type(self._table.schema.field(column).type)


class ArrayFrame(Frame):
    """Arrays by name."""

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        self._arrays = {str(name): _one_column(values, str(name)) for name, values in arrays.items()}
        self.columns = list(self._arrays)
        lengths = {name: len(values) for name, values in self._arrays.items()}
        if len(set(lengths.values())) > 1:
            raise InputError(f"columns of different lengths: {lengths}")
        self.rows = next(iter(lengths.values()), 0)

    def take(self, column: str, rows: Selection, reading: Reading) -> Array:
        values = self._arrays[column][rows]
        return from_series(values, reading) if isinstance(values, pd.Series) else from_numpy(values, column)

    def zoned(self, column: str) -> bool | None:
        values = self._arrays[column]
        return (
            _zoned(values) if isinstance(values, pd.Series) else (False if values.dtype.kind == "M" else None)
        )


def _zoned(series: pd.Series) -> bool | None:
    dtype = series.dtype
    if isinstance(dtype, pd.DatetimeTZDtype):
        return True
    if isinstance(dtype, pd.ArrowDtype):
        return zoned_type(dtype.pyarrow_dtype)
    return False if dtype.kind == "M" else None


def zoned_type(kind: Any) -> bool | None:
    """Whether an Arrow type of times has a zone; None for any other type."""
    import pyarrow as pa

    if pa.types.is_timestamp(kind):
        return kind.tz is not None
    return False if pa.types.is_date(kind) else None


def _one_column(values: Any, name: str) -> Any:
    if isinstance(values, pd.Series):
        return values.reset_index(drop=True)
    if isinstance(values, (pd.Index, pd.api.extensions.ExtensionArray)):
        return pd.Series(values).reset_index(drop=True)
    if not isinstance(values, np.ndarray):  # numpy would choose one type for all values of a list
        listed = list(values)
        array = np.empty(len(listed), dtype=object)
        array[:] = listed
        return array if not _all_alike(listed) else np.asarray(listed)
    if values.ndim != 1:
        raise InputError(f"column {name!r} must be one-dimensional, got shape {values.shape}")
    return values


def _all_alike(values: list[Any]) -> bool:
    """Whether all values are of one type that numpy holds without loss."""
    kinds = {type(value) for value in values}
    return kinds in ({float}, {bool}) or (kinds == {int} and all(abs(value) < 2**63 for value in values))


class BatchSource(Source):
    """Arrow batches that can be read once, in memory of one batch."""

    def __init__(self, reader: Any, *, reading: Reading | None = None) -> None:
        from synthgeo.sources.geometry import geometry_of_schema

        self._reader = reader
        self._read = False
        self.reading = _USUAL if reading is None else reading
        self.columns = list(reader.schema.names)
        self.geometry, self.crs = geometry_of_schema(reader.schema)

    def loads(self, columns: Sequence[str], *, ordered: bool = True) -> Iterator[Callable[[], Chunk]]:  # noqa: ARG002
        self._take()
        for start, batch in stream_batches(self._reader):
            chunk = chunk_of_batch(batch, columns, self.reading, self.geometry, Rows(slice(start, None)))
            yield lambda chunk=chunk: chunk  # type: ignore[misc]

    def is_zoned(self, column: str) -> bool:
        return bool(zoned_type(self._reader.schema.field(column).type)) or self.reading.tz is not None

    def windows(
        self, *, time: str, every: str, start: Any = None, end: Any = None, tz: str | None = None
    ) -> Iterator[tuple[pd.Timestamp, Source]]:
        self._take()
        table = LocalSource(ArrowFrame(self._reader.read_all()), reading=self.reading)
        return table.windows(time=time, every=every, start=start, end=end, tz=tz)

    def _take(self) -> None:
        if self._read:
            raise InputError("these Arrow batches have been read already; give a table to read them twice")
        self._read = True


def stream_batches(reader: Any) -> Iterator[tuple[int, Any]]:
    """First row and batch of an Arrow stream; one batch without rows when there are none."""
    import pyarrow as pa

    start = 0
    for batch in reader:
        if batch.num_rows:
            yield start, batch
            start += batch.num_rows
    if start == 0:
        yield 0, pa.RecordBatch.from_pylist([], schema=reader.schema)


def chunk_of_batch(
    batch: Any, columns: Sequence[str], reading: Reading, geometry: str | None, locate: Any
) -> Chunk:
    """Some columns of an Arrow batch."""
    arrays = {
        name: from_arrow(batch.column(name), name, reading, geometry=name == geometry) for name in columns
    }
    zoned = [name for name in columns if zoned_type(batch.schema.field(name).type)]
    return Chunk(arrays, rows=batch.num_rows, locate=locate, reading=reading, zoned=zoned)


def local_source(
    data: Any, *, columns: Sequence[str] | None = None, reading: Reading | None = None
) -> Source | None:
    """The source for data in memory, or None when it is something else."""
    if isinstance(data, pd.Series) and hasattr(data, "geom_type"):  # a GeoSeries
        data = data.to_frame("geometry")
    if isinstance(data, pd.DataFrame):
        return LocalSource(PandasFrame(data), reading=reading)
    if isinstance(data, pd.Series):
        return None
    if isinstance(data, np.ndarray):
        names = list(columns) if columns is not None else ["x", "y"]
        if data.ndim != 2 or data.shape[1] != len(names):
            raise InputError(f"expected an array of shape (n, {len(names)}), got {data.shape}")
        return LocalSource(ArrayFrame({name: data[:, i] for i, name in enumerate(names)}), reading=reading)
    if isinstance(data, Mapping):
        return LocalSource(ArrayFrame(data), reading=reading)
    import pyarrow as pa

    if isinstance(data, pa.Table):
        return LocalSource(ArrowFrame(data), reading=reading)
    if isinstance(data, pa.RecordBatch):
        return LocalSource(ArrowFrame(pa.Table.from_batches([data])), reading=reading)
    if isinstance(data, pa.RecordBatchReader):
        return BatchSource(data, reading=reading)
    if hasattr(data, "__arrow_c_stream__"):
        return LocalSource(ArrowFrame(pa.table(data)), reading=reading)
    return None


def column_of(values: Any, name: str) -> Array:
    """A column of any kind that holds values in memory, as a chunk holds it."""
    column = _one_column(values, name)
    return from_series(column, _USUAL) if isinstance(column, pd.Series) else from_numpy(column, name)


def from_numpy(values: Any, name: str) -> Array:
    """A numpy column; never changes its input."""
    kind = values.dtype.kind
    if kind in "iufbO":
        return values
    if kind in "Mm":
        return _microseconds(values)
    if kind in "US":
        return values.astype(object)
    raise InputError(f"column {name!r} holds {values.dtype}, which cannot be counted")


def _microseconds(values: Any) -> Array:
    """Times or lengths of time in microseconds; what these cannot hold becomes one that nobody takes."""
    unit, count = np.datetime_data(values.dtype)
    target = f"{values.dtype.str[1:2]}8[us]"
    longest = {"Y": 366 * 86_400, "M": 31 * 86_400, "W": 7 * 86_400, "D": 86_400, "h": 3_600, "m": 60, "s": 1}
    most = 2**62 // int(longest.get(unit, 1e-3) * 1_000_000 * count)
    if unit not in (*longest, "ms"):
        return values.astype(target, copy=False)
    plain = values.astype(np.int64)
    inside = np.clip(plain, -most, most).astype(values.dtype).astype(target)
    return np.where(np.isnat(values), np.array("NaT", target), inside)


def from_series(series: pd.Series, reading: Reading) -> Array:
    """A pandas column; nothing is inferred from its values."""
    name, dtype = str(series.name), series.dtype
    if dtype.name == "geometry":
        return np.asarray(series.to_numpy(), dtype=object)
    if isinstance(dtype, pd.CategoricalDtype):
        return _from_categories(series, reading)
    if isinstance(dtype, pd.DatetimeTZDtype):
        return _microseconds(series.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy())
    if isinstance(dtype, np.dtype):
        return from_numpy(series.to_numpy(), name)
    import pyarrow as pa

    if isinstance(dtype, pd.ArrowDtype):
        return from_arrow(pa.array(series.array), name, reading)
    if isinstance(dtype, pd.StringDtype):
        try:
            return from_arrow(pa.array(series.array, pa.large_string()), name, reading)
        except UnicodeEncodeError:  # half of a surrogate pair, in text that Python holds
            return TextColumn.of(series.to_numpy(object), reading)
    missing = series.isna().to_numpy()
    if dtype.kind in "iu":
        plain = series.to_numpy(dtype.numpy_dtype, na_value=0)
        return np.ma.masked_array(plain, missing) if missing.any() else plain
    if dtype.kind == "f":
        return np.asarray(series.to_numpy(np.float64, na_value=np.nan))
    return np.where(missing, None, series.to_numpy(object))


def _from_categories(series: pd.Series, reading: Reading) -> Array:
    codes = series.cat.codes.to_numpy().astype(np.int64)
    values = from_series(pd.Series(series.cat.categories, name=series.name), reading)
    missing = codes < 0
    if not missing.any():
        return values.take(codes)
    if not len(values):
        return np.full(len(codes), None, dtype=object)
    found = values.take(np.where(missing, 0, codes))
    if isinstance(found, TextColumn):
        return replace(found, null=found.nulls() | missing)
    if found.dtype.kind in "iu":  # in the type of the categories: one row without a value rounds no other
        return np.ma.masked_array(found, np.ma.getmaskarray(found) | missing)
    nothing: dict[str, Any] = {"f": np.nan, "M": np.datetime64("NaT"), "m": np.timedelta64("NaT")}
    none: Any = nothing.get(found.dtype.kind)
    return np.where(missing, none, found)


def from_arrow(column: Any, name: str, reading: Reading, *, geometry: bool = False) -> Array:
    """An Arrow array or chunked array; ``geometry`` marks WKB."""
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):
        parts = [pa.array([], column.type)] if column.num_chunks == 0 else column.chunks
        column = parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if _is_bytes(kind):
        found = np.array([*column.to_pylist(), None], dtype=object)[:-1]
        if not geometry:
            return found
        from synthgeo.sources.geometry import points_of_wkb

        return points_of_wkb(found)
    if pa.types.is_integer(kind):
        if not column.null_count:
            return column.to_numpy(zero_copy_only=False)
        return np.ma.masked_array(
            column.fill_null(0).to_numpy(zero_copy_only=False), np.asarray(column.is_null())
        )
    if pa.types.is_floating(kind):
        return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)
    if pa.types.is_decimal(kind):
        return np.array(column.to_pylist(), dtype=object)
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        unit = getattr(kind, "unit", "s" if pa.types.is_date32(kind) else "ms")
        naive = column.cast(pa.timestamp(unit))  # a zoned timestamp is stored as its UTC instant
        return _microseconds(naive.to_numpy(zero_copy_only=False))
    if pa.types.is_duration(kind):
        return _microseconds(column.to_numpy(zero_copy_only=False))
    if pa.types.is_time(kind):
        return _clock_times(column)
    if pa.types.is_boolean(kind):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    if pa.types.is_null(kind):
        return np.full(len(column), None, dtype=object)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return TextColumn.of(column, reading)
    raise InputError(f"column {name!r} holds {kind}, which cannot be counted")


def _is_bytes(kind: Any) -> bool:
    import pyarrow as pa

    types = pa.types
    usual = types.is_binary(kind) or types.is_large_binary(kind)
    return bool(usual or types.is_fixed_size_binary(kind) or types.is_binary_view(kind))


def _clock_times(column: Any) -> Array:
    """Times of day; none where a number says no time of any day."""
    import pyarrow as pa

    per_second = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}[column.type.unit]
    ticks = column.cast(pa.int32() if column.type.bit_width == 32 else pa.int64()).to_pylist()
    found = np.full(len(ticks), None, dtype=object)
    for row, tick in enumerate(ticks):
        if tick is not None and 0 <= tick < 86_400 * per_second:
            seconds, rest = divmod(tick, per_second)
            micro = rest * 1_000_000 // per_second
            found[row] = clock_time(seconds // 3600, seconds // 60 % 60, seconds % 60, micro)
    return found

"""The local engine: frames, Arrow tables and arrays that are in memory, Arrow batches as they come."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from synthgeo.errors import InputError
from synthgeo.sources.chunk import Array, Chunk, bad_row, first, from_arrow, from_numpy, from_series
from synthgeo.sources.grid import checked_times, make_grid
from synthgeo.sources.source import CHUNK_ROWS, Source

Selection = slice | np.ndarray


class Frame(ABC):
    """Columns of equal length: the few things the engine asks of a DataFrame, an Arrow table, or arrays."""

    columns: list[str]
    rows: int
    geometry: str | None = None
    crs: Any = None

    @abstractmethod
    def take(self, column: str, rows: Selection) -> Array:
        """Some rows of a column as a chunk array."""

    @abstractmethod
    def zoned(self, column: str) -> bool:
        """Whether a column of times has a time zone."""


class LocalSource(Source):
    """A frame in memory, or some of its rows."""

    def __init__(self, frame: Frame, *, index: np.ndarray | None = None) -> None:
        self._frame = frame
        self._index = index
        self.columns = frame.columns
        self.geometry = frame.geometry
        self.crs = frame.crs

    def chunks(self, columns: Sequence[str]) -> Iterator[Chunk]:
        total = self._frame.rows if self._index is None else len(self._index)
        for start in range(0, max(total, 1), CHUNK_ROWS):
            stop = min(start + CHUNK_ROWS, total)
            rows = slice(start, stop) if self._index is None else self._index[start:stop]
            arrays = {name: self._frame.take(name, rows) for name in columns}
            yield Chunk(arrays, rows=stop - start, locate=_Rows(rows))

    def windows(
        self, *, time: str, every: str, start: Any = None, end: Any = None
    ) -> Iterator[tuple[pd.Timestamp, Source]]:
        chunk = self.read([time])
        times = checked_times(chunk[time], time)
        missing = np.isnat(times)
        if missing.any():
            raise chunk.located(bad_row(chunk, time, first(missing), "the time is missing"))
        span = (times.min(), times.max()) if len(times) else None
        grid = make_grid(every, start, end, zoned=self._frame.zoned(time), span=span, column=time)
        window = grid.window_of(times)
        order = np.argsort(window, kind="stable")
        bounds = np.searchsorted(window[order], np.arange(grid.size + 1))
        rows = order if self._index is None else self._index[order]
        return (
            (stamp, LocalSource(self._frame, index=rows[low:high]))
            for stamp, low, high in zip(grid.starts, bounds[:-1], bounds[1:], strict=True)
        )


class _Rows:
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
        repeated = {name for name in self.columns if self.columns.count(name) > 1}
        if repeated:
            raise InputError(f"column {min(repeated)!r} appears more than once")
        self.rows = len(data)
        if hasattr(data, "_geometry_column_name") and data._geometry_column_name in data.columns:
            self.geometry = str(data._geometry_column_name)
            self.crs = data.crs

    def take(self, column: str, rows: Selection) -> Array:
        series = self._data.iloc[:, self.columns.index(column)]
        return from_series(series.iloc[rows])

    def zoned(self, column: str) -> bool:
        series = self._data.iloc[:, self.columns.index(column)]
        if series.dtype == object:
            known = series.dropna()
            return len(known) > 0 and getattr(known.iloc[0], "tzinfo", None) is not None
        return (
            isinstance(series.dtype, pd.DatetimeTZDtype)
            or getattr(getattr(series.dtype, "pyarrow_dtype", None), "tz", None) is not None
        )


class ArrowFrame(Frame):
    """An Arrow table; a column that GeoArrow or GeoParquet metadata calls WKB is the geometry."""

    def __init__(self, table: Any) -> None:
        from synthgeo.sources.geometry import geometry_of_schema

        self._table = table
        self.columns = list(table.column_names)
        self.rows = table.num_rows
        self.geometry, self.crs = geometry_of_schema(table.schema)

    def take(self, column: str, rows: Selection) -> Array:
        data = self._table.column(column)
        part = data.slice(rows.start, rows.stop - rows.start) if isinstance(rows, slice) else data.take(rows)
        return from_arrow(part, column, geometry=column == self.geometry)

    def zoned(self, column: str) -> bool:
        return getattr(self._table.schema.field(column).type, "tz", None) is not None


class ArrayFrame(Frame):
    """Arrays by name."""

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        self._arrays = {str(name): _one_column(values, str(name)) for name, values in arrays.items()}
        self.columns = list(self._arrays)
        lengths = {name: len(values) for name, values in self._arrays.items()}
        if len(set(lengths.values())) > 1:
            raise InputError(f"columns of different lengths: {lengths}")
        self.rows = next(iter(lengths.values()), 0)

    def take(self, column: str, rows: Selection) -> Array:
        values = self._arrays[column][rows]
        return from_series(values) if isinstance(values, pd.Series) else from_numpy(values, column)

    def zoned(self, column: str) -> bool:
        values = self._arrays[column]
        return isinstance(values, pd.Series) and isinstance(values.dtype, pd.DatetimeTZDtype)


def _one_column(values: Any, name: str) -> Any:
    if isinstance(values, pd.Series):
        return values.reset_index(drop=True)
    if isinstance(values, (pd.Index, pd.api.extensions.ExtensionArray)):
        return pd.Series(values).reset_index(drop=True)
    array = np.asarray(values)
    if array.ndim != 1:
        raise InputError(f"column {name!r} must be one-dimensional, got shape {array.shape}")
    if array.dtype.kind == "U" and not isinstance(values, np.ndarray):
        array = np.array(values, dtype=object)  # numpy turns a list of mixed types into text
    return array


class BatchSource(Source):
    """Arrow batches that can be read once, in memory of one batch."""

    def __init__(self, reader: Any) -> None:
        from synthgeo.sources.geometry import geometry_of_schema

        self._reader = reader
        self._read = False
        self.columns = list(reader.schema.names)
        self.geometry, self.crs = geometry_of_schema(reader.schema)

    def chunks(self, columns: Sequence[str]) -> Iterator[Chunk]:
        self._take()
        for start, arrays, rows in stream_arrays(self._reader, columns, self.geometry):
            yield Chunk(arrays, rows=rows, locate=_Rows(slice(start, None)))

    def windows(
        self, *, time: str, every: str, start: Any = None, end: Any = None
    ) -> Iterator[tuple[pd.Timestamp, Source]]:
        self._take()
        table = LocalSource(ArrowFrame(self._reader.read_all()))
        return table.windows(time=time, every=every, start=start, end=end)

    def _take(self) -> None:
        if self._read:
            raise InputError("these Arrow batches have been read already; give a table to read them twice")
        self._read = True


def stream_arrays(
    reader: Any, columns: Sequence[str], geometry: str | None
) -> Iterator[tuple[int, dict[str, Array], int]]:
    """First row, arrays and size of each Arrow batch; one batch without rows when there are none."""

    def arrays(batch: Any) -> dict[str, Array]:
        return {name: from_arrow(batch.column(name), name, geometry=name == geometry) for name in columns}

    start = 0
    for batch in reader:
        if batch.num_rows:
            yield start, arrays(batch), batch.num_rows
            start += batch.num_rows
    if start == 0:
        yield 0, arrays(reader.schema.empty_table()), 0


def local_source(data: Any, *, columns: Sequence[str] | None = None) -> Source | None:
    """The source for data in memory, or None when it is something else."""
    if isinstance(data, pd.DataFrame):
        return LocalSource(PandasFrame(data))
    if isinstance(data, np.ndarray):
        names = list(columns) if columns is not None else ["x", "y"]
        if data.ndim != 2 or data.shape[1] != len(names):
            raise InputError(f"expected an array of shape (n, {len(names)}), got {data.shape}")
        return LocalSource(ArrayFrame({name: data[:, i] for i, name in enumerate(names)}))
    if isinstance(data, Mapping):
        return LocalSource(ArrayFrame(data))
    import pyarrow as pa

    if isinstance(data, pa.Table):
        return LocalSource(ArrowFrame(data))
    if isinstance(data, pa.RecordBatch):
        return LocalSource(ArrowFrame(pa.Table.from_batches([data])))
    if isinstance(data, pa.RecordBatchReader):
        return BatchSource(data)
    return None

"""The file engine: Parquet and CSV through DuckDB, in memory that does not grow with the files.

DuckDB reads and filters; it streams the columns that are asked for as Arrow batches, and the key function
of every other engine counts them.
"""

# ruff: noqa: S608  every name and text in a query goes through _name and _text, which quote it
from __future__ import annotations

import csv as csv_module
import glob
import gzip
import io
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow.parquet as pq

from synthgeo.errors import ConfigError, InputError
from synthgeo.sources.chunk import Chunk, KeyFunction
from synthgeo.sources.frames import LocalSource, PandasFrame, stream_arrays
from synthgeo.sources.geometry import geometry_of_schema
from synthgeo.sources.grid import Grid
from synthgeo.sources.histogram import Histogram
from synthgeo.sources.source import CHUNK_ROWS, Source
from synthgeo.sources.windows import ScannedSource

PARQUET = (".parquet", ".pq", ".geoparquet")
CSV = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".csv.zst", ".txt")
_TYPES = {"int": "BIGINT", "float": "DOUBLE", "str": "VARCHAR", "bool": "BOOLEAN", "time": "TIMESTAMP"}
VECTOR = (".geojson", ".json", ".gpkg", ".shp", ".fgb")
_SNIFFED_ROWS = 200_000
_TIMES = ("TIMESTAMP", "DATE")


class FileSource(ScannedSource):
    """Files of one kind, in order of their names."""

    def __init__(self, paths: Sequence[str], *, csv: bool, types: Mapping[str, str] | None = None) -> None:
        self._paths = list(paths)
        self._csv = csv
        self._types = {name: _duckdb_type(name, kind) for name, kind in (types or {}).items()}
        self._delimiter = _delimiter(self._paths[0]) if csv else ","
        self._where = ""
        self._ordered = False
        with self._errors():
            described = (
                _database(os.getpid(), True)
                .cursor()
                .execute(f"DESCRIBE SELECT * FROM {self._scan()}")
                .fetchall()
            )
        self._kinds = {row[0]: row[1] for row in described}
        self.columns = list(self._kinds)
        if not csv:
            self.geometry, self.crs = geometry_of_schema(pq.read_schema(self._paths[0]))

    def between(self, time: str, low: int, high: int) -> FileSource:
        make = "make_timestamptz" if self._zoned(time) else "make_timestamp"
        bounds = f"{_name(time)} >= {make}({low}) AND {_name(time)} < {make}({high})"
        if not self._kinds[time].startswith(_TIMES):
            bounds = "false"  # ``time_facts`` lets no other type pass unless there are no rows
        return self._twin(_where=f"{self._where} AND {bounds}" if self._where else f" WHERE {bounds}")

    def time_facts(self, time: str) -> tuple[bool, tuple[Any, Any] | None]:
        column, kind = _name(time), self._kinds[time]
        if kind.startswith(_TIMES):
            facts = f"count(*), count({column}), epoch_us(min({column})), epoch_us(max({column}))"
        else:
            facts = f"count(*), count({column}), 0, 0"
        rows, known, low, high = self._one(f"SELECT {facts} FROM {self._scan()}{self._where}")
        if rows == 0:
            return self._zoned(time), None
        if known < rows:
            raise InputError(f"column {time!r}, {self._find(f'{column} IS NULL')}: the time is missing")
        if not kind.startswith(_TIMES):
            wrong = f"TRY_CAST({column} AS TIMESTAMP) IS NULL"
            if kind == "VARCHAR" and self._one(f"SELECT count(*) FROM {self._scan()} WHERE {wrong}")[0]:
                raise InputError(f"column {time!r}, {self._find(wrong)}: is not a time")
            raise InputError(f"column {time!r} holds {kind}, expected times")
        return self._zoned(time), (np.datetime64(low, "us"), np.datetime64(high, "us"))

    def chunks(self, columns: Sequence[str]) -> Iterator[Chunk]:
        return self._read(columns, ordered=True)

    def _any_order(self, columns: Sequence[str]) -> Iterator[Chunk]:
        return self._read(columns, ordered=self._ordered)

    def _with_user(self, columns: Sequence[str], user: str) -> Iterator[Chunk]:
        # A CSV file has no types: as text, "007" and "7" stay two users whatever the other rows hold.
        as_text = self._twin(_types=self._types | {user: "VARCHAR"}) if self._csv else self
        return as_text._read(columns, ordered=True)

    def histogram(self, key_fn: KeyFunction, columns: Sequence[str], *, weights: int = 1) -> Histogram:
        try:
            return super().histogram(key_fn, columns, weights=weights)
        except InputError:
            if not self._ordered:  # once more in the order of the files, to name the first bad row
                self._twin(_ordered=True).histogram(key_fn, columns, weights=weights)
            raise

    def count_by_window(
        self, key_fn: KeyFunction, columns: Sequence[str], weights: int, time: str, grid: Grid
    ) -> dict[int, Histogram]:
        try:
            return super().count_by_window(key_fn, columns, weights, time, grid)
        except InputError:
            if not self._ordered:
                self._twin(_ordered=True).count_by_window(key_fn, columns, weights, time, grid)
            raise

    def _read(self, columns: Sequence[str], *, ordered: bool) -> Iterator[Chunk]:
        """Stream the columns; batches stay in the order of the files when ``ordered``."""
        names = ", ".join(_name(name) for name in columns) or "1"
        with self._errors():
            rows = (
                _database(os.getpid(), ordered)
                .cursor()
                .sql(f"SELECT {names} FROM {self._scan()}{self._where}")
            )
            # DuckDB renamed the method; the old name warns in new versions.
            stream = rows.to_arrow_reader if hasattr(rows, "to_arrow_reader") else rows.fetch_record_batch
            for start, arrays, size in stream_arrays(stream(CHUNK_ROWS), columns, self.geometry):
                yield Chunk(arrays, rows=size, locate=_Rows(self, start))

    def _scan(self, *, extra: str = "") -> str:
        """The table function that reads the files."""
        files = ", ".join(_text(path) for path in self._paths)
        options = ", union_by_name=true" if len(self._paths) > 1 else ""
        if not self._csv:
            return f"read_parquet([{files}]{options}{extra})"
        if self._types:
            pairs = ", ".join(f"{_text(name)}: {_text(kind)}" for name, kind in self._types.items())
            options += f", types={{{pairs}}}"
        dialect = f"header=true, delim={_text(self._delimiter)}, quote='\"', escape='\"', comment='', skip=0"
        return f"read_csv([{files}], {dialect}, sample_size={_SNIFFED_ROWS}{options}{extra})"

    def row_name(self, number: int) -> str:
        """Where the ``number``-th row of this scan is."""
        return self._find("true", number)

    def _find(self, condition: str, skip: int = 0) -> str:
        """The name of a row that meets a condition, after skipping some. For error messages only."""
        where = f"{self._where} AND {condition}" if self._where else f" WHERE {condition}"
        if not self._csv:
            scan = self._scan(extra=", filename=true, file_row_number=true")
            query = f"SELECT filename, file_row_number FROM {scan}{where} LIMIT 1 OFFSET {skip}"
            path, row = self._one(query)
        else:
            numbered = (
                f"SELECT *, row_number() OVER () - 1 AS row_of_all FROM {self._scan(extra=', filename=true')}"
            )
            path, row = self._one(
                f"SELECT filename, row_of_all FROM ({numbered}){where} LIMIT 1 OFFSET {skip}"
            )
            earlier = self._paths[: self._paths.index(path)]
            if earlier:
                row -= self._one(f"SELECT count(*) FROM {self._twin(_paths=earlier)._scan()}")[0]
        return f"row {row} of {Path(path).name}"

    def _zoned(self, time: str) -> bool:
        return bool(self._kinds[time] == "TIMESTAMP WITH TIME ZONE")

    def _twin(self, **changes: Any) -> FileSource:
        twin = FileSource.__new__(FileSource)
        twin.__dict__.update(self.__dict__ | changes)
        return twin

    def _one(self, query: str) -> Any:
        with self._errors():
            return _database(os.getpid(), True).cursor().execute(query).fetchone()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """DuckDB's errors as ours: file, line and column, without the private text of the line."""
        try:
            yield
        except (duckdb.Error, OSError) as problem:
            raise InputError(_in_short(str(problem), self._paths, self._delimiter)) from None


class _Rows:
    """Names rows of a scan by file and row."""

    def __init__(self, source: FileSource, start: int) -> None:
        self._source = source
        self._start = start

    def __call__(self, row: int) -> str:
        return self._source.row_name(self._start + row)


def file_source(
    data: str | os.PathLike[str] | Sequence[Any], *, types: Mapping[str, str] | None = None
) -> Source:
    """The source for a path, a glob, a folder of Parquet files, or a list of paths."""
    paths = _expand(data)
    kinds = {_kind_of(path) for path in paths}
    if len(kinds) > 1:
        raise InputError(f"files of several kinds ({', '.join(sorted(kinds))}): give one kind at a time")
    kind = kinds.pop()
    if types and kind != "csv":
        raise ConfigError("types= is for CSV files; other files know their types")
    if kind == "vector":
        return _vector_source(paths)
    return FileSource(paths, csv=kind == "csv", types=types)


def _expand(data: str | os.PathLike[str] | Sequence[Any]) -> list[str]:
    given = [data] if isinstance(data, str | os.PathLike) else list(data)
    found: list[str] = []
    for item in given:
        path = os.fspath(item)
        if Path(path).is_dir():
            matches = sorted(str(file) for file in Path(path).rglob("*") if str(file).endswith(PARQUET))
        elif Path(path).exists():
            matches = [path]
        else:
            matches = sorted(glob.glob(path, recursive=True))  # noqa: PTH207  absolute patterns
        if not matches:
            raise InputError(f"no file matches {path!r}")
        found += matches
    if not found:
        raise InputError("no files given")
    return found


def _kind_of(path: str) -> str:
    name = path.lower()
    for kind, endings in (("parquet", PARQUET), ("csv", CSV), ("vector", VECTOR)):
        if name.endswith(endings):
            return kind
    known = ", ".join((*PARQUET, *CSV, *VECTOR))
    raise InputError(f"{Path(path).name}: unknown kind of file; known are {known}")


def _vector_source(paths: list[str]) -> Source:
    """GeoJSON and its like are read whole, through geopandas."""
    import geopandas as gpd
    import pandas as pd

    frames = []
    for path in paths:
        try:
            frames.append(gpd.read_file(path))
        except Exception as problem:  # the reader's errors have no common base
            raise InputError(f"{Path(path).name}: cannot be read ({problem})") from problem
    data = frames[0] if len(frames) == 1 else gpd.GeoDataFrame(pd.concat(frames, ignore_index=True))
    return LocalSource(PandasFrame(data))


@cache
def _database(_process: int, ordered: bool) -> Any:
    """A database to read files with. Keeping order is a setting of a whole database: there are two."""
    database = duckdb.connect(":memory:", config={"preserve_insertion_order": str(ordered).lower()})
    database.execute("SET TimeZone = 'UTC'")
    database.execute("SET enable_progress_bar = false")
    return database


def _duckdb_type(name: str, kind: str) -> str:
    if kind not in _TYPES:
        raise ConfigError(f"type {kind!r} of column {name!r} is unknown; known are {', '.join(_TYPES)}")
    return _TYPES[kind]


def _delimiter(path: str) -> str:
    """The separator of a CSV file, from its header; guessing from the rows would hide a ragged one."""
    opened = gzip.open(path, "rt") if path.endswith(".gz") else open(path)  # noqa: SIM115, PTH123
    try:
        with opened as file:
            header = file.readline() if not path.endswith(".zst") else ","
    except (OSError, UnicodeDecodeError) as problem:
        raise InputError(f"{Path(path).name}: cannot be read ({problem})") from None
    if not header.strip():
        raise InputError(f"{Path(path).name}: no header line")
    return max(",;\t|", key=header.count)


def _in_short(message: str, paths: list[str], delimiter: str) -> str:
    """One line from DuckDB's report: never the offending text, which is private."""
    line = re.search(r"CSV Error on Line: (\d+)", message)
    file = re.search(r"(?:file = |sniffing file \")([^\"\n]+)", message)
    name = Path(file[1].strip()).name if file else Path(paths[0]).name
    if line:
        column = re.search(r"converting column \"([^\"]+)\"", message)
        kind = re.search(r"is being converted as type (\w+)", message)
        if column and kind:
            return (
                f"{name}, line {line[1]}: column {column[1]!r} cannot be read as {kind[1]}; "
                f"if it should be something else, say so with types="
            )
        return f"{name}, line {line[1]}: the number of columns is not that of the header"
    if "sniffing file" in message:
        return _ragged_line(next((path for path in paths if Path(path).name == name), paths[0]), delimiter)
    first = message.splitlines()[0]
    return f"{name}: {first}"


def _ragged_line(path: str, delimiter: str) -> str:
    """Which line of a CSV file does not fit its header."""
    opened = gzip.open(path) if path.endswith(".gz") else open(path, "rb")  # noqa: SIM115, PTH123
    with opened as raw, io.TextIOWrapper(raw, "utf-8", errors="replace", newline="") as file:
        rows = csv_module.reader(file, delimiter=delimiter)
        try:
            width = len(next(rows, []))
            for row in rows:
                if row and len(row) != width:
                    columns = f"{len(row)} columns, the header has {width}"
                    return f"{Path(path).name}, line {rows.line_num}: {columns}"
        except csv_module.Error:  # a NUL, a field without end: no CSV
            pass
    return f"{Path(path).name}: not a CSV file that can be read"


def _name(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"

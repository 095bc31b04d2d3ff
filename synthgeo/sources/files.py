"""Files: Parquet in memory that does not grow with them; what else a path can name.

DuckDB reads and filters columns of numbers, times, bytes and text, and streams them as Arrow batches. It
gives up a whole file for one value that it does not take. So columns whose values it would convert are read
by Arrow, and so is what follows text that is no UTF-8. Text files are given to neither: types would be
guessed from rows.
"""

# ruff: noqa: S608  every name and text in a query goes through _name and _text, which quote it
from __future__ import annotations

import glob
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from synthgeo import validate
from synthgeo.arrays import Bools
from synthgeo.errors import InputError
from synthgeo.sources.chunk import Chunk
from synthgeo.sources.declared import MAX_LINE, Reading
from synthgeo.sources.frames import ArrowFrame, LocalSource, chunk_of_batch, stream_batches, zoned_type
from synthgeo.sources.geometry import geometry_of_schema
from synthgeo.sources.json_lines import JSON_LINES, JsonLines, geojson_source
from synthgeo.sources.source import Source, rows_per_chunk
from synthgeo.sources.text import TextSource
from synthgeo.sources.unchanged import Unchanged
from synthgeo.sources.windows import ScannedSource, cut_chunk

PARQUET = (".parquet", ".pq", ".geoparquet")
TEXT = tuple(f"{kind}{packed}" for kind in (".csv", ".tsv", ".txt") for packed in ("", ".gz", ".zst", ".bz2"))
GEOJSON = (".geojson", ".json")
VECTOR = (".gpkg", ".shp", ".fgb")
# What reading Parquet may take: a few hundred bytes of a file can claim pages of gigabytes.
_MEMORY, _MOST_TEXT = "640MB", 256 << 20  # Arrow holds a page two or three times
_LONG = "synthgeo: a cell is too long"
_NO_TEXT = "Invalid string encoding"  # what DuckDB says of text that is no UTF-8
_TOO_LONG = f"a cell is longer than {MAX_LINE:,} bytes"


class ParquetSource(ScannedSource):
    """Parquet files, in the order given; every file has the same columns, each of its own type."""

    def __init__(self, paths: Sequence[str], reading: Reading) -> None:
        self.reading, self.unchanged = reading, Unchanged(paths)
        self._files = [(path, _schema_of(path)) for path in paths]
        first = self._files[0][1]
        self.columns = list(first.names)
        for path, schema in self._files:
            if len(set(schema.names)) < len(schema.names):
                raise InputError(f"{Path(path).name}: a column name appears more than once")
            if set(schema.names) != set(self.columns):
                raise InputError(
                    f"{Path(path).name} has other columns than {Path(paths[0]).name}: give files the same "
                    f"columns, or read them apart"
                )
        self._schema = first
        self.geometry, self.crs = geometry_of_schema(first)
        if any(geometry_of_schema(schema) != (self.geometry, self.crs) for _, schema in self._files[1:]):
            raise InputError("these files hold geometries in different coordinate systems: read them apart")
        self._spans: tuple[tuple[str, int, int], ...] = ()

    def is_zoned(self, column: str) -> bool:
        return bool(zoned_type(self._schema.field(column).type)) or self.reading.tz is not None

    def between(self, time: str, low: int, high: int) -> ScannedSource:
        # In the file the times are clock times, or the column holds text: filter what was read.
        kinds = {zoned_type(schema.field(time).type) for _, schema in self._files}
        if kinds - {True, False} or (self.reading.tz is not None and kinds != {True}) or len(kinds) > 1:
            return super().between(time, low, high)
        twin = ParquetSource.__new__(ParquetSource)
        twin.__dict__.update(self.__dict__ | {"_spans": (*self._spans, (time, low, high))})
        return twin

    def loads(self, columns: Sequence[str], *, ordered: bool = True) -> Iterator[Callable[[], Chunk]]:
        with self.unchanged.while_read():
            for _, group in groupby(self._files, key=lambda file: _form(file[1])):
                files = list(group)
                paths, schema = [path for path, _ in files], files[0][1]
                wanted = [*columns, *(time for time, _, _ in self._spans)]
                texts = {name for name in wanted if _length_of(schema.field(name))}
                if not _is_plain(schema, [name for name in wanted if name not in texts]):
                    yield from self._arrow_loads(paths, columns)
                else:
                    yield from self._loads(paths, schema, columns, ordered or bool(texts))

    def _loads(
        self, paths: list[str], schema: Any, columns: Sequence[str], ordered: bool
    ) -> Iterator[Callable[[], Chunk]]:
        """Stream the columns of files of one form; batches stay in their order when ``ordered``."""
        texts = [name for name in columns if _length_of(schema.field(name))]
        long = [f"coalesce({_length_of(schema.field(name))} > {MAX_LINE}, false)" for name in texts]
        cells = {name: f"CASE WHEN {test} THEN NULL ELSE {_name(name)} END AS {_name(name)}"
                 for name, test in zip(texts, long, strict=True)}  # fmt: skip
        names = ", ".join([cells.get(name, _name(name)) for name in columns]) or "1"
        names += f", {' OR '.join(long)} AS {_name(_LONG)}" if long else ""
        query = f"SELECT {names} FROM {_scan(paths)}{self._where(schema)}"
        done = 0
        try:
            cursor = _database(os.getpid(), ordered).cursor()  # old versions close one that nobody holds
            rows = cursor.sql(query)
            # DuckDB renamed the method; the old name warns in new versions.
            stream = rows.to_arrow_reader if hasattr(rows, "to_arrow_reader") else rows.fetch_record_batch
            for start, batch in stream_batches(stream(rows_per_chunk(columns))):
                where = _Rows(self, paths, schema, start) if ordered else None
                chunk = chunk_of_batch(batch, columns, self.reading, self.geometry, where)
                if long:
                    wrong = np.flatnonzero(batch.column(len(columns)).to_numpy(zero_copy_only=False))
                    chunk.broken |= dict.fromkeys(wrong.tolist(), _TOO_LONG)
                yield lambda chunk=chunk: chunk  # type: ignore[misc]
                done = start + batch.num_rows
        except (duckdb.Error, pa.ArrowException, OSError, UnicodeError) as problem:
            if not texts or _NO_TEXT not in str(problem):
                with _errors(paths):
                    raise
        else:
            return
        yield from self._arrow_loads(paths, columns, skipped=done)

    def _arrow_loads(
        self, paths: list[str], columns: Sequence[str], skipped: int = 0
    ) -> Iterator[Callable[[], Chunk]]:
        """The same by Arrow, a row group that may hold some of the rows after the other, behind some rows."""
        wanted = list(dict.fromkeys([*columns, *(time for time, _, _ in self._spans)]))
        for path in paths:
            with _errors([path]):
                metadata = pq.read_metadata(path)
                held = [self._may_hold(metadata, at) for at in range(metadata.num_row_groups)]
            edges = np.flatnonzero(np.diff([False, *held, False]))  # of runs of neighbours
            for first, end in edges.reshape(-1, 2).tolist() or [[0, 0]]:
                for chunk in map(self._cut, self.chunks_of((path, tuple(range(first, end))), wanted)):
                    behind = chunk.take(np.arange(skipped, chunk.rows)) if skipped else chunk
                    skipped = max(0, skipped - chunk.rows)
                    yield lambda chunk=behind: chunk  # type: ignore[misc]

    def _may_hold(self, metadata: Any, group: int) -> bool:
        """Whether a row group may hold rows of the spans, by what the file says of its times."""
        names = [metadata.schema.column(at).path for at in range(metadata.num_columns)]
        for time, low, high in self._spans:
            kind = self._schema.field(time).type
            said = metadata.row_group(group).column(names.index(time)).statistics
            known = said is not None and said.has_min_max and said.physical_type == "INT64"
            micros = pa.types.is_timestamp(kind) and kind.unit == "us"
            if known and micros and (said.max_raw < low or said.min_raw >= high):
                return False
        return True

    def _cut(self, chunk: Chunk) -> Chunk:
        for time, low, high in self._spans:
            chunk = cut_chunk(chunk, time, low, high)
        return chunk

    @property
    def rows(self) -> int:
        """How many rows the files have, as they say; 0 where only some of them are asked for."""
        return 0 if self._spans else sum(pq.read_metadata(path).num_rows for path, _ in self._files)

    def parts(self, rows: int = 1 << 22) -> list[tuple[str, tuple[int, ...]]]:
        """Parts of the files that can be read apart: neighbouring row groups."""
        found = []
        for path, _ in self._files:
            with _errors([path]):
                sizes = pq.ParquetFile(path).metadata
            groups = [sizes.row_group(at).num_rows for at in range(sizes.num_row_groups)]
            bounds = np.cumsum([0, *groups]) // rows
            of = [np.flatnonzero(bounds[:-1] == number) for number in np.unique(bounds[:-1])]
            found += [(path, tuple(int(group) for group in groups)) for groups in of]
        return found or [(self._files[0][0], ())]

    def chunks_of(self, part: tuple[str, tuple[int, ...]], columns: Sequence[str]) -> Iterator[Chunk]:
        """The rows of a part."""
        path, groups = part
        with _errors([path]):
            metadata = pq.read_metadata(path)
            before = sum(metadata.row_group(at).num_rows for at in range(groups[0])) if groups else 0
            schema = dict(self._files)[path]
            texts = [name for name in columns if _length_of(schema.field(name))]
            _check_sizes(path, metadata, groups, texts)
            # As dictionaries: a file holds an equal cell once, and so is it held here.
            file = pq.ParquetFile(path, read_dictionary=texts)
            reader = pa.RecordBatchReader.from_batches(
                pa.schema([file.schema_arrow.field(name) for name in columns]),
                file.iter_batches(rows_per_chunk(columns), row_groups=list(groups), columns=list(columns)),
            )
            for start, batch in stream_batches(reader):
                where = _FileRows(Path(path).name, before + start)
                long = np.zeros(batch.num_rows, dtype=bool)
                for name in texts:
                    batch, wrong = _without_long(batch, name)
                    long |= wrong
                chunk = chunk_of_batch(batch, columns, self.reading, self.geometry, where)
                chunk.broken |= dict.fromkeys(np.flatnonzero(long).tolist(), _TOO_LONG)
                yield chunk

    def _where(self, schema: Any) -> str:
        parts = []
        for time, low, high in self._spans:
            make = "make_timestamptz" if zoned_type(schema.field(time).type) else "make_timestamp"
            parts.append(f"{_name(time)} >= {make}({low}) AND {_name(time)} < {make}({high})")
        return f" WHERE {' AND '.join(parts)}" if parts else ""

    def row_name(self, paths: list[str], schema: Any, number: int) -> str:
        """Where a row of a scan is. For error messages only."""
        query = (
            f"SELECT filename, file_row_number FROM {_scan(paths, ', filename=true, file_row_number=true')}"
            f"{self._where(schema)} LIMIT 1 OFFSET {number}"
        )
        with _errors(paths):
            path, row = _database(os.getpid(), True).cursor().execute(query).fetchone()
        return f"row {row} of {Path(path).name}"

    def time_span(self, time: str) -> tuple[Any, Any] | None:
        spans = []
        for _, group in groupby(self._files, key=lambda file: _form(file[1])):
            files = list(group)
            kind = zoned_type(files[0][1].field(time).type)
            plain = _is_plain(files[0][1], [time])
            if kind is None or not plain or (self.reading.tz is not None and not kind):
                return super().time_span(time)
            column, paths = _name(time), [path for path, _ in files]
            facts = f"count(*), count({column}), epoch_us(min({column})), epoch_us(max({column}))"
            with _errors(paths):
                query = f"SELECT {facts} FROM {_scan(paths)}{self._where(files[0][1])}"
                rows, known, low, high = _database(os.getpid(), True).cursor().execute(query).fetchone()
            if known < rows:
                return super().time_span(time)  # names the rows without a time, or leaves them out
            if rows:
                spans.append((np.datetime64(low, "us"), np.datetime64(high, "us")))
        return (min(low for low, _ in spans), max(high for _, high in spans)) if spans else None


class _FileRows:
    """Names rows by file and row."""

    def __init__(self, name: str, start: int) -> None:
        self._name, self._start = name, start

    def __call__(self, row: int) -> str:
        return f"row {self._start + row} of {self._name}"


class _Rows:
    """Names rows of a scan by file and row."""

    def __init__(self, source: ParquetSource, paths: list[str], schema: Any, start: int) -> None:
        self._source, self._paths, self._schema, self._start = source, paths, schema, start

    def __call__(self, row: int) -> str:
        return self._source.row_name(self._paths, self._schema, self._start + row)


def file_source(data: str | os.PathLike[str] | Sequence[Any], reading: Reading) -> Source:
    """The source for a path, a glob, a folder of Parquet files, or a list of paths."""
    paths = expand(data)
    kinds = {_kind_of(path) for path in paths}
    if len(kinds) > 1:
        raise InputError(f"files of several kinds ({', '.join(sorted(kinds))}): give one kind at a time")
    kind = kinds.pop()
    if kind == "text":
        return TextSource(paths, reading)
    if kind == "JSON lines":
        return JsonLines(paths, reading)
    if kind == "GeoJSON":
        return geojson_source(paths, reading)
    if kind == "vector":
        return _vector_source(paths, reading)
    return ParquetSource(paths, reading)


def expand(data: str | os.PathLike[str] | Sequence[Any]) -> list[str]:
    """The files that a path, a glob, a folder or a list of these names.

    A path that exists is that file and nothing else, whatever characters its name has. A folder names its
    Parquet files, or its other data files where it has none.
    """
    given = [data] if isinstance(data, str | os.PathLike) else list(data)
    found: list[str] = []
    for item in given:
        path = os.fspath(item)
        if "://" in path:
            raise InputError(f"{path!r} is an address, not a path: only files of this machine are read")
        if Path(path).is_dir():
            matches = _in_folder(Path(path))
        elif Path(path).exists():
            matches = [path]
        else:
            matches = sorted(glob.glob(path, recursive=True))  # noqa: PTH207  absolute patterns
        if not matches:
            raise InputError(f"no file matches {path!r}")
        for match in matches:
            validate.utf8_path(match)
        found += matches
    if not found:
        raise InputError("no files given")
    seen: dict[tuple[int, int], str] = {}
    for path in found:
        stat = Path(path).stat()
        if seen.setdefault((stat.st_dev, stat.st_ino), path) is not path:
            raise InputError(f"{Path(path).name} is given twice: its rows would count twice")
    return found


def _in_folder(folder: Path) -> list[str]:
    names = sorted(str(file) for file in folder.rglob("*") if file.is_file() and file.name[0] not in "._")
    others = (*TEXT, *JSON_LINES, *GEOJSON, *VECTOR)
    tables = [name for name in names if name.lower().endswith(PARQUET)]
    return tables or [name for name in names if name.lower().endswith(others)]


def _kind_of(path: str) -> str:
    name = path.lower()
    kinds = (
        ("Parquet", PARQUET),
        ("text", TEXT),
        ("JSON lines", JSON_LINES),
        ("GeoJSON", GEOJSON),
        ("vector", VECTOR),
    )
    for kind, endings in kinds:
        if name.endswith(endings):
            return kind
    known = ", ".join((*PARQUET, *TEXT, *JSON_LINES, *GEOJSON, *VECTOR))
    raise InputError(f"{Path(path).name}: unknown kind of file; known are {known}")


def _vector_source(paths: list[str], reading: Reading) -> Source:
    """GeoPackage and its like know their types; they are read whole."""
    import pyogrio
    from pyproj import CRS

    tables, systems = [], set()
    for path in paths:
        _check_tables(path)
        try:
            layers = pyogrio.list_layers(path)
            if len(layers) != 1:
                raise InputError(f"{Path(path).name} has {len(layers)} layers; give a file with one")
            facts, table = pyogrio.read_arrow(path)
        except (pyogrio.errors.DataSourceError, pyogrio.errors.DataLayerError, OSError) as problem:
            raise InputError(f"{Path(path).name}: {_reason(problem)}") from None
        systems.add(facts["crs"])
        name = facts["geometry_name"] or "wkb_geometry"
        tables.append(table.rename_columns(["geometry" if n == name else n for n in table.column_names]))
    if len(systems) > 1:
        raise InputError("these files hold geometries in different coordinate systems: read them apart")
    try:
        frame = ArrowFrame(pa.concat_tables(tables) if len(tables) > 1 else tables[0])
    except pa.ArrowInvalid:
        raise InputError("these files have different columns: read them apart") from None
    system = systems.pop()
    frame.geometry, frame.crs = "geometry", None if system is None else CRS.from_user_input(system)
    return LocalSource(frame, reading=reading)


def _check_tables(path: str) -> None:
    """A layer of a GeoPackage is a table: a view can make any number of rows and bytes out of none."""
    if not path.lower().endswith(".gpkg"):
        return
    try:
        with closing(sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro", uri=True)) as base:
            views = base.execute("SELECT count(*) FROM sqlite_master WHERE type = 'view'").fetchone()[0]
    except sqlite3.Error:
        raise InputError(f"{Path(path).name}: cannot be read; is it damaged?") from None
    if views:
        raise InputError(
            f"{Path(path).name}: holds a view, and only tables are read; write the rows to a table"
        )


def _schema_of(path: str) -> Any:
    try:
        return pq.read_schema(path)
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        raise InputError(f"{Path(path).name}: not a Parquet file that can be read") from None


def _is_plain(schema: Any, columns: Sequence[str]) -> bool:
    """Whether DuckDB hands these columns through as they are, whatever they hold."""
    types = pa.types
    for kind in (schema.field(name).type for name in columns):
        number = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
        plain = number and not types.is_float16(kind)
        if not plain and not (types.is_timestamp(kind) and kind.unit == "us"):
            return False
    return True


def _form(schema: Any) -> tuple[tuple[str, str], ...]:
    return tuple((field.name, str(field.type)) for field in schema)


def _scan(paths: list[str], extra: str = "") -> str:
    """The table function that reads the files: these files, and no columns but theirs."""
    files = ", ".join(_text(_literal(path)) for path in paths)
    return f"read_parquet([{files}], hive_partitioning=false, union_by_name=false{extra})"


def _literal(path: str) -> str:
    """A pattern that matches one path only."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in path)


def _length_of(field: Any) -> str | None:
    """How long a cell of a column is, as DuckDB says it; None where its type bounds it."""
    kind = field.type.storage_type if isinstance(field.type, pa.BaseExtensionType) else field.type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return f"strlen({_name(field.name)})"
    binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)
    return f"octet_length({_name(field.name)})" if binary else None


def _without_long(batch: Any, name: str) -> tuple[Any, Bools]:
    """A batch whose cells of a column that are too long are null, and which these are."""
    column = batch[name].storage if isinstance(batch[name], pa.ExtensionArray) else batch[name]
    known = column.dictionary if pa.types.is_dictionary(column.type) else column
    long = pc.greater(pc.binary_length(known), MAX_LINE).fill_null(False)
    if not pc.any(long).as_py():
        return batch, np.zeros(batch.num_rows, dtype=bool)
    short = pc.if_else(long, pa.scalar(None, known.type), known)
    if known is not column:
        long = pc.take(long, column.indices).fill_null(False)
        short = pa.DictionaryArray.from_arrays(column.indices, short)
    at = batch.schema.get_field_index(name)
    return batch.set_column(at, batch.schema.field(at).with_type(short.type), short), long.to_numpy(False)


def _check_sizes(path: str, metadata: Any, groups: Sequence[int], texts: Sequence[str]) -> None:
    """Refuse row groups of many bytes in few rows, as DuckDB does: Arrow holds a whole page of them."""
    for group in map(metadata.row_group, groups):
        columns = [group.column(at) for at in range(group.num_columns)]
        size = sum(one.total_uncompressed_size for one in columns if one.path_in_schema in texts)
        if size > max(_MOST_TEXT, group.num_rows * (MAX_LINE >> 8)):
            raise _too_much(path)


def _too_much(path: str) -> InputError:
    return InputError(
        f"{Path(path).name}: reading it takes more than {_MEMORY}; write smaller cells and pages"
    )


@cache
def _database(_process: int, ordered: bool) -> Any:
    """A database to read files with. Keeping order is a setting of a whole database: there are two."""
    config: dict[str, Any] = {
        "preserve_insertion_order": str(ordered).lower(),
        "memory_limit": _MEMORY,
        "temp_directory": "",
        "threads": str(min(4, os.cpu_count() or 1)),  # as many as count
    }
    database = duckdb.connect(":memory:", config=config)
    for setting in (
        "TimeZone = 'UTC'",
        "enable_progress_bar = false",
        "autoinstall_known_extensions = false",
        "autoload_known_extensions = false",
        "GLOBAL enable_geoparquet_conversion = false",  # bytes are read row by row, here
    ):
        database.execute(f"SET {setting}")
    return database


@contextmanager
def _errors(paths: list[str]) -> Iterator[None]:
    """Errors of DuckDB and Arrow as ours: theirs may show values."""
    try:
        yield
    except duckdb.OutOfMemoryException:
        raise _too_much(paths[0]) from None
    except (duckdb.Error, pa.ArrowException, OSError, UnicodeError) as problem:
        raise InputError(f"{Path(paths[0]).name}: {_reason(problem)}") from None


def _reason(problem: Exception) -> str:
    """Why a file cannot be read, as far as the system says it."""
    known = problem.strerror if isinstance(problem, OSError) else None
    return f"cannot be read ({known})" if known else "cannot be read to its end; is it damaged?"


def _name(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"

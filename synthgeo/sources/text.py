"""Text files with one record per line: CSV and its like, plain or compressed, in bounded memory.

A record is one physical line. Which bytes are its fields, and what they mean, follows from that line and from
what is declared (``Reading``); nothing is guessed from other lines.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from synthgeo.errors import InputError
from synthgeo.sources.chunk import Chunk
from synthgeo.sources.declared import MAX_LINE, Reading
from synthgeo.sources.text_column import TextColumn
from synthgeo.sources.unchanged import Unchanged
from synthgeo.sources.windows import ScannedSource

#: Bytes per chunk: some 10^5 rows, so that a few of them fit the cache and the memory of every thread.
BLOCK = 1 << 23
_COMPRESSED = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
_UNPACKED = 5
_LINE_PROBLEMS = {
    -1: "there is text behind a closing quote (quote= says which character quotes: --quote)",
    -2: "there is a carriage return inside the line",
    -3: f"the line is longer than {MAX_LINE:,} bytes",
}


@dataclass(frozen=True)
class Block:
    """Whole lines of a file, and the byte at which they start."""

    path: str
    offset: int
    data: NDArray[np.uint8]


@dataclass(frozen=True)
class Part:
    """The lines of a file that start between two bytes."""

    path: str
    start: int
    stop: int


class TextSource(ScannedSource):
    """Files with one record per line, in the order given; every file has the same columns."""

    def __init__(self, paths: Sequence[str], reading: Reading) -> None:
        self.reading, self.unchanged = reading, Unchanged(paths)
        self._paths = list(paths)
        self._headers = {path: _header(path, reading) for path in self._paths}
        first = self._headers[self._paths[0]]
        self.columns = list(first.names)
        for path, header in self._headers.items():
            if set(header.names) != set(first.names):
                raise InputError(
                    f"{Path(path).name} has other columns than {Path(self._paths[0]).name}: give files the "
                    f"same header, or read them apart"
                )

    def described(self, asked: Sequence[str]) -> str:
        # A file without a header line has a record in its place, and records are never shown.
        if self.reading.columns is not None or any(name in self.columns for name in asked):
            return f"there are {', '.join(self.columns)}"
        return (
            f"the first line of {Path(self._paths[0]).name} is taken as the header and names "
            f"{len(self.columns)} other columns; a file without a header line needs columns= (--columns)"
        )

    def is_zoned(self, column: str) -> bool:  # noqa: ARG002
        return self.reading.tz is not None

    def blocks(self) -> Iterator[Block]:
        """Whole lines, some megabytes at a time, in bounded memory."""
        with self.unchanged.while_read():
            for path in self._paths:
                yield from blocks_of(path, self._headers[path].size)

    def loads(self, columns: Sequence[str], *, ordered: bool = True) -> Iterator[Callable[[], Chunk]]:  # noqa: ARG002
        empty = Block(self._paths[0], 0, np.empty(0, dtype=np.uint8))
        for block in or_one(self.blocks(), empty):
            yield lambda block=block: self.parse(block, columns)  # type: ignore[misc]

    @property
    def size(self) -> int:
        """Bytes of text in the files, about: compressed ones hold some five times their own size."""
        packed = [_UNPACKED if Path(path).suffix.lower() in _COMPRESSED else 1 for path in self._paths]
        return sum(Path(p).stat().st_size * times for p, times in zip(self._paths, packed, strict=True))

    def parts(self, size: int = 1 << 26) -> list[Part]:
        """Parts of the files that can be read apart: whole files where they are compressed."""
        found = []
        for path in self._paths:
            start, end = self._headers[path].size, Path(path).stat().st_size
            step = size if Path(path).suffix.lower() not in _COMPRESSED else max(end, 1)
            found += [Part(path, low, low + step) for low in range(start, max(end, start + 1), step)]
        return found

    def chunks_of(self, part: Part, columns: Sequence[str]) -> Iterator[Chunk]:
        """The lines that start in a part."""
        empty = Block(part.path, 0, np.empty(0, dtype=np.uint8))
        first = self._headers[part.path].size
        for block in or_one(blocks_of(part.path, first, part.start, part.stop), empty):
            yield self.parse(block, columns)

    def parse(self, block: Block, columns: Sequence[str]) -> Chunk:
        """The records of some lines."""
        from synthgeo.sources import kernels

        header = self._headers[block.path]
        newline = np.flatnonzero(block.data == 10)
        if len(block.data) and (not len(newline) or newline[-1] != len(block.data) - 1):
            newline = np.append(newline, len(block.data))
        line_start = np.concatenate([[0], newline[:-1] + 1]) if len(newline) else newline
        slot = np.full(len(header.names), -1, dtype=np.int64)
        for at, name in enumerate(columns):
            slot[header.names.index(name)] = at
        shape = (max(len(columns), 1), len(line_start))
        start, end = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        escaped, fields = np.zeros(shape, dtype=bool), np.zeros(len(line_start), np.int64)
        quote = ord(self.reading.quote) if self.reading.quote else -1
        marks = (ord(header.delimiter), quote)
        kernels.split_lines(
            block.data, line_start, newline, *marks, slot, MAX_LINE, start, end, escaped, fields
        )
        records = np.flatnonzero(fields != kernels.EMPTY)
        whole = len(records) == len(fields)
        rows: Any = slice(None) if whole else records
        found = {
            name: TextColumn(block.data, start[at][rows], end[at][rows], escaped[at][rows], self.reading)
            for at, name in enumerate(columns)
        }
        wrong = np.flatnonzero(fields[rows] != len(header.names))
        broken = {int(row): _line_problem(int(fields[rows][row]), len(header.names)) for row in wrong}
        where = Lines(block.path, block.offset + line_start[rows])
        return Chunk(found, rows=len(records), locate=where, reading=self.reading, broken=broken)


@dataclass(frozen=True)
class _CsvHeader:
    names: tuple[str, ...]
    delimiter: str
    size: int  # bytes before the first record


@dataclass(frozen=True)
class Lines:
    """Names rows by file and line."""

    path: str
    offsets: NDArray[np.int64]

    def __call__(self, row: int) -> str:
        return f"line {_newlines_before(self.path, int(self.offsets[row])) + 1} of {Path(self.path).name}"


def _line_problem(fields: int, columns: int) -> str:
    if fields in _LINE_PROBLEMS:
        return _LINE_PROBLEMS[fields]
    return f"the line has {fields} fields, the header {columns}"


def or_one(blocks: Iterator[Block], empty: Block) -> Iterator[Block]:
    """The blocks, or one without lines where there are none: a file without rows is an empty batch."""
    some = False
    for block in blocks:
        some = True
        yield block
    if not some:
        yield empty


def open_bytes(path: str) -> Any:
    """A file's bytes, decompressed where its name says that they are compressed."""
    try:
        raw = pa.OSFile(path, "rb")
        packed = _COMPRESSED.get(Path(path).suffix.lower())
        return raw if packed is None else pa.CompressedInputStream(raw, packed)
    except (OSError, pa.ArrowException) as problem:
        reason = getattr(problem, "strerror", None) or "is it damaged?"
        raise InputError(f"{Path(path).name}: cannot be read ({reason})") from None


def _read(file: Any, size: int, path: str) -> bytes:
    try:
        return bytes(file.read_buffer(size))  # read() would keep its memory where it fails
    except (OSError, pa.ArrowException):
        raise InputError(f"{Path(path).name}: cannot be read to its end; is it damaged?") from None


def blocks_of(path: str, first: int, start: int = 0, stop: int | None = None) -> Iterator[Block]:
    """Whole lines of a file whose records begin at byte ``first``, some megabytes at a time.

    Only lines that start at byte ``start`` or later and before ``stop`` are given. A line that is longer than
    a line may be is given cut off, so that it is known for what it is.
    """
    mark = _mark(path)
    with open_bytes(path) as file:
        # From one byte before, so that a line that starts just there is told from the end of another.
        offset = max(first, start - 1)
        _skip(file, offset, path)
        skipping = start > first  # until the next line starts
        rest = b""
        while stop is None or offset < stop:
            data = _read(file, BLOCK, path)
            end_of_file = not data
            if skipping:
                ahead = data.find(b"\n") + 1
                offset += len(rest) + (ahead or len(data))
                rest = b""
                if data and not ahead:
                    continue
                skipping, data = False, data[ahead:]
            rest += data
            whole = rest if end_of_file else rest[: rest.rfind(b"\n") + 1]
            if whole:
                kept = whole if stop is None else whole[: _last_start(whole, stop - offset)]
                if kept:
                    yield Block(path, offset, np.frombuffer(kept, dtype=np.uint8))
                offset, rest = offset + len(whole), rest[len(whole) :]
            if end_of_file:
                break
            if len(rest) > MAX_LINE + 2:
                yield Block(path, offset, np.frombuffer(rest[: MAX_LINE + 2], dtype=np.uint8))
                skipping = True
    if _mark(path) != mark:
        raise InputError(f"{Path(path).name} changed while it was read; give it again when it is complete")


def _skip(file: Any, size: int, path: str) -> None:
    if size and hasattr(file, "seek") and file.seekable():
        file.seek(size)
        return
    while size > 0:
        data = _read(file, min(size, BLOCK), path)
        if not data:
            return
        size -= len(data)


def _last_start(lines: bytes, limit: int) -> int:
    """Where the lines end that start before byte ``limit``."""
    if limit >= len(lines):
        return len(lines)
    return lines.find(b"\n", max(limit - 1, 0)) + 1 or len(lines) if limit > 0 else 0


def _mark(path: str) -> tuple[int, int, int]:
    stat = os.stat(path)  # noqa: PTH116
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def _header(path: str, reading: Reading) -> _CsvHeader:
    """The public first line: names of the columns, the delimiter, and where the records start."""
    name = Path(path).name
    with open_bytes(path) as file:
        start = _read(file, MAX_LINE + 4, path)
    bom = 3 if start.startswith(b"\xef\xbb\xbf") else 0
    if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise InputError(f"{name}: this is UTF-16; convert it to UTF-8 first")
    line, newline, _ = start[bom:].partition(b"\n")
    if len(line) > MAX_LINE:
        raise InputError(f"{name}: the first line is longer than {MAX_LINE:,} bytes; this is no CSV file")
    if reading.columns is not None:
        if reading.delimiter is None:
            raise InputError(f"{name}: without a header line the delimiter must be declared: delimiter=','")
        return _CsvHeader(reading.columns, reading.delimiter, bom)
    try:
        text = line.rstrip(b"\r").decode(reading.encoding)
    except UnicodeDecodeError:
        raise InputError(
            f"{name}: the header is not {reading.encoding}; encoding= says what it is (--encoding latin-1)"
        ) from None
    if not text.strip():
        raise InputError(f"{name}: no header line")
    if "\0" in text:
        raise InputError(f"{name}: not a text file")
    delimiter = reading.delimiter or max(",;\t|", key=text.count)
    names = tuple(_split_header(name, text, delimiter, reading.quote))
    if len(set(names)) < len(names):
        raise InputError(f"{name}: the header names a column more than once (columns {_places(names)})")
    return _CsvHeader(names, delimiter, bom + len(line) + len(newline))


def _places(names: tuple[str, ...]) -> str:
    often = Counter(names)
    twice = next(name for name in names if often[name] > 1)
    places = [str(at + 1) for at, name in enumerate(names) if name == twice]
    return " and ".join(places[:5]) + (f" and {len(places) - 5} more" if len(places) > 5 else "")


def _split_header(file: str, text: str, delimiter: str, quote: str | None) -> list[str]:
    import csv

    options: dict[str, Any] = {"quoting": csv.QUOTE_NONE} if quote is None else {"quotechar": quote}
    csv.field_size_limit(MAX_LINE)
    try:
        return [name.strip() for name in next(csv.reader([text], delimiter=delimiter, **options))]
    except csv.Error as problem:  # a line that ends in the middle of a field; says nothing of its content
        raise InputError(f"{file}: the header is no line of names ({problem})") from None


def _newlines_before(path: str, offset: int) -> int:
    count = 0
    with open_bytes(path) as file:
        while offset > 0:
            data = file.read(min(offset, BLOCK))
            if not data:
                break
            count += bytes(data).count(b"\n")
            offset -= len(data)
    return count


__all__ = ["BLOCK", "Block", "Lines", "Part", "TextSource", "blocks_of", "open_bytes", "or_one"]

"""From files to parts that hold whole trips: rows are read once, and dealt out by a hash of their trip.

Files are read in pieces (row groups, stretches of lines), each by one task, which sorts its rows by *bucket*:
the hash of the trip's id or, where users are protected, of the user's, so that all trips of a user lie in one
bucket. A bucket is then what all pieces hold of it, in the order of the files.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from synthgeo.arrays import Array, Floats, Ints
from synthgeo.errors import InputError
from synthgeo.hashing import mix
from synthgeo.privacy.users import UserIds
from synthgeo.sources import Source
from synthgeo.sources.files import ParquetSource
from synthgeo.sources.source import usable
from synthgeo.sources.text import TextSource
from trajectories.parts.columns import Columns
from trajectories.parts.folder import FolderParts, LazyColumns, PrivateFolder
from trajectories.parts.records import record_arrays, record_names
from trajectories.parts.workers import Workers
from trajectories.reading.points import EndColumns, EndRows, PointRows, TripColumns

MANY_ROWS = 1 << 21  # points that are read at once and held in memory; more are dealt out
_BUCKET_ROWS = 1 << 18
_PIECE_ROWS = 1 << 20
_PIECE_BYTES = 1 << 26
_LINE_BYTES = 40  # of a line with a trip, a time and a place, about
MOST_BUCKETS = 1 << 12  # buckets
_ENDS = ("x", "y", "to_x", "to_y")


def shuffled(source: TextSource | ParquetSource, columns: TripColumns, workers: Workers) -> FolderParts:
    """The rows of files in parts, each trip (each user) whole in one of them."""
    folder = PrivateFolder()
    text = isinstance(source, TextSource)
    pieces = list(enumerate(source.parts(_PIECE_BYTES if text else _PIECE_ROWS)))
    buckets = int(np.clip(-(-expected_rows(source) // _BUCKET_ROWS), workers.number, MOST_BUCKETS))
    work = Dealing(source, columns, folder.name, buckets)
    try:
        dealt = [piece for pieces_of_task in workers.map(work, pieces) for piece in pieces_of_task]
    except InputError as problem:
        if problem.row is None:
            raise
        raise source.diagnosed(problem, list(columns.kinds), (columns.fields,)) from problem
    names = dealt[0].names
    parts = [
        Bucket(names, folder.name, tuple((piece.number, *piece.bounds(bucket)) for piece in dealt))
        for bucket in range(buckets)
    ]
    return FolderParts(folder, parts, names, workers)


def expected_rows(source: Source) -> int:
    """About how many rows files have, from their public sizes; 0 for what is in memory anyway."""
    if isinstance(source, ParquetSource):
        return source.rows
    if isinstance(source, TextSource):
        return source.size // _LINE_BYTES
    return 0


@dataclass(frozen=True, eq=False)
class Piece:
    """Some rows of the files, kept sorted by bucket, and where each bucket begins."""

    number: str
    names: tuple[str, ...]
    offsets: Ints

    def bounds(self, bucket: int) -> tuple[int, int]:
        """The rows of a bucket."""
        return int(self.offsets[bucket]), int(self.offsets[bucket + 1])


@dataclass(frozen=True, eq=False)
class Dealing:
    """Reads one part of the files and keeps its rows sorted by bucket, so many of them at a time."""

    files: TextSource | ParquetSource
    columns: TripColumns
    folder: str
    buckets: int

    def __call__(self, task: tuple[int, Any]) -> list[Piece]:
        number, part = task
        done: list[Piece] = []
        waiting: list[dict[str, Array]] = []
        for chunk in self.files.chunks_of(part, list(self.columns.kinds)):
            waiting.append(row_arrays(self.columns, usable(chunk, self.columns.fields)))
            if sum(len(next(iter(rows.values()))) for rows in waiting) >= _PIECE_ROWS:
                done.append(self._keep(f"{number}.{len(done)}", waiting))
                waiting = []
        return [*done, self._keep(f"{number}.{len(done)}", waiting)] if waiting else done

    def _keep(self, number: str, waiting: list[dict[str, Array]]) -> Piece:
        rows = {name: np.concatenate([part[name] for part in waiting]) for name in waiting[0]}
        bucket = bucket_of(rows, self.buckets)
        order = np.argsort(bucket, kind="stable")
        for name, array in rows.items():
            unfinished = Path(self.folder) / f"{number}-{name}.{os.getpid()}"
            with unfinished.open("wb") as file:
                np.save(file, array[order])
            unfinished.replace(Path(self.folder) / f"{number}-{name}.npy")
        return Piece(number, tuple(rows), np.searchsorted(bucket[order], np.arange(self.buckets + 1)))


@dataclass(frozen=True)
class Bucket(LazyColumns):
    """The rows of one bucket: of each piece those from one row to before another."""

    folder: str
    rows: tuple[tuple[str, int, int], ...]

    def read(self, name: str) -> Array:
        parts = [
            np.load(Path(self.folder) / f"{piece}-{name}.npy", mmap_mode="r")[low:high]
            for piece, low, high in self.rows
        ]
        return np.concatenate(parts)


def row_arrays(columns: TripColumns, chunk: Any) -> dict[str, Array]:
    """The rows of a chunk as arrays by name."""
    records = record_arrays(columns.attributes, chunk)
    if isinstance(columns, EndColumns):
        return end_arrays(columns.rows(chunk)) | records
    return point_arrays(columns.rows(chunk)) | records


def point_arrays(rows: PointRows) -> dict[str, Array]:
    """Rows of points as arrays by name."""
    found: dict[str, Array] = {"x": rows.xy[:, 0], "y": rows.xy[:, 1]}
    for name, ids in (("trip", rows.trips), ("user", rows.users)):
        if ids is not None:
            found |= {f"{name}_high": ids.high, f"{name}_low": ids.low}
    return found if rows.seconds is None else found | {"seconds": rows.seconds}


def end_arrays(rows: EndRows) -> dict[str, Array]:
    """Rows of trips known by their ends as arrays by name; a row without a user is dealt out by what it
    says.
    """
    found: dict[str, Array] = dict(zip(_ENDS, rows.xy.reshape(-1, 4).T, strict=True))
    if rows.seconds is not None:
        found |= {"seconds": rows.seconds[:, 0], "arrival": rows.seconds[:, 1]}
    if rows.users is not None:
        return found | {"user_high": rows.users.high, "user_low": rows.users.low}
    said = mix(*(np.ascontiguousarray(column + 0.0).view(np.uint64) for column in found.values()))
    return found | {"trip_high": said, "trip_low": said}


def end_rows(columns: Columns) -> EndRows:
    """The trips of such rows."""
    xy: Floats = np.column_stack([columns[name] for name in _ENDS]).reshape(-1, 2, 2)
    seconds = np.column_stack([columns["seconds"], columns["arrival"]]) if "arrival" in columns else None
    users = UserIds(columns["user_high"], columns["user_low"]) if "user_low" in columns else None
    return EndRows(xy, seconds, users)


def empty_arrays(columns: TripColumns) -> dict[str, Array]:
    """No rows, as arrays of the names and kinds that ``row_arrays`` gives."""
    user = ["user_high", "user_low"] if columns.user else []
    if isinstance(columns, EndColumns):
        kinds = dict.fromkeys([*_ENDS, *(("seconds", "arrival") if columns.times else ())], "f8")
        kinds |= dict.fromkeys(user or ["trip_high", "trip_low"], "u8")
    else:
        kinds = {"x": "f8", "y": "f8"} | dict.fromkeys(["trip_high", "trip_low", *user], "u8")
        kinds |= {"seconds": "f8"} if columns.time else {}
    kinds |= dict.fromkeys(record_names(columns.attributes), "i8")
    return {name: np.empty(0, kind) for name, kind in kinds.items()}


def point_rows(columns: Columns) -> PointRows:
    """The points of such rows."""
    trips, users = row_ids(columns)
    xy: Floats = np.column_stack([columns["x"], columns["y"]])
    return PointRows(xy, trips, columns.get("seconds"), users)


def row_ids(columns: Columns) -> tuple[UserIds, UserIds | None]:
    """The trip of each row and, where users are told apart, its user."""
    trips, users = (
        UserIds(columns[f"{name}_high"], columns[f"{name}_low"]) if f"{name}_low" in columns else None
        for name in ("trip", "user")
    )
    assert trips is not None
    return trips, users


def bucket_of(rows: Columns, buckets: int) -> Ints:
    """The bucket of each row, by its user or else by its trip."""
    name = "user" if "user_low" in rows else "trip"
    hashed = mix(rows[f"{name}_high"], rows[f"{name}_low"])
    return (hashed % np.uint64(buckets)).astype(np.int64)


__all__ = [
    "MANY_ROWS",
    "Bucket",
    "Dealing",
    "bucket_of",
    "empty_arrays",
    "end_rows",
    "expected_rows",
    "point_rows",
    "row_arrays",
    "row_ids",
    "shuffled",
]

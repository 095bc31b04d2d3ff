"""JSON, one object per record: JSON lines, and the features of GeoJSON. Rows name their own columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyproj import CRS
from pyproj.exceptions import CRSError

from synthgeo.errors import InputError
from synthgeo.sources.chunk import Chunk
from synthgeo.sources.declared import MAX_LINE, Reading
from synthgeo.sources.frames import Frame, LocalSource, Selection
from synthgeo.sources.text import Block, Lines, blocks_of, open_bytes, or_one
from synthgeo.sources.unchanged import Unchanged
from synthgeo.sources.windows import ScannedSource

_DIGITS = 4_000  # Python reads no longer whole numbers
JSON_LINES = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")


class JsonLines(ScannedSource):
    """Files of JSON objects, one per line. A column that a row does not have is missing there."""

    open_schema = True

    def __init__(self, paths: Sequence[str], reading: Reading) -> None:
        self.reading, self._unchanged = reading, Unchanged(paths)
        self._paths = list(paths)
        self.columns = list(reading.columns or ())
        self.open_schema = reading.columns is None

    def is_zoned(self, column: str) -> bool:  # noqa: ARG002
        return self.reading.tz is not None

    def loads(self, columns: Sequence[str], *, ordered: bool = True) -> Iterator[Callable[[], Chunk]]:  # noqa: ARG002
        blocks = (block for path in self._paths for block in blocks_of(path, 0))
        empty = Block(self._paths[0], 0, np.empty(0, dtype=np.uint8))
        for block in or_one(self._unchanged.read(blocks), empty):
            yield lambda block=block: self._parse(block, columns)  # type: ignore[misc]

    def _parse(self, block: Block, columns: Sequence[str]) -> Chunk:
        lines = block.data.tobytes().split(b"\n")
        offsets = block.offset + np.cumsum([0, *(len(line) + 1 for line in lines)])[:-1]
        full = [at for at, line in enumerate(lines) if line.strip()]
        rows = [_object(lines[at]) for at in full]
        broken = {at: "the line is not a JSON object" for at, row in enumerate(rows) if row is None}
        return Chunk(
            {name: _values(rows, name) for name in columns},
            rows=len(rows),
            locate=Lines(block.path, offsets[full]),
            reading=self.reading,
            broken=broken,
            open_schema=True,
        )


class FeatureFrame(Frame):
    """The features of GeoJSON files: their properties, and their geometries in one coordinate system."""

    geometry = "geometry"

    def __init__(self, rows: list[dict[str, Any]], shapes: list[Any], crs: CRS, reading: Reading) -> None:
        self.columns = ["geometry", *(reading.columns or ())]
        self.open_schema = reading.columns is None
        self.rows = len(rows)
        self.crs = crs
        self._rows = rows
        self._shapes = np.empty(len(shapes), dtype=object)
        self._shapes[:] = shapes

    def take(self, column: str, rows: Selection, reading: Reading) -> NDArray[Any]:  # noqa: ARG002
        return self._shapes[rows] if column == "geometry" else _values(self._rows, column)[rows]

    def zoned(self, column: str) -> None:  # noqa: ARG002
        return None


def geojson_source(paths: Sequence[str], reading: Reading) -> LocalSource:
    """GeoJSON is read whole, feature by feature: what a property means does not depend on other features."""
    rows, shapes, systems = [], [], []
    for path in paths:
        with open_bytes(path) as file:
            content = bytes(file.read())
        try:
            whole = _loaded(content)
            features = whole["features"] if whole["type"] == "FeatureCollection" else [whole]
            systems.append(_crs(whole))
            for number, feature in enumerate(features):
                if not _is_feature(feature):
                    if reading.bad_rows == "drop":
                        continue
                    raise InputError(f"{Path(path).name}: feature {number} is not a GeoJSON feature")
                rows.append(feature.get("properties") or {})
                shapes.append(_point(feature.get("geometry")))
        except (ValueError, KeyError, TypeError, RecursionError) as problem:
            if isinstance(problem, InputError):
                raise
            raise InputError(
                f"{Path(path).name}: not GeoJSON that can be read ({type(problem).__name__})"
            ) from None
    if any(system != systems[0] for system in systems[1:]):
        raise InputError("these files hold geometries in different coordinate systems: read them apart")
    return LocalSource(FeatureFrame(rows, shapes, systems[0], reading), reading=reading)


def _crs(whole: dict[str, Any]) -> CRS:
    given = whole.get("crs")
    try:
        name = "OGC:CRS84" if given is None else str(given["properties"]["name"])
        return CRS.from_epsg(4326) if name.endswith("CRS84") else CRS.from_user_input(name)
    except CRSError:
        raise InputError("the coordinate system of the GeoJSON file is not known") from None


def _is_feature(feature: Any) -> bool:
    good = isinstance(feature, dict) and feature.get("type") == "Feature"
    return good and isinstance(feature.get("properties") or {}, dict)


def _point(geometry: Any) -> Any:
    """A point of shapely, None for everything else: such a row is refused later.

    GEOS follows collections in collections until its stack ends, and points do not need it.
    """
    place = geometry.get("coordinates") if isinstance(geometry, dict) else None
    if not isinstance(place, list) or len(place) < 2 or geometry.get("type") != "Point":
        return None
    if not all(type(value) in (int, float) for value in place[:2]):
        return None
    import shapely

    try:
        return shapely.Point(place[0], place[1])
    except (ArithmeticError, ValueError):
        return None


def _loaded(text: bytes) -> Any:
    return json.loads(text, parse_int=_whole)


def _whole(digits: str) -> int | str:
    """A whole number; one that Python does not take stays what is written."""
    return int(digits) if len(digits) <= _DIGITS else digits


def _object(line: bytes) -> dict[str, Any] | None:
    if len(line) > MAX_LINE:
        return None
    try:
        found = _loaded(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _values(rows: Sequence[dict[str, Any] | None], name: str) -> NDArray[Any]:
    out = np.empty(len(rows), dtype=object)
    out[:] = [None if row is None else row.get(name) for row in rows]
    return out

"""Windows of trips that lie in parts: each trip is in the window of its last point, with all its points."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from synthgeo.arrays import Array, Bools, Ints
from synthgeo.errors import ConfigError
from synthgeo.sources import Source
from synthgeo.sources.chunk import Chunk
from synthgeo.sources.grid import make_grid
from synthgeo.sources.source import usable
from trajectories.over_time.admission import find_ids, packed_ids
from trajectories.parts.columns import Columns, Parts
from trajectories.parts.shuffle import row_ids
from trajectories.reading.points import PointColumns, last_moments, trip_codes


def windows_of_parts(
    source: Source, columns: PointColumns, rows: Parts, *, every: str, start: Any, end: Any, tz: str | None
) -> Iterator[tuple[pd.Timestamp, Source]]:
    """Rows in parts cut by a public grid of windows."""
    assert columns.time is not None
    spans = [span for span in rows.results(_span) if span is not None]
    span = None
    if spans:
        ends = np.array([min(low for low, _ in spans), max(high for _, high in spans)])
        first, last = ends.astype("datetime64[us]")
        span = (first, last)
    zone = tz or source.reading.tz
    grid = make_grid(every, start, end, zoned=True, span=span, column=columns.time, tz=zone)
    edges = grid.edges.tolist()
    windows = (
        WindowOfParts(source, columns, rows, InWindow(edges[number], edges[number + 1]))
        for number in range(grid.size)
    )
    return grid.marked(windows, columns.time)


class WindowOfParts(Source):
    """One window of trips. Its rows are read again from the source where they are asked for as rows (for the
    identity of their content); trips are counted in parts.
    """

    scans = True

    def __init__(self, source: Source, columns: PointColumns, rows: Parts, window: InWindow) -> None:
        self._source, self._columns, self._rows, self._cut = source, columns, rows, window
        self.columns, self.reading = source.columns, source.reading
        self.geometry, self.crs, self.open_schema = source.geometry, source.crs, source.open_schema

    def parts(self) -> Parts:
        """The rows of the window's trips, in parts."""
        return self._rows.map(self._cut)

    @cached_property
    def _trips(self) -> Array:
        """What the window's trips are known by (``packed_ids``), in order."""
        return np.unique(np.concatenate(list(self._rows.results(_Trips(self._cut)))))

    def loads(self, columns: Sequence[str], *, ordered: bool = True) -> Iterator[Callable[[], Chunk]]:
        wanted = list(dict.fromkeys([*columns, *self._columns.kinds]))
        for load in self._source.loads(wanted, ordered=ordered):
            yield lambda load=load: self._taken(load())  # type: ignore[misc]

    def _taken(self, chunk: Chunk) -> Chunk:
        chunk = usable(chunk, self._columns.fields)
        _, trips, _, users = self._columns.fields(chunk)
        code = trip_codes(trips, users)
        first = np.unique(code, return_index=True)[1]
        held = find_ids(self._trips, packed_ids(trips, users)[first])[1]
        return chunk.take(np.flatnonzero(held[code]))

    def is_zoned(self, column: str) -> bool:
        return self._source.is_zoned(column)

    def described(self, asked: Sequence[str]) -> str:
        return self._source.described(asked)

    def windows(self, **grid: Any) -> Iterator[tuple[pd.Timestamp, Source]]:  # noqa: ARG002
        raise ConfigError("these trips were cut already")

    def __copy__(self) -> WindowOfParts:
        twin = WindowOfParts(self._source, self._columns, self._rows, copy(self._cut))
        twin.window, twin.time = self.window, self.time
        return twin


@dataclass(frozen=True)
class InWindow:
    """The rows of a part's trips that end from one moment to before another (microseconds since 1970)."""

    low: int
    high: int

    def keeps(self, rows: Columns) -> Bools:
        """Which rows these are."""
        code, last = _last(rows)
        keep: Bools = ((last >= self.low) & (last < self.high))[code]
        return keep

    def __call__(self, rows: Columns) -> dict[str, Array]:
        keep = self.keeps(rows)
        return {name: rows[name][keep] for name in rows}


@dataclass(frozen=True)
class _Trips:
    """What the trips of a part that are in a window are known by."""

    window: InWindow

    def __call__(self, rows: Columns) -> Array:
        return np.unique(packed_ids(*row_ids(rows))[self.window.keeps(rows)])


def _last(rows: Columns) -> tuple[Ints, Ints]:
    """The number of each row's trip, and the last moment of each trip."""
    code = trip_codes(*row_ids(rows))
    return code, last_moments(code, rows["seconds"])


def _span(rows: Columns) -> tuple[int, int] | None:
    last = _last(rows)[1]
    return (int(last.min()), int(last.max())) if len(last) else None


__all__ = ["InWindow", "WindowOfParts", "windows_of_parts"]

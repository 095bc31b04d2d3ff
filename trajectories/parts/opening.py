"""Where trips are worked on follows from what they are read from."""

from __future__ import annotations

import os
import sys

from synthgeo import validate
from synthgeo.sources import Source
from synthgeo.sources.files import ParquetSource
from synthgeo.sources.source import Identified
from synthgeo.sources.text import TextSource
from trajectories.parts.columns import Parts
from trajectories.parts.records import can_travel
from trajectories.parts.shuffle import MANY_ROWS, expected_rows, shuffled
from trajectories.parts.windows import WindowOfParts
from trajectories.parts.workers import Workers
from trajectories.reading.points import TripColumns


def check_workers(workers: int | None) -> int | None:
    """A number of processes, or None."""
    return None if workers is None else validate.whole(workers, "workers", low=1)


def rows_in_parts(source: Source, columns: TripColumns, workers: int | None) -> Parts | None:
    """The rows of a source in parts that hold whole trips; None where they are read at once: frames, and
    files that are small unless ``workers`` are asked for.
    """
    if isinstance(source, Identified):  # its identity is taken in a pass of its own
        source = source.whole
    if isinstance(source, WindowOfParts):
        return source.parts()
    if not can_travel(columns.attributes):
        return None
    if _is_on_dask(source):
        from trajectories.parts.on_dask import shuffled_on_dask

        return shuffled_on_dask(source, columns)  # type: ignore[arg-type]
    if not isinstance(source, TextSource | ParquetSource):
        return None
    rows = expected_rows(source)
    if not rows or (workers is None and rows <= MANY_ROWS):
        return None
    return shuffled(source, columns, Workers(_cores() if workers is None else workers))


def _cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _is_on_dask(source: Source) -> bool:
    module = sys.modules.get("synthgeo.sources.dask")  # where nobody asked for dask, it is not imported
    return module is not None and isinstance(source, module.OnDask)


__all__ = ["check_workers", "rows_in_parts"]

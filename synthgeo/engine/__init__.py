"""Exact counting: frames and Arrow in memory, files through DuckDB, clusters through Dask.

Same input, same counts, whatever the engine. Nothing here is private: counts never leave the curator.
"""

from __future__ import annotations

from synthgeo.engine.chunk import Chunk, KeyFunction, bad_row, numeric
from synthgeo.engine.histogram import Histogram
from synthgeo.engine.opening import open_source
from synthgeo.engine.source import Source, UserEvents

__all__ = [
    "Chunk",
    "Histogram",
    "KeyFunction",
    "Source",
    "UserEvents",
    "bad_row",
    "numeric",
    "open_source",
]

"""Exact counting: frames and Arrow in memory, files through DuckDB, clusters through Dask.

Same input, same counts, whatever the engine. Nothing here is private: counts never leave the curator.
"""

from __future__ import annotations

from synthgeo.sources.chunk import Chunk, KeyFunction, refuse
from synthgeo.sources.declared import Reading
from synthgeo.sources.histogram import Histogram
from synthgeo.sources.opening import open_source
from synthgeo.sources.source import Source, UserEvents

__all__ = [
    "Chunk",
    "Histogram",
    "KeyFunction",
    "Reading",
    "Source",
    "UserEvents",
    "open_source",
    "refuse",
]

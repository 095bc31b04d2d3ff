"""The engine follows from the input."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from synthgeo.errors import InputError
from synthgeo.sources.declared import Reading, check_reading
from synthgeo.sources.frames import local_source
from synthgeo.sources.source import Source


def open_source(data: Any, *, columns: Sequence[str] | None = None, reading: Reading | None = None) -> Source:
    """A source of private rows; what ``data`` is decides where they are counted.

    * in memory: DataFrame, GeoDataFrame, GeoSeries, Arrow table or record batches, anything with an Arrow
      stream (polars), dict of arrays, (n, 2) array (``columns`` names its columns; default x and y);
    * files: a path, a glob, a folder or a list of Parquet, GeoParquet, CSV or JSON lines files, which need
      not fit in memory; GeoJSON, GeoPackage and their like, which must;
    * on a cluster: a dask DataFrame, a Spark DataFrame.

    ``reading`` declares how text is read (``Reading``), in files and in text columns of frames.
    """
    reading = check_reading(reading)
    if isinstance(data, Source):
        return data
    if isinstance(data, str | os.PathLike) or _is_list_of_paths(data):
        from synthgeo.sources.files import file_source

        return file_source(data, reading)
    if _is_dask(data):
        from synthgeo.sources.dask import DaskSource

        return DaskSource(data, reading)
    if _is_spark(data):
        from synthgeo.sources.spark import SparkSource

        return SparkSource(data, reading)
    source = local_source(data, columns=columns, reading=reading)
    if source is None:
        raise InputError(
            f"cannot read {type(data).__name__}: give a frame, an Arrow table, a dict of arrays, an (n, 2) "
            f"array, a path, or a dask or Spark DataFrame"
        )
    return source


def _is_list_of_paths(data: Any) -> bool:
    return (
        isinstance(data, list | tuple) and bool(data) and all(isinstance(x, str | os.PathLike) for x in data)
    )


def _is_dask(data: Any) -> bool:
    return type(data).__module__.partition(".")[0] in ("dask", "dask_expr", "dask_geopandas")


def _is_spark(data: Any) -> bool:
    return type(data).__module__.startswith("pyspark.sql.") and hasattr(data, "mapInArrow")

"""The engine follows from the input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from synthgeo.engine.local import local_source
from synthgeo.engine.source import Source
from synthgeo.errors import InputError


def open_source(data: Any, *, columns: Sequence[str] | None = None) -> Source:
    """A source of private rows.

    DataFrame, GeoDataFrame, Arrow table or batches, dict of arrays, (n, 2) array: counted in memory. ``columns`` names
    the columns of an array (default x and y).
    """
    if isinstance(data, Source):
        return data
    source = local_source(data, columns=columns)
    if source is not None:
        return source
    raise InputError(
        f"cannot read {type(data).__name__}: give a frame, an Arrow table, a dict of arrays or an array"
    )

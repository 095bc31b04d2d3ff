"""Rows that were read before, as a source: some of them, perhaps with columns of one's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from synthgeo.errors import ConfigError
from synthgeo.sources import Source
from synthgeo.sources.chunk import Chunk


class ChunkSource(Source):
    """Some rows of a chunk that was read from a source."""

    def __init__(
        self, source: Source, chunk: Chunk, rows: np.ndarray, more: Mapping[str, np.ndarray] | None = None
    ) -> None:
        self._source, self._chunk = source, chunk.take(rows)
        self._chunk.update(more or {})
        self.columns, self.reading = list(self._chunk), source.reading
        self.geometry, self.crs = source.geometry, source.crs

    def loads(self, columns: Sequence[str], *, ordered: bool = True) -> Iterator[Callable[[], Chunk]]:  # noqa: ARG002
        rows = self._chunk.take(np.arange(self._chunk.rows))
        for name in set(rows) - set(columns):
            del rows[name]
        yield lambda: rows

    def is_zoned(self, column: str) -> bool:
        return self._source.is_zoned(column)

    def windows(self, **grid: Any) -> Iterator[tuple[pd.Timestamp, Source]]:  # noqa: ARG002
        raise ConfigError("these rows were cut already")


__all__ = ["ChunkSource"]

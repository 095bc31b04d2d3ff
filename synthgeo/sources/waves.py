"""Rows cut by a column that names their wave: a public list of names in place of a public grid of times.

The list is public and in order, so a wave without rows is a wave like any other, and rows of a wave that is
not listed belong to none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from synthgeo.canonical import word_of
from synthgeo.errors import ConfigError
from synthgeo.sources import values
from synthgeo.sources.chunk import Chunk, refuse
from synthgeo.sources.source import Source, usable
from synthgeo.sources.windows import ScannedSource


def wave_names(names: Sequence[Any]) -> list[str]:
    """The names of waves as text; refused where there are none, or one comes twice.

    >>> wave_names(range(1, 4))
    ['1', '2', '3']
    """
    if isinstance(names, str):
        raise ConfigError("list the waves, in order: names=[1, 2, 3]")
    found = [word_of(name) for name in names]
    if not found:
        raise ConfigError("list the waves, in order: there is none")
    for place, name in enumerate(found):
        if name in found[:place]:
            raise ConfigError(f"wave {name!r} is listed twice")
    return found


def waves_of(source: Source, column: str, names: Sequence[Any]) -> Iterator[tuple[str, Source]]:
    """The rows of each wave in ``names``, by the column that names it.

    Raises ``InputError`` for rows without a name, before the first wave.
    """
    listed = wave_names(names)
    source.require([column])
    source.check([column], KnownWaves(column))
    return ((name, Wave(source, column, name)) for name in listed)


@dataclass(frozen=True)
class KnownWaves:
    """A column of names of which none may be missing."""

    column: str

    def __call__(self, chunk: Any) -> values.Words:
        found = values.words(chunk, self.column)
        refuse(found.codes < 0, self.column, "the wave is missing")
        return found


class Wave(ScannedSource):
    """The rows of a source that name one wave."""

    def __init__(self, source: Source, column: str, name: str) -> None:
        self._source, self._column, self._name = source, column, name
        self.columns, self.reading = source.columns, source.reading
        self.geometry, self.crs, self.open_schema = source.geometry, source.crs, source.open_schema

    def is_zoned(self, column: str) -> bool:
        return self._source.is_zoned(column)

    def described(self, asked: Sequence[str]) -> str:
        return self._source.described(asked)

    def loads(self, columns: Sequence[str], *, ordered: bool = True) -> Iterator[Callable[[], Chunk]]:
        wanted = list(dict.fromkeys([*columns, self._column]))
        for load in self._source.loads(wanted, ordered=ordered):
            yield lambda load=load: self._cut(load())  # type: ignore[misc]

    def _cut(self, chunk: Chunk) -> Chunk:
        check = KnownWaves(self._column)
        chunk = usable(chunk, check)
        return chunk.take(np.flatnonzero(check(chunk).lookup({self._name: 1}, 0) == 1))


__all__ = ["KnownWaves", "Wave", "wave_names", "waves_of"]

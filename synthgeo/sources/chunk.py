"""Chunks: a few columns of some rows, as they came, and the errors about their rows.

A key function asks for values by what they mean (``synthgeo.sources.values``): numbers, times, ids or words.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from synthgeo.errors import InputError
from synthgeo.sources.declared import Reading

Array = Any  # an ndarray (masked where integers are missing) or a TextColumn
Locate = Callable[[int], str]


class KeyFunction(Protocol):
    """Pure, picklable, vectorised: a chunk in, one key (and integer weights, or None for 1) per row out.

    What it makes of a row depends on that row alone. A row is dropped by giving it weight 0. (Leaving its key
    out works for plain histograms too.) Rows that cannot be used are refused with ``refuse``. One that counts
    a chunk at once, so that keys are not those of rows, says so by an attribute ``per_row = False``.
    """

    def __call__(self, chunk: Any, /) -> tuple[NDArray[np.uint64], NDArray[np.int64] | None]:
        """Keys (n,) and weights (n, m)."""
        ...


class Chunk(dict[str, Array]):
    """Columns by name. Knows where its rows come from, so that an error can say it.

    ``zoned`` names the columns of times that are instants in UTC; ``broken`` marks lines of a text file that
    could not be split into fields, with what is wrong by row; ``open_schema`` says that rows name their own
    columns, so that a value may just not be there.
    """

    def __init__(
        self,
        columns: Mapping[str, Array],
        *,
        rows: int,
        locate: Locate | None = None,
        reading: Reading | None = None,
        zoned: Collection[str] = (),
        broken: Mapping[int, str] | None = None,
        open_schema: bool = False,
    ) -> None:
        super().__init__(columns)
        self.rows = rows
        self.reading = Reading() if reading is None else reading
        self.zoned = frozenset(zoned)
        self.broken = dict(broken or {})
        self.open_schema = open_schema
        self._locate = locate

    def where(self, row: int) -> str:
        """The name of a row of this chunk in its source."""
        return self._locate(row) if self._locate is not None else f"row {row}"

    def named(self, locate: Locate) -> Chunk:
        """The same rows, named by ``locate``."""
        rest = (self.reading, self.zoned, self.broken, self.open_schema)
        return _again(dict(self), self.rows, locate, *rest)

    def but(self, column: str, values: Array) -> Chunk:
        """The same rows with other values in one column."""
        rest = (self.rows, self._locate, self.reading, self.zoned, self.broken, self.open_schema)
        return _again({**self, column: values}, *rest)

    def located(self, problem: InputError) -> InputError:
        """An error about a row of this chunk, said about that row of the source."""
        return problem if problem.row is None or problem.where else problem.located(self.where(problem.row))

    def take(self, rows: NDArray[Any]) -> Chunk:
        """Some of the rows."""
        place = {int(row): at for at, row in enumerate(rows)} if self.broken else {}
        return Chunk(
            {name: values.take(rows) for name, values in self.items()},
            rows=len(rows),
            locate=_Taken(self.where, rows),
            reading=self.reading,
            zoned=self.zoned,
            broken={place[row]: what for row, what in self.broken.items() if row in place},
            open_schema=self.open_schema,
        )

    def __reduce__(self) -> tuple[Any, ...]:  # dict's own would forget everything but the columns
        rest = (self.rows, self._locate, self.reading, self.zoned, self.broken, self.open_schema)
        return _again, (dict(self), *rest)


def _again(
    columns: dict[str, Array],
    rows: int,
    locate: Locate | None,
    reading: Reading,
    zoned: frozenset[str],
    broken: dict[int, str],
    open_schema: bool,
) -> Chunk:
    return Chunk(
        columns,
        rows=rows,
        locate=locate,
        reading=reading,
        zoned=zoned,
        broken=broken,
        open_schema=open_schema,
    )


@dataclass(frozen=True)
class _Taken:
    """Names rows that were taken from a chunk."""

    where: Locate
    rows: NDArray[Any]

    def __call__(self, row: int) -> str:
        return self.where(int(self.rows[row]))


@dataclass
class Refusals:
    """The rows of one chunk that cannot be used: what is wrong with them, by column."""

    found: list[tuple[str | None, NDArray[np.int64], str, type[InputError]]] = field(default_factory=list)


_active = threading.local()


@contextmanager
def collecting() -> Iterator[Refusals]:
    """While it lasts, ``refuse`` writes down what is wrong in this thread instead of raising."""
    before, refusals = getattr(_active, "refusals", None), Refusals()
    _active.refusals = refusals
    try:
        yield refusals
    finally:
        _active.refusals = before


def refuse(wrong: Any, column: str | None, problem: str, error: type[InputError] = InputError) -> None:
    """Raise the error about the first row where ``wrong`` is True, if there is one; never shows a value."""
    rows = np.flatnonzero(wrong)
    if not len(rows):
        return
    refusals: Refusals | None = getattr(_active, "refusals", None)
    if refusals is None:
        raise error(problem, column=column, row=int(rows[0]))
    known = [old for other, old, _, _ in refusals.found if other == column]
    fresh = np.setdiff1d(rows, np.concatenate(known)) if known else rows  # one problem per value is enough
    if len(fresh):
        refusals.found.append((column, fresh, problem, error))


def check_lines(chunk: Chunk) -> None:
    """Refuse the lines that could not be split into fields."""
    for problem in dict.fromkeys(chunk.broken.values()):
        wrong = np.zeros(chunk.rows, dtype=bool)
        wrong[[row for row, what in chunk.broken.items() if what == problem]] = True
        refuse(wrong, None, problem)

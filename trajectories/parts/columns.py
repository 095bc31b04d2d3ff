"""Columns of trips that lie in parts, and sums over all parts.

Whatever is measured of trips is a sum over them of whole numbers, so it does not matter where they are: the
sums of the parts add up to the sum of the whole, bit for bit, in any order. A ``PartColumn`` stands for an
array that lies in parts. The measurements (``trajectories.measure``) take arrays or columns alike: they ask
for ``total``, which counts arrays at once and columns part by part.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import reduce
from typing import Any, Protocol, TypeVar, cast

from synthgeo.arrays import Array
from synthgeo.sources.histogram import Histogram, merge_all

Trips = TypeVar("Trips")
Sum = TypeVar("Sum")
Columns = Mapping[str, Array]


class PartWork(Protocol):
    """What is done to the columns of one part. Pure and picklable: a part may be worked on twice."""

    def __call__(self, columns: Any, /) -> Any: ...


class Parts(ABC):
    """Private arrays by name, in parts that are worked on one by one."""

    names: frozenset[str]

    @abstractmethod
    def results(self, work: PartWork) -> Iterable[Any]:
        """What the work gives for each part, in the order of parts."""

    @abstractmethod
    def map(self, work: PartWork, more: Sequence[Any] | None = None) -> Parts:
        """Parts that hold what the work gives for each part: arrays by name, the same names for all. Where
        there is ``more``, one thing for each part, the work gets both as a pair.
        """

    @abstractmethod
    def __len__(self) -> int: ...

    def sum(self, work: PartWork) -> Any:
        """The sum of what the work gives for all parts."""
        return added(self.results(work))


@dataclass(frozen=True, eq=False)
class PartColumn:
    """An array in parts: one that is kept, or one that follows from others row by row."""

    parts: Parts
    value: Stored | Applied


@dataclass(frozen=True)
class Stored:
    """The array of this name in each part."""

    name: str

    def __call__(self, columns: Columns) -> Any:
        return columns[self.name]


@dataclass(frozen=True, eq=False)
class Applied:
    """A function of arrays of each part, and of what is the same for all."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]

    def __call__(self, columns: Columns) -> Any:
        given = [one(columns) if isinstance(one, Stored | Applied) else one for one in self.arguments]
        return self.function(*given)


def total(count: Callable[..., Sum], *arguments: Any) -> Sum:
    """``count`` of these arguments: at once where they are arrays, or summed over the parts of columns."""
    parts = _parts_of(arguments)
    return count(*arguments) if parts is None else cast(Sum, parts.sum(_applied(count, arguments)))


def each(function: Callable[..., Any], *arguments: Any) -> Any:
    """A function of arrays row by row: its values, or the column of them."""
    parts = _parts_of(arguments)
    return function(*arguments) if parts is None else PartColumn(parts, _applied(function, arguments))


def mapped(function: Callable[[Any], Any], trips: Any, kind: type[Trips]) -> Trips:
    """What a function makes of trips (a dataclass of arrays) and gives as ``kind`` (another): done at once,
    or to each part, where the results are kept.
    """
    parts = _parts_of(getattr(trips, field.name) for field in fields(trips))
    if parts is None:
        return cast(Trips, function(trips))
    return in_parts(kind, parts.map(_Rebuilt(function, type(trips))))


def in_parts(kind: type[Trips], parts: Parts) -> Trips:
    """Trips (a dataclass of arrays) whose arrays are columns; None for those that the parts do not have."""
    found = {
        field.name: PartColumn(parts, Stored(field.name)) if field.name in parts.names else None
        for field in fields(cast(Any, kind))
    }
    return kind(**found)


def arrays_of(trips: Any) -> dict[str, Array]:
    """The arrays of a dataclass, by name."""
    found = {field.name: getattr(trips, field.name) for field in fields(trips)}
    return {name: array for name, array in found.items() if array is not None}


def added(results: Iterable[Any]) -> Any:
    """The sum of numbers, of arrays of whole numbers, of histograms, or of tuples of these."""
    found = list(results)
    if isinstance(found[0], tuple):
        return tuple(map(added, zip(*found, strict=True)))
    return merge_all(found) if isinstance(found[0], Histogram) else reduce(operator.add, found)


@dataclass(frozen=True, eq=False)
class _Rebuilt:
    """A function of trips, as work on their columns."""

    function: Callable[[Any], Any]
    kind: type

    def __call__(self, columns: Columns) -> dict[str, Array]:
        found = {field.name: columns.get(field.name) for field in fields(self.kind)}
        return arrays_of(self.function(self.kind(**found)))


def _parts_of(arguments: Iterable[Any]) -> Parts | None:
    return next((one.parts for one in arguments if isinstance(one, PartColumn)), None)


def _applied(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Applied:
    return Applied(function, tuple(one.value if isinstance(one, PartColumn) else one for one in arguments))


__all__ = [
    "Applied",
    "Columns",
    "PartColumn",
    "PartWork",
    "Parts",
    "Stored",
    "added",
    "arrays_of",
    "each",
    "in_parts",
    "mapped",
    "total",
]  # fmt: skip

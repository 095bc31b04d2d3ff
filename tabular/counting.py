"""The exact marginals of a table that is released once: by an engine, or row by row for bounded users."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from synthgeo.privacy.contribution import ContributionBounder
from synthgeo.privacy.unit import PrivacyUnit
from synthgeo.privacy.users import UserIds
from synthgeo.schema import Binned, Schema
from synthgeo.sources import Chunk, Histogram, Source, UserEvents
from synthgeo.sources.source import UserCount
from synthgeo.sources.values import ids, words
from tabular.bins import GridValues, grid_counts
from tabular.marginals import Counts, MarginalIndex, row_keys
from tabular.model.junction_tree import Clique

Groups = Mapping[str, NDArray[np.int64]]


class TableRows(Protocol):
    """A private table: everything that it says is exact."""

    def marginals(self, schema: Schema, cliques: Sequence[Clique], groups: Groups | None = None) -> Counts:
        """Exact marginals, over groups of codes where these are given."""
        ...

    def values(self, name: str, column: Binned) -> Histogram:
        """Exact counts of the values from which bins are found."""
        ...

    def misplaced(self, schema: Schema) -> list[str]:
        """Columns of which every value lies outside of what the schema declares. For the curator alone."""
        ...

    def words(self, name: str, schema: Schema) -> tuple[list[str], NDArray[np.int64]]:
        """The words that a column holds, and how many rows (or users) hold each."""
        ...


class EngineRows:
    """Every row counts: only histograms leave the engine."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def marginals(self, schema: Schema, cliques: Sequence[Clique], groups: Groups | None = None) -> Counts:
        index = MarginalIndex(schema, cliques, groups=groups)
        return index.split(self.source.histogram(index, schema.inputs))

    def values(self, name: str, column: Binned) -> Histogram:
        return grid_counts(self.source, name, column)

    def misplaced(self, schema: Schema) -> list[str]:
        places = RowPlaces(schema)
        if not places.columns:
            return []
        return places.wrong(self.source.histogram(places, schema.inputs, weights=2))

    def words(self, name: str, schema: Schema) -> tuple[list[str], NDArray[np.int64]]:
        found = words(self.source.read(schema.inputs, check=schema.encode), name)
        return found.values, np.bincount(found.codes[found.codes >= 0], minlength=len(found.values))


@dataclass(frozen=True)
class RowPlaces:
    """Key function: for each column that takes values outside of its declaration, how many rows hold a value
    that is declared, and how many one that is not.
    """

    schema: Schema
    per_row: ClassVar[bool] = False

    @property
    def columns(self) -> list[str]:
        """The columns that take such values."""
        return [name for name, column in self.schema.columns.items() if column.takes_others]

    def __call__(self, chunk: Any) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        counts = []
        for name in self.columns:
            known, declared = self.schema.columns[name].declared(name, chunk)
            counts.append([np.count_nonzero(declared), np.count_nonzero(known & ~declared)])
        return np.arange(len(counts), dtype=np.uint64), np.array(counts, dtype=np.int64)

    def wrong(self, counts: Histogram) -> list[str]:
        """Columns without a single value that is declared, though they hold others."""
        return [
            self.columns[int(key)]
            for key, (good, bad) in zip(counts.keys, counts.weights.tolist(), strict=True)
            if bad and not good
        ]


@dataclass(frozen=True)
class UserRecords:
    """What is asked of the rows of a table with users: a record that fits the schema, and an id."""

    schema: Schema
    user: str

    def __call__(self, chunk: Any) -> None:
        self.schema.encode(chunk)
        ids(chunk, self.user)


@dataclass(frozen=True)
class UserRows:
    """At most so many rows of each user count (``kept``), the same ones in everything that is counted. The
    rows are held in memory.
    """

    chunk: Chunk
    users: UserIds
    kept: NDArray[np.bool_]

    @classmethod
    def read(cls, source: Source, schema: Schema, unit: PrivacyUnit) -> UserRows:
        """The rows of a source as far as the unit's bound admits them."""
        assert unit.key is not None
        source.require([unit.key])
        wanted = list(dict.fromkeys([*schema.inputs, unit.key]))
        chunk = source.read(wanted, check=UserRecords(schema, unit.key))
        return cls.of(chunk, ids(chunk, unit.key), schema, unit)

    @classmethod
    def of(cls, chunk: Chunk, users: UserIds, schema: Schema, unit: PrivacyUnit) -> UserRows:
        """Rows that have been read, as far as the unit's bound admits them."""
        keys = row_keys(schema.encode(chunk), list(schema.sizes.values()))
        return cls(chunk, users, ContributionBounder(unit).admit(users, keys))

    def marginals(self, schema: Schema, cliques: Sequence[Clique], groups: Groups | None = None) -> Counts:
        index = MarginalIndex(schema, cliques, groups=groups)
        codes = schema.encode(self.chunk)[self.kept]
        return index.split(Histogram.of(*index.keys(codes, np.ones(len(codes), dtype=np.int64))))

    def values(self, name: str, column: Binned) -> Histogram:
        steps, absent = GridValues(name, column).steps(self.chunk)
        kept = steps[self.kept & ~absent].astype(np.uint64)
        return Histogram.of(kept, np.ones((len(kept), 1), dtype=np.int64))

    def misplaced(self, schema: Schema) -> list[str]:
        places = RowPlaces(schema)
        return places.wrong(Histogram.of(*places(self.chunk))) if places.columns else []

    def words(self, name: str, schema: Schema) -> tuple[list[str], NDArray[np.int64]]:  # noqa: ARG002
        """Each user counts once for each word, however many rows hold it."""
        found = words(self.chunk, name)
        held = self.kept & (found.codes >= 0)
        pairs = np.column_stack(
            [self.users.high[held], self.users.low[held], found.codes[held].astype(np.uint64)]
        )
        once = np.unique(pairs, axis=0)[:, 2].astype(np.int64)
        return found.values, np.bincount(once, minlength=len(found.values))


@dataclass(frozen=True)
class UserCodes:
    """Key function: what tells the rows of a user apart, and as weights what ``read`` makes of them."""

    trial: Schema
    read: Callable[[Any], NDArray[np.int64]]

    def __call__(self, chunk: Any) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        return row_keys(self.trial.encode(chunk), list(self.trial.sizes.values())), self.read(chunk)


@dataclass(frozen=True)
class AdmittedCells:
    """Counts the cells of the rows that a bounder admits."""

    index: MarginalIndex
    width: ClassVar[int] = 1

    def __call__(self, events: UserEvents, bounder: ContributionBounder) -> Histogram:
        codes = events.weights[bounder.admit(events.users, events.keys)]
        return Histogram.of(*self.index.keys(codes, np.ones(len(codes), dtype=np.int64)))


@dataclass(frozen=True)
class AdmittedValues:
    """Counts the values, in steps above the least, of the rows that a bounder admits and that have one."""

    width: ClassVar[int] = 1

    def __call__(self, events: UserEvents, bounder: ContributionBounder) -> Histogram:
        steps, absent = events.weights[bounder.admit(events.users, events.keys)].T
        found = steps[absent == 0].astype(np.uint64)
        return Histogram.of(found, np.ones((len(found), 1), dtype=np.int64))


@dataclass(frozen=True)
class StepsOf:
    """The steps of a column's values above the least, and whether there is none."""

    values: GridValues

    def __call__(self, chunk: Any) -> NDArray[np.int64]:
        return np.column_stack(self.values.steps(chunk)).astype(np.int64)


class EngineUserRows:
    """As ``UserRows``, for files and clusters: for each count the engine brings the rows of each user
    together again, and only histograms leave it.
    """

    def __init__(self, source: Source, schema: Schema, unit: PrivacyUnit) -> None:
        assert unit.key is not None
        source.require([unit.key])
        self.source, self.trial, self.unit, self.user = source, schema, unit, unit.key

    def _count(self, read: Callable[[Any], Any], width: int, count: UserCount) -> Histogram:
        keys, fresh = UserCodes(self.trial, read), ContributionBounder(self.unit)
        return self.source.count_users(keys, self.trial.inputs, self.user, count, fresh, weights=width)

    def marginals(self, schema: Schema, cliques: Sequence[Clique], groups: Groups | None = None) -> Counts:
        index = MarginalIndex(schema, cliques, groups=groups)
        return index.split(self._count(schema.encode, len(schema.sizes), AdmittedCells(index)))

    def values(self, name: str, column: Binned) -> Histogram:
        return self._count(StepsOf(GridValues(name, column)), 2, AdmittedValues())

    def misplaced(self, schema: Schema) -> list[str]:
        return EngineRows(self.source).misplaced(schema)

    def words(self, name: str, schema: Schema) -> tuple[list[str], NDArray[np.int64]]:
        """Words are not histograms: the rows are read into memory."""
        return UserRows.read(self.source, self.trial, self.unit).words(name, schema)


def rows_of(source: Source, schema: Schema, unit: PrivacyUnit) -> TableRows:
    """The table in a source; ``schema`` has the finest bins where bins are still to be found."""
    if not unit.is_user:
        return EngineRows(source)
    return (EngineUserRows if source.scans else UserRows.read)(source, schema, unit)

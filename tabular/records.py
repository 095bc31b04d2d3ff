"""Rows of a table as records of a stream: rows become cells of marginals, a model becomes synthetic rows."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from streams.ages import InsertionAges, age_groups
from streams.birth_times import BirthTimes
from streams.mechanism import Arrays
from streams.periods import oldest_period
from streams.records import Clock, with_columns
from streams.slots import TimeSlots, with_slots
from synthgeo.arrays import Bools, Ints, Keys
from synthgeo.preflight import Probe
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.contribution import ContributionBounder
from synthgeo.privacy.unit import PrivacyUnit
from synthgeo.schema import Schema
from synthgeo.sources import Histogram, Source, UserEvents
from synthgeo.sources.declared import ColumnNames
from tabular.marginals import MarginalIndex, row_keys
from tabular.model.fitting import Snapshot
from tabular.model.junction_tree import Clique
from tabular.release import TableRelease


@dataclass(frozen=True)
class DatedMarginals:
    """Marginals of rows that say more about time: deletions when their row was inserted, all rows when they
    came inside their window. Picklable.

    The first weight is the net count of insertions and deletions of age 0, each other one that of an older
    group of deletions.
    """

    per_row: ClassVar[bool] = False

    index: MarginalIndex
    ages: InsertionAges | None
    slots: TimeSlots | None

    @property
    def width(self) -> int:
        """How many weights it gives."""
        return 1 if self.ages is None else len(self.ages.ages)

    @property
    def kinds(self) -> dict[str, str]:
        """The columns that it reads, and what each is asked for."""
        ages = {} if self.ages is None else {self.ages.column: self.ages.kind}
        return self.index.kinds | ages | ({} if self.slots is None else {self.slots.column: "time"})

    def __call__(self, chunk: Mapping[str, Any]) -> tuple[Keys, np.ndarray]:
        codes = self.index.schema.encode(chunk, narrow=True)
        signs = self.index.signs(chunk, len(codes))
        slots = None if self.slots is None else self.slots.of(chunk)
        return self.of_rows(codes, signs, self.group(self.inserted(chunk, signs), signs), slots)

    def inserted(self, chunk: Mapping[str, Any], signs: Ints) -> Ints:
        """The step in which the row of each deletion was inserted; -1 where that has expired."""
        return np.full(signs.size, -1) if self.ages is None else self.ages.steps(chunk, signs < 0)

    def group(self, inserted: Ints, signs: Ints) -> Ints:
        """The weight that each row counts in; -1 for deletions of what has expired."""
        if self.ages is None:
            return np.zeros(signs.size, dtype=np.int64)
        return np.where(signs > 0, 0, self.ages.group(inserted, signs < 0))

    def of_rows(
        self, codes: Any, signs: Ints, group: Ints, slots: Ints | None, kept: Bools | None = None
    ) -> tuple[Keys, np.ndarray]:
        """Keys and weights of rows, or of those that are ``kept``."""
        kept = np.ones(signs.size, dtype=bool) if kept is None else kept
        found = []
        for number in range(self.width):
            rows = kept & (group == number)
            keys, net = self.index.keys(*((codes, signs) if rows.all() else (codes[rows], signs[rows])))
            weights = np.zeros((keys.size, self.width), dtype=np.int64)
            weights[:, number] = net[:, 0]
            found.append((keys, weights))
        keys, weights = (np.concatenate(parts) for parts in zip(*found, strict=True))
        if slots is None:
            return keys, weights
        return with_slots(keys, weights, slots, kept & (signs > 0))  # type: ignore[return-value]


@dataclass(frozen=True)
class RecordEvents:
    """Key function of rows of users: an event carries all that counting it takes. Picklable.

    Its weights are the sign, the age group, the period of the insertion, the slot of time, and the codes.
    """

    dated: DatedMarginals

    @property
    def width(self) -> int:
        """How many weights it gives."""
        return 4 + len(self.dated.index.schema.sizes)

    def __call__(self, chunk: Mapping[str, Any]) -> tuple[Keys, np.ndarray]:
        dated, schema = self.dated, self.dated.index.schema
        codes = schema.encode(chunk)
        signs = dated.index.signs(chunk, len(codes))
        inserted, none = dated.inserted(chunk, signs), np.zeros(len(codes), dtype=np.int64)
        born = none if dated.ages is None else dated.ages.born(inserted, signs < 0)
        slots = none if dated.slots is None else dated.slots.of(chunk)
        weights = np.column_stack([signs, dated.group(inserted, signs), born, slots, codes])
        return row_keys(codes, list(schema.sizes.values())), weights


@dataclass(frozen=True)
class AdmittedRecords:
    """Counts the cells of users' rows as far as a bounder admits them. Picklable."""

    dated: DatedMarginals
    period: int
    oldest: int | None

    @property
    def width(self) -> int:
        """How many weights its histograms have."""
        return self.dated.width

    def __call__(self, events: UserEvents, bounder: ContributionBounder) -> Histogram:
        signs, group, born, slots = (np.ascontiguousarray(column) for column in events.weights[:, :4].T)
        ages = self.dated.ages
        kept = bounder.admit(
            events.users,
            events.keys,
            signs,
            period=self.period,
            born=None if ages is None or ages.periods is None else born,
            oldest=self.oldest,
        )
        cut = None if self.dated.slots is None else slots
        return Histogram.of(*self.dated.of_rows(events.weights[:, 4:], signs, group, cut, kept))


class TableRecords:
    """Rows of a schema. Histograms have one weight: the net count of each cell of each marginal; or, where
    deletions say when their row was inserted, one for each age group (``DatedMarginals``).
    """

    def __init__(
        self,
        *,
        index: MarginalIndex,
        unit: PrivacyUnit,
        lifetime: int | None,
        deletions: bool,
        columns: ColumnNames,
    ) -> None:
        self.index = copy(index)
        self.index.deletions = deletions
        self.unit = unit
        self.lifetime = lifetime
        self.inserted = inserted = columns.inserted
        self.ages = None if lifetime is None or inserted is None else tuple(age_groups(lifetime))
        self.width = 1 if self.ages is None else len(self.ages)
        self.op = columns.op

    def on(self, index: MarginalIndex) -> TableRecords:
        """The same records, counted in other marginals."""
        made = copy(self)
        made.index = copy(index)
        made.index.deletions = self.index.deletions
        return made

    @property
    def schema(self) -> Schema:
        """What the columns hold."""
        return self.index.schema

    def keys(self, source: Source) -> MarginalIndex | DatedMarginals:
        return self._index_for(source)

    def _index_for(self, source: Source, clock: Clock | None = None) -> MarginalIndex | DatedMarginals:
        index, inputs = copy(self.index), self.schema.inputs
        index.operations = self.op if source.has(self.op) and self.op not in inputs else None
        ages = None
        if index.operations is not None and self.ages is not None and self.inserted is not None:
            ages = InsertionAges.of(self.inserted, source, clock, self.ages, self.unit)
        slots = None if clock is None else clock.slots
        found = index if ages is None and slots is None else DatedMarginals(index, ages, slots)
        source.require([*inputs, *(name for name in found.kinds if name not in inputs)])
        return found

    def probes(self, source: Source) -> list[Probe]:  # noqa: ARG002
        return []

    def count(self, source: Source, bounder: ContributionBounder | None, clock: Clock) -> Histogram:
        index = self._index_for(source, clock)
        columns = list(dict.fromkeys([*self.schema.inputs, *index.kinds]))
        if bounder is None:
            width = 1 if isinstance(index, MarginalIndex) else index.width
            return with_columns(source.histogram(index, columns, weights=width), self.width)
        assert self.unit.key is not None
        source.require([self.unit.key])
        dated = DatedMarginals(index, None, None) if isinstance(index, MarginalIndex) else index
        events = RecordEvents(dated)
        count = AdmittedRecords(dated, clock.period, oldest_period(self.unit, clock, self.lifetime))
        counts = source.count_users(events, columns, self.unit.key, count, bounder, weights=events.width)
        return with_columns(counts, self.width)

    def release(
        self,
        snapshot: tuple[Snapshot, dict[Clique, float], dict[int, float]],
        *,
        kept: None,
        clock: Clock,
        spent: PrivacyBudget | None,
        provenance: dict[str, Any],
        rng: np.random.Generator,
    ) -> tuple[TableRelease, None]:
        table, deviations, totals = snapshot
        release = TableRelease(
            step=clock.step,
            spent=spent,
            provenance=provenance,
            schema=self.schema,
            snapshot=table,
            deviations=deviations,
            seed=int(rng.integers(2**62)),
            times=BirthTimes.of(totals, clock),
        )
        return release, kept

    def facts(self) -> dict[str, Any]:
        return {"schema": self.schema.fingerprint()}

    def settings(self) -> dict[str, Any]:
        return {"schema": self.schema.fingerprint()}

    def to_state(self, kept: None) -> tuple[dict[str, Any], Arrays]:  # noqa: ARG002
        return {"schema": self.schema.to_json()}, {}

    def kept(self, values: dict[str, Any] | None = None, arrays: Arrays | None = None) -> None:
        """Nothing: rows are drawn anew for each release."""

"""Points as records of a stream: rows become Morton keys, released cells become synthetic points."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np

from streams.ages import InsertionAges, age_groups
from streams.birth_times import BirthTimes
from streams.mechanism import Arrays, EventBudget, Mechanism, part_of, prefixed
from streams.periods import oldest_period
from streams.records import Clock, with_columns
from streams.schedule import Schedule
from streams.slots import TimeSlots, with_slots
from streams.spatial.persistent_points import LivingPoints
from streams.spatial.release import PointRelease, PointSnapshot
from streams.spatial.requests import AskedCounts, CellsAsked, Counts, coarse_cells, exceeds_driver
from streams.spatial.settings import PointSettings
from streams.spatial.structure import Structure
from streams.stream import Stream
from synthgeo import codec
from synthgeo.arrays import Bools, Keys
from synthgeo.domain.box import SpatialDomain
from synthgeo.domain.coordinates import CoordinateReader, domain_from_state, find_coordinates
from synthgeo.errors import ConfigError
from synthgeo.hierarchy.base import Hierarchy, hierarchy_of, locate_points, unbiased
from synthgeo.preflight import Places, Probe
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.contribution import ContributionBounder
from synthgeo.privacy.noise import Noise
from synthgeo.privacy.unit import PrivacyUnit
from synthgeo.sources import Histogram, Source, UserEvents, values
from synthgeo.sources.declared import ColumnNames, Reading

POINT_COLUMNS = ("x", "y", "crs", "op", "inserted")


@dataclass(frozen=True)
class PointKeys:
    """Rows to keys of cells, with a weight for inserts and, where there is an operation column, one for
    deletes, or one for each age group of deletes; with periods, a last one says in which period the event
    was inserted. Picklable.
    """

    hierarchy: Hierarchy
    reader: CoordinateReader
    bits: int
    op: str | None
    deletions: bool
    outside: str
    every_row: bool
    ages: InsertionAges | None = None
    slots: TimeSlots | None = None
    cells: CellsAsked | None = None  # what alone is counted; of users' events, after they were bounded

    @property
    def per_row(self) -> bool:
        """Whether there is one key for each row: slots of time are keys of their own, but for users."""
        return self.slots is None or self.every_row

    @property
    def kinds(self) -> dict[str, str]:
        """The columns that it reads, and what each is asked for."""
        found = self.reader.kinds | ({} if self.op is None else {self.op: "number"})
        found |= {} if self.slots is None else {self.slots.column: "time"}
        return found | ({} if self.op is None or self.ages is None else {self.ages.column: self.ages.kind})

    @property
    def width(self) -> int:
        """How many weights it gives."""
        groups = 1 if self.ages is None else len(self.ages.ages)
        return (1 if self.op is None else 1 + groups + self.tells_periods) + self.tells_slots

    @property
    def tells_periods(self) -> bool:
        """Whether the last weight, before the slot, is a period."""
        return self.ages is not None and self.ages.periods is not None

    @property
    def tells_slots(self) -> bool:
        """Whether the last weight is the slot of time, which users' events carry."""
        return self.slots is not None and self.every_row

    @property
    def columns(self) -> list[str]:
        """The columns that it reads."""
        return list(self.kinds)

    def __call__(self, chunk: Mapping[str, Any]) -> tuple[Keys, np.ndarray | None]:
        xy = self.reader(chunk)
        keys, inside = locate_points(self.hierarchy, xy, self.bits, outside=self.outside)
        if self.cells is not None and not self.every_row:
            keys, asked = self.cells(keys)
            inside &= asked
        if self.op is None:
            if self.every_row:
                return keys, self._rows(chunk, inside[:, None])
            return self._timed(chunk, keys if inside.all() else keys[inside], None, inside)
        sign = values.operations(chunk, self.op, deletions=self.deletions)
        deleted = (sign == -1) & inside
        if self.ages is None:
            gone: list[Any] = [deleted]
        else:
            inserted = self.ages.steps(chunk, deleted)
            group = self.ages.group(inserted, deleted)
            gone = [group == number for number in range(len(self.ages.ages))]
            gone += [self.ages.born(inserted, deleted)] if self.tells_periods else []
        came = (sign == 1) & inside
        weights = np.stack([came, *gone], axis=1)
        if self.every_row:
            return keys, self._rows(chunk, weights)
        return self._timed(chunk, keys[inside], weights[inside].astype(np.int64), came)

    def _rows(self, chunk: Mapping[str, Any], weights: np.ndarray) -> np.ndarray:
        """The weights of all rows, with their slots of time where these are asked for."""
        weights = weights.astype(np.int64)
        return weights if self.slots is None else np.column_stack([weights, self.slots.of(chunk)])

    def _timed(
        self, chunk: Mapping[str, Any], keys: Keys, weights: np.ndarray | None, came: Bools
    ) -> tuple[Keys, np.ndarray | None]:
        """Keys and weights, with those of the slots of time where these are asked for."""
        if self.slots is None:
            return keys, weights
        return with_slots(keys, weights, self.slots.of(chunk), came)


@dataclass(frozen=True)
class AdmittedPoints:
    """Counts users' points as far as a bounder admits them. Points outside of the domain have weight 0 and
    make no claim on a user's bound.
    """

    width: int
    tells_periods: bool
    tells_slots: bool
    period: int
    oldest: int | None
    cells: CellsAsked | None = None

    def __call__(self, events: UserEvents, bounder: ContributionBounder) -> Histogram:
        born = events.weights[:, self.width] if self.tells_periods else None
        slots = events.weights[:, -1]
        events = replace(events, weights=events.weights[:, : self.width])
        sign = events.weights[:, 0] - events.weights[:, 1:].sum(axis=1)
        inside = sign != 0
        kept = np.zeros(len(inside), dtype=bool)
        kept[inside] = bounder.admit(
            events.users.take(inside),
            events.keys[inside],
            sign[inside],
            period=self.period,
            born=None if born is None else born[inside],
            oldest=self.oldest,
        )
        counts = events.histogram(kept)
        if self.cells is not None:
            counts = self.cells.of(counts)
        if not self.tells_slots:
            return counts
        return Histogram.of(*with_slots(counts.keys, counts.weights, slots, kept & (sign > 0)))


class PointRecords:
    """Points on a domain. Histograms have a weight for inserted ones and one for deleted ones, or, where
    there is a lifetime, one for each age group of deleted ones.
    """

    def __init__(
        self,
        *,
        domain: SpatialDomain,
        bits: int,
        unit: PrivacyUnit,
        lifetime: int | None,
        deletions: bool,
        columns: ColumnNames,
        settings: PointSettings,
        asks: bool = False,
    ) -> None:
        self.domain, self.hierarchy = domain, hierarchy_of(domain)
        self.bits = bits
        self.coarse = coarse_cells(bits) if asks and exceeds_driver(self.hierarchy, bits) else None
        self.unit = unit
        self.lifetime = lifetime
        self.deletions = deletions
        self.inserted = inserted = columns.inserted
        self.ages = None if lifetime is None or inserted is None else tuple(age_groups(lifetime))
        self.width = 2 if self.ages is None else 1 + len(self.ages)
        self.persist = settings.persist
        self.x, self.y, self.crs, self.op = columns.x, columns.y, columns.crs, columns.op
        self.outside = settings.outside

    def keys(self, source: Source, clock: Clock | None = None) -> PointKeys:
        geometry = source.geometry if self.x is None and self.y is None else None
        crs = source.crs if geometry is not None else self.crs
        reader = find_coordinates(
            source.columns,
            self.domain,
            x=self.x,
            y=self.y,
            crs=crs,
            geometry=geometry,
            open_schema=source.open_schema,
        )
        op = self.op if source.has(self.op) else None
        ages = None
        if op is not None and self.ages is not None and self.inserted is not None:
            ages = InsertionAges.of(self.inserted, source, clock, self.ages, self.unit)
        return PointKeys(
            self.hierarchy,
            reader,
            self.bits,
            op,
            self.deletions,
            self.outside,
            self.unit.is_user,
            ages,
            None if clock is None else clock.slots,
        )

    def probes(self, source: Source) -> list[Probe]:
        return [Places(self.keys(source).reader, self.domain)]

    def count(self, source: Source, bounder: ContributionBounder | None, clock: Clock) -> Counts:
        if self.coarse is None or not source.scans:
            return self._counted(source, bounder, clock, None)
        before, request = copy(bounder), self.coarse
        coarse = self._counted(source, bounder, clock, request)

        def ask(cells: CellsAsked) -> Histogram:
            """In another pass, which bounds users as the first one did."""
            return self._counted(source.apart(), copy(before), replace(clock, slots=None), cells)

        return AskedCounts(self.bits, ((request, coarse),), ask)

    def _counted(
        self, source: Source, bounder: ContributionBounder | None, clock: Clock, cells: CellsAsked | None
    ) -> Histogram:
        """Counts of the finest cells, or of those that are asked for."""
        keys = replace(self.keys(source, clock), cells=cells)
        weights = keys.width
        if bounder is None:
            return with_columns(source.histogram(keys, keys.columns, weights=weights), self.width)
        assert self.unit.key is not None
        source.require([self.unit.key])
        count = AdmittedPoints(
            weights - keys.tells_periods - keys.tells_slots,
            keys.tells_periods,
            keys.tells_slots,
            clock.period,
            oldest_period(self.unit, clock, self.lifetime),
            cells,
        )
        counts = source.count_users(keys, keys.columns, self.unit.key, count, bounder, weights=weights)
        return with_columns(counts, self.width)

    def release(
        self,
        snapshot: PointSnapshot,
        *,
        kept: LivingPoints | None,
        clock: Clock,
        spent: PrivacyBudget | None,
        provenance: dict[str, Any],
        rng: np.random.Generator,
    ) -> tuple[PointRelease, LivingPoints | None]:
        living = changes = None
        if kept is None:
            counts = unbiased(snapshot.released, rng)
        else:
            kept, counts, changes = kept.advanced(
                snapshot.partition,
                snapshot.released,
                self.hierarchy,
                rng,
                step=clock.step,
                lifetime=self.lifetime,
            )
            living = kept
        totals = snapshot.totals
        if living is not None and self.lifetime is None:  # points that persist know when they were born
            steps, numbers = np.unique(living.born, return_counts=True)
            totals = dict(zip(steps.tolist(), numbers.tolist(), strict=True))
        release = PointRelease(
            step=clock.step,
            spent=spent,
            provenance=provenance,
            domain=self.domain,
            partition=snapshot.partition,
            released=snapshot.released,
            counts=counts,
            deviation=snapshot.deviation,
            seed=int(rng.integers(2**63)),
            living=living,
            changes=changes,
            times=BirthTimes.of(totals, clock),
        )
        return release, kept

    def facts(self) -> dict[str, Any]:
        return {"domain": self.domain.describe()}

    def settings(self) -> dict[str, Any]:
        return {"domain": self.domain.describe()}

    def to_state(self, kept: LivingPoints | None) -> tuple[dict[str, Any], Arrays]:
        domain, domain_arrays = self.domain.to_state()
        values: dict[str, Any] = {"domain": domain}
        arrays = prefixed("domain", domain_arrays)
        if kept is not None:
            values["next_id"] = kept.next_id
            own = {"ids": kept.ids, "xy": kept.xy, "keys": kept.keys, "born": kept.born}
            arrays |= prefixed("living", own)
        return values, arrays

    def kept(self, values: dict[str, Any] | None = None, arrays: Arrays | None = None) -> LivingPoints | None:
        if not self.persist:
            return None
        if values is None or arrays is None:
            return LivingPoints()
        points = part_of("living", arrays)
        return LivingPoints(
            points["ids"], points["xy"], points["keys"], int(values["next_id"]), points["born"]
        )


class PointMechanism(Mechanism, Protocol):
    """A mechanism over Morton keys; ``asks`` says that it takes ``AskedCounts``."""

    structure: Structure
    asks: ClassVar[bool]


class PointStream(Stream):
    """A stream of points: the driver with ``PointRecords``. The products spell out their settings."""

    parts: ClassVar[dict[str, type]] = {"settings": PointSettings, "columns": ColumnNames}
    settings: PointSettings

    def __init__(
        self,
        *,
        domain: SpatialDomain,
        mechanism: PointMechanism,
        event: EventBudget,
        lifetime: int | None,
        schedule: Schedule,
        deletions: bool,
        columns: ColumnNames,
        reading: Reading | None,
        settings: PointSettings,
        noise: Noise,
        ledger: Any,
    ) -> None:
        records = PointRecords(
            domain=domain,
            bits=mechanism.structure.bits,
            unit=event.unit,
            lifetime=lifetime,
            deletions=deletions,
            columns=columns,
            settings=settings,
            asks=mechanism.asks and settings.t0 <= 1,
        )
        super().__init__(
            records=records,
            mechanism=mechanism,
            event=event,
            lifetime=lifetime,
            schedule=schedule,
            t0=settings.t0,
            deletions=deletions,
            reading=reading,
            noise=noise,
            ledger=ledger,
            times=settings.times,
        )
        self.domain, self.columns, self.settings = domain, columns, settings

    def _steps_held(self) -> int:
        """All of them where points persist for good."""
        if self.settings.persist and self.lifetime is None:
            return self.step + 1
        return super()._steps_held()

    @classmethod
    def _own_params(cls, values: dict[str, Any], arrays: Arrays) -> dict[str, Any]:
        return {
            **super()._own_params(values, arrays),
            "domain": domain_from_state(values["domain"], part_of("domain", arrays)),
            "settings": codec.load(PointSettings, values["settings"]),
        }


def check_domain(domain: Any) -> Hierarchy:
    """The hierarchy that cuts a domain of points, or the error that says what the domain must be."""
    if not isinstance(domain, SpatialDomain):
        raise ConfigError(
            f"domain must be a BoxDomain, PolygonDomain, RoadDomain or H3Domain, got {type(domain).__name__}"
        )
    return hierarchy_of(domain)

"""Points as records of a stream: rows become Morton keys, released cells become synthetic points."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from streams.birth_times import BirthTimes
from streams.mechanism import Arrays, EventBudget, Mechanism, part_of, prefixed
from streams.periods import Periods, oldest_period
from streams.records import Clock, with_columns
from streams.schedule import Schedule
from streams.spatial.persistent_points import LivingPoints
from streams.spatial.release import PointRelease, PointSnapshot
from streams.spatial.structure import Structure
from streams.stream import Stream
from synthgeo import validate
from synthgeo.arrays import Bools, Ints, Keys
from synthgeo.domain.coordinates import CoordinateReader, check_outside, find_coordinates
from synthgeo.domain.crs import crs_text, domain_from_state, parse_crs
from synthgeo.domain.spatial import SpatialDomain
from synthgeo.errors import ConfigError
from synthgeo.hierarchy.base import Hierarchy, hierarchy_of, locate_points
from synthgeo.hierarchy.rounding import unbiased
from synthgeo.preflight import Places, Probe
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.contribution import ContributionBounder
from synthgeo.privacy.noise import Noise
from synthgeo.privacy.unit import PrivacyUnit
from synthgeo.privacy.user_table import StoredBounder
from synthgeo.sources import Histogram, Source, UserEvents, values
from synthgeo.sources.chunk import refuse
from synthgeo.sources.declared import Reading


@dataclass(frozen=True)
class InsertionAges:
    """How a deletion's row says when its event was inserted: by a time where the stream is cut into windows,
    else by the number of a step.

    ``ages`` are public groups [a, b) of ages in steps; an older event has expired.
    """

    column: str
    clock: Clock  # of the batch
    ages: tuple[tuple[int, int], ...]
    periods: Periods | None = None

    @property
    def kind(self) -> str:
        """What the column is asked for."""
        return "time" if self.clock.starts else "number"

    def steps(self, chunk: Mapping[str, Any], deleted: Bools) -> Ints:
        """The step in which the event of each deleted row was inserted; -1 where that has expired."""
        if self.clock.starts:
            steps, starts = np.array(self.clock.starts).T
            when = values.times(chunk, self.column).astype("datetime64[us]").astype(np.int64)
            refuse(deleted & (when < -(2**62)), self.column, "a deletion needs the time of its insertion")
            place = np.searchsorted(starts, when, side="right") - 1
            return np.where(place >= 0, steps[np.maximum(place, 0)], -1)
        number, step = values.numbers(chunk, self.column), self.clock.step
        whole = (number == np.floor(number)) & (number >= 1) & (number <= step)
        refuse(deleted & ~whole, self.column, f"must be a step from 1 to {step}: that of the insertion")
        return np.where(whole, np.nan_to_num(number), -1).astype(np.int64)

    def group(self, inserted: Ints, deleted: Bools) -> Ints:
        """The age group of each deleted row; -1 for what has expired, and for insertions."""
        edges = np.array([older for _, older in self.ages])
        group = np.searchsorted(edges, self.clock.step - inserted, side="right")
        return np.where(deleted & (inserted >= 0) & (group < edges.size), group, -1)

    def born(self, inserted: Ints, deleted: Bools) -> Ints:
        """The period of the insertion of each deleted row, and of the batch for insertions."""
        if self.periods is None:
            return np.zeros(inserted.size, dtype=np.int64)
        return np.where(deleted, self.periods.of_steps(inserted, self.clock), self.clock.period)


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

    @property
    def kinds(self) -> dict[str, str]:
        """The columns that it reads, and what each is asked for."""
        found = self.reader.kinds | ({} if self.op is None else {self.op: "number"})
        return found | ({} if self.op is None or self.ages is None else {self.ages.column: self.ages.kind})

    @property
    def width(self) -> int:
        """How many weights it gives."""
        groups = 1 if self.ages is None else len(self.ages.ages)
        return 1 if self.op is None else 1 + groups + self.tells_periods

    @property
    def tells_periods(self) -> bool:
        """Whether the last weight is a period."""
        return self.ages is not None and self.ages.periods is not None

    @property
    def columns(self) -> list[str]:
        """The columns that it reads."""
        return list(self.kinds)

    def __call__(self, chunk: Mapping[str, Any]) -> tuple[Keys, np.ndarray | None]:
        xy = self.reader(chunk)
        keys, inside = locate_points(self.hierarchy, xy, self.bits, outside=self.outside)
        if self.op is None:
            if self.every_row:
                return keys, inside.astype(np.int64)[:, None]
            return (keys if inside.all() else keys[inside]), None
        sign = values.operations(chunk, self.op, deletions=self.deletions)
        deleted = (sign == -1) & inside
        if self.ages is None:
            gone: list[Any] = [deleted]
        else:
            inserted = self.ages.steps(chunk, deleted)
            group = self.ages.group(inserted, deleted)
            gone = [group == number for number in range(len(self.ages.ages))]
            gone += [self.ages.born(inserted, deleted)] if self.tells_periods else []
        weights = np.stack([(sign == 1) & inside, *gone], axis=1).astype(np.int64)
        return (keys, weights) if self.every_row else (keys[inside], weights[inside])


@dataclass(frozen=True)
class AdmittedPoints:
    """Counts users' points as far as a bounder admits them. Points outside of the domain have weight 0 and
    make no claim on a user's bound.
    """

    width: int
    tells_periods: bool
    period: int
    oldest: int | None

    def __call__(self, events: UserEvents, bounder: ContributionBounder) -> Histogram:
        born = events.weights[:, -1] if self.tells_periods else None
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
        return events.histogram(kept)


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
        inserted: str | None,
        persist: bool,
        x: str | None,
        y: str | None,
        crs: Any,
        op: str,
        outside: str,
    ) -> None:
        self.domain, self.hierarchy = domain, hierarchy_of(domain)
        self.bits = bits
        self.unit = unit
        self.lifetime = lifetime
        self.deletions = deletions
        self.inserted = inserted
        self.ages = None if lifetime is None or inserted is None else tuple(age_groups(lifetime))
        self.width = 2 if self.ages is None else 1 + len(self.ages)
        self.persist = validate.flag(persist, "persist")
        self.x, self.y, self.crs, self.op = x, y, crs, op
        self.outside = check_outside(outside)

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
            periods = None if self.unit.per is None else Periods(self.unit.per)
            ages = InsertionAges(self.inserted, clock or Clock(), self.ages, periods)
        return PointKeys(
            self.hierarchy, reader, self.bits, op, self.deletions, self.outside, self.unit.is_user, ages
        )

    def probes(self, source: Source) -> list[Probe]:
        return [Places(self.keys(source).reader, self.domain)]

    def count(self, source: Source, bounder: ContributionBounder | None, clock: Clock) -> Histogram:
        keys = self.keys(source, clock)
        weights = keys.width
        if bounder is None:
            return with_columns(source.histogram(keys, keys.columns, weights=weights), self.width)
        assert self.unit.key is not None
        source.require([self.unit.key])
        count = AdmittedPoints(
            weights - keys.tells_periods,
            keys.tells_periods,
            clock.period,
            oldest_period(self.unit, clock, self.lifetime),
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
            times=BirthTimes.of(snapshot.totals, clock),
        )
        return release, kept

    def facts(self) -> dict[str, Any]:
        return {"domain": self.domain.describe()}

    def settings(self) -> dict[str, Any]:
        crs = crs_text(parse_crs(self.crs))
        columns = {"x": self.x, "y": self.y, "crs": crs, "op": self.op, "outside": self.outside}
        if self.inserted is not None:
            columns["inserted"] = self.inserted
        return {"domain": self.domain.describe(), "persist": self.persist, "columns": columns}

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
        born = points.get("born", np.zeros(points["ids"].size, dtype=np.int64))  # not in version 0.1
        return LivingPoints(points["ids"], points["xy"], points["keys"], int(values["next_id"]), born)


class PointMechanism(Mechanism, Protocol):
    """A mechanism over Morton keys."""

    structure: Structure


class PointStream(Stream):
    """A stream of points: the driver with ``PointRecords``. The products spell out their settings."""

    def __init__(
        self,
        *,
        domain: SpatialDomain,
        mechanism: PointMechanism,
        event: EventBudget,
        lifetime: int | None,
        schedule: Schedule,
        t0: int,
        deletions: bool,
        inserted: str | None,
        persist: bool,
        x: str | None,
        y: str | None,
        crs: Any,
        op: str,
        outside: str,
        reading: Reading | None,
        noise: Noise,
        ledger: Any,
    ) -> None:
        records = PointRecords(
            domain=domain,
            bits=mechanism.structure.bits,
            unit=event.unit,
            lifetime=lifetime,
            deletions=deletions,
            inserted=inserted,
            persist=persist,
            x=x,
            y=y,
            crs=crs,
            op=op,
            outside=outside,
        )
        super().__init__(
            records=records,
            mechanism=mechanism,
            event=event,
            lifetime=lifetime,
            schedule=schedule,
            t0=t0,
            deletions=deletions,
            reading=reading,
            noise=noise,
            ledger=ledger,
        )
        self.domain, self.persist, self.inserted = domain, persist, inserted
        rules = mechanism.structure
        self.max_depth, self.fanout, self.theta = rules.max_depth, rules.fanout, rules.theta
        self.x, self.y, self.crs, self.op, self.outside = x, y, crs, op, outside

    @property
    def columns(self) -> dict[str, Any]:
        """Which columns are read, and how."""
        return {"x": self.x, "y": self.y, "crs": self.crs, "op": self.op, "outside": self.outside}

    def store_users(self, folder: str | os.PathLike[str], *, buckets: int = 64) -> None:
        """Keep what is remembered about users in a table in ``folder``, in this many Parquet files and not in
        memory; before the first step.

        For more users than this process should remember, and for clusters, whose workers must see the folder
        under the same path. The same events are kept. The table belongs to this stream: its version is part
        of the saved state. It is as private as the data.
        """
        if self._in_use() or not isinstance(self._now.bounder, ContributionBounder):
            raise ConfigError("store_users is for streams that bound users' events, before their first step")
        bounder = StoredBounder(self.unit, folder, buckets=buckets, deletes=self.deletions)
        self._now = replace(self._now, bounder=bounder)

    @classmethod
    def _own_params(cls, values: dict[str, Any], arrays: Arrays) -> dict[str, Any]:
        return {
            **super()._own_params(values, arrays),
            "domain": domain_from_state(values["domain"], part_of("domain", arrays)),
            "persist": values["persist"],
            **values["columns"],
            **{name: values[name] for name in ("max_depth", "fanout", "theta")},
            "lifetime": values.get("lifetime"),
        }


def check_deletions(
    deletions: bool | None, inserted: str | None, lifetime: int | None, unit: PrivacyUnit
) -> bool:
    """Whether deletions can come: by default yes, and with a lifetime or periods where their rows say when
    their event was inserted.
    """
    if inserted is not None and lifetime is None:
        raise ConfigError("inserted= says when the event of a deletion expires: give a lifetime too")
    possible = (lifetime is None and unit.per is None) or inserted is not None
    if deletions and not possible:
        where = "inside a lifetime" if unit.per is None else "by users with a bound per period"
        raise ConfigError(
            f"deletions {where} need inserted=, the column that says when their event was inserted, and a "
            "lifetime"
        )
    return possible if deletions is None else validate.flag(deletions, "deletions")


def age_groups(lifetime: int) -> list[tuple[int, int]]:
    """Public groups of ages [a, b) that cover 0, ..., lifetime - 1; each group is twice as wide as the last.

    >>> age_groups(10)
    [(0, 1), (1, 3), (3, 7), (7, 10)]
    """
    groups, begin, width = [], 0, 1
    while begin < lifetime:
        groups.append((begin, min(begin + width, lifetime)))
        begin, width = begin + width, 2 * width
    return groups


def check_domain(domain: Any) -> Hierarchy:
    """The hierarchy that cuts a domain of points, or the error that says what the domain must be."""
    if not isinstance(domain, SpatialDomain):
        raise ConfigError(
            f"domain must be a BoxDomain, PolygonDomain, RoadDomain or H3Domain, got {type(domain).__name__}"
        )
    return hierarchy_of(domain)

"""Points as records of a stream: rows become Morton keys, released cells become synthetic points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from streams.mechanism import Arrays, EventBudget, Mechanism, part_of, prefixed
from streams.records import with_columns
from streams.schedule import Schedule
from streams.spatial.persistent_points import LivingPoints
from streams.spatial.release import PointRelease
from streams.stream import Stream
from synthgeo import validate
from synthgeo.arrays import Floats, Keys
from synthgeo.domain.coordinates import CoordinateReader, check_outside, find_coordinates
from synthgeo.domain.crs import crs_text, domain_from_state, parse_crs
from synthgeo.domain.spatial import SpatialDomain
from synthgeo.errors import ConfigError
from synthgeo.hierarchy.base import Hierarchy, hierarchy_of, locate_points
from synthgeo.hierarchy.cells import Partition
from synthgeo.hierarchy.rounding import unbiased
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.contribution import ContributionBounder
from synthgeo.privacy.noise import Noise
from synthgeo.privacy.unit import PrivacyUnit
from synthgeo.sources import Histogram, Source
from synthgeo.sources.declared import Reading
from synthgeo.sources.values import operations


@dataclass(frozen=True, eq=False)
class PointSnapshot:
    """What a release of points may know: leaves, their non-negative released counts, and their noise."""

    partition: Partition
    released: Floats
    deviation: Floats


@dataclass(frozen=True)
class PointKeys:
    """Rows to Morton keys, with a weight for inserts and, where there is an operation column, one for
    deletes. Picklable.
    """

    hierarchy: Hierarchy
    reader: CoordinateReader
    bits: int
    op: str | None
    deletions: bool
    outside: str
    every_row: bool

    @property
    def kinds(self) -> dict[str, str]:
        """The columns that it reads, and what each is asked for."""
        return self.reader.kinds | ({} if self.op is None else {self.op: "number"})

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
        sign = operations(chunk, self.op, deletions=self.deletions)
        weights = np.stack([(sign == 1) & inside, (sign == -1) & inside], axis=1).astype(np.int64)
        return (keys, weights) if self.every_row else (keys[inside], weights[inside])


class PointRecords:
    """Points on a domain. Histograms have two weights: inserted, deleted."""

    width = 2

    def __init__(
        self,
        *,
        domain: SpatialDomain,
        bits: int,
        unit: PrivacyUnit,
        deletions: bool,
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
        self.deletions = deletions
        self.persist = validate.flag(persist, "persist")
        self.x, self.y, self.crs, self.op = x, y, crs, op
        self.outside = check_outside(outside)

    def keys(self, source: Source) -> PointKeys:
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
        return PointKeys(
            self.hierarchy, reader, self.bits, op, self.deletions, self.outside, self.unit.is_user
        )

    def count(self, source: Source, bounder: ContributionBounder | None) -> Histogram:
        keys = self.keys(source)
        weights = 2 if keys.op else 1
        if bounder is None:
            return with_columns(source.histogram(keys, keys.columns, weights=weights), self.width)
        assert self.unit.key is not None
        source.require([self.unit.key])
        events = source.user_events(keys, keys.columns, self.unit.key, weights=weights)
        sign = events.weights[:, 0] - (events.weights[:, 1] if weights > 1 else 0)
        inside = sign != 0  # outside the domain: weight 0, no claim on the user's bound
        kept = np.zeros(len(inside), dtype=bool)
        kept[inside] = bounder.admit(events.users.take(inside), events.keys[inside], sign[inside])
        return with_columns(events.histogram(kept), self.width)

    def release(
        self,
        snapshot: PointSnapshot,
        *,
        kept: LivingPoints | None,
        step: int,
        spent: PrivacyBudget | None,
        provenance: dict[str, Any],
        rng: np.random.Generator,
    ) -> tuple[PointRelease, LivingPoints | None]:
        living = changes = None
        if kept is None:
            counts = unbiased(snapshot.released, rng)
        else:
            kept, counts, changes = kept.advanced(snapshot.partition, snapshot.released, self.hierarchy, rng)
            living = (kept.ids, kept.xy)
        release = PointRelease(
            step=step,
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
        )
        return release, kept

    def facts(self) -> dict[str, Any]:
        return {"domain": self.domain.describe()}

    def settings(self) -> dict[str, Any]:
        crs = crs_text(parse_crs(self.crs))
        columns = {"x": self.x, "y": self.y, "crs": crs, "op": self.op, "outside": self.outside}
        return {"domain": self.domain.describe(), "persist": self.persist, "columns": columns}

    def to_state(self, kept: LivingPoints | None) -> tuple[dict[str, Any], Arrays]:
        domain, domain_arrays = self.domain.to_state()
        values: dict[str, Any] = {"domain": domain}
        arrays = prefixed("domain", domain_arrays)
        if kept is not None:
            values["next_id"] = kept.next_id
            arrays |= prefixed("living", {"ids": kept.ids, "xy": kept.xy, "keys": kept.keys})
        return values, arrays

    def kept(self, values: dict[str, Any] | None = None, arrays: Arrays | None = None) -> LivingPoints | None:
        if not self.persist:
            return None
        if values is None or arrays is None:
            return LivingPoints()
        points = part_of("living", arrays)
        return LivingPoints(points["ids"], points["xy"], points["keys"], int(values["next_id"]))


class PointMechanism(Mechanism, Protocol):
    """A mechanism over Morton keys."""

    bits: int  # of the keys
    max_depth: int
    fanout: int
    theta: float


class PointStream(Stream):
    """A stream of points: the driver with ``PointRecords``. The products spell out their settings."""

    def __init__(
        self,
        *,
        domain: SpatialDomain,
        mechanism: PointMechanism,
        event: EventBudget,
        schedule: Schedule,
        t0: int,
        deletions: bool,
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
            bits=mechanism.bits,
            unit=event.unit,
            deletions=deletions,
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
            schedule=schedule,
            t0=t0,
            deletions=deletions,
            reading=reading,
            noise=noise,
            ledger=ledger,
        )
        self.domain, self.persist = domain, persist
        self.max_depth, self.fanout, self.theta = mechanism.max_depth, mechanism.fanout, mechanism.theta
        self.x, self.y, self.crs, self.op, self.outside = x, y, crs, op, outside

    @property
    def columns(self) -> dict[str, Any]:
        """Which columns are read, and how."""
        return {"x": self.x, "y": self.y, "crs": self.crs, "op": self.op, "outside": self.outside}

    @classmethod
    def _own_params(cls, values: dict[str, Any], arrays: Arrays) -> dict[str, Any]:
        return {
            "domain": domain_from_state(values["domain"], part_of("domain", arrays)),
            "persist": values["persist"],
            **values["columns"],
            **{name: values[name] for name in ("max_depth", "fanout", "theta")},
        }


def check_domain(domain: Any) -> Hierarchy:
    """The hierarchy that cuts a domain of points, or the error that says what the domain must be."""
    if not isinstance(domain, SpatialDomain):
        raise ConfigError(
            f"domain must be a BoxDomain, PolygonDomain or RoadDomain, got {type(domain).__name__}"
        )
    return hierarchy_of(domain)

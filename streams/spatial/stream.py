"""What all spatial streams share: reading points, cells and their estimate, building a release, saving."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from streams.schedule import ReleaseDriven, Schedule
from streams.spatial.persistent_points import LivingPoints
from streams.spatial.release import PointRelease
from streams.stream import Arrays, ContinualStream, check_operations, part_of, prefixed
from synthgeo.arrays import Floats
from synthgeo.domain.coordinates import CoordinateReader, check_outside, find_coordinates
from synthgeo.domain.crs import crs_text, domain_from_state, parse_crs
from synthgeo.domain.spatial import SpatialDomain
from synthgeo.errors import ConfigError
from synthgeo.hierarchy.base import Hierarchy, hierarchy_of, locate_points
from synthgeo.hierarchy.cells import Estimate, Partition
from synthgeo.hierarchy.privtree import SplitRule
from synthgeo.hierarchy.rounding import unbiased
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.noise import Noise
from synthgeo.privacy.unit import PrivacyUnit
from synthgeo.release import provenance
from synthgeo.sources import KeyFunction, Source


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

    def __call__(self, chunk: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray | None]:
        xy = self.reader(chunk)
        keys, inside = locate_points(self.hierarchy, xy, self.bits, outside=self.outside)
        if self.op is None:
            if self.every_row:
                return keys, inside.astype(np.int64)[:, None]
            return (keys if inside.all() else keys[inside]), None
        operations = check_operations(np.asarray(chunk[self.op]), self.op, deletions=self.deletions)
        weights = np.stack([(operations == 1) & inside, (operations == -1) & inside], axis=1).astype(np.int64)
        return (keys, weights) if self.every_row else (keys[inside], weights[inside])


class SpatialStream(ContinualStream):
    """A stream of points over a domain; subclasses say how counts become private."""

    mechanism: str

    def __init__(
        self,
        *,
        domain: SpatialDomain,
        budget: PrivacyBudget,
        unit: PrivacyUnit | None = None,
        max_depth: int = 20,
        fanout: int = 2,
        theta: float = 0.0,
        t0: int = 0,
        schedule: str | Schedule = "auto",
        structure_share: float = 0.5,
        persist: bool = False,
        deletions: bool = True,
        x: str | None = None,
        y: str | None = None,
        crs: Any = None,
        op: str = "op",
        outside: str = "drop",
        noise: Noise | None = None,
        ledger: Any = None,
    ) -> None:
        super().__init__(
            budget=budget,
            unit=unit,
            schedule=schedule,
            auto=ReleaseDriven(),
            deletions=deletions,
            structure_share=structure_share,
            t0=t0,
            noise=noise,
            ledger=ledger,
        )
        if not isinstance(domain, SpatialDomain):
            raise ConfigError(
                f"domain must be a BoxDomain, PolygonDomain or RoadDomain, got {type(domain).__name__}"
            )
        self.domain = domain
        self.max_depth = max_depth
        self.fanout = fanout
        self.hierarchy = hierarchy_of(domain)
        self.levels = self.hierarchy.levels(max_depth, fanout)
        self.bits = self.levels[-1]
        self.rule = SplitRule(self.epsilon * self.structure_share, fanout, float(theta))
        self.persist = bool(persist)
        self.columns = {"x": x, "y": y, "crs": crs, "op": op, "outside": check_outside(outside)}
        self._partition = Partition.whole(self.hierarchy)
        self._estimate = self._blank(self._partition)
        self._released: Floats = np.zeros(1)
        self._living = LivingPoints() if self.persist else None

    def _blank(self, partition: Partition) -> Estimate:
        zeros = np.zeros(partition.size)
        return Estimate(partition, zeros, zeros.copy(), levels=self.levels)

    def _key_function(self, source: Source) -> tuple[KeyFunction, list[str], int]:
        given = self.columns
        geometry = source.geometry if given["x"] is None and given["y"] is None else None
        crs = source.crs if geometry is not None else given["crs"]
        reader = find_coordinates(
            source.columns, self.domain, x=given["x"], y=given["y"], crs=crs, geometry=geometry
        )
        op = given["op"] if given["op"] in source.columns else None
        key_function = PointKeys(
            self.hierarchy, reader, self.bits, op, self.deletions, given["outside"], self.unit.is_user
        )
        return key_function, [*reader.columns, *([op] if op else [])], 2 if op else 1

    def settings(self) -> dict[str, Any]:
        """What was chosen when the stream was made, as plain values."""
        crs = crs_text(parse_crs(self.columns["crs"]))
        return super().settings() | {
            "domain": self.domain.describe(),
            "max_depth": self.max_depth,
            "fanout": self.fanout,
            "theta": self.rule.theta,
            "persist": self.persist,
            "columns": self.columns | {"crs": crs},
        }

    def _deviation(self) -> Floats:
        """Standard deviation of the noise in each cell's released count."""
        return np.sqrt(self._estimate.sums(self._partition, self._estimate.variance))

    def _copy_for_looking(self) -> Self:
        twin = super()._copy_for_looking()
        twin._living = copy(self._living)  # its arrays are replaced, never changed
        return twin

    def _release(self) -> PointRelease:
        partition, rng = self._partition, self.noise.rng
        released = self._estimate.sums(partition, self._released)
        living = changes = None
        if self._living is None:
            counts = unbiased(released, rng)
        else:
            counts, changes = self._living.advance(partition, released, self.hierarchy, rng)
            living = (self._living.ids, self._living.xy)
        return PointRelease(
            step=self.step,
            spent=self.spent,
            provenance=self._statement(),
            domain=self.domain,
            partition=partition,
            released=released,
            counts=counts,
            deviation=self._deviation(),
            seed=int(rng.integers(2**63)),
            living=living,
            changes=changes,
        )

    def _statement(self) -> dict[str, Any]:
        return provenance(
            mechanism=self.mechanism,
            unit=self.unit,
            budget=self.budget,
            noise=self.noise,
            private=self.is_private,
            step=self.step,
            schedule=self.schedule.name,
            max_depth=self.max_depth,
            fanout=self.fanout,
            theta=self.rule.theta,
            t0=self.t0,
            domain=self.domain.describe(),
        )

    def _to_state(self) -> tuple[dict[str, Any], Arrays]:
        values, arrays = super()._to_state()
        values["domain"], domain_arrays = self.domain.to_state()
        if self.columns["crs"] is not None and not isinstance(self.columns["crs"], str | int):
            from pyproj import CRS

            self.columns["crs"] = CRS.from_user_input(self.columns["crs"]).to_wkt()
        values |= {
            "max_depth": self.max_depth,
            "fanout": self.fanout,
            "theta": self.rule.theta,
            "persist": self.persist,
            "columns": self.columns,
        }
        arrays |= prefixed("domain", domain_arrays)
        arrays |= prefixed("leaf", _cells_to_arrays(self._partition))
        arrays |= prefixed("cell", _cells_to_arrays(self._estimate.cells))
        arrays |= {
            "estimate": self._estimate.values,
            "variance": self._estimate.variance,
            "released": self._released,
        }
        if self._living is not None:
            values["next_id"] = self._living.next_id
            arrays |= {
                "living/ids": self._living.ids,
                "living/xy": self._living.xy,
                "living/keys": self._living.keys,
            }
        return values, arrays

    @classmethod
    def _from_state(cls, values: dict[str, Any], arrays: Arrays, ledger: Any) -> Self:
        stream = cls(
            domain=domain_from_state(values["domain"], part_of("domain", arrays)),
            max_depth=values["max_depth"],
            fanout=values["fanout"],
            theta=values["theta"],
            persist=values["persist"],
            ledger=ledger,
            **values["columns"],
            **cls._common_options(values),
            **cls._own_options(values),
        )
        stream._restore_common(values, arrays)
        stream._partition = _cells_from_arrays(part_of("leaf", arrays))
        cells = _cells_from_arrays(part_of("cell", arrays))
        stream._estimate = Estimate(cells, arrays["estimate"], arrays["variance"], levels=stream.levels)
        stream._released = arrays["released"]
        if stream._living is not None:
            points = part_of("living", arrays)
            stream._living = LivingPoints(points["ids"], points["xy"], points["keys"], int(values["next_id"]))
        stream._restore_own(values, arrays)
        return stream

    @classmethod
    def _own_options(cls, values: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG003
        """Constructor arguments of the subclass, from its state."""
        return {}

    def _restore_own(self, values: dict[str, Any], arrays: Arrays) -> None:
        """Put back what the subclass keeps."""


def _cells_to_arrays(cells: Partition) -> Arrays:
    return {"prefix": cells.prefix, "bits": cells.bits, "measure": cells.measure}


def _cells_from_arrays(arrays: Arrays) -> Partition:
    return Partition(arrays["prefix"], arrays["bits"], arrays["measure"])

"""The released model of trips: everything that sampling needs, and nothing private.

It is small: the cells, a cost for each link between cells, blocks of origin-destination pairs, ends by part
of a cell, and, where they were measured, tables of lengths, departure hours and speeds. The domain is public.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from synthgeo.domain.crs import domain_from_state
from synthgeo.domain.spatial import SpatialDomain
from synthgeo.hierarchy.cells import Partition
from trajectories.origin_destination import PairBlocks
from trajectories.places import Places, places_of
from trajectories.selection import Taste
from trajectories.states import Floats, Ints, StateGraph, states_of
from trajectories.times import Clock

Length = Literal["median", "killed"]

_BLOCKS = [field.name for field in fields(PairBlocks)]


@dataclass(frozen=True, eq=False)
class TripModel:
    """A released model.

    Attributes
    ----------
    pairs
        Blocks of origin-destination pairs with their estimated numbers of trips.
    parts, ends
        Cells, some of them cut finer, and the estimated number of ends in each, halved.
    popularity
        How likely a trip ends at a place of each state, against the other places of its part.
    link_cost
        What crossing each link costs, against the usual: the weight of a step is multiplied by e^-cost.
    traffic
        Estimated crossings of each link, a trip's sharing the weight of one; all 0 when not measured.
    taste
        Which walks are chosen (``selection``); None when lengths were not measured.
    length
        ``"killed"`` or ``"median"``.
    clock
        Departure hours and speeds, None when times were not measured.
    """

    domain: SpatialDomain
    partition: Partition
    bits: int
    pairs: PairBlocks
    parts: Partition
    ends: Floats
    popularity: Floats
    link_cost: Floats
    traffic: Floats
    taste: Taste | None
    length: Length
    clock: Clock | None

    @cached_property
    def graph(self) -> StateGraph:
        """The walking graph, rebuilt from public facts."""
        return states_of(self.domain, self.partition, self.bits)

    @cached_property
    def cell_of_part(self) -> Ints:
        """Cell that each part belongs to."""
        return self.partition.holder_of(self.parts.start).astype(np.int64)

    @cached_property
    def places(self) -> Places:
        """Where trips can start and end, from public facts and the parts."""
        return places_of(self.domain, self.parts, self.cell_of_part, self.bits)

    @cached_property
    def place_weight(self) -> Floats:
        """Ends of each place."""
        places = self.places
        weight = self.popularity[places.state] * places.size
        together = np.bincount(places.part, weight, minlength=self.parts.size)
        ends: Floats = self.ends[places.part] * weight / np.maximum(together[places.part], 1e-300)
        return ends

    @property
    def total(self) -> float:
        """Estimated number of trips."""
        return float(self.pairs.count.sum())

    def but(self, **changes: Any) -> TripModel:
        """A copy with some fields replaced; keeps what was computed from public facts."""
        other = replace(self, **changes)
        if other.partition is self.partition and other.parts is self.parts:
            known = ("graph", "cell_of_part", "places")
            other.__dict__.update({name: self.__dict__[name] for name in known if name in self.__dict__})
        return other

    def to_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """JSON values and arrays."""
        domain_values, domain_arrays = self.domain.to_state()
        values: dict[str, Any] = {"domain": domain_values, "bits": self.bits, "length": self.length}
        arrays = {f"domain/{name}": array for name, array in domain_arrays.items()}
        for prefix, cells in (("cells", self.partition), ("parts", self.parts)):
            arrays |= {f"{prefix}/{name}": getattr(cells, name) for name in ("prefix", "bits", "measure")}
        arrays |= {f"pairs/{name}": getattr(self.pairs, name) for name in _BLOCKS}
        for name in ("ends", "popularity", "link_cost", "traffic"):
            arrays[name] = getattr(self, name)
        if self.taste is not None:
            arrays |= self.taste.to_arrays()
        if self.clock is not None:
            arrays |= {"clock/hours": self.clock.hours, "clock/paces": self.clock.paces}
        return values, arrays

    @classmethod
    def from_state(cls, values: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> TripModel:
        """The inverse of ``to_state``."""

        def part(prefix: str) -> dict[str, np.ndarray]:
            return {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}

        clock, taste = part("clock/"), part("taste/")
        return cls(
            domain=domain_from_state(values["domain"], part("domain/")),
            partition=Partition(**part("cells/")),
            bits=int(values["bits"]),
            pairs=PairBlocks(**part("pairs/")),
            parts=Partition(**part("parts/")),
            ends=arrays["ends"],
            popularity=arrays["popularity"],
            link_cost=arrays["link_cost"],
            traffic=arrays["traffic"],
            taste=Taste(**taste) if taste else None,
            length=values["length"],
            clock=Clock(**clock) if clock else None,
        )


__all__ = ["Length", "TripModel"]

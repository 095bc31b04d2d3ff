"""The released model of trips: everything that sampling needs, and nothing private.

It is small: the cells, a cost for each link between cells, blocks of origin-destination pairs, weights for
ends, and, where they were measured, tables of lengths, departure hours and speeds. The domain is public.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from synthgeo.domain.frame import domain_from_state
from synthgeo.domain.spatial import SpatialDomain
from synthgeo.partition.cells import Partition
from trajectories.origin_destination import PairBlocks
from trajectories.selection import Taste
from trajectories.states import Floats, StateGraph, states_of
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
    cell_weight, end_weight
        How likely a trip ends in each cell of a block, and at each state of a cell.
    link_cost
        What crossing each link costs, against the usual: the weight of a step is multiplied by e^-cost.
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
    cell_weight: Floats
    end_weight: Floats
    link_cost: Floats
    taste: Taste | None
    length: Length
    clock: Clock | None

    @cached_property
    def graph(self) -> StateGraph:
        """The walking graph, rebuilt from public facts."""
        return states_of(self.domain, self.partition, self.bits)

    @property
    def total(self) -> float:
        """Estimated number of trips."""
        return float(self.pairs.count.sum())

    def but(self, **changes: Any) -> TripModel:
        """A copy with some parts replaced; keeps the walking graph."""
        other = replace(self, **changes)
        if other.partition is self.partition and "graph" in self.__dict__:
            other.__dict__["graph"] = self.graph
        return other

    def to_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """JSON values and arrays."""
        domain_values, domain_arrays = self.domain.to_state()
        values: dict[str, Any] = {"domain": domain_values, "bits": self.bits, "length": self.length}
        arrays = {f"domain/{name}": array for name, array in domain_arrays.items()}
        arrays |= {f"cells/{name}": getattr(self.partition, name) for name in ("prefix", "bits", "measure")}
        arrays |= {f"pairs/{name}": getattr(self.pairs, name) for name in _BLOCKS}
        for name in ("cell_weight", "end_weight", "link_cost"):
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
            cell_weight=arrays["cell_weight"],
            end_weight=arrays["end_weight"],
            link_cost=arrays["link_cost"],
            taste=Taste(**taste) if taste else None,
            length=values["length"],
            clock=Clock(**clock) if clock else None,
        )


__all__ = ["Length", "TripModel"]

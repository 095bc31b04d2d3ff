"""The released model of trips: everything that sampling needs, and nothing private.

It is small: what was measured, and what follows from it: a cost for each link between cells, blocks of
origin-destination pairs, ends by part of a cell, weights of walks, hours and speeds. The domain is public.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from synthgeo.arrays import Array, Floats, Ints
from synthgeo.domain.box import SpatialDomain
from synthgeo.domain.coordinates import domain_from_state
from synthgeo.hierarchy.cells import Partition
from trajectories.fit.clock import Recording, TripClock
from trajectories.ground import Ground, ground_of
from trajectories.ground.cell_lines import SideSegments
from trajectories.ground.state_graph import EndPlaces, StateGraph
from trajectories.measure.measured import MeasuredTrips
from trajectories.measure.pairs import PairBlocks
from trajectories.walks.traits import WalkWeights

__all__ = ["Length", "TripModel"]


Length = Literal["median", "killed"]

_CELLS = ("prefix", "bits", "measure")
_BLOCKS = [field.name for field in fields(PairBlocks)]


@dataclass(frozen=True, eq=False)
class TripModel:
    """A released model.

    Attributes
    ----------
    measured
        The noisy measurements that all the rest follows from; None in models of version 0.1.0.
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
    weights
        Which walks are chosen; None when lengths were not measured.
    length
        ``"killed"`` or ``"median"``.
    clock
        Departure hours and speeds, None when times were not measured.
    recording
        Gaps between points and how much speeds vary, None when not measured.
    winding
        On a plane, how much longer trips are than the shortest lines through the cells of walks.
    segments
        On a plane, estimated crossings by segment of the sides of busy cells; None where there are none.
    """

    domain: SpatialDomain
    measured: MeasuredTrips | None
    partition: Partition
    bits: int
    pairs: PairBlocks
    parts: Partition
    ends: Floats
    popularity: Floats
    link_cost: Floats
    traffic: Floats
    weights: WalkWeights | None
    length: Length
    clock: TripClock | None = None
    recording: Recording | None = None
    winding: float = 1.0
    segments: SideSegments | None = None

    @classmethod
    def blank(cls, ground: Ground, measured: MeasuredTrips, length: Length) -> TripModel:
        """A model that knows its measurements and treats all states and links alike."""
        graph, parts = ground.graph(measured.partition), measured.ends.parts
        model = cls(
            domain=ground.domain, measured=measured, partition=measured.partition, bits=ground.bits,
            pairs=measured.pairs, parts=parts, ends=np.ones(parts.size), popularity=np.ones(graph.size),
            link_cost=np.zeros(graph.links), traffic=np.zeros(graph.links), weights=None, length=length,
        )  # fmt: skip
        model.__dict__.update(ground=ground, graph=graph)
        return model

    @cached_property
    def ground(self) -> Ground:
        """The domain as trips see it."""
        return ground_of(self.domain, self.bits)

    @cached_property
    def graph(self) -> StateGraph:
        """The walking graph, rebuilt from public facts."""
        return self.ground.graph(self.partition)

    @cached_property
    def cell_of_part(self) -> Ints:
        """Cell that each part belongs to."""
        return self.partition.holder_of(self.parts.start).astype(np.int64)

    @cached_property
    def places(self) -> EndPlaces:
        """Where trips can start and end, from public facts and the parts."""
        return self.ground.places(self.parts, self.cell_of_part)

    @cached_property
    def order_of_states(self) -> Ints:
        """A number for each state, close to those of states near it: of its first place; 0 if it has none."""
        order, state = self.places.by_state
        numbers = np.zeros(self.graph.size, dtype=np.int64)
        numbers[state[::-1]] = order[::-1]
        return numbers

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

    def end_places(self, states: Ints, rng: np.random.Generator) -> Ints:
        """A place for each trip that ends in one of ``states``, -1 where a state has none."""
        return self.places_at(states, rng.random(len(states)))

    def places_at(self, states: Ints, share: Floats) -> Ints:
        """The place of each of ``states`` up to which it has this ``share`` of its ends, -1 where a state
        has none.
        """
        order, state = self.places.by_state
        running = np.concatenate([[0.0], np.cumsum(self.place_weight[order])])
        first, last = np.searchsorted(state, states), np.searchsorted(state, states, side="right")
        drawn = running[first] + share * (running[last] - running[first])
        at = np.clip(np.searchsorted(running, drawn, side="right") - 1, first, np.maximum(last - 1, first))
        return np.where(last > first, order[np.minimum(at, len(order) - 1)], -1)

    def but(self, **changes: Any) -> TripModel:
        """A copy with some fields replaced; keeps what was computed from public facts."""
        other = replace(self, **changes)
        if other.partition is self.partition and other.parts is self.parts:
            known = ("ground", "graph", "cell_of_part", "places", "order_of_states")
            other.__dict__.update({name: self.__dict__[name] for name in known if name in self.__dict__})
        return other

    def to_state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """JSON values and arrays."""
        domain_values, domain_arrays = self.domain.to_state()
        values: dict[str, Any] = {"domain": domain_values, "bits": self.bits, "length": self.length}
        if self.winding != 1:
            values["winding"] = self.winding
        arrays = {f"domain/{name}": array for name, array in domain_arrays.items()}
        for prefix, cells in (("cells", self.partition), ("parts", self.parts)):
            arrays |= {f"{prefix}/{name}": getattr(cells, name) for name in _CELLS}
        arrays |= {f"pairs/{name}": getattr(self.pairs, name) for name in _BLOCKS}
        for name in ("ends", "popularity", "link_cost", "traffic"):
            arrays[name] = getattr(self, name)
        if self.weights is not None:
            arrays |= self.weights.to_arrays()
        if self.clock is not None:
            arrays |= {f"clock/{name}": array for name, array in self.clock.to_arrays().items()}
        if self.recording is not None:
            arrays |= {
                f"recording/{field.name}": getattr(self.recording, field.name) for field in fields(Recording)
            }
        if self.segments is not None:
            arrays |= {f"segments/{name}": array for name, array in self.segments._asdict().items()}
        if self.measured is not None:
            values["weights"] = self.measured.weights
            arrays |= {f"measured/{name}": array for name, array in self.measured.arrays().items()}
        return values, arrays

    @classmethod
    def from_state(cls, values: Mapping[str, Any], arrays: Mapping[str, Array]) -> TripModel:
        """The inverse of ``to_state``."""

        def part(prefix: str) -> dict[str, Array]:
            return {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}

        clock, weights, measured = part("clock/"), part("weights/"), part("measured/")
        recording, segments = part("recording/"), part("segments/")
        return cls(
            domain=domain_from_state(values["domain"], part("domain/")),
            measured=MeasuredTrips.from_arrays(measured, values["weights"]) if measured else None,
            partition=Partition.checked(**part("cells/")),
            bits=int(values["bits"]),
            pairs=PairBlocks(**part("pairs/")),
            parts=Partition.checked(**part("parts/")),
            ends=arrays["ends"],
            popularity=arrays["popularity"],
            link_cost=arrays["link_cost"],
            traffic=arrays["traffic"],
            weights=WalkWeights(**weights) if weights else None,
            length=values["length"],
            clock=TripClock.from_arrays(clock) if clock else None,
            recording=Recording(**recording) if recording else None,
            winding=float(values.get("winding", 1.0)),
            segments=SideSegments(**segments) if segments else None,
        )

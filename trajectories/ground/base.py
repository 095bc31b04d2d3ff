"""What roads and planes have in common: trips are placed on them, walked over them, and drawn on them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import shapely

from synthgeo.arrays import Array, Bools, Floats, Ints, Keys, Points
from synthgeo.domain.box import SpatialDomain
from synthgeo.hierarchy import morton
from synthgeo.hierarchy.base import hierarchy_of
from synthgeo.hierarchy.cells import Partition
from synthgeo.polylines import Polylines
from trajectories.ground.state_graph import EndPlaces, StateGraph
from trajectories.reading.points import Trips, metres_per_unit

if TYPE_CHECKING:
    from trajectories.fit.clock import Recording, TripClock
    from trajectories.model import TripModel
    from trajectories.walks.bridges import Walks
    from trajectories.walks.pacing import Pieces
    from trajectories.walks.traits import WalkTraits


@dataclass(frozen=True, eq=False)
class PlacedTrips:
    """Private trips on the ground, ready to be measured.

    Attributes
    ----------
    keys, shares
        The places that each trip passes, and what each place has of the trip's weight of 1, in grid steps.
    ends
        The two keys at which each trip starts and ends.
    states, start
        What each trip visits, and offsets. On roads states are edges; on a plane they are numbers of points
        until there are cells.
    departure, duration
        Seconds since 1970, and seconds; None without times.
    gap, variation
        The median gap between the points of each trip and the variation of its speeds
        (``trajectories.reading.recorded``); None where only ends are known.
    metres, diameter
        Of the line through each trip's own points; None on roads, where the matched path says it.
    """

    keys: Keys
    shares: Ints
    ends: Keys
    states: Ints
    start: Ints
    departure: Floats | None
    duration: Floats | None
    gap: Floats | None = None
    variation: Floats | None = None
    metres: Floats | None = None
    diameter: Floats | None = None

    @property
    def size(self) -> int:
        """Number of trips."""
        return len(self.start) - 1


class Ground(ABC):
    """A domain as trips see it. All that is not a function of trips is public.

    ``has_ways`` says whether the map alone tells how to get from one place to another.
    """

    has_ways: ClassVar[bool]

    def __init__(self, domain: SpatialDomain, bits: int) -> None:
        self.domain, self.bits = domain, bits
        self.hierarchy = hierarchy_of(domain)

    @abstractmethod
    def place(self, trips: Trips, *, method: str) -> PlacedTrips:
        """Match or locate trips. Looks at one trip at a time: costs no privacy."""

    @abstractmethod
    def graph(self, partition: Partition) -> StateGraph:
        """The states that walks visit, and the steps between them."""

    @abstractmethod
    def paths(
        self, placed: PlacedTrips, graph: StateGraph, partition: Partition
    ) -> tuple[Ints, Ints, Floats | None]:
        """Private trips as joined-up sequences of states, their offsets, and on a plane how far along the
        side that two cells share each goes from one state to the next: from 0 to 1, NaN after its last.
        """

    @abstractmethod
    def end_keys(self, placed: PlacedTrips, partition: Partition, states: Ints, start: Ints) -> Keys:
        """The two keys at which each sequence of states that is not empty starts and ends, one row each."""

    @abstractmethod
    def places(self, parts: Partition, cell: Ints) -> EndPlaces:
        """Where trips can start and end; ``cell`` is the cell that each part belongs to."""

    def centres(self, partition: Partition) -> Points:
        """The middle of each cell, in metres."""
        rectangles = morton.cell_bounds(partition.prefix, partition.bits, self.domain.bounds)
        middles: Points = (rectangles[:, :2] + rectangles[:, 2:]) / 2 * metres_per_unit(self.domain)
        return middles

    @abstractmethod
    def shapes_of_trips(
        self, placed: PlacedTrips, graph: StateGraph, states: Ints, start: Ints
    ) -> tuple[Floats, Floats, Floats]:
        """Metres and diameter of each private trip, whose ``paths`` are these sequences of states, and the
        seconds that it takes at public speeds. Each trip's own.
        """

    @abstractmethod
    def usual_seconds(self, graph: StateGraph, walks: Walks, pieces: Pieces) -> Floats:
        """Seconds that synthetic trips, walks and the pieces of their lines, take at public speeds."""

    def fastest(self, clock: TripClock, recording: Recording | None) -> float | None:  # noqa: ARG002
        """Metres per second that no trip exceeds as far as released paces say; None where the map says it."""
        return None

    def numbered(self, walks: Walks, rng: np.random.Generator) -> Walks:  # noqa: ARG002
        """The walks with a number each, where their lines are more than the walk says."""
        return walks

    def shapes_of_walks(
        self, model: TripModel, walks: Walks, traits: WalkTraits  # noqa: ARG002
    ) -> tuple[Floats, Floats, Ints]:  # fmt: skip
        """Metres and diameter of the line of each walk, as ``shapes_of_trips`` has those of trips, and how
        many sharp turns it makes that no map asks for.
        """
        return traits.metres, traits.diameter, np.zeros(walks.size, dtype=np.int64)

    def crossed_along(
        self, model: TripModel, walks: Walks, rng: np.random.Generator  # noqa: ARG002
    ) -> Floats | None:  # fmt: skip
        """On a plane, where the lines of walks cross from cell to cell, as ``paths`` has it for trips."""
        return None

    def direct(self, walks: Walks) -> Walks:
        """Walks without excursions that lead nowhere."""
        return walks

    @abstractmethod
    def states_at(self, partition: Partition, xy: Points) -> Ints:
        """States at one point; ``DomainError`` when it lies outside."""

    def states_in(self, graph: StateGraph, partition: Partition, area: shapely.Geometry) -> Bools:
        """States whose middle lies in an area; of one that holds no middle, the states it touches."""
        shapely.prepare(area)
        inside: Bools = shapely.contains_xy(area, graph.xy / metres_per_unit(self.domain))
        if inside.any():
            return inside
        touched: Bools = shapely.intersects(self.shapes(partition), area)
        return touched

    @abstractmethod
    def shapes(self, partition: Partition) -> Array:
        """The geometry of each state, in the domain's coordinates."""

    @abstractmethod
    def lines(self, model: TripModel, walks: Walks, rng: np.random.Generator) -> tuple[Polylines, Pieces]:
        """A line for each walk, and the pieces that it is made of."""


__all__ = ["Ground", "PlacedTrips"]

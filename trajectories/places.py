"""Public places where a synthetic trip can start or end: short stretches of road, or cells of a plane.

A state (a road's edge, a cell) is what a walk moves over; its ends are finer than that. Each place belongs
to one state and lies in one of the parts in which ends were counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from synthgeo.domain.roads import RoadDomain
from synthgeo.domain.spatial import SpatialDomain
from synthgeo.hierarchy import morton
from synthgeo.hierarchy.cells import Partition
from trajectories.matched import edge_points
from trajectories.routing import RoadGraph
from trajectories.states import Floats, Ints

_STRETCH = 10.0  # metres
_MOST = 1 << 20  # stretches


@dataclass(frozen=True, eq=False)
class Places:
    """Places in the order of their parts.

    Attributes
    ----------
    state, part
        What each belongs to.
    size
        Public measure: metres of road, or area.
    low, high
        On roads, metres along the edge from which and to which it reaches. On a plane both are 0.
    """

    state: Ints
    part: Ints
    size: Floats
    low: Floats
    high: Floats

    @cached_property
    def by_state(self) -> tuple[Ints, Ints]:
        """Places in the order of their states, and the states in that order."""
        order = np.argsort(self.state, kind="stable")
        return order, self.state[order]


def places_of(domain: SpatialDomain, parts: Partition, cell: Ints, bits: int) -> Places:
    """The places of a domain; ``cell`` is the cell that each part belongs to."""
    if not isinstance(domain, RoadDomain):
        nowhere = np.zeros(parts.size)
        return Places(cell, np.arange(parts.size), parts.measure, nowhere, nowhere)
    length = np.maximum(RoadGraph.of(domain).length, 1e-3)
    number = np.ceil(length / max(_STRETCH, float(length.sum()) / _MOST)).astype(np.int64)
    edge = np.repeat(np.arange(len(length)), number)
    size = (length / number)[edge]
    low = (np.arange(len(edge)) - (np.cumsum(number) - number)[edge]) * size
    keys, _ = morton.locate(edge_points(domain, edge, low + size / 2), bits, domain.bounds)
    part = parts.cell_of(keys, bits).astype(np.int64)
    order = np.argsort(part, kind="stable")
    order = order[np.searchsorted(part[order], 0) :]  # a given partition may leave roads out
    return Places(edge[order], part[order], size[order], low[order], (low + size)[order])


__all__ = ["Places", "places_of"]

"""A road network as arrays for routing."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from synthgeo.arrays import Floats, Ints
from synthgeo.domain.road_network import RoadNetwork
from synthgeo.domain.road_speeds import edge_speeds
from synthgeo.domain.roads import RoadDomain
from synthgeo.errors import ConfigError
from synthgeo.ragged import offsets_of_owners

_FALLBACK_KPH = 30.0


@dataclass(frozen=True, eq=False)
class RoadGraph:
    """A road network as arrays for routing. Edge i is row i of ``roads.edges``.

    Attributes
    ----------
    tail, head
        Node number at which each edge begins and ends.
    length
        Metres of each edge's line in the domain's CRS, so that offsets along lines and route lengths agree.
    travel_time
        Seconds on each edge: the graph's ``travel_time``, else from ``speed_kph``, else at 30 km/h.
    free_flow
        The same, but from limits and kinds of roads (``edge_speeds``) where the graph has no times or speeds:
        how a trip's time is shared over its roads.
    first_out, out_edge
        Edges that leave node v: ``out_edge[first_out[v]:first_out[v + 1]]``.
    opposite
        The same road in the other direction, or -1.
    component
        Strongly connected component of each node.
    """

    tail: Ints
    head: Ints
    length: Floats
    travel_time: Floats
    free_flow: Floats
    first_out: Ints
    out_edge: Ints
    opposite: Ints
    component: Ints

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return len(self.first_out) - 1

    def weight(self, name: str) -> Floats:
        """What a route adds up."""
        if name not in ("length", "travel_time"):
            raise ConfigError(f"weight must be 'length' or 'travel_time', got {name!r}")
        return self.length if name == "length" else self.travel_time

    def adjacency(self, name: str) -> tuple[Ints, Ints, Ints, Floats]:
        """Out-edges by node, side by side in memory: first_out, out_edge, their heads, their weights."""
        return self.first_out, self.out_edge, self.head[self.out_edge], self.weight(name)[self.out_edge]

    @classmethod
    def of(cls, roads: RoadDomain) -> RoadGraph:
        """The routing arrays of a road domain (the last few are remembered)."""
        return _graph_of(roads.network)

    def turning_edge(self) -> Ints:
        """For each edge the one that turns round at its end, or -1 where there is none or nothing else to
        do.
        """
        dead_end = np.diff(self.first_out)[self.head] == 1
        return np.where(dead_end, -1, self.opposite)


@lru_cache(maxsize=4)
def _graph_of(network: RoadNetwork) -> RoadGraph:
    # Remembered by identity: two domains with the same lines are equal, though their speeds may differ.
    order = np.argsort(network.node_id, kind="stable")
    known = network.node_id[order]
    tail, head = (order[np.searchsorted(known, ends)] for ends in (network.edge_u, network.edge_v))
    step = np.zeros(len(network.coordinates))
    step[1:] = np.hypot(*np.diff(network.coordinates, axis=0).T)
    step[network.first_vertex[:-1]] = 0.0
    length = np.add.reduceat(step, network.first_vertex[:-1])
    nodes = len(network.node_id)
    out_edge = np.argsort(tail, kind="stable")
    first_out = offsets_of_owners(tail, nodes)
    links = csr_array((np.ones(len(tail)), (tail, head)), shape=(nodes, nodes))
    _, component = connected_components(links, directed=True, connection="strong")
    return RoadGraph(
        tail=tail.astype(np.int64),
        head=head.astype(np.int64),
        length=length,
        travel_time=_travel_times(network, length, _FALLBACK_KPH),
        free_flow=_travel_times(network, length, edge_speeds(network)),
        first_out=first_out,
        out_edge=out_edge.astype(np.int64),
        opposite=np.asarray(network.opposite, dtype=np.int64),
        component=component.astype(np.int64),
    )


def _travel_times(network: RoadNetwork, length: Floats, otherwise: float | Floats) -> Floats:
    """Seconds on each edge, at ``otherwise`` km/h where the graph has no times and no speeds."""

    def numbers(name: str) -> Floats:
        given = network.tags.get(name)
        if given is None:
            return np.full(len(length), np.nan)
        return np.array(
            [v if isinstance(v, int | float) and v > 0 else np.nan for v in given], dtype=np.float64
        )

    time, speed = numbers("travel_time"), numbers("speed_kph")
    speed = np.where(np.isnan(speed), otherwise, speed)
    return np.where(np.isnan(time), length / (speed / 3.6), time)


__all__ = ["RoadGraph"]

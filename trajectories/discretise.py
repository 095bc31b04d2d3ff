"""From private trips to private sequences of states, and the PrivTree that cuts the domain into cells.

Guarantee
---------
Every trip adds weights to the keys of its places that sum to at most 1 (2^20 grid steps, each weight
rounded down): an edge counts with its share of the path's length, a point of a free trip with 1/t, and a
public part of the whole goes to the two ends instead, half to each (``weighted_places``). Sums of
non-negative weights fall from a cell to its parts, in both worlds, so PrivTree's proof for fractional
contributions applies: ε-differentially private.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from synthgeo.arrays import Keys
from synthgeo.domain.roads import RoadDomain
from synthgeo.domain.spatial import SpatialDomain
from synthgeo.hierarchy import morton
from synthgeo.hierarchy.base import hierarchy_of
from synthgeo.hierarchy.cells import Partition
from synthgeo.hierarchy.keys import MAX_BITS, children
from synthgeo.hierarchy.privtree import KeyScore, SplitRule
from synthgeo.privacy.noise import Noise
from trajectories.matched import edge_points
from trajectories.matching import Method, match
from trajectories.points import Trips
from trajectories.routing import RoadGraph
from trajectories.states import Floats, Ints, StateGraph, fill_gaps, road_keys
from trajectories.transitions import GRID

_METRES_A_SECOND = 30 / 3.6  # where no map says how fast one goes


@dataclass(frozen=True, eq=False)
class Sequences:
    """Private trips, ready to be counted: what each visits, and when it was under way.

    ``keys`` and ``shares`` are the weighted places for PrivTree, ``ends`` the two keys at which each trip
    starts and ends. On roads ``states`` are edges; on a plane they are numbers of points until a partition
    exists.
    """

    keys: Keys
    shares: Ints
    ends: Keys
    states: Ints
    start: Ints
    departure: Floats | None
    duration: Floats | None

    @property
    def size(self) -> int:
        """Number of trips."""
        return len(self.start) - 1


def sequences(trips: Trips, domain: SpatialDomain, bits: int, *, method: Method) -> Sequences:
    """Match or locate the trips. Looks at one trip at a time: costs no privacy."""
    if isinstance(domain, RoadDomain):
        return _on_roads(trips, domain, bits, method)
    keys, inside = hierarchy_of(domain).locate(trips.xy, bits)
    trips, keys = trips.only(inside), keys[inside]
    count = np.diff(trips.start)
    departure, duration = _clock(trips.time, trips.start)
    ends = np.stack([keys[trips.start[:-1]], keys[trips.start[1:] - 1]], axis=1)
    return Sequences(
        keys, GRID.one // count[trips.trip], ends, np.arange(len(keys)), trips.start, departure, duration
    )


def _on_roads(trips: Trips, roads: RoadDomain, bits: int, method: Method) -> Sequences:
    matched = match(trips, roads, method=method)
    length = np.maximum(RoadGraph.of(roads).length, 1e-3)[matched.edges]
    whole = np.bincount(matched.trip, length, minlength=matched.size)
    shares = GRID.floor(length / whole[matched.trip] * (1 - 1e-12))
    ends = [
        morton.locate(edge_points(roads, matched.edges[at], offset), bits, roads.bounds)[0]
        for at, offset in (
            (matched.start[:-1], matched.first_offset),
            (matched.start[1:] - 1, matched.last_offset),
        )
    ]
    departure = duration = None
    if matched.time is not None and matched.arrival is not None:
        departure = matched.time[matched.start[:-1]]
        duration = matched.arrival - departure
    return Sequences(
        road_keys(roads, bits)[matched.edges], shares, np.stack(ends, axis=1), matched.edges, matched.start,
        departure, duration,
    )  # fmt: skip


def _clock(time: Floats | None, start: Ints) -> tuple[Floats | None, Floats | None]:
    if time is None:
        return None, None
    departure = time[start[:-1]]
    return departure, time[start[1:] - 1] - departure


def cut(
    private: Sequences,
    domain: SpatialDomain,
    *,
    epsilon: float,
    noise: Noise,
    max_depth: int,
    theta: float = 0.0,
    base: int = 6,
    at_ends: float = 0.0,
) -> Partition:
    """The PrivTree of the trips' places, grown from 2^base public cells instead of one.

    ``at_ends`` of a trip's weight lies at its first and its last place, so that cells are small where
    trips end.

    PrivTree's bias grows with depth, so levels that are split anyway are better not counted. A forest of
    disjoint trees has the same guarantee as one tree: no path is longer, and a trip's shares still add up
    to 1 over all paths. Its roots count as depth 1, so that an empty one is split with probability 1/4 and
    the splitting dies out.
    """
    places, shares = weighted_places(private, at_ends)
    keys, which = np.unique(places, return_inverse=True)
    weights = np.zeros(len(keys), dtype=np.int64)
    np.add.at(weights, which, shares)
    score, rule = KeyScore(keys, max_depth, weights), SplitRule(epsilon, 2, theta, fractional=True)
    base = min(base, max_depth)
    prefix = np.arange(1 << base, dtype=np.uint64)
    leaves = []
    for bits in range(base, max_depth + 1):
        measure = hierarchy_of(domain).measure(prefix, bits)
        prefix, measure = prefix[measure > 0], measure[measure > 0]
        split = np.zeros(len(prefix), dtype=bool)
        if bits < max_depth:
            split = rule.decide(score(prefix, bits, measure), bits - base + 1, noise)
        leaves.append((prefix[~split], bits, measure[~split]))
        prefix = children(prefix[split]).ravel()
        if not len(prefix):
            break
    return Partition.join(leaves)


def weighted_places(private: Sequences, at_ends: float) -> tuple[Keys, Ints]:
    """Keys of all places and their weights in grid steps: of each trip at most ``at_ends`` at its two ends
    and 1 - ``at_ends`` along its way, rounded down. Private.
    """
    end = np.full(private.ends.size, int(GRID.floor(at_ends / 2)), dtype=np.int64)
    along = private.shares * int(GRID.floor(1 - at_ends)) // GRID.one
    return np.concatenate([private.keys, private.ends.ravel()]), np.concatenate([along, end])


def on_graph(
    private: Sequences, graph: StateGraph, partition: Partition, domain: SpatialDomain, bits: int
) -> tuple[Ints, Ints]:
    """Joined-up sequences of states of the walking graph."""
    if isinstance(domain, RoadDomain):
        return private.states, private.start
    cells = partition.cell_of(private.keys, bits).astype(np.int64)
    known: NDArray[np.bool_] = cells >= 0  # a given partition may leave parts of the domain out
    trip = np.repeat(np.arange(private.size), np.diff(private.start))[known]
    counts = np.bincount(trip, minlength=private.size)
    return fill_gaps(graph, cells[known], np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))


def end_keys(
    private: Sequences, partition: Partition, domain: SpatialDomain, bits: int, states: Ints, start: Ints
) -> Keys:
    """The two keys, one row a trip, at which the joined-up sequences that are not empty start and end."""
    real = np.diff(start) > 0
    keys = private.ends[real]
    if isinstance(domain, RoadDomain):
        return keys
    # Where a sequence was cut short, it ends in another cell than its trip: anywhere there.
    ends = np.stack([states[start[:-1][real]], states[start[1:][real] - 1]], axis=1)
    same = partition.cell_of(keys, bits) == ends
    return np.where(same, keys, partition.start[ends] >> np.uint64(MAX_BITS - bits))


def usual_durations(domain: SpatialDomain, graph: StateGraph, states: Ints, start: Ints) -> Floats:
    """Seconds that the map's speeds give for sequences of states: the whole of each edge, or the way
    between centres.
    """
    owner = np.repeat(np.arange(len(start) - 1), np.diff(start))
    if isinstance(domain, RoadDomain):
        seconds = RoadGraph.of(domain).travel_time[states]
    else:
        seconds = np.zeros(len(states))
        seconds[1:] = np.hypot(*np.diff(graph.xy[states], axis=0).T) / _METRES_A_SECOND
        seconds[start[:-1][np.diff(start) > 0]] = 0.0
    return np.maximum(np.bincount(owner, seconds, minlength=len(start) - 1), 1.0)


__all__ = ["Sequences", "cut", "end_keys", "on_graph", "sequences", "usual_durations", "weighted_places"]

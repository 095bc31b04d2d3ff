"""Map matching: the directed path on the road graph that each trip most likely took.

``match`` is a hidden Markov model after Newson and Krumm, *Hidden Markov Map Matching Through Noise and
Sparseness* (2009): a recorded point lies about ``sigma`` metres from the road, and between two points a
vehicle drives about as far as the straight line between them. What is matched is always a connected
directed path of the given graph: gaps are filled with the shortest path, and no one-way street is driven
backwards, also where the recorded vehicle did so (then the path goes the way that the graph allows). Why
our own and not a library: ADR 3.

All parameters are public numbers. None is estimated from the trips, so the match of one trip depends on
that trip alone, adding or removing a trip changes no other, and matching costs no privacy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from synthgeo.arrays import Ints
from synthgeo.domain.roads import RoadDomain
from synthgeo.errors import ConfigError
from synthgeo.ragged import concatenate, offsets_of_owners
from synthgeo.threads import in_threads
from trajectories.matching.matched import MatchedTrips
from trajectories.matching.path_assembly import MatchedPoints, assemble
from trajectories.matching.viterbi import Candidates, best_rows, move_costs, thinned
from trajectories.reading.points import Trips
from trajectories.routing.road_graph import RoadGraph

Method = Literal["hmm", "nearest", "ends"]

_BLOCK_POINTS = 64_000  # matched at once by one thread: some 130 MB where 24 roads are near every point
_SAME_ROAD = 1e-3  # metres: the two directions of a street are equally far


def match(
    trips: Trips,
    roads: RoadDomain,
    *,
    method: Method = "hmm",
    sigma: float = 10.0,
    beta: float = 10.0,
    stretch: float = 0.05,
    candidates: int = 24,
    min_step: float = 20.0,
    u_turn: float = 100.0,
    spur: float = 40.0,
    weight: str = "length",
) -> MatchedTrips:
    """Match each trip to the roads.

    Parameters
    ----------
    trips
        In the CRS of ``roads``; points farther than ``roads.max_distance`` from any road are left out, and
        the gap is routed.
    method
        ``"hmm"`` weighs distance from the road against the way driven. ``"nearest"`` puts each point on its
        nearest road (it chooses just the direction) and routes between. ``"ends"`` looks at the first and
        last point only, for trips that are known by their ends, and takes the cheapest path; a trip with
        one end off the roads has no match.
    sigma
        Standard deviation of the recorded points' distance from the road, in metres.
    beta, stretch
        Typical difference between the way driven and the straight line, in metres: ``beta`` plus
        ``stretch`` of the line.
    candidates
        How many nearest edges are looked at for each point; the two directions of a street are two. Where
        streets are dense too small a number loses the road and costs detours: 10 instead of 24 tripled them
        in Chicago.
    min_step
        Points nearer than this, in metres, to the last one looked at are passed over: they say more about
        the receiver than about the way. First and last point always count.
    u_turn
        What turning round at the end of an edge costs, in metres (seconds, with travel time), except in a
        dead end.
    spur
        Excursions of at most this many metres, out and back over the same road, are taken out of the path.
    weight
        What the cheapest path of ``"ends"`` adds up: ``"length"`` or ``"travel_time"``.

    Guarantee
    ---------
    A function of each trip alone to one path or none: sensitivity 1, no privacy spent.
    """
    if method not in ("hmm", "nearest", "ends"):
        raise ConfigError(f"method must be 'hmm', 'nearest' or 'ends', got {method!r}")
    positive = {"sigma": sigma, "beta": beta, "candidates": candidates}
    other = {"stretch": stretch, "min_step": min_step, "u_turn": u_turn, "spur": spur}
    for name, value in (positive | other).items():
        if not value >= 0 or (name in positive and value == 0):
            raise ConfigError(f"{name} must be {'>' if name in positive else '>='} 0, got {value!r}")
    graph = RoadGraph.of(roads)
    graph.weight(weight)  # refuses unknown names before any work
    settings = _Settings(
        method, sigma, beta, stretch, int(candidates), u_turn, spur, weight if method == "ends" else "length"
    )

    def matched(block: tuple[int, int]) -> MatchedTrips:
        part = trips.take(np.arange(*block))
        part = part.ends() if method == "ends" else part.only(thinned(part.xy, part.start, min_step))
        return _match_block(part, roads, graph, settings)

    return _join(in_threads(matched, _blocks(trips.start)), trips)


@dataclass(frozen=True)
class _Settings:
    method: str
    sigma: float
    beta: float
    stretch: float
    candidates: int
    u_turn: float
    spur: float
    weight: str


def _blocks(start: Ints) -> list[tuple[int, int]]:
    """Ranges of trips of about ``_BLOCK_POINTS`` points, so that memory stays bounded."""
    block = start[:-1] // _BLOCK_POINTS
    cuts = np.flatnonzero(np.diff(block, prepend=-1)) if len(block) else np.empty(0, np.int64)
    ends = np.concatenate([cuts[1:], [len(block)]])
    return [(int(a), int(b)) for a, b in zip(cuts, ends, strict=False)]


def _match_block(trips: Trips, roads: RoadDomain, graph: RoadGraph, settings: _Settings) -> MatchedTrips:
    point, places = _candidates(trips, roads, settings)
    ends = settings.method == "ends"
    pair_first, cost = move_costs(
        graph, places, weight=settings.weight, u_turn=settings.u_turn, bounded=not ends, backtrack=not ends
    )
    if ends:
        emission, usual = np.zeros(len(places.edge)), np.zeros(len(places.straight))
        spread = np.ones(len(usual))
    else:
        emission, usual = -0.5 * (places.apart / settings.sigma) ** 2, places.straight
        spread = settings.beta + settings.stretch * usual
    owner = trips.trip[point]
    begin = offsets_of_owners(owner, trips.size)
    chosen = best_rows(places.first, emission, begin, pair_first, cost, usual, spread)
    whole = np.ones(trips.size, dtype=bool)
    if ends:  # a trip with one end off the roads, or with no way between its ends, has no path
        whole = np.bincount(owner[chosen >= 0], minlength=trips.size) == 2
    on = np.flatnonzero((chosen >= 0) & whole[owner])
    rows = chosen[on]
    found = MatchedPoints(point[on], places.edge[rows], places.offset[rows])
    return assemble(
        trips,
        graph,
        found,
        weight=settings.weight,
        u_turn=settings.u_turn,
        spur=settings.spur,
        backtrack=not ends,
    )


def _candidates(trips: Trips, roads: RoadDomain, settings: _Settings) -> tuple[Ints, Candidates]:
    """Points that are near a road, and their candidates."""
    low, high = np.array(roads.bounds).reshape(2, 2)
    # What a projection could not place is infinite: never near a road, and the index must not see it.
    reach = roads.max_distance
    here = np.flatnonzero(((trips.xy >= low - reach) & (trips.xy <= high + reach)).all(axis=1))
    point, edge, offset, apart = roads.candidates(trips.xy[here], roads.max_distance)
    point = here[point]
    begin = offsets_of_owners(point, len(trips.xy))
    if settings.method == "hmm":
        keep = np.arange(len(point)) - begin[point] < settings.candidates
    else:
        keep = apart <= apart[begin[point]] + _SAME_ROAD
    point, edge, offset, apart = point[keep], edge[keep], offset[keep], apart[keep]
    near, first = np.unique(point, return_index=True)
    trip = trips.trip[near]
    goes_on = np.zeros(len(near), dtype=bool)
    goes_on[:-1] = trip[1:] == trip[:-1]
    straight = np.zeros(len(near))
    straight[:-1] = np.hypot(*np.diff(trips.xy[near], axis=0).T)
    first = np.concatenate([first, [len(point)]]).astype(np.int64)
    return near, Candidates(first, edge, offset, apart, goes_on, straight)


def _join(parts: list[MatchedTrips], trips: Trips) -> MatchedTrips:
    """The blocks' paths, one after the other."""

    def all_of(name: str, dtype: Any) -> Any:
        return np.concatenate([np.empty(0, dtype), *(getattr(part, name) for part in parts)])

    timed = trips.time is not None
    return MatchedTrips(
        edges=all_of("edges", np.int64),
        start=concatenate([part.start for part in parts]),
        first_offset=all_of("first_offset", np.float64),
        last_offset=all_of("last_offset", np.float64),
        matched=all_of("matched", bool),
        time=all_of("time", np.float64) if timed else None,
        arrival=all_of("arrival", np.float64) if timed else None,
        user=all_of("user", np.int64) if trips.user is not None else None,
    )


__all__ = ["MatchedTrips", "match"]

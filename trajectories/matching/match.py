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

import numba
import numpy as np

from synthgeo.arrays import Array, Bools, Floats, Ints
from synthgeo.domain.roads import RoadDomain
from synthgeo.errors import ConfigError
from synthgeo.ragged import concatenate, offsets_of, offsets_of_owners, owners_of
from synthgeo.threads import in_threads
from trajectories.matching.path_assembly import MatchedPoints, MatchedTrips, assemble
from trajectories.reading.points import Trips
from trajectories.routing import RoadGraph, search

__all__ = ["SLACK", "Candidates", "MatchedTrips", "best_rows", "match", "move_costs", "thinned"]


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


# The hidden Markov model's inner loops: what moving between candidates costs, and the best sequence of them.
#
# A *candidate* is a place on a directed edge that a recorded point may come from. Candidates are rows,
# grouped by point: those of point i are rows ``first[i]`` to ``first[i + 1] - 1``. A *pair* is a row and a
# candidate of the next point of the same trip; pairs of row r begin at ``pair_first[r]``.

# A detour of this many metres more than twice the straight distance is not searched for any further.
SLACK = 1500.0


@dataclass(frozen=True, eq=False)
class Candidates:
    """Where each point may have been. ``goes_on[i]`` says that point i + 1 belongs to the same trip."""

    first: Ints
    edge: Ints
    offset: Floats
    apart: Floats
    goes_on: Bools
    straight: Floats  # metres to the next point of the trip

    @property
    def point(self) -> Ints:
        """The point of each row."""
        return owners_of(self.first)


@numba.njit(cache=True, nogil=True)
def thinned(xy: Floats, start: Ints, step: float) -> Bools:
    """Which points to look at: ends, and every point at least ``step`` from the one looked at before it."""
    keep = np.zeros(len(xy), dtype=np.bool_)
    for trip in range(len(start) - 1):
        held = start[trip]
        keep[held] = True
        for i in range(start[trip] + 1, start[trip + 1]):
            dx, dy = xy[i, 0] - xy[held, 0], xy[i, 1] - xy[held, 1]
            if i == start[trip + 1] - 1 or dx * dx + dy * dy >= step * step:
                keep[i], held = True, i
    return keep


def move_costs(
    graph: RoadGraph, places: Candidates, *, weight: str, u_turn: float, bounded: bool, backtrack: bool
) -> tuple[Ints, Array]:
    """``pair_first`` and the cost of the way between the two candidates of each pair.

    A pair on one edge that goes backwards costs the negative distance when ``backtrack`` allows it: the
    vehicle only seems to have moved. Where no way exists the cost is infinite. Where one exists but is
    longer than the bound, the cost is what the bound says: too little, and yet more than anybody would
    choose.
    """
    point = places.point
    last = len(places.first) - 2
    fan = np.where(places.goes_on[point], np.diff(places.first)[np.minimum(point + 1, last)], 0)
    pair_first = offsets_of(fan)
    metres = graph.length[places.edge]
    share = np.divide(places.offset, metres, out=np.zeros_like(metres), where=metres > 0)
    done = np.clip(share, 0.0, 1.0) * graph.weight(weight)[places.edge]
    left = graph.weight(weight)[places.edge] - done
    rows = np.flatnonzero(fan)
    # One search for each edge that is left: from its end, where turning round costs extra.
    rows = rows[np.argsort(places.edge[rows], kind="stable")]
    leaves = np.flatnonzero(np.diff(places.edge[rows], prepend=-1))
    group = np.concatenate([leaves, [len(rows)]]).astype(np.int64)
    limit = 2 * places.straight + SLACK if bounded else np.full(len(places.straight), np.inf)
    costs = _move_costs(
        *graph.adjacency(weight), graph.tail, graph.head, graph.component, graph.turning_edge(), u_turn,
        places.first, places.edge, done, left, point, limit, backtrack, pair_first, rows, group,
    )  # fmt: skip
    return pair_first, costs


@numba.njit(cache=True, nogil=True)
def _move_costs(
    first_out: Ints,
    out_edge: Ints,
    out_head: Ints,
    out_weight: Floats,
    tail: Ints,
    head: Ints,
    component: Ints,
    turning: Ints,
    u_turn: float,
    first: Ints,
    edge: Ints,
    done: Floats,
    left: Floats,
    point: Ints,
    limit: Floats,
    backtrack: bool,
    pair_first: Ints,
    rows: Ints,
    group: Ints,
) -> Array:
    nodes = len(first_out) - 1
    distance, by = np.empty(nodes), np.empty(nodes, dtype=np.int64)
    wanted, seen = np.full(nodes, -1, dtype=np.int64), np.full(nodes, -1, dtype=np.int64)
    settled = np.full(nodes, -1, dtype=np.int64)
    keys, items = np.empty(len(out_head) + 1), np.empty(len(out_head) + 1, dtype=np.int64)
    costs = np.empty(pair_first[-1], dtype=np.float32)  # centimetres are enough, and there are many
    for turn in range(len(group) - 1):
        left_edge = edge[rows[group[turn]]]
        start = head[left_edge]
        wants, farthest = 0, 0.0
        for g in range(group[turn], group[turn + 1]):
            a = rows[g]
            asks = False
            for b in range(first[point[a] + 1], first[point[a] + 2]):
                stays = edge[a] == edge[b] and (backtrack or done[b] >= done[a])
                target = tail[edge[b]]
                if not stays and target != start:
                    asks = True
                    if wanted[target] != turn:
                        wanted[target] = turn
                        wants += 1
            if asks:
                farthest = max(farthest, limit[point[a]])
        if wants:
            search(
                first_out, out_edge, out_head, out_weight, start, turning[left_edge], u_turn,
                wanted, wants, farthest, turn, distance, seen, settled, by, keys, items,
            )  # fmt: skip
        for g in range(group[turn], group[turn + 1]):
            a = rows[g]
            pair = pair_first[a]
            for b in range(first[point[a] + 1], first[point[a] + 2]):
                target = tail[edge[b]]
                if edge[a] == edge[b] and (backtrack or done[b] >= done[a]):
                    costs[pair] = done[b] - done[a]
                elif target == start:
                    costs[pair] = left[a] + done[b]
                    if edge[b] == turning[left_edge]:
                        costs[pair] += u_turn
                elif settled[target] == turn and distance[target] <= limit[point[a]]:
                    costs[pair] = left[a] + distance[target] + done[b]
                elif component[target] == component[start]:
                    # Also where the search went farther for the sake of another trip: trips must not meet
                    # here.
                    costs[pair] = left[a] + limit[point[a]] + done[b]
                else:
                    costs[pair] = np.inf
                pair += 1
    return costs


@numba.njit(cache=True, nogil=True)
def best_rows(
    first: Ints, emission: Floats, start: Ints, pair_first: Ints, cost: Array, usual: Floats, spread: Floats
) -> Ints:
    """The most likely row of each point; -1 where a trip had to be given up.

    ``emission`` (rows) are log-likelihoods. That of a pair is -|cost - usual| / spread, with what is
    ``usual`` for a way on from its point, and its ``spread``. Where no candidate of a point can be reached
    from any of the point before, the trip is cut; only its part with the most points, the earliest of them in
    a tie, gets rows.
    """
    points = len(first) - 1
    score, back = np.empty(len(emission)), np.empty(len(emission), dtype=np.int64)
    chosen = np.full(points, -1, dtype=np.int64)
    for trip in range(len(start) - 1):
        begin, best_begin, best_end = start[trip], start[trip], start[trip]
        for i in range(start[trip], start[trip + 1]):
            alive = False
            for b in range(first[i], first[i + 1]):
                score[b], back[b] = -np.inf, -1
            if i > begin:
                for a in range(first[i - 1], first[i]):
                    pair = pair_first[a]
                    for b in range(first[i], first[i + 1]):
                        likely = score[a] - abs(cost[pair] - usual[i - 1]) / spread[i - 1]
                        if likely > score[b]:
                            score[b], back[b] = likely, a
                            alive = True
                        pair += 1
            if not alive:
                if i - begin > best_end - best_begin:
                    best_begin, best_end = begin, i
                begin = i
                for b in range(first[i], first[i + 1]):
                    score[b] = 0.0
            for b in range(first[i], first[i + 1]):
                score[b] += emission[b]
        if start[trip + 1] - begin > best_end - best_begin:
            best_begin, best_end = begin, start[trip + 1]
        if best_end > best_begin:
            row = first[best_end - 1]
            for b in range(first[best_end - 1], first[best_end]):
                if score[b] > score[row]:
                    row = b
            for i in range(best_end - 1, best_begin - 1, -1):
                chosen[i] = row
                row = back[row]
    return chosen

"""The hidden Markov model's inner loops: what moving between candidates costs, and the best sequence of them.

A *candidate* is a place on a directed edge that a recorded point may come from. Candidates are rows,
grouped by point: those of point i are rows ``first[i]`` to ``first[i + 1] - 1``. A *pair* is a row and a
candidate of the next point of the same trip; pairs of row r begin at ``pair_first[r]``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np

from synthgeo.arrays import Array, Bools, Floats, Ints
from synthgeo.ragged import offsets_of, owners_of
from trajectories.routing.road_graph import RoadGraph
from trajectories.routing.shortest_paths import search

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


__all__ = ["SLACK", "Candidates", "best_rows", "move_costs", "thinned"]

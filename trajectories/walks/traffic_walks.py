"""Walks that follow the traffic from cell to cell, and the roads inside each.

Not every trip is on its way to somewhere: a shuttle drives its loop, a bus its line. A walk that only knows
its ends and what a step costs can always do without a loop, because a loop multiplies its weight by less
than 1. And at every corner it loses some more, so what is likely from cell to cell is next to impossible from
street to street. So the two are drawn one after the other:

* Which *link* comes next. Having crossed l, a walk crosses l' out of the cell that it is in with probability

      T(l, l')  ∝  traffic(l') · r(l, l')^0.06,

  where r is how easily l' is reached from where l is crossed (below), and turning round, back to the cell
  that it came from, is 100 times less likely. A bridge over T, of free length, leads to the destination's
  cell (``bridges.KilledBridge``).
* How to get there. r_l'(s) is the total weight of all ways inside the cell from s over l', each metre
  costing; a walk in s that wants to cross l' moves to s' with probability W(s, s') r_l'(s') / r_l'(s).

It leaves the street that it starts in by the end from which its first link is reached more easily.
Where it ends, in the destination's cell, another walk has to lead on to the destination itself.
Post-processing: ``traffic`` is the released estimate.
"""

from __future__ import annotations

import numba
import numpy as np

from synthgeo.arrays import Array, Bools, Floats, Ints
from synthgeo.ragged import offsets_of, offsets_of_owners, ranks_of
from trajectories.ground.state_graph import TOGETHER, PathWeights, StateGraph
from trajectories.walks.bridges import MAX_STEPS, Chain, KilledBridge, Walks, by_group, collect, longer

_DISTANCE = 0.06  # power of r: 40 m on the streets weigh as much as some 700 m in the choice of links
_TURN_ROUND = 0.01
_LITTLE = 1e-9
_ALIVE = 0.8  # a link is crossed with this probability at most: else most walks are too long to be chosen


class TrafficWalker:
    """Draws walks on ``graph`` that cross links like ``traffic``. ``weight`` is that of each step."""

    def __init__(self, graph: StateGraph, weight: Floats, traffic: Floats) -> None:
        self.graph, self._weight = graph, weight
        # A little everywhere: where nothing goes, a walk can still go if its ends leave no other way.
        self._traffic = traffic = traffic + _LITTLE * traffic.sum()
        leaves, enters = graph.link_ends
        # Links are in the order of the cells that they leave: those out of one cell are a range.
        self._exits = offsets_of_owners(leaves, graph.cells)
        order, begin = graph.by_cell
        self._inside = np.empty(graph.size, dtype=np.int64)
        self._inside[order] = np.arange(graph.size) - begin[graph.cell[order]]
        self._row = offsets_of(np.diff(begin)[leaves])
        self._reach = self._reaches()
        turns = np.diff(self._exits)[enters]
        first = offsets_of(turns)
        before = np.repeat(np.arange(graph.links), turns)
        after = self._exits[enters[before]] + np.arange(len(before)) - first[before]
        chance = traffic[after] * self._turn_reach(first, turns) ** _DISTANCE
        chance *= np.where(enters[after] == leaves[before], _TURN_ROUND, 1.0)
        together = np.bincount(before, chance, minlength=graph.links)
        chance *= _ALIVE / np.maximum(together, 1e-300)[before]
        self._turns = Chain(first, after, chance)
        self._enters, self._entering = enters, np.argsort(enters, kind="stable")
        first_in = offsets_of_owners(enters, graph.cells)
        self._entries = np.stack([first_in[:-1], first_in[1:]])
        self._most = max(int(np.diff(table).max(initial=0)) for table in (graph.first, self._exits, first))
        self._bridge = KilledBridge(self._turns)
        self._twin = np.arange(graph.size)  # in its own cell: itself where there is none
        if len(graph.twin):
            same = (graph.twin >= 0) & (graph.cell[graph.twin] == graph.cell)
            self._twin[same] = graph.twin[same]

    def walks(self, origin: Ints, destination: Ints, rng: np.random.Generator) -> Walks:
        """One walk for each pair, out of the origin's cell and to wherever the destination's is entered."""
        graph, turns = self.graph, self._turns
        order, groups = by_group(graph.cell[destination])
        cells, begin = graph.cell[destination[order[groups[:-1]]]], origin[order]
        into = [self._entering[low:high] for low, high in zip(*self._entries[:, cells], strict=True)]
        parts = []
        for low, ahead in zip(range(0, len(cells), TOGETHER), self._bridge.ahead.blocks(into), strict=True):
            part = _follow(
                graph.first, graph.to, graph.link_of_step, self._weight, graph.cell, self._inside,
                self._reach, self._row, self._exits, turns.first, turns.to, turns.weight, self._traffic,
                self._enters, ahead, cells[low : low + TOGETHER], begin, self._twin[begin],
                groups[low : low + TOGETHER + 1], self._most, rng,
            )  # fmt: skip
            parts.append(part)
        return collect(parts, order)

    def _reaches(self) -> Floats:
        """r of each link, for the states of the cell that it leaves: a row each."""
        graph, link = self.graph, self.graph.link_of_step
        inner = link < 0
        cells = PathWeights(Chain(graph.first, graph.to, np.where(inner, self._weight, 0.0)).matrix())
        leaves = graph.link_ends[0]
        rank = np.arange(graph.links) - self._exits[leaves]
        exits = np.diff(self._exits)[graph.cell]
        out = np.zeros(self._row[-1])
        for k in range(int(rank.max(initial=-1)) + 1):  # cells are apart: one solve for one link of each
            over = np.flatnonzero(~inner & (rank[link] == k))
            leaving = np.bincount(graph.source[over], self._weight[over], graph.size).astype(np.float64)
            states = np.flatnonzero(exits > k)
            at = self._row[self._exits[graph.cell[states]] + k] + self._inside[states]
            out[at] = cells.solve(leaving)[states]
        return out

    def _turn_reach(self, first: Ints, turns: Ints) -> Floats:
        """r(l, l'): the mean over the steps that cross l of r_l' where they lead."""
        graph = self.graph
        over = np.flatnonzero(graph.link_of_step >= 0)
        link = graph.link_of_step[over]
        step = np.repeat(np.arange(len(over)), turns[link])
        rank = ranks_of(turns[link])
        entered = graph.to[over[step]]
        reach = self._reach[self._row[self._exits[graph.cell[entered]] + rank] + self._inside[entered]]
        together = np.bincount(first[link[step]] + rank, reach, minlength=first[-1])
        steps = np.repeat(np.bincount(link, minlength=graph.links), turns)
        mean: Floats = together / np.maximum(steps, 1)
        return mean


@numba.njit(cache=True, nogil=True)
def _drawn(chance: Floats, count: int, total: float, rng: np.random.Generator) -> int:
    """One of the first ``count``, in proportion to its chance, of ``total`` together; -1 if none has any."""
    left = rng.random() * total
    chosen = -1
    for i in range(count):
        if chance[i] > 0.0:
            chosen = i
            left -= chance[i]
            if left < 0.0:
                break
    return chosen


@numba.njit(cache=True, nogil=True)
def _follow(
    first: Ints, to: Ints, link_of_step: Ints, weight: Floats, cell: Ints, inside: Ints, reach: Floats,
    row: Ints, exits: Ints, turn_first: Ints, turn_to: Ints, turn: Floats, traffic: Floats, enters: Ints,
    ways: Floats, ends: Ints, origin: Ints, turned: Ints, group: Ints, most: int, rng: np.random.Generator,
) -> tuple[Array, Ints, Bools]:  # fmt: skip
    """Walks from each origin until a link into its end, a cell, is crossed and chance says so; a row of
    ``ways`` is the total weight of the ways over links from each link to those into one end. Nothing has more
    than ``most`` ways on.
    """
    chance = np.empty(most)
    base, number = group[0], group[-1] - group[0]
    out = np.empty(max(1024, 64 * number), dtype=np.int32)
    start = np.zeros(number + 1, dtype=np.int64)
    found = np.zeros(number, dtype=np.bool_)
    filled = 0
    for e in range(len(ends)):
        ahead = ways[e]
        for walk in range(group[e] - base, group[e + 1] - base):
            state, begin, back = origin[base + walk], filled, turned[base + walk]
            low, count = exits[cell[state]], exits[cell[state] + 1] - exits[cell[state]]
            total = 0.0
            for i in range(count):
                r = max(reach[row[low + i] + inside[state]], reach[row[low + i] + inside[back]])
                chance[i] = traffic[low + i] * r**_DISTANCE * ahead[low + i] if r > 0.0 else 0.0
                total += chance[i]
            picked = _drawn(chance, count, total, rng)
            link = low + picked if picked >= 0 else -1
            if link >= 0 and back != state:
                one, other = reach[row[link] + inside[state]], reach[row[link] + inside[back]]
                if rng.random() * (one + other) >= one:
                    state = back
            while link >= 0 and filled - begin < MAX_STEPS:
                if filled + 2 > len(out):
                    out = longer(out)
                out[filled] = state
                filled += 1
                low, count = first[state], first[state + 1] - first[state]
                total = 0.0
                for i in range(count):
                    crossed = link_of_step[low + i]
                    chance[i] = 0.0
                    if crossed == link:
                        chance[i] = weight[low + i]
                    elif crossed < 0:
                        chance[i] = weight[low + i] * reach[row[link] + inside[to[low + i]]]
                    total += chance[i]
                picked = _drawn(chance, count, total, rng)
                if picked < 0:
                    break
                state = to[low + picked]
                if link_of_step[low + picked] < 0:
                    continue
                if enters[link] == ends[e] and rng.random() * ahead[link] < 1.0:
                    out[filled] = state
                    filled += 1
                    found[walk] = True
                    break
                low, count = turn_first[link], turn_first[link + 1] - turn_first[link]
                total = 0.0
                for i in range(count):
                    after = turn_to[low + i]
                    open_ = reach[row[after] + inside[state]] > 0.0
                    chance[i] = turn[low + i] * ahead[after] if open_ else 0.0
                    total += chance[i]
                picked = _drawn(chance, count, total, rng)
                link = turn_to[low + picked] if picked >= 0 else -1
            if not found[walk]:
                filled = begin
            start[walk + 1] = filled
    return out[:filled], start, found


__all__ = ["TrafficWalker"]

"""The public graph on which synthetic trips walk: states, the steps between them, and the cells that hold
them.

A *link* is a pair of different cells that some step joins. Transitions are measured on links: all of them,
because which links exist is public.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from synthgeo.arrays import Bools, Floats, Ints
from synthgeo.ragged import offsets_of, offsets_of_owners, owners_of, positions

_BLOCK = 1 << 22  # distances held at once when gaps are filled


@dataclass(frozen=True, eq=False)
class StateGraph:
    """States, steps and cells. Nothing here depends on private data beyond the released partition.

    Attributes
    ----------
    first, to
        Steps out of state s lead to ``to[first[s]:first[s + 1]]``.
    metres
        Length of each step: of the edge that it turns onto, or from centre to centre of two cells.
    cell
        Cell of each state.
    size_of
        Public measure of each state: metres of road, or area.
    xy
        A point that stands for each state, in metres: the middle of the edge, the centre of the cell.
    place
        Number of the spot that a walk reaches with each state (the node where an edge ends; the cell).
    cells
        Number of cells.
    sides
        On a plane, for each step, the two ends of what the two cells share of their border and of the domain,
        in metres (x, y, x, y); empty on roads.
    turn
        On roads, for each step, how much one turns: 0 straight on, 1 by a right angle, 2 round; empty on a
        plane.
    twin
        On roads, the state that passes each state's place in the other direction, or -1; empty on a plane.
    """

    first: Ints
    to: Ints
    metres: Floats
    cell: Ints
    size_of: Floats
    xy: Floats
    place: Ints
    cells: int
    sides: Floats = field(default_factory=lambda: np.empty((0, 4)))
    turn: Floats = field(default_factory=lambda: np.empty(0))
    twin: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    @property
    def size(self) -> int:
        """Number of states."""
        return len(self.first) - 1

    @cached_property
    def source(self) -> Ints:
        """State that each step leaves."""
        return owners_of(self.first)

    @cached_property
    def step_metres(self) -> Floats:
        """Metres in a straight line from the point of the state that each step leaves to that of the next."""
        return np.asarray(np.hypot(*(self.xy[self.to] - self.xy[self.source]).T))

    @cached_property
    def _links(self) -> tuple[Ints, Ints]:
        before, after = self.cell[self.source], self.cell[self.to]
        crosses = before != after
        key = before[crosses] * self.cells + after[crosses]
        keys, which = np.unique(key, return_inverse=True)
        link = np.full(len(self.to), -1, dtype=np.int64)
        link[crosses] = which
        return keys, link

    @property
    def link_of_step(self) -> Ints:
        """Link that each step crosses, -1 inside a cell."""
        return self._links[1]

    @property
    def links(self) -> int:
        """Number of links."""
        return len(self._links[0])

    @property
    def link_ends(self) -> tuple[Ints, Ints]:
        """Cells that each link leaves and enters."""
        keys = self._links[0]
        return keys // self.cells, keys % self.cells

    def link_between(self, before: Ints, after: Ints) -> Ints:
        """Link from one cell to another, -1 where there is none."""
        keys = self._links[0]
        wanted = before * self.cells + after
        if not len(keys):
            return np.full(len(wanted), -1, dtype=np.int64)
        at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return np.where(keys[at] == wanted, at, -1)

    @cached_property
    def side_of_step(self) -> Ints:
        """On a plane, number of the side that each step crosses, the same both ways; -1 where the two cells
        touch at a corner only.
        """
        extent = np.abs(self.sides[:, 2:] - self.sides[:, :2]).max(axis=1, initial=0.0)
        low, high = np.minimum(self.source, self.to), np.maximum(self.source, self.to)
        long = extent > 0
        _, number = np.unique(low[long] * self.size + high[long], return_inverse=True)
        side = np.full(len(self.to), -1, dtype=np.int64)
        side[long] = number
        return side

    @cached_property
    def by_cell(self) -> tuple[Ints, Ints]:
        """States in order of their cells, and where each cell begins."""
        order = np.argsort(self.cell, kind="stable")
        return order, offsets_of_owners(self.cell, self.cells)


def fill_gaps(graph: StateGraph, states: Ints, start: Ints) -> tuple[Ints, Ints, Ints]:
    """Sequences of states joined up, their offsets, and for each state the last of the given ones that it
    does not come before: between states that no step joins goes the shortest path.

    States that repeat count once. A sequence is cut where no path leads on, and what comes before is kept.
    Looks at one sequence at a time, and at public distances.
    """
    owner = owners_of(start)
    fresh = np.ones(len(states), dtype=bool)
    fresh[1:] = (states[1:] != states[:-1]) | (owner[1:] != owner[:-1])
    last = np.flatnonzero(np.append(fresh[1:], True)[: len(states)])
    states, owner = states[fresh], owner[fresh]
    inner = owner[1:] == owner[:-1]
    step = _step_exists(graph, states[:-1], states[1:])
    gaps = np.flatnonzero(inner & ~step)
    paths, path_start, found = _paths(graph, states[gaps], states[gaps + 1])
    broken = np.zeros(len(states), dtype=bool)
    broken[gaps[~found] + 1] = True
    # Everything of a sequence from its first broken gap on is left out.
    running = np.cumsum(broken)
    first_of = np.searchsorted(owner, owner)
    keep = running - running[first_of] + broken[first_of] == 0
    extra = np.zeros(len(states), dtype=np.int64)
    extra[gaps] = np.diff(path_start)
    extra[:-1][~keep[1:]] = 0
    extra[-1:] = 0
    width = np.where(keep, 1 + extra, 0)
    position = np.cumsum(width) - width
    out = np.empty(int(width.sum()), dtype=np.int64)
    out[position[keep]] = states[keep]
    used = extra[gaps] > 0
    size = np.diff(path_start)
    rows = np.repeat(used, size)
    out[positions(position[gaps] + 1, size)[rows]] = paths[rows]
    counts = np.bincount(owner, width, minlength=len(start) - 1).astype(np.int64)
    return out, offsets_of(counts), np.repeat(last, width)


def _step_exists(graph: StateGraph, before: Ints, after: Ints) -> Bools:
    keys = np.sort(graph.source * graph.size + graph.to)
    if not len(keys):
        return np.zeros(len(before), dtype=bool)
    wanted = before * graph.size + after
    found: Bools = keys[np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)] == wanted
    return found


def _paths(graph: StateGraph, before: Ints, after: Ints) -> tuple[Ints, Ints, Bools]:
    """Inner states of the shortest paths, one Dijkstra for each distinct first state."""
    found = np.zeros(len(before), dtype=bool)
    pieces: list[list[int]] = [[] for _ in range(len(before))]
    matrix = csr_array((graph.metres, graph.to, graph.first), shape=(graph.size, graph.size))
    sources, which = np.unique(before, return_inverse=True)
    block = max(1, _BLOCK // max(graph.size, 1))
    for low in range(0, len(sources), block):
        distance, by = dijkstra(matrix, indices=sources[low : low + block], return_predecessors=True)
        for i in np.flatnonzero((which >= low) & (which < low + block)):
            row = which[i] - low
            if np.isfinite(distance[row, after[i]]):
                found[i] = True
                state = by[row, after[i]]
                while state != before[i]:
                    pieces[i].append(int(state))
                    state = by[row, state]
                pieces[i].reverse()
    start = offsets_of([len(piece) for piece in pieces])
    flat = np.array([state for piece in pieces for state in piece], dtype=np.int64)
    return flat, start, found


__all__ = ["StateGraph", "fill_gaps"]

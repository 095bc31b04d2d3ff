"""The public graph on which synthetic trips walk: states, the steps between them, and the cells that hold
them.

A *link* is a pair of different cells that some step joins. Transitions are measured on links: all of them,
because which links exist is public.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numba
import numpy as np
from scipy.sparse import csc_array, csr_array, eye_array, tril, triu
from scipy.sparse.csgraph import dijkstra
from scipy.sparse.linalg import splu

from synthgeo.arrays import Array, Bools, Floats, Ints
from synthgeo.ragged import offsets_of, offsets_of_owners, owners_of, positions

__all__ = ["DIRECTIONS", "TOGETHER", "EndPlaces", "PathWeights", "StateGraph", "extents", "fill_gaps"]


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


# How long lines are, and how far they spread.

_ANGLE = np.arange(12) * np.pi / 12
DIRECTIONS = (np.cos(_ANGLE), np.sin(_ANGLE))  # in which extents are taken


def extents(xy: Floats, points: Ints, start: Ints) -> tuple[Floats, Floats]:
    """Metres along lines through some of the points ``xy``, in metres, and their diameters (0 for empty
    ones): line i goes by ``points[start[i]:start[i + 1]]``.

    The diameter is the largest extent in twelve directions: at most 1 % below the exact one.
    """
    found: tuple[Floats, Floats] = _extents(xy, points, start, *DIRECTIONS)
    return found


@numba.njit(cache=True, nogil=True)
def _extents(xy: Floats, points: Ints, start: Ints, across: Floats, up: Floats) -> tuple[Floats, Floats]:
    count = len(start) - 1
    metres, diameter = np.zeros(count), np.zeros(count)
    low, high = np.empty(len(up)), np.empty(len(up))
    for i in range(count):
        low[:], high[:] = np.inf, -np.inf
        for j in range(start[i], start[i + 1]):
            x, y = xy[points[j], 0], xy[points[j], 1]
            if j > start[i]:
                metres[i] += np.hypot(x - xy[points[j - 1], 0], y - xy[points[j - 1], 1])
            for k in range(len(up)):
                along = x * across[k] + y * up[k]
                low[k] = min(low[k], along)
                high[k] = max(high[k], along)
        if start[i + 1] > start[i]:
            diameter[i] = (high - low).max()
    return metres, diameter


# Public places where a synthetic trip can start or end: short stretches of road, or cells of a plane.
#
# A state (a road's edge, a cell) is what a walk moves over; its ends are finer than that. Each place belongs
# to one state and lies in one of the parts in which ends were counted.


@dataclass(frozen=True, eq=False)
class EndPlaces:
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


# Total weights of all paths to many destinations: (I - W) h = e, one solve for each.
#
# W is factorised once. Each of its thousands of right-hand sides is a single state (or a few), and the
# factors of a street network are thin: rows of a few entries, in which supernodes do not pay. So several
# destinations are substituted at once, side by side in memory: an entry of the factors is read once for all
# of them, and the innermost loop runs over neighbouring numbers. That is four times as fast as SuperLU's own
# solver.

TOGETHER = 16  # destinations substituted at once
_TINY = 1e-290  # below this, quotients of doubles lose their digits: treated as unreachable


class PathWeights:
    """Solves (I - W) h = e for a matrix W >= 0 whose rows sum to less than 1."""

    def __init__(self, weights: csr_array) -> None:
        self.size = weights.shape[0]
        system = eye_array(self.size, format="csc") - csc_array(weights)
        # Diagonally dominant by rows, so no pivoting: all along it stays an M-matrix, and h non-negative.
        self._factors = splu(system, diag_pivot_thresh=0.0, options={"Equil": False})

    def solve(self, last: Floats) -> Floats:
        """h where ``last`` is the weight with which a path ends in each state."""
        h: Floats = self._factors.solve(last)
        h[h < _TINY] = 0.0
        return h

    def blocks(self, destinations: Sequence[int | Ints] | Ints) -> Iterator[Floats]:
        """h of each destination, or set of them: a row each, at most ``TOGETHER`` rows at a time."""
        place = self._factors.perm_r
        work = np.empty((self.size, TOGETHER))
        for low in range(0, len(destinations), TOGETHER):
            some = destinations[low : low + TOGETHER]
            work[:] = 0.0
            for column, destination in enumerate(some):
                work[place[destination], column] = 1.0
            out = np.empty((len(some), self.size))
            _substitute(*self._rows, self._factors.perm_c, work, out)
            yield out

    @cached_property
    def _rows(self) -> tuple[Array, Array, Floats, Array, Array, Floats, Floats]:
        """The factors by rows: below the diagonal of 1, above the other, and one over that."""
        lower, upper = csr_array(tril(self._factors.L, -1)), csr_array(triu(self._factors.U, 1))
        return (
            lower.indptr, lower.indices, lower.data, upper.indptr, upper.indices, upper.data,
            1.0 / self._factors.U.diagonal(),
        )  # fmt: skip


@numba.njit(cache=True, nogil=True)
def _substitute(
    low_first: Array, low_at: Array, low: Floats, up_first: Array, up_at: Array, up: Floats, inverse: Floats,
    order: Array, x: Floats, out: Floats,
) -> None:  # fmt: skip
    """Solve for all columns of ``x``, in place, and write them as rows of ``out``, states in their order."""
    size = len(x)
    for i in range(size):
        for p in range(low_first[i], low_first[i + 1]):
            entry, j = low[p], low_at[p]
            for c in range(TOGETHER):
                x[i, c] -= entry * x[j, c]
    for i in range(size - 1, -1, -1):
        for p in range(up_first[i], up_first[i + 1]):
            entry, j = up[p], up_at[p]
            for c in range(TOGETHER):
                x[i, c] -= entry * x[j, c]
        for c in range(TOGETHER):
            x[i, c] *= inverse[i]
    for i in range(size):
        for c in range(len(out)):
            h = x[order[i], c]
            out[c, i] = h if h >= _TINY else 0.0

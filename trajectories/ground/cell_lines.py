"""Lines through cells of a plane: from a point in the first by the sides that successive cells share.

A cell is too large to say where in it a line goes. All that is random in a line follows from its walk's
number (``uniforms``), so a line can be asked for its length when walks are chosen, and be drawn later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numba
import numpy as np

from synthgeo import ragged
from synthgeo.arrays import Bools, Floats, Ints, Points
from synthgeo.polylines import Polylines
from trajectories.ground.state_graph import StateGraph

_SWEEPS = 6  # of pulling a line straight, back and forth
_LEAST_BEND = 50.0  # degrees: a corner in the middle half of a segment, or it would turn round at its ends
_FEW = 16  # uniform numbers of a walk for its ends; those of its corners come after
_SEGMENTS = 1 << 20  # after those of corners, the numbers that choose segments of sides
_STRAY = 0.1  # of the length of sides, how far out of its way a line goes for e times the weight
_PLAIN = 4  # segments of a side of which nothing is known
_EDGE = 0.1  # of a segment at either end, where no line crosses: it would be pulled there
_SHARP = float(np.cos(np.radians(100.0)))  # a turn by more than this


class SideSegments(NamedTuple):
    """Sides of cells in segments: offsets by side, which are equal where a side has none, and how much
    likelier than by length alone lines go through each.
    """

    first: Ints
    weight: Floats


_NO_SEGMENTS = SideSegments(np.zeros(1, dtype=np.int64), np.empty(0))
_NO_NUMBERS = np.empty(0, dtype=np.int64)


@numba.njit(cache=True, nogil=True)
def _uniform(number: int, which: int) -> float:
    """By SplitMix64."""
    z = np.uint64(number) + np.uint64(0x9E3779B97F4A7C15) * np.uint64(which + 1)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return np.float64(z >> np.uint64(11)) / 9007199254740992.0


@numba.njit(cache=True, nogil=True)
def _uniforms(number: Ints, which: Ints) -> Floats:
    out = np.empty(len(number))
    for i in range(len(number)):
        out[i] = _uniform(number[i], which[i])
    return out


def uniforms(number: Ints, which: int | Ints) -> Floats:
    """A number in [0, 1) for each walk's number, another for each ``which``."""
    found: Floats = _uniforms(number, np.broadcast_to(which, number.shape))
    return found


@dataclass(frozen=True, eq=False)
class CellLines:
    """The shortest lines through the sides that the cells of sequences of ``states`` share, in metres.

    Attributes
    ----------
    points
        Where each line begins, and where it enters each of its other states. A step that stays in its cell
        adds no way.
    sharp
        How many sharp turns each makes.
    """

    states: Ints
    start: Ints
    first: Points
    last: Points
    points: Points
    sharp: Ints

    @property
    def polylines(self) -> Polylines:
        """The lines; an empty sequence of states has a straight one."""
        start, empty = self.start, np.diff(self.start) == 0
        xy = np.insert(self.points, start[1:], self.last, axis=0)
        offsets = start + np.arange(len(start))
        if empty.any():
            xy = np.insert(xy, offsets[:-1][empty], self.first[empty], axis=0)
            offsets = offsets + np.concatenate([[0], np.cumsum(empty)])
        return Polylines(xy, offsets)

    def along(self, graph: StateGraph) -> Floats:
        """How far along the side to the next state each line crosses it, from 0 to 1; NaN where none is."""
        out = np.full(len(self.states), np.nan)
        link = graph.link_between(self.states[:-1], self.states[1:])
        owner = ragged.owners_of(self.start)
        at = np.flatnonzero((owner[1:] == owner[:-1]) & (link >= 0))
        crossed = self.points[at + 1]
        out[at] = crossed_at(graph.sides[link[at]], crossed, crossed)
        return out


def shortest(graph: StateGraph, states: Ints, start: Ints, first: Points, last: Points) -> CellLines:
    """The shortest lines from ``first`` to ``last``."""
    return strayed(graph, states, start, first, last, _NO_NUMBERS)


def strayed(
    graph: StateGraph,
    states: Ints,
    start: Ints,
    first: Points,
    last: Points,
    number: Ints,
    segments: SideSegments | None = None,
) -> CellLines:
    """Short lines from ``first`` to ``last``: a line goes through one segment of each side, which its
    ``number`` draws, the less of a detour the likelier and, where sides have ``segments``, the larger their
    weight. The shortest lines of many walks would all go by the corners of cells. Without numbers none
    strays.
    """
    offsets, weight = segments or _NO_SEGMENTS
    points, sharp = _pulled(
        graph.first, graph.to, graph.sides, graph.side_of_step, states, start, first, last, number, offsets,
        weight,
    )  # fmt: skip
    return CellLines(states, start, first, last, points, sharp)


@numba.njit(cache=True, nogil=True)
def _pulled(
    first_step: Ints,
    to: Ints,
    sides: Floats,
    side_of_step: Ints,
    states: Ints,
    start: Ints,
    first: Points,
    last: Points,
    number: Ints,
    offsets: Ints,
    weight: Floats,
) -> tuple[Points, Ints]:
    points = np.empty((len(states), 2))
    sharp = np.zeros(len(start) - 1, dtype=np.int64)
    for walk in range(len(start) - 1):
        low, high = start[walk], start[walk + 1]
        if low == high:
            continue
        side, crossed = np.empty((high - low - 1, 4)), 0
        which = np.full(high - low - 1, -1, dtype=np.int64)
        at = np.zeros(high - low, dtype=np.int64)  # sides crossed before each state
        for k in range(high - low - 1):
            for j in range(first_step[states[low + k]], first_step[states[low + k] + 1]):
                if to[j] == states[low + k + 1]:
                    side[crossed] = sides[j]
                    if side_of_step[j] + 1 < len(offsets):
                        which[crossed] = side_of_step[j]
                    crossed += 1
                    break
            at[k + 1] = crossed
        if crossed and len(number):
            _narrow(side[:crossed], which[:crossed], first[walk], last[walk], number[walk], offsets, weight)
        line = np.empty((crossed + 1, 2))
        line[0] = first[walk]
        _pull(side[:crossed], first[walk], last[walk], line[1:])
        for k in range(high - low):
            points[low + k] = line[at[k]]
        x, y = 0.0, 0.0
        for i in range(low, high):
            ahead = last[walk] if i + 1 == high else points[i + 1]
            dx, dy = ahead[0] - points[i, 0], ahead[1] - points[i, 1]
            size = np.hypot(dx, dy)
            if size > 1e-9:
                if (x != 0.0 or y != 0.0) and x * dx + y * dy < _SHARP * size:
                    sharp[walk] += 1
                x, y = dx / size, dy / size
    return points, sharp


@numba.njit(cache=True, nogil=True)
def _narrow(
    side: Floats, which: Ints, first: Points, last: Points, number: int, offsets: Ints, weight: Floats
) -> None:
    """Each side becomes one of its segments, a plain one of ``_PLAIN``. Which ones is drawn in proportion to
    the product of their weights and to e^(-metres / λ) of the line through their middles; λ is ``_STRAY`` of
    the usual length of the sides. Sums forward over all such lines, then draws backward.
    """
    sides = len(side)
    options, begin = np.full(sides, _PLAIN), np.full(sides, -1)
    usual = 0.0
    for k in range(sides):
        usual += abs(side[k, 2] - side[k, 0]) + abs(side[k, 3] - side[k, 1])
        if which[k] >= 0 and offsets[which[k] + 1] > offsets[which[k]]:
            begin[k], options[k] = offsets[which[k]], offsets[which[k] + 1] - offsets[which[k]]
    per_metre = sides / max(_STRAY * usual, 1e-9)
    chance = np.ones((sides, options.max()))
    before, one = np.empty((1, 2)), np.ones(1)
    before[0] = first
    for k in range(sides):
        middles = _middles(side[k], options[k])
        ahead = _ahead(before, one if k == 0 else chance[k - 1, : options[k - 1]], middles, per_metre)
        for j in range(options[k]):
            chance[k, j] = ahead[j] * (weight[begin[k] + j] if begin[k] >= 0 else 1.0)
        chance[k] /= max(chance[k, : options[k]].max(), 1e-300)
        before = middles
    x, y = last
    for k in range(sides - 1, -1, -1):
        middles = _middles(side[k], options[k])
        away = np.hypot(middles[:, 0] - x, middles[:, 1] - y)
        likely = chance[k, : options[k]] * np.exp(-per_metre * (away - away.min()))
        share = _uniform(number, _SEGMENTS + k) * likely.sum()
        drawn = min(np.searchsorted(np.cumsum(likely), share, side="right"), options[k] - 1)
        x, y = middles[drawn]
        low, way = side[k, :2].copy(), side[k, 2:] - side[k, :2]
        side[k, :2] = low + way * ((drawn + _EDGE) / options[k])
        side[k, 2:] = low + way * ((drawn + 1 - _EDGE) / options[k])


@numba.njit(cache=True, nogil=True)
def _middles(side: Floats, options: int) -> Points:
    """The middles of so many equal segments."""
    part = (np.arange(options) + 0.5) / options
    out = np.empty((options, 2))
    out[:, 0] = side[0] + part * (side[2] - side[0])
    out[:, 1] = side[1] + part * (side[3] - side[1])
    return out


@numba.njit(cache=True, nogil=True)
def _ahead(before: Points, chance: Floats, middles: Points, per_metre: float) -> Floats:
    """Of lines that come by the points ``before`` with these chances, those that go on to each middle."""
    out = np.zeros(len(middles))
    least = np.inf
    away = np.empty((len(middles), len(before)))
    for j in range(len(middles)):
        for i in range(len(before)):
            away[j, i] = np.hypot(middles[j, 0] - before[i, 0], middles[j, 1] - before[i, 1])
            least = min(least, away[j, i])
    for j in range(len(middles)):
        for i in range(len(before)):
            out[j] += chance[i] * np.exp(-per_metre * (away[j, i] - least))
    return out


@numba.njit(cache=True, nogil=True)
def _pull(side: Floats, first: Points, last: Points, points: Points) -> None:
    """Points on each side of one line: each slides to where the way from the one before to the one after is
    shortest, until the line is.
    """
    count = len(side)
    for k in range(count):
        points[k, 0], points[k, 1] = (side[k, 0] + side[k, 2]) / 2, (side[k, 1] + side[k, 3]) / 2
    for sweep in range(2 * _SWEEPS):
        for step in range(count):
            k = step if sweep % 2 == 0 else count - 1 - step
            dx, dy = side[k, 2] - side[k, 0], side[k, 3] - side[k, 1]
            length = np.hypot(dx, dy)
            if length < 1e-9:
                continue
            dx, dy = dx / length, dy / length
            before = first if k == 0 else points[k - 1]
            after = last if k + 1 == count else points[k + 1]
            px, py = before[0] - side[k, 0], before[1] - side[k, 1]
            qx, qy = after[0] - side[k, 0], after[1] - side[k, 1]
            far_p, far_q = abs(px * dy - py * dx), abs(qx * dy - qy * dx)
            if far_p + far_q > 1e-9:
                # The mirror image of one end, seen from the other.
                best = ((px * dx + py * dy) * far_q + (qx * dx + qy * dy) * far_p) / (far_p + far_q)
                best = min(max(best, 0.0), length)
                points[k, 0], points[k, 1] = side[k, 0] + best * dx, side[k, 1] + best * dy


def crossed_at(sides: Floats, one: Points, two: Points) -> Floats:
    """How far along each side, from 0 to 1, the straight line from one point to the other crosses it or
    comes closest to where it would.
    """
    rows, upright = np.arange(len(sides)), sides[:, 0] == sides[:, 2]
    across, along = np.where(upright, 0, 1), np.where(upright, 1, 0)
    way = two - one
    ahead = way[rows, across]
    part = (sides[rows, across] - one[rows, across]) / np.where(ahead == 0, np.inf, ahead)
    at = one[rows, along] + np.clip(part, 0.0, 1.0) * way[rows, along]
    low, high = sides[rows, along], sides[rows, along + 2]
    found: Floats = np.clip((at - low) / np.maximum(high - low, 1e-300), 0.0, 1.0)
    return found


def with_corners(lines: Polylines, cells: Floats, number: Ints, longer: float) -> Polylines:
    """Lines that are, all together, up to ``longer`` times as long: some segments, each in one of the
    rectangles ``cells``, go by a corner in theirs.
    """
    trip = ragged.owners_of(lines.offsets)
    begin: Ints = np.flatnonzero(trip[1:] == trip[:-1])
    trip = trip[begin]
    rank = 3 * (begin - lines.offsets[trip]) + _FEW
    angle = np.radians(_LEAST_BEND + (180 - 2 * _LEAST_BEND) * uniforms(number[trip], rank))
    # Any point of the circle around a segment sees it under a right angle.
    middle, half = (lines.xy[begin + 1] + lines.xy[begin]) / 2, (lines.xy[begin + 1] - lines.xy[begin]) / 2
    turned = np.column_stack([-half[:, 1], half[:, 0]]) * np.sin(angle)[:, None]
    side = np.where(uniforms(number[trip], rank + 1) < 0.5, 1.0, -1.0)[:, None]
    corner, other = (middle + np.cos(angle)[:, None] * half + way * side * turned for way in (1.0, -1.0))
    fits, other_fits = (_within(at, cells) for at in (corner, other))
    corner = np.where(fits[:, None], corner, other)
    gain = 2 * np.hypot(*half.T) * (np.cos(angle / 2) + np.sin(angle / 2) - 1) * (fits | other_fits)
    share = (longer - 1) * lines.lengths.sum() / max(float(gain.sum()), 1e-9)
    bent = (gain > 0) & (uniforms(number[trip], rank + 2) < share)
    added = np.bincount(trip[bent], minlength=len(lines.offsets) - 1)
    xy = np.insert(lines.xy, begin[bent] + 1, corner[bent], axis=0)
    return Polylines(xy, lines.offsets + ragged.offsets_of(added), lines.scale)


def _within(xy: Points, cells: Floats) -> Bools:
    inside: Bools = np.all((xy >= cells[:, :2]) & (xy <= cells[:, 2:]), axis=1)
    return inside


__all__ = ["CellLines", "SideSegments", "crossed_at", "shortest", "strayed", "uniforms", "with_corners"]

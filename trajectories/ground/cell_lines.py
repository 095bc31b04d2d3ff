"""Lines through cells of a plane: from a point in the first by the sides that successive cells share.

A cell is too large to say where in it a line goes. All that is random in a line follows from its walk's
number (``uniforms``), so a line can be asked for its length when walks are chosen, and be drawn later.
"""

from __future__ import annotations

import numba
import numpy as np

from synthgeo import ragged
from synthgeo.arrays import Bools, Floats, Ints, Points
from synthgeo.polylines import Polylines
from trajectories.ground.state_graph import StateGraph

_SWEEPS = 6  # of pulling a line straight, back and forth
_LEAST_BEND = 50.0  # degrees: a corner in the middle half of a segment, or it would turn round at its ends
_FEW = 16  # uniform numbers of a walk for its ends; those of its corners come after
_SHARP = float(np.cos(np.radians(100.0)))  # a turn by more than this


@numba.njit(cache=True, nogil=True)
def _uniforms(number: Ints, which: Ints) -> Floats:
    """By SplitMix64."""
    out = np.empty(len(number))
    for i in range(len(number)):
        z = np.uint64(number[i]) + np.uint64(0x9E3779B97F4A7C15) * np.uint64(which[i] + 1)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
        out[i] = np.float64(z >> np.uint64(11)) / 9007199254740992.0
    return out


def uniforms(number: Ints, which: int | Ints) -> Floats:
    """A number in [0, 1) for each walk's number, another for each ``which``."""
    found: Floats = _uniforms(number, np.broadcast_to(which, number.shape))
    return found


def shortest(
    graph: StateGraph, states: Ints, start: Ints, first: Points, last: Points
) -> tuple[Polylines, Ints]:
    """The shortest lines from ``first`` to ``last``, in metres, through the sides that the cells of these
    sequences of ``states`` share, and how many sharp turns each makes. A step that stays in its cell adds no
    way, and an empty sequence has a straight line.
    """
    points, sharp = _pulled(graph.first, graph.to, graph.sides, states, start, first, last)
    xy = np.insert(points, start[1:], last, axis=0)
    empty = np.flatnonzero(np.diff(start) == 0)
    offsets = start + np.arange(len(start))
    if len(empty):
        xy = np.insert(xy, offsets[:-1][empty], first[empty], axis=0)
        offsets = offsets + np.concatenate([[0], np.cumsum(np.diff(start) == 0)])
    return Polylines(xy, offsets), sharp


@numba.njit(cache=True, nogil=True)
def _pulled(
    first_step: Ints, to: Ints, sides: Floats, states: Ints, start: Ints, first: Points, last: Points
) -> tuple[Points, Ints]:
    points = np.empty((len(states), 2))
    sharp = np.zeros(len(start) - 1, dtype=np.int64)
    for walk in range(len(start) - 1):
        low, high = start[walk], start[walk + 1]
        if low == high:
            continue
        side, crossed = np.empty((high - low - 1, 4)), 0
        at = np.zeros(high - low, dtype=np.int64)  # sides crossed before each state
        for k in range(high - low - 1):
            for j in range(first_step[states[low + k]], first_step[states[low + k] + 1]):
                if to[j] == states[low + k + 1]:
                    side[crossed] = sides[j]
                    crossed += 1
                    break
            at[k + 1] = crossed
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


__all__ = ["shortest", "uniforms", "with_corners"]

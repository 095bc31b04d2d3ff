"""What the choice of a walk looks at, found in one pass over its states: the links that it crosses, its
metres and diameter, how much it turns and how often it returns to where it has been.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np

from synthgeo.arrays import Array, Floats, Ints
from trajectories.ground.extent import DIRECTIONS
from trajectories.ground.state_graph import StateGraph
from trajectories.walks.bridges import Walks

_BACK = 10  # returns that straight back counts as
_APART = 30.0  # metres from state to state at least, to see where a walk turns round: over a median, too
_ROUND = 0.5  # the square of the cosine of 135 degrees


@dataclass(frozen=True, eq=False)
class WalkTraits:
    """Of each of many walks: ``links[begin[i]:begin[i + 1]]`` in the order in which they are crossed; metres
    from state to state and diameter, as of ``measure.lengths.path_shapes``; returns, of which straight back
    counts as ten; on roads the sum of its turns (``StateGraph.turn``) and how often it turns round.
    """

    links: Array
    begin: Ints
    metres: Floats
    diameter: Floats
    returns: Ints
    turning: Floats
    half_turns: Ints

    @classmethod
    def of(cls, graph: StateGraph, walks: Walks) -> WalkTraits:
        """The traits of walks on a graph."""
        return cls(
            *_traits(
                graph.first, graph.to, graph.link_of_step, graph.step_metres, graph.place, graph.xy,
                graph.turn, *DIRECTIONS, walks.states, walks.start,
            )
        )  # fmt: skip


@numba.njit(cache=True, nogil=True)
def _traits(
    first: Ints, to: Ints, link_of_step: Ints, step_metres: Floats, place: Ints, xy: Floats, turn: Floats,
    across: Floats, up: Floats, states: Array, start: Ints,
) -> tuple[Array, Ints, Floats, Floats, Ints, Floats, Ints]:  # fmt: skip
    count = len(start) - 1
    links, begin = np.empty(len(states), dtype=np.int32), np.zeros(count + 1, dtype=np.int64)
    metres, diameter, returns = np.zeros(count), np.zeros(count), np.zeros(count, dtype=np.int64)
    turning, half_turns = np.zeros(count), np.zeros(count, dtype=np.int64)
    most = -1
    for state in range(len(place)):
        most = max(most, place[state])
    seen = np.full(most + 1, -1, dtype=np.int64)
    low, high = np.empty(len(up)), np.empty(len(up))
    filled = 0
    for walk in range(count):
        low[:], high[:] = np.inf, -np.inf
        state, here, before = -1, -1, -1
        seen_x, seen_y, far_x, far_y = 0.0, 0.0, 0.0, 0.0
        for i in range(start[walk], start[walk + 1]):
            last, state = state, states[i]
            if last >= 0:
                joined = False
                for j in range(first[last], first[last + 1]):
                    if to[j] == state:
                        joined = True
                        metres[walk] += step_metres[j]
                        if len(turn):
                            turning[walk] += turn[j]
                        if link_of_step[j] >= 0:
                            links[filled] = link_of_step[j]
                            filled += 1
                        break
                if not joined:  # what was taken out of it leaves a walk that turns where no step does
                    metres[walk] += np.hypot(xy[state, 0] - xy[last, 0], xy[state, 1] - xy[last, 1])
            before, last_place = here, before
            here = place[state]
            if seen[here] == walk:
                returns[walk] += _BACK if here == last_place else 1
            seen[here] = walk
            x, y = xy[state, 0], xy[state, 1]
            if last < 0:
                seen_x, seen_y = x, y
            go_x, go_y = x - seen_x, y - seen_y
            apart = go_x**2 + go_y**2
            if len(turn) and apart >= _APART**2:
                along = go_x * far_x + go_y * far_y
                if along < 0.0 and along**2 > _ROUND * apart * (far_x**2 + far_y**2):
                    half_turns[walk] += 1
                seen_x, seen_y, far_x, far_y = x, y, go_x, go_y
            for k in range(len(up)):
                along = x * across[k] + y * up[k]
                low[k] = min(low[k], along)
                high[k] = max(high[k], along)
        if start[walk + 1] > start[walk]:
            diameter[walk] = (high - low).max()
        begin[walk + 1] = filled
    return links[:filled].copy(), begin, metres, diameter, returns, turning, half_turns


__all__ = ["WalkTraits"]

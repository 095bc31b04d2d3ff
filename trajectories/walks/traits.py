"""What the choice of a walk looks at, found in one pass over its states: the links that it crosses, its
metres and diameter, how much it turns and how often it returns to where it has been.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numba
import numpy as np
from scipy.sparse import csr_array

from synthgeo.arrays import Array, Bools, Floats, Ints
from trajectories.ground.state_graph import DIRECTIONS, StateGraph
from trajectories.measure.ends import BUCKETS
from trajectories.walks.bridges import Walks

__all__ = ["NOTHING", "WalkFeatures", "WalkTraits", "WalkWeights"]


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


# Weights of whole walks: which of many proposed walks to keep.
#
# Proposals know their ends, which links they prefer and that metres cost. Measurements know more: how many
# trips are so long and spread so far, and how many cross each link. The weight of a walk w between the pair
# of ends p is
#
#     P(w | p) · b[block] · exp( g[length] + Σ l[links] / crossings ), P(w | p) ∝ proposed(w) ·
#         exp(a[length]).
#
# ``a`` chooses among the walks of one pair, and every pair keeps its weight. What this cannot reach, because
# the pairs are wrong (they are noisy, too), is left to ``g``, which lets one pair give way to another. ``l``
# follows the links as far as their noise deserves. ``b`` gives every block of pairs, whose trips were
# counted, its weight back. ``fit.fit_weights`` finds a, g and l.

NOTHING = 1e-5  # a share of the whole that is as good as none
_GIVE_WAY = 20.0  # times a block of pairs may gain or lose


@dataclass(frozen=True, eq=False)
class WalkWeights:
    """Logarithms of weights: by bucket within a pair, by bucket among all walks, by link.

    ``most`` is the largest that a walk had when they were fitted. Another pool may hold what that one did
    not (a short walk's only crossing can be a link that was one of many), and no walk gets more than those.
    """

    within: Floats
    among: Floats
    links: Floats
    most: Floats

    def scores(self, features: WalkFeatures) -> Floats:
        """Logarithms of the weights of walks among all, at most 0."""
        found: Floats = self.among[features.bucket] + features.links @ self.links
        return np.minimum(found - self.most, 0.0)

    def to_arrays(self) -> dict[str, Floats]:
        """For a file."""
        return {f"weights/{field.name}": getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True, eq=False)
class WalkFeatures:
    """What the weight of a trip looks at, for many walks: a row of links with 1 / (its crossings) each, its
    bucket of lengths, and the pair of ends, and block of pairs, that it was proposed for.
    """

    links: csr_array
    bucket: Ints
    pair: Ints
    block: Ints

    @classmethod
    def of(cls, graph: StateGraph, traits: WalkTraits, bucket: Ints, pair: Ints, block: Ints) -> WalkFeatures:
        """The features of walks that were proposed for these pairs of ends."""
        count = np.diff(traits.begin)
        share = np.repeat(1.0 / np.maximum(count, 1), count)
        links = csr_array((share, traits.links, traits.begin), shape=(len(count), graph.links))
        return cls(links, bucket, pair, block)

    def take(self, rows: Ints) -> WalkFeatures:
        """The features of some walks."""
        return WalkFeatures(self.links[rows], self.bucket[rows], self.pair[rows], self.block[rows])

    def crossings_of(self, links: Bools) -> Floats:
        """How often each walk crosses one of these links."""
        running = np.concatenate([[0.0], np.cumsum(links[self.links.indices])])
        number: Floats = np.diff(running[self.links.indptr])
        return number

    def weights(self, proposed: Floats, fitted: WalkWeights) -> Floats:
        """The weight of each walk, 0 where nothing was proposed."""
        within = self.within(proposed, fitted.within)
        weight = within * np.exp(fitted.scores(self))
        return weight * self.restoring(within, weight)

    def restoring(self, within: Floats, weight: Floats) -> Floats:
        """Factors that give the walks of every block of pairs the weight that they had ``within`` their
        pairs. Bounded: a block that has no walk of a likely length must give way.
        """
        had, has = np.bincount(self.block, within), np.bincount(self.block, weight)
        has *= had.sum() / max(float(has.sum()), 1e-300)
        return np.clip((had + NOTHING) / (has + NOTHING), 1 / _GIVE_WAY, _GIVE_WAY)[self.block]

    def within(self, proposed: Floats, by_bucket: Floats) -> Floats:
        """Chances of the walks of each pair, whose sum is 1 for every pair that has any."""
        weight = proposed * np.exp(by_bucket[self.bucket])
        return weight / np.maximum(np.bincount(self.pair, weight), 1e-300)[self.pair]

    def by_bucket(self, weight: Floats) -> Floats:
        """Sums of weights in each bucket of lengths."""
        sums: Floats = np.bincount(self.bucket, weight, minlength=BUCKETS).astype(np.float64)
        return sums

"""Which of many proposed walks to keep: weights of whole trips, fitted to what was measured.

Proposals know their ends, which links they like and that metres cost. Measurements know more: how many
trips are so long and spread so far, and how many cross each link. The weight of a walk w between the pair
of ends p is

    P(w | p) · b[block] · exp( g[length] + Σ l[links] / crossings ), P(w | p) ∝ proposed(w) · exp(a[length]).

``a`` chooses among the walks of one pair, and every pair keeps its weight. What this cannot reach, because
the pairs are wrong (they are noisy, too), is left to ``g``, which lets one pair give way to another. ``l``
follows the links as far as their noise deserves: of all distributions that agree with the counts within
it, the one closest to the proposals in relative entropy. ``b`` gives every block of pairs, whose trips were
counted, its weight back. Fitting is post-processing: it sees released numbers only.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numba
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import csr_array

from trajectories.lengths import BUCKETS
from trajectories.states import Floats, Ints, StateGraph
from trajectories.walks import Walks

_ROUNDS = 25  # of raking within pairs
_TURNS = 5  # between lengths and links
_ITERATIONS = 25
_CAUTION = 0.1  # how much the noise in links is held against them; 0 would fit it exactly
_LINK = 30.0  # bound of a link's weight
_RAREST, _DEAREST = -6.0, 4.0
_NOTHING = 1e-5
_GIVE_WAY = 20.0  # times a block of pairs may gain or lose


@dataclass(frozen=True, eq=False)
class Taste:
    """Logarithms of weights: by bucket within a pair, by bucket among all walks, by link.

    ``most`` is the largest that a walk had when they were fitted. Another pool may hold what that one did
    not (a short walk's only crossing can be a link that was one of many), and no walk is liked more than
    those.
    """

    within: Floats
    among: Floats
    links: Floats
    most: Floats

    def scores(self, traits: Traits) -> Floats:
        """Logarithms of the weights of walks among all, at most 0."""
        found: Floats = self.among[traits.bucket] + traits.links @ self.links
        return np.minimum(found - self.most, 0.0)

    def to_arrays(self) -> dict[str, Floats]:
        """For a file."""
        return {f"taste/{field.name}": getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True, eq=False)
class Traits:
    """What the weight of a trip looks at, for many walks: a row of links with 1 / (its crossings) each, its
    bucket of lengths, and the pair of ends, and block of pairs, that it was proposed for.
    """

    links: csr_array
    bucket: Ints
    pair: Ints
    block: Ints

    @classmethod
    def of(cls, graph: StateGraph, walks: Walks, bucket: Ints, pair: Ints, block: Ints) -> Traits:
        """The traits of walks that were proposed for these pairs of ends."""
        link, begin = _crossed(graph.first, graph.to, graph.link_of_step, walks.states, walks.start)
        count = np.diff(begin)
        share = np.repeat(1.0 / np.maximum(count, 1), count)
        return cls(csr_array((share, link, begin), shape=(walks.size, graph.links)), bucket, pair, block)

    def take(self, rows: Ints) -> Traits:
        """The traits of some walks."""
        return Traits(self.links[rows], self.bucket[rows], self.pair[rows], self.block[rows])

    def crossings_of(self, links: NDArray[np.bool_]) -> Floats:
        """How often each walk crosses one of these links."""
        running = np.concatenate([[0.0], np.cumsum(links[self.links.indices])])
        number: Floats = np.diff(running[self.links.indptr])
        return number

    def weights(self, proposed: Floats, taste: Taste) -> Floats:
        """The weight of each walk, 0 where nothing was proposed."""
        within = self.within(proposed, taste.within)
        weight = within * np.exp(taste.scores(self))
        return weight * self.restoring(within, weight)

    def restoring(self, within: Floats, weight: Floats) -> Floats:
        """Factors that give the walks of every block of pairs the weight that they had ``within`` their
        pairs. Bounded: a block that has no walk of a likely length must give way.
        """
        had, has = np.bincount(self.block, within), np.bincount(self.block, weight)
        has *= had.sum() / max(float(has.sum()), 1e-300)
        return np.clip((had + _NOTHING) / (has + _NOTHING), 1 / _GIVE_WAY, _GIVE_WAY)[self.block]

    def within(self, proposed: Floats, taste: Floats) -> Floats:
        """Chances of the walks of each pair, whose sum is 1 for every pair that has any."""
        weight = proposed * np.exp(taste[self.bucket])
        return weight / np.maximum(np.bincount(self.pair, weight), 1e-300)[self.pair]

    def by_bucket(self, weight: Floats) -> Floats:
        """Sums of weights in each bucket of lengths."""
        sums: Floats = np.bincount(self.bucket, weight, minlength=BUCKETS).astype(np.float64)
        return sums


def fit_taste(
    traits: Traits, proposed: Floats, lengths: Floats, links: Floats | None, link_variance: float
) -> Taste:
    """The taste with which ``proposed`` walks fill the buckets like ``lengths`` and, if given, follow
    ``links``: trips by bucket and by link.
    """
    rows = np.flatnonzero(proposed > 0)
    traits, proposed = traits.take(rows), proposed[rows]
    total = max(float(lengths.sum()), 1.0)
    offered = traits.by_bucket(traits.within(proposed, np.zeros(BUCKETS)))
    known = offered > _NOTHING * offered.sum()  # of what was not offered nothing can be learned
    goal = np.where(known, lengths, 0.0)
    goal /= max(float(goal.sum()), 1e-300)
    within = np.zeros(BUCKETS)
    for _ in range(_ROUNDS):
        have = traits.by_bucket(traits.within(proposed, within))
        change = np.log((goal + 1e-4) / (have / have.sum() + 1e-4))
        within += np.where(known, np.clip(change, -1.6, 1.6), 0.0)
        within = np.clip(within - within[known].max(initial=-np.inf), -20.0, 0.0)
    chance = traits.within(proposed, within)
    chance /= chance.sum()
    plain = np.log(np.maximum(chance, 1e-300))
    # However exact the links, this pool is one of many: it must not be fitted too closely.
    caution = max(_CAUTION * link_variance / total, 1 / (int(traits.pair.max(initial=0)) + 1))
    among, liked = np.zeros(BUCKETS), np.zeros(traits.links.shape[1])

    def scores(among: Floats, liked: Floats) -> Floats:
        out: Floats = among[traits.bucket] + traits.links @ liked
        return out

    for turn in range(_TURNS + 1):
        fixed = plain + np.log(traits.restoring(chance, _chances(plain + scores(among, liked))[0]))
        have = traits.by_bucket(_chances(fixed + scores(among, liked))[0])
        change = np.log(np.maximum(goal, 2 * _NOTHING) / np.maximum(have, _NOTHING))
        among = np.where(known, np.clip(among + change, _RAREST, _DEAREST), _RAREST)
        if links is not None and links.any() and turn < _TURNS:
            liked = _follow(traits.links, fixed + among[traits.bucket], liked, links / links.sum(), caution)
    return Taste(within, among, liked, scores(among, liked).max(initial=0.0))


def _follow(shares: csr_array, fixed: Floats, start: Floats, goal: Floats, caution: float) -> Floats:
    """Weights of links for walks with scores ``fixed``, by penalised likelihood."""
    squares = csr_array((shares.data**2, shares.indices, shares.indptr), shares.shape)
    chance = _chances(fixed)[0]
    offered = shares.T @ chance > _NOTHING
    # Rare links move little for a given change of taste: on a scale of equal curvature all are found alike.
    scale = 1 / np.sqrt(squares.T @ chance + caution + _NOTHING**2)
    bound = np.where(offered, _LINK, 0.0) / scale

    def likelihood(scaled: Floats) -> tuple[float, Floats]:
        taste = scale * scaled
        chance, log_sum = _chances(fixed + shares @ taste)
        value = log_sum - taste @ goal + 0.5 * caution * (taste @ taste)
        return value, np.where(offered, scale * (shares.T @ chance - goal + caution * taste), 0.0)

    found = minimize(
        likelihood, start / scale, jac=True, method="L-BFGS-B", bounds=np.column_stack([-bound, bound]),
        options={"maxiter": _ITERATIONS},
    )  # fmt: skip
    weights: Floats = scale * found.x
    return weights


def _chances(scores: Floats) -> tuple[Floats, float]:
    """Probabilities of walks with these scores, and the logarithm of the sum of their weights."""
    top = float(scores.max())
    weight = np.exp(scores - top)
    whole = float(weight.sum())
    return weight / whole, top + float(np.log(whole))


@numba.njit(cache=True)
def _crossed(first: Ints, to: Ints, link_of_step: Ints, states: Ints, start: Ints) -> tuple[Ints, Ints]:
    """Links that each walk crosses, in order, and where each walk's begin."""
    out = np.empty(len(states), dtype=np.int64)
    begin = np.zeros(len(start), dtype=np.int64)
    filled = 0
    for walk in range(len(start) - 1):
        for i in range(start[walk], start[walk + 1] - 1):
            for j in range(first[states[i]], first[states[i] + 1]):
                if to[j] == states[i + 1]:
                    if link_of_step[j] >= 0:
                        out[filled] = link_of_step[j]
                        filled += 1
                    break
        begin[walk + 1] = filled
    return out[:filled].copy(), begin


__all__ = ["Taste", "Traits", "fit_taste"]

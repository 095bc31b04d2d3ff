"""The weights of whole walks, fitted to released lengths and crossings. Post-processing.

By bucket of length the weights are raked; by link they maximise a penalised likelihood: of all distributions
of walks that agree with the counts within their noise, the one closest to the proposals in relative entropy.
"""

from __future__ import annotations

import numba
import numpy as np
from scipy.optimize import Bounds, minimize
from scipy.sparse import csr_array

from synthgeo.arrays import Array, Floats
from trajectories.measure.lengths import BUCKETS
from trajectories.walks.walk_weights import NOTHING, WalkFeatures, WalkWeights

_ROUNDS = 25  # of raking within pairs
_TURNS = 5  # between lengths and links
_ITERATIONS = 25
_CAUTION = 0.1  # how much the noise in links is held against them; 0 would fit it exactly
_LINK = 30.0  # bound of a link's weight
_RAREST, _DEAREST = -6.0, 4.0


def fit_weights(
    features: WalkFeatures, proposed: Floats, lengths: Floats, links: Floats | None, link_variance: float
) -> WalkWeights:
    """The weights with which ``proposed`` walks fill the buckets like ``lengths`` and, if given, follow
    ``links``: trips by bucket and by link.
    """
    rows = np.flatnonzero(proposed > 0)
    features, proposed = features.take(rows), proposed[rows]
    total = max(float(lengths.sum()), 1.0)
    offered = features.by_bucket(features.within(proposed, np.zeros(BUCKETS)))
    known = offered > NOTHING * offered.sum()  # of what was not offered nothing can be learned
    goal = np.where(known, lengths, 0.0)
    goal /= max(float(goal.sum()), 1e-300)
    within = np.zeros(BUCKETS)
    for _ in range(_ROUNDS):
        have = features.by_bucket(features.within(proposed, within))
        change = np.log((goal + 1e-4) / (have / have.sum() + 1e-4))
        within += np.where(known, np.clip(change, -1.6, 1.6), 0.0)
        within = np.clip(within - within[known].max(initial=-np.inf), -20.0, 0.0)
    chance = features.within(proposed, within)
    chance /= chance.sum()
    plain = np.log(np.maximum(chance, 1e-300))
    # However exact the links, this pool is one of many: it must not be fitted too closely.
    caution = max(_CAUTION * link_variance / total, 1 / (int(features.pair.max(initial=0)) + 1))
    among, by_link = np.zeros(BUCKETS), np.zeros(features.links.shape[1])

    def scores(among: Floats, by_link: Floats) -> Floats:
        out: Floats = among[features.bucket] + features.links @ by_link
        return out

    for turn in range(_TURNS + 1):
        fixed = plain + np.log(features.restoring(chance, _chances(plain + scores(among, by_link))[0]))
        have = features.by_bucket(_chances(fixed + scores(among, by_link))[0])
        change = np.log(np.maximum(goal, 2 * NOTHING) / np.maximum(have, NOTHING))
        among = np.where(known, np.clip(among + change, _RAREST, _DEAREST), _RAREST)
        if links is not None and links.any() and turn < _TURNS:
            by_link = _follow(
                features.links, fixed + among[features.bucket], by_link, links / links.sum(), caution
            )
    return WalkWeights(within, among, by_link, scores(among, by_link).max(initial=0.0))


def _follow(shares: csr_array, fixed: Floats, start: Floats, goal: Floats, caution: float) -> Floats:
    """Weights of links for walks with scores ``fixed``, by penalised likelihood."""
    squares = csr_array((shares.data**2, shares.indices, shares.indptr), shares.shape)
    chance = _chances(fixed)[0]
    begin, links, rows = shares.indptr, shares.indices, _row_shares(shares)
    offered = _crossed(begin, links, rows, chance, len(goal)) > NOTHING
    # Rare links move little for a given change of weight: on a scale of equal curvature all are found alike.
    scale = 1 / np.sqrt(squares.T @ chance + caution + NOTHING**2)
    bound = np.where(offered, _LINK, 0.0) / scale

    def likelihood(scaled: Floats) -> tuple[float, Floats]:
        weights = scale * scaled
        chance, log_sum = _chances(fixed + _along(begin, links, rows, weights))
        value = log_sum - weights @ goal + 0.5 * caution * (weights @ weights)
        crossed = _crossed(begin, links, rows, chance, len(goal))
        return value, np.where(offered, scale * (crossed - goal + caution * weights), 0.0)

    found = minimize(
        likelihood, start / scale, jac=True, method="L-BFGS-B", bounds=Bounds(-bound, bound),
        options={"maxiter": _ITERATIONS},
    )  # fmt: skip
    fitted: Floats = scale * found.x
    return fitted


def _row_shares(shares: csr_array) -> Floats:
    """What each walk gives to every link that it crosses: all of them the same."""
    out = np.zeros(shares.shape[0])
    some = np.diff(shares.indptr) > 0
    out[some] = shares.data[shares.indptr[:-1][some]]
    return out


@numba.njit(cache=True, nogil=True)
def _along(begin: Array, links: Array, share: Floats, weight: Floats) -> Floats:
    """The mean weight of the links of each walk: the product of the shares' matrix, whose rows are even."""
    out = np.zeros(len(share))
    for walk in range(len(share)):
        total, part = 0.0, share[walk]
        for j in range(begin[walk], begin[walk + 1]):
            total += part * weight[links[j]]
        out[walk] = total
    return out


@numba.njit(cache=True, nogil=True)
def _crossed(begin: Array, links: Array, share: Floats, chance: Floats, size: int) -> Floats:
    """Crossings of each link by walks with these chances: the product of the transposed matrix."""
    out = np.zeros(size)
    for walk in range(len(share)):
        part = share[walk] * chance[walk]
        for j in range(begin[walk], begin[walk + 1]):
            out[links[j]] += part
    return out


def _chances(scores: Floats) -> tuple[Floats, float]:
    """Probabilities of walks with these scores, and the logarithm of the sum of their weights."""
    top = float(scores.max())
    weight = np.exp(scores - top)
    whole = float(weight.sum())
    return weight / whole, top + float(np.log(whole))


__all__ = ["fit_weights"]

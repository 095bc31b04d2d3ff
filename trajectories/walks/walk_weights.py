"""Weights of whole walks: which of many proposed walks to keep.

Proposals know their ends, which links they prefer and that metres cost. Measurements know more: how many
trips are so long and spread so far, and how many cross each link. The weight of a walk w between the pair
of ends p is

    P(w | p) · b[block] · exp( g[length] + Σ l[links] / crossings ), P(w | p) ∝ proposed(w) · exp(a[length]).

``a`` chooses among the walks of one pair, and every pair keeps its weight. What this cannot reach, because
the pairs are wrong (they are noisy, too), is left to ``g``, which lets one pair give way to another. ``l``
follows the links as far as their noise deserves. ``b`` gives every block of pairs, whose trips were counted,
its weight back. ``fit.fit_weights`` finds a, g and l.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from scipy.sparse import csr_array

from synthgeo.arrays import Bools, Floats, Ints
from trajectories.ground.state_graph import StateGraph
from trajectories.measure.lengths import BUCKETS
from trajectories.walks.traits import WalkTraits

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


__all__ = ["NOTHING", "WalkFeatures", "WalkWeights"]

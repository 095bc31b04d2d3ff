"""Which of many proposed walks to keep: one weight for whole trips, fitted to all measurements at once.

Proposals know where they start and end, which links they like and that metres cost. Measurements know more:
how many trips are so long, how many cross each link, how many end in each cell. The model of a trip t is

    P(t)  ∝  proposed(t) · exp( b[length] + Σ l[links] / crossings + (c[origin] + c[destination]) / 2 ),

the distribution closest to the proposals (in relative entropy) that agrees with the measurements: closely
with the table of lengths, whose few large counts stand well above the noise, and as far as their noise
deserves with links and ends. Fitting is convex, and post-processing: it sees released numbers only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
from scipy.optimize import minimize
from scipy.sparse import csr_array

from trajectories.lengths import BUCKETS
from trajectories.states import Floats, Ints, StateGraph
from trajectories.walks import Walks

_TURNS = 5
_ITERATIONS = 25
_CAUTION = 0.3  # how much noise in links and ends is held against them; 0 would fit it exactly
_LINKS, _ENDS = 30.0, 3.0  # bounds of the weights
_RAREST, _DEAREST = -6.0, 4.0
_NOTHING = 1e-5


@dataclass(frozen=True, eq=False)
class Traits:
    """What the weight of a trip looks at, for many walks."""

    links: csr_array  # walks x links: a walk's share of each link, 1 / (its crossings)
    bucket: Ints
    origin: Ints
    destination: Ints
    cells: int

    @classmethod
    def of(cls, graph: StateGraph, walks: Walks, bucket: Ints) -> Traits:
        """The traits of walks; an empty walk has cell 0 at both ends and must not be chosen."""
        link, begin = _crossed(graph.first, graph.to, graph.link_of_step, walks.states, walks.start)
        count = np.diff(begin)
        share = np.repeat(1.0 / np.maximum(count, 1), count)
        full = np.diff(walks.start) > 0
        ends = np.zeros((2, walks.size), dtype=np.int64)
        ends[0, full] = graph.cell[walks.states[walks.start[:-1][full]]]
        ends[1, full] = graph.cell[walks.states[walks.start[1:][full] - 1]]
        shares = csr_array((share, link, begin), shape=(walks.size, graph.links))
        return cls(shares, bucket, ends[0], ends[1], graph.cells)

    def take(self, rows: Ints) -> Traits:
        """The traits of some walks."""
        return Traits(
            self.links[rows], self.bucket[rows], self.origin[rows], self.destination[rows], self.cells
        )

    def scores(self, taste: Floats) -> Floats:
        """Logarithm of each walk's weight."""
        links, bucket, cell = np.split(taste, [self.links.shape[1], self.links.shape[1] + BUCKETS])
        ends = (cell[self.origin] + cell[self.destination]) / 2
        scores: Floats = self.links @ links + bucket[self.bucket] + ends
        return scores

    def totals(self, weight: Floats) -> Floats:
        """What walks with these weights add up to: links, buckets, ends of cells."""
        ends = np.bincount(self.origin, weight, minlength=self.cells)
        ends += np.bincount(self.destination, weight, minlength=self.cells)
        buckets = np.bincount(self.bucket, weight, minlength=BUCKETS)
        return np.concatenate([self.links.T @ weight, buckets, ends / 2])

    def squares(self, weight: Floats) -> Floats:
        """As ``totals``, of the squares of what each walk gives."""
        squared = csr_array((self.links.data**2, self.links.indices, self.links.indptr), self.links.shape)
        ends = np.bincount(self.origin, weight, minlength=self.cells)
        ends += np.bincount(self.destination, weight, minlength=self.cells)
        buckets = np.bincount(self.bucket, weight, minlength=BUCKETS)
        return np.concatenate([squared.T @ weight, buckets, ends / 4])


@dataclass(frozen=True, eq=False)
class Wanted:
    """Trips by link and by end cell, and the variances of the noise that was on them."""

    links: Floats
    link_variance: float
    ends: Floats
    end_variance: float


def fit_taste(traits: Traits, weight: Floats, lengths: Floats, others: Wanted | None) -> Floats:
    """The taste with which walks that are proposed with ``weight`` fill the buckets like ``lengths``
    (trips by bucket) and, if asked, follow the other counts.

    Buckets are matched by raking, the rest by penalised likelihood, in turns.
    """
    rows = np.flatnonzero(weight > 0)
    traits, base = traits.take(rows), np.log(weight[rows] / weight.sum())
    links, cells = traits.links.shape[1], traits.cells
    parts = [links, BUCKETS, cells]
    buckets = np.repeat([False, True, False], parts)
    total = max(float(lengths.sum()), 1.0)
    wanted = np.concatenate([np.zeros(links), lengths / total, np.zeros(cells)])
    if others is not None:
        wanted[:links] = others.links / others.links.sum()
        wanted[links + BUCKETS :] = others.ends / others.ends.sum()
    chance = np.exp(base)
    offered = traits.totals(chance) > _NOTHING
    noise = np.zeros(len(wanted))
    if others is not None:
        noise = np.repeat([others.link_variance, 0.0, others.end_variance], parts) * (_CAUTION / total)
    # Rare links move little for a given change of taste: on a scale of equal curvature all are found alike.
    scale = 1 / np.sqrt(traits.squares(chance) + noise + _NOTHING**2)
    bound = np.repeat([_LINKS, 0.0, _ENDS], parts) / scale

    def likelihood(scaled: Floats, fixed: Floats) -> tuple[float, Floats]:
        taste = scale * scaled
        chance, log_sum = _chances(fixed + traits.scores(taste))
        value = log_sum - taste @ wanted + 0.5 * (noise * taste) @ taste
        slope = scale * (traits.totals(chance) - wanted + noise * taste)
        return value, np.where(buckets, 0.0, slope)

    taste, rake = np.zeros(len(wanted)), np.zeros(len(wanted))
    for turn in range(_TURNS + 1):
        have = traits.totals(_chances(base + traits.scores(taste + rake))[0])
        change = np.log(np.maximum(wanted, 2 * _NOTHING) / np.maximum(have, _NOTHING))
        rake = np.where(buckets & offered, np.clip(rake + change, _RAREST, _DEAREST), 0.0)
        if turn < _TURNS and others is not None:
            found = minimize(
                likelihood, taste / scale, args=(base + traits.scores(rake),), jac=True, method="L-BFGS-B",
                bounds=np.column_stack([-bound, bound]), options={"maxiter": _ITERATIONS},
            )  # fmt: skip
            taste = scale * found.x
    # A bucket that was hardly ever offered tells nothing: it stays as rare as the rarest.
    return np.where(buckets & ~offered, _RAREST, taste + rake)


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


__all__ = ["Traits", "Wanted", "fit_taste"]

"""From noisy measurements to a model whose walks agree with them. Post-processing.

1. *Ends*: the noisy number of ends of each cell is combined with its traffic (from crossings well above the
noise), and the noisy
   count of each block of pairs with gravity, what independent ends would give.
2. *Network prior*: the released pairs walk over the public roads, which know distance but no taste. The
crossings they make are
   combined with the measured ones by inverse variance.
3. *Calibration*: link costs are raised where walks cross more than the combined estimate, lowered where
they cross less, and
   the walks are drawn again. Costs are relative: the usual crossing costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from trajectories.lengths import distance_weights, fit_weights
from trajectories.model import TripModel
from trajectories.origin_destination import PairBlocks
from trajectories.prior import cell_traffic, combine, combine_blocks, non_negative
from trajectories.sampler import Effort, EndPicker, TripSampler, fewer
from trajectories.states import Floats, StateGraph
from trajectories.transitions import GRID, Weights, count_links
from trajectories.walks import Walks

_ROUNDS = 6
_TRIPS = 1000
_STEP = 0.7
_CLOSED = 4.0  # first cost of a link that carries nothing
_LEAST, _MOST = -5.0, 8.0
_SIGNAL = 2.0  # standard deviations of the noise that a crossing must exceed to speak for its cells
_FIT_EFFORT = Effort(destinations=100)


@dataclass(frozen=True, eq=False)
class Measured:
    """The noisy measurements. Released: whoever has them may compute anything from them."""

    links: Floats | None  # None when the ways between the ends are not known
    link_variance: float
    pairs: PairBlocks
    pair_variance: float
    ends: Floats
    end_variance: float
    lengths: Floats | None
    weights: Weights


def calibrate(
    model: TripModel, measured: Measured, rng: np.random.Generator, *, rounds: int = _ROUNDS
) -> TripModel:
    """The model with ends, pairs, link costs and selection weights that follow from the measurements."""
    graph = model.graph
    if measured.links is None or not graph.links:
        even = cell_traffic(graph, np.zeros(graph.links))  # PrivTree's cells hold about as many ends each
        return _with_ends(model, measured, even)
    deviation = float(np.sqrt(measured.link_variance))
    traffic = cell_traffic(graph, np.where(measured.links > _SIGNAL * deviation, measured.links, 0.0))
    model = _with_ends(model, measured, traffic)
    model, walks = _draw(model, measured, rng)
    expected = _crossings(graph, walks, measured.weights) * model.total
    goal = combine(measured.links, expected, measured.link_variance)
    model = model.but(link_cost=np.where(goal > 0, 0.0, _CLOSED))
    for _ in range(rounds):
        model, walks = _draw(model, measured, rng)
        crossed = _crossings(graph, walks, measured.weights) * model.total
        change = _STEP * np.log((crossed + 1.0) / (goal + 1.0))
        cost = model.link_cost + change
        # The usual crossing is free: else every cell on the way would make detours dearer.
        cost -= np.average(cost, weights=crossed + 1e-9)
        model = model.but(link_cost=np.clip(cost, _LEAST, _MOST), end_weight=_popularity(graph, walks))
    return _draw(model, measured, rng)[0]


def _with_ends(model: TripModel, measured: Measured, traffic: Floats) -> TripModel:
    """Where trips end: the measured ends of each cell combined with its traffic; blocks of pairs
    combined with gravity.
    """
    blocks = measured.pairs
    expected = traffic / traffic.sum() * max(float(blocks.count.sum()), 1.0)
    ends = combine(measured.ends, expected, measured.end_variance)
    # A little everywhere: any place that exists may be asked for.
    weight = np.where(traffic > 0, ends + 1e-3 * expected + 1e-9, 0.0)
    counts = combine_blocks(blocks, measured.pair_variance, weight)
    return model.but(pairs=replace(blocks, count=counts), cell_weight=weight)


def _draw(model: TripModel, measured: Measured, rng: np.random.Generator) -> tuple[TripModel, Walks]:
    """Walks of the model, after the selection weights were fitted to what it proposes."""
    sampler = TripSampler(model, _FIT_EFFORT)
    if measured.lengths is None:
        return model, sampler.draw(_TRIPS, rng)
    origin, destination = EndPicker(model).draw(_TRIPS, rng)
    destination = fewer(destination, model.graph.cell, _FIT_EFFORT.destinations, rng)
    pool = sampler.pool(origin, destination, rng)
    target = non_negative(measured.lengths, model.total)
    length = fit_weights(target, pool.bucket[pool.number], pool.weight[pool.number])
    plain = EndPicker(model.but(distance_weight=None)).draw(_TRIPS, rng)
    apart = np.hypot(*(model.graph.xy[plain[0]] - model.graph.xy[plain[1]]).T)
    distance = distance_weights(target, apart, rng)
    walks = pool.choose(length, rng)
    model = model.but(length_weight=length, distance_weight=distance)
    return model, walks.take(np.flatnonzero(walks.found))


def _crossings(graph: StateGraph, walks: Walks, weights: Weights) -> Floats:
    """Crossings of each link, for one trip on average."""
    return GRID.value(count_links(graph, walks.states, walks.start, weights)) / max(walks.size, 1)


def _popularity(graph: StateGraph, walks: Walks) -> Floats:
    """Ends lie along the ways that trips take: metres of a state times how often walks pass it, and a
    little for others.
    """
    passed = np.bincount(walks.states, minlength=graph.size) * (1000.0 / max(walks.size, 1))
    weight: Floats = (passed + 0.01) * graph.size_of
    return weight


__all__ = ["Measured", "calibrate"]

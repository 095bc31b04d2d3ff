"""From noisy measurements to a model whose walks agree with them. Post-processing.

1. *Ends*: the traffic of each cell, from crossings well above the noise, says where in a block trips end; blocks combine
   their noisy count with gravity.
2. *Network prior*: the released pairs walk over the public roads, which know distance but no taste. The crossings they make are
   combined with the measured ones by inverse variance.
3. *Calibration*: link costs are raised where walks cross more than the combined estimate, lowered where they cross less, and
   the walks are drawn again. A cost is never negative, so the chain always keeps its killing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from trajectories.lengths import distance_weights, length_weights
from trajectories.lengths import table as length_table
from trajectories.model import TripModel
from trajectories.origin_destination import PairBlocks
from trajectories.prior import cell_traffic, combine_blocks, combine_links
from trajectories.sampler import Effort, EndPicker, TripSampler, fewer
from trajectories.states import Floats, StateGraph
from trajectories.transitions import GRID, Weights, count_links
from trajectories.walks import Walks

_ROUNDS = 6
_TRIPS = 1000
_STEP = 0.7
_CLOSED = 4.0  # first cost of a link that carries nothing
_MOST = 8.0
_SIGNAL = 2.0  # standard deviations of the noise that a crossing must exceed to speak for its cells
_FIT_EFFORT = Effort(destinations=100, walks=1)


@dataclass(frozen=True, eq=False)
class Measured:
    """The noisy measurements. Released: whoever has them may compute anything from them."""

    links: Floats | None  # None when the ways between the ends are not known
    link_variance: float
    pairs: PairBlocks
    pair_variance: float
    lengths: Floats | None
    weights: Weights


def calibrate(
    model: TripModel, measured: Measured, rng: np.random.Generator, *, rounds: int = _ROUNDS
) -> TripModel:
    """The model with ends, pairs, link costs and selection weights that follow from the measurements."""
    graph = model.graph
    if measured.links is None:
        weight = (np.diff(graph.by_cell[1]) > 0).astype(
            np.float64
        )  # PrivTree's cells hold about as many ends each
        return model.but(pairs=_pairs(measured, weight), cell_weight=weight)
    deviation = float(np.sqrt(measured.link_variance))
    traffic = cell_traffic(graph, np.where(measured.links > _SIGNAL * deviation, measured.links, 0.0))
    model = model.but(pairs=_pairs(measured, traffic), cell_weight=traffic)
    model, walks = _draw(model, measured, rng)
    expected = _crossings(graph, walks, measured.weights) * model.total
    goal = combine_links(measured.links, expected, measured.link_variance)
    model = model.but(link_cost=np.where(goal > 0, 0.0, _CLOSED))
    for _ in range(rounds):
        model, walks = _draw(model, measured, rng)
        crossed = _crossings(graph, walks, measured.weights) * model.total
        change = _STEP * np.log((crossed + 1.0) / (goal + 1.0))
        model = model.but(
            link_cost=np.clip(model.link_cost + change, 0.0, _MOST), end_weight=_popularity(graph, walks)
        )
    return _draw(model, measured, rng)[0]


def _pairs(measured: Measured, cell_weight: Floats) -> PairBlocks:
    blocks = measured.pairs
    return replace(blocks, count=combine_blocks(blocks, measured.pair_variance, cell_weight))


def _draw(model: TripModel, measured: Measured, rng: np.random.Generator) -> tuple[TripModel, Walks]:
    """Walks of the model, after the selection weights were fitted to what it proposes."""
    sampler = TripSampler(model, _FIT_EFFORT)
    if measured.lengths is None:
        return model, sampler.draw(_TRIPS, rng)
    origin, destination = EndPicker(model).draw(_TRIPS, rng)
    destination = fewer(destination, model.graph.cell, _FIT_EFFORT.destinations, rng)
    pool = sampler.pool(origin, destination, rng)
    length = length_weights(measured.lengths, length_table(pool.apart, pool.metres, pool.weight))
    plain = EndPicker(model.but(distance_weight=None)).draw(_TRIPS, rng)
    apart = np.hypot(*(model.graph.xy[plain[0]] - model.graph.xy[plain[1]]).T)
    distance = distance_weights(measured.lengths, length_table(apart, apart))
    walks = pool.choose(length, rng)
    model = model.but(length_weight=length, distance_weight=distance)
    return model, walks.take(np.flatnonzero(walks.found))


def _crossings(graph: StateGraph, walks: Walks, weights: Weights) -> Floats:
    """Crossings of each link, for one trip on average."""
    return GRID.value(count_links(graph, walks.states, walks.start, weights)) / max(walks.size, 1)


def _popularity(graph: StateGraph, walks: Walks) -> Floats:
    """Ends lie along the ways that trips take: metres of a state times how often walks pass it, and a little for others."""
    passed = np.bincount(walks.states, minlength=graph.size) * (1000.0 / max(walks.size, 1))
    weight: Floats = (passed + 0.01) * graph.size_of
    return weight


__all__ = ["Measured", "calibrate"]

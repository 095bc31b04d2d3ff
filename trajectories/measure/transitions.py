"""Transitions between cells: measured on every link, with a trip's weight shared over its crossings.

Guarantee
---------
A trip that crosses n links adds α(n, 1), ..., α(n, n) to them, in grid steps of 2^-20, each rounded down,
with a sum of at most 1. Adding or removing one trip therefore moves the counts by at most 1 in L1, and
discrete Laplace noise of scale 1/ε on *every* link, also those that no trip crosses, is ε-differentially
private (Laplace mechanism). Which links exist follows from the roads and the released partition.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from synthgeo.arrays import Floats, Ints
from synthgeo.hierarchy.privtree import GRID
from synthgeo.privacy.noise import Noise
from synthgeo.ragged import owners_of, ranks_of
from trajectories.ground.state_graph import StateGraph
from trajectories.parts.columns import total

Weights = Literal["uniform", "ends"]


def crossing_shares(crossings: Ints, weights: Weights) -> Ints:
    """Grid steps for each crossing of trips with so many crossings, one trip after the other.

    ``"uniform"``: 1/n each. ``"ends"``: proportional to 2^-min(i - 1, n - i), so that the quiet streets
    near both ends of long trips are heard (Kumar's equation 5.10, as its text means it).

    >>> crossing_shares(np.array([4]), "ends") / GRID.one
    array([0.33333302, 0.16666603, 0.16666603, 0.33333302])
    """
    trip = np.repeat(np.arange(len(crossings)), crossings)
    count = crossings[trip]
    if weights == "uniform":
        return GRID.one // count
    place = ranks_of(crossings)
    depth = np.minimum(place, count - 1 - place)
    raw = np.exp2(-np.minimum(depth, 60).astype(np.float64))
    total = np.bincount(trip, raw, minlength=len(crossings))
    # A hair below the quotient: rounding of the sum must never lift the shares of a trip above 1.
    return GRID.floor(raw / total[trip] * (1 - 1e-12))


def count_links(graph: StateGraph, states: Ints, start: Ints, weights: Weights) -> Ints:
    """Exact weighted crossings of each link, in grid steps. ``states`` are joined-up sequences. Private."""
    trip = owners_of(start)
    inner = trip[1:] == trip[:-1]
    link = graph.link_between(graph.cell[states[:-1]], graph.cell[states[1:]])
    link, trip = link[inner], trip[:-1][inner]
    crossed = link >= 0
    link, trip = link[crossed], trip[crossed]
    crossings = np.bincount(trip, minlength=len(start) - 1)
    shares = crossing_shares(crossings, weights)
    out = np.zeros(graph.links, dtype=np.int64)
    np.add.at(out, link, shares)
    return out


def measure_links(
    graph: StateGraph,
    states: Ints,
    start: Ints,
    *,
    epsilon: float,
    noise: Noise,
    weights: Weights = "uniform",
) -> Floats:
    """Noisy crossings of every link, ε-differentially private; may be negative."""
    exact = total(count_links, graph, states, start, weights)
    return GRID.value(exact + noise.discrete_laplace(GRID.one / epsilon, exact.size))


__all__ = ["Weights", "count_links", "crossing_shares", "measure_links"]

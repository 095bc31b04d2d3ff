"""Transitions between cells: measured on every link, with a trip's weight shared over its crossings.

A busy link of a plane is counted in segments of the side that it crosses (``trajectories.measure.segments``).

Guarantee
---------
A trip that crosses n links adds α(n, 1), ..., α(n, n) to them, in grid steps of 2^-20, each rounded down,
with a sum of at most 1; where a link has segments, to that one of them in which the trip crosses it. Adding
or removing one trip therefore moves the counts by at most 1 in L1, and discrete Laplace noise of scale 1/ε on
*every* link and segment, also those that no trip crosses, is ε-differentially private (Laplace mechanism).
Which links exist follows from the roads and the released partition, which have segments from what was
released before, and where a trip crosses from its own points.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from synthgeo.arrays import Floats, Ints
from synthgeo.hierarchy.privtree import GRID
from synthgeo.privacy.noise import Noise
from synthgeo.ragged import offsets_of, owners_of, ranks_of
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


def count_links(
    graph: StateGraph,
    states: Ints,
    start: Ints,
    weights: Weights,
    along: Floats | None = None,
    halvings: Ints | None = None,
) -> Ints:
    """Exact weighted crossings of each link, in grid steps. ``states`` are joined-up sequences. Where links
    are halved, of each segment, one link after the other; trips go so far ``along`` sides. Private.
    """
    trip = owners_of(start)
    inner = trip[1:] == trip[:-1]
    link = graph.link_between(graph.cell[states[:-1]], graph.cell[states[1:]])
    at = np.flatnonzero(inner & (link >= 0))
    link, trip = link[at], trip[at]
    crossings = np.bincount(trip, minlength=len(start) - 1)
    shares = crossing_shares(crossings, weights)
    counters = graph.links
    if along is not None and halvings is not None:
        first = segment_offsets(halvings)
        number = 1 << halvings[link]
        link = first[link] + np.minimum((along[at] * number).astype(np.int64), number - 1)
        counters = int(first[-1])
    out = np.zeros(counters, dtype=np.int64)
    np.add.at(out, link, shares)
    return out


def segment_offsets(halvings: Ints) -> Ints:
    """Offsets of the segments of links that are halved so often; one that is not is a segment by itself."""
    return offsets_of(1 << halvings)


def measure_links(
    graph: StateGraph,
    states: Ints,
    start: Ints,
    *,
    epsilon: float,
    noise: Noise,
    weights: Weights = "uniform",
    along: Floats | None = None,
    halvings: Ints | None = None,
) -> Floats:
    """Noisy crossings of every link, or segment, ε-differentially private; may be negative."""
    exact = total(count_links, graph, states, start, weights, along, halvings)
    return GRID.value(exact + noise.discrete_laplace(GRID.one / epsilon, exact.size))


__all__ = ["Weights", "count_links", "crossing_shares", "measure_links", "segment_offsets"]

"""Where along their sides cells are crossed: weights of segments from noisy counts. Post-processing."""

from __future__ import annotations

import numpy as np

from synthgeo.arrays import Floats, Ints
from synthgeo.ragged import offsets_of, owners_of, ranks_of
from trajectories.fit.posterior import posterior_means
from trajectories.ground.cell_lines import Segments
from trajectories.ground.state_graph import StateGraph
from trajectories.measure.measured import Measured
from trajectories.measure.transitions import segment_offsets

_LEAST = 0.1  # of the mean of its side, what is expected of a segment at least: lines stray
_MOST = 20.0  # weight of a segment, and one over the least


def even_segments(graph: StateGraph, halvings: Ints | None) -> Segments | None:
    """The segments of sides, all alike; None where no link has some."""
    if halvings is None or not halvings.any():
        return None
    number = np.zeros(int(graph.side_of_step.max()) + 1, dtype=np.int64)
    cut = np.flatnonzero(halvings)
    number[graph.side_of_step[cut]] = 1 << halvings[cut]
    first = offsets_of(number)
    return Segments(first, np.ones(int(first[-1])))


def weigh_segments(graph: StateGraph, measured: Measured, even: Segments, expected: Floats) -> Segments:
    """Weights with which lines cross segments as was measured, where ``expected`` of them do when all weigh
    the same: the mean, given the noisy count, of the multiple of what is expected.
    """
    assert measured.links is not None
    assert measured.halvings is not None
    side = owners_of(even.first)
    count, offered = (both_ways(graph, measured.halvings, even, of) for of in (measured.links, expected))
    sums, sides = np.bincount(side, count), np.bincount(side, offered)
    variance = 2 * measured.link_variance
    number = np.diff(even.first)[: len(sums)]
    total = np.maximum(sums, np.sqrt(variance * number))
    mean = (total / np.maximum(number, 1))[side]
    usual = np.maximum(offered * (total / np.maximum(sides, 1e-300))[side], _LEAST * mean)
    found, _ = posterior_means(count, usual, np.full(len(count), variance))
    return even._replace(weight=np.clip(found / usual, 1 / _MOST, _MOST))


def both_ways(graph: StateGraph, halvings: Ints, segments: Segments, links: Floats) -> Floats:
    """Crossings of each segment of sides, the two directions together."""
    cut = np.flatnonzero(halvings)
    size = 1 << halvings[cut]
    rank = ranks_of(size)
    segment = np.repeat(segments.first[graph.side_of_step[cut]], size) + rank
    counted = links[np.repeat(segment_offsets(halvings)[cut], size) + rank]
    sums: Floats = np.bincount(segment, counted, minlength=len(segments.weight)).astype(np.float64)
    return sums


__all__ = ["both_ways", "even_segments", "weigh_segments"]

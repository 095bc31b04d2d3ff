"""How long trips are, and how far they spread: one private table.

A conditional walk knows where to go but not how much detour real trips make. A trip falls into one bucket
of its path's length (thirds of octaves) and one of its compactness, the path's diameter over its length
(thirds): a loop and a straight run of the same length differ there. On roads the path is the matched one,
elsewhere the line through the trip's own points: either way a function of one trip.

Guarantee
---------
A trip counts 1 in one bucket: L1 sensitivity 1. Discrete Laplace noise of scale 1/ε on every bucket of the
public table is ε-differentially private.
"""

from __future__ import annotations

import numpy as np

from synthgeo.arrays import Floats, Ints
from synthgeo.privacy.noise import Noise
from trajectories.ground.extent import extents
from trajectories.ground.state_graph import StateGraph
from trajectories.parts.columns import total

_SHORTEST = 125.0  # metres: the upper end of the first bucket
_OCTAVES = 10  # to 128 km
_PARTS = 3  # buckets an octave
_LENGTHS = _OCTAVES * _PARTS + 2
_COMPACT = 3
BUCKETS = _LENGTHS * _COMPACT


def bucket(metres: Floats, diameter: Floats) -> Ints:
    """Bucket of trips with a path of so many ``metres`` and this ``diameter``."""
    octave = np.log2(np.maximum(metres, 1e-9) / _SHORTEST) * _PARTS
    length = np.clip(np.floor(octave).astype(np.int64) + 1, 0, _LENGTHS - 1)
    compact = np.clip(np.floor(_COMPACT * diameter / np.maximum(metres, 1e-9)), 0, _COMPACT - 1)
    index: Ints = length * _COMPACT + compact.astype(np.int64)
    return index


def path_shapes(graph: StateGraph, states: Ints, start: Ints) -> tuple[Floats, Floats]:
    """Metres from state to state along sequences of states, and their diameters (0 for empty ones)."""
    return extents(graph.xy, states, start)


def count_lengths(metres: Floats, diameter: Floats) -> Ints:
    """Trips in each bucket. Private when the trips are."""
    return np.bincount(bucket(metres, diameter), minlength=BUCKETS)


def measure_lengths(metres: Floats, diameter: Floats, *, epsilon: float, noise: Noise) -> Floats:
    """Noisy trips in each bucket, ε-differentially private; may be negative."""
    exact = total(count_lengths, metres, diameter)
    return (exact + noise.discrete_laplace(1 / epsilon, exact.size)).astype(np.float64)


__all__ = ["BUCKETS", "bucket", "count_lengths", "measure_lengths", "path_shapes"]

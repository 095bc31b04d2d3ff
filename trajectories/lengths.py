"""How long trips are for how far apart their ends are: one private histogram, and its use to choose among walks.

A conditional walk knows where to go but not how much detour real trips make. A trip falls into one bucket of the straight distance
between its ends (octaves) and one of the length of its path (thirds of octaves).

Guarantee
---------
A trip counts 1 in one bucket: L1 sensitivity 1. Discrete Laplace noise of scale 1/ε on every bucket of the public table is
ε-differentially private.
"""

from __future__ import annotations

import numpy as np

from synthgeo.privacy.noise import Noise
from trajectories.prior import non_negative
from trajectories.states import Floats, Ints

_SHORTEST = 125.0  # metres: the upper end of the first bucket
_OCTAVES = 10  # to 128 km
_PARTS = 3  # length buckets an octave
DISTANCES = _OCTAVES + 2
LENGTHS = _OCTAVES * _PARTS + 2


def buckets(distance: Floats, length: Floats) -> tuple[Ints, Ints]:
    """Bucket of the distance between the ends, and of the length of the path."""

    def bucket(metres: Floats, parts: int) -> Ints:
        octave = np.log2(np.maximum(metres, 1e-9) / _SHORTEST) * parts
        return np.clip(np.floor(octave).astype(np.int64) + 1, 0, _OCTAVES * parts + 1)

    return bucket(distance, 1), bucket(length, _PARTS)


def table(distance: Floats, length: Floats, weight: Floats | None = None) -> Floats:
    """Trips in each bucket (or their weights). Private when the trips are."""
    row, column = buckets(distance, length)
    counts = np.bincount(row * LENGTHS + column, weight, minlength=DISTANCES * LENGTHS)
    return counts.reshape(DISTANCES, LENGTHS).astype(np.float64)


def measure_lengths(distance: Floats, length: Floats, *, epsilon: float, noise: Noise) -> Floats:
    """The table with noise, made non-negative."""
    exact = table(distance, length).ravel().astype(np.int64)
    noisy = exact + noise.discrete_laplace(1 / epsilon, exact.size)
    return non_negative(noisy.astype(np.float64)).reshape(DISTANCES, LENGTHS)


def length_weights(target: Floats, proposed: Floats) -> Floats:
    """Weights of a path by its distance and length that turn the lengths proposed for a distance into the target's.

    A distance of which the target knows nothing leaves lengths as they are proposed.
    """
    known = target.sum(axis=1, keepdims=True)
    wanted = target / np.maximum(known, 1e-300)
    offered = proposed / np.maximum(proposed.sum(axis=1, keepdims=True), 1e-300)
    return np.where(known > 0, (wanted + 1e-4) / (offered + 1e-3), 1.0)


def distance_weights(target: Floats, proposed: Floats) -> Floats:
    """Weights of a pair of ends by their distance that turn the distances proposed into the target's."""
    wanted = (target.sum(axis=1) + 1e-3 * target.sum()) / max(float(target.sum()), 1e-300)
    offered = proposed.sum(axis=1) / max(float(proposed.sum()), 1e-300)
    weights: Floats = wanted / (offered + 1e-2)
    return weights


__all__ = [
    "DISTANCES",
    "LENGTHS",
    "buckets",
    "distance_weights",
    "length_weights",
    "measure_lengths",
    "table",
]

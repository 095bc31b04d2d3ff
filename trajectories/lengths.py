"""How long trips are and how straight: one private table, and its use to choose among walks.

A conditional walk knows where to go but not how much detour real trips make. A trip falls into one bucket
of its path's length (thirds of octaves) and one of its straightness, the distance between its ends over
that length (thirds).

Guarantee
---------
A trip counts 1 in one bucket: L1 sensitivity 1. Discrete Laplace noise of scale 1/ε on every bucket of the
public table is ε-differentially private.
"""

from __future__ import annotations

import numpy as np

from synthgeo.privacy.noise import Noise
from trajectories.states import Floats, Ints

_SHORTEST = 125.0  # metres: the upper end of the first bucket
_OCTAVES = 10  # to 128 km
_PARTS = 3  # buckets an octave
_LENGTHS = _OCTAVES * _PARTS + 2
_STRAIGHT = 3
BUCKETS = _LENGTHS * _STRAIGHT
DISTANCES = 2 * _OCTAVES + 2
_FIT_ROUNDS = 25


def bucket(apart: Floats, metres: Floats) -> Ints:
    """Bucket of trips with ends so far ``apart`` and a path of so many ``metres``."""
    length = _logarithmic(metres, _PARTS)
    straight = np.clip(np.floor(_STRAIGHT * apart / np.maximum(metres, 1e-9)), 0, _STRAIGHT - 1)
    return length * _STRAIGHT + straight.astype(np.int64)


def distance_bucket(apart: Floats) -> Ints:
    """Bucket of a distance between ends: half octaves."""
    return _logarithmic(apart, 2)


def _logarithmic(metres: Floats, parts: int) -> Ints:
    octave = np.log2(np.maximum(metres, 1e-9) / _SHORTEST) * parts
    index: Ints = np.clip(np.floor(octave).astype(np.int64) + 1, 0, _OCTAVES * parts + 1)
    return index


def count_lengths(apart: Floats, metres: Floats) -> Ints:
    """Trips in each bucket. Private when the trips are."""
    return np.bincount(bucket(apart, metres), minlength=BUCKETS)


def measure_lengths(apart: Floats, metres: Floats, *, epsilon: float, noise: Noise) -> Floats:
    """Noisy trips in each bucket, ε-differentially private; may be negative."""
    exact = count_lengths(apart, metres)
    return (exact + noise.discrete_laplace(1 / epsilon, exact.size)).astype(np.float64)


def fit_weights(target: Floats, choices: Ints, chance: Floats) -> Floats:
    """A weight for each bucket, such that choosing one walk a row in proportion to chance x weight fills
    buckets like ``target``.

    ``choices[i]`` are the buckets of the walks offered to trip i, ``chance`` their weights otherwise.
    """
    weight = np.ones(len(target))
    offered = np.bincount(choices.ravel(), chance.ravel() > 0, minlength=len(target)) > 0
    wanted = np.where(offered, target, 0.0)  # no weight can bring what is never offered
    wanted = wanted / max(float(wanted.sum()), 1e-300)
    for _ in range(_FIT_ROUNDS):
        share = weight[choices] * chance
        share /= np.maximum(share.sum(axis=1, keepdims=True), 1e-300)
        have = np.bincount(choices.ravel(), share.ravel(), minlength=len(target)) / max(len(choices), 1)
        weight *= np.where(offered, np.clip((wanted + 1e-4) / (have + 1e-4), 0.2, 5.0), 1.0)
        weight = np.maximum(weight / weight[offered].max(initial=1e-300), 1e-9)
    return weight


def distance_weights(target: Floats, proposed: Floats, rng: np.random.Generator) -> Floats:
    """Weights of a pair of ends by their distance that turn the distances proposed into those that
    ``target`` implies.
    """
    copies = 64
    cell = np.repeat(np.arange(BUCKETS), copies)
    octave = (cell // _STRAIGHT - 1 + rng.random(len(cell))) / _PARTS
    straight = (cell % _STRAIGHT + rng.random(len(cell))) / _STRAIGHT
    apart = distance_bucket(straight * _SHORTEST * np.exp2(octave))
    implied = np.bincount(apart, np.repeat(target, copies), minlength=DISTANCES)
    wanted = implied / max(float(implied.sum()), 1e-300)
    offered = np.bincount(distance_bucket(proposed), minlength=DISTANCES) / max(len(proposed), 1)
    weights: Floats = (wanted + 1e-3) / (offered + 1e-2)
    return weights


__all__ = [
    "BUCKETS",
    "bucket",
    "count_lengths",
    "distance_bucket",
    "distance_weights",
    "fit_weights",
    "measure_lengths",
]

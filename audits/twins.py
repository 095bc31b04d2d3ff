"""Broken mechanisms. Each is wrong in one way that has happened in a paper, a library or a draft; audits must
catch it.

Nothing outside the tests and ``benchmarks/audit.py`` imports these.
"""

from __future__ import annotations

import math

import numpy as np

from streams.counters import make_bank
from synthgeo.privacy.noise import SeededNoise
from synthgeo.privacy.selection import exponential_mechanism, permute_and_flip

# --- the honest mechanisms, in the form that ``audit(batched=True)`` takes ---


def laplace_count(count, noise, n, *, epsilon=1.0, factor=1.0):
    """A count with discrete Laplace noise; ``factor`` below 1 is a twin with too little noise."""
    return (count + noise.discrete_laplace(factor / epsilon, n))[:, None]


def gaussian_count(count, noise, n, *, sigma):
    return (count + noise.discrete_gaussian(sigma, n))[:, None]


def select(scores, noise, *, mechanism=exponential_mechanism, epsilon=1.0, monotonic=False):
    return mechanism(scores, epsilon=epsilon, sensitivity=1.0, noise=noise, monotonic=monotonic)


def select_flip(scores, noise, **options):
    return select(scores, noise, mechanism=permute_and_flip, **options)


def counter(series, noise, n, *, kind, epsilon, factor=1.0):
    """n copies of one counter over a short series, all outputs. ``factor`` below 1 divides the noise."""
    bank = make_bank(kind, epsilon=epsilon / factor, noise=noise, horizon=len(series))
    slots = bank.add(n)
    return np.stack([bank.step(slots, np.full(n, value)) for value in series], axis=1)


# --- twins ---


def float_laplace(count, noise, n, *, epsilon=1.0):
    """Laplace noise as textbooks draw it: a logarithm of a double. Its low bits tell the inputs apart
    (Mironov 2012).
    """
    u = noise.rng.random(n) - 0.5
    return (count - np.sign(u) * np.log1p(-2 * np.abs(u)) / epsilon)[:, None]


def off_by_one_count(count, noise, n, *, epsilon=1.0):
    """A unit moves two counts (a histogram and its total, say); the noise is for one."""
    return np.stack([count + noise.discrete_laplace(1 / epsilon, n) for _ in range(2)], axis=1)


def log2_binary_counter(series, noise, n, *, epsilon):
    """The binary tree with the printed scale log2(T) / ε in place of (floor(log2 T) + 1) / ε."""
    horizon = len(series)
    return counter(
        series,
        noise,
        n,
        kind="binary",
        epsilon=epsilon,
        factor=math.log2(horizon) / (math.floor(math.log2(horizon)) + 1),
    )


def reused_seed(count, noise, n, *, epsilon=1.0):
    """A fixed default seed: the noise is the same in every run, and anybody can subtract it."""
    return (count + SeededNoise(7).discrete_laplace(1 / epsilon, 1) + np.zeros(n, dtype=np.int64))[:, None]


def noise_drawn_twice(count, noise, n, *, epsilon=1.0):
    """A retried task releases the same batch again, with fresh noise."""
    return np.stack([count + noise.discrete_laplace(1 / epsilon, n) for _ in range(2)], axis=1)


def no_noise_at_zero_sensitivity(count, noise, n, *, sensitivity=0.0, epsilon=1.0):
    """A sensitivity of zero read as "no noise needed"."""
    scale = sensitivity / epsilon
    drawn = noise.discrete_laplace(scale, n) if scale > 0 else np.zeros(n, dtype=np.int64)
    return (count + drawn)[:, None]

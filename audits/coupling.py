"""How far noise has to be shifted for two worlds to release the same, step by step.

For an online mechanism that adds one draw a step to something known: in world B the draw that gives world A's
release is found by trying, from the outputs alone. The shifts say how well the worlds can be told apart.
"""

from __future__ import annotations

import copy
import math

import numpy as np
from scipy.optimize import brentq
from scipy.stats import binom

from synthgeo.privacy.noise import Noise, SeededNoise


class NextDraw(Noise):
    """Answers every question with ``value``; remembers the σ it was asked for."""

    def __init__(self):
        self.value, self.sigma = 0, math.nan

    def discrete_gaussian(self, sigma, size):
        self.sigma = sigma
        return np.full(size, self.value, dtype=np.int64)

    def words(self, count):
        """Random bits, of which ``value`` more than half are set: a binomial draw of ``value``."""
        self.sigma = math.sqrt(64 * count) / 2
        bits = np.zeros(64 * count, dtype=np.uint8)
        bits[: 32 * count + self.value] = 1
        return np.packbits(bits).view(np.uint64)

    def _bytes(self, count):
        raise AssertionError("one draw a step is all that a coupling follows")

    @property
    def rng(self):
        return SeededNoise(0).rng

    def state(self):
        return {"kind": "next"}


def coupled_shifts(make, pair, draws, *, read=None):
    """[(shift, σ)] of every step (of those in ``read``, if not all draw): world B's draw less world A's, for
    the same release.
    """
    one, other = (make(noise=NextDraw()) for _ in range(2))
    found = []
    for t, (a, b, draw) in enumerate(zip(*pair, draws, strict=True)):
        one.noise.value = draw
        released = one.update(a)
        if read is not None and t not in read:
            np.testing.assert_equal(other.update(b), released)  # NaN equals NaN here
            continue
        tried = []
        for value in (draw, draw + 1):
            trial = copy.deepcopy(other)
            trial.noise.value = value
            tried.append(trial.update(b))
        shift = round((released - tried[0]) / (tried[1] - tried[0]))
        other.noise.value = draw + shift
        assert other.update(b) == released
        found.append((shift, one.noise.sigma))
    return found


def binomial_epsilon(shifts, delta):
    """Exact ε at ``delta`` of centred binomial draws (σ² = half / 2) with these shifts."""
    loss, mass, beyond = np.zeros(1), np.ones(1), 0.0
    for shift, sigma in shifts:
        half = round(2 * sigma**2)
        k = np.arange(max(0, math.floor(half - 7 * sigma)), min(2 * half, math.ceil(half + 7 * sigma)) + 1)
        p = binom.pmf(k, 2 * half, 0.5)
        # Where the shifted draw cannot be, the loss is infinite.
        inside = (k + shift >= 0) & (k + shift <= 2 * half)
        beyond += (1 - beyond) * float(p[~inside].sum())
        step = binom.logpmf(k[inside], 2 * half, 0.5) - binom.logpmf(k[inside] + shift, 2 * half, 0.5)
        loss = (loss[:, None] + step[None, :]).ravel()
        mass = (mass[:, None] * p[inside][None, :]).ravel()
        heavy = mass > 1e-12
        loss, mass = loss[heavy], mass[heavy]

    def excess(epsilon):
        return beyond + float((mass * np.maximum(0.0, -np.expm1(epsilon - loss))).sum()) - delta

    return float(brentq(excess, 0.0, 50.0))

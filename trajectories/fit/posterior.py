"""Counts behind noisy ones, by empirical Bayes. Post-processing: released numbers and public facts only.

A count is some multiple of what was expected of it, and how often which multiple occurs is learned from all
counts together: the distribution on a grid of multiples, 0 among them, under which the noisy counts are most
likely (the nonparametric maximum likelihood estimate of Kiefer and Wolfowitz, by expectation maximisation).
The estimate is the mean of the multiple given the noisy count. So nothing has to be cut off: where most
places are empty the grid's 0 has most of the weight, and where many hold a little they keep that little, of
which single counts would not stand out of the noise.
"""

from __future__ import annotations

import numpy as np

from synthgeo.arrays import Floats, Ints

_MULTIPLES = np.concatenate([[0.0], np.exp2(np.arange(-10, 13) / 2)])
_USUAL = np.exp(-0.5 * (np.log2(np.maximum(_MULTIPLES, 2.0**-7)) / 1.5) ** 2)  # before anything is known
_LEVELS = np.array([0.25, 1.0, 4.0, 16.0])  # of what is expected, in standard deviations of the noise
_FIRST, _OWN = 2.0, 5.0  # counts that what is usual, and what all levels together have, weigh as much as
_ROUNDS = 40
_REACH = 3.0  # standard deviations between an estimate and its count at most: multiples beyond the grid exist


def posterior_means(measured: Floats, expected: Floats, variance: Floats) -> tuple[Floats, float]:
    """The mean of each count given its noisy value, with Laplace noise of this variance, and what was
    ``expected`` of it; and the logarithm of the likelihood of all noisy values.
    """
    deviation = np.sqrt(np.maximum(variance, 1e-12))
    counts = expected[:, None] * _MULTIPLES
    scale = deviation[:, None] / np.sqrt(2)
    log_density = -np.abs(measured[:, None] - counts) / scale - np.log(2 * scale)
    top = log_density.max(axis=1, keepdims=True)
    density = np.exp(log_density - top)
    usual = _USUAL / _USUAL.sum()
    together = _learned(density, np.zeros(len(measured), dtype=np.int64), usual, _FIRST)
    level = np.searchsorted(_LEVELS, expected / deviation)
    weight = density * _learned(density, level, together[0], _OWN)[level]
    sums = weight.sum(axis=1)
    means = (weight * counts).sum(axis=1) / sums
    far = _REACH * deviation
    return np.clip(means, measured - far, np.maximum(measured + far, 0.0)), float(
        (np.log(sums) + top[:, 0]).sum()
    )


def _learned(density: Floats, level: Ints, before: Floats, strength: float) -> Floats:
    """The distribution of multiples in each level, which starts from ``before`` and gives it the weight of so
    many counts.
    """
    levels = int(level.max(initial=0)) + 1
    chance = np.tile(before, (levels, 1))
    number = np.bincount(level, minlength=levels)[:, None]
    for _ in range(_ROUNDS):
        weight = density * chance[level]
        weight /= weight.sum(axis=1, keepdims=True)
        sums = np.zeros_like(chance)
        np.add.at(sums, level, weight)
        chance = (sums + strength * before) / (number + strength)
    return chance


__all__ = ["posterior_means"]

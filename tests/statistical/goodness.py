"""Goodness-of-fit tests with stated error probabilities, for discrete samplers.

``dkw``: the largest gap between an empirical and a true distribution function exceeds sqrt(ln(2/α) / (2n))
with probability at most α, for every n and every distribution (Massart's constant). It is an inequality, not
an approximation.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

ALPHA = 1e-9


def dkw_rejects(draws: np.ndarray, cdf, *, alpha: float = ALPHA) -> bool:
    """Whether integer draws are too far from ``cdf`` (a function of integers)."""
    values, counts = np.unique(draws, return_counts=True)
    empirical = np.cumsum(counts) / draws.size
    before = np.concatenate([[0.0], empirical[:-1]])
    # Both functions are steps on the integers: the gap is largest at a drawn value or just before one.
    gap = max(np.abs(empirical - cdf(values)).max(), np.abs(before - cdf(values - 1)).max())
    return bool(gap > math.sqrt(math.log(2 / alpha) / (2 * draws.size)))


def two_sample_rejects(a: np.ndarray, b: np.ndarray, *, alpha: float = ALPHA) -> bool:
    """Whether two samples are too far apart: DKW for each at α/2, and the triangle inequality."""
    grid = np.union1d(a, b)
    gap = np.abs(
        np.searchsorted(np.sort(a), grid, side="right") / a.size
        - np.searchsorted(np.sort(b), grid, side="right") / b.size
    ).max()
    allowed = sum(math.sqrt(math.log(4 / alpha) / (2 * sample.size)) for sample in (a, b))
    return bool(gap > allowed)


def chi_square_rejects(observed: np.ndarray, probabilities: np.ndarray, *, alpha: float = ALPHA) -> bool:
    """Pearson's test; every expected count has to be at least 100, where its tail is close to
    chi-square's."""
    expected = observed.sum() * probabilities
    assert expected.min() >= 100, "merge cells first"
    statistic = float(((observed - expected) ** 2 / expected).sum())
    return bool(stats.chi2.sf(statistic, observed.size - 1) < alpha)


def laplace_cdf(scale: float):
    """Distribution function of discrete Laplace noise."""
    q = math.exp(-1 / scale)

    def cdf(k: np.ndarray) -> np.ndarray:
        k = np.asarray(k, dtype=float)
        return np.where(k < 0, q ** np.maximum(-k, 0) / (1 + q), 1 - q ** (np.maximum(k, 0) + 1) / (1 + q))

    return cdf


def gaussian_cdf(sigma: float):
    """Distribution function of discrete Gaussian noise, summed term by term."""
    reach = math.ceil(12 * sigma) + 12
    support = np.arange(-reach, reach + 1)
    mass = np.exp(-(support**2) / (2 * sigma**2))
    total = np.cumsum(mass / mass.sum())

    def cdf(k: np.ndarray) -> np.ndarray:
        place = np.clip(np.asarray(k) + reach, -1, 2 * reach)
        return np.where(place < 0, 0.0, total[np.maximum(place, 0)])

    return cdf

"""Gaussian noise accounted exactly: Gaussian differential privacy (GDP), and how discrete noise satisfies it.

A mechanism is μ-GDP when telling two neighbours apart by its output is at least as hard as telling N(0, 1)
from N(μ, 1) (Dong, Roth, Su, *Gaussian Differential Privacy*, 2022). Releases that are μ_i-GDP, each chosen
by what came before, are sqrt(sum of μ_i²)-GDP together when that sum is bounded beforehand (their Corollary
2; Smith and Thakurta 2022 where the μ_i themselves follow earlier outputs). The (ε, δ) that μ-GDP implies is
exact, where the detour through zCDP gives away five to ten per cent of the noise.

**Discrete noise.** What we add is discrete, P(z) ∝ e^(-z²/2σ²) on the integers, which is not exactly GDP.
It is *nearly a rounded Gaussian*. Take x an integer and σ² = s² + τ². Draw c from N(x, s²), and round it to
the integer z with probability ∝ e^(-(z-c)²/2τ²). By Poisson summation the sum of e^(-(z-c)²/2τ²) over the
integers z is τ sqrt(2π) (1 ± η) for every c, η = 2 e^(-2π²τ²) + ..., so

    P(z) = ∫ N(c; x, s²) e^(-(z-c)²/2τ²) / (τ sqrt(2π) (1 ± η)) dc = N(z; x, s² + τ²) / (1 ± η),

and the discrete Gaussian at σ is N(z; x, σ²) / (1 ± η) as well. Both laws agree within a factor e^(±4η) in
every point; with τ = 3, η < 10^-76. Rounding is post-processing of a Gaussian with standard deviation s, so
the discrete Gaussian at σ = sqrt(s² + τ²) is 1/s-GDP for sensitivity 1, up to that factor for each cell:
below 10^-60 for any table that fits a computer, and left room for in ``gaussian_mu``. Counts are put on a
grid of 2^-bits first where σ is small, so that τ² adds next to nothing.

**Contrasts.** Where one-way margins are measured anyway, a pair of columns needs only its *interaction*: the
table minus what its margins say, P t for a projection P = P_1 ⊗ ... ⊗ P_d over the d axes (here d = 2), each
P_k taking away the mean over s_k values; a triple of columns (d = 3) whose pairs are measured needs only its
own. One record moves P t by the vector P e of squared length κ = Π (1 - 1/s_k) <= 1: releasing P(t + z) and
nothing else of t + z costs only κ/σ² where the whole table costs 1/σ² (half as much for each yes/no column).
This is the residual basis of Xiao, He, Zhang and Kifer (*ResidualPlanner*, 2023).

*Proof for discrete z.* Let V be the image of P, of tables of n = Π s_k cells. P z lies on the lattice
L = P Z^n of V. The law of P z in y = P z0 is ∝ e^(-|y|²/2σ²) θ(y), where θ sums e^(-|q + k|²/2σ²) over the
integer tables k with P k = 0 and q = z0 - P z0. By Poisson summation θ is constant within 1 ± η', η' the sum
of e^(-2π²σ²|w|²) over the nonzero w of the dual lattice, the tables w = (I - P)v, v integer. Let m_k be the
sums of w along axis k, a table of n/s_k cells: those of P v are 0, so m_k are the sums of v: integers.
Were all of them 0, w would lie in V, and being orthogonal to V it would be 0: so w is known by its m_k, and
not all are 0. By Cauchy and Schwarz |w|² >= |m_k|²/s_k for every k, hence |w|² >= Σ_k |m_k|²/(d s_k), and
1 + η' <= Π_k (Σ_j e^(-2π²σ²j²/(d s_k)))^(n/s_k), j over the integers: η' <= Σ_k (2n/s_k) e^(-2π²σ²/(d s_k))
+ (smaller), below 10^-40 when σ² >= 5.5 d max(s_k), for which the grid is chosen. So P z is, within e^(±2η'),
the discrete Gaussian on L; that one is a rounded Gaussian on V by the argument above, with L in the place of
the integers (its dual, the integer tables in V, is part of Z^n: η is no larger than n times the η above). A
Gaussian on V with standard deviation s, shifted by P e, is sqrt(κ)/s-GDP. ∎

The integers n P t are released, computed exactly: the last bits of a floating-point mean would tell about
the rest of t.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtri

from synthgeo.arrays import Floats, Ints
from synthgeo.errors import ConfigError, InputError
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.noise import Noise, contrast

TAU = 3.0
# Standard deviations in steps of the grid: τ² = 9 adds at most 0.1 per cent.
_FINE = 64.0
_MOST_BITS = 20
_ROOM = 1 - 1e-9


def gaussian_delta(mu: float, epsilon: float) -> float:
    """The least δ such that μ-GDP implies (ε, δ)-differential privacy, for any real ε.

    >>> round(gaussian_delta(1.0, 1.0), 4)
    0.1269
    """
    low, high = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
    first = log_ndtr(low)
    gap = epsilon + log_ndtr(high) - first  # <= 0
    return float(math.exp(first) * -math.expm1(min(gap, 0.0)))


def _composed_delta(mu: float, epsilon: float, losses: Floats, shares: Floats) -> float:
    return float(sum(p * gaussian_delta(mu, epsilon - loss) for loss, p in zip(losses, shares, strict=True)))


@lru_cache(maxsize=1024)
def gaussian_mu(budget: PrivacyBudget, pure: Sequence[float] = ()) -> float:
    """The largest μ such that a μ-GDP mechanism keeps the budget, beside mechanisms of pure ε.

    Guarantee
    ---------
    μ-GDP and the pure mechanisms together, run in any order and each chosen by what came before, satisfy
    the budget. A mechanism of pure ε is at least as hard to see through as randomised response with that ε
    (Kairouz, Oh, Viswanath 2015), whose privacy loss is ε with probability e^ε / (1 + e^ε) and else -ε;
    losses of composed mechanisms add up, so δ(ε) is the mean of ``gaussian_delta(μ, ε - loss)`` over the
    losses of the pure part.

    >>> round(gaussian_mu(PrivacyBudget(1.0, 1e-9)), 4)
    0.182
    """
    if budget.is_pure:
        raise ConfigError("Gaussian noise needs a budget with delta > 0, got a pure one")
    losses: Floats = np.zeros(1)
    shares: Floats = np.ones(1)
    for epsilon in pure:
        yes = 1 / (1 + math.exp(-epsilon))
        losses = np.concatenate([losses + epsilon, losses - epsilon])
        shares = np.concatenate([shares * yes, shares * (1 - yes)])
        merged, where = np.unique(np.ceil(losses * 2.0**40), return_inverse=True)  # rounded up: never too few
        losses, shares = merged / 2.0**40, np.bincount(where, weights=shares).astype(np.float64)
    goal = math.log(budget.delta * _ROOM)

    def excess(log_mu: float) -> float:
        found = _composed_delta(math.exp(log_mu), budget.epsilon * _ROOM, losses, shares)
        return (math.log(found) if found > 0 else -1e4) - goal

    least, most = math.log(1e-15), math.log(math.sqrt(2 * budget.epsilon) + 20.0)
    if excess(least) > 0:
        raise ConfigError("the purely private parts leave nothing of the budget for Gaussian noise")
    return math.exp(float(brentq(excess, least, most, xtol=1e-13, rtol=1e-13))) * _ROOM


def grid_bits(sigma: float, shape: Sequence[int]) -> int:
    """Bits of the grid on which noise of standard deviation ``sigma`` is drawn: fine enough for the proofs
    above, for a table of this shape.
    """
    wanted = max(_FINE, math.sqrt(5.5 * len(shape) * max(shape)))
    return min(max(0, math.ceil(math.log2(wanted / sigma))), _MOST_BITS)


def noisy_counts(counts: Ints, sigma: float, noise: Noise) -> Floats:
    """Counts of which it is private how many there are, with Gaussian noise of standard deviation ``sigma``.

    Guarantee
    ---------
    Δ/σ-GDP where Δ is the L2 sensitivity of the counts; the grid is the same for any number of them.
    """
    bits = grid_bits(sigma, (1,))
    drawn = noise.discrete_gaussian(math.hypot(sigma * 2.0**bits, TAU), counts.size)
    return np.asarray((counts.astype(np.int64) << bits) + drawn, dtype=np.float64) / 2.0**bits


def noise_tail(sigma: float, chance: float) -> float:
    """A number that the noise of one of ``noisy_counts`` reaches with a probability of at most ``chance``.

    The tail of the discrete Gaussian from m steps of its grid on is at most that of the Gaussian from m - 1
    steps on (Canonne, Kamath and Steinke, *The discrete Gaussian for differential privacy*, 2020,
    proposition 25).
    """
    bits = grid_bits(sigma, (1,))
    return (1 - math.hypot(sigma * 2.0**bits, TAU) * float(ndtri(chance))) / 2.0**bits


def noisy_table(table: Ints, sigma: float, noise: Noise, *, interaction: bool = False) -> Floats:
    """A table of counts with Gaussian noise of standard deviation ``sigma`` in each cell.

    With ``interaction`` only the part of the noisy table that its margins do not tell is released.

    Guarantee
    ---------
    Δ/σ-GDP (``interaction``: Δ sqrt(κ)/σ, κ the product of 1 - 1/size over the axes) where Δ is the L2
    sensitivity of the table; for ``interaction``, where neighbours differ in Δ records. See the module.
    """
    bits = grid_bits(sigma, table.shape)
    fine = math.hypot(sigma * 2.0**bits, TAU)
    steps = table.astype(np.int64) << bits
    if not interaction:
        noisy = steps.ravel() + noise.discrete_gaussian(fine, table.size)
        return np.asarray(noisy, dtype=np.float64).reshape(table.shape) / 2.0**bits
    if (int(table.sum()) << bits) * table.size >= 2**62:
        raise InputError("too many rows for the contrasts of one table")
    noisy = contrast(steps) + noise.contrast_gaussian(fine, table.shape)
    return np.asarray(noisy, dtype=np.float64) / (2.0**bits * table.size)


def interaction_cost(shape: Sequence[int]) -> float:
    """κ: the squared length of what one record adds to the interaction of a table.

    >>> interaction_cost((2, 2)), interaction_cost((10, 10))
    (0.25, 0.81)
    """
    return math.prod(1 - 1 / size for size in shape)

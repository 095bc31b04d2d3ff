"""Private choice of the best candidate: the exponential mechanism and permute-and-flip, both exact.

Scores are float64 numbers taken at face value, that is as exact rationals. With a = ε / (2Δ), Δ the
sensitivity, let w_i = e^(a s_i) and M = max w_i. Every acceptance probability here is w_i / M = e^(-γ_i) with
γ_i = a (max s - s_i) >= 0 rational, drawn by ``Noise.bernoulli_exp_near``: nothing overflows, nothing
underflows, and no probability is rounded.

**Exponential mechanism** (McSherry and Talwar 2007): P(i) = w_i / sum of w_j. *Sampler:* draw a candidate
uniformly, keep it with probability w_i / M, else draw again; the first one kept has P(i) proportional to w_i
/ M. *Privacy:* with c = e^(aΔ), one unit changes each w_j by a factor in [1/c, c], so P(i) by at most c^2 =
e^ε.

**Permute-and-flip** (McKenna and Sheldon 2020): visit the candidates in random order, return the first that
is kept with probability w_i / M. The best one always is, so this ends; its expected score is never worse than
the exponential mechanism's. *Privacy:* give each candidate a uniform arrival time t in [0, 1]. Candidate j is
not kept before time t with probability 1 - t w_j / M, so, with u = t / M,

    P(i) = (w_i / M) ∫_0^1 Π_{j != i} (1 - t w_j / M) dt = w_i ∫_0^(1/M) Π_{j != i} (1 - u w_j) du.

Let w' be a neighbour's weights: w'_j <= c w_j and M' <= c M. Put u = v / c in the second world's integral:
its integrand is at least Π (1 - v w_j) and its range in v reaches at least 1 / M, hence P'(i) >= (w'_i / (c
w_i)) P(i) >= c^-2 P(i).

**Monotonic scores** (one unit moves all scores in the same direction, as counts do under add/remove): if all
rise, then w'_i >= w_i, and if all fall, then w'_j <= w_j and the factor c is not needed. Either way one c is
left in both proofs, so a = ε / Δ costs ε. Errors |count - model| are *not* monotonic: one unit raises some
and lowers others.

Permute-and-flip has no ε²/8 bound in zCDP, unlike the exponential mechanism: account for it as pure ε, or
ε²/2.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from synthgeo import validate
from synthgeo.errors import InputError
from synthgeo.privacy.noise import Noise

_ROUND = 1 << 16
# e^-γ beyond this is far below the 2^-64 that a first comparison resolves; the exact number decides from
# there on.
_FAR = 1e6


def exponential_mechanism(
    scores: Any, *, epsilon: float, sensitivity: float, noise: Noise, monotonic: bool = False
) -> int:
    """The index of a candidate, drawn with P(i) proportional to e^(ε score_i / (2 sensitivity)).

    Guarantee
    ---------
    Pure ``epsilon``-differential privacy when one unit changes each score by at most ``sensitivity``. With
    ``monotonic=True`` the exponent is twice as large, for the same ε; say so only when one unit moves all
    scores in the same direction. A score of -inf is never drawn; which scores are -inf must not depend on
    private data.
    """
    far, exact, candidates = _exponents(scores, epsilon, sensitivity, monotonic)
    # One of n candidates is kept with probability 1, so a round of n trials ends with probability > 0.63.
    size = min(max(candidates.size, 16), _ROUND)
    while True:
        trial = noise.integers(candidates.size, size)
        winner = _first_kept(trial, far, exact, noise)
        if winner is not None:
            return int(candidates[winner])


def permute_and_flip(
    scores: Any, *, epsilon: float, sensitivity: float, noise: Noise, monotonic: bool = False
) -> int:
    """The index of a candidate, by permute-and-flip: never worse than the exponential mechanism on average.

    Guarantee
    ---------
    Pure ``epsilon``-differential privacy, under the conditions of ``exponential_mechanism``.
    """
    far, exact, candidates = _exponents(scores, epsilon, sensitivity, monotonic)
    order = noise.permutation(candidates.size)
    for start in range(0, order.size, _ROUND):
        trial = order[start : start + _ROUND]
        winner = _first_kept(trial, far, exact, noise)
        if winner is not None:
            return int(candidates[winner])
    raise AssertionError("the best candidate is always kept")


def _first_kept(
    trial: NDArray[np.int64] | NDArray[np.intp],
    far: NDArray[np.float64],
    exact: Callable[[int], Fraction],
    noise: Noise,
) -> int | None:
    """The first of the candidates in ``trial`` that its coin keeps."""
    gamma = far[trial]
    # γ as a double has three roundings, each relative 2^-53: bounded with room to spare.
    kept = noise.bernoulli_exp_near(gamma, 2.0**-45 * (1 + gamma), lambda i: exact(int(trial[i])))
    return int(trial[int(np.argmax(kept))]) if kept.any() else None


def _exponents(
    scores: Any, epsilon: float, sensitivity: float, monotonic: bool
) -> tuple[NDArray[np.float64], Callable[[int], Fraction], NDArray[np.intp]]:
    """γ as doubles, γ as a function that gives exact rationals, and which candidates they belong to."""
    values = _scores(scores)
    rate = Fraction(validate.positive(epsilon, "epsilon")) / Fraction(
        validate.positive(sensitivity, "sensitivity")
    )
    if not monotonic:
        rate /= 2
    candidates = np.flatnonzero(values > -np.inf)
    finite = values[candidates]
    best = float(finite.max())
    exact_best = Fraction(best)

    def exact(i: int) -> Fraction:
        return rate * (exact_best - Fraction(float(finite[i])))

    if Fraction(1, 10**290) < rate < 10**290:
        with np.errstate(over="ignore", under="ignore"):
            far = (best - finite) * float(rate)
    else:  # the rate itself is no ordinary double: slow, and nobody's normal case
        far = np.array([float(min(exact(i), Fraction(_FAR))) for i in range(finite.size)])
    return np.minimum(far, _FAR), exact, candidates


def _scores(scores: Any) -> NDArray[np.float64]:
    try:
        values = np.asarray(scores, dtype=np.float64)
    except (TypeError, ValueError) as problem:
        raise InputError("scores must be numbers") from problem
    if values.ndim != 1 or values.size == 0:
        raise InputError(f"scores must be a list of at least one number, got shape {values.shape}")
    bad = np.flatnonzero(np.isnan(values) | (values == np.inf))
    if bad.size:
        raise InputError(f"score {bad[0]} is NaN or +inf")
    if not np.any(values > -np.inf):
        raise InputError("all scores are -inf: there is no candidate to choose")
    return values

"""Accounting that two mechanisms of series need: Poisson-sampled steps, and binomial noise.

Privacy of sampling time steps: what Koga, Meehan and Chaudhuri (2022) claim, and what holds exactly.

Setting: a user is in at most I steps; the set J of released steps is Poisson with rate p, drawn independently
of the data and taken as public (the interpolated output shows it). Then K, the number of the user's steps in
J, is at most Binomial(I, p), and given J the release is a Gaussian mechanism of L2 sensitivity sqrt(K) Δ.

**Exact.** With J public, the hockey-stick divergence is the mean over J of that of the Gaussian mechanism,
E_K[δ_gauss(ε, sqrt(K) Δ / σ)]. Step by step: each of the user's steps is, independently, nothing with
probability 1 - p and one Gaussian release with probability p. So its loss distribution is that mixture, and I
of them compose.

**As printed.** Corollaries 2 and 3 split J into a good and a bad set and use the classical Gaussian bound at
ε / α in the bad one, outside the range ε < 1 where that is proved. Always valid: (ε, δ + δ'), with δ' the
probability of the bad set.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache

import numpy as np
from scipy.special import log_ndtr
from scipy.stats import binom

from synthgeo.arrays import Ints
from synthgeo.errors import ConfigError
from synthgeo.privacy.noise import Noise

_PLD_LARGEST_SIGMA = (
    2000.0  # beyond, the closed Rényi form is used: loss distributions would hold too many points
)


def gaussian_delta(epsilon: float, ratio: float) -> float:
    """δ of the Gaussian mechanism at sensitivity / σ = ``ratio`` (Balle and Wang 2018: exact).

    >>> round(gaussian_delta(1.0, 1.0), 6)
    0.126937
    """
    if ratio <= 0:
        return 0.0
    low, high = ratio / 2 - epsilon / ratio, -ratio / 2 - epsilon / ratio
    return max(0.0, math.exp(log_ndtr(low)) - math.exp(epsilon + log_ndtr(high)))


def classical_sigma(epsilon: float, delta: float, sensitivity: float) -> float:
    """sqrt(2 ln(1.25 / δ)) sensitivity / ε, proved for ε < 1."""
    return math.sqrt(2 * math.log(1.25 / delta)) * sensitivity / epsilon


def subsampled_delta(epsilon: float, sigma: float, rate: float, max_steps: int) -> float:
    """Exact δ of subsampling with *continuous* Gaussian noise: the mean over K ~ Binomial(I, p)."""
    counts = np.arange(max_steps + 1)
    chances = binom.pmf(counts, max_steps, rate)
    deltas = np.array([gaussian_delta(epsilon, math.sqrt(k) / sigma) for k in counts.tolist()])
    return float(chances @ deltas)


def overrun(max_steps: int, allowed: int, rate: float) -> float:
    """Theorem 2: the probability that more than ``allowed`` of a user's steps are sampled."""
    return float(binom.sf(allowed, max_steps, rate))


def corollary1_steps(max_steps: int, rate: float, chance: float) -> float:
    """Corollary 1 (Hoeffding): so many of a user's steps are sampled at most, but for this chance.

    >>> corollary1_steps(180, 0.1, 1e-4) > 18
    True
    """
    return max_steps * rate + math.sqrt(max_steps / 2 * math.log(1 / chance))


def proposition1(
    epsilon: float, delta: float, failure: float, alpha: float, factor: float
) -> tuple[float, float]:
    """The (ε, δ) that Proposition 1 claims if users are in ``factor`` times as many steps as vouched for.

    ``failure`` is the δ' and ``alpha`` the α that the noise was made for.
    """
    widened = math.sqrt(factor) * epsilon
    return widened, delta + failure * _excess(widened, 1 / alpha)


def corollary3_delta(epsilon: float, delta: float, rate: float, max_steps: int, allowed: int) -> float:
    """The δ that Corollary 3 claims for the classical σ at sensitivity sqrt(``allowed``)."""
    return delta + overrun(max_steps, allowed, rate) * _excess(epsilon, math.sqrt(max_steps / allowed))


def filter_overrun(kernel: np.ndarray, alpha: float, rate: float) -> float:
    """Theorem 4's δ': the probability that the sampled filter's norm exceeds ``alpha`` (Tropp's matrix
    Chernoff bound).

    ``kernel`` is one row of the circular filter, with absolute values that sum to 1.
    """
    largest_row = float(np.sum(kernel**2))
    stable_rank = kernel.size * largest_row
    ratio = alpha * alpha / rate
    if ratio <= 1:
        return 1.0
    return min(1.0, 2 * stable_rank * math.exp((ratio - 1 - ratio * math.log(ratio)) * rate / largest_row))


def corollary2_delta(epsilon: float, delta: float, kernel: np.ndarray, alpha: float, rate: float) -> float:
    """The δ that Corollary 2 claims for the classical σ at sensitivity ``alpha`` sqrt(I)."""
    return delta + filter_overrun(kernel, alpha, rate) * _excess(epsilon, 1 / alpha)


def _excess(epsilon: float, factor: float) -> float:
    exponent = factor * epsilon
    return math.inf if exponent > 700 else math.exp(exponent) - math.exp(epsilon)


def subsampled_epsilon(
    sigma: float, shift: int, rate: float, max_steps: int, delta: float, target: float
) -> float:
    """The ε at ``delta`` of subsampling with *discrete* Gaussian noise σ on integers of sensitivity
    ``shift``.

    By dp-accounting: loss distributions (losses rounded up) for σ <= 2000, a Rényi curve above.
    """
    if sigma > _PLD_LARGEST_SIGMA:
        return _renyi_epsilon(sigma / shift, rate, max_steps, delta)
    from dp_accounting.pld import privacy_loss_distribution as pld

    interval = max(target / (200 * max_steps), target / 2e5)
    # Above half a thousandth of δ the tails matter; at 12 σ they hold 10^-32.
    reach = math.ceil(12 * sigma) + shift
    values = np.arange(-reach, reach + 1)
    raw = -(values.astype(np.float64) ** 2) / (2 * sigma * sigma)
    log_mass = raw - math.log(float(np.exp(raw).sum()))
    sampled = math.log(rate)
    above = dict(zip(values.tolist(), (sampled + log_mass).tolist(), strict=True))
    below = dict(zip((values + shift).tolist(), (sampled + log_mass).tolist(), strict=True))
    if rate < 1:
        above["not sampled"] = below["not sampled"] = math.log1p(-rate)  # type: ignore[index]
    one = pld.from_two_probability_mass_functions(below, above, value_discretization_interval=interval)
    return float(one.self_compose(max_steps).get_epsilon_for_delta(delta))


def _renyi_epsilon(noise_multiplier: float, rate: float, max_steps: int, delta: float) -> float:
    from dp_accounting.rdp import rdp_privacy_accountant as rdp

    orders = 1 + np.geomspace(0.02, 1e4, 400)
    growth = orders * (orders - 1) / (2 * noise_multiplier**2)
    # log(1 - p + p e^growth), without overflow
    log_mean = np.logaddexp(math.log1p(-rate) if rate < 1 else -math.inf, math.log(rate) + growth)
    curve = max_steps * log_mean / (orders - 1)
    return float(rdp.compute_epsilon(orders.tolist(), curve.tolist(), delta)[0])


@lru_cache(maxsize=256)
def subsampled_sigma(epsilon: float, delta: float, shift: int, rate: float, max_steps: int) -> float:
    """The least discrete Gaussian σ (to 0.3 %) at which subsampling is (ε, δ) private."""

    def least(private: Callable[[float], bool], high: float, precision: float) -> float:
        for _ in range(80):
            if private(high):
                break
            high *= 1.5
        else:
            raise ConfigError("no noise level in range gives this budget: raise epsilon or delta")
        low = 0.5 * high
        while private(low) and low > 1e-3 * shift:
            low, high = 0.5 * low, low
        while high - low > precision * high:
            middle = (low + high) / 2
            low, high = (low, middle) if private(middle) else (middle, high)
        return high

    guess = classical_sigma(min(epsilon, 1.0), delta, shift * math.sqrt(max(1.0, rate * max_steps)))
    curve = least(lambda s: _renyi_epsilon(s / shift, rate, max_steps, delta) <= epsilon, guess, 1e-4)
    if curve > _PLD_LARGEST_SIGMA:
        return curve
    # The curve is an upper bound, a few per cent above: the costly loss distributions search just below it.
    return min(curve, _bisect_below(curve, epsilon, delta, shift, rate, max_steps))


def _bisect_below(
    high: float, epsilon: float, delta: float, shift: int, rate: float, max_steps: int
) -> float:
    low = 0.75 * high
    while high - low > 0.003 * high:
        middle = (low + high) / 2
        if subsampled_epsilon(middle, shift, rate, max_steps, delta, epsilon) <= epsilon:
            high = middle
        else:
            low = middle
    return high


# The binomial mechanism: the sum of 2m fair bits, centred. Bounded, integer, and exact from random bits.
#
# For an integer query of sensitivity s, noise N with N + m ~ Binomial(2m, 1/2) is (ε, δ) private: its density
# is log-concave, so the privacy-loss of a shift grows with the shift and the worst neighbours differ by
# exactly s.

_WORD = 32  # m is a multiple of this: 2m bits are then whole 64-bit words
MOST_BITS = 2**24  # of randomness for one draw


def draw_binomial(noise: Noise, half: int, count: int) -> Ints:
    """``count`` draws of Binomial(2 * half, 1/2) - half; ``half`` is a multiple of 32."""
    if half < _WORD or half % _WORD:
        raise ConfigError(f"half must be a positive multiple of {_WORD}, got {half!r}")
    words = half // _WORD
    out = np.empty(count, dtype=np.int64)
    for i in range(count):
        out[i] = int(np.bitwise_count(noise.words(words)).sum(dtype=np.int64)) - half
    return out


def log_mass(half: int, largest: int) -> np.ndarray:
    """Natural logarithm of P(N = k) for k = 0 ... ``largest`` <= half.

    By the recurrence P(k + 1) / P(k) = (m - k) / (m + k + 1): log-gamma differences would lose nine digits at
    m = 10^7. Normalised over |k| <= ``largest``; beyond ten standard deviations lies less than 10^-21.
    """
    k = np.arange(largest, dtype=np.float64)
    relative = np.concatenate([[0.0], np.cumsum(np.log((half - k) / (half + k + 1)))])
    mass = np.exp(relative)
    return relative - math.log(2 * float(mass.sum()) - 1)


def epsilon_of(half: int, shifts: Mapping[int, int], delta: float, *, target: float) -> float:
    """The ε at ``delta`` of releases with these shifts (shift -> how many), through dp-accounting's loss
    distributions.

    An upper bound: losses are rounded up, and what lies beyond ten standard deviations counts as infinite
    loss.
    """
    from dp_accounting.pld import privacy_loss_distribution as pld

    total = sum(shifts.values())
    interval = max(target / (100 * total), target / 2e5)
    reach = min(half, math.ceil(10 * math.sqrt(half / 2)))
    mass = log_mass(half, min(half, reach + max(shifts, default=0)))
    values = np.arange(-reach, reach + 1, dtype=np.int64)
    composed = None
    for shift, count in shifts.items():
        moved = np.abs(values - shift)
        inside = moved < mass.size
        above = dict(zip(values.tolist(), mass[np.abs(values)].tolist(), strict=True))
        below = dict(zip(values[inside].tolist(), mass[moved[inside]].tolist(), strict=True))
        if reach < half:
            above[reach + 1] = (
                math.log(2) - reach * reach / half
            )  # Hoeffding; no mass below it: infinite loss
        one = pld.from_two_probability_mass_functions(below, above, value_discretization_interval=interval)
        part = one.self_compose(count)
        composed = part if composed is None else composed.compose(part)
    return 0.0 if composed is None else float(composed.get_epsilon_for_delta(delta))


def paper_epsilon(half: int, shifts: Mapping[int, int], delta: float) -> float:
    """Theorem A.5 of Zhang, Khalili and Liu (2021) with whole-number shifts; infinite where its lemma does
    not apply.

    Half of δ goes to the composition, half evenly to the steps.
    """
    total = sum(shifts.values())
    each = 1 - (1 - delta / 2) ** (1 / total)
    plain = mean = square = 0.0
    for shift, count in shifts.items():
        room = half - shift + 1 - math.sqrt(half * math.log(1 / each))
        if room <= 0:
            return math.inf
        epsilon = shift * math.log((2 * half + 1) / room - 1)
        plain += count * epsilon
        mean += count * epsilon * math.tanh(epsilon / 2)
        square += count * epsilon * epsilon
    slack = delta / 2
    first = mean + math.sqrt(2 * square * math.log(math.e + math.sqrt(square) / slack))
    second = mean + math.sqrt(2 * square * math.log(1 / slack))
    return min(plain, first, second)


def calibrate(shifts: Mapping[int, int], epsilon: float, delta: float, *, start: float) -> int:
    """A small m (a multiple of 32) at which these releases are (ε, δ) private; ``start`` is a first guess."""
    half = _WORD * max(1, math.ceil(0.85 * start / _WORD))
    while epsilon_of(half, shifts, delta, target=epsilon) > epsilon:
        half = _WORD * math.ceil(half * 1.03 / _WORD + 1)
        if 2 * half > MOST_BITS:
            raise ConfigError(
                "binomial noise would need too many random bits here; use the Gaussian mechanism"
            )
    return half

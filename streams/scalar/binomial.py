"""The binomial mechanism: the sum of 2m fair bits, centred. Bounded, integer, and exact from random bits.

For an integer query of sensitivity s, noise N with N + m ~ Binomial(2m, 1/2) is (ε, δ) private: its density
is log-concave, so the privacy-loss of a shift grows with the shift and the worst neighbours differ by exactly
s.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from synthgeo.arrays import Ints
from synthgeo.errors import ConfigError
from synthgeo.privacy.noise import Noise

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

"""First-order autoregressive processes: prediction through noise, estimates from releases, good weights.

Zhang, Khalili and Liu, "Differentially Private Real-Time Release of Sequential Data" (2021): Proposition 2.4
(prediction), Algorithm 1 (estimates), Theorems 6.1 and 6.2 (error and weights). Nothing here reads private
data: estimates are made from releases.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from synthgeo import validate
from synthgeo.arrays import Floats
from synthgeo.privacy.accountant import zcdp_of
from synthgeo.privacy.budget import PrivacyBudget

_LONGEST_LAG = 12  # over which correlation is estimated


@dataclass(frozen=True)
class AR1Process:
    """Mean, variance and lag-one correlation of a stationary process.

    >>> AR1Process(mean=100, variance=900, correlation=0.8).predict(160, 300, steps=2)
    128.8
    """

    mean: float
    variance: float
    correlation: float

    def __post_init__(self) -> None:
        validate.finite(self.mean, "mean")
        validate.non_negative(self.variance, "variance")
        validate.finite(self.correlation, "correlation", low=-1, high=1)

    def predict(self, released: float, noise_variance: float, *, steps: int = 1) -> float:
        """The best linear prediction of the value ``steps`` after one that was released with noise.

        Proposition 2.4: the noise shrinks towards the mean once, by σ² / (σ² + noise), however many steps
        ahead; each step by the correlation.
        """
        total = self.variance + noise_variance
        share = self.variance / total if total > 0 else 1.0
        return self.mean + self.correlation**steps * share * (released - self.mean)


class ProcessEstimate:
    """Running estimates of an AR(1) process from noisy values (Algorithm 1), gaps allowed.

    Sums are kept about the first value: their differences then lose no digits when the level is high. Pairs
    of values are summed apart for each distance between them, and the correlation comes from the distance
    that occurs most often (1 unless most values are skipped).
    """

    _PAIR_SUMS = 5  # how many pairs, Σ first, Σ second, Σ first², Σ first · second

    def __init__(self) -> None:
        self.count = 0
        self.origin = self.last = 0.0
        self.total = self.square = self.noise = 0.0
        self.pairs = np.zeros((_LONGEST_LAG, self._PAIR_SUMS))

    def add(self, value: float, noise_variance: float, *, lag: int = 1) -> None:
        """Take note of a value ``lag`` steps after the one before, released with noise of this variance."""
        if self.count == 0:
            self.origin = value
        x = value - self.origin
        if self.count and lag <= _LONGEST_LAG:
            first = self.last
            self.pairs[lag - 1] += (1.0, first, x, first * first, first * x)
        self.total += x
        self.square += x * x
        self.noise += noise_variance
        self.last = x
        self.count += 1

    def process(self, *, positive: bool) -> AR1Process:
        """The process behind the values; ``positive`` corrects the bias of a correlation known to be > 0."""
        n = self.count
        mean = self.total / n
        spread = max(0.0, self.square - n * mean * mean)
        variance = max(0.0, spread / (n - 1) - self.noise / n)
        return AR1Process(mean + self.origin, variance, self._correlation(mean, positive=positive))

    def _correlation(self, mean: float, *, positive: bool) -> float:
        lag = int(self.pairs[:, 0].argmax()) + 1
        pairs, first, second, first_square, product = self.pairs[lag - 1].tolist()
        below = first_square - 2 * mean * first + pairs * mean * mean
        above = product - mean * (first + second) + pairs * mean * mean
        found = above / below if below > 0 else 0.0
        if positive:
            found += 1 / self.count
        found = min(1.0, max(-1.0, found))
        if lag == 1:
            return found
        # Over an even distance the sign of the correlation does not show; it is taken as positive.
        root = abs(found) ** (1 / lag)
        return math.copysign(root, found) if lag % 2 else root * (found > 0)

    def to_array(self) -> Floats:
        """Plain numbers, for a saved state."""
        sums = [self.count, self.origin, self.last, self.total, self.square, self.noise]
        return np.concatenate([np.array(sums, dtype=np.float64), self.pairs.ravel()])

    @classmethod
    def from_array(cls, values: np.ndarray) -> ProcessEstimate:
        """What ``to_array`` wrote."""
        made = cls()
        made.count = int(values[0])
        made.origin, made.last, made.total, made.square, made.noise = (float(v) for v in values[1:6])
        made.pairs = np.array(values[6:]).reshape(_LONGEST_LAG, cls._PAIR_SUMS)
        return made


def least_weight(noise_variance: float, variance: float) -> float:
    """The constant weight above which release by prediction beats plain noise of ``noise_variance``.

    Theorem 6.2, equation 3, for a process of this variance that is known; 0 where any weight will do.

    >>> round(least_weight(noise_variance=100.0, variance=300.0), 3)
    0.5
    """
    ratio = validate.non_negative(noise_variance, "noise_variance") / validate.positive(variance, "variance")
    return max(0.0, (1 - ratio) / (1 + ratio))


def expected_squared_error(
    weight: float,
    *,
    correlation: float,
    variance: float,
    budget: PrivacyBudget,
    horizon: int,
    sensitivity: float = 1,
) -> float:
    """The mean squared error per step under an assumed stationary AR(1) process. Uses no data.

    The paper's Theorem 6.1 takes every release for the true value plus fresh noise; at small weights it is
    not (it is mostly prediction), and the theorem promises far too much. Here release and value are followed
    as one linear process, with the estimates that the mechanism itself would settle on.
    """
    return float(
        _stationary_error(np.array([weight]), correlation, variance, budget, horizon, sensitivity)[0]
    )


def paper_squared_error(
    weight: float, *, correlation: float, variance: float, noise_variance: float, horizon: int
) -> float:
    """Theorem 6.1 as printed: the squared error of all steps together, for a constant weight."""
    prediction = variance * (1 - correlation**2 * variance / (variance + noise_variance))
    return prediction * horizon * (1 - weight) ** 2 + horizon * noise_variance


def suggest_weight(
    *, correlation: float, variance: float, budget: PrivacyBudget, horizon: int, sensitivity: float = 1
) -> float:
    """The constant weight of least expected squared error under an assumed AR(1) process. Uses no data."""
    candidates = np.linspace(0.01, 1, 100)
    errors = _stationary_error(candidates, correlation, variance, budget, horizon, sensitivity)
    return float(candidates[int(np.argmin(errors))])


def _stationary_error(
    weight: np.ndarray,
    correlation: float,
    variance: float,
    budget: PrivacyBudget,
    horizon: int,
    sensitivity: float,
) -> np.ndarray:
    first = min(2, horizon)
    noise = sensitivity**2 * (first + (horizon - first) * weight**2) / (2 * zcdp_of(budget))
    slope = np.full_like(noise, correlation * variance) / (variance + noise)
    # x_t = carry x_{t-1} + w z_t + noise; `slope` is what the mechanism would estimate from such releases.
    for _ in range(200):
        carry = (1 - weight) * slope
        shared = weight * variance / (1 - carry * correlation)  # covariance of release and value
        lagged = carry * weight * correlation * shared
        spread = (weight**2 * variance + noise + 2 * lagged) / (1 - carry**2)
        seen = np.maximum(spread - noise, 0)
        learned = np.clip((carry * spread + weight * correlation * shared) / spread, -1, 1)
        slope = 0.5 * slope + 0.5 * learned * seen / (seen + noise)
    return np.asarray(spread - 2 * shared + variance)

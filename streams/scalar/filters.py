"""What FAST is made of: state-space filters (Kalman, particles, a bank for Laplace noise) and shares of ε.

All take the model of Fan and Xiong (2014), equations 4-7: the state moves by x_k = x_{k-1} + N(0, Q), and an
observation is z_k = x_k + noise. The Kalman filter treats the noise as N(0, R), the particle filter and the
bank as the Laplace noise that it is; the bank learns Q.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from functools import lru_cache
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, log_ndtr

from streams.scalar.base import Arrays
from synthgeo.arrays import Floats


class Filter(Protocol):
    """Predict the next value, correct it with an observation."""

    @property
    def started(self) -> bool:
        """Whether there has been an observation."""
        ...

    def start(self, observed: float, scale: float | None = None) -> float:
        """Take the first observation as it is; ``scale`` is that of its Laplace noise."""
        ...

    def predict(self) -> float:
        """One step of the process; the prior estimate."""
        ...

    def correct(self, observed: float, scale: float | None = None) -> float:
        """Weigh the prior against an observation; the posterior estimate."""
        ...

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """What a saved filter needs."""
        ...

    def restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        """Take back what ``state`` gave."""
        ...


class KalmanFilter:
    """The Kalman filter of the local-level model.

    Starts from the first observation with its variance R, so P_0 = R (the limit of a flat prior).

    >>> level = KalmanFilter(process_variance=1.0, measurement_variance=3.0)
    >>> level.start(10.0), level.predict(), level.correct(17.0)
    (10.0, 10.0, 14.0)
    """

    def __init__(self, *, process_variance: float, measurement_variance: float) -> None:
        self.process_variance = process_variance
        self.measurement_variance = measurement_variance
        self.mean = math.nan
        self.variance = math.nan

    def __repr__(self) -> str:
        return f"KalmanFilter(mean={self.mean:g}, variance={self.variance:g})"

    @property
    def started(self) -> bool:
        """Whether there has been an observation."""
        return self.mean == self.mean

    def start(self, observed: float, scale: float | None = None) -> float:  # noqa: ARG002 - one shape
        """Take the first observation as it is."""
        self.mean, self.variance = observed, self.measurement_variance
        return observed

    def predict(self) -> float:
        """The level stays, its variance grows by Q."""
        self.variance += self.process_variance
        return self.mean

    def correct(self, observed: float, scale: float | None = None) -> float:  # noqa: ARG002 - one shape
        """Move towards the observation by the Kalman gain P / (P + R)."""
        gain = self.variance / (self.variance + self.measurement_variance)
        self.mean += gain * (observed - self.mean)
        self.variance *= 1 - gain
        return self.mean

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Mean and variance."""
        return {}, {"filter": np.array([self.mean, self.variance])}

    def restore(self, values: dict[str, Any], arrays: Arrays) -> None:  # noqa: ARG002 - one shape
        """Take back what ``state`` gave."""
        self.mean, self.variance = (float(v) for v in arrays["filter"])


class ParticleFilter:
    """Sampling-importance-resampling with systematic resampling, vectorised over the particles.

    The first particles are uniform around the first observation, as wide as to have the noise's variance 2
    scale². Randomness is post-processing, so it comes from ``rng``.
    """

    def __init__(
        self, *, process_variance: float, noise_scale: float, particles: int, rng: np.random.Generator
    ) -> None:
        self.process_deviation = math.sqrt(process_variance)
        self.noise_scale = noise_scale
        self.count = particles
        self.rng = rng
        self.particles: Floats = np.empty(0)

    def __repr__(self) -> str:
        return f"ParticleFilter({self.count} particles)"

    @property
    def started(self) -> bool:
        """Whether there has been an observation."""
        return self.particles.size > 0

    def start(self, observed: float, scale: float | None = None) -> float:  # noqa: ARG002 - one shape
        """Spread the particles around the first observation."""
        half = math.sqrt(6) * self.noise_scale
        self.particles = observed + self.rng.uniform(-half, half, self.count)
        return observed

    def predict(self) -> float:
        """Move every particle by the process noise."""
        self.particles = self.particles + self.process_deviation * self.rng.standard_normal(self.count)
        return float(self.particles.mean())

    def correct(self, observed: float, scale: float | None = None) -> float:  # noqa: ARG002 - one shape
        """Weigh particles by the Laplace density of the observation, then resample."""
        distance = np.abs(self.particles - observed) / self.noise_scale
        weights = np.exp(distance.min() - distance)  # the largest weight is 1: no underflow to all zeros
        weights /= weights.sum()
        posterior = float(weights @ self.particles)
        edges = np.cumsum(weights)
        edges[-1] = 1.0
        comb = (np.arange(self.count) + self.rng.uniform()) / self.count
        self.particles = self.particles[np.searchsorted(edges, comb, side="left")]
        return posterior

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """The particles."""
        return {}, {"filter": self.particles}

    def restore(self, values: dict[str, Any], arrays: Arrays) -> None:  # noqa: ARG002 - one shape
        """Take back what ``state`` gave."""
        self.particles = np.array(arrays["filter"], dtype=np.float64)


# Intervals between samples that are considered, in steps.
INTERVALS = np.array([1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 65, 80, 100, 130, 160, 200])
# Above this ratio of prior variance to squared noise scale the noise's shape no longer matters.
_WIDE = 900.0
_LOG_ROOT_2PI = 0.5 * math.log(2 * math.pi)


class FilterBank:
    """Local-level filters side by side, one for each of many process variances, weighed by their success.

    The process variance Q need not be known: filters with variances two to a decade run side by side, and the
    estimate is their mean, weighed by how well each has predicted the observations so far. A known order of
    magnitude (``process_variance``) makes variances near it likelier at the start.

    Each filter keeps the noise's own shape. Laplace: with prior N(m, P) and an observation z = x + Lap(b), d
    = z - m, the density of z is (e^L1 + e^L2) e^(P / 2b²) / 2b, L1 = -d/b + ln Φ((d - P/b) / sqrt(P)), L2 =
    d/b + ln Φ((-d - P/b) / sqrt(P)); mean and variance of the posterior follow from its derivatives
    (Masreliez 1975), the mean as m + (P / b) tanh((L1 - L2) / 2): an observation moves the estimate by at
    most P / b, however far off it is. A Kalman filter, which takes the noise for Gaussian, loses up to half
    of what the observations tell. Gaussian noise: Kalman filters.

    ``scale`` is the noise's scale (or standard deviation) when every step is sampled, from which the range of
    variances follows. ``longest`` bounds the intervals that ``interval`` considers.
    """

    def __init__(
        self,
        *,
        scale: float,
        process_variance: float | None,
        longest: int = 1,
        noise: Literal["laplace", "gaussian"] = "laplace",
    ) -> None:
        self.noise = noise
        unit = scale**2 * (2 if noise == "laplace" else 1)
        low, high = -8.0, 12.0
        if process_variance is not None:
            centre = math.log10(process_variance / unit)
            low, high = min(low, centre - 3), max(high, centre + 3)
        exponents = np.linspace(low, high, 2 * math.ceil(high - low) + 1)
        self.process_variances = 10.0**exponents * unit
        self.log_weights = np.zeros(exponents.size)
        if process_variance is not None:
            self.suppose(process_variance, decades=1.0)
        self.means = np.full(exponents.size, math.nan)
        self.variances = np.full(exponents.size, math.nan)
        self.mean = math.nan
        self._ahead = 0  # steps since the last correction
        self._intervals = INTERVALS[max(1, longest) >= INTERVALS]
        self._regrets = _regrets(tuple(exponents.tolist()), self._intervals.size)

    def __repr__(self) -> str:
        return "FilterBank(filters of many process variances, weighed by their success)"

    @property
    def started(self) -> bool:
        """Whether there has been an observation."""
        return self.mean == self.mean

    @property
    def weights(self) -> Floats:
        """How likely each process variance is by now; sums to 1."""
        weights = np.exp(self.log_weights - self.log_weights.max())
        return np.asarray(weights / weights.sum())

    def suppose(self, process_variance: float, *, decades: float) -> None:
        """Make process variances within some ``decades`` of this one likelier, whatever was so before."""
        away = np.log10(self.process_variances) - math.log10(process_variance)
        self.log_weights = -0.5 * (away / decades) ** 2

    def start(self, observed: float, scale: float | None = None) -> float:
        """Take the first observation as it is."""
        assert scale is not None
        self.means[:] = self.mean = observed
        self.variances[:] = scale * scale * (2 if self.noise == "laplace" else 1)
        return observed

    def predict(self) -> float:
        """The level stays; variances grow, which is left to the next correction."""
        self._ahead += 1
        return self.mean

    def correct(self, observed: float, scale: float | None = None) -> float:
        """Move every filter towards the observation, and weigh the filters by how well they foresaw it."""
        assert scale is not None
        prior = self.variances + self._ahead * self.process_variances
        self._ahead = 0
        update = laplace_update if self.noise == "laplace" else gaussian_update
        likelihood, moves, posterior = update(observed - self.means, prior, scale)
        self.log_weights += likelihood
        self.log_weights -= self.log_weights.max()
        self.means += moves
        self.variances = posterior
        self.mean = float(self.weights @ self.means)
        return self.mean

    def interval(self) -> int:
        """The sampling interval that is least bad over the process variances, by their weights (Laplace)."""
        return int(self._intervals[int(np.argmin(self.weights @ self._regrets))])

    @property
    def longest(self) -> int:
        """The longest interval that is considered."""
        return int(self._intervals[-1])

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Means, variances and weights of all filters."""
        return {"ahead": self._ahead}, {"filter": np.stack([self.means, self.variances, self.log_weights])}

    def restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        """Take back what ``state`` gave."""
        self._ahead = int(values["ahead"])
        self.means, self.variances, self.log_weights = np.array(arrays["filter"], dtype=np.float64)
        if not math.isnan(self.means[0]):
            self.mean = float(self.weights @ self.means)


def gaussian_update(distance: Floats, prior: Floats, scale: float) -> tuple[Floats, Floats, Floats]:
    """One observation under Gaussian noise: log density, move of the mean, and the variance that is left."""
    noise = scale * scale
    total = prior + noise
    density = -0.5 * distance**2 / total - 0.5 * np.log(total) - _LOG_ROOT_2PI
    return density, prior / total * distance, prior / total * noise


def laplace_update(distance: Floats, prior: Floats, scale: float) -> tuple[Floats, Floats, Floats]:
    """One observation under Laplace noise: log density, move of the mean, and the variance that is left.

    ``distance`` is that of the observation from the prior means; ``FilterBank`` has the formulas.

    >>> density, move, left = laplace_update(np.array([0.7]), np.array([1.0]), 1.0)
    >>> [round(float(v[0]), 4) for v in (density, move, left)]
    [-1.468, 0.3578, 0.5167]
    """
    noise = 2 * scale * scale
    wide = prior > _WIDE * scale * scale
    variance = np.minimum(prior, _WIDE * scale * scale)
    deviation = np.sqrt(variance)
    shift = variance / scale
    right, left = (distance - shift) / deviation, -(distance + shift) / deviation
    log_right, log_left = log_ndtr(right), log_ndtr(left)
    one, other = log_right - distance / scale, log_left + distance / scale
    density = variance / noise - math.log(2 * scale) + np.logaddexp(one, other)
    side = np.tanh((one - other) / 2)
    hazards = _hazard(right) + _hazard(left)
    curvature = (1 - side**2) * (hazards / deviation - 2 / scale) / (2 * scale)
    rest = np.clip(variance - variance**2 * curvature, 1e-6 * np.minimum(variance, noise), None)
    if not wide.any():
        return density, shift * side, rest
    kalman = gaussian_update(distance, prior, math.sqrt(noise))
    ours = (density, shift * side, rest)
    return tuple(np.where(wide, theirs, mine) for theirs, mine in zip(kalman, ours, strict=True))  # type: ignore[return-value]


@lru_cache(maxsize=64)
def _regrets(exponents: tuple[float, ...], intervals: int) -> Floats:
    """How many times worse than the best each sampling interval would be, for each process variance.

    In units of the noise's variance at every step. Beyond ten times it no longer matters.
    """
    variances = 2 * 10.0 ** np.array(exponents)
    losses = _expected_losses(variances, 1.0, INTERVALS[:intervals])
    return np.asarray(np.minimum(losses / losses.min(axis=1, keepdims=True), 10.0))


def _hazard(x: Floats) -> Floats:
    """The normal density over its distribution function, at any x."""
    return np.asarray(math.sqrt(2 / math.pi) / erfcx(-x / math.sqrt(2)))


def expected_loss(process_variance: float, scale: float, longest: int) -> float:
    """The mean squared error per step at the best interval up to ``longest``; ``scale`` is that of Laplace
    noise at every step.
    """
    losses = _expected_losses(np.array([process_variance]), scale, INTERVALS[longest >= INTERVALS])
    return float(losses.min())


def _expected_losses(process_variances: Floats, unit_scale: float, intervals: NDArray[np.int64]) -> Floats:
    """The mean squared error per step of sampling at each interval, for each process variance.

    A sample every I steps may cost I times as much as one at every step, so its scale is that of one / I.
    What is released between samples is the last estimate, whose variance grows by Q at each step.
    """
    growth = process_variances[:, None] * intervals[None, :]
    scale = np.broadcast_to(unit_scale / intervals[None, :], growth.shape)
    posterior = 2 * scale**2
    for _ in range(60):
        prior = posterior + growth
        ratio = prior / scale**2
        # Laplace noise tells as much as Gaussian noise of variance c scale², c from 1 (wide noise) to 2.
        noise = (2 - np.exp(-1.13 * np.sqrt(ratio) - 0.12 * ratio)) * scale**2
        posterior = 0.3 * posterior + 0.7 * prior * noise / (prior + noise)
    return np.asarray(posterior + process_variances[:, None] * (intervals[None, :] - 1) / 2)


# How a mechanism that samples shares its budget among samples: equally, over a horizon, or within windows.
#
# A share is a part of ``total``, which is ε, or ρ in zCDP; either adds up over samples, also when shares and
# times follow from earlier releases.


class SampleShares(ABC):
    """What each sample may cost, and what has been spent on whoever is protected."""

    def __init__(self, total: float) -> None:
        self.total = total

    @abstractmethod
    def take(self, step: int, interval: int) -> float:
        """The cost of a sample at ``step`` that stands for ``interval`` steps; 0 if none is to be had now."""

    @property
    @abstractmethod
    def spent(self) -> float:
        """What has been spent, at most ``total``."""

    @abstractmethod
    def to_array(self) -> np.ndarray:
        """Plain numbers, for a saved state."""

    @abstractmethod
    def restore(self, values: np.ndarray) -> None:
        """Take back what ``to_array`` gave."""


class EqualShares(SampleShares):
    """One of ``count`` equal shares for each sample; whoever is protected is in at most ``count`` of them."""

    def __init__(self, total: float, count: int) -> None:
        super().__init__(total)
        self.count = count
        self.taken = 0

    def take(self, step: int, interval: int) -> float:  # noqa: ARG002 - one shape for all
        """total / count."""
        self.taken += 1
        return self.total / self.count

    @property
    def spent(self) -> float:
        """An equal share for each sample, and no more than all."""
        return self.total * min(self.taken, self.count) / self.count

    def to_array(self) -> np.ndarray:
        """How many shares were taken."""
        return np.array([self.taken], dtype=np.float64)

    def restore(self, values: np.ndarray) -> None:
        """Take back what ``to_array`` gave."""
        self.taken = int(values[0])


class HorizonShares(SampleShares):
    """Of what is left, the part that the steps a sample stands for are of the steps left."""

    def __init__(self, total: float, horizon: int) -> None:
        super().__init__(total)
        self.horizon = horizon
        self.left = total

    def take(self, step: int, interval: int) -> float:
        """A share of what is left; nothing past the horizon."""
        ahead = self.horizon - step
        return self.take_part(min(1.0, interval / ahead)) if ahead > 0 else 0.0

    def take_part(self, part: float) -> float:
        """This part of what is left."""
        cost = self.left if part == 1.0 else part * self.left
        self.left -= cost
        return cost

    @property
    def spent(self) -> float:
        """All but what is left."""
        return self.total - self.left

    def to_array(self) -> np.ndarray:
        """What is left."""
        return np.array([self.left])

    def restore(self, values: np.ndarray) -> None:
        """Take back what ``to_array`` gave."""
        self.left = float(values[0])


class WindowShares(SampleShares):
    """interval / w of the total, as far as samples of the last w - 1 steps have left it: w-event privacy.

    At a steady interval that divides w the limit never bites.
    """

    def __init__(self, total: float, window: int) -> None:
        super().__init__(total)
        self.window = window
        self.recent: deque[tuple[int, float]] = deque()
        self.dearest = 0.0

    def take(self, step: int, interval: int) -> float:
        """A share for the steps it stands for, within what any window may spend."""
        while self.recent and self.recent[0][0] <= step - self.window:
            self.recent.popleft()
        before = sum(cost for _, cost in self.recent)
        cost = min(self.total * min(1.0, interval / self.window), self.total - before)
        if cost <= 1e-9 * self.total:
            return 0.0
        self.recent.append((step, cost))
        self.dearest = min(self.total, max(self.dearest, before + cost))
        return cost

    @property
    def spent(self) -> float:
        """The most that any window has spent so far."""
        return self.dearest

    def to_array(self) -> np.ndarray:
        """The dearest window, then steps and costs of recent samples."""
        return np.array([self.dearest, *(number for sample in self.recent for number in sample)])

    def restore(self, values: np.ndarray) -> None:
        """Take back what ``to_array`` gave."""
        self.dearest = float(values[0])
        self.recent = deque((int(step), float(cost)) for step, cost in values[1:].reshape(-1, 2))

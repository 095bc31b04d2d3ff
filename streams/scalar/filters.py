"""State-space filters for a series seen through noise: the local-level Kalman filter and a particle filter.

Both take the model of Fan and Xiong (2014), equations 4-7: the state moves by x_k = x_{k-1} + N(0, Q), and an
observation is z_k = x_k + noise. The Kalman filter treats the noise as N(0, R), the particle filter as the
Laplace noise that it is.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np

from streams.scalar.base import Arrays
from synthgeo.arrays import Floats


class Filter(Protocol):
    """Predict the next value, correct it with an observation."""

    @property
    def started(self) -> bool:
        """Whether there has been an observation."""
        ...

    def start(self, observed: float) -> float:
        """Take the first observation as it is."""
        ...

    def predict(self) -> float:
        """One step of the process; the prior estimate."""
        ...

    def correct(self, observed: float) -> float:
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

    @property
    def started(self) -> bool:
        """Whether there has been an observation."""
        return self.mean == self.mean

    def start(self, observed: float) -> float:
        """Take the first observation as it is."""
        self.mean, self.variance = observed, self.measurement_variance
        return observed

    def predict(self) -> float:
        """The level stays, its variance grows by Q."""
        self.variance += self.process_variance
        return self.mean

    def correct(self, observed: float) -> float:
        """Move towards the observation by the Kalman gain P / (P + R)."""
        gain = self.variance / (self.variance + self.measurement_variance)
        self.mean += gain * (observed - self.mean)
        self.variance *= 1 - gain
        return self.mean

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Mean and variance."""
        return {}, {"filter": np.array([self.mean, self.variance])}

    def restore(self, values: dict[str, Any], arrays: Arrays) -> None:  # noqa: ARG002 - one shape for all filters
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

    @property
    def started(self) -> bool:
        """Whether there has been an observation."""
        return self.particles.size > 0

    def start(self, observed: float) -> float:
        """Spread the particles around the first observation."""
        half = math.sqrt(6) * self.noise_scale
        self.particles = observed + self.rng.uniform(-half, half, self.count)
        return observed

    def predict(self) -> float:
        """Move every particle by the process noise."""
        self.particles = self.particles + self.process_deviation * self.rng.standard_normal(self.count)
        return float(self.particles.mean())

    def correct(self, observed: float) -> float:
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

    def restore(self, values: dict[str, Any], arrays: Arrays) -> None:  # noqa: ARG002 - one shape for all filters
        """Take back what ``state`` gave."""
        self.particles = np.array(arrays["filter"], dtype=np.float64)

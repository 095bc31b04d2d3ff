"""FAST: filtering and adaptive sampling (Fan and Xiong 2014)."""

from __future__ import annotations

import math
from collections import deque
from typing import Any, Literal

import numpy as np

from streams.scalar.base import Arrays, Guarantee, Missing, NumericMechanism, need_pure
from streams.scalar.filters import Filter, KalmanFilter, ParticleFilter
from synthgeo import validate
from synthgeo.errors import ConfigError
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.noise import Noise, laplace_variance
from synthgeo.privacy.unit import PrivacyUnit

# Beyond this exponent the new interval is 1 whatever the rest says.
_LARGEST_EXPONENT = 50.0

_FILTERS: tuple[Literal["kalman", "particle"], ...] = ("kalman", "particle")


class PIDSampler:
    """Chooses the next sampling point from the filter's feedback error (equations 28-32).

    The printed equation 32, I' = max(1, I + θ (1 - e^(-(Δ-ξ)/ξ))), samples *less* when the error grows,
    against the text and the authors' 2012 paper: the exponent's sign is taken as e^((Δ-ξ)/ξ).

    >>> sampler = PIDSampler(gains=(1, 0, 0), integral_window=1, theta=10, set_point=0.1)
    >>> sampler.feedback(0, 0.0), sampler.feedback(7, 0.5)
    (7, 8)
    """

    def __init__(
        self, *, gains: tuple[float, float, float], integral_window: int, theta: float, set_point: float
    ) -> None:
        self.gains = gains
        self.theta = theta
        self.set_point = set_point
        self.errors: deque[float] = deque(maxlen=integral_window)
        self.interval = 1.0
        self.at = 0

    def feedback(self, step: int, error: float) -> int:
        """Take the error at a sampling point; the step of the next one."""
        previous, before = (self.errors[-1], self.at) if self.errors else (error, step - 1)
        self.errors.append(error)
        self.at = step
        if len(self.errors) < (self.errors.maxlen or 1):
            return step + 1  # the integral term needs its window first
        proportional, integral, derivative = self.gains
        control = (
            proportional * error
            + integral * sum(self.errors) / len(self.errors)
            + derivative * (error - previous) / (step - before)
        )
        exponent = min((control - self.set_point) / self.set_point, _LARGEST_EXPONENT)
        self.interval = max(1.0, self.interval + self.theta * (1 - math.exp(exponent)))
        return step + round(self.interval)


class FAST(NumericMechanism):
    """Sample a few values, perturb them, and let a filter say the rest.

    ``sampling`` is ``"adaptive"`` (PID control) or a fixed interval. ``max_samples`` M defaults to the
    paper's best settings: 15 % of ``horizon`` for the Kalman filter, 25 % for the particle filter, horizon /
    interval at a fixed rate. The other defaults are the paper's Table 1, with two exceptions.
    ``measurement_variance`` R: None takes the variance of the noise itself, which is what Theorem 3 asks for
    (R proportional to M² / ε²). ``pace``: on a lively series the paper's controller (``pace=0``) has used up
    its samples after a third of the horizon and predicts blindly from there; with pace p the next sample
    waits at least p times the interval at which the samples left would just last. (Weekly flu at ε = 0.1:
    relative error 0.51 with pace 0, 0.27 with pace 1.)

    Guarantee
    ---------
    Pure ε, user-level, central. Neighbours: two series that differ by one user, who moves any number of
    values by at most Δ each. At most M values are ever read; each is released once with discrete Laplace
    noise of scale M Δ / ε, which is ε / M private, and ε in all by composition. When the next value is read
    depends on earlier releases only, so the composition is adaptive and the filters and the controller are
    post-processing. Theorem 2 of the paper.

    After M samples it goes on predicting and spends nothing more, past the horizon too: it never raises
    ``BudgetExhausted``.
    """

    def __init__(
        self,
        *,
        budget: PrivacyBudget,
        horizon: int,
        filter: Literal["kalman", "particle"] = "kalman",  # noqa: A002 - the public name
        sampling: Literal["adaptive"] | int = "adaptive",
        max_samples: int | None = None,
        process_variance: float = 1e5,
        measurement_variance: float | None = None,
        particles: int = 1000,
        gains: tuple[float, float, float] = (0.9, 0.1, 0.0),
        integral_window: int = 5,
        theta: float = 10.0,
        set_point: float = 0.1,
        sanity: float = 1.0,
        pace: float = 1.0,
        sensitivity: float = 1,
        grid_bits: int = 0,
        missing: Missing = "refuse",
        nonnegative: bool = False,
        noise: Noise | None = None,
    ) -> None:
        need_pure(budget, "FAST")
        super().__init__(budget, sensitivity, grid_bits, missing, nonnegative, noise)
        self.horizon = validate.whole(horizon, "horizon", low=1)
        if sampling != "adaptive":
            validate.whole(sampling, "sampling", low=1)
        if len(gains) != 3 or min(gains) < 0 or not math.isclose(sum(gains), 1):
            raise ConfigError(f"gains are three numbers >= 0 that sum to 1, got {gains!r}")
        self.filter = validate.one_of(filter, "filter", _FILTERS)
        self.sampling: Literal["adaptive"] | int = sampling
        samples = self._default_samples() if max_samples is None else max_samples
        self.max_samples = validate.whole(samples, "max_samples", low=1)
        self.process_variance = validate.positive(process_variance, "process_variance")
        self.particles = validate.whole(particles, "particles", low=2)
        self.gains = (float(gains[0]), float(gains[1]), float(gains[2]))
        self.integral_window = validate.whole(integral_window, "integral_window", low=1)
        self.theta = validate.positive(theta, "theta")
        self.set_point = validate.positive(set_point, "set_point")
        self.sanity = validate.positive(sanity, "sanity")
        self.pace = validate.share(pace, "pace", zero=True, one=True)
        self._scale = self._step_sensitivity * self.max_samples / budget.epsilon
        self.measurement_variance = measurement_variance
        if measurement_variance is not None:
            self.measurement_variance = validate.positive(measurement_variance, "measurement_variance")
        self._filter = self._make_filter()
        self._sampler = PIDSampler(
            gains=self.gains, integral_window=self.integral_window, theta=self.theta, set_point=self.set_point
        )
        self._next = 0

    def _default_samples(self) -> int:
        if self.sampling != "adaptive":
            return math.ceil(self.horizon / self.sampling)
        share = 0.15 if self.filter == "kalman" else 0.25
        return max(1, math.ceil(share * self.horizon))

    def _make_filter(self) -> Filter:
        if self.filter == "particle":
            return ParticleFilter(
                process_variance=self.process_variance,
                noise_scale=self.scale,
                particles=self.particles,
                rng=self.noise.rng,
            )
        own = laplace_variance(self._scale) / self.grid.one**2
        variance = own if self.measurement_variance is None else self.measurement_variance
        # Noise that is always 0 (a huge ε) has no variance; the filter then follows the observation.
        return KalmanFilter(process_variance=self.process_variance, measurement_variance=variance)

    @property
    def scale(self) -> float:
        """The Laplace scale of one sample, in the unit of the values."""
        return self._scale / self.grid.one

    @property
    def samples(self) -> int:
        """How many values have been read."""
        return self._queries

    @property
    def guarantee(self) -> Guarantee:
        """User-level, pure, central."""
        return Guarantee(
            "user",
            "pure",
            "central",
            f"one user, who may be in every step (at most {self.max_samples} are read)",
        )

    @property
    def unit(self) -> PrivacyUnit:
        """One user, in whatever of the steps."""
        return PrivacyUnit.user(max_events=self.horizon)

    @property
    def spent(self) -> PrivacyBudget | None:
        """ε / M for each value read."""
        share = self._queries / self.max_samples
        return PrivacyBudget(self.budget.epsilon * share) if share else None

    def _gap(self) -> float:
        prior = self._filter.predict() if self._filter.started else math.nan
        if self.step >= self._next:
            self._next = self.step + 1  # the sample that was due is taken at the next step there is
        return prior

    def _release(self, steps: int) -> float:
        started = self._filter.started
        prior = self._filter.predict() if started else math.nan
        if self.step < self._next or self._queries >= self.max_samples:
            return prior
        observed = float(self.grid.value(steps + int(self.noise.discrete_laplace(self._scale, 1)[0])))
        self._queries += 1
        if not started:
            self._next = self.step + (1 if self.sampling == "adaptive" else self.sampling)
            return self._filter.start(observed)
        posterior = self._filter.correct(observed)
        if self.sampling == "adaptive":
            error = abs(posterior - prior) / max(posterior, self.sanity)
            self._next = max(self._sampler.feedback(self.step, error), self.step + self._least_interval())
        else:
            self._next = self.step + self.sampling
        return posterior

    def _least_interval(self) -> int:
        """``pace`` times the interval at which the samples left would just last to the horizon."""
        left = self.max_samples - self._queries
        ahead = self.horizon - self.step - 1
        return max(1, round(self.pace * ahead / left)) if left > 0 and ahead > 0 else 1

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        values, arrays = super()._state()
        more, filter_arrays = self._filter.state()
        sampler = self._sampler
        values |= more | {"next": self._next, "sampled_at": sampler.at}
        arrays |= filter_arrays | {
            "errors": np.array(sampler.errors, dtype=np.float64),
            "interval": np.array([sampler.interval]),
        }
        return values, arrays

    def _restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        super()._restore(values, arrays)
        self._filter.restore(values, arrays)
        self._next = int(values["next"])
        self._sampler.at = int(values["sampled_at"])
        self._sampler.interval = float(arrays["interval"][0])
        self._sampler.errors.extend(float(error) for error in arrays["errors"])

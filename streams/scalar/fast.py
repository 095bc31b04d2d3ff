"""FAST: filtering and adaptive sampling (Fan and Xiong 2014), also with a process that is learnt."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from streams.scalar.base import Arrays, Guarantee, Missing, NumericMechanism
from streams.scalar.filters import (
    EqualShares,
    Filter,
    FilterBank,
    HorizonShares,
    KalmanFilter,
    ParticleFilter,
    SampleShares,
    WindowShares,
    expected_loss,
)
from synthgeo import validate
from synthgeo.errors import ConfigError
from synthgeo.parameters import Settings, check_settings
from synthgeo.privacy.accountant import approximate_dp_of_zcdp, zcdp_of
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.noise import MAX_SCALE, Noise, laplace_variance
from synthgeo.privacy.unit import PrivacyUnit

# Beyond this exponent the new interval is 1 whatever the rest says.
_LARGEST_EXPONENT = 50.0
# Learnt sampling: the factor by which an interval may grow within windows while nothing is known about the
# process, and the least number of samples over a horizon.
_GROWTH = 2
_LEAST_SAMPLES = 4
# Over a horizon, a first value within so many times the noise of a step is hidden by it: it is read again
# with this share of ε, since it is all there is to go on for a while.
_HIDDEN = 5.0
_FIRST_SHARE = 0.1
# Over a horizon, a series is expected at first to move per step by this part of its first value as released
# (of the noise's scale, where that is more), give or take so many decades of the process variance.
_FIRST_MOVE = 0.1
_DECADES = 1.5
# Shares of ε are rounded; their noise is rounded up by this much.
_ROUND_UP = 1 + 2.0**-48

_FILTERS: tuple[Literal["auto", "kalman", "particle"], ...] = ("auto", "kalman", "particle")
_CONTROLLER = ("gains", "integral_window", "theta", "set_point", "sanity", "pace")


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


@dataclass(frozen=True, kw_only=True)
class FASTSettings(Settings):
    """Settings of ``FAST``. Those that would have no effect are refused.

    Attributes
    ----------
    process_variance
        Variance of a change from one step to the next: a public guess of its order of magnitude helps at the
        start. None: it is learnt (for the paper's filters: 1e5).
    max_samples
        Most values that are read. None: the paper's best settings, 15 % of ``horizon``, 25 % for the particle
        filter, horizon / interval at a fixed rate.
    measurement_variance
        R of the Kalman filter. None: the variance of the noise itself, which is what Theorem 3 asks for (R
        proportional to M² / ε²).
    particles
        Of the particle filter.
    gains
        Proportional, integral and derivative gain of the controller (``sampling="adaptive"``), summing to 1.
    integral_window
        Errors in the controller's integral term.
    theta, set_point
        θ and ξ of the controller.
    sanity
        The least value that errors are relative to, in the controller.
    pace
        The next sample waits at least this many times the interval at which the samples left would just last.
        0 is the paper's controller: on a lively series it has used up its samples after a third of the
        horizon and predicts blindly from there.
    """

    process_variance: float | None = None
    max_samples: int | None = None
    measurement_variance: float | None = None
    particles: int = 1000
    gains: tuple[float, float, float] = (0.9, 0.1, 0.0)
    integral_window: int = 5
    theta: float = 10.0
    set_point: float = 0.1
    sanity: float = 1.0
    pace: float = 1.0

    def __post_init__(self) -> None:
        gains = self.gains
        if len(gains) != 3 or min(gains) < 0 or not math.isclose(sum(gains), 1):
            raise ConfigError(f"gains are three numbers >= 0 that sum to 1, got {validate.shown(gains)}")
        self._check(
            process_variance=_optional(self.process_variance, "process_variance"),
            max_samples=_optional_count(self.max_samples, "max_samples"),
            measurement_variance=_optional(self.measurement_variance, "measurement_variance"),
            particles=validate.whole(self.particles, "particles", low=2),
            gains=(float(gains[0]), float(gains[1]), float(gains[2])),
            integral_window=validate.whole(self.integral_window, "integral_window", low=1),
            theta=validate.positive(self.theta, "theta"),
            set_point=validate.positive(self.set_point, "set_point"),
            sanity=validate.positive(self.sanity, "sanity"),
            pace=validate.share(self.pace, "pace", zero=True, one=True),
        )


class FAST(NumericMechanism):
    """Sample some values, perturb them, and let a filter say the rest.

    As it comes it learns from its own releases how fast the series moves (``FilterBank``), samples at the
    interval that suits that, and gives a sample as much of ε as it has steps to stand for: on a restless
    series, or at a large ε, it reads every step, on a quiet one few. Over a horizon the first value is read
    again, with a tenth of ε, where noise hides it: it is all there is to go on for a while, and changes of
    about a tenth of it per step are expected until the series has shown how it moves.
    ``process_variance`` takes the place of that second reading.

    Who is protected: with ``horizon`` T a user who may be in every one of T steps, with ``window`` w
    everything within any w successive steps (w-event; the stream has no end), with ``max_steps`` I a user who
    is in at most I steps, which the caller vouches for (event-level at 1; no end either, and every step is
    read, since a user's steps may all be among those sampled). Give exactly one. A budget with a δ makes the
    noise Gaussian: then every step is read, for sampling less gains nothing where variances add up.

    The paper's method (``horizon``, pure ε): ``filter`` "kalman" or "particle" with ``sampling`` "adaptive"
    (PID control, what "auto" means for these filters) or a fixed interval, at most ``max_samples`` M samples
    with ε / M each. Defaults are the paper's Table 1 but for ``measurement_variance`` and ``pace``.

    Parameters
    ----------
    budget
        ε, and perhaps δ.
    horizon, window, max_steps
        Who is protected, see above: exactly one.
    filter
        ``"auto"`` learns; ``"kalman"`` and ``"particle"`` are the paper's.
    sampling
        ``"auto"``, ``"adaptive"``, or a fixed interval.
    settings
        All other choices (``FASTSettings``).
    sensitivity
        The most that one user changes one value by.
    grid_bits
        Values are rounded down to multiples of 2^-grid_bits.
    missing
        ``"refuse"`` gaps, or take them as ``"public"``.
    nonnegative
        Clip what is released at 0.
    noise
        ``SystemNoise()`` unless given; ``SeededNoise(seed)`` for tests.

    Guarantee
    ---------
    Pure ε, or (ε, δ) through zCDP, central. Neighbours: two series that differ by what is protected, by at
    most Δ per value. The i-th reading of a value gets discrete Laplace noise of scale Δ / ε_i, which is ε_i
    private, or discrete Gaussian noise of deviation Δ / sqrt(2 ρ_i), which is ρ_i-zCDP. Over a horizon, the
    paper's method reads at most M values with ε / M each, learnt sampling takes ε_i from what is left of ε,
    for the second reading of the first value too, and Gaussian noise has ρ / T each, so that all of them add
    up to the budget at most. In any window of w steps ε_i is at most what the samples of the w - 1 steps
    before left of ε. With ``max_steps`` each has ε / I or ρ / I, and a user is in I of them. When a value is
    read, whether it is read again, and the shares depend on earlier noisy readings only: ε_i and ρ_i add up
    all the same (a filter for pure ε or zCDP), and filters and controllers are post-processing. Theorem 2 of
    the paper.

    After the last sample of a horizon it goes on predicting and spends nothing more: it never raises
    ``BudgetExhausted``.
    """

    parts: ClassVar[dict[str, type]] = {"settings": FASTSettings}

    def __init__(
        self,
        *,
        budget: PrivacyBudget,
        horizon: int | None = None,
        window: int | None = None,
        max_steps: int | None = None,
        filter: Literal["auto", "kalman", "particle"] = "auto",  # noqa: A002 - the public name
        sampling: Literal["auto", "adaptive"] | int = "auto",
        settings: FASTSettings | None = None,
        sensitivity: float = 1,
        grid_bits: int = 0,
        missing: Missing = "refuse",
        nonnegative: bool = False,
        noise: Noise | None = None,
    ) -> None:
        super().__init__(budget, sensitivity, grid_bits, missing, nonnegative, noise)
        self.horizon = _optional_count(horizon, "horizon")
        self.window = _optional_count(window, "window")
        self.max_steps = _optional_count(max_steps, "max_steps")
        if [self.horizon, self.window, self.max_steps].count(None) != 2:
            raise ConfigError("give exactly one of horizon= (user), window= (w-event) and max_steps=")
        self.settings = check_settings(settings, FASTSettings)
        self.filter = validate.one_of(filter, "filter", _FILTERS)
        if sampling not in ("auto", "adaptive"):
            validate.whole(sampling, "sampling", low=1)
        self.sampling: Literal["auto", "adaptive"] | int = sampling
        if sampling == "auto" and self.filter != "auto":
            self.sampling = "adaptive"
        if self.sampling != "auto" and (self.horizon is None or not budget.is_pure):
            raise ConfigError("the paper's filters and sampling need a horizon and a pure budget")
        self._refuse_idle_settings()
        self.max_samples = self.settings.max_samples
        if self.max_samples is None and self.sampling != "auto":
            self.max_samples = self._default_samples()
        self.process_variance = self.settings.process_variance
        if self.process_variance is None and self.filter != "auto":
            self.process_variance = 1e5
        self._shares = self._make_shares()
        self._learns = not isinstance(self._shares, EqualShares)
        # Of equal shares there are as many as values are read: over a horizon, no more than its steps.
        self._most = self.max_samples
        if self._most is None and not self._learns:
            self._most = self.horizon
        count = self.max_samples if self.sampling != "auto" else self._steps
        # The scale of a sample in grid steps: of each, or of one at every step if shares are learnt.
        self._scale = self._scale_of(self._shares.total / (count or 1))
        if 2 * self._scale > MAX_SCALE:
            raise ConfigError(
                "the noise needed exceeds the sampler's range: raise epsilon or lower grid_bits"
            )
        self._interval = 1
        self._filter = self._make_filter()
        self._sampler = PIDSampler(
            gains=self.settings.gains,
            integral_window=self.settings.integral_window,
            theta=self.settings.theta,
            set_point=self.settings.set_point,
        )
        self._next = 0

    def _refuse_idle_settings(self) -> None:
        """Refuse what was given and would have no effect."""
        idle = {
            "measurement_variance": (self.filter == "kalman", 'filter="kalman"'),
            "particles": (self.filter == "particle", 'filter="particle"'),
            **dict.fromkeys(_CONTROLLER, (self.sampling == "adaptive", 'sampling="adaptive"')),
        }
        for name in self.settings.changed():
            used, where = idle.get(name, (True, ""))
            if not used:
                raise ConfigError(f"{name} has no effect here: it is for {where}")

    @property
    def _steps(self) -> int:
        """How many steps the budget is for."""
        return self.horizon or self.window or self.max_steps or 1

    def _default_samples(self) -> int:
        assert self.horizon is not None
        if self.sampling == "adaptive":
            share = 0.25 if self.filter == "particle" else 0.15
            return max(1, math.ceil(share * self.horizon))
        assert isinstance(self.sampling, int)
        return math.ceil(self.horizon / self.sampling)

    def _make_shares(self) -> SampleShares:
        if not self.budget.is_pure:
            return EqualShares(zcdp_of(self.budget), self._steps)
        epsilon = self.budget.epsilon
        if self.sampling != "auto":
            assert self.max_samples is not None
            return EqualShares(epsilon, self.max_samples)
        if self.horizon is not None:
            return HorizonShares(epsilon, self.horizon)
        if self.window is not None:
            return WindowShares(epsilon, self.window)
        return EqualShares(epsilon, self._steps)

    def _scale_of(self, cost: float) -> float:
        """The noise's scale, or its deviation, in grid steps, at which a value costs ε or ρ so much."""
        if self.budget.is_pure:
            return self._step_sensitivity / cost
        return self._step_sensitivity / math.sqrt(2 * cost)

    def _make_filter(self) -> Filter:
        if self.filter == "auto":
            every_step = self._scale_of(self._shares.total / self._steps) / self.grid.one
            longest = 1
            if self._learns:
                longest = self.window or (self.horizon or 1) // _LEAST_SAMPLES
            return FilterBank(
                scale=every_step,
                process_variance=self.process_variance,
                longest=longest,
                noise="laplace" if self.budget.is_pure else "gaussian",
            )
        assert self.process_variance is not None
        if self.filter == "particle":
            return ParticleFilter(
                process_variance=self.process_variance,
                noise_scale=self.scale,
                particles=self.settings.particles,
                rng=self.noise.rng,
            )
        own = laplace_variance(self._scale) / self.grid.one**2
        given = self.settings.measurement_variance
        variance = own if given is None else given
        # Noise that is always 0 (a huge ε) has no variance; the filter then follows the observation.
        return KalmanFilter(process_variance=self.process_variance, measurement_variance=variance)

    @property
    def scale(self) -> float:
        """The scale (or deviation) of a sample, in the unit of values; if learnt, of one at every step."""
        return self._scale / self.grid.one

    def expected_error(self, change: float | None = None) -> float:
        """The root mean squared error to expect of a release, where values change by ``change`` (a standard
        deviation) from step to step; without it, that of reading every step unfiltered.

        For the learnt filter, once it has learnt; the paper's filters have none to offer.

        >>> made = FAST(budget=PrivacyBudget(1.0), horizon=100)
        >>> round(made.expected_error()), round(made.expected_error(change=10))
        (141, 24)
        """
        if self.filter != "auto":
            raise ConfigError('the expected error is known for filter="auto"')
        laplace = self.budget.is_pure
        plain = self.scale * (math.sqrt(2) if laplace else 1.0)
        if change is None:
            return plain
        variance = validate.positive(change, "change") ** 2
        if laplace:
            longest = self._filter.longest if self._learns and isinstance(self._filter, FilterBank) else 1
            return math.sqrt(expected_loss(variance, self.scale, longest))
        # The steady state of a Kalman filter: P = (P + Q) R / (P + Q + R).
        return math.sqrt((math.sqrt(variance**2 + 4 * variance * plain**2) - variance) / 2)

    @property
    def samples(self) -> int:
        """How many readings there have been; of the first value there may be two."""
        return self._queries

    @property
    def guarantee(self) -> Guarantee:
        """User-level, w-event or event-level, central."""
        kind: Literal["pure", "approximate"] = "pure" if self.budget.is_pure else "approximate"
        if self.window is not None:
            who = f"everything within any {self.window} successive steps"
            return Guarantee("w-event", kind, "central", who)
        if self.max_steps == 1:
            return Guarantee("event", kind, "central", "what one user adds to the value of one step")
        if self.max_steps is not None:
            return Guarantee("user", kind, "central", f"one user, who is in at most {self.max_steps} steps")
        most = "" if self.max_samples is None else f" (at most {self.max_samples} are read)"
        return Guarantee("user", kind, "central", f"one user, who may be in every step{most}")

    @property
    def unit(self) -> PrivacyUnit:
        """One user over the horizon or with so many steps, or one event of the window."""
        if self.window is not None or self.max_steps == 1:
            return PrivacyUnit.event()
        return PrivacyUnit.user(max_events=self._steps)

    @property
    def spent(self) -> PrivacyBudget | None:
        """What the samples so far cost whoever is protected."""
        spent, delta = self._shares.spent, self.budget.delta
        if not spent:
            return None
        return PrivacyBudget(spent if self.budget.is_pure else approximate_dp_of_zcdp(spent, delta), delta)

    def _gap(self) -> float:
        prior = self._filter.predict() if self._filter.started else math.nan
        if self.step >= self._next:
            self._next = self.step + 1  # the sample that was due is taken at the next step there is
        return prior

    def _release(self, steps: int) -> float:
        started = self._filter.started
        prior = self._filter.predict() if started else math.nan
        scale = self._sample_scale(first=not started)
        if scale is None:
            return prior
        observed = self._observe(steps, scale)
        if not started and (more := self._second_scale(observed)) is not None:
            scale, observed = more, self._observe(steps, more)
        in_values = scale / self.grid.one
        if started:
            posterior = self._filter.correct(observed, in_values)
        else:
            posterior = self._filter.start(observed, in_values)
            self._expect_moves(observed, in_values)
        if self.sampling == "auto":
            self._next = self.step + self._interval
        elif self.sampling != "adaptive":
            self._next = self.step + self.sampling
        elif not started:
            self._next = self.step + 1
        else:
            error = abs(posterior - prior) / max(posterior, self.settings.sanity)
            self._next = max(self._sampler.feedback(self.step, error), self.step + self._least_interval())
        return posterior

    def _observe(self, steps: int, scale: float) -> float:
        """A noisy value: the only place where a private one is looked at."""
        draw = self.noise.discrete_laplace if self.budget.is_pure else self.noise.discrete_gaussian
        self._queries += 1
        return float(self.grid.value(steps + int(draw(scale, 1)[0])))

    def _second_scale(self, observed: float) -> float | None:
        """The scale at which the first value is read again, if noise hides it; None if it is not to be."""
        if self.process_variance is not None or self.max_samples is not None:
            return None  # the first share follows from the guess, or samples are counted
        if not isinstance(self._shares, HorizonShares) or abs(observed) >= _HIDDEN * self.scale:
            return None
        cost = self._shares.take_part(_FIRST_SHARE)
        return self._scale_of(cost) * _ROUND_UP if cost > 0 else None  # the only step of all has had it all

    def _expect_moves(self, observed: float, scale: float) -> None:
        """Where no guess was given, guess from the first value as released how far the series moves."""
        if isinstance(self._filter, FilterBank) and self._guesses:
            move = _FIRST_MOVE * max(abs(observed), scale)
            self._filter.suppose(move**2, decades=_DECADES)

    @property
    def _guesses(self) -> bool:
        """Whether how far the series moves is guessed from its first value."""
        return self.process_variance is None and isinstance(self._shares, HorizonShares)

    def _sample_scale(self, *, first: bool) -> float | None:
        """The scale of the sample that is due now; None if none is."""
        if self.step < self._next or (self._most is not None and self._queries >= self._most):
            return None
        if not self._learns:
            self._shares.take(self.step, 1)
            return self._scale
        self._choose_interval(first=first)
        cost = self._shares.take(self.step, self._interval)
        return self._scale_of(cost) * _ROUND_UP if cost > 0 else None

    def _choose_interval(self, *, first: bool) -> None:
        """The interval from this sample to the next, by what the filter has learnt."""
        assert isinstance(self._filter, FilterBank)
        interval = self._filter.interval()
        if self.process_variance is None and first:  # nothing is known: begin as if every step were sampled
            interval = 1
        elif self.process_variance is None and not self._guesses:  # then feel the way
            interval = min(interval, _GROWTH * self._interval)
        if self.horizon is not None:
            ahead = max(1, self.horizon - self.step)
            last = self._queries + 1 == self.max_samples  # it stands for all that is to come
            interval = ahead if last else min(interval, ahead)
        self._interval = interval

    def _least_interval(self) -> int:
        """``pace`` times the interval at which the samples left would just last to the horizon."""
        assert self.horizon is not None
        assert self.max_samples is not None
        left = self.max_samples - self._queries
        ahead = self.horizon - self.step - 1
        return max(1, round(self.settings.pace * ahead / left)) if left > 0 and ahead > 0 else 1

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        values, arrays = super()._state()
        more, filter_arrays = self._filter.state()
        sampler = self._sampler
        values |= more | {"next": self._next, "sampled_at": sampler.at, "every": self._interval}
        arrays |= filter_arrays | {
            "errors": np.array(sampler.errors, dtype=np.float64),
            "interval": np.array([sampler.interval]),
            "shares": self._shares.to_array(),
        }
        return values, arrays

    def _restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        super()._restore(values, arrays)
        self._filter.restore(values, arrays)
        self._next = int(values["next"])
        self._sampler.at = int(values["sampled_at"])
        self._sampler.interval = float(arrays["interval"][0])
        self._sampler.errors.extend(float(error) for error in arrays["errors"])
        self._shares.restore(arrays["shares"])
        self._interval = int(values["every"])


def _optional(value: float | None, name: str) -> float | None:
    return None if value is None else validate.positive(value, name)


def _optional_count(value: int | None, name: str) -> int | None:
    return None if value is None else validate.whole(value, name, low=1)

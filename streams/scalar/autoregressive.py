"""Release by prediction: mix each value with what the releases so far predict, then add noise.

Zhang, Khalili and Liu, "Differentially Private Real-Time Release of Sequential Data" (2021): x_t = (1 - w_t)
Ẑ_t + w_t z_t + noise, where Ẑ_t is the linear prediction from x_{t-1} with mean, variance and correlation
learned from the releases alone.

**Weights are binary fractions.** w_t = W_t / 2^c with whole W_t, so W_t z_t is an exact integer of
sensitivity exactly W_t Δ on a grid of 2^-c: nothing is rounded, and the paper's trouble with integer noise
(Theorem A.5 forgets that a rounded w_t z_t has sensitivity ceil(w_t Δ)) does not arise.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from streams.scalar.base import Arrays, Guarantee, Missing, NumericMechanism, need_delta
from streams.scalar.binomial import MOST_BITS, calibrate, draw_binomial, epsilon_of, paper_epsilon
from synthgeo import validate
from synthgeo.errors import BudgetExhausted, ConfigError
from synthgeo.privacy.accountant import approximate_dp_of_zcdp, zcdp_of
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.noise import MAX_SCALE, Noise
from synthgeo.privacy.unit import PrivacyUnit


@dataclass(frozen=True)
class GeometricWeights:
    """w_t² = first · ratio^(t-1): with ratio < 1 the loss stays finite however long the stream runs."""

    first: float = 1.0
    ratio: float = 0.99

    def __post_init__(self) -> None:
        if not (0 < self.first <= 1 and 0 < self.ratio < 1):
            raise ConfigError(f"geometric weights need 0 < first <= 1 and 0 < ratio < 1, got {self}")


Weights = float | Sequence[float] | GeometricWeights
_MECHANISMS: tuple[Literal["gaussian", "binomial"], ...] = ("gaussian", "binomial")


class AR1Release(NumericMechanism):
    """Real-time release of a correlated series with Gaussian or binomial noise.

    ``weights`` is one weight in (0, 1], a sequence of weights, or ``GeometricWeights``; whatever it says, the
    first two steps have weight 1, since there is nothing to predict from. Weight 1 throughout is the Gaussian
    baseline. ``suggest_weight`` finds a good one for an assumed correlation and variance. ``horizon`` may be
    None with geometric weights only.

    Guarantee
    ---------
    (ε, δ), user-level, central. Neighbours: one user moves every value by at most Δ. The prediction is a
    function of earlier releases, so step t is an integer query W_t z_t of sensitivity s_t = W_t Δ plus noise,
    composed adaptively. Gaussian: discrete Gaussian noise of standard deviation σ is s_t² / (2σ²)-zCDP; σ² =
    Σ s_t² / (2ρ) with ρ the largest zCDP that implies the budget. The sum includes the first two steps. Under
    geometric weights it is at most Δ² (2 + first · ratio² / (1 - ratio)) for ever. Binomial: loss
    distributions of the shifts s_t, composed by dp-accounting. ``paper_sigma`` (Corollary 5.2) and
    ``paper_epsilon`` (Theorem A.5) are shown beside.

    Past the horizon ``update`` raises ``BudgetExhausted``.
    """

    def __init__(
        self,
        *,
        budget: PrivacyBudget,
        horizon: int | None = None,
        weights: Weights = 0.5,
        mechanism: Literal["gaussian", "binomial"] = "gaussian",
        positive_correlation: bool = True,
        sensitivity: float = 1,
        grid_bits: int = 0,
        missing: Missing = "refuse",
        nonnegative: bool = False,
        noise: Noise | None = None,
    ) -> None:
        need_delta(budget, "AR1Release")
        super().__init__(budget, sensitivity, grid_bits, missing, nonnegative, noise)
        self.mechanism = validate.one_of(mechanism, "mechanism", _MECHANISMS)
        self.positive_correlation = validate.flag(positive_correlation, "positive_correlation")
        self.weights = _check_weights(weights)
        self.horizon = None if horizon is None else validate.whole(horizon, "horizon", low=1)
        if isinstance(self.weights, tuple):
            self.horizon = len(self.weights) if self.horizon is None else self.horizon
            if self.horizon > len(self.weights):
                raise ConfigError(f"{len(self.weights)} weights for a horizon of {self.horizon}")
        if self.horizon is None and not isinstance(self.weights, GeometricWeights):
            raise ConfigError("a horizon is needed unless the weights are geometric")
        self._square_sum = self._sum_of_squares()
        rho = zcdp_of(budget)
        # In units of the value's grid; the weights' grid is chosen so that the sampler's range suffices.
        ideal = self._step_sensitivity * math.sqrt(self._square_sum / (2 * rho))
        self._half = 0
        if mechanism == "gaussian":
            self._bits = min(20, math.floor(math.log2(MAX_SCALE / ideal)))
            if self._bits < 6:
                raise ConfigError(
                    "the noise needed exceeds the sampler's range: raise epsilon or lower grid_bits"
                )
            self._sigma = ideal * (1 << self._bits)
        else:
            self._bits, self._half = self._calibrate_binomial(ideal)
            self._sigma = math.sqrt(self._half / 2)
        self._history = _History()
        self._used = 0  # Σ W_t² so far

    def _sum_of_squares(self) -> float:
        """Σ w_t² over the horizon, the first two steps with weight 1; an upper bound for geometric weights
        without end.
        """
        first = min(2, self.horizon or 2)
        if self.horizon is None:
            assert isinstance(self.weights, GeometricWeights)
            return first + self.weights.first * self.weights.ratio**2 / (1 - self.weights.ratio)
        if isinstance(self.weights, float):
            return first + (self.horizon - first) * self.weights**2
        return first + math.fsum(self._weight(t) ** 2 for t in range(3, self.horizon + 1))

    def _weight(self, t: int) -> float:
        """The weight of the t-th value, from 1."""
        if t <= 2:
            return 1.0
        if isinstance(self.weights, GeometricWeights):
            return math.sqrt(self.weights.first * self.weights.ratio ** (t - 1))
        return self.weights if isinstance(self.weights, float) else self.weights[t - 1]

    def _whole_weight(self, t: int, bits: int | None = None) -> int:
        """W_t, rounded down so that the sum of squares is never above the one accounted for."""
        return math.floor(self._weight(t) * (1 << (self._bits if bits is None else bits)))

    def _shifts(self, bits: int, values: int | None = None) -> Counter[int]:
        """How often each shift s_t occurs among the first ``values`` (default: all)."""
        length = values if values is not None else self.horizon
        shifts: Counter[int] = Counter()
        if isinstance(self.weights, float) and length is not None:
            shifts[self._step_sensitivity * (1 << bits)] += min(2, length)
            shifts[self._step_sensitivity * self._whole_weight(3, bits)] += max(0, length - 2)
        else:
            t = 1
            while (length is None or t <= length) and (w := self._whole_weight(t, bits)):
                shifts[self._step_sensitivity * w] += 1
                t += 1
        return Counter({shift: count for shift, count in shifts.items() if shift and count})

    def _calibrate_binomial(self, ideal: float) -> tuple[int, int]:
        for bits in range(6, -1, -1):
            guess = 2 * (ideal * (1 << bits)) ** 2
            if 2 * guess <= MOST_BITS / 16 and self._whole_weight(3, bits) > 0:
                return bits, calibrate(
                    self._shifts(bits), self.budget.epsilon, self.budget.delta, start=guess
                )
        raise ConfigError("binomial noise would need too many random bits here; use the Gaussian mechanism")

    @property
    def sigma(self) -> float:
        """The noise's standard deviation, in the unit of the values."""
        return self._sigma / (1 << self._bits) / self.grid.one

    @property
    def paper_sigma(self) -> float:
        """Corollary 5.2 of the paper, for comparison."""
        log = math.log(1 / self.budget.delta)
        denominator = 2 * self.budget.epsilon + 4 * log - 4 * math.sqrt(log * log + self.budget.epsilon * log)
        return self.sensitivity * math.sqrt(self._square_sum / denominator)

    @property
    def paper_epsilon(self) -> float:
        """What the paper's theorem says of the noise in use: Theorem 5.1 (ii) or A.5."""
        if self.mechanism == "binomial":
            return paper_epsilon(self._half, self._shifts(self._bits), self.budget.delta)
        rho = self._square_sum * self.sensitivity**2 / (2 * self.sigma**2)
        return rho + 2 * math.sqrt(rho * math.log(1 / self.budget.delta))

    @property
    def guarantee(self) -> Guarantee:
        """User-level, approximate, central."""
        return Guarantee("user", "approximate", "central", "one user, who may be in every step")

    @property
    def unit(self) -> PrivacyUnit:
        """One user, in whatever of the steps."""
        return PrivacyUnit.user(max_events=self.horizon or max(1, self._queries))

    @property
    def spent(self) -> PrivacyBudget | None:
        """The (ε, δ) of the values released so far, at the budget's δ."""
        if not self._queries:
            return None
        delta = self.budget.delta
        if self.mechanism == "gaussian":
            rho = self._used * self._step_sensitivity**2 / (2 * self._sigma**2)
            return PrivacyBudget(approximate_dp_of_zcdp(rho, delta), delta)
        shifts = self._shifts(self._bits, self._queries)
        epsilon = epsilon_of(self._half, shifts, delta, target=self.budget.epsilon)
        return PrivacyBudget(max(epsilon, 1e-12), delta)

    def _require(self, queries: int, steps: int) -> None:  # noqa: ARG002 - one shape for all
        if self.horizon is not None and self._queries + queries > self.horizon:
            left = self.horizon - self._queries
            raise BudgetExhausted(
                f"{queries} more values asked for, the budget covers {left} of {self.horizon}"
            )

    def _prediction(self) -> float:
        history = self._history
        if history.count < 2:
            return self._last
        return history.predict(self._last, self.sigma**2, positive=self.positive_correlation)

    def _gap(self) -> float:
        return self._prediction()

    def _release(self, steps: int) -> float:
        t = self._queries + 1
        weight = self._whole_weight(t)
        total = weight * steps
        if t > 2:
            share = 1 - weight / (1 << self._bits)
            total += math.floor(share * self._prediction() * (1 << self._bits) * self.grid.one)
        if weight:  # a geometric weight that has become 0 reads nothing, so it needs no noise
            total += int(self._draw()[0])
        released = total / (1 << self._bits) / self.grid.one
        self._queries = t
        self._used += weight * weight
        self._history.add(released)
        return released

    def _draw(self) -> np.ndarray:
        if self.mechanism == "gaussian":
            return self.noise.discrete_gaussian(self._sigma, 1)
        return draw_binomial(self.noise, self._half, 1)

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        values, arrays = super()._state()
        return values | {"used": self._used}, arrays | {"history": self._history.to_array()}

    def _restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        super()._restore(values, arrays)
        self._used = int(values["used"])
        self._history = _History.from_array(arrays["history"])


class _History:
    """Running sums of the releases, from which mean, variance and lag-one correlation follow (the paper's
    Algorithm 1).

    Sums are kept about the first release: their differences then lose no digits when the level is high.
    """

    def __init__(self) -> None:
        self.count = 0
        self.origin = self.first = self.last = 0.0
        self.total = self.square = self.lagged = 0.0

    def add(self, released: float) -> None:
        """Take note of a release."""
        if self.count == 0:
            self.origin = released
        x = released - self.origin
        if self.count:
            self.lagged += self.last * x
        else:
            self.first = x
        self.total += x
        self.square += x * x
        self.last = x
        self.count += 1

    def estimates(self, noise_variance: float, *, positive: bool) -> tuple[float, float, float]:
        """Mean, variance and correlation of the series behind the releases."""
        n = self.count
        mean = self.total / n
        spread = max(0.0, self.square - n * mean * mean)
        variance = max(0.0, spread / (n - 1) - noise_variance)
        below = spread - (self.last - mean) ** 2
        above = self.lagged - mean * (2 * self.total - self.first - self.last) + (n - 1) * mean * mean
        correlation = above / below if below > 0 else 0.0
        if positive:
            correlation += 1 / n
        return mean + self.origin, variance, min(1.0, max(-1.0, correlation))

    def predict(self, previous: float, noise_variance: float, *, positive: bool) -> float:
        """The linear prediction of the next value from the last release."""
        mean, variance, correlation = self.estimates(noise_variance, positive=positive)
        slope = correlation * variance / (variance + noise_variance)
        return mean + slope * (previous - mean)

    def to_array(self) -> np.ndarray:
        """Plain numbers, for a saved state."""
        return np.array(
            [self.count, self.origin, self.first, self.last, self.total, self.square, self.lagged],
            dtype=np.float64,
        )

    @classmethod
    def from_array(cls, values: np.ndarray) -> _History:
        """What ``to_array`` wrote."""
        history = cls()
        history.count = int(values[0])
        history.origin, history.first, history.last = (float(v) for v in values[1:4])
        history.total, history.square, history.lagged = (float(v) for v in values[4:7])
        return history


def _check_weights(weights: Any) -> float | tuple[float, ...] | GeometricWeights:
    if isinstance(weights, GeometricWeights):
        return weights
    if isinstance(weights, dict):
        return GeometricWeights(**weights)
    if isinstance(weights, int | float | np.floating | np.integer):
        return validate.share(weights, "weights", one=True)
    numbers = tuple(validate.share(weight, "each of weights", one=True) for weight in weights)
    if not numbers:
        raise ConfigError("weights must hold at least one number")
    return numbers


def expected_squared_error(
    weight: float,
    *,
    correlation: float,
    variance: float,
    budget: PrivacyBudget,
    horizon: int,
    sensitivity: float = 1,
) -> float:
    """The mean squared error a step under an assumed stationary AR(1) process. Uses no data.

    The paper's Theorem 6.1 takes every release for the true value plus fresh noise; at small weights it is
    not (it is mostly prediction), and the theorem promises far too much. Here release and value are followed
    as one linear process, with the estimates that the mechanism itself would settle on.
    """
    return float(
        _stationary_error(np.array([weight]), correlation, variance, budget, horizon, sensitivity)[0]
    )


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

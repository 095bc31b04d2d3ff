"""Release by prediction: mix each value with what the releases so far predict, then add noise.

Zhang, Khalili and Liu, "Differentially Private Real-Time Release of Sequential Data" (2021): x_t = (1 - w_t)
Ẑ_t + w_t z_t + noise, where Ẑ_t is the linear prediction from earlier releases.

**Weights are binary fractions.** w_t = W_t / 2^c with whole W_t, so W_t z_t is an exact integer of
sensitivity exactly W_t Δ on a grid of 2^-c: nothing is rounded, and the paper's trouble with integer noise
(Theorem A.5 forgets that a rounded w_t z_t has sensitivity ceil(w_t Δ)) does not arise.

**What a constant weight is.** (x_t - (1 - w) Ẑ_t) / w = z_t + noise / w, and at equal (ε, δ) noise / w has
the variance of the plain Gaussian mechanism: the method is that mechanism followed by a filter of constant
gain w. ``predictor="all"`` filters with a gain that follows from the process instead.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from streams.scalar.accounting import MOST_BITS, calibrate, draw_binomial, epsilon_of, paper_epsilon
from streams.scalar.ar1_process import AR1Process, ProcessEstimate
from streams.scalar.base import Arrays, Guarantee, Missing, NumericMechanism, need_delta, read_series
from synthgeo import validate
from synthgeo.errors import BudgetExhausted, ConfigError, InputError
from synthgeo.parameters import Settings, check_settings
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
        validate.share(self.first, "first", one=True)
        validate.share(self.ratio, "ratio")


Weights = float | Sequence[float] | GeometricWeights
_MECHANISMS: tuple[Literal["gaussian", "binomial"], ...] = ("gaussian", "binomial")
_PREDICTORS: tuple[Literal["last", "all"], ...] = ("last", "all")
_MIXTURES: tuple[Literal["linear", "geometric"], ...] = ("linear", "geometric")


@dataclass(frozen=True, kw_only=True)
class AR1Settings(Settings):
    """Settings of ``AR1Release``: what values are mixed with, and how.

    Attributes
    ----------
    mixture
        ``"linear"``, or ``"geometric"`` for w z + (1 - w) sqrt(z Ẑ) (section 7; values must not be negative).
    process
        Mean, variance and correlation of the series, where they are public. None: they are learnt.
    history
        Two or more values that came before, public or released earlier. They are not read as private data.
    positive_correlation
        Whether the correlation that is learnt must be positive.
    """

    mixture: Literal["linear", "geometric"] = "linear"
    process: AR1Process | None = None
    history: tuple[float, ...] | None = None
    positive_correlation: bool = True

    def __post_init__(self) -> None:
        if self.process is not None:
            validate.instance(self.process, "process", AR1Process)
        if self.history is not None:
            values = read_series(self.history)
            if not np.isfinite(values).all():
                raise ConfigError("history must hold finite numbers")
            self._check(history=tuple(values.tolist()))
        self._check(
            mixture=validate.one_of(self.mixture, "mixture", _MIXTURES),
            positive_correlation=validate.flag(self.positive_correlation, "positive_correlation"),
        )


class AR1Release(NumericMechanism):
    """Real-time release of a correlated series with Gaussian or binomial noise.

    A weight of 0 skips a value: its prediction is released, nothing is read and nothing is spent. Whatever
    ``weights`` says, the first two steps have weight 1, since there is nothing to predict from, unless the
    ``process`` or the ``history`` is known (``AR1Settings``). A public gap is a step with a weight and a
    sensitivity of its own. Weight 1 throughout is the Gaussian baseline. ``suggest_weight`` finds a good one
    for an assumed process.

    Parameters
    ----------
    budget
        ε and δ.
    horizon
        Number of steps. None with geometric weights only.
    weights
        One weight in (0, 1], a sequence of weights in [0, 1], or ``GeometricWeights``.
    mechanism
        ``"gaussian"`` or ``"binomial"`` noise.
    predictor
        ``"last"`` predicts from the last release (the paper's method), ``"all"`` from all of them, each
        weighed by how much it tells (section 7).
    settings
        All other choices (``AR1Settings``).
    sensitivity
        The most that one user changes one value by; a sequence has one number per step, gaps included.
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
    (ε, δ), user-level, central. Neighbours: one user moves every value by at most Δ_t. The prediction is a
    function of earlier releases and public numbers, so step t is an integer query W_t z_t of sensitivity s_t
    = W_t Δ_t plus noise, composed adaptively. Gaussian: discrete Gaussian noise of standard deviation σ is
    s_t² / (2σ²)-zCDP; σ² = Σ s_t² / (2ρ) with ρ the largest zCDP that implies the budget. The sum includes
    the steps of weight 1 at the start. Under geometric weights it is at most Δ² (2 + first · ratio² / (1 -
    ratio)) for ever. Binomial: loss distributions of the shifts s_t, composed by dp-accounting. Geometric
    mixture: the query is floor of W z + sqrt(K z), K public, of sensitivity s_t = W Δ + ceil(sqrt(K Δ)),
    because |sqrt(a) - sqrt(b)| <= sqrt(|a - b|); its noise has σ_t = s_t sqrt(T / (2ρ)), so each of T steps
    costs ρ / T. ``paper_sigma`` (Corollary 5.2), ``paper_epsilon`` (Theorems 5.1 (ii) and A.5) and
    ``paper_delta`` (Theorem 5.1 (i)) are shown beside.

    Past the horizon, in steps, ``update`` raises ``BudgetExhausted``.
    """

    parts: ClassVar[dict[str, type]] = {"settings": AR1Settings}

    def __init__(
        self,
        *,
        budget: PrivacyBudget,
        horizon: int | None = None,
        weights: Weights = 0.5,
        mechanism: Literal["gaussian", "binomial"] = "gaussian",
        predictor: Literal["last", "all"] = "last",
        settings: AR1Settings | None = None,
        sensitivity: float | Sequence[float] = 1,
        grid_bits: int = 0,
        missing: Missing = "refuse",
        nonnegative: bool = False,
        noise: Noise | None = None,
    ) -> None:
        need_delta(budget, "AR1Release")
        by_step = _by_step(sensitivity)
        largest = sensitivity if by_step is None else max(by_step)
        super().__init__(budget, largest, grid_bits, missing, nonnegative, noise)  # type: ignore[arg-type]
        if by_step is not None:
            self.sensitivity = by_step  # type: ignore[assignment]
        self.mechanism = validate.one_of(mechanism, "mechanism", _MECHANISMS)
        self.predictor = validate.one_of(predictor, "predictor", _PREDICTORS)
        self.settings = check_settings(settings, AR1Settings)
        self.mixture, self.process = self.settings.mixture, self.settings.process
        self.weights = _check_weights(weights)
        self.horizon = None if horizon is None else validate.whole(horizon, "horizon", low=1)
        self._check_lengths()
        self._estimate = ProcessEstimate()
        self._seen = math.nan  # the last release that read a value
        self._uncertain = 0.0  # the variance of what ``predictor="all"`` believes about that value
        self._since = 0  # steps released since
        for value in self.settings.history or ():
            self._estimate.add(value, 0.0)
            self._seen = value
        self._warm_up = 0 if self.process is not None else max(0, 2 - self._estimate.count)
        self._square_sum = self._sum_of_squares()
        rho = zcdp_of(budget)
        self._share = rho / (self.horizon or 1)  # of a step, for the geometric mixture
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
        self._read_shifts: Counter[int] = Counter()  # how often each s_t has been read so far

    def _check_lengths(self) -> None:
        for name, values in (("weights", self.weights), ("sensitivity", self.sensitivity)):
            if isinstance(values, tuple):
                self.horizon = len(values) if self.horizon is None else self.horizon
                if self.horizon > len(values):
                    raise ConfigError(f"{len(values)} numbers of {name} for a horizon of {self.horizon}")
        if self.horizon is None and not isinstance(self.weights, GeometricWeights):
            raise ConfigError("a horizon is needed unless the weights are geometric")
        if self.mixture == "geometric":
            if self.horizon is None or self.mechanism == "binomial":
                raise ConfigError('mixture="geometric" needs a horizon and Gaussian noise')
            if self.predictor == "all":
                raise ConfigError('mixture="geometric" goes with predictor="last"')

    def _sum_of_squares(self) -> float:
        """Σ (w_t Δ_t / Δ)² over the horizon, Δ the largest; a bound for geometric weights without end."""
        first = self._warm_up
        if self.horizon is None:
            assert isinstance(self.weights, GeometricWeights)
            return first + self.weights.first * self.weights.ratio**first / (1 - self.weights.ratio)
        first = min(first, self.horizon)
        if isinstance(self.weights, float) and not isinstance(self.sensitivity, tuple):
            return first + (self.horizon - first) * self.weights**2
        total = math.fsum((self._weight(t) * self._shift(t)) ** 2 for t in range(1, self.horizon + 1))
        if total == 0:
            raise ConfigError("weights must hold at least one number > 0")
        return total / self._step_sensitivity**2

    def _weight(self, t: int) -> float:
        """The weight of step t, from 1: of the step and not of the t-th value, since gaps are steps, too."""
        if t <= self._warm_up:
            return 1.0
        if isinstance(self.weights, GeometricWeights):
            return math.sqrt(self.weights.first * self.weights.ratio ** (t - 1))
        return self.weights if isinstance(self.weights, float) else self.weights[t - 1]

    def _whole_weight(self, t: int, bits: int | None = None) -> int:
        """W_t, rounded down so that the sum of squares is never above the one accounted for."""
        return math.floor(self._weight(t) * (1 << (self._bits if bits is None else bits)))

    def _shift(self, t: int) -> int:
        """The sensitivity of step t, from 1, in grid steps."""
        if not isinstance(self.sensitivity, tuple):
            return self._step_sensitivity
        return math.ceil(self.sensitivity[t - 1] * self.grid.one)

    def _shifts(self, bits: int) -> Counter[int]:
        """How often each shift s_t occurs over all steps."""
        length = self.horizon
        shifts: Counter[int] = Counter()
        if isinstance(self.weights, float) and not isinstance(self.sensitivity, tuple) and length is not None:
            first = min(self._warm_up, length)
            shifts[self._step_sensitivity * (1 << bits)] += first
            shifts[self._step_sensitivity * self._whole_weight(self._warm_up + 1, bits)] += length - first
        elif length is not None:
            shifts.update(self._shift(t) * self._whole_weight(t, bits) for t in range(1, length + 1))
        else:
            t = 1
            while w := self._whole_weight(t, bits):
                shifts[self._shift(t) * w] += 1
                t += 1
        return Counter({shift: count for shift, count in shifts.items() if shift and count})

    def _calibrate_binomial(self, ideal: float) -> tuple[int, int]:
        usual = min(self._warm_up + 1, self.horizon or self._warm_up + 1)  # a step with a weight of its own
        for bits in range(6, -1, -1):
            guess = 2 * (ideal * (1 << bits)) ** 2
            if 2 * guess <= MOST_BITS / 16 and self._whole_weight(usual, bits) > 0:
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
        return self._largest * math.sqrt(self._square_sum / denominator)

    @property
    def paper_epsilon(self) -> float:
        """What the paper's theorem says of the noise in use: Theorem 5.1 (ii) or A.5."""
        if self.mechanism == "binomial":
            return paper_epsilon(self._half, self._shifts(self._bits), self.budget.delta)
        rho = self._square_sum * self._largest**2 / (2 * self.sigma**2)
        return rho + 2 * math.sqrt(rho * math.log(1 / self.budget.delta))

    def paper_delta(self, epsilon: float) -> float:
        """Theorem 5.1 (i): the δ at ``epsilon`` of the Gaussian noise in use; 1 below where it speaks."""
        phi = self._square_sum * self._largest**2 / self.sigma**2
        if validate.positive(epsilon, "epsilon") < phi / 2:
            return 1.0
        return math.exp((phi / 4 - epsilon / 2) * (epsilon / phi - 0.5))

    @property
    def _largest(self) -> float:
        return max(self.sensitivity) if isinstance(self.sensitivity, tuple) else self.sensitivity

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
        read, delta = self._read_shifts, self.budget.delta
        if not read:
            return None
        if self.mechanism == "binomial":
            epsilon = epsilon_of(self._half, read, delta, target=self.budget.epsilon)
            return PrivacyBudget(max(epsilon, 1e-12), delta)
        if self.mixture == "geometric":
            rho = read.total() * self._share
        else:
            rho = sum(count * shift**2 for shift, count in read.items()) / (2 * self._sigma**2)
        return PrivacyBudget(approximate_dp_of_zcdp(rho, delta), delta)

    def _require(self, queries: int, steps: int) -> None:  # noqa: ARG002 - one shape for all
        if self.horizon is not None and self.step + steps > self.horizon:
            left = max(0, self.horizon - self.step)
            raise BudgetExhausted(f"{steps} more steps asked for, the budget covers {left} of {self.horizon}")

    def _model(self) -> AR1Process:
        if self.process is not None:
            return self.process
        return self._estimate.process(positive=self.settings.positive_correlation)

    def _prediction(self) -> float:
        """What earlier releases say about the next value."""
        if self.process is None and self._estimate.count < 2:
            return self._last
        model = self._model()
        if math.isnan(self._seen):
            return model.mean
        noise = 0.0 if self._estimate.noise == 0 and self.process is None else self.sigma**2
        if self.predictor == "all":
            noise = 0.0  # ``_seen`` is then the filter's estimate, already shrunk
        return model.predict(self._seen, noise, steps=self._since + 1)

    def _gap(self) -> float:
        prediction = self._prediction()
        self._since += 1
        return prediction

    def _release(self, steps: int) -> float:
        t = self.step + 1
        weight = self._whole_weight(t)
        self._queries += 1
        if weight == 0:  # skipped: nothing is read, so it needs no noise
            return self._gap()
        prediction = math.nan if t <= self._warm_up else self._prediction()
        one = 1 << self._bits
        if math.isnan(prediction):  # nothing to mix with: what was read itself
            prediction, one = 0.0, weight
        if self.mixture == "geometric":
            total, shift = self._geometric(steps, weight, prediction, self._shift(t))
            total += int(self.noise.discrete_gaussian(shift / math.sqrt(2 * self._share), 1)[0])
        else:
            shift = weight * self._shift(t)
            total = weight * steps + math.floor((1 - weight / one) * prediction * one * self.grid.one)
            total += int(self._draw()[0])
        self._read_shifts[shift] += 1
        released = total / one / self.grid.one
        self._learn(released, prediction, weight / one, (self._sigma / one / self.grid.one) ** 2)
        return released

    def _geometric(self, steps: int, weight: int, prediction: float, change: int) -> tuple[int, int]:
        """floor(W z + sqrt(K z)), K = (2^c - W)² Ẑ, and what a change of z moves it by: exact integers."""
        rest = ((1 << self._bits) - weight) ** 2 * max(0, math.floor(prediction * self.grid.one))
        reach = math.isqrt(rest * change)
        return (
            weight * steps + math.isqrt(rest * steps),
            weight * change + reach + (reach * reach < rest * change),
        )

    def _learn(self, released: float, prediction: float, weight: float, variance: float) -> None:
        """Take note of a release with noise of this variance, which predictions are made from."""
        lag, self._since = self._since + 1, 0
        if self.predictor == "last":
            self._estimate.add(released, variance, lag=lag)
            self._seen = released
            return
        fresh = (released - (1 - weight) * prediction) / weight  # the value itself with noise / weight
        variance /= weight**2
        self._estimate.add(fresh, variance, lag=lag)
        if self._estimate.count < 2 and self.process is None:
            self._seen, self._uncertain = fresh, variance
            return
        model = self._model()
        kept = model.correlation ** (2 * lag)
        known = not math.isnan(self._seen)
        before = kept * self._uncertain + (1 - kept) * model.variance if known else model.variance
        gain = before / (before + variance)
        expected = model.predict(self._seen, 0.0, steps=lag) if known else model.mean
        self._seen = expected + gain * (fresh - expected)
        self._uncertain = (1 - gain) * before

    def _draw(self) -> np.ndarray:
        if self.mechanism == "gaussian":
            return self.noise.discrete_gaussian(self._sigma, 1)
        return draw_binomial(self.noise, self._half, 1)

    def _check(self, steps: Any) -> None:
        if self.mixture == "geometric" and np.min(steps, initial=0) < 0:
            raise InputError('mixture="geometric" takes values >= 0')

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        values, arrays = super()._state()
        values |= {"read": list(self._read_shifts.items()), "since": self._since}
        arrays |= {"estimate": self._estimate.to_array(), "seen": np.array([self._seen, self._uncertain])}
        return values, arrays

    def _restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        super()._restore(values, arrays)
        self._since = int(values["since"])
        self._read_shifts = Counter({int(shift): int(count) for shift, count in values["read"]})
        self._estimate = ProcessEstimate.from_array(arrays["estimate"])
        self._seen, self._uncertain = (float(v) for v in arrays["seen"])


def _by_step(sensitivity: Any) -> tuple[float, ...] | None:
    """Sensitivities of a sequence, one per step; None for one number."""
    if isinstance(sensitivity, list | tuple | np.ndarray):
        numbers = tuple(validate.positive(value, "each of sensitivity") for value in list(sensitivity))
        if not numbers:
            raise ConfigError("sensitivity must hold at least one number")
        return numbers
    return None


def _check_weights(weights: Any) -> float | tuple[float, ...] | GeometricWeights:
    if isinstance(weights, GeometricWeights):
        return weights
    if isinstance(weights, int | float | np.floating | np.integer):
        return validate.share(weights, "weights", one=True)
    numbers = tuple(validate.share(weight, "each of weights", zero=True, one=True) for weight in weights)
    if not numbers:
        raise ConfigError("weights must hold at least one number")
    return numbers

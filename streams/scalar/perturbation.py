"""Noise at every step or sample: Laplace, Gaussian, the two baselines, and counters of running totals."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np

from streams.counters import KINDS, bank_from_state, make_bank
from streams.counters.base import CounterBank
from streams.counters.choose import error_bound
from streams.scalar.base import Arrays, Guarantee, Missing, NumericMechanism, need_delta, need_pure
from synthgeo import validate
from synthgeo.arrays import Floats
from synthgeo.errors import BudgetExhausted, ConfigError
from synthgeo.privacy.accountant import approximate_dp_of_zcdp, zcdp_of
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.noise import Noise, laplace_variance
from synthgeo.privacy.unit import PrivacyUnit


class _Independent(NumericMechanism):
    """One noisy value per step; a user is in at most ``max_steps`` of them."""

    def __init__(
        self,
        budget: PrivacyBudget,
        horizon: int | None,
        max_steps: int | None,
        sensitivity: float,
        grid_bits: int,
        missing: Missing,
        nonnegative: bool,
        noise: Noise | None,
    ) -> None:
        super().__init__(budget, sensitivity, grid_bits, missing, nonnegative, noise)
        if horizon is None and max_steps is None:
            raise ConfigError(
                "give horizon= (a user may be in every step) or max_steps= (how many a user may be in)"
            )
        self.horizon = None if horizon is None else validate.whole(horizon, "horizon", low=1)
        self.max_steps = None if max_steps is None else validate.whole(max_steps, "max_steps", low=1)
        # A user cannot be in more steps than there are.
        self._shares = min(v for v in (self.horizon, self.max_steps) if v is not None)

    def _require(self, queries: int, steps: int) -> None:  # noqa: ARG002 - one shape for all
        if self.horizon is not None and self._queries + queries > self.horizon:
            left = self.horizon - self._queries
            raise BudgetExhausted(
                f"{queries} more values asked for, the budget covers {left} of {self.horizon}"
            )

    @property
    def unit(self) -> PrivacyUnit:
        """One event if a user is in one step, else one user with at most that many."""
        return PrivacyUnit.event() if self._shares == 1 else PrivacyUnit.user(max_events=self._shares)

    @property
    def guarantee(self) -> Guarantee:
        """User-level, or event-level when a user is in one step only."""
        kind: Literal["pure", "approximate"] = "pure" if self.budget.is_pure else "approximate"
        if self._shares == 1:
            return Guarantee("event", kind, "central", "what one user adds to the value of one step")
        return Guarantee("user", kind, "central", f"one user, who is in at most {self._shares} steps")

    def run(self, series: Iterable[float]) -> Floats:
        """Release the next ``len(series)`` values in one draw. Everything is checked first."""
        steps, gap = self._read(series)
        known = np.flatnonzero(~gap)
        self._require(known.size, gap.size)
        if steps.size == 0:
            return np.empty(0)
        out = np.full(steps.size, np.nan)
        out[known] = self.grid.value(steps[known] + self._draw(known.size))
        # A public gap repeats the release before it.
        source = np.maximum.accumulate(np.where(gap, -1, np.arange(steps.size)))
        out = np.where(source < 0, self._last, out[source])
        self._queries += known.size
        self.step += steps.size
        self._last = float(out[-1])
        return np.maximum(out, 0.0) if self.nonnegative else out

    def _release(self, steps: int) -> float:
        released = float(self.grid.value(steps + int(self._draw(1)[0])))
        self._queries += 1
        return released

    @abstractmethod
    def _draw(self, count: int) -> np.ndarray:
        """Noise in grid steps."""


class IndependentLaplace(_Independent):
    """Discrete Laplace noise of scale I Δ / ε on every value: what ``LPA`` and ``Uniform`` share."""

    @property
    def scale(self) -> float:
        """The Laplace scale, in the unit of the values."""
        return self._scale / self.grid.one

    @property
    def variance(self) -> float:
        """The variance that each released value carries."""
        return laplace_variance(self._scale) / self.grid.one**2

    @property
    def spent(self) -> PrivacyBudget | None:
        """ε / I for each value released, and no more than ε: a user is in at most I of them."""
        used = min(self._queries, self._shares)
        return PrivacyBudget(self.budget.epsilon * used / self._shares) if used else None

    @property
    def _scale(self) -> float:
        return self._step_sensitivity * self._shares / self.budget.epsilon

    def _draw(self, count: int) -> np.ndarray:
        return self.noise.discrete_laplace(self._scale, count)


class LPA(IndependentLaplace):
    """The Laplace perturbation algorithm: discrete Laplace noise on every value.

    ``horizon`` T alone: a user may be in every one of T steps (user-level). ``max_steps`` I: a user is in at
    most I steps, which the caller vouches for (a series of totals does not say who is in it); with I = 1 this
    is event-level, and without ``horizon`` the stream has no end.

    Guarantee
    ---------
    Pure ε, central. Neighbours: two series that differ by one user, who moves at most I values by at most Δ
    each. The vector of values has L1 sensitivity I Δ (after rounding: I ceil(Δ 2^bits) grid steps), and each
    value gets discrete Laplace noise of scale I Δ / ε: the Laplace mechanism, whose log-ratio is at most the
    sum of |changes| / scale <= ε. Later values may depend on earlier releases (adaptive composition). Fan and
    Xiong, "An Adaptive Approach to Real-Time Aggregate Monitoring With Differential Privacy" (2014),
    Algorithm 1.

    Past the horizon ``update`` raises ``BudgetExhausted`` and changes nothing.
    """

    def __init__(
        self,
        *,
        budget: PrivacyBudget,
        horizon: int | None = None,
        max_steps: int | None = None,
        sensitivity: float = 1,
        grid_bits: int = 0,
        missing: Missing = "refuse",
        nonnegative: bool = False,
        noise: Noise | None = None,
    ) -> None:
        need_pure(budget, "LPA")
        super().__init__(budget, horizon, max_steps, sensitivity, grid_bits, missing, nonnegative, noise)


class Gaussian(_Independent):
    """Discrete Gaussian noise on every value: the baseline at (ε, δ).

    Guarantee
    ---------
    (ε, δ), central; the neighbours of ``LPA``. The vector of values has L2 sensitivity sqrt(I) Δ, so discrete
    Gaussian noise of standard deviation sqrt(I) Δ / sqrt(2 ρ) gives ρ-zCDP (Canonne, Kamath and Steinke 2020,
    also coordinate by coordinate), with ρ the largest that implies the budget. ``paper_sigma`` is the
    classical sqrt(2 ln(1.25/δ)) sqrt(I) Δ / ε, proved for ε < 1 only.
    """

    def __init__(
        self,
        *,
        budget: PrivacyBudget,
        horizon: int | None = None,
        max_steps: int | None = None,
        sensitivity: float = 1,
        grid_bits: int = 0,
        missing: Missing = "refuse",
        nonnegative: bool = False,
        noise: Noise | None = None,
    ) -> None:
        need_delta(budget, "Gaussian")
        super().__init__(budget, horizon, max_steps, sensitivity, grid_bits, missing, nonnegative, noise)
        self._rho = zcdp_of(budget)
        self._sigma = self._step_sensitivity * math.sqrt(self._shares / (2 * self._rho))

    @property
    def sigma(self) -> float:
        """The standard deviation in use, in the unit of the values."""
        return self._sigma / self.grid.one

    @property
    def paper_sigma(self) -> float:
        """The classical calibration, for comparison."""
        factor = math.sqrt(2 * math.log(1.25 / self.budget.delta))
        return factor * math.sqrt(self._shares) * self.sensitivity / self.budget.epsilon

    @property
    def spent(self) -> PrivacyBudget | None:
        """The (ε, δ) of the zCDP spent so far, at the budget's δ."""
        used = min(self._queries, self._shares)
        if not used:
            return None
        delta = self.budget.delta
        return PrivacyBudget(approximate_dp_of_zcdp(self._rho * used / self._shares, delta), delta)

    def _draw(self, count: int) -> np.ndarray:
        return self.noise.discrete_gaussian(self._sigma, count)


# The two baselines to show beside every mechanism: an equal share for each step, and one sample a window.


class Uniform(IndependentLaplace):
    """Every step gets the same share of a window's budget.

    Guarantee
    ---------
    w-event ε, pure, central: each value is released with discrete Laplace noise of scale w Δ / ε, so any w
    successive steps cost ε. No horizon. It is ``LPA`` for a user who is in at most w steps.
    """

    def __init__(
        self,
        *,
        budget: PrivacyBudget,
        window: int,
        sensitivity: float = 1,
        grid_bits: int = 0,
        missing: Missing = "refuse",
        nonnegative: bool = False,
        noise: Noise | None = None,
    ) -> None:
        need_pure(budget, "Uniform")
        self.window = validate.whole(window, "window", low=1)
        super().__init__(budget, None, self.window, sensitivity, grid_bits, missing, nonnegative, noise)

    @property
    def guarantee(self) -> Guarantee:
        """w-event, pure, central."""
        return Guarantee(
            "w-event", "pure", "central", f"everything within any {self.window} successive steps"
        )


class Sampling(NumericMechanism):
    """Release every ``interval``-th value with a large share, repeat it in between.

    Give ``window`` (w-event; the interval defaults to w, so each sample has all of ε) or ``horizon``
    (user-level; then ``interval`` is needed).

    Guarantee
    ---------
    Pure ε, central. At most ceil(w / interval) samples fall into any w successive steps (or the horizon's
    ceil(T / interval) into all), and each has discrete Laplace noise for an equal share of ε. When to sample
    is fixed in advance. A sample that falls into a public gap is left out, not made up for. Past the horizon
    ``update`` raises ``BudgetExhausted`` at the first sample due.
    """

    def __init__(
        self,
        *,
        budget: PrivacyBudget,
        window: int | None = None,
        horizon: int | None = None,
        interval: int | None = None,
        sensitivity: float = 1,
        grid_bits: int = 0,
        missing: Missing = "refuse",
        nonnegative: bool = False,
        noise: Noise | None = None,
    ) -> None:
        need_pure(budget, "Sampling")
        super().__init__(budget, sensitivity, grid_bits, missing, nonnegative, noise)
        if (window is None) == (horizon is None):
            raise ConfigError("give exactly one of window= (w-event) and horizon= (user-level)")
        if window is None and interval is None:
            raise ConfigError("with a horizon, say how often to sample: interval=")
        self.window = None if window is None else validate.whole(window, "window", low=1)
        self.horizon = None if horizon is None else validate.whole(horizon, "horizon", low=1)
        self.interval = validate.whole(window if interval is None else interval, "interval", low=1)
        self._shares = math.ceil((self.window or self.horizon or 1) / self.interval)
        self._scale = self._step_sensitivity * self._shares / budget.epsilon

    @property
    def guarantee(self) -> Guarantee:
        """w-event or user-level, pure, central."""
        if self.window is not None:
            return Guarantee(
                "w-event", "pure", "central", f"everything within any {self.window} successive steps"
            )
        return Guarantee(
            "user", "pure", "central", f"one user, who may be in every one of {self.horizon} steps"
        )

    @property
    def unit(self) -> PrivacyUnit:
        """One user over the horizon, or one event of the window."""
        return PrivacyUnit.event() if self.horizon is None else PrivacyUnit.user(max_events=self.horizon)

    @property
    def spent(self) -> PrivacyBudget | None:
        """An equal share for each sample, and no more than a window holds."""
        used = min(self._queries, self._shares)
        return PrivacyBudget(self.budget.epsilon * used / self._shares) if used else None

    def _require(self, queries: int, steps: int) -> None:  # noqa: ARG002 - one shape for all
        # Samples due in the steps ahead, gaps or not: a gap among them only makes this an over-estimate.
        due = -(-(self.step + steps) // self.interval) - -(-self.step // self.interval)
        if self.horizon is not None and self._queries + due > self._shares:
            left = self._shares - self._queries
            raise BudgetExhausted(f"{due} more samples asked for, the budget covers {left}")

    def _release(self, steps: int) -> float:
        if self.step % self.interval:
            return self._last
        released = float(self.grid.value(steps + int(self.noise.discrete_laplace(self._scale, 1)[0])))
        self._queries += 1
        return released


# Counters as series: the running total of a series, or its steps, from a private counter.

_OUTPUTS: tuple[Literal["totals", "steps"], ...] = ("totals", "steps")
_PREFIX = "bank."


class ContinualCounter(NumericMechanism):
    """The running total of a series by a private counter (Chan, Shi and Song 2011, and its successors).

    ``counter`` names one: "simple", "block", "binary", "kary", "hybrid", "unbounded_block", "unbounded_kary",
    "toeplitz" (Gaussian noise, for a budget with δ), or "auto", the one of least expected error over
    ``horizon``. Without a horizon the stream may run for ever. ``output="steps"`` releases the differences of
    successive totals, which is how Zhang, Khalili and Liu (2021) compare the binary tree with mechanisms for
    single values: the totals are what a counter is good at.

    Guarantee
    ---------
    Pure ε, or (ε, δ) through zCDP, central. Neighbours: one user moves at most I = ``max_steps`` values by at
    most Δ each (I = 1: event-level). One event of size 1 costs the counter ε' (or ρ') over all outputs, also
    when later values depend on earlier outputs: the argument stands with each counter. I events of size Δ are
    I Δ events of size 1 at most, so ε' = ε / (I Δ) (or ρ' = ρ / (I Δ)²) gives the budget by group privacy.
    Totals at a public gap are repeated and cost nothing; differences are post-processing.
    """

    def __init__(
        self,
        *,
        budget: PrivacyBudget,
        horizon: int | None = None,
        max_steps: int = 1,
        counter: str = "auto",
        output: Literal["totals", "steps"] = "totals",
        sensitivity: float = 1,
        grid_bits: int = 0,
        missing: Missing = "refuse",
        nonnegative: bool = False,
        noise: Noise | None = None,
    ) -> None:
        super().__init__(budget, sensitivity, grid_bits, missing, nonnegative, noise)
        self.horizon = None if horizon is None else validate.whole(horizon, "horizon", low=1)
        self.max_steps = validate.whole(max_steps, "max_steps", low=1)
        self.output = validate.one_of(output, "output", _OUTPUTS)
        self.counter = validate.one_of(counter, "counter", KINDS)
        if self.counter != "auto" and budget.is_pure == (self.counter == "toeplitz"):
            raise ConfigError(
                'counter="toeplitz" goes with a budget that has a delta, the others with a pure one'
            )
        self._bank = self._make_bank()
        self._slot = self._bank.add(1)
        self._total = 0

    def _make_bank(self) -> CounterBank:
        group = self.max_steps * self._step_sensitivity
        if self.budget.is_pure:
            epsilon = self.budget.epsilon / group
            return make_bank(self.counter, epsilon=epsilon, horizon=self.horizon, noise=self.noise)
        if self.horizon is None:
            raise ConfigError("a toeplitz counter needs a horizon")
        rho = zcdp_of(self.budget) / group**2
        return make_bank("toeplitz", rho=rho, horizon=self.horizon, noise=self.noise)

    @property
    def kind(self) -> str:
        """The counter in use."""
        return self._bank.kind

    def expected_error(self, step: int) -> float:
        """The standard deviation of the total after ``step`` values, in the unit of the values."""
        steps = validate.whole(step, "step", low=1)
        return math.sqrt(float(self._bank.variance(steps))) / self.grid.one

    def error_bound(self, step: int, beta: float = 0.05) -> float:
        """The error of the total after ``step`` values that is exceeded with probability ``beta`` at most."""
        return error_bound(self._bank, step, beta) / self.grid.one

    @property
    def guarantee(self) -> Guarantee:
        """Event-level, or user-level if a user is in several steps."""
        kind: Literal["pure", "approximate"] = "pure" if self.budget.is_pure else "approximate"
        if self.max_steps == 1:
            return Guarantee("event", kind, "central", "what one user adds to the value of one step")
        return Guarantee("user", kind, "central", f"one user, who is in at most {self.max_steps} steps")

    @property
    def unit(self) -> PrivacyUnit:
        """One event, or one user with at most that many."""
        return PrivacyUnit.event() if self.max_steps == 1 else PrivacyUnit.user(max_events=self.max_steps)

    @property
    def spent(self) -> PrivacyBudget | None:
        """All of the budget from the first value on: later values cost no event more."""
        return self.budget if self._queries else None

    def _release(self, steps: int) -> float:
        before, self._total = self._total, int(self._bank.step(self._slot, [steps])[0])
        self._queries += 1
        return float(self.grid.value(self._total - (before if self.output == "steps" else 0)))

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        values, arrays = super()._state()
        bank, stored = self._bank.to_state()
        arrays |= {f"{_PREFIX}{name}": array for name, array in stored.items()}
        return values | {"bank": bank, "total": self._total}, arrays

    def _restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        super()._restore(values, arrays)
        stored = {
            name.removeprefix(_PREFIX): array for name, array in arrays.items() if name.startswith(_PREFIX)
        }
        self._bank = bank_from_state(values["bank"], stored, self.noise)
        self._total = int(values["total"])

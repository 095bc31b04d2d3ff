"""Independent noise at every step: the Laplace perturbation algorithm and its Gaussian twin."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable
from typing import Literal

import numpy as np

from streams.scalar.base import Guarantee, Missing, NumericMechanism, need_delta, need_pure
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

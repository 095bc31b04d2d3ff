"""The two baselines to show beside every mechanism: an equal share for each step, and one sample a window."""

from __future__ import annotations

import math

from streams.scalar.base import Guarantee, Missing, NumericMechanism, need_pure
from streams.scalar.perturbation import IndependentLaplace
from synthgeo import validate
from synthgeo.errors import BudgetExhausted, ConfigError
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.noise import Noise
from synthgeo.privacy.unit import PrivacyUnit


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

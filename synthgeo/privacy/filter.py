"""A privacy filter: one budget for measurements and selections that are chosen as they go, pure or through
zCDP.

Amounts are fractions of the whole. Under pure ε a fraction x buys Laplace noise of scale 1 / (x ε) or an
exponential mechanism at x ε. With δ > 0 the budget is turned into ρ once, and x buys Gaussian noise with
σ² = 1 / (2 x ρ), or an exponential mechanism at ε' with ε'² / 8 = x ρ (it is of bounded range; Cesar and
Rogers 2021)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from synthgeo.errors import BudgetExhausted, ConfigError
from synthgeo.privacy.accountant import zcdp_of
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.noise import MAX_SCALE, Noise, laplace_variance
from synthgeo.privacy.selection import exponential_mechanism
from synthgeo.privacy.unit import PrivacyUnit

# Noise of less than a thousandth of a row counts as this much: nothing is weighted by 1 / 0.
LEAST_SIGMA = 2.0**-10
# Keeps the rounding of many small fractions from adding up to a bit more than the whole.
_ROUND_DOWN = 1 - 2.0**-40
_MOST_EPSILON = 2.0**20


class PrivacyFilter:
    """Spends a budget on one dataset; refuses to spend more than there is.

    Guarantee
    ---------
    What was drawn through the filter satisfies the budget for the unit, also when each choice depends on
    earlier results. Every measured histogram must change by at most 1 in one cell per record, and every
    score by at most the sensitivity given. A user with at most m records changes both by m: the filter then
    works with ε / m, or with ρ / m² (group privacy of zCDP)."""

    def __init__(self, budget: PrivacyBudget, unit: PrivacyUnit, noise: Noise) -> None:
        self.noise = noise
        self.pure = budget.is_pure
        bound = unit.max_contributions
        # Beyond some ε there is no noise left to save, only numbers to overflow: the rest stays unspent.
        used = PrivacyBudget(min(budget.epsilon, _MOST_EPSILON), budget.delta)
        self.whole = used.epsilon / bound if self.pure else zcdp_of(used) / bound**2
        self.left = 1.0

    def check(self, fraction: float) -> None:
        """Refuse a budget of which a fraction buys noise too wide to draw. Spends nothing."""
        amount = fraction * self.whole * _ROUND_DOWN
        if (amount if self.pure else math.sqrt(2 * amount)) * MAX_SCALE < 1:
            raise ConfigError(
                "the budget is too small: cut into its measurements, the noise of some would exceed 2^40 rows"
            )

    def _take(self, fraction: float) -> float:
        if not 0 < fraction <= self.left * (1 + 1e-9):
            raise BudgetExhausted(
                f"a measurement asks for {fraction:.3g} of the budget, {self.left:.3g} is left"
            )
        taken = min(fraction, self.left)
        self.left -= taken
        return taken * self.whole * _ROUND_DOWN

    def sigma(self, fraction: float) -> float:
        """Standard deviation of the noise that a fraction buys, or ``LEAST_SIGMA``. Spends nothing."""
        amount = fraction * self.whole
        sigma = math.sqrt(laplace_variance(1 / amount) if self.pure else 1 / (2 * amount))
        return max(sigma, LEAST_SIGMA)

    def measure(self, counts: NDArray[np.int64], fraction: float) -> NDArray[np.float64]:
        """A histogram with noise."""
        amount = self._take(fraction)
        if self.pure:
            noise = self.noise.discrete_laplace(1 / amount, counts.size)
        else:
            noise = self.noise.discrete_gaussian(math.sqrt(1 / (2 * amount)), counts.size)
        return (counts + noise).astype(np.float64)

    def choose(self, scores: Any, sensitivity: float, fraction: float) -> int:
        """The index of a high score."""
        amount = self._take(fraction)
        epsilon = amount if self.pure else math.sqrt(8 * amount)
        return exponential_mechanism(scores, epsilon=epsilon, sensitivity=sensitivity, noise=self.noise)

    def pure_epsilon(self, fraction: float) -> float:
        """Spend a fraction on a purely private mechanism; the ε it may use (a pure ε costs ε² / 2 in
        zCDP).
        """
        amount = self._take(fraction)
        return amount if self.pure else math.sqrt(2 * amount)

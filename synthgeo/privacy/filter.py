"""A privacy filter: one budget for measurements and selections that are chosen as they go.

Amounts are fractions of the whole, which add up to at most 1. What a fraction x buys:

| kind | whole | histogram | selection | k scores | purely private mechanism |
|---|---|---|---|---|---|
| ``pure`` | ε | Laplace, scale 1 / (x ε) | exponential mechanism at x ε | Laplace, scale k / (x ε) | x ε |
| ``zcdp`` | ρ | Gaussian, σ² = 1 / (2 x ρ) | exponential mechanism at sqrt(8 x ρ) | none | sqrt(2 x ρ) |
| ``gaussian`` | μ² | Gaussian, σ² = 1 / (x μ²) | none | Gaussian, σ² = k / (x μ²) | declared beforehand |

``gaussian`` has the least noise, and is for budgets with δ > 0 where every release is Gaussian (but for
purely private ones that are known before the first). The exponential mechanism costs ε²/8 in zCDP, since it
is of bounded range (Cesar and Rogers 2021).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from typing import Any, Literal, Self

import numpy as np

from synthgeo.arrays import Floats, Ints
from synthgeo.errors import BudgetExhausted, ConfigError
from synthgeo.privacy.accountant import zcdp_of
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.gaussian import gaussian_mu, interaction_cost, noisy_table
from synthgeo.privacy.noise import MAX_SCALE, Noise, laplace_variance
from synthgeo.privacy.selection import exponential_mechanism
from synthgeo.privacy.unit import PrivacyUnit

Kind = Literal["pure", "zcdp", "gaussian"]

# Noise of less than a thousandth of a row counts as this much: nothing is weighted by 1 / 0.
LEAST_SIGMA = 2.0**-10
# Contrasts are whole numbers of cells times grid steps, which must not overflow: no finer grid than for this.
_LEAST_INTERACTION = 0.5
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
    works with ε / m, with ρ / m² (group privacy of zCDP), or with μ / m (a Gaussian's shift is m times as
    long). ``gaussian`` adds up μ²: releases that are one vector of Gaussians with Σ 1/σ² = x μ² are
    sqrt(x) μ-GDP however that sum was divided, and fractions are fixed before their outputs are seen
    (``synthgeo.privacy.gaussian``). ``pure`` lists the ε, for one record, of purely private mechanisms that
    run beside a ``gaussian`` filter."""

    def __init__(
        self,
        budget: PrivacyBudget,
        unit: PrivacyUnit,
        noise: Noise,
        *,
        gaussian: bool = False,
        pure: Sequence[float] = (),
    ) -> None:
        self.noise = noise
        self.kind: Kind = "pure" if budget.is_pure else "gaussian" if gaussian else "zcdp"
        bound = unit.max_contributions
        # Beyond some ε there is no noise left to save, only numbers to overflow: the rest stays unspent.
        used = PrivacyBudget(min(budget.epsilon, _MOST_EPSILON), budget.delta)
        if self.kind == "pure":
            self.whole = used.epsilon / bound
        elif self.kind == "zcdp":
            self.whole = zcdp_of(used) / bound**2
        else:
            self.whole = (gaussian_mu(used, tuple(bound * epsilon for epsilon in pure)) / bound) ** 2
        self.left = 1.0

    def part(self, fraction: float, *, bound: int = 1) -> Self:
        """A filter of its own for a fraction of this one, for tables in which a record of this filter has at
        most ``bound`` rows: it moves their counts and scores by at most that, in sum and in length, so that
        what the fraction buys is divided by the bound (pure ε) or by its square.
        """
        amount = self._take(fraction)
        made = copy(self)
        made.whole = amount / (bound if self.kind == "pure" else bound**2)
        made.left = 1.0
        return made

    def check(self, fraction: float) -> None:
        """Refuse a budget of which a fraction buys noise too wide to draw. Spends nothing."""
        amount = fraction * self.whole * _ROUND_DOWN
        if (amount if self.kind == "pure" else math.sqrt(amount)) * MAX_SCALE < 2:
            raise ConfigError(
                "the budget is too small: cut into its measurements, the noise of some would exceed 2^39 rows"
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
        if self.kind == "pure":
            variance = laplace_variance(1 / amount)
        else:
            variance = 1 / (amount if self.kind == "gaussian" else 2 * amount)
        return max(math.sqrt(variance), LEAST_SIGMA)

    def sigma_of_interaction(self, fraction: float, shape: Sequence[int]) -> float:
        """The same for ``measure_interaction`` of a table of this shape: of each cell of the noisy table
        whose interaction is released."""
        return max(math.sqrt(interaction_cost(shape)) * self.sigma(fraction), _LEAST_INTERACTION)

    def measure(self, counts: Ints, fraction: float) -> Floats:
        """A histogram with noise."""
        amount = self._take(fraction)
        if self.kind == "gaussian":
            return noisy_table(counts, math.sqrt(1 / amount), self.noise)
        if self.kind == "pure":
            drawn = self.noise.discrete_laplace(1 / amount, counts.size)
        else:
            drawn = self.noise.discrete_gaussian(math.sqrt(1 / (2 * amount)), counts.size)
        return np.asarray(counts.ravel() + drawn, dtype=np.float64).reshape(counts.shape)

    def measure_interaction(self, counts: Ints, fraction: float) -> Floats:
        """What the margins of a table of counts do not tell, with noise: cheaper than the whole table."""
        amount = self._take(fraction)
        assert self.kind == "gaussian"
        sigma = max(math.sqrt(interaction_cost(counts.shape) / amount), _LEAST_INTERACTION)
        return noisy_table(counts, sigma, self.noise, interaction=True)

    def measure_scores(self, scores: Ints, fraction: float) -> Floats:
        """Whole numbers with noise, each of which one record moves by at most 1: all of them together by as
        many as there are in sum, and by the square root of that in length.
        """
        amount = self._take(fraction)
        assert self.kind != "zcdp"
        if self.kind == "pure":
            drawn = self.noise.discrete_laplace(scores.size / amount, scores.size)
            return np.asarray(scores + drawn, dtype=np.float64)
        return noisy_table(scores, math.sqrt(scores.size / amount), self.noise)

    def deviation(self, fraction: float, length: float) -> float:
        """Spend a fraction on a vector that one record moves by at most ``length``, and a user with at most m
        records by m times that: the standard deviation of the Gaussian noise (``noisy_table``) that keeps it.
        """
        amount = self._take(fraction)
        assert self.kind != "pure"
        return length / math.sqrt(amount if self.kind == "gaussian" else 2 * amount)

    def choose(self, scores: Any, sensitivity: float, fraction: float) -> int:
        """The index of a high score."""
        amount = self._take(fraction)
        assert self.kind != "gaussian"
        epsilon = amount if self.kind == "pure" else math.sqrt(8 * amount)
        return exponential_mechanism(scores, epsilon=epsilon, sensitivity=sensitivity, noise=self.noise)

    def pure_epsilon(self, fraction: float) -> float:
        """Spend a fraction on a purely private mechanism; the ε it may use (a pure ε costs ε² / 2 in
        zCDP).
        """
        amount = self._take(fraction)
        assert self.kind != "gaussian"
        return amount if self.kind == "pure" else math.sqrt(2 * amount)

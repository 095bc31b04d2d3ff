"""How much of a budget a sequence of mechanisms has spent.

Pure ε adds up. With δ > 0 the accountant also keeps a Rényi curve and converts it with Google's
``dp-accounting``, which is imported when first needed: it takes a second.

>>> spending = Accountant(PrivacyBudget(1.0))
>>> spending.charge_pure(0.75, "counts")
>>> spending.remaining
PrivacyBudget(epsilon=0.25, delta=0.0)
>>> spending.charge_pure(0.5, "more counts")
Traceback (most recent call last):
...
synthgeo.errors.BudgetExhausted: 'more counts' would bring the spending to epsilon 1.25 of 1
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from synthgeo import validate
from synthgeo.errors import BudgetExhausted, ConfigError
from synthgeo.privacy.budget import PrivacyBudget

# Rényi orders: dense enough that the best one is within a per mille of the optimum for any ρ in use.
_ORDERS = 1 + np.geomspace(0.02, 1e6, 600)
_LEAST_EPSILON = 1e-12


@dataclass(frozen=True)
class Charge:
    """One entry of an accountant: what was run, and what it cost (ε of a pure mechanism, or ρ in zCDP)."""

    label: str
    kind: Literal["pure", "zcdp"]
    amount: float


class Accountant:
    """Adds up what mechanisms on the same data spend, and refuses what would exceed the budget.

    Guarantee
    ---------
    All accepted charges together, chosen adaptively, satisfy ``spent``, which the budget covers. Three
    statements are compared and the one with the smallest ε is reported: the plain sum of ε (when all charges
    are pure); one Rényi curve over all charges; the sum of the pure charges plus the curve of the others. On
    the curve, ρ-zCDP is αρ at order α, and pure ε is min(ε, αε²/2) (Bun and Steinke 2016).
    """

    def __init__(self, budget: PrivacyBudget) -> None:
        if not isinstance(budget, PrivacyBudget):
            raise ConfigError(f"an accountant needs a PrivacyBudget, got {budget!r}")
        self.budget = budget
        self._charges: list[Charge] = []

    @property
    def charges(self) -> tuple[Charge, ...]:
        """What was charged so far, in order."""
        return tuple(self._charges)

    def charge_pure(self, epsilon: float, label: str) -> None:
        """A pure ε-differentially private mechanism."""
        self._charge(Charge(label, "pure", validate.positive(epsilon, "epsilon")))

    def charge_zcdp(self, rho: float, label: str) -> None:
        """A ρ-zCDP mechanism. Needs a budget with δ > 0."""
        self._charge(Charge(label, "zcdp", validate.positive(rho, "rho")))

    def charge_gaussian(self, sigma: float, sensitivity: float, label: str, count: int = 1) -> None:
        """``count`` releases with (discrete) Gaussian noise ``sigma`` on an L2 sensitivity
        ``sensitivity``."""
        validate.whole(count, "count", low=1)
        ratio = validate.positive(sensitivity, "sensitivity") / validate.positive(sigma, "sigma")
        self.charge_zcdp(count * ratio * ratio / 2, label)

    def _charge(self, charge: Charge) -> None:
        if charge.kind == "zcdp" and self.budget.is_pure:
            raise BudgetExhausted(
                f"{charge.label!r} needs a budget with delta > 0: Gaussian noise is never pure"
            )
        total = _spent([*self._charges, charge], self.budget.delta)
        if not self.budget.covers(total):
            raise BudgetExhausted(
                f"{charge.label!r} would bring the spending to epsilon {total.epsilon:.6g} "
                f"of {self.budget.epsilon:.6g}"
            )
        self._charges.append(charge)

    @property
    def spent(self) -> PrivacyBudget | None:
        """What all charges so far guarantee together; None before the first."""
        return _spent(self._charges, self.budget.delta) if self._charges else None

    def __repr__(self) -> str:
        return f"Accountant({self.budget!r}, spent={self.spent!r})"

    @property
    def remaining(self) -> PrivacyBudget | None:
        """What is left in plain addition; None when nothing is.

        A finer composition of many small charges may still accept more than this.
        """
        spent = self.spent
        if spent is None:
            return self.budget
        if spent.epsilon >= self.budget.epsilon * (1 - 1e-12):
            return None
        return PrivacyBudget(self.budget.epsilon - spent.epsilon, max(0.0, self.budget.delta - spent.delta))


def _spent(charges: Sequence[Charge], delta: float) -> PrivacyBudget:
    pure = [charge.amount for charge in charges if charge.kind == "pure"]
    rho = math.fsum(charge.amount for charge in charges if charge.kind == "zcdp")
    statements: list[PrivacyBudget] = []
    if not rho:
        statements.append(PrivacyBudget(math.fsum(pure)))
    if delta > 0:
        curve = rho * _ORDERS
        if rho:
            own = approximate_dp_of_zcdp(rho, delta)
            statements.append(PrivacyBudget(math.fsum(pure) + own, delta))
        if len(pure) + bool(rho) > 1:
            for epsilon in pure:
                curve = curve + np.minimum(_ORDERS * (epsilon * epsilon / 2), epsilon)
            statements.append(PrivacyBudget(max(_epsilon(_ORDERS, curve, delta), _LEAST_EPSILON), delta))
    return min(statements, key=lambda statement: statement.epsilon)


def _epsilon(orders: NDArray[np.float64], curve: NDArray[np.float64], delta: float) -> float:
    from dp_accounting.rdp import rdp_privacy_accountant as rdp

    return float(rdp.compute_epsilon(orders.tolist(), curve.tolist(), delta)[0])


def approximate_dp_of_zcdp(rho: float, delta: float) -> float:
    """The ε such that ρ-zCDP implies (ε, δ)-differential privacy (Canonne, Kamath and Steinke 2020).

    >>> round(approximate_dp_of_zcdp(0.1, 1e-6), 3)
    2.142
    """
    validate.positive(rho, "rho")
    if not 0 < validate.positive(delta, "delta") < 1:
        raise ConfigError(f"delta must be in (0, 1), got {delta!r}")
    return _approximate_dp(float(rho), float(delta))  # checked first: to a cache True is 1.0


@lru_cache(maxsize=4096)
def _approximate_dp(rho: float, delta: float) -> float:
    # ρ α + log(1 / δ) / (α - 1) is least at this order; the sharper bound's optimum lies close to it.
    centre = math.sqrt(math.log(1 / delta) / rho)
    orders = 1 + centre * np.geomspace(1 / 16, 16, 400)
    return max(_epsilon(orders, rho * orders, delta), _LEAST_EPSILON)


@lru_cache(maxsize=4096)
def zcdp_of(budget: PrivacyBudget) -> float:
    """The largest ρ such that ρ-zCDP implies the budget.

    A pure budget has none: a mechanism that is only ρ-zCDP keeps no pure promise.
    """
    if budget.is_pure:
        raise ConfigError("Gaussian noise needs a budget with delta > 0, got a pure one")
    low, high = 0.0, budget.epsilon
    while approximate_dp_of_zcdp(high, budget.delta) <= budget.epsilon:  # only when δ is huge
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        if approximate_dp_of_zcdp(middle, budget.delta) <= budget.epsilon:
            low = middle
        else:
            high = middle
    return low


def gaussian_sigma(budget: PrivacyBudget, sensitivity: float, count: int = 1) -> float:
    """The σ at which ``count`` releases of L2 sensitivity ``sensitivity`` together satisfy the budget."""
    validate.whole(count, "count", low=1)
    return validate.positive(sensitivity, "sensitivity") * math.sqrt(count / (2 * zcdp_of(budget)))

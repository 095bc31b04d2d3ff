"""Privacy budgets as values.

>>> budget = PrivacyBudget(epsilon=1.0)
>>> structure, counts = budget.split((1, 3))
>>> structure
PrivacyBudget(epsilon=0.25, delta=0.0)
>>> structure + counts == budget
True
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real

from synthgeo import validate
from synthgeo.errors import BudgetExhausted, ConfigError


def _rest(whole: float, parts: list[float]) -> float:
    """What is left of ``whole``, rounded down if the nearest double would exceed it (``fsum`` is exact)."""
    rest = max(0.0, math.fsum([whole, *(-part for part in parts)]))
    while rest > 0 and math.fsum([*parts, rest, -whole]) > 0:
        rest = math.nextafter(rest, 0.0)
    return rest


@dataclass(frozen=True, order=False)
class PrivacyBudget:
    """An (ε, δ) promise under add/remove neighbours. δ = 0 is pure differential privacy.

    Sums follow basic composition, so a sum of parts is always a valid promise for the whole. Tighter
    composition is the accountant's work.
    """

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", validate.positive(self.epsilon, "epsilon"))
        object.__setattr__(self, "delta", validate.share(self.delta, "delta", zero=True))

    @property
    def is_pure(self) -> bool:
        """Whether the promise is pure ε-differential privacy."""
        return self.delta == 0.0

    def __add__(self, other: PrivacyBudget) -> PrivacyBudget:
        if not isinstance(other, PrivacyBudget):
            return NotImplemented
        return PrivacyBudget(self.epsilon + other.epsilon, self.delta + other.delta)

    def __sub__(self, other: PrivacyBudget) -> PrivacyBudget:
        if not isinstance(other, PrivacyBudget):
            return NotImplemented
        if other.epsilon >= self.epsilon or other.delta > self.delta:
            raise BudgetExhausted(f"{self} minus {other} leaves no epsilon")
        # Rounded down: the difference and what was taken never sum to more than the whole.
        return PrivacyBudget(_rest(self.epsilon, [other.epsilon]), _rest(self.delta, [other.delta]))

    def __mul__(self, factor: float) -> PrivacyBudget:
        if isinstance(factor, bool) or not isinstance(factor, Real):
            return NotImplemented
        return PrivacyBudget(self.epsilon * float(factor), self.delta * float(factor))

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> PrivacyBudget:
        if isinstance(divisor, bool) or not isinstance(divisor, Real):
            return NotImplemented
        if divisor <= 0:
            raise ConfigError(f"a budget is divided by a positive number, got {divisor!r}")
        return PrivacyBudget(self.epsilon / float(divisor), self.delta / float(divisor))

    def covers(self, other: PrivacyBudget) -> bool:
        """Whether spending ``other`` stays within this budget, up to the rounding of its last bits.

        >>> PrivacyBudget(1.0).covers(PrivacyBudget(0.1) * 10)
        True
        >>> PrivacyBudget(1.0).covers(PrivacyBudget(1.0, delta=1e-9))
        False
        """
        slack = 1 + 1e-12
        return other.epsilon <= self.epsilon * slack and other.delta <= self.delta * slack

    def split(self, weights: Sequence[float]) -> tuple[PrivacyBudget, ...]:
        """Cut the budget in proportion to ``weights``; the parts never sum to more than the whole."""
        numbers = [validate.positive(weight, "each weight") for weight in weights]
        if not numbers:
            raise ConfigError("a budget is split by at least one weight")
        total = math.fsum(numbers)
        parts = [PrivacyBudget(self.epsilon * w / total, self.delta * w / total) for w in numbers]
        # The last part takes what is left, so that rounding cannot spend a bit too much.
        epsilon = _rest(self.epsilon, [part.epsilon for part in parts[:-1]])
        delta = _rest(self.delta, [part.delta for part in parts[:-1]])
        parts[-1] = PrivacyBudget(epsilon, delta)
        return tuple(parts)

    def _repr_html_(self) -> str:
        from synthgeo.notebook import facts_html

        odds = 1 / (1 + math.exp(-self.epsilon))
        facts = {"ε": f"{self.epsilon:g}", "δ": f"{self.delta:g}" if self.delta else None}
        return facts_html("privacy budget", facts | {"even odds become at most": f"{odds:.0%}"})

    def to_dict(self) -> dict[str, float]:
        """The two numbers, for provenance and state files."""
        return {"epsilon": self.epsilon, "delta": self.delta}

"""Counters as series: the running total of a series, or its steps, from a private counter."""

from __future__ import annotations

import math
from typing import Any, Literal

from streams.counters import KINDS, bank_from_state, make_bank
from streams.counters.base import CounterBank
from streams.counters.bounds import error_bound
from streams.scalar.base import Arrays, Guarantee, Missing, NumericMechanism
from synthgeo import validate
from synthgeo.errors import ConfigError
from synthgeo.privacy.accountant import zcdp_of
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.noise import Noise
from synthgeo.privacy.unit import PrivacyUnit

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

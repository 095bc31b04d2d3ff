"""Randomised response: the local baseline. Each person perturbs their own value before anybody sees it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streams.scalar.base import MISSING, Guarantee, Mechanism, Missing, need_pure, read_series
from synthgeo import validate
from synthgeo.arrays import Floats
from synthgeo.errors import BudgetExhausted, ConfigError, InputError
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.noise import Noise
from synthgeo.privacy.unit import PrivacyUnit


class LocalMechanism(Mechanism):
    """A mechanism over a finite alphabet of numbers, run by the person whose series it is."""

    def __init__(
        self,
        states: Sequence[float],
        budget: PrivacyBudget,
        horizon: int,
        missing: Missing,
        noise: Noise | None,
    ) -> None:
        need_pure(budget, type(self).__name__)
        super().__init__(budget, noise)
        self.horizon = validate.whole(horizon, "horizon", low=1)
        self.states = read_series(states)
        if self.states.size < 2 or not np.isfinite(self.states).all():
            raise ConfigError("states are at least two finite numbers")
        if np.unique(self.states).size != self.states.size:
            raise ConfigError("states must differ from each other")
        self.missing: Missing = validate.one_of(missing, "missing", MISSING)
        self._spent_steps = 0

    @property
    def unit(self) -> PrivacyUnit:
        """One person's whole series."""
        return PrivacyUnit.user(max_events=self.horizon)

    @property
    def spent(self) -> PrivacyBudget | None:
        """An equal share of ε for each step released."""
        used = self._spent_steps
        return PrivacyBudget(self.budget.epsilon * used / self.horizon) if used else None

    def _require(self, steps: int) -> None:
        if self._spent_steps + steps > self.horizon:
            left = self.horizon - self._spent_steps
            raise BudgetExhausted(
                f"{steps} more values asked for, the budget covers {left} of {self.horizon}"
            )

    def _index(self, series: Any, *, first: int = 0) -> NDArray[np.int64]:
        """Positions in the alphabet; -1 at public gaps."""
        values = read_series(series)
        order = np.argsort(self.states)
        place = np.minimum(np.searchsorted(self.states[order], values), self.states.size - 1)
        index = order[place].astype(np.int64)
        gap = np.isnan(values)
        wrong = (self.states[index] != values) & ~gap
        if wrong.any():
            raise InputError(f"value at row {first + int(np.argmax(wrong))} is not one of the states")
        if gap.any() and self.missing == "refuse":
            row = first + int(np.argmax(gap))
            raise InputError(f'value at row {row} is missing; missing="public" takes it as a public gap')
        return np.where(gap, -1, index)

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        return {"spent_steps": self._spent_steps}, {}

    def _restore(self, values: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:  # noqa: ARG002
        self._spent_steps = int(values["spent_steps"])


class RandomizedResponse(LocalMechanism):
    """Tell the truth with probability e^ε₁ / (e^ε₁ + k - 1), else one of the other k - 1 states; ε₁ = ε / T a
    step.

    Guarantee
    ---------
    Pure ε, local, for one person's whole series of T values (any two series are neighbours). At each step the
    probabilities of an output under two values differ by a factor of exactly e^ε₁ at most; T steps compose to
    ε. Sampling is exact: draw a state uniformly, keep it if it is the truth, else with probability e^-ε₁,
    until one is kept. A public gap is released as NaN and costs nothing. Past the horizon ``update`` raises
    ``BudgetExhausted``.
    """

    def __init__(
        self,
        *,
        states: Sequence[float] = (0, 1),
        budget: PrivacyBudget,
        horizon: int,
        missing: Missing = "refuse",
        noise: Noise | None = None,
    ) -> None:
        super().__init__(states, budget, horizon, missing, noise)
        self.step_epsilon = budget.epsilon / self.horizon

    @property
    def guarantee(self) -> Guarantee:
        """Sequence-level, pure, local."""
        return Guarantee("sequence", "pure", "local", f"one person's whole series of {self.horizon} values")

    def channel(self) -> Floats:
        """P(output | value), a row for each value."""
        k = self.states.size
        other = 1 / (math.exp(self.step_epsilon) + k - 1)
        matrix = np.full((k, k), other)
        np.fill_diagonal(matrix, math.exp(self.step_epsilon) * other)
        return matrix

    def update(self, value: float) -> float:
        """Release the next value."""
        return float(self.run([value])[0])

    def run(self, series: Iterable[float]) -> Floats:
        """Release the next values. Everything is checked before anything is spent."""
        index = self._index(series, first=self.step)
        known = np.flatnonzero(index >= 0)
        self._require(known.size)
        out = np.full(index.size, np.nan)
        waiting = known
        while waiting.size:
            proposal = self.noise.integers(self.states.size, waiting.size)
            loss = np.where(proposal == index[waiting], 0.0, self.step_epsilon)
            kept = self.noise.bernoulli_exp(loss)
            out[waiting[kept]] = self.states[proposal[kept]]
            waiting = waiting[~kept]
        self.step += index.size
        self._spent_steps += known.size
        return out

"""What local mechanisms share: a finite alphabet of states, numbers or points, and its distances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from streams.scalar.base import MISSING, Mechanism, Missing, read_rows, read_series
from synthgeo import validate
from synthgeo.arrays import Floats, Ints
from synthgeo.errors import BudgetExhausted, ConfigError, InputError
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.noise import Noise
from synthgeo.privacy.unit import PrivacyUnit

States = Sequence[float] | Sequence[Sequence[float]] | Floats
Distance = Literal["absolute", "hamming", "euclidean"] | Sequence[Sequence[float]] | Floats
_DISTANCES = ("absolute", "hamming", "euclidean")


def read_states(states: Any) -> Floats:
    """At least two different finite states: k numbers, or k points (rows)."""
    try:
        values = np.array(states, dtype=np.float64)
    except (TypeError, ValueError):
        raise ConfigError("states must be numbers, or points of one dimension") from None
    if values.ndim not in (1, 2) or values.shape[0] < 2 or not np.isfinite(values).all():
        raise ConfigError("states are at least two finite numbers, or points")
    if np.unique(values, axis=0).shape[0] != values.shape[0]:
        raise ConfigError("states must differ from each other")
    return values


def state_distances(states: Floats, distance: Distance) -> Floats:
    """Distances between states: a name (over all coordinates of points), or a matrix of one's own.

    >>> state_distances(np.array([0.0, 1.0, 5.0]), "absolute").tolist()
    [[0.0, 1.0, 5.0], [1.0, 0.0, 4.0], [5.0, 4.0, 0.0]]
    """
    k = states.shape[0]
    if not isinstance(distance, str):
        matrix = np.array(distance, dtype=np.float64)
        if matrix.shape != (k, k) or not np.isfinite(matrix).all() or matrix.min() < 0:
            raise ConfigError(f"a distance matrix of {k} states is {k} x {k} finite numbers >= 0")
        return matrix
    validate.one_of(distance, "distance", _DISTANCES)
    points = states.reshape(k, -1)
    apart = np.abs(points[:, None, :] - points[None, :, :])
    if distance == "hamming":
        return np.asarray((apart > 0).any(axis=2), dtype=np.float64)
    return np.asarray(apart.sum(axis=2) if distance == "absolute" else np.sqrt((apart**2).sum(axis=2)))


class LocalMechanism(Mechanism):
    """A mechanism over a finite alphabet, run by the person whose series it is.

    ``states`` are numbers, or points: then series have one row per step. ``horizon`` is how many values the
    budget is for; None where a subclass bounds windows instead.
    """

    def __init__(
        self,
        states: States,
        budget: PrivacyBudget,
        horizon: int | None,
        missing: Missing,
        noise: Noise | None,
    ) -> None:
        super().__init__(budget, noise)
        self.states = read_states(states)
        self.horizon = None if horizon is None else validate.whole(horizon, "horizon", low=1)
        self.missing: Missing = validate.one_of(missing, "missing", MISSING)
        self._spent_steps = 0

    @property
    def size(self) -> int:
        """How many states there are."""
        return int(self.states.shape[0])

    @property
    def unit(self) -> PrivacyUnit:
        """One person's whole series."""
        return PrivacyUnit.user(max_events=self.horizon or max(1, self.step))

    @property
    def spent(self) -> PrivacyBudget | None:
        """An equal share of ε for each step released."""
        used, total = self._spent_steps, self.horizon or 1
        return PrivacyBudget(self.budget.epsilon * used / total) if used else None

    def _require(self, steps: int) -> None:
        if self.horizon is not None and self._spent_steps + steps > self.horizon:
            left = self.horizon - self._spent_steps
            raise BudgetExhausted(
                f"{steps} more values asked for, the budget covers {left} of {self.horizon}"
            )

    def _index(self, series: Any, *, first: int = 0) -> Ints:
        """Positions in the alphabet; -1 at public gaps."""
        if self.states.ndim == 1:
            values = read_series(series)
            order = np.argsort(self.states)
            place = np.minimum(np.searchsorted(self.states[order], values), self.size - 1)
            index = order[place].astype(np.int64)
            gap = np.isnan(values)
            wrong = (self.states[index] != values) & ~gap
        else:
            rows = read_rows(series, self.states.shape[1])
            places = {tuple(state): i for i, state in enumerate(self.states.tolist())}
            gap = np.asarray(np.isnan(rows).any(axis=1))
            index = np.array([places.get(tuple(row), -1) for row in rows.tolist()], dtype=np.int64)
            wrong = np.asarray((index < 0) & ~gap)
        if wrong.any():
            raise InputError(f"value at row {first + int(np.argmax(wrong))} is not one of the states")
        if gap.any() and self.missing == "refuse":
            row = first + int(np.argmax(gap))
            raise InputError(f'value at row {row} is missing; missing="public" takes it as a public gap')
        return np.where(gap, -1, index)

    def _values(self, index: Any) -> Floats:
        """The states at these positions; NaN at -1."""
        places = np.asarray(index, dtype=np.int64)
        out = np.array(self.states[places], dtype=np.float64)
        out[places < 0] = np.nan
        return out

    def update(self, value: Any) -> Any:
        """Release the next value."""
        released = self.run([value])[0]
        return float(released) if self.states.ndim == 1 else released

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        return {"spent_steps": self._spent_steps}, {}

    def _restore(self, values: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:  # noqa: ARG002
        self._spent_steps = int(values["spent_steps"])

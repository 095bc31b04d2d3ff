"""Local mechanisms: a finite alphabet of states with its distances, randomised response, unary encoding."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np

from streams.scalar.base import (
    MISSING,
    Guarantee,
    Missing,
    SeriesMechanism,
    need_pure,
    read_rows,
    read_series,
)
from synthgeo import validate
from synthgeo.arrays import Bools, Floats, Ints
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


class LocalMechanism(SeriesMechanism):
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


# Randomised response and unary encoding: each person perturbs their own value before anybody sees it.


def respond(index: Ints, states: int, epsilon: float, noise: Noise) -> Ints:
    """Randomised response: the truth e^ε times as likely as any other state. Exact.

    A state is drawn uniformly and kept if it is the truth, else with probability e^-ε, until one is kept.
    """
    out = np.empty(index.size, dtype=np.int64)
    waiting = np.arange(index.size)
    while waiting.size:
        proposal = noise.integers(states, waiting.size)
        kept = noise.bernoulli_exp(np.where(proposal == index[waiting], 0.0, epsilon))
        out[waiting[kept]] = proposal[kept]
        waiting = waiting[~kept]
    return out


def response_channel(states: int, epsilon: float) -> Floats:
    """P(output | value) of randomised response, a row for each value."""
    other = 1 / (math.exp(epsilon) + states - 1)
    matrix = np.full((states, states), other)
    np.fill_diagonal(matrix, math.exp(epsilon) * other)
    return matrix


def encode_unary(index: Ints, states: int, epsilon: float, noise: Noise) -> Bools:
    """Optimised unary encoding: one bit per state, the true one set with probability 1/2, the others with 1 /
    (e^ε + 1). Exact: the same draws as randomised response over two states.
    """
    bits = respond(np.zeros(index.size * states, dtype=np.int64), 2, epsilon, noise)
    bits = bits.reshape(index.size, states)
    bits[np.arange(index.size), index] = noise.integers(2, index.size)
    return bits.astype(np.bool_)


def pick_one(bits: Bools, rng: np.random.Generator) -> Ints:
    """One of the states whose bit is set, at random; any state if none is. Post-processing."""
    weights = np.where(bits.any(axis=1, keepdims=True), bits, True)
    return np.asarray(np.argmax(weights * rng.uniform(0.5, 1.0, bits.shape), axis=1), dtype=np.int64)


class _Response(LocalMechanism):
    """An equal share ε / T for each of T values, each released on its own."""

    def __init__(
        self,
        *,
        states: States = (0, 1),
        budget: PrivacyBudget,
        horizon: int,
        missing: Missing = "refuse",
        noise: Noise | None = None,
    ) -> None:
        need_pure(budget, type(self).__name__)
        super().__init__(states, budget, horizon, missing, noise)
        assert self.horizon is not None
        self.step_epsilon = budget.epsilon / self.horizon

    @property
    def guarantee(self) -> Guarantee:
        """Sequence-level, pure, local."""
        return Guarantee("sequence", "pure", "local", f"one person's whole series of {self.horizon} values")

    def _read(self, series: Any) -> tuple[Ints, Ints]:
        """Positions in the alphabet, and which of the steps are no gaps; checked before anything is spent."""
        index = self._index(series, first=self.step)
        known = np.flatnonzero(index >= 0)
        self._require(known.size)
        return index, known

    def _done(self, steps: int, known: int) -> None:
        self.step += steps
        self._spent_steps += known


class RandomizedResponse(_Response):
    """Tell the truth with probability e^ε₁ / (e^ε₁ + k - 1), else one of the other states; ε₁ = ε / T.

    Guarantee
    ---------
    Pure ε, local, for one person's whole series of T values (any two series are neighbours). At each step the
    probabilities of an output under two values differ by a factor of exactly e^ε₁ at most; T steps compose to
    ε. Sampling is exact: draw a state uniformly, keep it if it is the truth, else with probability e^-ε₁,
    until one is kept. A public gap is released as NaN and costs nothing. Past the horizon ``update`` raises
    ``BudgetExhausted``.
    """

    def channel(self) -> Floats:
        """P(output | value), a row for each value."""
        return response_channel(self.size, self.step_epsilon)

    def run(self, series: Iterable[Any]) -> Floats:
        """Release the next values. Everything is checked before anything is spent."""
        index, known = self._read(series)
        out = np.full(index.size, -1, dtype=np.int64)
        out[known] = respond(index[known], self.size, self.step_epsilon, self.noise)
        self._done(index.size, known.size)
        return self._values(out)


class UnaryEncoding(_Response):
    """Optimised unary encoding (OUE; Wang, Blocki, Li and Jha 2017): one noisy bit per state.

    ``encode`` gives the bits, from which ``frequencies`` estimates how often each state occurs; it is for
    many people and many states that this beats randomised response. ``run`` picks one of the states whose bit
    is set, as Jiang, Li and Tandon (2024) do to compare it with mechanisms that release values.

    Guarantee
    ---------
    Pure ε, local, for one person's whole series of T values. A value sets its own bit with probability 1/2
    and each other bit with q = 1 / (e^ε₁ + 1), ε₁ = ε / T. Under two values the bits of those two alone
    differ in law, and the ratio is at most (1/2 / q) ((1 - q) / (1/2)) = e^ε₁. T values compose to ε. Picking
    a state is post-processing. Gaps and the horizon as in ``RandomizedResponse``.
    """

    def channel(self) -> Floats:
        """P(picked state | value), a row for each value."""
        return unary_channel(self.size, self.step_epsilon)

    def encode(self, series: Iterable[Any]) -> Bools:
        """The noisy bits of the next values, one row each. Spends what ``run`` spends."""
        index, known = self._read(series)
        if known.size < index.size:
            raise InputError("bits of a gap would say nothing: leave gaps out")
        bits = encode_unary(index, self.size, self.step_epsilon, self.noise)
        self._done(index.size, known.size)
        return bits

    def frequencies(self, bits: Bools) -> Floats:
        """Unbiased estimates of how often each state occurs, from the bits of many values or people."""
        q = 1 / (math.exp(self.step_epsilon) + 1)
        return np.asarray((np.asarray(bits).mean(axis=0) - q) / (0.5 - q))

    def run(self, series: Iterable[Any]) -> Floats:
        """Release the next values. Everything is checked before anything is spent."""
        index, known = self._read(series)
        out = np.full(index.size, -1, dtype=np.int64)
        if known.size:
            bits = encode_unary(index[known], self.size, self.step_epsilon, self.noise)
            out[known] = pick_one(bits, self.noise.rng)
        self._done(index.size, known.size)
        return self._values(out)


def unary_channel(states: int, epsilon: float) -> Floats:
    """P(picked state | value) of unary encoding followed by ``pick_one``.

    >>> unary_channel(4, 2.0).sum(axis=1).round(12).tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    q = 1 / (math.exp(epsilon) + 1)
    none = (1 - q) ** (states - 1)  # no other bit is set
    # With K ~ Binomial(states - 1, q) others set, the true one is picked with 1 / (1 + K) if it is set.
    shared = (1 - (1 - q) ** states) / (states * q)
    truth = 0.5 * shared + 0.5 * none / states
    matrix = np.full((states, states), (1 - truth) / (states - 1))
    np.fill_diagonal(matrix, truth)
    return matrix

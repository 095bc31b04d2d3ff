"""Randomised response and unary encoding: each person perturbs their own value before anybody sees it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from streams.scalar.base import Guarantee, Missing, need_pure
from streams.scalar.local import LocalMechanism, States
from synthgeo.arrays import Bools, Floats, Ints
from synthgeo.errors import InputError
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.noise import Noise


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

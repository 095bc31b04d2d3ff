"""Sequence Information Privacy: local release of a Markov series, value by value or in batches.

Jiang, Li and Tandon, "Online Context-Aware Streaming Data Release With Sequence Information Privacy" (2024).
The observer knows the prior and the transition matrix; what is bounded is how far each release moves the
observer's belief about the whole series.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import product
from typing import Any, Literal

import numpy as np

from streams.scalar.base import Arrays, Guarantee, Missing
from streams.scalar.response import LocalMechanism
from streams.scalar.sip_channel import design, draw, posterior
from synthgeo import validate
from synthgeo.arrays import Floats
from synthgeo.errors import ConfigError, InputError
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.noise import Noise

Distance = Literal["absolute", "hamming"]
_DISTANCES: tuple[Distance, ...] = ("absolute", "hamming")


class _SIP(LocalMechanism):
    """Belief of the observer, and its update (equation 13)."""

    def __init__(
        self,
        states: Sequence[float] | None,
        prior: Sequence[float],
        transition: Sequence[Sequence[float]],
        budget: PrivacyBudget,
        horizon: int,
        distance: Distance,
        missing: Missing,
        noise: Noise | None,
    ) -> None:
        first = np.array(prior, dtype=np.float64)
        super().__init__(
            list(range(first.size)) if states is None else states, budget, horizon, missing, noise
        )
        k = self.states.size
        moves = np.array(transition, dtype=np.float64)
        if first.shape != (k,) or moves.shape != (k, k):
            raise ConfigError(f"{k} states need a prior of {k} and a transition matrix of {k} x {k}")
        for name, rows in (("prior", first[None, :]), ("transition", moves)):
            if not (
                np.isfinite(rows).all() and rows.min() >= 0 and np.allclose(rows.sum(axis=1), 1, atol=1e-9)
            ):
                raise ConfigError(f"{name} must hold probabilities that sum to 1")
        self.prior = first / first.sum()
        self.transition = moves / moves.sum(axis=1, keepdims=True)
        self.distance: Distance = validate.one_of(distance, "distance", _DISTANCES)
        self._belief = self.prior  # about the next value, given the releases so far

    @property
    def guarantee(self) -> Guarantee:
        """Sequence-level, pure, local."""
        return Guarantee(
            "sequence",
            "pure",
            "local",
            f"one person's whole series of {self.horizon} values, against an observer who knows the model",
        )

    @property
    def local_epsilon(self) -> float:
        """The ε of local differential privacy that follows for any observer: twice the budget's."""
        return 2 * self.budget.epsilon

    @property
    def belief(self) -> Floats:
        """What an observer of the releases believes about the next value. Public."""
        return np.array(self._belief)

    def _distances(self, points: Floats) -> Floats:
        """Distances between batches of states (rows)."""
        apart = np.abs(points[:, None, :] - points[None, :, :])
        return np.asarray((apart if self.distance == "absolute" else apart > 0).sum(axis=2, dtype=np.float64))

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        values, arrays = super()._state()
        return values, arrays | {"belief": self._belief}

    def _restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        super()._restore(values, arrays)
        self._belief = np.array(arrays["belief"], dtype=np.float64)


class SIPInstant(_SIP):
    """Release each value at once through the best channel for the observer's present belief.

    Guarantee
    ---------
    ε Sequence Information Privacy, pure, local: for a person's series of T values and any outputs, |ln
    P(series | outputs) / P(series)| <= ε, against an observer who knows ``prior`` and ``transition``. Each
    step leaks at most ε / T: the channel depends on the present value and on earlier outputs only, and its
    leakage against the belief is checked, not assumed (``channel``). Leakages add up (Theorem 1). It implies
    2ε local differential privacy, whatever the truth of the model (Theorem 3): each step's channel keeps its
    bound for every value, also those that the belief rules out.

    A public gap releases the most probable state, costs nothing, and lets the belief move on. Past the
    horizon ``update`` raises ``BudgetExhausted``.
    """

    def __init__(
        self,
        *,
        states: Sequence[float] | None = None,
        prior: Sequence[float],
        transition: Sequence[Sequence[float]],
        budget: PrivacyBudget,
        horizon: int,
        distance: Distance = "absolute",
        missing: Missing = "refuse",
        noise: Noise | None = None,
    ) -> None:
        super().__init__(states, prior, transition, budget, horizon, distance, missing, noise)

    @property
    def step_epsilon(self) -> float:
        """What one step may leak."""
        return self.budget.epsilon / self.horizon

    def channel(self) -> Floats:
        """P(output | value) at the present step; public."""
        return design(self._belief, self.step_epsilon, self._distances(self.states[:, None]))

    def update(self, value: float) -> float:
        """Release the next value."""
        return float(self.run([value])[0])

    def run(self, series: Iterable[float]) -> Floats:
        """Release the next values. Everything is checked before anything is spent."""
        index = self._index(series, first=self.step)
        self._require(int(np.count_nonzero(index >= 0)))
        out = np.empty(index.size)
        for i, value in enumerate(index.tolist()):
            if value < 0:
                output, known = int(self._belief.argmax()), self._belief
            else:
                channel = self.channel()
                output = draw(channel, value, self.noise)
                known = posterior(channel, self._belief, output)
                self._spent_steps += 1
            self._belief = known @ self.transition
            out[i] = self.states[output]
            self.step += 1
        return out


class SIPBatched(_SIP):
    """Collect ``batch`` values and release them together: one linear programme over all |states|^batch
    sequences.

    Guarantee
    ---------
    As ``SIPInstant``: a batch of b values leaks at most b ε / T, batches add up to ε over T values, and 2ε
    local differential privacy follows. The channel of a batch depends on that batch and earlier outputs
    (Theorem 5 with memory 1).

    |states|^batch is bounded by ``SIPBatched.MOST_SEQUENCES``: the programme has the square of it as
    variables. ``update`` takes a whole batch; ``run`` cuts a series, and a rest shorter than a batch is
    released as one of its own, with its own share of ε.
    """

    MOST_SEQUENCES = 81

    def __init__(
        self,
        *,
        states: Sequence[float] | None = None,
        prior: Sequence[float],
        transition: Sequence[Sequence[float]],
        budget: PrivacyBudget,
        horizon: int,
        batch: int,
        distance: Distance = "absolute",
        missing: Missing = "refuse",
        noise: Noise | None = None,
    ) -> None:
        super().__init__(states, prior, transition, budget, horizon, distance, missing, noise)
        if missing == "public":
            raise ConfigError("a batch cannot have gaps; release the parts between them")
        self.batch = validate.whole(batch, "batch", low=1)
        sequences = self.states.size**self.batch
        if sequences > self.MOST_SEQUENCES:
            raise ConfigError(
                f"{self.states.size} states in batches of {self.batch} are {sequences} sequences; "
                f"at most {self.MOST_SEQUENCES} are handled: take smaller batches or fewer states"
            )

    def channel(self, length: int | None = None) -> Floats:
        """P(released batch | batch) at the present step, sequences in lexicographic order; public."""
        length = self.batch if length is None else length
        sequences = _sequences(self.states.size, length)
        epsilon = self.budget.epsilon * length / self.horizon
        return design(self.batch_belief(length), epsilon, self._distances(self.states[sequences]))

    def batch_belief(self, length: int) -> Floats:
        """What an observer believes about the next ``length`` values."""
        sequences = _sequences(self.states.size, length)
        steps = self.transition[sequences[:, :-1], sequences[:, 1:]]
        return np.asarray(self._belief[sequences[:, 0]] * steps.prod(axis=1))

    def update(self, values: Sequence[float]) -> Floats:
        """Release the next batch of ``batch`` values."""
        index = self._index(values, first=self.step)
        if index.size != self.batch:
            raise InputError(f"a batch holds {self.batch} values, got {index.size}")
        self._require(self.batch)
        return self._release(index)

    def run(self, series: Iterable[float]) -> Floats:
        """Release the next values, batch by batch. Everything is checked before anything is spent."""
        index = self._index(series, first=self.step)
        self._require(index.size)
        parts = [self._release(index[i : i + self.batch]) for i in range(0, index.size, self.batch)]
        return np.concatenate(parts) if parts else np.empty(0)

    def _release(self, index: np.ndarray) -> Floats:
        k, length = self.states.size, index.size
        channel = self.channel(length)
        value = int(np.ravel_multi_index(index.tolist(), (k,) * length))
        output = draw(channel, value, self.noise)
        known = posterior(channel, self.batch_belief(length), output)
        sequences = _sequences(k, length)
        last = np.bincount(sequences[:, -1], weights=known, minlength=k)
        self._belief = last @ self.transition
        self._spent_steps += length
        self.step += length
        return np.asarray(self.states[sequences[output]])


@cache
def _sequences(states: int, length: int) -> np.ndarray:
    """All sequences of state numbers, in lexicographic order."""
    return np.array(list(product(range(states), repeat=length)), dtype=np.int64)

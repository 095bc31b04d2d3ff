"""Sequence Information Privacy: local release of a Markov series, value by value or in batches.

Jiang, Li and Tandon, "Online Context-Aware Streaming Data Release With Sequence Information Privacy" (2024).
The observer knows the prior and the transition matrix; what is bounded is how far each release moves the
observer's belief about the whole series.

**Memory.** The paper lets a channel depend on the last L batches (equation 24) and then takes L = 1. More
would gain nothing: averaging a channel over the earlier batches, given the present one, keeps every bound
(they are linear in a(y|.)) and the expected distance (which reads the present batch alone).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache
from typing import Any, Literal

import numpy as np

from streams.scalar.base import Arrays, Guarantee, Missing
from streams.scalar.channels import MarkovBelief, design, draw
from streams.scalar.local import Distance, LocalMechanism, States, state_distances
from synthgeo import validate
from synthgeo.arrays import Floats, Ints
from synthgeo.errors import ConfigError, InputError
from synthgeo.privacy.accountant import approximate_dp_of_zcdp
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.noise import Noise


def composed_leakage(epsilon: float, count: float, delta: float) -> float:
    """The leakage of ``count`` releases of at most ``epsilon`` each that is exceeded with at most ``delta``.

    Theorem 2, sharpened. For a given series the leakages are at most ε in size, and the mean of each, given
    what went before, lies between 0 and κ = ε tanh(ε / 2), a divergence of two laws within e^±ε of each
    other. So (Azuma) their sum exceeds n κ + s with probability at most e^(-s² / 2nε²), and is below -s with
    the same: both ends count. Never more than n ε.

    >>> composed_leakage(0.1, 400, 1e-6) < theorem2_leakage(0.1, 400, 1e-6) < 40
    True
    """
    plain = count * epsilon
    if delta <= 0:
        return plain
    mean, spread = count * epsilon * math.tanh(epsilon / 2), math.sqrt(2 * count) * epsilon

    def chance(total: float) -> float:
        above = math.exp(-(((total - mean) / spread) ** 2)) if total > mean else 1.0
        return above + math.exp(-((total / spread) ** 2))

    low, high = mean, mean + spread * math.sqrt(math.log(2 / delta)) * 1.001
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if chance(middle) <= delta else (middle, high)
    return min(plain, high)


def theorem2_leakage(epsilon: float, count: float, delta: float) -> float:
    """Theorem 2 as printed for single values (for batches it prints τ where sqrt(τ) is meant)."""
    return count * epsilon * math.expm1(epsilon) + math.sqrt(2 * count * math.log(1 / delta)) * epsilon


def largest_leakage(total: float, count: float, delta: float) -> float:
    """The most that each of ``count`` releases may leak for ``total`` to be kept, but for ``delta``."""
    low, high = total / count, total
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if composed_leakage(middle, count, delta) <= total else (low, middle)
    return low


class _SIP(LocalMechanism):
    """Belief of the observer, and its update (equation 13)."""

    def __init__(
        self,
        states: States | None,
        prior: Any,
        transition: Any,
        budget: PrivacyBudget,
        horizon: int | None,
        window: int | None,
        batch: int,
        distance: Distance,
        missing: Missing,
        noise: Noise | None,
    ) -> None:
        self._belief = MarkovBelief(prior, transition)
        k = self._belief.transition.shape[0]
        super().__init__(list(range(k)) if states is None else states, budget, horizon, missing, noise)
        if self.size != k:
            raise ConfigError(f"{self.size} states need a prior and a transition matrix of {self.size}")
        if (horizon is None) == (window is None):
            raise ConfigError("give exactly one of horizon= (one series) and window= (each window in turn)")
        self.window = None if window is None else validate.whole(window, "window", low=1)
        if self.window is not None and self.window % batch:
            raise ConfigError(f"a window of {self.window} must hold whole batches of {batch}")
        self.prior, self.transition = self._belief.prior, self._belief.transition
        self.distance = distance if isinstance(distance, str) else np.array(distance, dtype=np.float64)
        self._apart = state_distances(self.states, distance)
        self._batch_length = batch
        self._batch_epsilon = self._share(batch)

    def _share(self, batch: int) -> float:
        """What a batch may leak, so that all of them together keep the budget."""
        values = self.horizon or self.window or 1
        if self.budget.is_pure or values <= batch:
            return self.budget.epsilon * min(batch, values) / values
        return largest_leakage(self.budget.epsilon, values / batch, self.budget.delta)

    def _epsilon_of(self, length: int) -> float:
        """What a batch of ``length`` values may leak: shorter ones less, in proportion."""
        return self._batch_epsilon * length / min(self._batch_length, self.horizon or self.window or 1)

    @property
    def step_epsilon(self) -> float:
        """What one value may leak."""
        return self._epsilon_of(1)

    @property
    def guarantee(self) -> Guarantee:
        """Sequence-level, local."""
        kind: Literal["pure", "approximate"] = "pure" if self.budget.is_pure else "approximate"
        what = (
            f"one person's whole series of {self.horizon} values"
            if self.window is None
            else f"what releases about each {self.window} values of one person tell beyond earlier ones"
        )
        return Guarantee("sequence", kind, "local", f"{what}, against an observer who knows the model")

    @property
    def spent(self) -> PrivacyBudget | None:
        """What the values so far (of the fullest window) may have leaked; with a δ, but for that chance."""
        used = min(self._spent_steps, self.horizon or self.window or 1)
        if not used:
            return None
        if self.budget.is_pure:
            return PrivacyBudget(self.budget.epsilon * used / (self.horizon or self.window or 1))
        batches = used / min(self._batch_length, used)
        leaked = composed_leakage(self._epsilon_of(min(self._batch_length, used)), batches, self.budget.delta)
        return PrivacyBudget(min(leaked, self.budget.epsilon), self.budget.delta)

    @property
    def local_epsilon(self) -> float:
        """The ε of local differential privacy that follows for any observer, at the budget's δ.

        A release that leaks at most ε₁ is 2ε₁-locally private. Over all of them that adds up to 2ε for a pure
        budget; with a δ it composes as zCDP does.
        """
        if self.budget.is_pure:
            return 2 * self.budget.epsilon
        values = self.horizon or self.window or 1
        length = min(self._batch_length, values)
        each, batches = 2 * self._epsilon_of(length), values / length
        return min(batches * each, approximate_dp_of_zcdp(batches * each**2 / 2, self.budget.delta))

    @property
    def belief(self) -> Floats:
        """What an observer of the releases believes about the next value. Public."""
        return self._belief.batch(1)

    def _release(self, index: Ints) -> Ints:
        """Release values (state numbers) together."""
        length = index.size
        channel = self.channel(length)
        value = int(np.ravel_multi_index(index.tolist(), (self.size,) * length))
        output = draw(channel, value, self.noise)
        self._belief.learn(channel[:, output], length)
        self._spent_steps += length
        self.step += length
        return np.asarray(_sequences(self.size, length)[output])

    def channel(self, length: int = 1) -> Floats:
        """P(released | values) for the next ``length`` values, sequences in lexicographic order; public."""
        apart = _summed(self._apart, _sequences(self.size, length)) if length > 1 else self._apart
        return design(self._belief.batch(length), self._epsilon_of(length), apart)

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        values, arrays = super()._state()
        return values | {"believed": self._belief.step}, arrays | {"belief": self._belief.joint}

    def _restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        super()._restore(values, arrays)
        self._belief.joint = np.array(arrays["belief"], dtype=np.float64)
        self._belief.step = int(values["believed"])


class SIPInstant(_SIP):
    """Release each value at once through the best channel for the observer's present belief.

    ``prior`` and ``transition`` are public: the chain's start and its moves (an axis more for a chain of
    second order, P(next | before last, last)). ``learn_chain`` counts them in public series. ``states`` are
    numbers or points; ``distance`` is what the error is measured by: "absolute", "hamming", "euclidean" or a
    matrix. ``horizon`` is the length of the series; ``window`` in its place renews the budget for each window
    of so many values (section VII).

    Guarantee
    ---------
    ε Sequence Information Privacy, local: for a person's series of T values and any outputs, |ln P(series |
    outputs) / P(series)| <= ε, against an observer who knows ``prior`` and ``transition``. Each step leaks at
    most ε / T: the channel depends on the present value and on earlier outputs only, and its leakage against
    the belief is checked, not assumed (``channel``). Leakages add up (Theorem 1). With a δ each step may leak
    more: for every series, the sum exceeds ε with probability at most δ over the outputs
    (``composed_leakage``, Theorem 2 with both tails). Pure ε implies 2ε local differential privacy, whatever
    the truth of the model (Theorem 3): each step's channel keeps its bound for every value, also those that
    the belief rules out; ``local_epsilon`` says what follows with a δ. With ``window``, each window's
    releases move the belief that the releases before it left by at most ε; over several windows leakages go
    on adding up.

    A public gap releases the most probable state, costs nothing, and lets the belief move on. Past the
    horizon ``update`` raises ``BudgetExhausted``.
    """

    def __init__(
        self,
        *,
        states: States | None = None,
        prior: Any,
        transition: Any,
        budget: PrivacyBudget,
        horizon: int | None = None,
        window: int | None = None,
        distance: Distance = "absolute",
        missing: Missing = "refuse",
        noise: Noise | None = None,
    ) -> None:
        super().__init__(states, prior, transition, budget, horizon, window, 1, distance, missing, noise)

    def run(self, series: Iterable[Any]) -> Floats:
        """Release the next values. Everything is checked before anything is spent."""
        index = self._index(series, first=self.step)
        self._require(int(np.count_nonzero(index >= 0)))
        out = np.empty(index.size, dtype=np.int64)
        for i in range(index.size):
            if index[i] < 0:
                out[i] = int(self._belief.batch(1).argmax())
                self._belief.move_on(self._belief.ahead(1), 1)
                self.step += 1
            else:
                out[i] = self._release(index[i : i + 1])[0]
        return self._values(out)


class SIPBatched(_SIP):
    """Collect ``batch`` values and release them together: one linear programme over all sequences of states.

    Settings as in ``SIPInstant``. ``update`` takes a whole batch; ``run`` cuts a series, and a rest shorter
    than a batch is released as one of its own, with its own share of ε.

    Guarantee
    ---------
    As ``SIPInstant``: a batch of b values leaks at most b ε / T (more with a δ), batches add up to ε over T
    values, and 2ε local differential privacy follows. The channel of a batch depends on that batch and
    earlier outputs (Theorem 5 with memory 1).

    Up to 81 sequences (|states|^batch) the programme is solved in full, up to ``SIPBatched.MOST_SEQUENCES``
    to within a per cent of the best by adding outputs as they pay; the bound on the leakage holds either way.
    """

    MOST_SEQUENCES = 512

    def __init__(
        self,
        *,
        states: States | None = None,
        prior: Any,
        transition: Any,
        budget: PrivacyBudget,
        horizon: int | None = None,
        window: int | None = None,
        batch: int,
        distance: Distance = "absolute",
        missing: Missing = "refuse",
        noise: Noise | None = None,
    ) -> None:
        self.batch = validate.whole(batch, "batch", low=1)
        super().__init__(
            states, prior, transition, budget, horizon, window, self.batch, distance, missing, noise
        )
        if missing == "public":
            raise ConfigError("a batch cannot have gaps; release the parts between them")
        if self.size ** min(self.batch, 64) > self.MOST_SEQUENCES:
            raise ConfigError(
                f"{self.size} states in batches of {self.batch} are more sequences than the "
                f"{self.MOST_SEQUENCES} that are handled: take smaller batches or fewer states"
            )

    def channel(self, length: int | None = None) -> Floats:
        """P(released batch | batch) at the present step, sequences in lexicographic order; public."""
        return super().channel(self.batch if length is None else length)

    def batch_belief(self, length: int) -> Floats:
        """What an observer believes about the next ``length`` values."""
        return self._belief.batch(length)

    def update(self, value: Any) -> Any:
        """Release the next batch of ``batch`` values."""
        index = self._index(value, first=self.step)
        if index.size != self.batch:
            raise InputError(f"a batch holds {self.batch} values, got {index.size}")
        self._require(self.batch)
        return self._values(self._release(index))

    def run(self, series: Iterable[Any]) -> Floats:
        """Release the next values, batch by batch. Everything is checked before anything is spent."""
        index = self._index(series, first=self.step)
        if self.window is not None and index.size % self.batch:
            raise InputError(f"with a window, values come in whole batches of {self.batch}, got {index.size}")
        self._require(index.size)
        parts = [self._release(index[i : i + self.batch]) for i in range(0, index.size, self.batch)]
        return self._values(np.concatenate([np.empty(0, dtype=np.int64), *parts]))


@cache
def _sequences(states: int, length: int) -> Ints:
    """All sequences of state numbers, in lexicographic order."""
    return np.indices((states,) * length).reshape(length, -1).T.astype(np.int64)


def _summed(apart: Floats, sequences: Ints) -> Floats:
    """Distances between sequences: the sums over their steps."""
    return np.asarray(sum(apart[np.ix_(column, column)] for column in sequences.T))

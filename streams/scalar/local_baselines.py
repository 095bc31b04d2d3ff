"""The local mechanisms that Sequence Information Privacy is compared with, for one person's series.

Jiang, Li and Tandon (2024) compare with mechanisms that were published for many people or for locations; each
class says what it takes over and what it leaves.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np

from streams.scalar.base import Arrays, Guarantee, Missing, need_pure
from streams.scalar.channels import MarkovBelief
from streams.scalar.local import (
    Distance,
    LocalMechanism,
    States,
    encode_unary,
    pick_one,
    respond,
    response_channel,
    state_distances,
    unary_channel,
)
from streams.scalar.window import LONGEST_WINDOW, AbsorbedBudget, DistributedBudget, WindowBudget
from synthgeo import validate
from synthgeo.arrays import Floats, Ints
from synthgeo.errors import ConfigError
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.noise import MAX_SCALE, Noise
from synthgeo.privacy.unit import PrivacyUnit

_GRID = 1 << 16  # distances and values in these fractions of a unit


class TemporalResponse(LocalMechanism):
    """Randomised response among the states that are likely by now, which are fewer than all.

    The likely states are the fewest that hold ``coverage`` of what an observer believes about the next value
    (a δ-location set, Xiao and Xiong 2015); a value outside is replaced by the nearest of them. Jiang, Li and
    Tandon (2024) take the states that are possible after the *previous value*: that set would tell the value
    itself, so here it follows from releases. ``temporal_leakage`` says what such releases tell about a single
    value when values are correlated (Cao and others 2017).

    Guarantee
    ---------
    Pure ε, local, for one person's whole series of T values. At each step the likely states, and the nearest
    of them to any value, follow from earlier releases and the public chain; randomised response among them
    with ε / T keeps every ratio at e^(ε / T), whatever the two values. T values compose to ε. It does not
    depend on the chain being right. A public gap releases the most probable state. Past the horizon
    ``update`` raises ``BudgetExhausted``.
    """

    def __init__(
        self,
        *,
        states: States | None = None,
        prior: Any,
        transition: Any,
        budget: PrivacyBudget,
        horizon: int,
        coverage: float = 0.95,
        distance: Distance = "euclidean",
        missing: Missing = "refuse",
        noise: Noise | None = None,
    ) -> None:
        need_pure(budget, "TemporalResponse")
        self._belief = MarkovBelief(prior, transition)
        k = self._belief.transition.shape[0]
        super().__init__(list(range(k)) if states is None else states, budget, horizon, missing, noise)
        if self.size != k:
            raise ConfigError(f"{self.size} states need a prior and a transition matrix of {self.size}")
        self.prior, self.transition = self._belief.prior, self._belief.transition
        self.coverage = validate.share(coverage, "coverage", one=True)
        self.distance = distance if isinstance(distance, str) else np.array(distance, dtype=np.float64)
        self._apart = state_distances(self.states, distance)
        assert self.horizon is not None
        self.step_epsilon = budget.epsilon / self.horizon

    @property
    def guarantee(self) -> Guarantee:
        """Sequence-level, pure, local."""
        return Guarantee("sequence", "pure", "local", f"one person's whole series of {self.horizon} values")

    @property
    def belief(self) -> Floats:
        """What an observer of the releases believes about the next value. Public."""
        return self._belief.batch(1)

    def likely(self) -> Ints:
        """The states that the next release is among, fewest that hold ``coverage`` of the belief. Public."""
        belief = self._belief.batch(1)
        order = np.argsort(-belief, kind="stable")
        count = int(np.searchsorted(np.cumsum(belief[order]), self.coverage - 1e-12)) + 1
        return np.asarray(order[: min(count, self.size)], dtype=np.int64)

    def channel(self) -> Floats:
        """P(output | value) at the present step, a row for each value; public."""
        likely = self.likely()
        matrix = np.zeros((self.size, self.size))
        rows = response_channel(likely.size, self.step_epsilon) if likely.size > 1 else np.ones((1, 1))
        matrix[:, likely] = rows[self._stand_in(likely)]
        return matrix

    def _stand_in(self, likely: Ints) -> Ints:
        """For each state, which of the likely ones speaks for it."""
        return np.asarray(np.argmin(self._apart[:, likely], axis=1), dtype=np.int64)

    def run(self, series: Iterable[Any]) -> Floats:
        """Release the next values. Everything is checked before anything is spent."""
        index = self._index(series, first=self.step)
        self._require(int(np.count_nonzero(index >= 0)))
        out = np.empty(index.size, dtype=np.int64)
        for i, value in enumerate(index.tolist()):
            if value < 0:
                out[i] = int(self._belief.batch(1).argmax())
                self._belief.move_on(self._belief.ahead(1), 1)
            else:
                out[i] = self._release(value)
                self._spent_steps += 1
            self.step += 1
        return self._values(out)

    def _release(self, value: int) -> int:
        likely, channel = self.likely(), self.channel()
        place = 0
        if likely.size > 1:
            truth = self._stand_in(likely)[value : value + 1]
            place = int(respond(truth, likely.size, self.step_epsilon, self.noise)[0])
        output = int(likely[place])
        self._belief.learn(channel[:, output], 1)
        return output

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        values, arrays = super()._state()
        return values | {"believed": self._belief.step}, arrays | {"belief": self._belief.joint}

    def _restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        super()._restore(values, arrays)
        self._belief.joint = np.array(arrays["belief"], dtype=np.float64)
        self._belief.step = int(values["believed"])


class WindowResponse(LocalMechanism):
    """Repeat the last release while it is near enough, else respond anew: w-event local privacy.

    The allocation of LDP-IDS (Ren and others 2022) for one person: half of a window's budget compares the
    value with the last release through noise, the other half pays for new releases, by budget distribution or
    absorption (``sharing``), with randomised response or unary encoding (``encoding``). A new release is
    worth it when the noisy distance exceeds the error that a response with the affordable ε would have, on
    average over the states.

    Guarantee
    ---------
    w-event ε, pure, local: any two series that differ within w successive steps. The distance to the last
    release (public) is rounded down to a grid; with noise of scale (largest - least distance) / (ε / 2w) a
    comparison costs ε / (2w), ε / 2 in a window. Responses of a window cost at most ε / 2, as in
    ``BudgetDistribution`` and ``BudgetAbsorption``. Choices follow from noisy numbers: adaptive composition.
    Gaps repeat the last release and cost nothing.
    """

    def __init__(
        self,
        *,
        states: States = (0, 1),
        budget: PrivacyBudget,
        window: int,
        sharing: Literal["distribution", "absorption"] = "distribution",
        encoding: Literal["response", "unary"] = "response",
        distance: Distance = "absolute",
        missing: Missing = "refuse",
        noise: Noise | None = None,
    ) -> None:
        need_pure(budget, "WindowResponse")
        super().__init__(states, budget, None, missing, noise)
        self.window = validate.whole(window, "window", low=1, high=LONGEST_WINDOW)
        self.sharing = validate.one_of(sharing, "sharing", ("distribution", "absorption"))
        self.encoding = validate.one_of(encoding, "encoding", ("response", "unary"))
        self.distance = distance if isinstance(distance, str) else np.array(distance, dtype=np.float64)
        self._apart = state_distances(self.states, distance)
        kind: type[WindowBudget] = DistributedBudget if sharing == "distribution" else AbsorbedBudget
        self._account = kind(budget.epsilon, self.window)
        self._last = -1  # the number of the last release

    @property
    def guarantee(self) -> Guarantee:
        """w-event, pure, local."""
        return Guarantee("w-event", "pure", "local", f"everything within any {self.window} successive steps")

    @property
    def unit(self) -> PrivacyUnit:
        """One event of a window."""
        return PrivacyUnit.event()

    @property
    def spent(self) -> PrivacyBudget | None:
        """The most that any window of w steps has spent so far."""
        return PrivacyBudget(self._account.dearest) if self._account.dearest else None

    @property
    def publications(self) -> int:
        """How many values were released anew rather than repeated."""
        return self._spent_steps

    def expected_error(self, epsilon: float) -> float:
        """The mean distance between value and response at ``epsilon``, over all states alike."""
        channel = (response_channel if self.encoding == "response" else unary_channel)(self.size, epsilon)
        return float((channel * self._apart).sum() / self.size)

    def run(self, series: Iterable[Any]) -> Floats:
        """Release the next values. Everything is checked before anything is spent."""
        index = self._index(series, first=self.step)
        out = np.empty(index.size, dtype=np.int64)
        for i, value in enumerate(index.tolist()):
            if value < 0:
                self._account.note(self.step, compared=False, published=0.0)
            else:
                self._release(value)
            out[i] = self._last
            self.step += 1
        return self._values(out)

    def _release(self, value: int) -> None:
        affordable = self._account.affordable(self.step)
        worth = affordable > 0  # a public fact: nothing is compared when nothing could be released anew
        compared = worth and self._last >= 0
        if compared:
            worth = self._differs(value, affordable)
        if worth:
            one = np.array([value])
            if self.encoding == "response":
                self._last = int(respond(one, self.size, affordable, self.noise)[0])
            else:
                bits = encode_unary(one, self.size, affordable, self.noise)
                self._last = int(pick_one(bits, self.noise.rng)[0])
            self._spent_steps += 1
        self._account.note(self.step, compared=compared, published=affordable if worth else 0.0)

    def _differs(self, value: int, affordable: float) -> bool:
        """Whether the noisy distance to the last release exceeds the error of a new one."""
        steps = np.floor(self._apart[:, self._last] * _GRID).astype(np.int64)
        reach = int(steps.max() - steps.min())
        scale = reach / self._account.comparing
        if not 0 < scale <= MAX_SCALE:
            return True
        noisy = int(steps[value]) + int(self.noise.discrete_laplace(scale, 1)[0])
        return noisy > self.expected_error(affordable) * _GRID

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        values, arrays = super()._state()
        more, account = self._account.state()
        return values | more | {"last": self._last}, arrays | account

    def _restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        super()._restore(values, arrays)
        self._account.restore(values, arrays)
        self._last = int(values["last"])


class ToPS(LocalMechanism):
    """Threshold, perturb, smooth (Wang and others 2021), for one person's numbers.

    The first ``warm_up`` values are released by the square wave mechanism, which also tells how values are
    spread; from that a threshold θ is chosen where what is cut off and what the noise costs balance. Later
    values are cut at θ, get Laplace noise for that smaller range, are averaged over the last ``smoothing`` of
    them, and moved to the nearest state. The published method answers range queries over many people and
    arranges sums in a hierarchy for that; a person's own values need none.

    Guarantee
    ---------
    Pure ε, local, for one person's whole series of T values: each is released once with ε₁ = ε / T. Square
    wave: outputs within b steps of the value have e^ε₁ times the probability of others, drawn exactly as in
    randomised response. Laplace: two values cut to [least, θ] are at most θ - least apart (exactly, in grid
    steps), the scale is that over ε₁. θ follows from earlier releases. The rest is post-processing. Gaps
    repeat the last release.
    """

    def __init__(
        self,
        *,
        states: States,
        budget: PrivacyBudget,
        horizon: int,
        warm_up: int | None = None,
        smoothing: int = 1,
        missing: Missing = "refuse",
        noise: Noise | None = None,
    ) -> None:
        need_pure(budget, "ToPS")
        super().__init__(states, budget, horizon, missing, noise)
        if self.states.ndim != 1:
            raise ConfigError("ToPS takes states that are numbers: there is no threshold among points")
        assert self.horizon is not None
        early = max(1, self.horizon // 20) if warm_up is None else warm_up
        self.warm_up = validate.whole(early, "warm_up", low=1, high=self.horizon)
        self.smoothing = validate.whole(smoothing, "smoothing", low=1)
        self.step_epsilon = budget.epsilon / self.horizon
        self._sorted = np.sort(self.states)
        self._grid = np.floor((self._sorted - self._sorted[0]) * _GRID).astype(np.int64)
        if self._grid[-1] / self.step_epsilon > MAX_SCALE:
            raise ConfigError("the noise needed exceeds the sampler's range: raise epsilon")
        # How often each output of the square wave came.
        self._waves = np.zeros(self.size + 2 * self._reach, dtype=np.int64)
        self._recent: list[float] = []
        self._threshold = -1  # the number of the state; -1 before it is chosen
        self._last = math.nan

    @property
    def _reach(self) -> int:
        """How many states to either side of the truth the square wave favours (Li and others 2020)."""
        e = self.step_epsilon
        if e < 1e-3:  # the limit; the formula itself loses all digits there
            return max(1, round(self.size / 2))
        width = (e * math.exp(e) - math.exp(e) + 1) / (2 * math.exp(e) * (math.exp(e) - 1 - e))
        return max(1, round(width * self.size))

    @property
    def threshold(self) -> float:
        """The largest value that is released uncut; NaN before it is chosen."""
        return math.nan if self._threshold < 0 else float(self._sorted[self._threshold])

    @property
    def guarantee(self) -> Guarantee:
        """Sequence-level, pure, local."""
        return Guarantee("sequence", "pure", "local", f"one person's whole series of {self.horizon} values")

    def wave_channel(self) -> Floats:
        """P(output | value) of the square wave, values rising, outputs from ``reach`` below the least."""
        near = np.abs(np.arange(self._waves.size)[None, :] - self._reach - np.arange(self.size)[:, None])
        weights = np.where(near <= self._reach, math.exp(self.step_epsilon), 1.0)
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    def run(self, series: Iterable[Any]) -> Floats:
        """Release the next values. Everything is checked before anything is spent."""
        index = self._index(series, first=self.step)
        self._require(int(np.count_nonzero(index >= 0)))
        ranks = np.argsort(np.argsort(self.states))  # of each state among the sorted ones
        out = np.empty(index.size)
        for i, value in enumerate(index.tolist()):
            if value >= 0:
                rank = int(ranks[value])
                early = self._spent_steps < self.warm_up
                self._last = self._wave(rank) if early else self._perturbed(rank)
                self._spent_steps += 1
            out[i] = self._last
            self.step += 1
        return out

    def _wave(self, rank: int) -> float:
        while True:
            output = int(self.noise.integers(self._waves.size, 1)[0])
            near = abs(output - self._reach - rank) <= self._reach
            if bool(self.noise.bernoulli_exp(np.array([0.0 if near else self.step_epsilon]))[0]):
                break
        self._waves[output] += 1
        return float(self._sorted[min(max(output - self._reach, 0), self.size - 1)])

    def _choose_threshold(self) -> int:
        """The state at which squares cut off, by the estimated spread of values, and noise balance."""
        channel = self.wave_channel()
        share = np.full(self.size, 1 / self.size)
        for _ in range(100):  # expectation-maximisation
            seen = share @ channel
            share = share * (channel @ (self._waves / np.maximum(seen, 1e-300)))
            share /= share.sum()
        above = np.maximum(0.0, self._sorted[None, :] - self._sorted[1:, None])
        noise = 2 * ((self._sorted[1:] - self._sorted[0]) / self.step_epsilon) ** 2
        return 1 + int(np.argmin((above**2) @ share + noise))

    def _perturbed(self, rank: int) -> float:
        if self._threshold < 0:
            self._threshold = self._choose_threshold()
        top = int(self._grid[self._threshold])
        cut = min(int(self._grid[rank]), top)
        noisy = cut + int(self.noise.discrete_laplace(top / self.step_epsilon, 1)[0])
        self._recent = [*self._recent, noisy / _GRID][-self.smoothing :]
        level = float(np.mean(self._recent)) + float(self._sorted[0])
        level = min(max(level, float(self._sorted[0])), self.threshold)
        return float(self._sorted[int(np.argmin(np.abs(self._sorted - level)))])

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        values, arrays = super()._state()
        arrays |= {"waves": self._waves, "recent": np.array(self._recent), "last": np.array([self._last])}
        return values | {"threshold": self._threshold}, arrays

    def _restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        super()._restore(values, arrays)
        self._threshold = int(values["threshold"])
        self._waves = np.array(arrays["waves"], dtype=np.int64)
        self._recent = [float(v) for v in arrays["recent"]]
        self._last = float(arrays["last"][0])

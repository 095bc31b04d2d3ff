"""Local mechanisms for series over a finite alphabet: their laws are finite, so everything is exact."""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any
from unittest import mock

import numpy as np

import streams.scalar as series
from audits.pool import many
from audits.registry import EXTREMES, Attacker, Found, case
from streams.scalar import sip
from streams.scalar.channels import closed_form, design, leakage
from streams.scalar.local import response_channel
from synthgeo.auditing.whitebox import law_loss
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.noise import SeededNoise

PURE = PrivacyBudget(2.0)
THREE = (2.0, *EXTREMES)
PRIOR = [0.1, 0.45, 0.45]
TRANSITION = [[0.6, 0.2, 0.2], [0.05, 0.5, 0.45], [0.05, 0.45, 0.5]]


class _NeverOutputError(Exception):
    """These outputs do not occur, whatever the series."""


def sequence_law(make: Any, length: int) -> tuple[np.ndarray, np.ndarray]:
    """P(outputs | series) for every series and every outputs, and the prior of the series."""
    states = range(len(PRIOR))
    sequences = list(itertools.product(states, repeat=length))
    law = np.zeros((len(sequences), len(sequences)))
    for j, outputs in enumerate(sequences):
        for i, values in enumerate(sequences):
            law[i, j] = _chance(make, values, outputs)
    moves = np.array(TRANSITION)
    prior = np.array(
        [PRIOR[s[0]] * math.prod(moves[a, b] for a, b in itertools.pairwise(s)) for s in sequences]
    )
    return law, prior


def _chance(make: Any, values: Any, outputs: Any) -> float:
    """P(outputs | values): the product of the channels that the mechanism really uses on the way."""
    chance = 1.0
    left = list(outputs)

    def forced(channel: np.ndarray, value: int, noise: Any) -> int:
        nonlocal chance
        width = round(math.log(channel.shape[0], len(PRIOR)))
        part = [left.pop(0) for _ in range(width)]
        output = int(np.ravel_multi_index(part, (len(PRIOR),) * width))
        if not channel[:, output].any():
            raise _NeverOutputError
        chance *= float(channel[value, output])
        return output

    with mock.patch.object(sip, "draw", forced):
        try:
            make().run(list(values))
        except _NeverOutputError:
            return 0.0
    return chance


def _moved(law: np.ndarray, prior: np.ndarray) -> float:
    """How far outputs can move an observer's belief about the series, at most."""
    total = prior @ law
    seen = total > 0
    with np.errstate(divide="ignore"):
        return float(np.abs(np.log(law[:, seen] / total[seen])).max())


@functools.cache
def _design(belief: bytes, epsilon: float, distances: bytes) -> np.ndarray:
    b = np.frombuffer(belief)
    return design(b, epsilon, np.frombuffer(distances).reshape(b.size, b.size))


def _quick_design(belief: np.ndarray, epsilon: float, distances: np.ndarray) -> np.ndarray:
    """The same channel as ``design`` gives, solved once for each belief."""
    return _design(np.ascontiguousarray(belief).tobytes(), epsilon, np.ascontiguousarray(distances).tobytes())


SIP = {
    "SIPInstant": functools.partial(
        series.SIPInstant, horizon=2, prior=PRIOR, transition=TRANSITION, distance="hamming"
    ),
    "SIPBatched": functools.partial(
        series.SIPBatched, horizon=2, batch=2, prior=PRIOR, transition=TRANSITION, distance="hamming"
    ),
}


@case(
    "series.SIPInstant, the channel at belief β = 0.1",
    unit="sequence",
    claimed=1.0,
    method="exact",
    twin="SIP's printed closed form at β = 0.1",
    covers="series.SIPInstant",
)
def printed_channel(attacker: Attacker) -> Found:
    belief = np.array([0.1, 0.45, 0.45])
    return Found(
        leakage(design(belief, 1.0, 1.0 - np.eye(3)), belief), leakage(closed_form(belief, 1.0), belief)
    )


def _enter_sip_law(name: str, claimed: float) -> None:
    @case(
        f"series.{name}, all series of two values",
        unit="sequence",
        claimed=claimed,
        method="exact",
        twin="SIP's printed closed form at β = 0.1",
        covers=f"series.{name}",
    )
    def exact(attacker: Attacker) -> Found:
        two = functools.partial(SIP[name], budget=PrivacyBudget(claimed))
        with mock.patch.object(sip, "design", _quick_design):
            honest = _moved(*sequence_law(two, 2))
        with mock.patch.object(sip, "design", lambda belief, epsilon, _: closed_form(belief, epsilon)):
            printed = _moved(*sequence_law(two, 2))
        return Found(honest, printed)


def _enter_sip(name: str) -> None:
    make = SIP[name]

    @case(
        f"series.{name}, as local differential privacy",
        unit="sequence",
        claimed=2.0,
        method="black box",
        twin="four times the budget",
        covers=f"series.{name}",
    )
    def attack(attacker: Attacker) -> Found:
        fair, greedy = (functools.partial(make, budget=PrivacyBudget(e)) for e in (1.0, 4.0))
        with mock.patch.object(sip, "design", _quick_design):
            return attacker.black_box(
                functools.partial(many, make=fair),
                functools.partial(many, make=greedy),
                ([1, 1], [2, 2]),
                claimed=2.0,
                runs=20_000,
                quick=2000,
                batched=True,
            )


for _name in SIP:
    for _epsilon in (0.1, 1.0, 2.0):  # at a large ε the printed form leaks nothing more
        _enter_sip_law(_name, _epsilon)
    _enter_sip(_name)


def _enter_response(claimed: float) -> None:
    @case(
        "series.RandomizedResponse, its channel",
        unit="sequence",
        claimed=claimed,
        method="exact",
        twin="the whole budget at each step",
        covers="series.RandomizedResponse",
    )
    def response(attacker: Attacker) -> Found:
        fair, whole = (
            series.RandomizedResponse(
                budget=PrivacyBudget(claimed), horizon=steps, states=[0, 1, 2]
            ).channel()
            for steps in (2, 1)
        )
        return Found(*(2 * law_loss(channel[0], channel[1]) for channel in (fair, whole)))


for _epsilon in THREE:
    _enter_response(_epsilon)


@case(
    "series.RandomizedResponse",
    unit="sequence",
    claimed=2.0,
    method="black box",
    twin="the whole budget at each step",
    covers="series.RandomizedResponse",
)
def response_black_box(attacker: Attacker) -> Found:
    honest, greedy = (
        functools.partial(
            many, make=functools.partial(series.RandomizedResponse, budget=PrivacyBudget(e), horizon=2)
        )
        for e in (2.0, 4.0)
    )
    return attacker.black_box(
        honest, greedy, ([0, 0], [1, 1]), claimed=2.0, runs=60_000, quick=3000, batched=True, twin_runs=10_000
    )


# --- comparators ---


def _enter_bits(epsilon: float) -> None:
    @case(
        "series.UnaryEncoding, the law of its bits",
        unit="sequence",
        claimed=epsilon,
        method="exact",
        twin="the whole budget at each step",
        covers="series.UnaryEncoding",
    )
    def unary(attacker: Attacker) -> Found:
        def law(epsilon: float, value: int) -> np.ndarray:
            q = 1 / (math.exp(epsilon) + 1)
            set_bit = np.where(np.arange(3) == value, 0.5, q)
            vectors = np.array(list(itertools.product([0, 1], repeat=3)))
            return np.asarray(np.where(vectors == 1, set_bit, 1 - set_bit).prod(axis=1))

        fair, greedy = (
            series.UnaryEncoding(
                budget=PrivacyBudget(epsilon), horizon=horizon, states=[0, 1, 2]
            ).step_epsilon
            for horizon in (2, 1)
        )
        return Found(*(2 * law_loss(law(e, 0), law(e, 1)) for e in (fair, greedy)))


for _epsilon in THREE:
    _enter_bits(_epsilon)


def _enter_comparator(
    name: str, make: Any, pair: Any, runs: int, unit: str = "sequence", factor: int = 4
) -> None:
    # Picking one of several set bits hides much, of the twin too: that one needs a larger factor.
    @case(
        f"series.{name}",
        unit=unit,
        claimed=2.0,
        method="black box",
        twin=f"{factor} times the budget",
        covers=f"series.{name.split()[0]}",
    )
    def attack(attacker: Attacker) -> Found:
        honest, greedy = (
            functools.partial(many, make=functools.partial(make, budget=PrivacyBudget(e)))
            for e in (2.0, 2.0 * factor)
        )
        return attacker.black_box(
            honest, greedy, pair, claimed=2.0, runs=runs, quick=3000, batched=True, twin_runs=10_000
        )


CHAIN = {"prior": PRIOR, "transition": TRANSITION}


class _Bits(series.UnaryEncoding):
    """Unary encoding, attacked through its bits: the state picked from them tells less."""

    def run(self, values: Any) -> np.ndarray:  # type: ignore[override]
        return self.encode(values).ravel().astype(np.float64)


_enter_comparator("UnaryEncoding", functools.partial(_Bits, horizon=2), ([0, 0], [1, 1]), 40_000)
_enter_comparator(
    "TemporalResponse",
    functools.partial(series.TemporalResponse, horizon=2, coverage=0.85, **CHAIN),
    ([1, 1], [2, 2]),
    20_000,
)
_enter_comparator(
    "WindowResponse",
    functools.partial(series.WindowResponse, window=2),
    ([0, 0], [1, 1]),
    40_000,
    "window of w",
)
_enter_comparator(
    "WindowResponse (absorption, unary)",
    functools.partial(series.WindowResponse, window=2, sharing="absorption", encoding="unary"),
    ([0, 0], [1, 1]),
    40_000,
    "window of w",
    factor=64,
)
_enter_comparator(
    "ToPS", functools.partial(series.ToPS, states=[0, 1, 2], horizon=2, warm_up=1), ([0, 0], [2, 2]), 20_000
)


def _enter_likely_states(epsilon: float) -> None:
    @case(
        "series.TemporalResponse, all series of two values",
        unit="sequence",
        claimed=epsilon,
        method="exact",
        twin="likely states taken from the value before (Jiang, Li and Tandon's text)",
        covers="series.TemporalResponse",
    )
    def likely_states(attacker: Attacker) -> Found:
        """Exact ratios over all series and outputs. The twin's states are those possible after the true value
        before: outputs then rule values out.
        """
        moves = [[0.6, 0.4, 0.0], [0.0, 0.6, 0.4], [0.4, 0.0, 0.6]]

        def loss(from_releases: bool) -> float:
            worst = 0.0
            sequences = list(itertools.product(range(3), repeat=2))
            for outputs in sequences:
                chances = []
                for values in sequences:
                    mechanism = series.TemporalResponse(
                        prior=[1 / 3] * 3,
                        transition=moves,
                        budget=PrivacyBudget(epsilon),
                        horizon=2,
                        coverage=1.0,
                    )
                    chance = 1.0
                    for t, (value, output) in enumerate(zip(values, outputs, strict=True)):
                        channel = mechanism.channel()
                        if t and not from_releases:
                            possible = np.flatnonzero(np.array(moves)[values[t - 1]])
                            channel = np.zeros((3, 3))
                            other = 1 / (math.exp(epsilon / 2) + possible.size - 1)
                            channel[np.ix_(possible, possible)] = other
                            channel[possible, possible] = math.exp(epsilon / 2) * other
                        chance *= float(channel[value, output])
                        if channel[:, output].any() and from_releases:
                            mechanism._belief.learn(channel[:, output], 1)
                    chances.append(chance)
                if max(chances) > 0:
                    worst = max(
                        worst, math.log(max(chances) / min(chances)) if min(chances) > 0 else math.inf
                    )
            return worst

        return Found(loss(True), loss(False))


for _epsilon in THREE:
    _enter_likely_states(_epsilon)


@case(
    "series.ToPS, its square wave",
    unit="sequence",
    claimed=2.0,
    method="exact",
    twin="the whole budget at each step",
    covers="series.ToPS",
)
def square_wave(attacker: Attacker) -> Found:
    def loss(horizon: int) -> float:
        channel = series.ToPS(states=range(6), budget=PURE, horizon=horizon).wave_channel()
        return float(np.log(channel.max(axis=0) / channel.min(axis=0)).max())

    return Found(2 * loss(2), 2 * loss(1))


class Steered(SeededNoise):
    """Noise whose Laplace draws are all ``draw``; writes down their scales."""

    def __init__(self, draw: int = 0) -> None:
        super().__init__(1)
        self.draw, self.scales = draw, []

    def discrete_laplace(self, scale: Any, size: Any = None) -> Any:
        self.scales.append(float(scale))
        return np.full(size, self.draw, dtype=np.int64)


def _enter_cut(epsilon: float) -> None:
    @case(
        "series.ToPS, values cut at the threshold",
        unit="sequence",
        claimed=epsilon,
        method="exact",
        twin="noise scale halved",
        covers="series.ToPS",
    )
    def cut(attacker: Attacker) -> Found:
        """A wave, then a cut value: what its channel tells, and how far the value moves what Laplace noise
        is put on.
        """
        states, noises = (0, 1, 2, 3, 4, 5), [Steered(), Steered()]
        made = [
            series.ToPS(states=states, budget=PrivacyBudget(epsilon), horizon=2, warm_up=1, noise=noise)
            for noise in noises
        ]
        channel = made[0].wave_channel()
        wave = float(np.log(channel.max(axis=0) / channel.min(axis=0)).max())
        for mechanism, value in zip(made, (0, 5), strict=True):
            mechanism.run([2, value])  # the same wave for both, so the same threshold
        grid = made[0]._grid[1]  # steps from one state to the next
        moved = abs(made[0]._recent[-1] - made[1]._recent[-1]) * grid
        (scale,), (other,) = (noise.scales for noise in noises)
        assert scale == other
        return Found(wave + moved / scale, wave + 2 * moved / scale)


def _enter_window_law(sharing: Any, epsilon: float) -> None:
    @case(
        f"series.WindowResponse ({sharing}), its law over two steps",
        unit="window of w",
        claimed=epsilon,
        method="exact",
        twin="twice the budget",
        covers="series.WindowResponse",
    )
    def law(attacker: Attacker) -> Found:
        """The law of both outputs, and of whether the second is new, for all pairs of series."""

        def worst(budget: float) -> float:
            series_of_two = list(itertools.product(range(3), repeat=2))
            laws = [_window_law(sharing, budget, values) for values in series_of_two]
            return max(law_loss(one, other) for one, other in itertools.combinations(laws, 2))

        return Found(worst(epsilon), worst(2 * epsilon))


def _window_law(sharing: Any, epsilon: float, values: tuple[int, ...]) -> np.ndarray:
    """P(first output, second output or none) of a person's two values in one window."""
    law = np.zeros((3, 4))
    for first in range(3):
        made = series.WindowResponse(
            states=(0, 1, 2), budget=PrivacyBudget(epsilon), window=2, sharing=sharing, noise=Steered()
        )
        account = made._account
        published = account.affordable(0)
        account.note(0, compared=False, published=published)
        made._last, made.step = first, 1
        chance = response_channel(3, published)[values[0], first]
        left = account.affordable(1)
        anew = _chance_of_a_release(made, values[1], left) if left else 0.0
        law[first, :3] = chance * anew * (response_channel(3, left)[values[1]] if left else 0.0)
        law[first, 3] = chance * (1 - anew)
    return law.ravel()


def _chance_of_a_release(made: Any, value: int, affordable: float) -> float:
    """P(the noisy distance is large enough), from the least draw with which it is."""
    low, high = -(2**50), 2**50
    while high - low > 1:
        middle = (low + high) // 2
        made.noise.draw = middle
        low, high = (low, middle) if made._differs(value, affordable) else (middle, high)
    ratio = math.exp(-1 / made.noise.scales[-1])
    tail = ratio ** (high if high > 0 else 1 - high) / (1 + ratio)
    return tail if high > 0 else 1 - tail


for _epsilon in THREE:
    _enter_cut(_epsilon)
    for _sharing in ("distribution", "absorption"):
        _enter_window_law(_sharing, _epsilon)


@case(
    "series.SIPInstant with a δ, all series of eight values",
    unit="sequence",
    claimed=PrivacyBudget(1.0, 0.05),
    method="exact",
    twin="each value leaks twice its share",
    covers="series.SIPInstant",
)
def advanced(attacker: Attacker) -> Found:
    """The leakage that is exceeded with probability δ, for the worst series: found by running through all
    outputs.
    """
    horizon, moves = 8, np.array([[0.7, 0.3], [0.3, 0.7]])
    sequences = np.array(list(itertools.product(range(2), repeat=horizon)))
    law = 0.5 * moves[sequences[:, :-1], sequences[:, 1:]].prod(axis=1)

    def quantile(factor: float) -> float:
        mechanism = series.SIPInstant(
            budget=PrivacyBudget(1.0, 0.05), horizon=horizon, prior=[0.5, 0.5], transition=moves
        )
        mechanism._batch_epsilon *= factor
        moved, chances = [], []

        def walk(t: int, chance: np.ndarray) -> None:
            if t == horizon:
                moved.append(np.abs(np.log(chance / (law @ chance))))
                chances.append(chance)
                return
            channel = mechanism.channel()
            before = mechanism._belief.joint, mechanism._belief.step
            for output in range(2):
                mechanism._belief.joint, mechanism._belief.step = before
                mechanism._belief.learn(channel[:, output], 1)
                walk(t + 1, chance * channel[sequences[:, t], output])

        walk(0, np.ones(law.size))
        leaks, weights = np.array(moved), np.array(chances)
        worst = 0.0
        for column in range(law.size):
            order = np.argsort(-leaks[:, column])
            beyond = np.cumsum(weights[order, column])
            worst = max(worst, float(leaks[order[int(np.searchsorted(beyond, 0.05, side="right"))], column]))
        return worst

    return Found(quantile(1.0), quantile(2.0))

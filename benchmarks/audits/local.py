"""Local mechanisms for series over a finite alphabet: their laws are finite, so everything is exact."""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any
from unittest import mock

import numpy as np

import streams.scalar as series
from benchmarks.audits.pool import many
from benchmarks.audits.registry import Attacker, Found, case
from streams.scalar import sip
from streams.scalar.sip_channel import closed_form, design, leakage
from synthgeo.auditing.whitebox import law_loss
from synthgeo.privacy.budget import PrivacyBudget

PURE = PrivacyBudget(2.0)
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


def _enter_sip(name: str) -> None:
    make = SIP[name]

    @case(
        f"series.{name}, all series of two values",
        unit="sequence",
        claimed=2.0,
        method="exact",
        twin="SIP's printed closed form at β = 0.1",
        covers=f"series.{name}",
    )
    def exact(attacker: Attacker) -> Found:
        two = functools.partial(make, budget=PrivacyBudget(2.0))
        with mock.patch.object(sip, "design", _quick_design):
            honest = _moved(*sequence_law(two, 2))
        with mock.patch.object(sip, "design", lambda belief, epsilon, _: closed_form(belief, epsilon)):
            printed = _moved(*sequence_law(two, 2))
        return Found(honest, printed)

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
    _enter_sip(_name)


@case(
    "series.RandomizedResponse, its channel",
    unit="sequence",
    claimed=2.0,
    method="exact",
    twin="the whole budget at each step",
    covers="series.RandomizedResponse",
)
def response(attacker: Attacker) -> Found:
    channel = series.RandomizedResponse(budget=PURE, horizon=2, states=[0, 1, 2]).channel()
    step = law_loss(channel[0], channel[1])
    whole = series.RandomizedResponse(budget=PURE, horizon=1, states=[0, 1, 2]).channel()
    return Found(2 * step, 2 * law_loss(whole[0], whole[1]))


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

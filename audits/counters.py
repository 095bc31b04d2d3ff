"""Counters: every kind, exactly for every event time, and as a black box."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from audits import twins
from audits.registry import Attacker, Found, case
from streams.counters import LAPLACE_KINDS, make_bank
from synthgeo.auditing.duels import gaussian_epsilon
from synthgeo.auditing.whitebox import counter_costs
from synthgeo.privacy.accountant import zcdp_of
from synthgeo.privacy.budget import PrivacyBudget

QUIET, FIRST = (0,) * 8, (1, *[0] * 7)
BUDGET = PrivacyBudget(1.0, 1e-5)


def _costs(kind: str, epsilon: float, factor: float = 1.0) -> float:
    def make(noise: Any) -> Any:
        return make_bank(kind, epsilon=epsilon / factor, noise=noise, horizon=13)

    return float(counter_costs(make, 20).max())


def _log2(noise: Any) -> Any:
    bank = make_bank("binary", epsilon=2.0, noise=noise, horizon=8)
    bank.scale *= math.log2(8) / 4
    return bank


def _enter(kind: str) -> None:
    @case(
        f"counter, {kind}, every event time to 20 (horizon 13)",
        unit="event",
        claimed=2.0,
        method="exact",
        twin="noise scale halved",
        covers=f"counter {kind}",
    )
    def exact(attacker: Attacker) -> Found:
        return Found(_costs(kind, 2.0), _costs(kind, 2.0, 0.5))

    @case(
        f"counter, {kind}",
        unit="event",
        claimed=2.0,
        method="black box",
        twin="noise scale halved",
        covers=f"counter {kind}",
    )
    def attack(attacker: Attacker) -> Found:
        honest = functools.partial(twins.counter, kind=kind, epsilon=2.0)
        return attacker.black_box(
            honest,
            functools.partial(honest, factor=0.5),
            (QUIET, FIRST),
            claimed=2.0,
            runs=200_000,
            quick=8000,
            batched=True,
            twin_runs=20_000,
        )


for _kind in (*LAPLACE_KINDS, "auto"):
    _enter(_kind)


@case(
    "counter, binary, every event time to 8 (horizon 8)",
    unit="event",
    claimed=2.0,
    method="exact",
    twin="binary tree with log2 T levels",
    covers="counter binary",
)
def log2_levels(attacker: Attacker) -> Found:
    honest = counter_costs(lambda noise: make_bank("binary", epsilon=2.0, noise=noise, horizon=8), 8)
    return Found(float(honest.max()), float(counter_costs(_log2, 8).max()))


@case(
    "counter, binary, horizon 8",
    unit="event",
    claimed=2.0,
    method="black box",
    twin="binary tree with log2 T levels",
    covers="counter binary",
)
def log2_black_box(attacker: Attacker) -> Found:
    return attacker.black_box(
        functools.partial(twins.counter, kind="binary", epsilon=2.0),
        functools.partial(twins.log2_binary_counter, epsilon=2.0),
        (QUIET, FIRST),
        claimed=2.0,
        runs=200_000,
        quick=120_000,
        batched=True,
    )


@case(
    "counter, toeplitz, every event time to 14 (horizon 9)",
    unit="event",
    claimed=BUDGET,
    method="exact",
    twin="noise scale halved",
    covers="counter toeplitz",
)
def toeplitz(attacker: Attacker) -> Found:
    rho = zcdp_of(BUDGET)

    def costs(amount: float) -> float:
        found = counter_costs(
            lambda noise: make_bank("toeplitz", rho=amount, noise=noise, horizon=9), 14, gaussian=True
        )
        return gaussian_epsilon(float(np.max(found)), BUDGET.delta)

    return Found(costs(rho), costs(4 * rho))

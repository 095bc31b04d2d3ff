"""Noise and selection."""

from __future__ import annotations

import functools
import math

import numpy as np

from audits import twins
from audits.registry import Attacker, Found, case
from synthgeo.auditing.whitebox import (
    exponential_law,
    geometric_loss,
    law_loss,
    permute_and_flip_law,
    sampler_loss,
)
from synthgeo.privacy.accountant import gaussian_sigma
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.gaussian import gaussian_mu, interaction_cost, noisy_table

BUDGET = PrivacyBudget(1.0, 0.01)
TWINS = {
    "noise scale halved": (functools.partial(twins.laplace_count, factor=0.5), (0, 1)),
    "sensitivity off by one": (twins.off_by_one_count, (0, 1)),
    "float Laplace (least significant bits)": (twins.float_laplace, (0.0, 1.0)),
    "a seed reused": (twins.reused_seed, (0, 1)),
    "noise drawn twice for one batch": (twins.noise_drawn_twice, (0, 1)),
    "zero sensitivity means no noise": (twins.no_noise_at_zero_sensitivity, (0, 1)),
}
# One unit of score more for one candidate, one less for all others: the most that a selection can be moved.
UP, DOWN = np.r_[0.5, np.full(30, -0.5)], np.r_[-0.5, np.full(30, 0.5)]


def _laplace(name: str) -> None:
    twin, pair = TWINS[name]

    @case(
        "discrete Laplace",
        unit="count",
        claimed=1.0,
        method="black box",
        twin=name,
        covers="Noise.discrete_laplace",
    )
    def attack(attacker: Attacker) -> Found:
        return attacker.black_box(
            twins.laplace_count,
            twin,
            (0, 1),
            claimed=1.0,
            runs=1_000_000,
            quick=20_000,
            batched=True,
            twin_pair=pair,
            twin_runs=200_000,
        )


for _name in TWINS:
    _laplace(_name)


@case(
    "discrete Laplace, the sampler's tables (scale 20)",
    unit="grid step",
    claimed=0.05,
    method="exact",
    twin="thresholds of eight bits",
    covers="Noise.discrete_laplace",
)
def laplace_tables(attacker: Attacker) -> Found:
    bits = 1 / (1 + np.exp(2.0 ** np.arange(9) / 20.0))
    rounded = np.maximum(np.floor(bits * 256), 1) / 256
    return Found(sampler_loss(20.0, 5000), geometric_loss(rounded, math.exp(-(2.0**9) / 20.0), 5000))


@case(
    "discrete Gaussian",
    unit="count",
    claimed=BUDGET,
    method="black box",
    twin="noise scale halved",
    covers="Noise.discrete_gaussian",
)
def gaussian(attacker: Attacker) -> Found:
    sigma = gaussian_sigma(BUDGET, 1.0)
    honest, half = (functools.partial(twins.gaussian_count, sigma=s) for s in (sigma, sigma / 2))
    return attacker.black_box(
        honest, half, (0, 1), claimed=BUDGET, runs=2_000_000, quick=40_000, batched=True, twin_runs=200_000
    )


WIDE = PrivacyBudget(2.0, 1e-3)


def _noisy_tables(records: int, noise, n: int, *, interaction: bool, thin: float = 1.0):
    """A table of two yes/no columns with or without one record, released n times."""
    table = np.zeros((2, 2), dtype=np.int64)
    table[0, 0] = records
    scale = math.sqrt(interaction_cost(table.shape)) if interaction else 1.0
    sigma = thin * scale / gaussian_mu(WIDE)
    return np.array([noisy_table(table, sigma, noise, interaction=interaction).ravel() for _ in range(n)])


@case(
    "Gaussian noise on a table, and on its interaction alone",
    unit="record",
    claimed=WIDE,
    method="black box",
    twin="a third of the noise",
    covers=("noisy_table", "Noise.contrast_gaussian"),
)
def gaussian_table(attacker: Attacker) -> Found:
    found = [
        attacker.black_box(
            functools.partial(_noisy_tables, interaction=interaction),
            functools.partial(_noisy_tables, interaction=interaction, thin=1 / 3),
            (0, 1),
            claimed=WIDE,
            runs=100_000,
            quick=6_000,
            batched=True,
            twin_runs=20_000,
        )
        for interaction in (False, True)
    ]
    first, second = found
    return Found(
        max(first.epsilon, second.epsilon), min(first.twin, second.twin), first.runs, first.detectable
    )


def _flip(bit: int, noise, n: int, *, epsilon: float = 1.0):
    """Randomised response by ``bernoulli_exp``: a lie with probability 1 / (1 + e^ε)."""
    return np.where(noise.bernoulli_exp(np.full(n, math.log1p(math.exp(epsilon)))), 1 - bit, bit)[:, None]


@case(
    "Bernoulli(e^-γ), as randomised response",
    unit="bit",
    claimed=1.0,
    method="black box",
    twin="noise scale halved",
    covers="Noise.bernoulli_exp",
)
def bernoulli(attacker: Attacker) -> Found:
    return attacker.black_box(
        _flip,
        functools.partial(_flip, epsilon=2.0),
        (0, 1),
        claimed=1.0,
        runs=1_000_000,
        quick=20_000,
        batched=True,
        twin_runs=200_000,
    )


def _selection(name: str, mechanism, law, samplers: tuple[str, ...]) -> None:
    @case(
        f"{name}, its law",
        unit="one unit of score",
        claimed=2.0,
        method="exact",
        twin="Algorithm 13's exponent",
        covers=name,
    )
    def exact(attacker: Attacker) -> Found:
        # The exponent of the code for ε = 2 and sensitivity 1 is 1; Algorithm 13 leaves out the factor 2.
        return Found(law_loss(law(UP, 1.0), law(DOWN, 1.0)), law_loss(law(UP, 2.0), law(DOWN, 2.0)))

    @case(
        name,
        unit="one unit of score",
        claimed=2.0,
        method="black box",
        twin="Algorithm 13's exponent",
        covers=(name, *samplers),
    )
    def attack(attacker: Attacker) -> Found:
        honest = functools.partial(mechanism, epsilon=2.0)
        eager = functools.partial(mechanism, epsilon=2.0, monotonic=True)
        return attacker.black_box(
            honest, eager, (UP, DOWN), claimed=2.0, runs=60_000, quick=8000, twin_runs=16_000
        )


_selection(
    "exponential_mechanism", twins.select, exponential_law, ("Noise.bernoulli_exp_near", "Noise.integers")
)
_selection("permute_and_flip", twins.select_flip, permute_and_flip_law, ("Noise.permutation",))

"""Audits of noise, selection and counters, each beside broken twins that must be caught.

Seeds are fixed, so a run that passed passes again. Over the choice of seeds, an honest mechanism is accused
with probability at most 1e-9 an audit (Clopper-Pearson is exact), so this file with at most 3e-8. Each honest
audit also has to come close to its ε: an audit without power would pass for the wrong reason.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest

from synthgeo.audit.blackbox import audit
from synthgeo.privacy.accountant import gaussian_sigma
from synthgeo.privacy.budget import PrivacyBudget
from tests.audit import twins

pytestmark = pytest.mark.statistical
CONFIDENCE = 1 - 1e-9


def run(mechanism, neighbours, *, claimed, runs=60_000, batched=True, seed=1, **options):
    mechanism = functools.partial(mechanism, **options) if options else mechanism
    return audit(
        mechanism, neighbours, runs=runs, confidence=CONFIDENCE, claimed=claimed, batched=batched, seed=seed
    )


class TestLaplace:
    @pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
    def test_honest(self, epsilon):
        result = run(twins.laplace_count, (0, 1), claimed=epsilon, epsilon=epsilon)
        assert not result.violates
        assert result.epsilon_lower > 0.7 * epsilon

    @pytest.mark.parametrize("epsilon", [0.5, 1.0])
    def test_half_the_noise(self, epsilon):
        assert run(twins.laplace_count, (0, 1), claimed=epsilon, epsilon=epsilon, factor=0.5).violates

    def test_sensitivity_off_by_one(self):
        assert run(twins.off_by_one_count, (0, 1), claimed=1.0).violates
        assert run(twins.laplace_count, (0, 2), claimed=1.0).violates

    def test_float_noise_is_betrayed_by_its_low_bits(self):
        """The right scale in floating point: the audit looks at low bits by itself and finds ε > 4 where 1
        was claimed.
        """
        result = run(twins.float_laplace, (0.0, 1.0), claimed=1.0, runs=20_000)
        assert result.violates
        assert result.epsilon_lower > 4

    def test_a_fixed_seed(self):
        assert run(twins.reused_seed, (0, 1), claimed=1.0, runs=2000).epsilon_lower > 3

    def test_noise_drawn_twice(self):
        assert run(twins.noise_drawn_twice, (0, 1), claimed=1.0).violates

    def test_zero_sensitivity_without_noise(self):
        assert run(twins.no_noise_at_zero_sensitivity, (0, 1), claimed=1.0, runs=2000).violates


class TestGaussian:
    BUDGET = PrivacyBudget(1.0, 0.01)

    def test_honest(self):
        sigma = gaussian_sigma(self.BUDGET, 1.0)
        result = run(twins.gaussian_count, (0, 1), claimed=self.BUDGET, runs=200_000, sigma=sigma)
        assert not result.violates
        assert result.epsilon_lower > 0.5
        assert result.delta_lower <= 0.01

    def test_half_the_noise(self):
        sigma = gaussian_sigma(self.BUDGET, 1.0) / 2
        result = run(twins.gaussian_count, (0, 1), claimed=self.BUDGET, sigma=sigma)
        assert result.violates
        assert result.delta_lower > 0.01

    def test_it_is_not_pure(self):
        """At δ = 0 the same mechanism has no ε: the tails tell more than 1."""
        sigma = gaussian_sigma(self.BUDGET, 1.0)
        assert run(twins.gaussian_count, (0, 1), claimed=1.0, runs=2_000_000, sigma=sigma).violates


class TestSelection:
    """One unit that lifts one candidate by 1 and lowers 30 others by 1: the neighbours that need the factor
    2.
    """

    UP = np.r_[0.5, np.full(30, -0.5)]
    DOWN = np.r_[-0.5, np.full(30, 0.5)]

    @pytest.mark.parametrize("mechanism", [twins.select, twins.select_flip])
    def test_honest(self, mechanism):
        result = run(mechanism, (self.UP, self.DOWN), claimed=2.0, batched=False, runs=16_000, epsilon=2.0)
        assert not result.violates
        assert result.epsilon_lower > 0.9

    def test_printed_exponent(self):
        result = run(
            twins.printed_exponent, (self.UP, self.DOWN), claimed=2.0, batched=False, runs=16_000, epsilon=2.0
        )
        assert result.violates

    def test_monotonic_where_it_is_not_true(self):
        assert run(
            twins.select_flip,
            (self.UP, self.DOWN),
            claimed=2.0,
            batched=False,
            runs=16_000,
            epsilon=2.0,
            monotonic=True,
        ).violates


QUIET = (0,) * 8
FIRST = (1, *QUIET[1:])  # in all levels of a tree
BORDER = (0, 0, 0, 1, 0, 0, 0, 0)  # the last step of a block


@pytest.mark.parametrize(
    "kind", ["simple", "block", "binary", "kary", "hybrid", "unbounded_block", "unbounded_kary"]
)
@pytest.mark.parametrize("event", [FIRST, BORDER], ids=["first step", "block border"])
def test_counters(kind, event):
    result = run(twins.counter, (QUIET, event), claimed=2.0, kind=kind, epsilon=2.0)
    assert not result.violates
    if event is FIRST:
        assert result.epsilon_lower > 1.4


@pytest.mark.parametrize("kind", ["simple", "block", "kary"])
def test_counters_with_half_the_noise(kind):
    assert run(twins.counter, (QUIET, FIRST), claimed=2.0, kind=kind, epsilon=2.0, factor=0.5).violates


def test_binary_counter_with_log2_levels():
    """The printed scale: a third more than ε, which 120,000 runs show."""
    result = run(twins.log2_binary_counter, (QUIET, FIRST), claimed=2.0, runs=120_000, epsilon=2.0)
    assert result.violates

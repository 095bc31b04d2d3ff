"""Audits of noise, selection and counters, each beside broken twins that must be caught.

Seeds are fixed, so a run that passed passes again. Over the choice of seeds, an honest mechanism is accused
with probability at most 1e-9 an audit (Clopper-Pearson is exact), so this file with at most 3e-8. Each honest
audit also has to come close to its ε: an audit without power would pass for the wrong reason.
"""

from __future__ import annotations

import functools

import pytest

from audits import twins
from streams.counters import LAPLACE_KINDS
from synthgeo.auditing.blackbox import audit
from synthgeo.privacy.accountant import gaussian_sigma
from synthgeo.privacy.budget import PrivacyBudget

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


@pytest.mark.parametrize("kind", LAPLACE_KINDS)
def test_an_event_at_the_border_of_a_block(kind):
    """The step that a careless counter leaves out or counts twice. The registry has the first step."""
    quiet, border = (0,) * 8, (0, 0, 0, 1, 0, 0, 0, 0)
    assert not run(twins.counter, (quiet, border), claimed=2.0, runs=8000, kind=kind, epsilon=2.0).violates


def test_an_event_that_is_counted_twice_is_noticed():
    quiet, twice = (0,) * 8, (0, 0, 0, 2, 0, 0, 0, 0)
    assert run(twins.counter, (quiet, twice), claimed=2.0, runs=8000, kind="simple", epsilon=2.0).violates

"""Exact losses of the mechanisms' own constants, and of constants that are wrong."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.counters import LAPLACE_KINDS, make_bank
from synthgeo.auditing.whitebox import (
    ImpulseNoise,
    carry_bits,
    counter_costs,
    exponential_law,
    geometric_loss,
    law_loss,
    log_survival,
    path_loss,
    permute_and_flip_law,
    privtree_loss,
    sampler_loss,
)
from synthgeo.errors import ConfigError
from synthgeo.hierarchy.privtree import GRID, SplitRule


class TestSamplers:
    @pytest.mark.parametrize("scale", [0.3, 1.0, 7.3, 1000.0])
    def test_the_tables_encode_the_stated_law(self, scale):
        assert sampler_loss(scale, 20_000) * scale == pytest.approx(1.0, rel=1e-9)

    def test_eight_bit_thresholds_would_not_do(self):
        """A sampler that compares one byte and stops: the loss is 25 % above what is promised."""
        scale = 20.0
        bits = 1 / (1 + np.exp(2.0 ** np.arange(carry_bits(scale)) / scale))
        rounded = np.maximum(np.floor(bits * 256), 1) / 256
        assert geometric_loss(
            bits, math.exp(-(2.0 ** carry_bits(scale)) / scale), 200
        ) * scale == pytest.approx(1.0)
        assert geometric_loss(rounded, math.exp(-(2.0 ** carry_bits(scale)) / scale), 200) * scale > 1.2

    def test_survival_function(self):
        scale = 2.5
        x = np.arange(-400, 401)
        mass = np.exp(-np.abs(x) / scale)
        mass /= mass.sum()
        for m in (-7, -1, 0, 1, 12):
            assert log_survival(m, scale) == pytest.approx(math.log(mass[x > m].sum()), abs=1e-12)


class TestPrivTree:
    @pytest.mark.parametrize("beta", [2, 4, 16, 256])
    @pytest.mark.parametrize("epsilon", [0.5, 1.0, 5.0, 12.0, 20.0])
    def test_on_the_grid_the_worst_path_stays_below_epsilon(self, beta, epsilon):
        scale = (2 * beta - 1) / ((beta - 1) * epsilon)
        assert privtree_loss(scale, math.ceil(scale * math.log(beta))) <= epsilon
        fine = privtree_loss(8 * scale, math.ceil(8 * scale * math.log(beta)), unit=8, depth=12)
        assert fine <= epsilon

    def test_off_the_grid_it_does_not(self):
        """Integer noise with δ = λ ln β as printed: 1.07 ε at ε = 5, and 3.33 ε at ε = 20."""
        for epsilon, expected in ((5.0, 1.074), (20.0, 3.334)):
            scale = 3 / epsilon
            assert privtree_loss(scale, scale * math.log(2)) / epsilon == pytest.approx(expected, abs=1e-3)

    @pytest.mark.parametrize("fraction", [1, 2, 5, 8])
    def test_a_fraction_pays_its_fraction(self, fraction):
        epsilon, beta = 1.0, 2
        scale = 8 * 3 / epsilon
        assert (
            privtree_loss(scale, math.ceil(scale * math.log(beta)), unit=fraction)
            <= epsilon * fraction / 8 + 1e-12
        )

    def test_twice_the_unit_or_half_the_noise_is_noticed(self):
        scale = 3.0
        decay = math.ceil(scale * math.log(2))
        assert privtree_loss(scale, decay, unit=2) > 1.3
        assert privtree_loss(scale / 2, decay, unit=1) > 1.0

    def test_without_the_bias_the_loss_grows_with_depth(self):
        """δ = 0, as in a naive private quadtree: every level costs 1/λ."""
        assert privtree_loss(3.0, 0, depth=30) == pytest.approx(10.0)

    @pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
    @pytest.mark.parametrize("fanout", [2, 4, 16])
    def test_the_rule_in_use_has_these_constants(self, epsilon, fanout):
        """The library's own rule, on its grid: δ is whole, and λ ln β rounded up."""
        rule = SplitRule(epsilon, fanout)
        exact = rule.scale * math.log(fanout) * GRID.one
        assert isinstance(rule.decay, int)
        assert 0 <= rule.decay - exact < 1
        assert rule.scale == pytest.approx((2 * fanout - 1) / ((fanout - 1) * epsilon))

    @settings(max_examples=100, deadline=None)
    @given(st.lists(st.integers(0, 60), min_size=1, max_size=12))
    def test_any_monotone_path_is_below_the_worst_case(self, counts):
        scale, decay = 3.0, 3
        path = np.sort(counts)[::-1]
        loss = path_loss(path, path + 1, scale=scale, decay=decay)
        assert loss <= privtree_loss(scale, decay, depth=12) + 1e-12 <= 1.0

    def test_a_path_that_is_not_monotone_breaks_it(self):
        """What PHDStream's printed rule feeds to the tree when deletions make siblings negative: k levels
        cost k/λ.
        """
        scale, decay = 3.0, 3
        path = decay * np.arange(20) - 1  # biased score θ - 1 at every depth
        assert path_loss(path, path + 1, scale=scale, decay=decay) == pytest.approx(20 / 3, rel=0.02)


class TestSelection:
    def test_losses_of_the_exact_laws(self):
        up, down = np.r_[0.5, np.full(30, -0.5)], np.r_[-0.5, np.full(30, 0.5)]
        for law in (exponential_law, permute_and_flip_law):
            assert law(up, 0.5).sum() == pytest.approx(1.0)
            assert law_loss(law(up, 0.5), law(down, 0.5)) <= 1.0 + 1e-12
            # The monotonic exponent on scores that are not monotonic, and Algorithm 13's: twice the ε or
            # nearly.
            assert law_loss(law(up, 1.0), law(down, 1.0)) > 1.5

    def test_a_vanished_outcome_is_an_infinite_loss(self):
        assert law_loss(np.array([0.5, 0.5]), np.array([1.0, 0.0])) == math.inf


class TestCounters:
    @pytest.mark.parametrize("kind", LAPLACE_KINDS)
    @pytest.mark.parametrize("horizon", [1, 7, 13])
    def test_no_event_costs_more_than_epsilon_also_past_the_horizon(self, kind, horizon):
        """Found from the outputs alone, then compared with what the bank says about itself."""

        def make(noise):
            return make_bank(kind, epsilon=0.7, noise=noise, horizon=horizon)

        steps = 20
        costs = counter_costs(make, steps)
        assert costs.max() <= 0.7 + 1e-9
        assert np.all(costs <= make(ImpulseNoise()).event_cost(steps) + 1e-9)
        # Not vacuous: some event pays all of it, within the counter's own horizon.
        assert costs.max() >= 0.7 - 1e-9

    def test_a_grid_does_not_change_the_price(self):
        costs = counter_costs(
            lambda noise: make_bank("kary", epsilon=1.0, noise=noise, horizon=9, grid_bits=3), 12, event=8
        )
        assert costs.max() == pytest.approx(1.0)

    def test_toeplitz_in_zcdp(self):
        def make(noise):
            return make_bank("toeplitz", rho=0.3, noise=noise, horizon=9)

        costs = counter_costs(make, 14, gaussian=True)
        assert costs.max() <= 0.3 * (1 + 1e-6)
        assert costs[:9] == pytest.approx(make(ImpulseNoise()).event_cost(9), rel=1e-6)

    def test_log2_of_the_horizon_is_one_level_short(self):
        """The printed binary tree at T = 8: scale 3/ε for events in 4 nodes costs 4/3 ε."""

        def make(noise):
            bank = make_bank("binary", epsilon=1.0, noise=noise, horizon=8)
            bank.scale *= math.log2(8) / 4
            return bank

        assert counter_costs(make, 8).max() == pytest.approx(4 / 3)

    def test_fresh_noise_for_a_sum_already_released_is_noticed(self):
        """A counter that answers each step with new noise on the whole sum: the first event pays at every
        step.
        """

        class Careless:
            def __init__(self, noise):
                self.noise, self.total = noise, 0

            def add(self, n):
                return np.arange(n)

            def step(self, slots, values):
                self.total = self.total + values
                return self.total + self.noise.discrete_laplace(1.0, slots.size)

        assert counter_costs(Careless, 6).max() == pytest.approx(6.0)

    def test_the_impulse_is_no_noise(self):
        with pytest.raises(ConfigError, match="not random"):
            ImpulseNoise().integers(3, 1)
        assert not ImpulseNoise().releasable

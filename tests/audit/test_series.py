"""Exact losses of mechanisms for scalar series, and of what the papers print. The registry has the rest."""

from __future__ import annotations

import numpy as np
import pytest

import streams.scalar as series
from streams.scalar.channels import closed_form, design, leakage
from synthgeo.auditing.neighbours import border_event, loyal_user
from synthgeo.auditing.whitebox import ImpulseNoise, linear_costs
from synthgeo.privacy.accountant import zcdp_of
from synthgeo.privacy.budget import PrivacyBudget


def cost(make, pair, *, gaussian=False):
    """Exact cost of telling a pair of series apart, for mechanisms that add noise to a linear map of the
    data.
    """
    quiet, loud = (np.asarray(make(ImpulseNoise()).run(values)) for values in pair)
    return float(linear_costs(lambda noise: make(noise).run(pair[0]), [loud - quiet], gaussian=gaussian)[0])


class TestExact:
    STEPS = 6

    @pytest.mark.parametrize("epsilon", [0.5, 2.0])
    def test_laplace_perturbation_against_a_user_in_every_step(self, epsilon):
        make = lambda noise: series.LPA(budget=PrivacyBudget(epsilon), horizon=self.STEPS, noise=noise)  # noqa: E731
        assert cost(make, loyal_user(self.STEPS)) == pytest.approx(epsilon, rel=1e-6)
        assert cost(make, border_event(self.STEPS, 3)) == pytest.approx(epsilon / self.STEPS, rel=1e-6)

    def test_event_level_noise_does_not_protect_that_user(self):
        make = lambda noise: series.LPA(budget=PrivacyBudget(1.0), max_steps=1, noise=noise)  # noqa: E731
        assert cost(make, loyal_user(self.STEPS)) == pytest.approx(self.STEPS, rel=1e-6)

    def test_gaussian_noise_in_zcdp(self):
        budget = PrivacyBudget(1.0, 1e-6)
        make = lambda noise: series.Gaussian(budget=budget, horizon=self.STEPS, noise=noise)  # noqa: E731
        assert cost(make, loyal_user(self.STEPS), gaussian=True) == pytest.approx(zcdp_of(budget), rel=1e-6)

    @pytest.mark.parametrize("coefficients", [1, 2, 3])
    def test_fourier_coefficients(self, coefficients):
        budget = PrivacyBudget(1.0)
        make = lambda noise: series.DFT(budget=budget, coefficients=coefficients, noise=noise)  # noqa: E731
        loss = cost(make, loyal_user(self.STEPS))
        assert 0.2 < loss <= 1.0 + 1e-6

    def test_noise_of_scale_d_on_raw_coefficients_is_not_enough(self):
        """Fan and Xiong's listing: one user in every step moves the first raw coefficient by T, the noise is
        for 1.
        """
        steps, d = 24, 3

        def run(noise):
            return np.zeros(d) + noise.discrete_laplace(float(d), d)

        first = np.array([float(steps), 0.0, 0.0])
        assert linear_costs(run, [first])[0] == pytest.approx(steps / d)


class TestSequenceInformation:
    def test_the_printed_closed_form_leaks_at_a_small_belief(self):
        belief = np.array([0.1, 0.9])
        assert leakage(closed_form(belief, 1.0), belief) == pytest.approx(1.90, abs=0.01)

    @pytest.mark.parametrize("rare", [0.001, 0.1, 0.26, 0.27, 0.5])
    @pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
    def test_the_channel_in_use_does_not(self, rare, epsilon):
        belief = np.array([rare, 1 - rare])
        channel = design(belief, epsilon, np.array([[0.0, 1.0], [1.0, 0.0]]))
        assert leakage(channel, belief) <= epsilon
        # and 2ε local differential privacy, from the matrix itself
        seen = channel.max(axis=0) > 0
        assert np.log(channel[:, seen].max(axis=0) / channel[:, seen].min(axis=0)).max() <= 2 * epsilon + 1e-9

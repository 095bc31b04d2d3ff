"""Counters as series: totals, steps, users in several steps, and the error they announce."""

from __future__ import annotations

import math

import numpy as np
import pytest

import synthgeo as sg
from streams.counters import KINDS, make_bank

S = sg.series
COUNTS = np.arange(50.0) % 7


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "toeplitz"])
def test_totals_are_those_of_the_bank(kind):
    bank = make_bank(kind, epsilon=0.5, horizon=50, noise=sg.SeededNoise(3))
    slot = bank.add(1)
    expected = [int(bank.step(slot, [int(value)])[0]) for value in COUNTS]
    mechanism = S.ContinualCounter(
        budget=sg.PrivacyBudget(0.5), horizon=50, counter=kind, noise=sg.SeededNoise(3)
    )
    np.testing.assert_array_equal(mechanism.run(COUNTS), expected)
    assert mechanism.kind == bank.kind


def test_steps_are_differences_of_totals():
    made = {
        output: S.ContinualCounter(
            budget=sg.PrivacyBudget(1.0), horizon=50, output=output, noise=sg.SeededNoise(3)
        ).run(COUNTS)
        for output in ("totals", "steps")
    }
    np.testing.assert_array_equal(np.diff(made["totals"], prepend=0.0), made["steps"])


@pytest.mark.parametrize(
    "options", [{"max_steps": 3}, {"sensitivity": 3}, {"grid_bits": 2, "sensitivity": 0.75}]
)
def test_a_user_in_more_steps_costs_as_a_larger_event_does(options):
    """3 events of size 1, or one of size 3: noise three times as wide."""
    plain = S.ContinualCounter(budget=sg.PrivacyBudget(1.0), horizon=50, counter="binary")
    group = S.ContinualCounter(budget=sg.PrivacyBudget(1.0), horizon=50, counter="binary", **options)
    bits = options.get("grid_bits", 0)
    assert group._bank.scale == pytest.approx(3 * plain._bank.scale, rel=1e-9)
    assert group.expected_error(50) * 2**bits == pytest.approx(3 * plain.expected_error(50), rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("budget", [sg.PrivacyBudget(1.0), sg.PrivacyBudget(1.0, 1e-6)], ids=str)
def test_the_announced_error_is_the_measured_one(budget):
    """400 runs: the standard deviation is known to 3.5 %, four of those are allowed."""
    errors = [
        S.ContinualCounter(budget=budget, horizon=50, noise=sg.SeededNoise(s)).run(COUNTS)[-1] - COUNTS.sum()
        for s in range(400)
    ]
    announced = S.ContinualCounter(budget=budget, horizon=50).expected_error(50)
    assert math.sqrt(np.mean(np.square(errors))) == pytest.approx(announced, rel=0.15)


def test_budget_and_counter_go_together():
    with pytest.raises(sg.ConfigError, match="toeplitz"):
        S.ContinualCounter(budget=sg.PrivacyBudget(1.0), horizon=9, counter="toeplitz")
    with pytest.raises(sg.ConfigError, match="toeplitz"):
        S.ContinualCounter(budget=sg.PrivacyBudget(1.0, 1e-6), horizon=9, counter="binary")
    with pytest.raises(sg.ConfigError, match="horizon"):
        S.ContinualCounter(budget=sg.PrivacyBudget(1.0, 1e-6))
    assert S.ContinualCounter(budget=sg.PrivacyBudget(1.0, 1e-6), horizon=9).kind == "toeplitz"


@pytest.mark.parametrize(
    ("counter", "budget"), [("simple", sg.PrivacyBudget(1.0)), ("toeplitz", sg.PrivacyBudget(1.0, 1e-5))]
)
def test_noise_is_for_all_that_a_user_adds(counter, budget):
    """A user in three steps with 2 each is six events: six times the noise, pure or Gaussian."""

    class Drawn(sg.SeededNoise):
        width = 0.0

        def discrete_laplace(self, scale, size=None):
            self.width = max(self.width, float(np.max(scale)))
            return super().discrete_laplace(scale, size)

        def discrete_gaussian(self, sigma, size):
            self.width = max(self.width, float(sigma))
            return super().discrete_gaussian(sigma, size)

    widths = []
    for who in ({}, {"max_steps": 3, "sensitivity": 2}):
        noise = Drawn(1)
        S.ContinualCounter(budget=budget, horizon=8, counter=counter, noise=noise, **who).run([5] * 8)
        widths.append(noise.width)
    assert widths[1] == pytest.approx(6 * widths[0], rel=1e-6)

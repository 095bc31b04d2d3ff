"""The privacy filter: what a fraction of a budget buys, choice by choice."""

from __future__ import annotations

import numpy as np
import pytest

import synthgeo.privacy.filter as module
from synthgeo.errors import BudgetExhausted
from synthgeo.privacy.accountant import zcdp_of
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.filter import PrivacyFilter
from synthgeo.privacy.noise import SeededNoise
from synthgeo.privacy.unit import PrivacyUnit

EVENT, USER = PrivacyUnit.event(), PrivacyUnit.user(max_events=3)


@pytest.fixture
def asked(monkeypatch):
    """ε and sensitivity of every choice."""
    found = []

    def watched(scores, *, epsilon, sensitivity, noise):
        found.append((epsilon, sensitivity))
        return 0

    monkeypatch.setattr(module, "exponential_mechanism", watched)
    return found


@pytest.mark.parametrize(("unit", "bound"), [(EVENT, 1), (USER, 3)])
def test_a_choice_is_made_at_the_epsilon_that_its_fraction_buys(asked, unit, bound):
    spending = PrivacyFilter(PrivacyBudget(2.0), unit, SeededNoise(1))
    spending.choose([1.0, 2.0], 7.0, 0.25)
    ((epsilon, sensitivity),) = asked
    assert epsilon == pytest.approx(0.5 / bound, rel=1e-9)
    assert sensitivity == 7.0


@pytest.mark.parametrize(("unit", "bound"), [(EVENT, 1), (USER, 3)])
def test_in_zero_concentrated_privacy_a_choice_costs_an_eighth_of_its_square(asked, unit, bound):
    budget = PrivacyBudget(2.0, 1e-6)
    spending = PrivacyFilter(budget, unit, SeededNoise(1))
    spending.choose([1.0, 2.0], 7.0, 0.25)
    ((epsilon, sensitivity),) = asked
    assert bound**2 * epsilon**2 / 8 == pytest.approx(0.25 * zcdp_of(budget), rel=1e-9)
    assert sensitivity == 7.0
    assert spending.left == 0.75


@pytest.mark.parametrize(("unit", "bound"), [(EVENT, 1), (USER, 3)])
def test_a_purely_private_part_costs_half_of_its_square_in_zero_concentrated_privacy(unit, bound):
    budget = PrivacyBudget(2.0, 1e-6)
    spending = PrivacyFilter(budget, unit, SeededNoise(1))
    assert bound**2 * spending.pure_epsilon(0.25) ** 2 / 2 == pytest.approx(0.25 * zcdp_of(budget), rel=1e-9)
    pure = PrivacyFilter(PrivacyBudget(2.0), unit, SeededNoise(1))
    assert pure.pure_epsilon(0.25) == pytest.approx(0.5 / bound, rel=1e-9)


@pytest.mark.parametrize(
    ("budget", "gaussian", "power"),
    [
        (PrivacyBudget(1.0), False, 1),
        (PrivacyBudget(1.0, 1e-6), False, 2),
        (PrivacyBudget(1.0, 1e-6), True, 2),
    ],
)
def test_a_part_is_paid_for_and_shared_by_the_rows_of_a_record(budget, gaussian, power):
    """Three rows in the part's tables: a third of its ε, or a ninth of its ρ or μ²."""
    spending = PrivacyFilter(budget, EVENT, SeededNoise(1), gaussian=gaussian)
    part = spending.part(0.25, bound=3)
    assert part.whole == pytest.approx(0.25 * spending.whole / 3**power, rel=1e-6)
    assert spending.left == pytest.approx(0.75)
    part.measure(np.zeros((2,), dtype=np.int64), 1.0)
    with pytest.raises(BudgetExhausted):
        part.measure(np.zeros((2,), dtype=np.int64), 0.1)
    assert spending.left == pytest.approx(0.75)  # a part spends what was taken for it
    with pytest.raises(BudgetExhausted):
        spending.part(0.8)

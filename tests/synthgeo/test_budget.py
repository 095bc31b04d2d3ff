from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synthgeo.errors import BudgetExhausted, ConfigError
from synthgeo.privacy.budget import PrivacyBudget

epsilons = st.floats(1e-6, 50)
deltas = st.floats(0, 0.1)
weights = st.lists(st.floats(0.01, 100), min_size=1, max_size=12)


@pytest.mark.parametrize("epsilon", [0, -1, math.nan, math.inf, "1", None, True, 1j])
def test_refuses_a_bad_epsilon(epsilon):
    with pytest.raises(ConfigError, match="epsilon"):
        PrivacyBudget(epsilon)


@pytest.mark.parametrize("delta", [-1e-9, 1, 2, math.nan, math.inf, "0", None, False])
def test_refuses_a_bad_delta(delta):
    with pytest.raises(ConfigError, match="delta"):
        PrivacyBudget(1.0, delta)


@given(epsilons, deltas, weights)
def test_the_parts_of_a_split_never_exceed_the_whole(epsilon, delta, shares):
    parts = PrivacyBudget(epsilon, delta).split(shares)
    assert len(parts) == len(shares)
    assert math.fsum(part.epsilon for part in parts) <= epsilon
    assert math.fsum(part.delta for part in parts) <= delta
    assert math.fsum(part.epsilon for part in parts) >= epsilon * (1 - 1e-12)


@given(epsilons, weights)
def test_a_split_is_in_proportion(epsilon, shares):
    parts = PrivacyBudget(epsilon).split(shares)
    for part, share in zip(parts, shares, strict=True):
        assert part.epsilon == pytest.approx(epsilon * share / sum(shares), rel=1e-9)


@pytest.mark.parametrize("shares", [[], [0, 1], [-1, 2], [math.nan], [math.inf], ["a"]])
def test_refuses_bad_weights(shares):
    with pytest.raises(ConfigError, match="weight"):
        PrivacyBudget(1.0).split(shares)


@given(epsilons, epsilons, deltas)
def test_a_sum_less_one_part_leaves_the_other(a, b, delta):
    whole = PrivacyBudget(a, delta / 2) + PrivacyBudget(b, delta / 2)
    assert whole.covers(PrivacyBudget(a, delta / 2))
    assert (whole - PrivacyBudget(b, delta / 2)).epsilon == pytest.approx(a, abs=1e-9)


def test_subtracting_all_or_more_is_refused():
    for other in (PrivacyBudget(1.0), PrivacyBudget(2.0), PrivacyBudget(0.5, 0.01)):
        with pytest.raises(BudgetExhausted):
            PrivacyBudget(1.0) - other


def test_scaling():
    assert PrivacyBudget(1.0, 1e-6) * 2 == 2 * PrivacyBudget(1.0, 1e-6) == PrivacyBudget(2.0, 2e-6)
    assert PrivacyBudget(1.0, 1e-6) / 4 == PrivacyBudget(0.25, 2.5e-7)
    with pytest.raises(ConfigError):
        PrivacyBudget(1.0) / 0
    with pytest.raises(ConfigError):
        PrivacyBudget(1.0) * -1
    with pytest.raises(TypeError):
        PrivacyBudget(1.0) * True
    with pytest.raises(TypeError):
        PrivacyBudget(1.0) + 1.0


def test_covers_forgives_rounding_and_nothing_more():
    assert PrivacyBudget(0.3).covers(PrivacyBudget(0.1) + PrivacyBudget(0.2))
    assert not PrivacyBudget(1.0).covers(PrivacyBudget(1.0 + 1e-9))
    assert not PrivacyBudget(5.0).covers(PrivacyBudget(1.0, 1e-12))
    assert PrivacyBudget(1.0, 1e-6).covers(PrivacyBudget(1.0))


def test_is_a_value():
    assert PrivacyBudget(1) == PrivacyBudget(1.0, 0)
    assert hash(PrivacyBudget(1)) == hash(PrivacyBudget(1.0))
    assert PrivacyBudget(**PrivacyBudget(0.5, 1e-7).to_dict()) == PrivacyBudget(0.5, 1e-7)
    with pytest.raises(AttributeError):
        PrivacyBudget(1.0).epsilon = 2.0

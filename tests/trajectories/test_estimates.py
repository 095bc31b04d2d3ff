"""Estimates after the noise: sums, shrinkage, selection. Post-processing, so only utility is at stake."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trajectories.lengths import BUCKETS, bucket, distance_bucket, distance_weights, fit_weights
from trajectories.origin_destination import PairBlocks
from trajectories.prior import combine, combine_blocks, non_negative


@given(st.lists(st.floats(-50, 50), min_size=1, max_size=40))
def test_non_negative_numbers_keep_a_positive_sum(values):
    values = np.array(values)
    fixed = non_negative(values)
    assert fixed.min() >= 0
    assert fixed.sum() == pytest.approx(max(values.sum(), 0.0), abs=1e-6)


def test_non_negative_is_the_closest_point():
    assert non_negative(np.array([5.0, -1.0, 2.0])).tolist() == pytest.approx([4.5, 0.0, 1.5])


def blocks_of(count) -> PairBlocks:
    cells = len(count)
    low = np.repeat(np.arange(2), 2) * 2, np.tile(np.arange(2), 2) * 2
    assert cells == 4
    return PairBlocks(low[0], low[0] + 2, low[1], low[1] + 2, np.array(count, dtype=float))


def test_counts_that_agree_with_gravity_are_pulled_to_it():
    """Scatter below the noise: the expectation wins. Far above: the measurement."""
    even = np.ones(4)
    calm = combine_blocks(blocks_of([28.0, 24.0, 22.0, 26.0]), 100.0, even)
    assert np.ptp(calm) < 1e-9
    loud = combine_blocks(blocks_of([400.0, 0.0, 0.0, 400.0]), 4.0, even)
    assert loud[0] > 390


def test_links_between_prior_and_measurement():
    rng = np.random.default_rng(0)
    expected = np.concatenate([np.zeros(500), rng.uniform(5, 60, 100)])
    deviation = 3.0
    measured = expected + rng.normal(0, deviation, 600)
    combined = combine(measured, expected, deviation**2)
    assert np.abs(combined - expected).mean() < 0.3 * np.abs(measured - expected).mean()
    # A street that the prior does not expect and everybody takes is believed.
    measured[3] = 80.0
    assert combine(measured, expected, deviation**2)[3] >= 80 - 2 * deviation


def test_selection_turns_what_is_offered_into_the_target():
    """Each trip is offered eight walks of 1 to 8 km between ends a kilometre apart; the target wants 3 km."""
    rng = np.random.default_rng(0)
    metres = rng.uniform(1000, 8000, (500, 8))
    choices = bucket(np.full(4000, 1000.0), metres.ravel()).reshape(500, 8)
    target = np.zeros(BUCKETS)
    target[bucket(np.array([1000.0]), np.array([2900.0]))] = 100
    share = fit_weights(target, choices, np.ones((500, 8)))[choices]
    picked = metres[
        np.arange(500), (np.cumsum(share, 1) < rng.random((500, 1)) * share.sum(1, keepdims=True)).sum(1)
    ]
    inside = ((metres > 2520) & (metres < 3000)).any(axis=1)
    assert ((picked > 2500) & (picked < 3175))[inside].mean() > 0.9


def test_distances_are_pulled_to_what_the_table_implies():
    rng = np.random.default_rng(0)
    target = np.zeros(BUCKETS)
    target[bucket(np.array([3900.0]), np.array([4000.0]))] = 100  # straight trips of 4 km
    weight = distance_weights(target, rng.uniform(0, 8000, 2000), rng)
    near, far = distance_bucket(np.array([500.0, 3300.0]))
    assert weight[far] > 5 * weight[near]

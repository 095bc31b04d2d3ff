"""Replay itself: exact ratios on mechanisms whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest

from synthgeo.auditing.duels import ReplayError, ReplayNoise, replayed_selection
from synthgeo.auditing.whitebox import exponential_law, log_survival
from synthgeo.domain.box import BoxDomain
from synthgeo.hierarchy.base import hierarchy_of
from synthgeo.hierarchy.privtree import GRID, privtree

BOX = BoxDomain(0, 0, 1, 1)


def run(mechanism, pair, seed=1):
    noise = ReplayNoise(seed)
    first = mechanism(pair[0], noise)
    noise.rewind()
    second = mechanism(pair[1], noise)
    return noise.finish(), first, second


def test_a_noisy_sum():
    counts, more = np.array([3, 4, 5]), np.array([3, 5, 5])
    ratio, first, second = run(
        lambda x, noise: np.asarray(x + noise.discrete_laplace(2.0, 3)), (counts, more)
    )
    assert np.array_equal(first, second)
    assert ratio == pytest.approx((abs(first[1] - 5) - abs(first[1] - 4)) / 2)
    assert abs(ratio) <= 0.5


def test_a_noisy_comparison_counts_as_its_bit():
    ratio, first, _ = run(
        lambda x, noise: x + noise.discrete_laplace(2.0, 1) > 0, (np.array([0]), np.array([1]))
    )
    m = np.array([0.0]), np.array([-1.0])
    yes = [float(log_survival(x, 2.0)[0]) for x in m]
    no = [float(log_survival(-x - 1, 2.0)[0]) for x in m]
    expected = yes[0] - yes[1] if first[0] else no[0] - no[1]
    assert ratio == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(10))
def test_privtree(seed):
    def mechanism(count, noise):
        weights = np.array([count * GRID.one])
        return privtree(
            np.zeros(1, np.uint64),
            weights,
            hierarchy=hierarchy_of(BOX),
            epsilon=1.0,
            noise=noise,
            max_depth=8,
        ).bits

    ratio, first, second = run(mechanism, (3, 4), seed)
    assert np.array_equal(first, second)
    assert abs(ratio) <= 1.0


def test_a_choice():
    one, other = np.array([0.0, 1.0, -np.inf]), np.array([1.0, 0.0, -np.inf])

    def mechanism(scores, noise):
        return replayed_selection(scores, epsilon=1.0, sensitivity=1.0, noise=noise)

    ratio, first, second = run(mechanism, (one, other))
    assert first == second
    law = exponential_law(one, 0.5), exponential_law(other, 0.5)
    assert ratio == pytest.approx(np.log(law[0][first] / law[1][first]))


def test_a_different_number_of_questions_is_an_error():
    with pytest.raises(ReplayError, match="questions"):
        run(lambda n, noise: [np.zeros(1) + noise.discrete_laplace(1.0, 1) for _ in range(n)], (2, 1))
    with pytest.raises(ReplayError, match="differs"):
        run(lambda n, noise: np.zeros(n) + noise.discrete_laplace(1.0, n), (2, 3))


def test_noise_that_is_not_added_to_anything_is_an_error():
    with pytest.raises(ReplayError, match="not added"):
        run(lambda _, noise: noise.discrete_laplace(1.0, 3), (0, 1))
    with pytest.raises(ReplayError, match="before"):
        run(lambda _, noise: 2 * noise.discrete_laplace(1.0, 3), (0, 1))


def test_a_scale_that_depends_on_the_data_is_an_error():
    with pytest.raises(ReplayError, match="differs"):
        run(lambda x, noise: x + noise.discrete_laplace(float(x), 1), (1, 2))

"""Duels, enumerated laws and couplings on mechanisms whose loss is known."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest

from audits.coupling import binomial_epsilon
from audits.enumerate_law import exact_loss
from streams.scalar.accounting import epsilon_of, gaussian_delta
from synthgeo.auditing.duels import ReplayError, duel, gaussian_epsilon, replayed_selection
from synthgeo.auditing.whitebox import exponential_law, rule_loss
from synthgeo.domain.box import BoxDomain
from synthgeo.hierarchy.base import hierarchy_of
from synthgeo.hierarchy.privtree import GRID, SplitRule, privtree

BOX = BoxDomain(0, 0, 1, 1)


def counts(values, noise, *, scale=2.0):
    return np.asarray(values + noise.discrete_laplace(scale, len(values)))


class TestDuel:
    @pytest.mark.parametrize("push", [0.0, 4.0])
    def test_a_histogram_costs_what_it_moves(self, push):
        pair = np.array([3, 5, 5]), np.array([3, 4, 6])
        found = duel(counts, pair, push=push)
        assert found.loss == pytest.approx(2 / 2.0)
        assert found.questions == 1
        np.testing.assert_array_equal(*found.results)
        assert duel(counts, pair[::-1], push=push).loss == pytest.approx(1.0)
        assert duel(counts, pair, push=push, thin=0.5).loss == pytest.approx(2.0)

    def test_equal_worlds_cannot_be_told_apart(self):
        found = duel(counts, (np.arange(4), np.arange(4)))
        assert found.loss == 0
        assert found.rho == 0

    def test_a_tree_comes_close_to_its_worst_case_and_never_above(self):
        """A score that stays at k δ down the path, in the larger world first."""
        rule = SplitRule(1.0)

        def tree(weight, noise):
            keys = np.zeros(1, dtype=np.uint64)
            return privtree(
                keys, np.array([weight]), hierarchy=hierarchy_of(BOX), epsilon=1.0, noise=noise, max_depth=12
            ).bits

        small = 5 * rule.decay
        losses = [duel(tree, (small + GRID.one, small), seed=seed).loss for seed in range(3)]
        assert max(losses) == pytest.approx(rule_loss(rule), rel=0.02)
        assert max(losses) <= rule_loss(rule)

    def test_the_most_telling_choice(self):
        one, other = np.array([0.0, 1.0, 0.5]), np.array([1.0, 0.0, 0.5])

        def choose(scores, noise):
            return replayed_selection(scores, epsilon=1.0, sensitivity=1.0, noise=noise)

        found = duel(choose, (one, other))
        ratio = np.log(exponential_law(one, 0.5) / exponential_law(other, 0.5))
        assert found.loss == pytest.approx(ratio.max())
        assert found.results == (1, 1)

    def test_gaussian_sums_add_up_in_zcdp(self):
        def release(values, noise):
            return np.asarray(values + noise.discrete_gaussian(3.0, 2))

        found = duel(release, (np.array([1, 5]), np.array([2, 5])))
        assert found.rho == pytest.approx(1 / 18)
        assert found.loss == 0

    def test_adaptive_questions_follow_the_common_answers(self):
        def adaptive(values, noise):
            first = counts(values, noise)
            return counts(values if first[0] > 3 else -values, noise, scale=4.0)

        found = duel(adaptive, (np.array([4]), np.array([3])))
        assert found.loss == pytest.approx(1 / 2 + 1 / 4)
        np.testing.assert_array_equal(*found.results)

    @pytest.mark.parametrize(
        "run",
        [
            lambda n, noise: [counts(np.zeros(1), noise) for _ in range(n)],
            lambda n, noise: counts(np.zeros(n), noise),
            lambda n, noise: counts(np.zeros(1), noise, scale=float(n)),
            lambda n, noise: noise.discrete_laplace(1.0, n),
        ],
        ids=["one more", "another size", "another scale", "added to nothing"],
    )
    def test_different_questions_are_an_error(self, run):
        with pytest.raises(ReplayError):
            duel(run, (1, 2))

    def test_an_error_of_either_world_is_the_callers(self):
        def fails(bad, noise):
            if bad:
                raise ZeroDivisionError
            return counts(np.zeros(1), noise)

        for pair in ((0, 1), (1, 0)):
            with pytest.raises(ZeroDivisionError):
                duel(fails, pair)


@pytest.mark.parametrize("rho", [1e-4, 0.05, 2.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-3])
def test_gaussian_epsilon_inverts_delta(rho, delta):
    epsilon = gaussian_epsilon(rho, delta)
    assert gaussian_delta(epsilon, math.sqrt(2 * rho)) == pytest.approx(delta, rel=1e-6)
    assert gaussian_epsilon(0.0, delta) == 0


class TestEnumeration:
    @staticmethod
    def count(value, noise, *, epsilon):
        return value + noise.discrete_laplace(1 / epsilon, 1)

    @pytest.mark.parametrize("epsilon", [0.7, 2.0])
    def test_a_count(self, epsilon):
        run = functools.partial(self.count, epsilon=epsilon)
        assert exact_loss(run, (0, 1), reaches=(12,)) == pytest.approx(epsilon, rel=1e-9)

    def test_a_sum_of_two_draws_hides_more(self):
        def run(value, noise):
            return value + noise.discrete_laplace(1.0, 1) + noise.discrete_laplace(1.0, 1)

        assert exact_loss(run, (0, 1), reaches=(12, 12)) < 0.95

    def test_a_release_without_noise_has_no_common_output(self):
        with pytest.raises(ValueError, match="empty"):
            exact_loss(lambda value, noise: [value], (0, 1), reaches=())


def test_binomial_epsilon_agrees_with_loss_distributions():
    """The library rounds losses up, so it may say a little more."""
    half, shift, delta = 512, 8, 1e-4
    exact = binomial_epsilon([(shift, math.sqrt(half / 2))] * 2, delta)
    stated = epsilon_of(half, {shift: 2}, delta, target=exact)
    assert exact <= stated * (1 + 1e-9)
    assert exact == pytest.approx(stated, rel=0.05)

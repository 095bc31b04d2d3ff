"""Choice: refused input, extreme scores, and the guarantee computed exactly.

That the samplers follow the laws is checked in ``tests/statistical/test_noise_selection.py``.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synthgeo.errors import ConfigError, InputError
from synthgeo.privacy.noise import SeededNoise
from synthgeo.privacy.selection import exponential_mechanism, permute_and_flip
from tests.statistical.test_noise_selection import permute_and_flip_law, softmax

MECHANISMS = [exponential_mechanism, permute_and_flip]
both = pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda f: f.__name__)


def choose(mechanism, scores, *, epsilon=1.0, sensitivity=1.0, seed=1, **options):
    return mechanism(scores, epsilon=epsilon, sensitivity=sensitivity, noise=SeededNoise(seed), **options)


@both
class TestRefusals:
    @pytest.mark.parametrize(
        "scores", [[1.0, math.nan], [math.inf, 0.0], [], [[1.0, 2.0]], 3.0, ["a", "b"], None]
    )
    def test_bad_scores(self, mechanism, scores):
        with pytest.raises(InputError, match="score"):
            choose(mechanism, scores)

    def test_no_candidate(self, mechanism):
        with pytest.raises(InputError, match="-inf"):
            choose(mechanism, [-math.inf, -math.inf])

    @pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, "1", True, None])
    def test_bad_numbers(self, mechanism, value):
        """A sensitivity of zero never means "no noise needed"."""
        with pytest.raises(ConfigError, match="sensitivity"):
            choose(mechanism, [0.0, 1.0], sensitivity=value)
        with pytest.raises(ConfigError, match="epsilon"):
            choose(mechanism, [0.0, 1.0], epsilon=value)

    def test_draw_nothing(self, mechanism):
        noise = SeededNoise(1)
        before = noise.state()
        with pytest.raises(InputError):
            mechanism([1.0, math.nan], epsilon=1.0, sensitivity=1.0, noise=noise)
        with pytest.raises(ConfigError):
            mechanism([1.0, 2.0], epsilon=1.0, sensitivity=0.0, noise=noise)
        assert noise.state() == before


@both
class TestExtremes:
    @pytest.mark.parametrize(
        "scores", [[-1e308, 1e308], [-1.0, 1e15], [-math.inf, -1e308], [-1e300, -1e290], [0.0, 1e4]]
    )
    def test_a_clear_winner_wins(self, mechanism, scores):
        assert all(choose(mechanism, scores, seed=seed) == 1 for seed in range(30))

    @pytest.mark.parametrize("scores", [[5e-324, 0.0], [1e308, 1e308], [-1e308, -1e308], [0.0, 1e-300]])
    def test_a_tie_goes_either_way(self, mechanism, scores):
        assert {choose(mechanism, scores, seed=seed) for seed in range(40)} == {0, 1}

    @pytest.mark.parametrize(("epsilon", "sensitivity"), [(1e-300, 1e300), (1e300, 1e-300), (5e-324, 1.0)])
    def test_rates_that_no_double_holds(self, mechanism, epsilon, sensitivity):
        chosen = {
            choose(mechanism, [0.0, 1.0], epsilon=epsilon, sensitivity=sensitivity, seed=seed)
            for seed in range(40)
        }
        assert chosen == ({1} if epsilon > 1 else {0, 1})

    def test_one_candidate(self, mechanism):
        assert choose(mechanism, [-7.0]) == 0

    def test_many_candidates(self, mechanism):
        scores = np.zeros(200_000)
        scores[123_456] = 1000.0
        assert choose(mechanism, scores) == 123_456

    def test_integer_scores_and_shift(self, mechanism):
        """A shift of all scores changes nothing, also where doubles are sparse."""
        plain = [choose(mechanism, [0, 3, 1], seed=seed) for seed in range(50)]
        far = [choose(mechanism, [2**52, 2**52 + 3, 2**52 + 1], seed=seed) for seed in range(50)]
        assert plain == far


@both
def test_each_coin_is_decided_by_its_own_exact_number(mechanism):
    """Where 64 bits do not decide, the exact γ of that candidate does; -inf has none, and is no candidate."""
    asked = []

    class Doubtful(SeededNoise):
        def bernoulli_exp_near(self, gamma, error, exact):
            asked.append([(near, float(exact(i))) for i, near in enumerate(gamma)])
            return np.arange(gamma.size) == 0

    mechanism([0.0, -math.inf, 3.0, 5.0], epsilon=1.0, sensitivity=1.0, noise=Doubtful(1))
    (pairs,) = asked
    assert {near for near, _ in pairs} == {0.0, 1.0, 2.5}
    assert all(near == exactly for near, exactly in pairs)


class TestGuarantee:
    """The laws' log-ratios between neighbours never exceed ε, and reach it."""

    @settings(max_examples=60, deadline=None)
    @given(
        st.lists(st.floats(-4, 4), min_size=2, max_size=5),
        st.lists(st.floats(-1, 1), min_size=5, max_size=5),
        st.booleans(),
    )
    def test_neighbours_stay_within_epsilon(self, scores, moves, monotonic):
        epsilon = 1.3
        step = np.array(moves[: len(scores)])
        if monotonic:
            step = np.abs(step)
        before, after = np.array(scores), np.array(scores) + step
        rate = epsilon if monotonic else epsilon / 2
        for law in (softmax, permute_and_flip_law):
            ratio = np.abs(np.log(law(before, rate) / law(after, rate)))
            assert ratio.max() <= epsilon + 1e-9

    def test_the_exponent_is_tight(self):
        """One candidate down, very many up: a rate 5 % larger breaks ε. So does `monotonic` misused."""
        down, up = np.r_[0.5, np.full(200_000, -6.5)], np.r_[-0.5, np.full(200_000, -5.5)]
        epsilon = 1.0
        worst = lambda rate: abs(math.log(softmax(down, rate)[0] / softmax(up, rate)[0]))  # noqa: E731
        assert 0.99 * epsilon < worst(epsilon / 2) <= epsilon
        assert worst(1.05 * epsilon / 2) > epsilon
        assert worst(epsilon) > 1.8 * epsilon

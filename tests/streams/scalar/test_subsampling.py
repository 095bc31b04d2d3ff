"""Sampling of time steps: the corollaries evaluated, the exact accounting, the sampled filter's norm."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom

import synthgeo as sg
from streams.scalar import accounting
from streams.scalar.subsampling import largest_singular_value
from synthgeo.privacy.accountant import approximate_dp_of_zcdp

S = sg.series
BUDGET = sg.PrivacyBudget(0.5, delta=1e-4)
RNG = np.random.default_rng(6)


@pytest.mark.parametrize(("epsilon", "ratio"), [(0.1, 0.5), (1.0, 1.0), (3.0, 2.0), (0.5, 0.05), (8.0, 1.0)])
def test_gaussian_delta_equals_dp_accounting(epsilon, ratio):
    from dp_accounting.pld import privacy_loss_mechanism

    exact = privacy_loss_mechanism.GaussianPrivacyLoss(1 / ratio).get_delta_for_epsilon(epsilon)
    assert accounting.gaussian_delta(epsilon, ratio) == pytest.approx(exact, rel=1e-6, abs=1e-15)


# Corollaries 2 and 3, evaluated
# ----------------------------------------------------------------------------------


@pytest.mark.parametrize("max_steps", [20, 180, 1000])
@pytest.mark.parametrize("rate", [0.05, 0.1, 0.3])
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0])
def test_corollary_3_holds_on_a_grid_of_settings_and_is_far_from_tight(max_steps, rate, epsilon):
    """At the corollary's own σ: exact δ <= δ + δ' (always valid) and <= the printed bound."""
    delta = 1e-5
    for allowed in range(max(1, int(rate * max_steps)), max_steps + 1, max(1, max_steps // 10)):
        sigma = accounting.classical_sigma(epsilon, delta, math.sqrt(allowed))
        exact = accounting.subsampled_delta(epsilon, sigma, rate, max_steps)
        overrun = accounting.overrun(max_steps, allowed, rate)
        assert exact <= delta + overrun
        assert exact <= accounting.corollary3_delta(epsilon, delta, rate, max_steps, allowed)


def test_the_classical_bound_inside_the_corollaries_fails_outside_its_range():
    """The corollaries' step for the bad set: a classical σ for (ε, δ) at sqrt(I') gives (ε sqrt(I/I'), δ) at
    sqrt(I). At ε = 0.9 and I/I' = 400 that is ε = 18, where the exact δ is above the one it was made for.
    """
    epsilon, delta, factor = 0.9, 1e-2, 20.0
    sigma = accounting.classical_sigma(epsilon, delta, 1.0)
    assert accounting.gaussian_delta(epsilon, 1 / sigma) <= delta
    assert accounting.gaussian_delta(epsilon * factor, factor / sigma) > delta


def test_corollary_2_holds_where_it_says_something():
    """Monte Carlo over the sampled steps, with the user in one run of I steps (the worst for a low-pass
    filter).
    """
    length, max_steps, rate, epsilon, delta = 2000, 60, 0.1, 0.5, 1e-4
    mechanism = S.FilteredRelease(budget=BUDGET, max_steps=max_steps, rate=rate, bandwidth=10)
    kernel = mechanism.kernel(length)
    change = np.zeros(length)
    change[:max_steps] = 1
    moved = np.fft.irfft(np.fft.rfft(kernel) * np.fft.rfft(change), length)
    squares = np.array([(moved[RNG.uniform(size=length) < rate] ** 2).sum() for _ in range(4000)])
    for alpha in (0.6, 0.8, 1.0):
        sigma = accounting.classical_sigma(epsilon, delta, alpha * math.sqrt(max_steps))
        exact = np.mean([accounting.gaussian_delta(epsilon, math.sqrt(s) / sigma) for s in squares])
        failure = accounting.filter_overrun(kernel, alpha, rate)
        assert exact <= accounting.corollary2_delta(epsilon, delta, kernel, alpha, rate)
        assert exact <= delta + failure
    # Theorem 4 bounds the norm by α sqrt(I) (it prints α sqrt(T)); the norm of the whole filter is 1.
    assert accounting.filter_overrun(kernel, 1.0, rate) < 1e-3
    assert accounting.filter_overrun(kernel, math.sqrt(rate), rate) == 1.0


# The exact accounting in use
# -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("max_steps", "rate", "sigma"), [(5, 0.3, 4.0), (60, 0.1, 12.0), (20, 1.0, 25.0)])
def test_composed_losses_agree_with_the_mean_over_the_number_of_sampled_steps(max_steps, rate, sigma):
    """Fine discrete noise is close to continuous noise, for which the mean is exact; the composed figure is
    above, by little.
    """
    epsilon = accounting.subsampled_epsilon(sigma, 1, rate, max_steps, 1e-4, 0.5)
    assert accounting.subsampled_delta(epsilon, sigma, rate, max_steps) <= 1e-4 * (1 + 1e-6)
    assert accounting.subsampled_delta(epsilon * 0.97, sigma, rate, max_steps) > 1e-4


def test_composed_losses_agree_with_enumeration_on_a_coarse_grid():
    """σ = 1.2 on integers, three steps at rate one half: the hockey-stick divergence by enumeration."""
    values = np.arange(-16, 18)
    mass = np.exp(-(values**2) / (2 * 1.2**2))
    mass /= mass.sum()
    moved = np.exp(-((values - 1) ** 2) / (2 * 1.2**2))
    moved /= moved.sum()
    one_mass = np.concatenate([[0.5], 0.5 * mass])
    one_loss = np.concatenate([[0.0], np.log(mass) - np.log(moved)])
    joint, losses = one_mass, one_loss
    for _ in range(2):
        joint, losses = np.outer(joint, one_mass).ravel(), np.add.outer(losses, one_loss).ravel()
    epsilon = accounting.subsampled_epsilon(1.2, 1, 0.5, 3, 1e-4, 2.0)
    assert (joint * np.maximum(0, 1 - np.exp(epsilon - losses))).sum() <= 1e-4
    assert (joint * np.maximum(0, 1 - np.exp(0.98 * epsilon - losses))).sum() > 1e-4


def test_the_renyi_curve_is_an_upper_bound_close_above():
    tight = accounting.subsampled_epsilon(26.0, 1, 0.1, 180, 1e-4, 0.5)
    curve = accounting._renyi_epsilon(26.0, 0.1, 180, 1e-4)
    assert tight < curve < 1.25 * tight
    coarse = accounting.subsampled_epsilon(2600.0, 100, 0.1, 180, 1e-4, 0.5)  # the branch for large σ
    assert coarse == pytest.approx(curve)


@pytest.mark.slow
def test_subsampled_noise_is_calibrated_and_below_the_papers():
    mechanism = S.SubsampledRelease(budget=BUDGET, max_steps=180, rate=0.1, noise=sg.SeededNoise(1))
    epsilon = mechanism.epsilon_if(180)
    assert 0.49 < epsilon <= 0.5
    assert mechanism.sigma < 0.6 * mechanism.paper_sigma
    # Without sampling the same noise would break the promise: the gain is the sampling's.
    assert accounting.subsampled_epsilon(mechanism.sigma, 1, 1.0, 180, 1e-4, 0.5) > 1.5
    # More steps than vouched for: the promise degrades gently (the paper's Proposition 1 says by sqrt(2) at
    # most).
    assert 0.5 < mechanism.epsilon_if(360) < 0.5 * 1.6


def test_the_sampled_steps_do_not_depend_on_the_data():
    steps = []
    for series in (np.zeros(300), 1e6 * np.arange(300.0)):
        mechanism = S.SubsampledRelease(budget=BUDGET, max_steps=20, noise=sg.SeededNoise(3))
        released = mechanism.run(series)
        again = S.SubsampledRelease(budget=BUDGET, max_steps=20, noise=sg.SeededNoise(3))
        steps.append(again._draw_steps(300).tolist())
        assert 10 < len(steps[-1]) < 60
        chosen = np.array(steps[-1])
        np.testing.assert_allclose(released, np.interp(np.arange(300), chosen, released[chosen]))
    assert steps[0] == steps[1]


@pytest.mark.statistical
def test_steps_are_sampled_at_their_rate():
    """Exact binomial tails at 10^-10 either side of 0.1 on 200,000 steps (flake 2·10^-10). Power: 0.105 is
    rejected.
    """
    count = (
        S.SubsampledRelease(budget=BUDGET, max_steps=20, noise=sg.SeededNoise(3))._draw_steps(200_000).size
    )

    def accepted(rate):
        return binom.cdf(count, 200_000, rate) > 1e-10 and binom.sf(count - 1, 200_000, rate) > 1e-10

    assert accepted(0.1)
    assert not accepted(0.105)
    assert not accepted(0.095)


def test_a_series_of_which_nothing_is_sampled_is_nan():
    mechanism = S.SubsampledRelease(budget=BUDGET, max_steps=2, rate=1e-6, noise=sg.SeededNoise(1))
    assert np.isnan(mechanism.run(np.arange(10.0))).all()
    assert mechanism.spent == BUDGET


# The filter
# ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("length", "bandwidth", "rate"), [(50, 3, 0.5), (200, 10, 0.1), (200, 10, 0.9), (30, 100, 0.5)]
)
def test_the_norm_of_the_sampled_filter_is_bounded_from_above_and_closely(length, bandwidth, rate):
    mechanism = S.FilteredRelease(budget=BUDGET, max_steps=10, rate=rate, bandwidth=bandwidth)
    for _ in range(4):
        chosen = np.flatnonzero(RNG.uniform(size=length) < rate)
        if chosen.size == 0:
            continue
        sampled = mechanism.sampled_filter(length, chosen)
        exact = np.linalg.norm(sampled.toarray().astype(float), 2)
        bound = largest_singular_value(sampled)
        assert exact <= bound <= exact * 1.02


def test_no_user_moves_the_filtered_sample_by_more_than_the_sensitivity():
    length, max_steps = 200, 15
    mechanism = S.FilteredRelease(budget=BUDGET, max_steps=max_steps, rate=0.3, bandwidth=5, sensitivity=3)
    chosen = np.flatnonzero(RNG.uniform(size=length) < 0.3)
    sampled = mechanism.sampled_filter(length, chosen)
    bound = largest_singular_value(sampled) * math.sqrt(max_steps) * 3
    worst = 0.0
    for start in range(length):
        change = np.zeros(length, dtype=np.int64)
        change[(start + np.arange(max_steps)) % length] = 3
        worst = max(worst, float(np.linalg.norm(sampled @ change)))
    for _ in range(500):
        change = np.zeros(length, dtype=np.int64)
        change[RNG.permutation(length)[:max_steps]] = RNG.integers(-3, 4, max_steps)
        worst = max(worst, float(np.linalg.norm(sampled @ change)))
    assert 0.5 * bound < worst <= bound


def test_with_hardly_any_noise_the_filter_is_the_circular_gaussian():
    series = RNG.integers(0, 1000, 128).astype(float)
    mechanism = S.FilteredRelease(
        budget=sg.PrivacyBudget(1e9, delta=1e-4), max_steps=5, rate=1.0, bandwidth=4, noise=sg.SeededNoise(1)
    )
    expected = np.fft.irfft(np.fft.rfft(mechanism.kernel(128)) * np.fft.rfft(series), 128)
    np.testing.assert_allclose(mechanism.run(series), expected, atol=0.5)
    with pytest.raises(sg.ConfigError, match="too wide"):
        S.FilteredRelease(budget=BUDGET, max_steps=5, bandwidth=1e6, noise=sg.SeededNoise(1)).run(
            np.zeros(10**5)
        )


@pytest.mark.parametrize("bandwidth", [10, 100])
def test_whole_number_kernels_lose_no_level(bandwidth):
    mechanism = S.FilteredRelease(
        budget=sg.PrivacyBudget(1e9, delta=1e-4), max_steps=5, bandwidth=bandwidth, noise=sg.SeededNoise(1)
    )
    np.testing.assert_allclose(mechanism.run(np.full(2000, 1e6)), 1e6, rtol=1e-6)


def test_filtered_noise_follows_from_the_steps_drawn_and_beats_corollary_2():
    mechanism = S.FilteredRelease(budget=BUDGET, max_steps=180, rate=0.1, noise=sg.SeededNoise(1))
    assert math.isnan(mechanism.sigma)
    mechanism.run(np.full(1800, 100.0))
    assert mechanism.sigma < 0.6 * mechanism.paper_sigma(1800)
    assert mechanism.sigma < S.Gaussian(budget=BUDGET, max_steps=180).sigma / 2


# What the paper leaves open
# ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("steps", "rate", "chance"), [(180, 0.1, 1e-4), (50, 0.5, 1e-3), (2000, 0.05, 1e-6)])
def test_corollary_1_bounds_how_many_steps_are_sampled(steps, rate, chance):
    allowed = accounting.corollary1_steps(steps, rate, chance)
    assert accounting.overrun(steps, math.floor(allowed), rate) <= chance
    assert allowed < steps or rate > 0.4


def test_a_user_in_more_steps_than_vouched_for_costs_what_proposition_1_says_or_less():
    budget = sg.PrivacyBudget(0.5, 1e-4)
    mechanism = S.FilteredRelease(budget=budget, max_steps=10)
    epsilons = [mechanism.epsilon_if(c * 10) for c in (1, 2, 4)]
    assert epsilons[0] == pytest.approx(0.5, rel=1e-6)
    assert epsilons == sorted(epsilons)
    # The printed proposition lets ε grow by sqrt(c); zCDP gives a little more at a fixed δ, and is proved.
    assert epsilons[1] < 2 * 0.5
    widened, delta = accounting.proposition1(0.5, 1e-4, 1e-9, 0.5, 4.0)
    assert widened == 1.0
    assert delta == pytest.approx(1e-4, rel=1e-3)


def test_the_norm_of_more_steps_is_what_epsilon_if_accounts_for():
    """Users in 4 times as many steps: the shift over σ, squared and halved, is at most 4 ρ."""
    mechanism = S.FilteredRelease(
        budget=BUDGET, max_steps=4, rate=0.5, bandwidth=1.0, noise=sg.SeededNoise(1)
    )
    length = 64
    rng = np.random.default_rng(2)
    for _ in range(30):
        chosen = np.flatnonzero(rng.uniform(size=length) < 0.5)
        matrix = mechanism.sampled_filter(length, chosen).toarray().astype(float)
        reach = largest_singular_value(mechanism.sampled_filter(length, chosen))
        sigma = reach * math.sqrt(4) / math.sqrt(2 * mechanism._rho)
        user = np.zeros(length)
        user[rng.permutation(length)[:16]] = 1
        rho = np.sum((matrix @ user) ** 2) / (2 * sigma**2)
        assert rho <= 4 * mechanism._rho * (1 + 1e-9)
        assert approximate_dp_of_zcdp(rho, BUDGET.delta) <= mechanism.epsilon_if(16) * (1 + 1e-9)


def test_taps_of_ones_own_are_the_filter():
    taps = [1, 2, 4, 2, 1]
    mechanism = S.FilteredRelease(budget=BUDGET, max_steps=4, taps=taps)
    row = mechanism.kernel(12)
    np.testing.assert_allclose(row[[0, 1, 2, -2, -1]], np.array([4, 2, 1, 1, 2]) / 10)
    assert row.sum() == pytest.approx(1)
    loud = sg.PrivacyBudget(1e6, 1e-4)
    series = np.arange(40.0) * 10
    released = S.FilteredRelease(
        budget=loud, max_steps=1, rate=1.0, taps=[1, 1, 1], noise=sg.SeededNoise(1)
    ).run(series)
    np.testing.assert_allclose(released[1:-1], series[1:-1], atol=0.1)
    assert released[0] == pytest.approx((390 + 0 + 10) / 3, abs=0.1)  # circular
    for wrong in ([1, 2], [0, 0, 0], [1, -1, 1], []):
        with pytest.raises(sg.ConfigError, match="taps"):
            S.FilteredRelease(budget=BUDGET, max_steps=4, taps=wrong)
    with pytest.raises(sg.ConfigError, match="no effect"):
        S.FilteredRelease(budget=BUDGET, max_steps=4, taps=[1], bandwidth=2.0)


@pytest.mark.parametrize("interpolation", ["linear", "nearest", "previous", "monotone"])
def test_interpolations_pass_through_what_was_released(interpolation):
    mechanism = S.SubsampledRelease(budget=BUDGET, max_steps=2, interpolation=interpolation)
    chosen, values = np.array([2, 5, 6, 11]), np.array([10.0, 40.0, 20.0, 30.0])
    out = mechanism._interpolate(14, chosen, values)
    np.testing.assert_allclose(out[chosen], values)
    np.testing.assert_allclose(out[[0, 1, 12, 13]], [10, 10, 30, 30])
    between = {"linear": 30.0, "nearest": 40.0, "previous": 10.0}
    if interpolation in between:
        assert out[4] == between[interpolation]
    else:
        assert 10 < out[3] < out[4] < 40
    assert mechanism._interpolate(5, np.array([3]), np.array([7.0])).tolist() == [7.0] * 5

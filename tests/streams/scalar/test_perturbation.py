"""LPA, Gaussian and the two baselines: sensitivity after rounding, scales, and the noise itself."""

from __future__ import annotations

import math

import numpy as np
import pytest

import synthgeo as sg
from synthgeo.privacy.accountant import approximate_dp_of_zcdp, zcdp_of
from synthgeo.privacy.noise import laplace_variance

S = sg.series
RNG = np.random.default_rng(11)


@pytest.mark.parametrize("bits", [0, 1, 5, 20])
@pytest.mark.parametrize("sensitivity", [0.1, 0.3, 1.0, 2.5, 7.0])
def test_rounding_to_the_grid_never_exceeds_the_sensitivity_in_use(bits, sensitivity):
    """Random pairs at most Δ apart, among them pairs that straddle grid points, after rounding."""
    mechanism = S.LPA(budget=sg.PrivacyBudget(1.0), horizon=10, sensitivity=sensitivity, grid_bits=bits)
    one = 2.0**bits
    base = np.concatenate([RNG.uniform(-1e4, 1e4, 5000), RNG.integers(-500, 500, 5000) / one])
    for shift in (sensitivity, -sensitivity, sensitivity * 0.999, 0.5 / one):
        if abs(shift) > sensitivity:
            continue
        moved = np.floor((base + shift) * one) - np.floor(base * one)
        # A double next to an integer may round the sum base + shift across it by 2^-40: that is a change of
        # more than Δ.
        assert np.abs(moved).max() <= mechanism._step_sensitivity
    loose = {"budget": sg.PrivacyBudget(1e12), "horizon": 3, "grid_bits": bits}
    values = np.array([0.5, 1.5, -0.25]) / one if bits else np.array([0.0, 1.0, -1.0])
    down = np.floor(values * one) / one
    np.testing.assert_array_equal(S.LPA(**loose).run(values), down)
    mechanism = S.LPA(**loose)
    np.testing.assert_array_equal([mechanism.update(v) for v in values], down)
    nearest = np.abs(np.rint(0.5 + 1) - np.rint(0.5))
    assert nearest == 2  # the reason why values are rounded down, not to nearest


@pytest.mark.parametrize(
    ("horizon", "max_steps", "shares"), [(100, None, 100), (None, 7, 7), (100, 7, 7), (5, 7, 5), (None, 1, 1)]
)
def test_laplace_scale_follows_from_the_steps_a_user_is_in(horizon, max_steps, shares):
    mechanism = S.LPA(budget=sg.PrivacyBudget(0.5), horizon=horizon, max_steps=max_steps, sensitivity=3)
    assert mechanism.scale == 3 * shares / 0.5
    assert mechanism.variance == laplace_variance(mechanism.scale)
    assert mechanism.guarantee.level == ("event" if shares == 1 else "user")
    # The log-ratio of a user who moves `shares` values by Δ each is exactly the budget.
    assert shares * 3 / mechanism.scale == pytest.approx(0.5)


def test_a_stream_without_end_never_spends_more_than_a_user_is_in():
    mechanism = S.LPA(budget=sg.PrivacyBudget(0.5), max_steps=4, noise=sg.SeededNoise(1))
    spent = []
    for _ in range(10):
        mechanism.update(5)
        spent.append(mechanism.spent.epsilon)
    assert spent == pytest.approx([0.125, 0.25, 0.375] + [0.5] * 7)


def test_gaussian_composes_to_its_budget_and_beats_the_classical_calibration():
    budget = sg.PrivacyBudget(0.5, delta=1e-4)
    mechanism = S.Gaussian(budget=budget, max_steps=180)
    rho = 180 / (2 * mechanism.sigma**2)
    assert rho == pytest.approx(zcdp_of(budget))
    assert approximate_dp_of_zcdp(rho, 1e-4) <= 0.5 * (1 + 1e-9)
    assert mechanism.paper_sigma == pytest.approx(116.55, abs=0.01)
    assert mechanism.sigma < mechanism.paper_sigma


def test_a_horizon_is_spent_piece_by_piece_and_no_further():
    """In one draw or several: each value costs 1 / (2σ²), or 1 / scale."""
    budget = sg.PrivacyBudget(0.5, delta=1e-4)
    for mechanism, cost in (
        (
            S.Gaussian(budget=budget, horizon=6),
            lambda m, n: approximate_dp_of_zcdp(n / (2 * m.sigma**2), 1e-4),
        ),
        (S.LPA(budget=sg.PrivacyBudget(0.5), horizon=6), lambda m, n: n / m.scale),
    ):
        mechanism.run([5, 5, 5])
        assert mechanism.spent.epsilon == pytest.approx(cost(mechanism, 3))
        mechanism.update(5)
        assert mechanism.spent.epsilon == pytest.approx(cost(mechanism, 4))
        with pytest.raises(sg.BudgetExhausted, match="covers 2 of 6"):
            mechanism.run([5, 5, 5])
        mechanism.run([5, 5])
        with pytest.raises(sg.BudgetExhausted):
            mechanism.update(5)


def _dkw(sample: np.ndarray, scale: float) -> tuple[float, float]:
    """Distance between the sample and discrete Laplace noise of a scale, and the bound at 10^-9."""
    values, counts = np.unique(sample, return_counts=True)
    q = math.exp(-1 / scale)
    below = np.where(
        values < 0, q ** (-values.astype(float)) / (1 + q), 1 - q ** (values.astype(float) + 1) / (1 + q)
    )
    distance = np.abs(np.cumsum(counts) / sample.size - below).max()
    return float(distance), math.sqrt(math.log(2e9) / (2 * sample.size))


@pytest.mark.statistical
@pytest.mark.parametrize("kind", ["lpa", "uniform"])
def test_released_values_carry_exactly_the_noise_promised(kind):
    """DKW at 10^-9 (flake 2·10^-9 for both). Power: the twin with a scale 10 % off is rejected."""
    n = 200_000
    truth = np.full(n, 1000.0)
    if kind == "lpa":
        mechanism = S.LPA(budget=sg.PrivacyBudget(1.0), max_steps=20, noise=sg.SeededNoise(5))
    else:
        mechanism = S.Uniform(budget=sg.PrivacyBudget(1.0), window=20, noise=sg.SeededNoise(5))
    noise = (mechanism.run(truth) - truth).astype(np.int64)
    distance, bound = _dkw(noise, 20.0)
    assert distance <= bound
    for wrong in (22.0, 18.0):
        distance, bound = _dkw(noise, wrong)
        assert distance > bound


def test_sampling_reads_only_its_own_steps():
    """A value between two samples cannot change anything: the release is the same to the bit."""
    series = RNG.integers(0, 100, 20).astype(float)
    other = series.copy()
    other[np.arange(20) % 5 != 0] += 50
    outputs = [
        S.Sampling(budget=sg.PrivacyBudget(1.0), window=5, noise=sg.SeededNoise(2)).run(s)
        for s in (series, other)
    ]
    np.testing.assert_array_equal(*outputs)
    np.testing.assert_array_equal(outputs[0], np.repeat(outputs[0][::5], 5))


@pytest.mark.parametrize(
    ("window", "interval", "shares"), [(10, None, 1), (10, 5, 2), (10, 3, 4), (10, 20, 1)]
)
def test_sampling_pays_for_all_the_samples_that_a_window_can_hold(window, interval, shares):
    mechanism = S.Sampling(
        budget=sg.PrivacyBudget(1.0), window=window, interval=interval, noise=sg.SeededNoise(1)
    )
    step = interval or window
    most = max(sum((start + i) % step == 0 for i in range(window)) for start in range(step))
    assert most == shares
    assert mechanism._scale == pytest.approx(shares)


def test_gaps_do_not_smuggle_in_a_sample_past_the_horizon():
    """Fourteen steps, four of them gaps: ten values fit a horizon of ten, but three samples would be due."""
    series = np.arange(14.0)
    series[[1, 2, 3, 4]] = np.nan
    mechanism = S.Sampling(
        budget=sg.PrivacyBudget(1.0), horizon=10, interval=5, missing="public", noise=sg.SeededNoise(1)
    )
    with pytest.raises(sg.BudgetExhausted):
        mechanism.run(series)
    mechanism.run(series[:10])
    assert mechanism.spent == sg.PrivacyBudget(1.0)
    with pytest.raises(sg.BudgetExhausted):
        mechanism.update(3)

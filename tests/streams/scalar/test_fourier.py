"""The Fourier mechanism: an exact transform, and a sensitivity that no search exceeds."""

from __future__ import annotations

import math

import numpy as np
import pytest

import synthgeo as sg
from streams.scalar.fourier import coordinate_count, real_fourier_rows

S = sg.series
RNG = np.random.default_rng(3)


@pytest.mark.parametrize("length", [1, 2, 3, 8, 9, 50, 101])
def test_the_basis_is_orthonormal(length):
    basis = real_fourier_rows(length, 0, length)
    np.testing.assert_allclose(basis @ basis.T, np.eye(length), atol=1e-12)


@pytest.mark.parametrize("length", [7, 64, 365])
@pytest.mark.parametrize("frequencies", [1, 3, 10])
def test_without_noise_it_is_a_low_pass_filter(length, frequencies):
    """Against numpy's FFT with the same frequencies kept."""
    series = RNG.integers(0, 1000, length).astype(float)
    released = S.DFT(budget=sg.PrivacyBudget(1e12), coefficients=frequencies, noise=sg.SeededNoise(1)).run(
        series
    )
    spectrum = np.fft.rfft(series)
    spectrum[frequencies:] = 0
    np.testing.assert_allclose(released, np.fft.irfft(spectrum, length), atol=0.02)


def _worst(mechanism, length, max_steps, norm) -> float:
    """Random and greedy search for the largest move of the integer coordinates by one user."""
    worst = 0.0
    identity = mechanism.coordinates
    for trial in range(300):
        u = np.zeros(length, dtype=np.int64)
        where = RNG.permutation(length)[:max_steps]
        if trial % 3 == 0:
            u[where] = RNG.choice([-1, 1], where.size)
        elif trial % 3 == 1:  # the sign pattern of a random combination of basis rows: the greedy maximiser
            rows = real_fourier_rows(length, 0, coordinate_count(length, mechanism.coefficients))
            score = RNG.choice([-1, 1], rows.shape[0]) @ rows
            where = np.argsort(-np.abs(score))[:max_steps]
            u[where] = np.sign(score[where]).astype(np.int64)
        else:
            u[where] = 1
        u *= mechanism._step_sensitivity
        base = RNG.integers(-1000, 1000, length)
        worst = max(worst, float(np.linalg.norm(identity(base + u) - identity(base), norm)))
    return worst


@pytest.mark.parametrize("length", [5, 60, 200])
@pytest.mark.parametrize("frequencies", [1, 4, 20])
@pytest.mark.parametrize("max_steps", [None, 3])
def test_no_search_exceeds_the_sensitivity_in_use(length, frequencies, max_steps):
    mechanism = S.DFT(
        budget=sg.PrivacyBudget(1.0), coefficients=frequencies, max_steps=max_steps, sensitivity=2
    )
    steps = min(length, max_steps or length)
    for norm, bound in ((1, mechanism.l1_sensitivity(length)), (2, mechanism.l2_sensitivity(length))):
        found = _worst(mechanism, length, steps, norm)
        assert found <= bound
        # The bound is not idle: some search comes within a factor of it.
        assert found >= 0.3 * bound


def test_the_printed_variant_moves_by_far_more_than_its_noise_covers():
    """Laplace noise for sensitivity 1 on raw coefficients (the listing of 2014): one user moves the first
    alone by T.
    """
    length = 500
    ones = np.ones(length)
    assert abs(np.fft.fft(ones)[0]) == pytest.approx(length)


def test_scales_and_their_fallback_to_a_coarser_basis():
    strict = S.DFT(budget=sg.PrivacyBudget(1e-5), coefficients=20, noise=sg.SeededNoise(1))
    bits, scale = strict.noise_scale(1000)
    assert bits < 20
    assert scale == pytest.approx(strict.l1_sensitivity(1000, bits) / 1e-5)
    assert np.isfinite(strict.run(np.arange(1000.0))).all()
    loose = S.DFT(budget=sg.PrivacyBudget(1.0, 1e-6), coefficients=20)
    bits, sigma = loose.noise_scale(1000)
    assert bits == 20
    assert sigma / 2**20 == pytest.approx(
        math.sqrt(1000) * S.Gaussian(budget=loose.budget, max_steps=1).sigma, rel=0.01
    )


def test_values_too_large_for_an_exact_transform_are_refused():
    with pytest.raises(sg.InputError, match="row 2"):
        S.DFT(budget=sg.PrivacyBudget(1.0), noise=sg.SeededNoise(1)).run([1.0, 2.0, 2.0**50, 3.0])


# In blocks
# --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [sg.PrivacyBudget(1.0), sg.PrivacyBudget(1.0, 1e-6)], ids=str)
@pytest.mark.parametrize(
    ("delay", "coefficients", "max_steps"), [(5, 2, None), (5, 2, 3), (0, 1, None), (7, 3, 30), (6, 9, 4)]
)
def test_no_user_moves_the_blocks_by_more_than_the_sensitivity(budget, delay, coefficients, max_steps):
    """Random users, spread and gathered ones: all blocks of a series of 45 values together."""
    mechanism = sg.series.DFT(
        budget=budget, horizon=45, delay=delay, coefficients=coefficients, max_steps=max_steps
    )
    bits, _ = mechanism.noise_scale(mechanism.batch)
    rng = np.random.default_rng(1)
    most = min(45, max_steps or 45)
    largest = 0.0
    for trial in range(300):
        user = np.zeros(45, dtype=np.int64)
        first = rng.integers(0, 45 - most + 1)
        where = (
            rng.permutation(45)[:most],
            np.linspace(0, 44, most).astype(int),
            np.arange(first, first + most),
        )[trial % 3]
        user[where] = rng.choice([-1, 1], where.size) if trial % 2 else 1
        moved = [
            mechanism.coordinates(user[i : i + mechanism.batch], bits) for i in range(0, 45, mechanism.batch)
        ]
        flat = np.concatenate(moved).astype(float)
        largest = max(largest, np.abs(flat).sum() if budget.is_pure else np.linalg.norm(flat))
    reach = mechanism._block_sensitivity(mechanism._blocks, bits)
    assert 0.2 * reach <= largest <= reach


def test_a_delay_of_nothing_is_noise_on_every_value_and_a_long_one_the_whole_series():
    budget = sg.PrivacyBudget(1.0)
    instant = sg.series.DFT(budget=budget, horizon=100, delay=0, coefficients=1)
    bits, scale = instant.noise_scale(1)
    assert scale / 2**bits == pytest.approx(100, rel=1e-3)  # LPA's scale
    whole = sg.series.DFT(budget=budget, coefficients=5)
    long = sg.series.DFT(budget=budget, horizon=100, delay=99, coefficients=5)
    assert long.noise_scale(100)[1] == pytest.approx(whole.noise_scale(100)[1], rel=1e-3)


def test_blocks_follow_each_other_until_the_horizon():
    mechanism = sg.series.DFT(
        budget=sg.PrivacyBudget(1.0), horizon=20, delay=7, coefficients=2, noise=sg.SeededNoise(1)
    )
    series = np.arange(20.0)
    spent = []
    for part in (series[:8], series[8:16]):
        assert mechanism.update(part).shape == (8,)
        spent.append(mechanism.spent.epsilon)
    with pytest.raises(sg.InputError, match="left over"):
        mechanism.run(series[16:18])
    assert mechanism.run(series[16:]).shape == (4,)
    spent.append(mechanism.spent.epsilon)
    assert spent == sorted(spent)
    assert spent[-1] == pytest.approx(1.0)
    with pytest.raises(sg.BudgetExhausted):
        mechanism.run([1.0])
    with pytest.raises(sg.ConfigError, match="horizon"):
        sg.series.DFT(budget=sg.PrivacyBudget(1.0), delay=3)
    with pytest.raises(sg.ConfigError, match="horizon"):
        sg.series.DFT(budget=sg.PrivacyBudget(1.0), horizon=30)

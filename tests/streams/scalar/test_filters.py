"""The filters against maintained implementations."""

from __future__ import annotations

import math

import numpy as np
import pytest

from streams.scalar.filters import (
    INTERVALS,
    FilterBank,
    KalmanFilter,
    ParticleFilter,
    _expected_losses,
    laplace_update,
)

RNG = np.random.default_rng(2)
Q, R = 9.0, 400.0
LEVEL = 1000 + np.cumsum(RNG.normal(0, math.sqrt(Q), 200))
SEEN = LEVEL + RNG.normal(0, math.sqrt(R), 200)


def _ours(observed: np.ndarray, known: np.ndarray) -> np.ndarray:
    level = KalmanFilter(process_variance=Q, measurement_variance=R)
    out = [level.start(float(observed[0]))]
    for z, seen in zip(observed[1:], known[1:], strict=True):
        prior = level.predict()
        out.append(level.correct(float(z)) if seen else prior)
    return np.array(out)


KNOWN = RNG.uniform(size=200) < 0.4
KNOWN[0] = True


@pytest.mark.parametrize("known", [np.ones(200, dtype=bool), KNOWN], ids=["every step", "sampled"])
def test_kalman_filter_equals_filterpy(known):
    from filterpy.kalman import KalmanFilter as Reference

    reference = Reference(dim_x=1, dim_z=1)
    reference.x = np.array([[SEEN[0]]])
    reference.P *= R
    reference.F = reference.H = np.array([[1.0]])
    reference.Q, reference.R = np.array([[Q]]), np.array([[R]])
    out = [SEEN[0]]
    for z, seen in zip(SEEN[1:], known[1:], strict=True):
        reference.predict()
        if seen:
            reference.update(z)
        out.append(float(reference.x[0, 0]))
    np.testing.assert_allclose(_ours(SEEN, known), out, rtol=1e-12)


@pytest.mark.parametrize("known", [np.ones(200, dtype=bool), KNOWN], ids=["every step", "sampled"])
def test_kalman_filter_equals_statsmodels(known):
    """The local-level model with known variances; missing observations are the steps that are not sampled."""
    from statsmodels.tsa.statespace.structural import UnobservedComponents

    model = UnobservedComponents(np.where(known, SEEN, np.nan), "llevel")
    model.ssm.initialize_known(np.array([SEEN[0]]), np.array([[1e12]]))  # flat: the first observation decides
    result = model.filter([R, Q])
    np.testing.assert_allclose(_ours(SEEN, known), result.filtered_state[0], rtol=1e-6)


def _grid_posterior(observed: np.ndarray, half: float, scale: float) -> list[float]:
    """The exact Bayes filter on a fine grid: uniform start, Gaussian moves, Laplace observations."""
    x = np.linspace(observed[0] - 2 * half - 400, observed[0] + 2 * half + 400, 6001)
    density = (np.abs(x - observed[0]) <= half).astype(float)
    step = x[1] - x[0]
    moves = np.exp(-0.5 * (np.arange(-150, 151) * step) ** 2 / Q)
    moves /= moves.sum()
    out = [float(observed[0])]
    for z in observed[1:]:
        density = np.convolve(density, moves, mode="same") * np.exp(-np.abs(x - z) / scale)
        density /= density.sum()
        out.append(float(density @ x))
    return out


def test_particle_filter_follows_the_exact_posterior_under_laplace_noise():
    """200,000 particles against the integral; a filter that takes the noise for Gaussian is measurably
    elsewhere.
    """
    scale = 30.0
    rng = np.random.default_rng(8)
    observed = 500 + rng.laplace(0, scale, 15)
    cloud = ParticleFilter(
        process_variance=Q, noise_scale=scale, particles=200_000, rng=np.random.default_rng(4)
    )
    ours = [cloud.start(float(observed[0]))]
    for z in observed[1:]:
        cloud.predict()
        ours.append(cloud.correct(float(z)))
    exact = _grid_posterior(observed, math.sqrt(6) * scale, scale)
    np.testing.assert_allclose(ours, exact, atol=0.6)
    gaussian = KalmanFilter(process_variance=Q, measurement_variance=2 * scale**2)
    other = [gaussian.start(float(observed[0]))]
    for z in observed[1:]:
        gaussian.predict()
        other.append(gaussian.correct(float(z)))
    assert np.abs(np.array(other) - exact).max() > 3


def test_particle_filter_survives_an_observation_far_from_every_particle():
    cloud = ParticleFilter(process_variance=1.0, noise_scale=1.0, particles=100, rng=np.random.default_rng(1))
    cloud.start(0.0)
    cloud.predict()
    assert math.isfinite(cloud.correct(1e9))
    assert cloud.particles.size == 100


def test_systematic_resampling_keeps_the_weighted_mean():
    cloud = ParticleFilter(
        process_variance=1e-12, noise_scale=5.0, particles=50_000, rng=np.random.default_rng(1)
    )
    cloud.start(0.0)
    posterior = cloud.correct(8.0)
    assert cloud.particles.mean() == pytest.approx(posterior, abs=0.05)
    assert posterior > 5  # far from the unweighted mean, 0


# The bank for Laplace noise
# ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("distance", "variance", "scale"),
    [
        (0.7, 1.0, 1.0),
        (3.0, 4.0, 0.5),
        (1.0, 0.01, 2.0),
        (-20.0, 100.0, 1.0),
        (25.0, 1.0, 10.0),
        (0.0, 2.0, 3.0),
    ],
)
def test_a_laplace_update_equals_the_integral(distance, variance, scale):
    """Density, posterior mean and posterior variance of N(0, P) seen through Laplace noise."""
    reach = 14 * math.sqrt(variance)
    u = np.linspace(-reach, reach, 400_001)
    joint = np.exp(-u * u / (2 * variance) - np.abs(distance - u) / scale) / (
        2 * scale * math.sqrt(2 * math.pi * variance)
    )
    total = np.trapezoid(joint, u)
    mean = np.trapezoid(joint * u, u) / total
    rest = np.trapezoid(joint * u * u, u) / total - mean**2
    density, move, left = laplace_update(np.array([distance]), np.array([variance]), scale)
    assert density[0] == pytest.approx(math.log(total), rel=1e-6)
    assert move[0] == pytest.approx(mean, rel=1e-6, abs=1e-9)
    assert left[0] == pytest.approx(rest, rel=1e-5)
    assert abs(move[0]) <= variance / scale


def test_where_noise_is_narrow_the_update_is_kalmans():
    density, move, left = laplace_update(np.array([50.0]), np.array([1e6]), 1.0)
    kalman = KalmanFilter(process_variance=0.0, measurement_variance=2.0)
    kalman.mean, kalman.variance = 0.0, 1e6
    assert move[0] == pytest.approx(kalman.correct(50.0), rel=1e-9)
    assert left[0] == pytest.approx(kalman.variance, rel=1e-6)
    assert math.isfinite(density[0])


@pytest.mark.parametrize("distance", [0.0, 1e12, -1e12])
@pytest.mark.parametrize("ratio", [1e-12, 1.0, 899.0, 1e12])
def test_an_update_survives_extremes(distance, ratio):
    density, move, left = laplace_update(np.array([distance]), np.array([ratio]), 1.0)
    assert np.isfinite([density[0], move[0], left[0]]).all()
    assert 0 < left[0] <= ratio * (1 + 1e-9)


def _run_bank(observed, scale, **options):
    bank = FilterBank(scale=scale, process_variance=None, longest=100, **options)
    out = [bank.start(float(observed[0]), scale)]
    for z in observed[1:]:
        bank.predict()
        out.append(bank.correct(float(z), scale))
    return bank, np.array(out)


@pytest.mark.parametrize("variance", [1e-2, 10.0, 1e5])
def test_the_bank_learns_the_process_variance(variance):
    rng = np.random.default_rng(5)
    level = np.cumsum(rng.normal(0, math.sqrt(variance), 4000))
    bank, _ = _run_bank(level + rng.laplace(0, 10.0, 4000), 10.0)
    learnt = np.exp(bank.weights @ np.log(bank.process_variances))
    assert 0.4 * variance < learnt < 2.5 * variance


def test_the_bank_beats_a_kalman_filter_that_knows_the_variance_but_takes_the_noise_for_gaussian():
    """Laplace noise of variance R tells up to twice as much as Gaussian noise of the same variance."""
    rng = np.random.default_rng(6)
    level = np.cumsum(rng.normal(0, 0.3, 20_000))
    observed = level + rng.laplace(0, 30.0, level.size)
    _, ours = _run_bank(observed, 30.0)
    kalman = KalmanFilter(process_variance=0.09, measurement_variance=1800.0)
    theirs = [kalman.start(float(observed[0]))]
    for z in observed[1:].tolist():
        kalman.predict()
        theirs.append(kalman.correct(z))
    mine, other = (np.mean((e[2000:] - level[2000:]) ** 2) for e in (ours, np.array(theirs)))
    assert mine < 0.85 * other


@pytest.mark.parametrize("interval", [1, 5, 20])
def test_the_expected_losses_are_those_that_sampling_has(interval):
    """Known variance, samples every I steps with I times the budget each; 20,000 steps."""
    rng = np.random.default_rng(7)
    variance, unit = 4.0, 40.0
    level = np.cumsum(rng.normal(0, math.sqrt(variance), 20_000))
    scale = unit / interval
    mean, spread, errors = level[0], 1.0, []
    for t, truth in enumerate(level):
        if t % interval == 0:
            prior = np.array([spread + interval * variance])
            z = truth + rng.laplace(0, scale)
            _, move, left = laplace_update(np.array([z - mean]), prior, scale)
            mean, spread = mean + float(move[0]), float(left[0])
        errors.append((mean - truth) ** 2)
    expected = _expected_losses(np.array([variance]), unit, INTERVALS)[0, list(INTERVALS).index(interval)]
    assert np.mean(errors[1000:]) == pytest.approx(expected, rel=0.15)

"""The filters against maintained implementations."""

from __future__ import annotations

import math

import numpy as np
import pytest

from streams.scalar.filters import KalmanFilter, ParticleFilter

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

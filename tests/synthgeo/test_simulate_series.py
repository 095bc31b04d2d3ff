"""Simulated series: shapes, moments, the same numbers for the same seed."""

from __future__ import annotations

import numpy as np
import pytest

import synthgeo as sg
from synthgeo.errors import ConfigError

S = sg.simulate
CHAIN = {"prior": [0.5, 0.5], "transition": [[0.9, 0.1], [0.2, 0.8]]}


@pytest.mark.parametrize(
    ("make", "whole"),
    [
        (lambda seed: S.random_walk(50, seed=seed), True),
        (lambda seed: S.logistic(50, seed=seed), True),
        (lambda seed: S.sinusoid(50, seed=seed), True),
        (lambda seed: S.wave(50, variance=100.0, seed=seed), True),
        (lambda seed: S.ar1(50, correlation=0.5, seed=seed), False),
        (lambda seed: S.binomial_ar1(50, correlation=0.5, seed=seed), True),
        (lambda seed: S.daily_traffic(50, seed=seed), True),
        (lambda seed: S.unemployment(50, seed=seed), True),
        (lambda seed: S.drive_cycle(50, seed=seed), False),
        (lambda seed: S.markov_chain(50, **CHAIN, seed=seed), True),
    ],
)
def test_same_seed_same_series(make, whole):
    series = make(3)
    assert series.shape == (50,)
    np.testing.assert_array_equal(series, make(3))
    assert not np.array_equal(series, make(4))
    assert np.isfinite(series).all()
    assert np.array_equal(series, np.floor(series)) == whole
    with pytest.raises(ConfigError, match="seed"):
        make(-1)


def test_the_papers_series_have_their_parameters():
    walk = S.random_walk(100_000, least=-1e9, seed=1)
    assert np.var(np.diff(walk)) == pytest.approx(1e5, rel=0.02)
    assert S.logistic(seed=1)[50:].mean() == pytest.approx(5000, abs=40)
    quiet = S.sinusoid(24, variance=0, seed=1)
    np.testing.assert_array_equal(quiet[:12], quiet[12:])
    assert (quiet[0], quiet[6]) == (5000, -5000)
    assert S.wave(seed=1).size == 10_000
    np.testing.assert_array_equal(S.wave(frequency=1 / 4, seed=1), S.wave(seed=1)[::4])
    assert S.daily_traffic(seed=1).size == 540
    assert S.unemployment(seed=1).size == 478


def test_ar1_is_stationary_unless_it_drifts():
    x = S.ar1(200_000, correlation=0.8, mean=5, deviation=2, seed=1)
    assert x.mean() == pytest.approx(5, abs=0.05)
    assert x.std() == pytest.approx(2, rel=0.02)
    for k in (1, 3):
        assert np.corrcoef(x[k:], x[:-k])[0, 1] == pytest.approx(0.8**k, abs=0.01)
    drifting = S.ar1(400, correlation=0.8, drift=0.05, seed=1)
    assert drifting[-50:].mean() > drifting[:50].mean() + 50


def test_binomial_ar1_keeps_its_binomial_law():
    x = S.binomial_ar1(200_000, population=50, share=0.3, correlation=0.6, seed=1)
    assert x.mean() == pytest.approx(15, abs=0.1)
    assert x.var() == pytest.approx(10.5, rel=0.02)
    for k in (1, 3):
        assert np.corrcoef(x[k:], x[:-k])[0, 1] == pytest.approx(0.6**k, abs=0.01)
    with pytest.raises(ConfigError, match="correlation"):
        S.binomial_ar1(10, share=0.3, correlation=-0.9, seed=1)


def test_chains_of_first_and_second_order_move_as_told():
    x = S.markov_chain(100_000, **CHAIN, seed=1)
    assert np.mean(x[1:][x[:-1] == 1]) == pytest.approx(0.8, abs=0.01)
    cube = np.array([[[0.9, 0.1], [0.5, 0.5]], [[0.3, 0.7], [0.2, 0.8]]])
    y = S.markov_chain(100_000, prior=[0.5, 0.5], transition=cube, seed=1)
    here = (y[:-2] == 1) & (y[1:-1] == 0)
    assert np.mean(y[2:][here]) == pytest.approx(0.7, abs=0.02)
    with pytest.raises(ConfigError, match="transition"):
        S.markov_chain(10, prior=[1.0], transition=CHAIN["transition"], seed=1)

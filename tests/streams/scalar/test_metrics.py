"""The metrics on cases worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr

import synthgeo as sg

M = sg.series.metrics


def test_relative_error_uses_the_sanity_bound():
    assert M.relative_error([10, 0, 4], [12, 3, 4]) == pytest.approx((0.2 + 3 + 0) / 3)
    assert M.relative_error([10, 0, 4], [12, 3, 4], sanity=5) == pytest.approx((0.2 + 0.6 + 0) / 3)


def test_mean_absolute_error_and_normalised_rmse():
    assert M.mean_absolute_error([1, 2, 3], [2, 2, 1]) == 1.0
    assert M.normalized_rmse([0, 10], [3, 14]) == pytest.approx(np.sqrt(12.5) / 10)
    assert M.normalized_rmse([0, 10], [3, 14], form="zhang") == pytest.approx(5 / 2 / 10)
    with pytest.raises(sg.InputError, match="nothing to normalise"):
        M.normalized_rmse([0, 0], [1, 1])


def test_outbreak_f1():
    true = [100, 120, 118, 150, 149]  # median 120, so a rise counts above 6
    assert M.outbreak_f1(true, true) == 1.0
    assert M.outbreak_f1(true, [100, 120, 130, 130, 130]) == pytest.approx(0.5)
    assert M.outbreak_f1(true, [100] * 5) == 0.0
    assert M.outbreak_f1([5, 5, 5], [5, 5, 5]) == 1.0


def test_spearman_equals_scipy_and_is_defined_on_constants():
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 10, 50), rng.normal(size=50)
    assert M.spearman(a, b) == pytest.approx(spearmanr(a, b).statistic)
    assert M.spearman([3, 3, 3], [1, 2, 3]) == 0.0


@pytest.mark.parametrize(
    "metric", [M.relative_error, M.mean_absolute_error, M.normalized_rmse, M.outbreak_f1, M.spearman]
)
def test_series_that_cannot_be_compared_are_refused(metric):
    for a, b in (([1, 2], [1]), ([], []), ([1, np.nan], [1, 2]), ([1, 2], [1, np.inf]), ([[1]], [[1]])):
        with pytest.raises(sg.InputError):
            metric(a, b)


def test_the_form_of_an_error_is_one_of_two_and_its_scale_can_be_given():
    true, seen = [3.0, 4.0, 5.0, 6.0], [3.0, 4.0, 5.0, 8.0]
    assert M.normalized_rmse(true, seen, scale=2.0) == pytest.approx(0.5)
    assert M.normalized_rmse(true, seen, form="zhang", scale=2.0) == pytest.approx(0.25)
    with pytest.raises(sg.ConfigError, match="form must be 'rmse' or 'zhang', got 'foo'"):
        M.normalized_rmse(true, seen, form="foo")
    with pytest.raises(sg.ConfigError, match="scale"):
        M.normalized_rmse(true, seen, scale=0.0)

"""The register of metrics and ``evaluate``."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.stats

import synthgeo as sg

BOX = sg.BoxDomain(0, 0, 1, 1)


@pytest.fixture(scope="module")
def truth():
    return np.clip(np.random.default_rng(0).normal(0.5, 0.1, (4000, 2)), 0, 1)


@pytest.fixture(scope="module")
def release(truth):
    stream = sg.PHDStream(domain=BOX, budget=sg.PrivacyBudget(5.0), noise=sg.SeededNoise(1))
    return stream.update(truth)


def test_evaluates_points_with_intervals(truth, release):
    found = sg.evaluate(truth, release, repeats=4).set_index("metric")
    assert set(found.index) == set(sg.metrics.available("points")["name"])
    assert (found["low"] <= found["value"]).all()
    assert found.loc["range_large", "value"] < 0.3
    assert "curator" in sg.evaluate(truth, release, repeats=1).attrs["notice"]


def test_the_interval_is_students(truth, release):
    row = sg.evaluate(truth, release, ["range_small"], repeats=3).iloc[0]
    from synthgeo.evaluation.spatial import RangeQueries

    queries = RangeQueries.draw(BOX.bounds)
    draws = [release.xy, release.redraw(1).xy, release.redraw(2).xy]
    values = [queries.error(truth, draw)["small"] for draw in draws]
    low, high = scipy.stats.t.interval(0.95, 2, np.mean(values), scipy.stats.sem(values))
    assert (row["low"], row["high"]) == pytest.approx((low, high))


def test_truth_against_itself_is_perfect(truth, release):
    perfect = release.redraw(1)
    perfect.__dict__["xy"] = truth
    values = sg.evaluate(truth, perfect, ["range_small", "range_medium", "range_large"], repeats=1)
    assert (values["value"] == 0).all()


def test_frames_are_read_like_batches(truth, release):
    frame = pd.DataFrame(truth, columns=["x", "y"])
    pd.testing.assert_frame_equal(
        sg.evaluate(frame, release, repeats=2), sg.evaluate(truth, release, repeats=2)
    )


def test_unknown_metrics_are_named(truth, release):
    with pytest.raises(sg.ConfigError, match="'beauty'"):
        sg.evaluate(truth, release, ["beauty"])


def test_the_register_is_complete():
    frame = sg.metrics.available()
    assert set(frame["product"]) == {"points", "table", "trips"}
    assert frame["name"].is_unique
    assert frame["reference"].str.len().min() > 5

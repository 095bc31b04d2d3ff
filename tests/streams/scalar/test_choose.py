"""The mechanism that is chosen for a series, from public facts alone."""

from __future__ import annotations

import numpy as np
import pytest

import synthgeo as sg

S = sg.series
PURE = sg.PrivacyBudget(1.0)
DELTA = sg.PrivacyBudget(1.0, 1e-6)
CHAIN = {"prior": [0.5, 0.5], "transition": [[0.9, 0.1], [0.1, 0.9]]}
USER = sg.PrivacyUnit.user(max_events=3)


@pytest.mark.parametrize(
    ("facts", "kind", "who"),
    [
        ({"horizon": 100}, "FAST", {"horizon": 100}),
        ({"window": 10}, "FAST", {"window": 10}),
        ({"max_steps": 5}, "FAST", {"max_steps": 5}),
        ({"max_steps": 5, "horizon": 100}, "FAST", {"max_steps": 5}),
        ({"max_steps": 200, "horizon": 100}, "FAST", {"horizon": 100}),
        ({"unit": sg.PrivacyUnit.event()}, "FAST", {"max_steps": 1}),
        ({"unit": USER}, "FAST", {"max_steps": 3}),
        ({"horizon": 100, "output": "totals"}, "ContinualCounter", {"horizon": 100, "max_steps": 100}),
        (
            {"horizon": 100, "unit": sg.PrivacyUnit.event(), "output": "totals"},
            "ContinualCounter",
            {"horizon": 100, "max_steps": 1},
        ),
        ({"horizon": 100, "states": [0, 1]}, "RandomizedResponse", {"horizon": 100}),
        ({"horizon": 100, **CHAIN}, "SIPInstant", {"horizon": 100}),
        ({"horizon": 100, "delay": 3, **CHAIN}, "SIPBatched", {"batch": 4}),
        ({"horizon": 100, "delay": 50, **CHAIN}, "SIPBatched", {"batch": 9}),
        ({"window": 5, "delay": 3, **CHAIN}, "SIPInstant", {"window": 5}),
        ({"horizon": 9, "delay": 3, "missing": "public", **CHAIN}, "SIPInstant", {"horizon": 9}),
    ],
    ids=str,
)
def test_the_choice(facts, kind, who):
    made = S.auto(budget=PURE, **facts)
    assert type(made).__name__ == kind
    assert {name: getattr(made, name) for name in who} == who
    assert made.budget == PURE


@pytest.mark.parametrize(
    ("facts", "problem"),
    [
        ({}, "whom to protect"),
        ({"window": 3, "max_steps": 2}, "by one of"),
        ({"unit": USER, "window": 3}, "by one of"),
        ({"unit": sg.PrivacyUnit.trajectory()}, "an event, or a user"),
        ({"window": 3, "output": "totals"}, "totals hold every step"),
        ({"unit": USER, **CHAIN}, "whole series, or each window"),
        ({"window": 3, "states": [0, 1]}, "whole series: give horizon"),
        ({"horizon": 3, "delay": 2}, "for local mechanisms"),
        ({"horizon": 3, "scale": -1}, "scale"),
        ({"horizon": 3, "output": "sums"}, "output"),
    ],
    ids=str,
)
def test_what_cannot_be_chosen_is_said(facts, problem):
    with pytest.raises(sg.ConfigError, match=problem):
        S.auto(budget=PURE, **facts)


def test_advice_says_why_and_warns_where_nothing_can_be_seen():
    advice = S.advise(budget=sg.PrivacyBudget(0.01), horizon=365, scale=50)
    assert "exceeds values of 50" in advice.why
    assert advice.expected_error == pytest.approx(36_500 * 2**0.5)
    assert "exceeds" not in S.advise(budget=PURE, horizon=10, scale=500).why
    assert S.advise(budget=PURE, horizon=10, output="totals").expected_error > 0


@pytest.mark.parametrize("budget", [PURE, DELTA], ids=["pure", "delta"])
@pytest.mark.parametrize("change", [2.0, 60.0])
def test_the_expected_error_is_about_the_measured_one(budget, change):
    """Once the filter has learnt; a factor of 1.4 either way, where noise alone would be off by more."""
    length = 600
    x = np.floor(1e6 + np.cumsum(np.random.default_rng(1).normal(0, change, length)))
    made = S.auto(budget=budget, horizon=length, change=change, noise=sg.SeededNoise(2))
    measured = np.sqrt(np.mean(np.square(made.run(x) - x)[100:]))
    expected = made.expected_error(change)
    assert expected / 1.4 < measured < 1.4 * expected
    assert expected < made.expected_error() / (1.5 if change < 10 or budget is PURE else 1.0)


def test_the_papers_filters_have_no_expected_error():
    with pytest.raises(sg.ConfigError, match="auto"):
        S.FAST(budget=PURE, horizon=10, filter="kalman").expected_error(1.0)


def test_a_whole_series_can_be_released_with_what_is_chosen():
    release = S.release_series(
        np.arange(50.0), mechanism="auto", budget=PURE, window=5, noise=sg.SeededNoise(1)
    )
    assert release.provenance["mechanism"] == "FAST"
    by_length = S.release_series(np.arange(50.0), mechanism="auto", budget=PURE, noise=sg.SeededNoise(1))
    assert by_length.unit.max_contributions == 50
    with pytest.raises(sg.ConfigError, match="unexpected keyword argument 'colour'"):
        S.release_series([1.0], mechanism="auto", budget=PURE, colour="red")

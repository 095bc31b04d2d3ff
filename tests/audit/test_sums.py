"""Sums over public time: what an event pays, exactly, with and without a lifetime."""

from __future__ import annotations

from benchmarks.audits.spatial import own_period, sliding_bound
from benchmarks.audits.stream_attacks import lasting_costs, window_costs
from benchmarks.audits.stream_twins import Greedy, Sliding
from streams.spatial.phd import PHDStream


def test_every_event_pays_at_most_epsilon():
    for costs in (window_costs(PHDStream), lasting_costs(PHDStream)):
        assert costs.max() <= 1.0 + 1e-9
        assert costs.max() >= 1.0 - 1e-9


def test_a_batch_noised_again_at_each_slide_is_caught():
    assert window_costs(Sliding).max() > 2.0


def test_levels_that_all_have_the_whole_are_caught():
    assert lasting_costs(Greedy).max() > 1.5


def test_one_period_of_a_user_costs_at_most_epsilon():
    """Each insertion of a full period and its deletion are two of m events, whenever the deletion comes."""
    for found in (sliding_bound(None), own_period(None)):
        assert found.epsilon == 1.0
        assert found.twin >= 2.0

"""Sums over public time: what an event pays, exactly, with and without a lifetime."""

from __future__ import annotations

from unittest import mock

import pandas as pd
import pytest

import synthgeo as sg
from audits.spatial import own_period, sliding_bound
from audits.stream_attacks import lasting_costs, noised_costs, short_epochs, window_costs
from audits.stream_twins import Greedy, Sliding
from streams.mechanism import EventBudget
from streams.spatial.phd import PHDStream
from streams.sums import Epoch


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


def test_a_user_pays_for_all_its_events():
    event = EventBudget.of(sg.PrivacyBudget(1.0), sg.PrivacyUnit.user(max_events=4), 0.25, times_share=0.2)
    assert 4 * (event.times + event.structure + event.counts).epsilon == pytest.approx(1.0)
    assert event.structure.epsilon == pytest.approx(0.25 * event.whole.epsilon)


def test_a_node_ends_with_as_many_steps_as_its_level_says():
    epoch = Epoch(first=65, last=128, branching=4, shares=(0.5, 0.25, 0.25), before=0.0)
    ends = [epoch.closes(step) for step in range(65, 129)]
    assert [ends.count(levels) for levels in range(4)] == [48, 12, 4, 0]
    assert [step for step, levels in enumerate(ends, 1) if levels == 2] == [16, 32, 48, 64]


def _one_event_per_step(steps):
    return [
        pd.DataFrame({"x": [0.5], "y": [0.5], "op": [1], "since": [step]}) for step in range(1, steps + 1)
    ]


def _with_deletions(batches, after):
    gone = [batch.assign(op=-1) for batch in batches]
    return [
        pd.concat([batch, gone[step - after]], ignore_index=True) if step >= after else batch
        for step, batch in enumerate(batches)
    ]


def test_draw_by_draw_an_event_meets_noise_for_epsilon_and_no_more():
    """The first event has paid half for the tree. A deletion pays for itself."""
    with mock.patch("streams.sums._best_block", return_value=(3, 0.5)):
        costs = noised_costs(_one_event_per_step(14), lifetime=7)
    assert costs[0] == pytest.approx(0.5)
    assert costs[1:-2] == pytest.approx(1.0)
    assert costs.max() <= 1 + 1e-9
    batches = _with_deletions(_one_event_per_step(6), 2)
    costs = noised_costs(batches, lifetime=4, inserted="since")
    assert len(costs) == 10
    assert costs[1:] == pytest.approx(1.0)
    with short_epochs():
        costs = noised_costs(_one_event_per_step(22))
    assert costs[0] == pytest.approx(0.5)
    assert costs[1:] == pytest.approx(1.0)

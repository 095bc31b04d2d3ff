"""Trips by replay: whatever the noise happens to write, world B asks the same and releases the same.

The registry has the worst transcripts (duels) and the twins.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import synthgeo as sg
from audits.traced import traced
from audits.trips import across, measured_of_many
from synthgeo.auditing.duels import ReplayNoise, duel
from synthgeo.auditing.neighbours import unique_trip

BOX = sg.BoxDomain(0, 0, 1, 1)
PAIR = unique_trip(BOX)
EPSILON = 1.0


def replay(pair, *, seed, max_depth=8):
    """Log-likelihood ratio of the transcript, and the models of both worlds."""
    source = ReplayNoise(seed)
    models = []
    for number, world in enumerate(pair):
        if number:
            source.rewind()
        model = sg.TrajectorySynthesizer(
            domain=BOX,
            budget=sg.PrivacyBudget(EPSILON),
            noise=source,
            settings=sg.TripSettings(max_depth=max_depth, cleaning=False),
        ).fit(world)
        models.append(model.model)
    return source.finish(), models


def test_every_transcript_stays_within_epsilon():
    ratios = []
    with traced():
        for seed in range(6):
            for pair in (PAIR, PAIR[::-1]):
                ratio, models = replay(pair, seed=seed)
                ratios.append(abs(ratio))
                for one, other in zip(*(model.measured.arrays().values() for model in models), strict=True):
                    np.testing.assert_array_equal(one, other)
    assert max(ratios) <= EPSILON
    assert max(ratios) > 0.2 * EPSILON


@pytest.mark.parametrize("other", [across(400, seed=7), across(1, seed=8)], ids=["fewer", "one"])
def test_whatever_is_released_follows_from_the_answers(other):
    """Worlds that are no neighbours get the same answers: they choose the same cells, parts, blocks, zones
    and segments then, or some choice looked at the trips themselves.
    """
    with traced(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one, two = duel(measured_of_many, (across(1000), other), push=0.0).results
    assert one.zones.trips.shape[:2] == (2, 2)
    assert one.halvings.any()
    for ours, theirs in zip(*(found.arrays().values() for found in (one, two)), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_calibration_adds_nothing_of_the_data():
    """Everything in the model, after the whole of post-processing, is the same in both worlds."""
    _, (one, other) = replay(PAIR, seed=1, max_depth=5)
    compared = 0
    for name, value in vars(one).items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(value, getattr(other, name))
            compared += 1
    assert compared >= 3
    np.testing.assert_array_equal(one.pairs.count, other.pairs.count)

"""Trips by replay: whatever the noise happens to write, world B asks the same and releases the same.

The registry has the worst transcripts (duels) and the twins.
"""

from __future__ import annotations

import numpy as np

import synthgeo as sg
from benchmarks.audits.traced import traced
from synthgeo.auditing.neighbours import unique_trip
from synthgeo.auditing.replay import ReplayNoise

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
            domain=BOX, budget=sg.PrivacyBudget(EPSILON), noise=source, max_depth=max_depth, cleaning=False
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

"""Audits of the trajectory synthesizer: exact by replay, and the errata of the paper as twins."""

from __future__ import annotations

import numpy as np
import pytest

import synthgeo as sg
import trajectories.synthesizer as module
from synthgeo.audit.neighbours import unique_trip
from synthgeo.audit.replay import ReplayError, ReplayNoise
from synthgeo.partition.cells import Partition
from synthgeo.partition.privtree import GRID, SplitRule
from trajectories.origin_destination import measure_pairs
from trajectories.transitions import count_links, measure_links

BOX = sg.BoxDomain(0, 0, 1, 1)
PAIR = unique_trip(BOX)
EPSILON = 1.0


def replay(pair, *, seed, noise=ReplayNoise):
    source = noise(seed)
    models = []
    for number, world in enumerate(pair):
        if number:
            source.rewind()
        model = sg.TrajectorySynthesizer(
            domain=BOX, budget=sg.PrivacyBudget(EPSILON), noise=source, max_depth=8, cleaning=False
        ).fit(world)
        models.append(model.model)
    return source.finish(), models


@pytest.fixture
def measured(monkeypatch):
    """What the measurements hand to calibration, kept in order; calibration itself, which is slow, is left
    out.
    """
    kept = []

    def keep(blank, found, rng):
        kept.append(
            np.concatenate([found.links, found.pairs.count, found.lengths.ravel(), blank.partition.bits])
        )
        return blank

    monkeypatch.setattr(module, "calibrate", keep)
    return kept


class SixthOfTheNoise(ReplayNoise):
    """Twin: every scale divided by six."""

    def discrete_laplace(self, scale, size=None):
        return super().discrete_laplace(scale / 6, size)


def test_every_transcript_stays_within_epsilon(measured):
    ratios = []
    for seed in range(6):
        for pair in (PAIR, PAIR[::-1]):
            ratios.append(abs(replay(pair, seed=seed)[0]))
            np.testing.assert_array_equal(measured[-1], measured[-2])
    assert max(ratios) <= EPSILON
    assert max(ratios) > 0.2 * EPSILON


def test_calibration_adds_nothing_of_the_data():
    _, (one, other) = replay(PAIR, seed=1)
    for name in ("link_cost", "cell_weight", "end_weight"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


@pytest.mark.usefixtures("measured")
def test_a_sixth_of_the_noise_is_caught():
    ratios = [abs(replay(PAIR, seed=seed, noise=SixthOfTheNoise)[0]) for seed in range(8)]
    assert max(ratios) > EPSILON


def test_true_transitions_in_the_walk_are_caught(monkeypatch, measured):
    """Algorithm 20, line 4: the walk uses the true weights after the noisy ones were paid for."""

    def leaky(graph, states, start, **options):
        measure_links(graph, states, start, **options)
        return GRID.value(count_links(graph, states, start, options["weights"]))

    monkeypatch.setattr(module, "measure_links", leaky)
    replay(PAIR, seed=1)
    assert not np.array_equal(measured[-1], measured[-2])


CELLS = Partition(np.arange(16, dtype=np.uint64), np.full(16, 4), np.full(16, 1 / 16))
CROWD = np.zeros(6, dtype=np.int64), np.full(6, 3)
WITH_ONE_MORE = np.append(CROWD[0], 15), np.append(CROWD[1], 2)


def pairs(ends, noise):
    return measure_pairs(*ends, CELLS, epsilon_tree=0.5, epsilon_count=0.5, noise=noise).count


def pairs_without_empties(ends, noise):
    """Twin: nodes that no trip falls into are neither tested nor given noise."""
    code, counts = np.unique(ends[0] * 16 + ends[1], return_counts=True)
    rule = SplitRule(0.5, fanout=4)
    rule.decide(counts * GRID.one, 1, noise)
    return counts + noise.discrete_laplace(2.0, code.size)


@pytest.mark.parametrize("seed", range(8))
def test_origin_destination_pairs(seed):
    noise = ReplayNoise(seed)
    one = pairs(CROWD, noise)
    noise.rewind()
    other = pairs(WITH_ONE_MORE, noise)
    assert abs(noise.finish()) <= 1.0
    np.testing.assert_array_equal(one, other)


def test_skipping_empty_pairs_is_an_infinite_loss():
    noise = ReplayNoise(1)
    pairs_without_empties(CROWD, noise)
    noise.rewind()
    with pytest.raises(ReplayError, match="differs"):
        pairs_without_empties(WITH_ONE_MORE, noise)

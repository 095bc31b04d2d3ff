"""Budgets added up by hand, as docs/how-to/check-by-hand.md does it: from the statement and the scales."""

from __future__ import annotations

import math
from unittest import mock

import numpy as np
import pytest

import synthgeo as sg
import synthgeo.privacy.filter
import trajectories.setup
from synthgeo.auditing.neighbours import unique_trip
from synthgeo.hierarchy.privtree import GRID
from synthgeo.privacy.accountant import approximate_dp_of_zcdp
from tests.contract.products import BOX, SCHEMA, rows

ONE = sg.PrivacyBudget(1.0)


class Watched(sg.SeededNoise):
    """Noise that writes down its scales, and for how many numbers they are."""

    def __init__(self, seed=1):
        super().__init__(seed)
        self.laplace, self.gaussian = [], []

    def discrete_laplace(self, scale, size=None):
        self.laplace.append((float(np.max(scale)), size))
        return super().discrete_laplace(scale, size)

    def discrete_gaussian(self, sigma, size=None):
        self.gaussian.append((float(sigma), size))
        return super().discrete_gaussian(sigma, size)


@pytest.fixture
def choices(monkeypatch):
    """ε of each choice that a table makes."""
    made, choose = [], synthgeo.privacy.filter.exponential_mechanism

    def watched(scores, *, epsilon, **options):
        made.append(epsilon)
        return choose(scores, epsilon=epsilon, **options)

    monkeypatch.setattr(synthgeo.privacy.filter, "exponential_mechanism", watched)
    return made


def tree(scale, fanout):
    """What a tree costs, by the page."""
    return (2 * fanout - 1) / ((fanout - 1) * scale)


def test_points():
    noise = Watched()
    stream = sg.PHDStream(domain=BOX, budget=ONE, max_depth=4, noise=noise)
    points = np.random.default_rng(1).random((2, 50, 2))
    said = stream.update(points[0]).provenance
    scales = {scale for scale, _ in noise.laplace}
    assert scales == {6.0 * GRID.one, 2.0}
    assert tree(6.0, said["fanout"]) == said["structure_share"]
    assert tree(6.0, said["fanout"]) + 1 / 2.0 == said["budget"]["epsilon"]
    noise.laplace.clear()
    stream.update(points[1])
    assert {scale for scale, _ in noise.laplace} == {1.0}


def test_a_table_at_pure_epsilon(choices):
    noise = Watched()
    made = sg.TabularSynthesizer(schema=SCHEMA, budget=ONE, iterations=20, noise=noise, progress=False)
    said = made.fit(rows(300, 1)).sample(1).provenance
    scores = 3  # of all pairs, after the three columns
    costs = [(scores if i == 3 else 1) / scale for i, (scale, _) in enumerate(noise.laplace)]
    assert len(costs) == 1 + len(said["marginals"])
    assert said["selection"] == "scores"
    assert not choices
    assert sum(costs[:3]) == pytest.approx(0.25)
    assert costs[3] == pytest.approx(0.1)
    assert sum(costs) == pytest.approx(said["budget"]["epsilon"])


def test_a_table_in_zero_concentrated_privacy(choices):
    noise, budget = Watched(), sg.PrivacyBudget(1.0, 1e-6)
    made = sg.TabularSynthesizer(
        schema=SCHEMA, budget=budget, selection="mwem", rounds=3, iterations=20, noise=noise, progress=False
    )
    said = made.fit(rows(300, 1)).sample(1).provenance
    rho = sum(1 / (2 * sigma**2) for sigma, _ in noise.gaussian) + sum(epsilon**2 / 8 for epsilon in choices)
    assert len(noise.gaussian) == 6
    assert len(choices) == 3
    assert 0.95 <= approximate_dp_of_zcdp(rho, said["budget"]["delta"]) <= said["budget"]["epsilon"] + 1e-9


def test_trips():
    noise = Watched()
    made = sg.TrajectorySynthesizer(domain=BOX, budget=ONE, noise=noise, max_depth=6, cleaning=False)
    with mock.patch.object(trajectories.setup, "calibrate", lambda blank, *_: blank):  # slow, and free
        said = made.fit(unique_trip(BOX)[1])._statement
    shares, scales = said["shares"], [scale for scale, _ in noise.laplace]
    assert sum(shares.values()) == pytest.approx(said["budget"]["epsilon"])
    ends, blocks, counts = 0.55 * shares["pairs"] / 2, 0.02 * shares["pairs"], 0.43 * shares["pairs"]
    for wanted in (2 / ends, 1 / counts, 1 / shares["lengths"], GRID.one / shares["transitions"]):
        assert any(math.isclose(scale, wanted) for scale in scales)
    assert any(tree(scale / GRID.one, 4) == pytest.approx(blocks) for scale in scales)


def test_a_series():
    noise = Watched()
    made = sg.series.LPA(budget=ONE, horizon=10, noise=noise)
    for value in range(10):
        made.update(value)
    assert sum(1 / scale for scale, _ in noise.laplace) == pytest.approx(made.budget.epsilon)

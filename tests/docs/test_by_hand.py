"""Budgets added up by hand, as docs/how-to/check-by-hand.md does it: from the statement and the scales."""

from __future__ import annotations

import math
from unittest import mock

import numpy as np
import pytest

import synthgeo as sg
import synthgeo.privacy.filter
import tabular.over_time.every_step
import trajectories.setup
from synthgeo.auditing.neighbours import unique_trip
from synthgeo.hierarchy.privtree import GRID
from synthgeo.privacy.accountant import approximate_dp_of_zcdp
from tests.contract.products import (
    BOX,
    SCHEMA,
    households,
    panel,
    rows,
    trip_batches,
    trip_stream,
    two_tables,
    waves,
)

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


def test_a_table_over_time():
    """Rows, columns, and the scores that marginals are chosen by."""
    noise = Watched()
    said = sg.TabularStream(schema=SCHEMA, budget=ONE, noise=noise).update(rows(300, 0)).provenance
    rows_counter = [scale for scale, size in noise.laplace if size == 2]
    *columns, scores = [found for found in noise.laplace if found[1] > 2]
    assert rows_counter == pytest.approx([20.0])
    assert [scale for scale, _ in columns] == pytest.approx([3.75] * 3)
    assert scores == (pytest.approx(30.0), 3)
    assert 3 / 30.0 == pytest.approx(said["structure_share"])
    spent = 2 / 20.0 + sum(1 / scale for scale, _ in columns) + 3 / 30.0
    assert spent == pytest.approx(said["budget"]["epsilon"])


def test_a_table_over_time_with_marginals_chosen_at_every_step(monkeypatch):
    made, choose = [], tabular.over_time.every_step.exponential_mechanism

    def watched(scores, *, epsilon, **options):
        made.append(epsilon)
        return choose(scores, epsilon=epsilon, **options)

    monkeypatch.setattr(tabular.over_time.every_step, "exponential_mechanism", watched)
    noise = Watched()
    stream = sg.TabularStream(schema=SCHEMA, budget=ONE, schedule="every_step", noise=noise)
    said = stream.update(rows(300, 0)).provenance
    share, picks = said["structure_share"], said["marginals_per_step"]
    assert made == pytest.approx([share / picks] * 3)
    assert [scale for scale, _ in noise.laplace] == pytest.approx([picks / (1 - share)] * 3)
    assert sum(made) + sum(1 / scale for scale, _ in noise.laplace) == pytest.approx(0.75)


def test_two_tables(choices):
    noise, options = Watched(), households("").options
    made = households("").make(noise=noise)
    made.fit(*two_tables()[0])
    columns = len(options["parent"].columns) + 1  # and the number of children
    ours, theirs = noise.laplace[: 2 * columns], noise.laplace[2 * columns :]
    scores = len(options["child"].columns)  # the draw after the columns: all scores are moved by one record
    costs = [(size if i == scores else 1) / scale for i, (scale, size) in enumerate(theirs)]
    assert sum(1 / scale for scale, _ in ours) == pytest.approx(0.2)
    assert 3 * costs[scores] == pytest.approx(0.08)
    assert 3 * sum(costs) == pytest.approx(made.budget.epsilon - 0.2)
    assert not choices


def test_a_panel():
    noise = Watched()
    stream = panel("").make(noise=noise)
    for number, wave in enumerate(waves()):
        stream.update(wave)
        costs = [1 / scale for scale, _ in noise.laplace]
        assert sum(costs) == pytest.approx(stream.budget.epsilon / stream.unit.max_contributions)
        assert not number or sum(costs[:4]) == pytest.approx(0.03)
        noise.laplace.clear()


def test_trips_over_time():
    noise = Watched()
    stream = trip_stream("").make(noise=noise)
    for number, batch in enumerate(trip_batches()[:2]):
        shares = stream.update(batch).provenance["shares"]
        assert sum(shares.values()) == pytest.approx(stream.budget.epsilon)
        assert ("cells" in shares) == (number == 0)
        ends, counts = 0.55 * 0.4 * shares["pairs"], (0.45 if number else 0.43) * shares["pairs"]
        wanted = {2 / ends, 1 / counts, GRID.one / shares["transitions"], 1 / shares["recording"]}
        drawn = {scale for scale, _ in noise.laplace}
        for one in wanted:
            assert any(math.isclose(scale, one) for scale in drawn)
        tree_of_pairs = drawn - {scale for scale in drawn if any(math.isclose(scale, one) for one in wanted)}
        blocks = [tree(scale / GRID.one, 4) for scale in tree_of_pairs]
        assert blocks == pytest.approx([] if number else [0.02 * shares["pairs"]])
        noise.laplace.clear()


def test_trips():
    noise = Watched()
    made = sg.TrajectorySynthesizer(domain=BOX, budget=ONE, noise=noise, max_depth=6, cleaning=False)
    with mock.patch.object(trajectories.setup, "calibrate", lambda blank, *_: blank):  # slow, and free
        said = made.fit(unique_trip(BOX)[1])._statement
    shares, scales = said["shares"], [scale for scale, _ in noise.laplace]
    assert sum(shares.values()) == pytest.approx(said["budget"]["epsilon"])
    ends, blocks, counts = 0.55 * 0.4 * shares["pairs"], 0.02 * shares["pairs"], 0.43 * shares["pairs"]
    for wanted in (2 / ends, 1 / counts, 1 / shares["lengths"], GRID.one / shares["transitions"]):
        assert any(math.isclose(scale, wanted) for scale in scales)
    assert any(tree(scale / GRID.one, 4) == pytest.approx(blocks) for scale in scales)


def test_a_series():
    noise = Watched()
    made = sg.series.LPA(budget=ONE, horizon=10, noise=noise)
    for value in range(10):
        made.update(value)
    assert sum(1 / scale for scale, _ in noise.laplace) == pytest.approx(made.budget.epsilon)

"""Audits of the table synthesizer: exact by replay, and the twins that replay catches."""

from __future__ import annotations

import numpy as np
import pytest

import synthgeo as sg
import synthgeo.privacy.filter
import tabular.once as module
from synthgeo.auditing.duels import ReplayNoise, replayed_selection
from synthgeo.auditing.neighbours import marginal_flip, rare_record
from tabular.once import TabularSynthesizer

SCHEMA = sg.Schema({name: sg.Categorical(["0", "1"]) for name in "abc"})
PAIRS = {"flip": marginal_flip(), "rare": rare_record()}
EPSILON = 1.0


class TrueTotal(TabularSynthesizer):
    """The true number of rows handed to the fit."""

    def _privatise(self, spending, schema, singles, count):
        self.public_total = int(singles["a",].sum())
        return super()._privatise(spending, schema, singles, count)


class ThirdOfTheNoise(ReplayNoise):
    def discrete_laplace(self, scale, size=None):
        return super().discrete_laplace(scale / 3, size)


@pytest.fixture(autouse=True)
def _traced(monkeypatch):
    """Selections go on the tape; fits are quick. What is audited is what goes into them."""
    fit = module.fit

    def quick(*args, **options):
        return fit(*args, **{**options, "iterations": 5})

    monkeypatch.setattr(module, "fit", quick)
    monkeypatch.setattr(synthgeo.privacy.filter, "exponential_mechanism", replayed_selection)


def replay(pair, *, seed, kind=TabularSynthesizer, noise=ReplayNoise, **options):
    """Log-likelihood ratio of the transcript, and what both worlds release."""
    source = noise(seed)
    released = []
    for number, world in enumerate(pair):
        if number:
            source.rewind()
        model = kind.from_options(
            schema=SCHEMA, budget=sg.PrivacyBudget(EPSILON), noise=source, **options
        ).fit(world)
        cliques = [("a",), ("a", "b"), ("b", "c")]
        expected = model.sample(0).marginals(cliques)
        released.append(np.concatenate([expected[clique].ravel() for clique in cliques]))
    return source.finish(), released


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("selection", ["auto", "annealed", "mwem"])
def test_every_transcript_stays_within_epsilon(name, selection):
    ratios = []
    for seed in range(4):
        for pair in (PAIRS[name], PAIRS[name][::-1]):
            ratio, (one, other) = replay(pair, seed=seed, selection=selection)
            ratios.append(abs(ratio))
            np.testing.assert_array_equal(one, other)
    assert max(ratios) <= EPSILON
    # Not vacuous: some transcript tells something.
    assert max(ratios) > 0.2 * EPSILON


def test_a_third_of_the_noise_is_caught():
    ratios = [abs(replay(PAIRS["rare"], seed=seed, noise=ThirdOfTheNoise)[0]) for seed in range(6)]
    assert max(ratios) > EPSILON


def test_a_true_total_changes_what_is_released():
    _, (one, other) = replay(PAIRS["rare"], seed=1, kind=TrueTotal)
    assert not np.array_equal(one, other)

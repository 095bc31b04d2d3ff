"""Audits of the table synthesizer: exact by replay, and the twins that replay catches."""

from __future__ import annotations

import numpy as np
import pytest

import synthgeo as sg
import tabular.synthesizer as module
from synthgeo.audit.neighbours import marginal_flip, rare_record
from synthgeo.privacy.noise import SeededNoise
from tabular.synthesizer import TabularSynthesizer
from tests.audit.replay import Tape, recording_purse

SCHEMA = sg.Schema({name: sg.Categorical(["0", "1"]) for name in "abc"})
PAIRS = {"flip": marginal_flip(), "rare": rare_record()}
EPSILON = 1.0


class TrueTotal(TabularSynthesizer):
    """The true number of rows handed to the fit."""

    def _privatise(self, purse, counts):
        self.public_total = int(counts["a",].sum())
        super()._privatise(purse, counts)


@pytest.fixture
def plain_fit(monkeypatch):
    """Fits without compilation: tiny tables, few iterations. What is audited is what goes into them."""
    fit = module.fit

    def quick(*args, compiled=False, **options):
        return fit(*args, compiled=False, **{**options, "iterations": 5})

    monkeypatch.setattr(module, "fit", quick)


def replay(monkeypatch, pair, *, seed, kind=TabularSynthesizer, selection="annealed", **twin):
    """Log-likelihood ratio of the transcript, and the models that both worlds release."""
    tape = Tape()
    monkeypatch.setattr(module, "Purse", recording_purse(tape, **twin))
    released = []
    for world in pair:
        if tape.entries:
            tape.rewind()
        model = kind(
            schema=SCHEMA, budget=sg.PrivacyBudget(EPSILON), noise=SeededNoise(seed), selection=selection
        )
        model.fit(world)
        cliques = [("a",), ("a", "b"), ("b", "c")]
        expected = model._snapshot.expected(cliques)
        released.append(np.concatenate([expected[clique].ravel() for clique in cliques]))
    assert tape.position == len(tape.entries)
    return tape.log_ratio, released


@pytest.mark.usefixtures("plain_fit")
class TestReplay:
    @pytest.mark.parametrize("name", PAIRS)
    @pytest.mark.parametrize("selection", ["annealed", "mwem"])
    def test_every_transcript_stays_within_epsilon(self, monkeypatch, name, selection):
        ratios = []
        for seed in range(4):
            for pair in (PAIRS[name], PAIRS[name][::-1]):
                ratio, (one, other) = replay(monkeypatch, pair, seed=seed, selection=selection)
                ratios.append(abs(ratio))
                np.testing.assert_array_equal(one, other)
        assert max(ratios) <= EPSILON
        # Not vacuous: some transcript tells something.
        assert max(ratios) > 0.2 * EPSILON

    def test_a_third_of_the_noise_is_caught(self, monkeypatch):
        ratios = [abs(replay(monkeypatch, PAIRS["rare"], seed=s, noise_factor=1 / 3)[0]) for s in range(6)]
        assert max(ratios) > EPSILON

    def test_a_true_total_changes_what_is_released(self, monkeypatch):
        _, (one, other) = replay(monkeypatch, PAIRS["rare"], seed=1, kind=TrueTotal)
        assert not np.array_equal(one, other)


def test_a_selection_at_twice_the_exponent_is_caught():
    """Algorithm 13's exponent on the flip: the scores move in opposite directions, so the ratio exceeds the
    share.
    """
    from synthgeo.audit.whitebox import exponential_law, law_loss

    up, down = np.array([1.0, *[-1.0] * 20]) / 2, np.array([-1.0, *[1.0] * 20]) / 2
    share = 0.4
    assert law_loss(exponential_law(up, share / 2), exponential_law(down, share / 2)) <= share
    assert law_loss(exponential_law(up, share), exponential_law(down, share)) > 1.5 * share

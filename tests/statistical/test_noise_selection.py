"""The selection mechanisms draw from the distributions that their proofs are about.

Seeded; over the choice of seed a correct mechanism is rejected with probability about 1e-9 a test
(chi-square, expected counts of 100 and more). Twins: ε 5 % too large (exponential mechanism), the monotonic
exponent where it is not due.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad

from synthgeo.privacy.noise import SeededNoise
from synthgeo.privacy.selection import exponential_mechanism, permute_and_flip
from tests.statistical.goodness import chi_square_rejects

pytestmark = pytest.mark.statistical
CASES = {
    "spread": np.array([0.0, 1.0, 2.5, 3.0]),
    "equal": np.zeros(5),
    "huge, far from zero": 1e15 + np.array([0.0, 1.0, 2.0]),
    "negative, one impossible": np.array([-3.0, -1.0, -np.inf, -1.5]),
}


def softmax(scores: np.ndarray, rate: float) -> np.ndarray:
    weights = np.exp(rate * (scores - scores.max()))
    return weights / weights.sum()


def permute_and_flip_law(scores: np.ndarray, rate: float) -> np.ndarray:
    """P(i) = p_i ∫ Π (1 - t p_j) dt over j != i (see the module's docstring)."""
    p = np.exp(rate * (scores - scores.max()))
    return np.array(
        [p[i] * quad(lambda t, i=i: np.prod(1 - t * np.delete(p, i)), 0, 1)[0] for i in range(p.size)]
    )


def counts(mechanism, scores: np.ndarray, n: int, *, seed: int, **options) -> np.ndarray:
    noise = SeededNoise(seed)
    chosen = [mechanism(scores, sensitivity=1.0, noise=noise, **options) for _ in range(n)]
    return np.bincount(chosen, minlength=scores.size)


def rejected(observed: np.ndarray, law: np.ndarray) -> bool:
    possible = law > 0
    assert not observed[~possible].any()
    return chi_square_rejects(observed[possible], law[possible])


@pytest.mark.parametrize("name", CASES)
def test_exponential_mechanism(name):
    scores = CASES[name]
    observed = counts(exponential_mechanism, scores, 12_000, seed=1, epsilon=1.6)
    assert not rejected(observed, softmax(scores, 0.8))


@pytest.mark.parametrize("name", CASES)
def test_permute_and_flip(name):
    scores = CASES[name]
    observed = counts(permute_and_flip, scores, 12_000, seed=2, epsilon=1.6)
    assert not rejected(observed, permute_and_flip_law(scores, 0.8))


@pytest.mark.parametrize("mechanism", [exponential_mechanism, permute_and_flip])
def test_monotonic_doubles_the_exponent_and_is_noticed(mechanism):
    scores = CASES["spread"]
    law = softmax if mechanism is exponential_mechanism else permute_and_flip_law
    observed = counts(mechanism, scores, 12_000, seed=3, epsilon=0.8, monotonic=True)
    assert not rejected(observed, law(scores, 0.8))
    assert rejected(observed, law(scores, 0.4))


def test_five_per_cent_more_epsilon_is_noticed():
    """Two candidates, score gap 40, ε = 0.1: odds e^2 against e^2.1. 60,000 draws put the twin 13 standard
    errors off."""
    scores = np.array([0.0, 40.0])
    observed = counts(exponential_mechanism, scores, 60_000, seed=4, epsilon=0.105)
    assert chi_square_rejects(observed, softmax(scores, 0.05))
    assert not chi_square_rejects(observed, softmax(scores, 0.0525))


def test_the_two_mechanisms_are_told_apart():
    observed = counts(permute_and_flip, CASES["spread"], 12_000, seed=5, epsilon=1.6)
    assert rejected(observed, softmax(CASES["spread"], 0.8))

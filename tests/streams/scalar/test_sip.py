"""Sequence Information Privacy and randomised response: exact likelihood ratios on small alphabets."""

from __future__ import annotations

import math
from itertools import pairwise, product

import numpy as np
import pytest
from scipy.stats import binom

import synthgeo as sg
from streams.scalar import sip_channel as channels

S = sg.series
RNG = np.random.default_rng(12)
P2 = [[0.85, 0.15], [0.3, 0.7]]
P3 = [[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.25, 0.25, 0.5]]


def beliefs(k: int, count: int):
    yield np.full(k, 1 / k)
    yield np.eye(k)[0]  # the observer is certain
    for concentration in (0.1, 1.0, 10.0):
        for _ in range(count):
            yield RNG.dirichlet(np.full(k, concentration))


def hamming(k: int) -> np.ndarray:
    return 1.0 - np.eye(k)


def absolute(k: int) -> np.ndarray:
    return np.abs(np.subtract.outer(np.arange(k), np.arange(k))).astype(float)


# Channels
# --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [2, 3, 5])
@pytest.mark.parametrize("epsilon", [0.05, 0.5, 1.0, 3.0])
def test_a_channel_never_leaks_more_than_epsilon_and_gives_twice_that_in_local_privacy(k, epsilon):
    """Exact ratios of the probabilities that are really drawn from."""
    for belief in beliefs(k, 4):
        for distance in (hamming(k), absolute(k)):
            matrix = channels.design(belief, epsilon, distance)
            assert np.all(matrix >= 0)
            assert np.all(matrix * 2.0**52 == np.rint(matrix * 2.0**52))
            assert np.all((matrix * 2.0**52).astype(np.int64).sum(axis=1) == 2**52)
            assert channels.leakage(matrix, belief) <= epsilon
            seen = matrix.max(axis=0) > 0
            logs = np.log(matrix[:, seen])
            assert (logs.max(axis=0) - logs.min(axis=0)).max() <= 2 * epsilon


def test_the_papers_form_leaks_where_a_belief_is_small():
    """ε = 1, β = 0.1: 1.90. As printed, with β(x) off the diagonal, it is no better."""
    belief = np.array([0.1, 0.9])
    assert channels.leakage(channels.closed_form(belief, 1.0), belief) == pytest.approx(1.90, abs=0.005)
    printed = np.array([[1 - 0.9 / math.e, 0.1 / math.e], [0.9 / math.e, 1 - 0.1 / math.e]])
    rows = printed / printed.sum(axis=1, keepdims=True)
    assert channels.leakage(rows, belief) > 1.0
    assert channels.leakage(channels.design(belief, 1.0, hamming(2)), belief) <= 1.0


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 2.0])
def test_the_closed_form_is_valid_exactly_above_its_threshold(epsilon):
    threshold = 1 / (math.exp(epsilon) + 1)
    for small in np.linspace(0.01, 0.5, 50):
        belief = np.array([small, 1 - small])
        leaks = channels.leakage(channels.closed_form(belief, epsilon), belief)
        if abs(small - threshold) > 1e-6:
            assert (
                (leaks <= epsilon + 1e-9)
                == (small >= threshold)
                == channels.closed_form_holds(belief, epsilon)
            )


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("epsilon", [1.5, 3.0])
def test_where_the_closed_form_is_valid_the_programme_finds_nothing_better(k, epsilon):
    """Theorem 4's optimality, checked against the linear programme."""
    checked = 0
    for belief in beliefs(k, 6):
        if not channels.closed_form_holds(belief, epsilon):
            continue
        for distance in (hamming(k), absolute(k)):
            closed = channels.expected_distance(channels.closed_form(belief, epsilon), belief, distance)
            best = channels.expected_distance(
                channels.optimal_channel(belief, epsilon, distance), belief, distance
            )
            assert closed == pytest.approx(best, rel=1e-5, abs=1e-9)
        checked += 1
    assert checked >= 2


def test_propositions_1_and_2_where_the_closed_form_is_valid():
    """Expected error at most 1 / (2 e^ε), below randomised response's 1 / (e^ε + 1); with the programme never
    above the latter.
    """
    for epsilon in (0.1, 0.5, 1.0, 2.0, 4.0):
        respond = 1 / (math.exp(epsilon) + 1)
        for small in np.linspace(0.005, 0.5, 25):
            belief = np.array([small, 1 - small])
            matrix = channels.design(belief, epsilon, hamming(2))
            error = channels.expected_distance(matrix, belief, hamming(2))
            assert error <= respond * (1 + 1e-6)
            if channels.closed_form_holds(belief, epsilon):
                assert error <= 1 / (2 * math.exp(epsilon)) * (1 + 1e-6)


# Whole sequences
# -------------------------------------------------------------------------------------------------


def _joint(mechanism_of, k: int, length: int, batch: int) -> np.ndarray:
    """P(outputs | series) for all series and outputs, by walking the mechanism's own channels."""
    table = np.ones((k,) * length * 2)
    for outputs in product(range(k), repeat=length):
        mechanism = mechanism_of()
        for start in range(0, length, batch):
            matrix = mechanism.channel()
            flat = int(np.ravel_multi_index(outputs[start : start + batch], (k,) * batch))
            for series in product(range(k), repeat=length):
                value = int(np.ravel_multi_index(series[start : start + batch], (k,) * batch))
                table[(*series, *outputs)] *= matrix[value, flat]
            belief = mechanism.belief if batch == 1 else mechanism.batch_belief(batch)
            if (belief @ matrix)[flat] == 0:
                break  # this output is never seen
            known = channels.posterior(matrix, belief, flat)
            if batch > 1:
                last = np.array(list(product(range(k), repeat=batch)))[:, -1]
                known = np.bincount(last, weights=known, minlength=k)
            mechanism._belief = known @ mechanism.transition
    return table.reshape(k**length, k**length)


def _chain(prior, transition, length: int) -> np.ndarray:
    k = len(prior)
    out = []
    for series in product(range(k), repeat=length):
        p = prior[series[0]]
        for a, b in pairwise(series):
            p *= transition[a][b]
        out.append(p)
    return np.array(out)


@pytest.mark.parametrize(
    ("prior", "transition", "length", "batch", "epsilon"),
    [
        ([0.5, 0.5], P2, 4, 1, 3.0),
        ([0.05, 0.95], P2, 4, 1, 1.0),
        ([0.5, 0.5], P2, 4, 2, 2.0),
        ([0.2, 0.3, 0.5], P3, 3, 1, 2.0),
    ],
)
def test_the_leakage_of_a_whole_sequence_is_at_most_epsilon(prior, transition, length, batch, epsilon):
    """max |ln P(series | outputs) / P(series)| over all series and outputs, by enumeration; local privacy at
    2ε.
    """
    options = {
        "budget": sg.PrivacyBudget(epsilon),
        "horizon": length,
        "prior": prior,
        "transition": transition,
    }

    def make():
        return S.SIPInstant(**options) if batch == 1 else S.SIPBatched(batch=batch, **options)

    k = len(prior)
    table = _joint(make, k, length, batch)
    np.testing.assert_allclose(table.sum(axis=1), 1, atol=1e-9)
    chain = _chain(prior, transition, length)
    outputs = chain @ table
    seen = outputs > 1e-15
    with np.errstate(divide="ignore"):
        logs = np.log(table[:, seen])
        leak = np.abs(logs - np.log(outputs[seen]))
    assert leak.max() <= epsilon * (1 + 1e-9)
    assert leak.max() > 0.4 * epsilon
    assert (logs.max(axis=0) - logs.min(axis=0)).max() <= 2 * epsilon * (1 + 1e-9)


@pytest.mark.parametrize(
    ("prior", "transition"), [([0.5, 0.5], [[0.9, 0.1], [0.1, 0.9]]), ([0.5, 0.5], P2), ([0.2, 0.8], P2)]
)
def test_batches_improve_on_instantaneous_release(prior, transition):
    """Expected distance a value, for the same ε a value: exact, over the first four values."""
    options = {"budget": sg.PrivacyBudget(4.0), "horizon": 4, "prior": prior, "transition": transition}
    table = _joint(lambda: S.SIPInstant(**options), 2, 4, 1)
    chain = _chain(prior, transition, 4)
    sequences = np.array(list(product((0, 1), repeat=4)))
    apart = np.abs(sequences[:, None] - sequences[None]).sum(axis=2)
    instant = float((chain[:, None] * table * apart).sum()) / 4
    errors = []
    for batch in (2, 4):
        table = _joint(lambda batch=batch: S.SIPBatched(batch=batch, **options), 2, 4, batch)
        errors.append(float((chain[:, None] * table * apart).sum()) / 4)
    assert errors[1] < errors[0] < instant


def test_the_belief_is_the_bayesian_posterior():
    """Against the forward algorithm over the channels used."""
    mechanism = S.SIPInstant(
        budget=sg.PrivacyBudget(12.0),
        horizon=12,
        prior=[0.2, 0.3, 0.5],
        transition=P3,
        noise=sg.SeededNoise(1),
    )
    belief = np.array([0.2, 0.3, 0.5])
    for value in (0, 0, 1, 2, 2, 1):
        matrix = mechanism.channel()
        output = int(mechanism.update(value))
        belief = belief * matrix[:, output]
        belief = belief / belief.sum() @ np.array(P3)
        np.testing.assert_allclose(mechanism.belief, belief, rtol=1e-9)


def test_states_are_numbers_of_any_kind_and_gaps_move_the_belief():
    mechanism = S.SIPInstant(
        budget=sg.PrivacyBudget(9.0),
        horizon=9,
        prior=[0.1, 0.9],
        transition=P2,
        states=[-5, 40],
        missing="public",
        noise=sg.SeededNoise(1),
    )
    assert mechanism.update(math.nan) == 40  # the most probable state
    np.testing.assert_allclose(mechanism.belief, np.array([0.1, 0.9]) @ P2)
    assert mechanism.update(-5) in (-5, 40)
    with pytest.raises(sg.InputError, match="row 2"):
        mechanism.update(3)


def test_a_rest_shorter_than_a_batch_is_released_with_its_own_share():
    mechanism = S.SIPBatched(
        budget=sg.PrivacyBudget(7.0),
        horizon=7,
        prior=[0.5, 0.5],
        transition=P2,
        batch=3,
        noise=sg.SeededNoise(1),
    )
    assert mechanism.run([0, 1, 1, 0, 1, 1, 0]).shape == (7,)
    assert mechanism.spent.epsilon == pytest.approx(7.0)
    with pytest.raises(sg.InputError, match="3 values"):
        mechanism.update([0, 1])


def test_too_many_sequences_are_refused_with_a_clear_word():
    with pytest.raises(sg.ConfigError, match="128 sequences"):
        S.SIPBatched(budget=sg.PrivacyBudget(1.0), horizon=14, prior=[0.5, 0.5], transition=P2, batch=7)


# Randomised response
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [2, 3, 10])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_randomised_response_has_exactly_its_ratio(k, epsilon):
    mechanism = S.RandomizedResponse(budget=sg.PrivacyBudget(epsilon * 7), horizon=7, states=list(range(k)))
    matrix = mechanism.channel()
    np.testing.assert_allclose(matrix.sum(axis=1), 1)
    assert np.log(matrix.max(axis=0) / matrix.min(axis=0)) == pytest.approx(epsilon)
    assert 7 * mechanism.step_epsilon == pytest.approx(mechanism.budget.epsilon)


@pytest.mark.statistical
@pytest.mark.parametrize("kind", ["response", "sip"])
def test_outputs_are_drawn_with_the_probabilities_of_the_channel(kind):
    """Exact binomial tails at 10^-10 on each of four cells (flake 10^-9). Power: probabilities 0.035 off are
    rejected.
    """
    n = 60_000 if kind == "response" else 20_000
    counts = np.zeros((2, 2))
    if kind == "response":
        mechanism = S.RandomizedResponse(
            budget=sg.PrivacyBudget(2.0 * n), horizon=2 * n, noise=sg.SeededNoise(3)
        )
        matrix = mechanism.channel()
        for value in (0, 1):
            counts[value] = np.bincount(mechanism.run(np.full(n, value)).astype(int), minlength=2)
    else:
        matrix = channels.design(np.array([0.3, 0.7]), 0.8, hamming(2))
        noise = sg.SeededNoise(3)
        for value in (0, 1):
            counts[value] = np.bincount([channels.draw(matrix, value, noise) for _ in range(n)], minlength=2)

    def accepted(p, hits):
        return binom.cdf(hits, n, p) > 1e-10 and binom.sf(hits - 1, n, p) > 1e-10

    for value in (0, 1):
        for output in (0, 1):
            assert accepted(matrix[value, output], counts[value, output])
            assert not accepted(matrix[value, output] + 0.035, counts[value, output])
            assert not accepted(matrix[value, output] - 0.035, counts[value, output])

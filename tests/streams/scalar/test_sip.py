"""Sequence Information Privacy and randomised response: exact likelihood ratios on small alphabets."""

from __future__ import annotations

import math
from itertools import pairwise, product

import numpy as np
import pytest
from scipy.stats import binom

import synthgeo as sg
from streams.scalar import channels as channels
from streams.scalar import sip

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
            mechanism._belief.joint = known @ mechanism.transition
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
    """Expected distance per value, for the same ε per value: exact, over the first four values."""
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
    with pytest.raises(sg.ConfigError, match="more sequences than the 512"):
        S.SIPBatched(budget=sg.PrivacyBudget(1.0), horizon=20, prior=[0.5, 0.5], transition=P2, batch=10)


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


# Many sequences, memory, orders, windows, points, distances, δ
# ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.5])
def test_adding_outputs_as_they_pay_finds_the_best_channel(epsilon):
    """On programmes that can be solved in full; the announced gap is a bound on what is lost."""
    for belief in beliefs(8, 2):
        for distance in (hamming(8), absolute(8)):
            full = channels.expected_distance(
                channels.optimal_channel(belief, epsilon, distance), belief, distance
            )
            few, gap = channels.outputs_channel(belief, epsilon, distance, tolerance=0.01)
            found = channels.expected_distance(few, belief, distance)
            assert full * (1 - 1e-4) - 1e-6 <= found <= full * (1 + gap + 1e-3) + 1e-6
            assert gap <= 0.02 or found <= 1.02 * full + 1e-6


def test_long_batches_keep_their_leakage_and_improve_on_shorter_ones():
    """128 sequences: more than are solved in full."""
    options = {"prior": [0.5, 0.5], "transition": [[0.9, 0.1], [0.1, 0.9]], "horizon": 28}
    error = {}
    for batch in (2, 7):
        mechanism = S.SIPBatched(
            budget=sg.PrivacyBudget(0.25 * 28), batch=batch, noise=sg.SeededNoise(1), **options
        )
        belief, matrix = mechanism.batch_belief(batch), mechanism.channel()
        assert channels.leakage(matrix, belief) <= 0.25 * batch * (1 + 1e-9)
        sequences = np.array(list(product(range(2), repeat=batch)))
        apart = (sequences[:, None] != sequences[None]).sum(axis=2).astype(float)
        error[batch] = channels.expected_distance(matrix, belief, apart) / batch
    assert error[7] < 0.75 * error[2]


def test_memory_of_earlier_values_gains_nothing():
    """Equation 24 with L = 2: a channel that also sees the value before. The best one is no better than the
    best one without memory, at any belief about the two values.
    """
    for k, epsilon in ((2, 0.5), (3, 1.0), (3, 0.2)):
        for _ in range(4):
            joint = RNG.dirichlet(np.ones(k * k)).reshape(k, k)  # (value before, value)
            wide = np.tile(absolute(k), (k, 1))  # input (before, value) -> output: the value alone counts
            with_memory = channels.optimal_channel(joint.ravel(), epsilon, wide)
            best = channels.expected_distance(with_memory, joint.ravel(), wide)
            alone = channels.optimal_channel(joint.sum(axis=0), epsilon, absolute(k))
            assert best == pytest.approx(
                channels.expected_distance(alone, joint.sum(axis=0), absolute(k)), rel=1e-5, abs=1e-7
            )
            # and averaging the one with memory gives one without, within the same bounds
            given = joint / joint.sum(axis=0)
            averaged = np.einsum("bx,bxy->xy", given, with_memory.reshape(k, k, k))
            assert channels.leakage(averaged, joint.sum(axis=0)) <= epsilon * (1 + 1e-6)


CUBE = np.array([[[0.9, 0.1], [0.4, 0.6]], [[0.3, 0.7], [0.2, 0.8]]])


def test_a_chain_of_second_order_is_believed_as_bayes_would():
    """Beliefs about the next value against the sum over all series of four values."""
    start = np.array([[0.3, 0.2], [0.1, 0.4]])
    mechanism = S.SIPInstant(
        budget=sg.PrivacyBudget(4.0), horizon=4, prior=start, transition=CUBE, noise=sg.SeededNoise(2)
    )
    series = np.array(list(product(range(2), repeat=4)))
    law = start[series[:, 0], series[:, 1]] * CUBE[series[:, 0], series[:, 1], series[:, 2]]
    law *= CUBE[series[:, 1], series[:, 2], series[:, 3]]
    for t in range(4):
        expected = np.bincount(series[:, t], weights=law, minlength=2) / law.sum()
        np.testing.assert_allclose(mechanism.belief, expected, rtol=1e-9)
        channel = mechanism.channel()
        output = int(mechanism.update(t % 2))
        law = law * channel[series[:, t], output]


@pytest.mark.parametrize("batch", [1, 2])
def test_the_whole_series_of_a_second_order_chain_is_protected(batch):
    """All series of four values, all outputs: |ln P(series | outputs) / P(series)| <= ε."""
    start = np.array([[0.3, 0.2], [0.1, 0.4]])
    series = np.array(list(product(range(2), repeat=4)))
    law = start[series[:, 0], series[:, 1]] * CUBE[series[:, 0], series[:, 1], series[:, 2]]
    law *= CUBE[series[:, 1], series[:, 2], series[:, 3]]
    options = {"budget": sg.PrivacyBudget(2.0), "horizon": 4, "prior": start, "transition": CUBE}
    worst = 0.0
    for outputs in product(range(2), repeat=4):
        mechanism = S.SIPInstant(**options) if batch == 1 else S.SIPBatched(**options, batch=batch)
        chance = np.ones(16)
        for t in range(0, 4, batch):
            matrix = mechanism.channel() if batch == 1 else mechanism.channel(batch)
            flat = int(np.ravel_multi_index(outputs[t : t + batch], (2,) * batch))
            here = np.ravel_multi_index(tuple(series[:, t + i] for i in range(batch)), (2,) * batch)
            chance *= matrix[here, flat]
            if not matrix[:, flat].any():
                break
            mechanism._belief.learn(matrix[:, flat], batch)
        if chance.any():
            worst = max(worst, np.abs(np.log(chance / (law @ chance))).max())
    assert worst <= 2.0 * (1 + 1e-9)
    assert worst > 1.0


def test_states_may_be_points_and_distances_a_matrix():
    points = [[0.0, 0.0], [0.0, 1.0], [3.0, 4.0]]
    moves = [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]]
    options = {"prior": [1 / 3] * 3, "transition": moves, "budget": sg.PrivacyBudget(9.0), "horizon": 9}
    mechanism = S.SIPInstant(
        states=points, distance="euclidean", missing="public", noise=sg.SeededNoise(1), **options
    )
    assert mechanism._apart[0, 2] == 5.0
    path = np.array([points[i] for i in (0, 0, 1, 1, 2, 2, 2, 0, 0)])
    released = mechanism.run(path[:5])
    assert released.shape == (5, 2)
    assert all(row in points for row in released.tolist())
    assert mechanism.update([math.nan, 0.0]).tolist() in points
    with pytest.raises(sg.InputError, match="row 6 is not one of the states"):
        mechanism.run([[1.0, 1.0]])
    # A matrix that makes one mistake dear is obeyed.
    dear = np.array([[0.0, 1.0, 1.0], [100.0, 0.0, 1.0], [1.0, 1.0, 0.0]])
    by_matrix = S.SIPInstant(distance=dear, **options).channel()
    by_name = S.SIPInstant(distance="hamming", **options).channel()
    assert by_matrix[1, 0] < by_name[1, 0]
    with pytest.raises(sg.ConfigError, match="3 x 3"):
        S.SIPInstant(distance=[[0.0, 1.0], [1.0, 0.0]], **options)


def test_a_window_renews_the_budget():
    mechanism = S.SIPInstant(
        budget=sg.PrivacyBudget(2.0), window=5, prior=[0.5, 0.5], transition=P2, noise=sg.SeededNoise(1)
    )
    assert mechanism.step_epsilon == pytest.approx(0.4)
    mechanism.run(np.zeros(40))
    assert mechanism.spent == sg.PrivacyBudget(2.0)
    assert "each 5 values" in mechanism.guarantee.protects
    batched = S.SIPBatched(budget=sg.PrivacyBudget(2.0), window=6, batch=3, prior=[0.5, 0.5], transition=P2)
    with pytest.raises(sg.InputError, match="whole batches"):
        batched.run(np.zeros(4))


@pytest.mark.parametrize(("count", "delta"), [(50, 1e-3), (400, 1e-6), (10_000, 1e-9)])
def test_with_a_delta_each_value_may_leak_more(count, delta):
    total = 2.0
    each = sip.largest_leakage(total, count, delta)
    assert each > total / count * 1.5
    assert sip.composed_leakage(each, count, delta) == pytest.approx(total, rel=1e-6)
    assert sip.composed_leakage(each, count, delta) <= total
    # Sharper than the printed theorem (a smaller mean), although both tails are counted.
    assert sip.composed_leakage(each, count, delta) < sip.theorem2_leakage(each, count, delta)
    assert sip.composed_leakage(0.3, 4, 1e-9) == pytest.approx(1.2)  # few values: the plain sum is less


@pytest.mark.slow
def test_the_sum_of_leakages_exceeds_its_bound_less_often_than_delta():
    """Exact, for every series of 10 values: how likely outputs are that move the belief by more than ε."""
    budget, horizon = sg.PrivacyBudget(1.0, 0.05), 10
    moves = np.array([[0.7, 0.3], [0.3, 0.7]])
    series = np.array(list(product(range(2), repeat=horizon)))
    law = 0.5 * moves[series[:, :-1], series[:, 1:]].prod(axis=1)
    beyond = np.zeros(law.size)
    largest = 0.0

    def walk(mechanism, t, chance):
        nonlocal largest
        if t == horizon:
            moved = np.abs(np.log(chance / (law @ chance)))
            largest = max(largest, moved.max())
            beyond[:] += chance * (moved > budget.epsilon)
            return
        channel, before = mechanism.channel(), (mechanism._belief.joint, mechanism._belief.step)
        for output in range(2):
            mechanism._belief.joint, mechanism._belief.step = before
            mechanism._belief.learn(channel[:, output], 1)
            walk(mechanism, t + 1, chance * channel[series[:, t], output])

    mechanism = S.SIPInstant(budget=budget, horizon=horizon, prior=[0.5, 0.5], transition=moves)
    assert mechanism.step_epsilon > 1.1 * budget.epsilon / horizon
    walk(mechanism, 0, np.ones(law.size))
    assert largest > budget.epsilon  # the pure promise is indeed not kept
    assert beyond.max() <= budget.delta


def test_delta_helps_in_accuracy_and_says_what_follows_for_local_privacy():
    options = {"prior": [0.5, 0.5], "transition": [[0.6, 0.4], [0.4, 0.6]], "horizon": 400}
    pure = S.SIPInstant(budget=sg.PrivacyBudget(8.0), **options)
    loose = S.SIPInstant(budget=sg.PrivacyBudget(8.0, 1e-6), **options)
    error = [channels.expected_distance(m.channel(), m.belief, hamming(2)) for m in (pure, loose)]
    assert error[1] < 0.96 * error[0]
    assert pure.local_epsilon == 16.0
    assert loose.local_epsilon < 2 * 400 * loose.step_epsilon
    loose.run(np.zeros(400))
    assert loose.spent.epsilon == pytest.approx(8.0, rel=1e-6)
    assert loose.spent.delta == 1e-6

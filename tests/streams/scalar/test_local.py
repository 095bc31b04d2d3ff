"""Local comparators: unary encoding, likely states, windows, thresholds; chains learnt in public."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

import synthgeo as sg
from streams.scalar import local_baselines
from streams.scalar.channels import MarkovBelief
from streams.scalar.local import encode_unary, pick_one, unary_channel

S = sg.series
P3 = [[0.8, 0.15, 0.05], [0.1, 0.8, 0.1], [0.05, 0.15, 0.8]]


def test_bits_have_the_probabilities_of_optimised_unary_encoding():
    """60,000 values; each share is known to 0.002, five of those are allowed."""
    bits = encode_unary(np.full(60_000, 2), 4, 1.3, sg.SeededNoise(3))
    q = 1 / (math.exp(1.3) + 1)
    np.testing.assert_allclose(bits.mean(axis=0), [q, q, 0.5, q], atol=0.01)


def test_picking_one_of_the_bits_is_the_channel_that_is_announced():
    bits = encode_unary(np.full(60_000, 1), 5, 2.0, sg.SeededNoise(4))
    picked = np.bincount(pick_one(bits, np.random.default_rng(1)), minlength=5) / 60_000
    np.testing.assert_allclose(picked, unary_channel(5, 2.0)[1], atol=0.01)


def test_frequencies_are_estimated_without_bias():
    rng = np.random.default_rng(2)
    values = rng.choice(4, 20_000, p=[0.5, 0.3, 0.15, 0.05])
    mechanism = S.UnaryEncoding(
        states=range(4), budget=sg.PrivacyBudget(20_000.0), horizon=20_000, noise=sg.SeededNoise(5)
    )
    found = mechanism.frequencies(mechanism.encode(values))
    np.testing.assert_allclose(found, np.bincount(values) / values.size, atol=0.03)
    assert mechanism.spent == sg.PrivacyBudget(20_000.0)


def test_unary_encoding_beats_randomised_response_in_frequencies_of_many_states_only():
    """Variances of the estimates at ε = 1: (k - 2 + e^ε) / (e^ε - 1)² against 4 e^ε / (e^ε - 1)²."""
    e = math.e
    for k, better in ((3, False), (64, True)):
        response, unary = k - 2 + e, 4 * e
        assert (unary < response) == better
    assert unary_channel(64, 1.0)[0, 0] < e / (e + 63) * 2  # as a value, it is hardly better


# Likely states
# ----------------------------------------------------------------------------------------------------


def test_the_likely_states_hold_the_coverage_and_no_fewer_would():
    mechanism = S.TemporalResponse(
        prior=[0.2, 0.3, 0.5], transition=P3, budget=sg.PrivacyBudget(10.0), horizon=10, coverage=0.75
    )
    assert mechanism.likely().tolist() == [2, 1]
    belief = mechanism.belief
    assert belief[[2, 1]].sum() >= 0.75 > belief[2]
    channel = mechanism.channel()
    assert channel[:, 0].max() == 0
    np.testing.assert_array_equal(channel[0], channel[1])  # 1 stands in for 0: it is nearer than 2


@pytest.mark.parametrize("coverage", [0.5, 0.9, 1.0])
def test_every_series_is_locally_private_whatever_the_chain_says(coverage):
    """Exact: P(outputs | series) for all pairs of series of three values."""
    options = {"prior": [0.1, 0.2, 0.7], "transition": P3, "budget": sg.PrivacyBudget(1.5), "horizon": 3}
    series = np.array(list(product(range(3), repeat=3)))
    worst = 0.0
    for outputs in product(range(3), repeat=3):
        mechanism = S.TemporalResponse(coverage=coverage, **options)
        chance = np.ones(27)
        for t, output in enumerate(outputs):
            channel = mechanism.channel()
            if not channel[:, output].any():
                chance[:] = 0
                break
            chance *= channel[series[:, t], output]
            mechanism._belief.learn(channel[:, output], 1)
        if chance.any():
            worst = max(worst, np.log(chance.max() / chance.min()))
    assert worst <= 1.5 * (1 + 1e-9)


def test_fewer_likely_states_mean_a_truer_response_on_a_sticky_chain():
    k = 12
    moves = np.full((k, k), 0.02 / (k - 1))
    np.fill_diagonal(moves, 0.98)
    path = sg.simulate.markov_chain(400, prior=np.full(k, 1 / k), transition=moves, seed=3)
    right = {}
    for kind, options in (
        (S.TemporalResponse, {"prior": np.full(k, 1 / k), "transition": moves, "coverage": 0.9}),
        (S.RandomizedResponse, {"states": range(k)}),
    ):
        mechanism = kind(budget=sg.PrivacyBudget(800.0), horizon=400, noise=sg.SeededNoise(1), **options)
        right[kind] = np.mean(mechanism.run(path) == path)
    assert right[S.TemporalResponse] > right[S.RandomizedResponse]


# Windows
# ----------------------------------------------------------------------------------------------------


class Meter(sg.SeededNoise):
    """Records the scale of every comparison."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.scales: list[float] = []

    def discrete_laplace(self, scale, size=None):
        self.scales.append(float(scale))
        return super().discrete_laplace(scale, size)


@pytest.mark.parametrize("sharing", ["distribution", "absorption"])
@pytest.mark.parametrize("encoding", ["response", "unary"])
def test_no_window_costs_more_than_epsilon(sharing, encoding, monkeypatch):
    responses: list[float] = []

    def watched(draw):
        def drawing(index, states, epsilon, noise):
            responses.append(epsilon)
            return draw(index, states, epsilon, noise)

        return drawing

    for name in ("respond", "encode_unary"):
        monkeypatch.setattr(local_baselines, name, watched(getattr(local_baselines, name)))
    path = sg.simulate.markov_chain(200, prior=[1 / 3] * 3, transition=P3, seed=4)
    noise = Meter(1)
    mechanism = S.WindowResponse(
        states=range(3),
        budget=sg.PrivacyBudget(6.0),
        window=8,
        sharing=sharing,
        encoding=encoding,
        noise=noise,
    )
    costs, last = [], 0.0
    for value in path:
        noise.scales.clear()
        responses.clear()
        apart = np.abs(np.arange(3) - last)  # a value can move the distance from least to largest
        last = mechanism.update(value)
        compared = sum((apart.max() - apart.min()) * 2**16 / scale for scale in noise.scales)
        costs.append(compared + sum(responses))
    dearest = max(sum(costs[i : i + 8]) for i in range(len(costs)))
    assert dearest <= 6.0 * (1 + 1e-9)
    assert mechanism.spent.epsilon == pytest.approx(dearest)
    assert 1 < mechanism.publications < 200


def test_a_constant_series_is_repeated_and_a_jumpy_one_released_anew():
    published = {}
    for name, path in (("still", np.zeros(300)), ("jumpy", np.arange(300) % 2 * 9)):
        mechanism = S.WindowResponse(
            states=range(10), budget=sg.PrivacyBudget(60.0), window=4, noise=sg.SeededNoise(2)
        )
        mechanism.run(path)
        published[name] = mechanism.publications
    assert published["still"] < published["jumpy"] / 2


# Thresholds
# ----------------------------------------------------------------------------------------------------


def test_square_waves_and_laplace_noise_keep_their_ratios():
    mechanism = S.ToPS(states=range(12), budget=sg.PrivacyBudget(40.0), horizon=40)
    channel = mechanism.wave_channel()
    np.testing.assert_allclose(channel.sum(axis=1), 1)
    assert np.log(channel.max(axis=0) / channel.min(axis=0)).max() <= 1.0 + 1e-9


def test_the_threshold_cuts_a_long_tail_off():
    """Most values are small: cutting them costs less than noise for the whole range."""
    rng = np.random.default_rng(3)
    values = np.minimum(rng.geometric(0.4, 2000) - 1, 60)
    mechanism = S.ToPS(
        states=range(61), budget=sg.PrivacyBudget(2000.0), horizon=2000, warm_up=500, noise=sg.SeededNoise(1)
    )
    released = mechanism.run(values)
    assert mechanism.threshold < 20
    assert set(released.tolist()) <= set(range(61))
    whole = S.ToPS(
        states=range(61), budget=sg.PrivacyBudget(2000.0), horizon=2000, warm_up=1, noise=sg.SeededNoise(1)
    )
    whole._threshold = 60  # noise for the whole range
    error = [np.abs(r[500:] - values[500:]).mean() for r in (released, whole.run(values))]
    assert error[0] < 0.7 * error[1]


def test_smoothing_helps_a_slow_series():
    slow = np.repeat([5, 20, 10], 100)
    error = {}
    for smoothing in (1, 8):
        runs = [
            S.ToPS(
                states=range(31),
                budget=sg.PrivacyBudget(300.0),
                horizon=300,
                smoothing=smoothing,
                noise=sg.SeededNoise(s),
            ).run(slow)
            for s in range(5)
        ]
        error[smoothing] = np.mean([np.abs(r - slow).mean() for r in runs])
    assert error[8] < error[1]


# Chains
# ----------------------------------------------------------------------------------------------------


def test_a_chain_is_learnt_from_public_series():
    moves = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]])
    public = [
        sg.simulate.markov_chain(3000, prior=[0.2, 0.5, 0.3], transition=moves, seed=s) for s in range(5)
    ]
    chain = S.learn_chain(public, states=[0, 1, 2])
    np.testing.assert_allclose(chain["transition"], moves, atol=0.03)
    S.SIPInstant(budget=sg.PrivacyBudget(1.0), horizon=10, **chain)
    second = S.learn_chain(public, states=[0, 1, 2], order=2)
    np.testing.assert_allclose(np.array(second["transition"])[0], moves, atol=0.08)
    assert np.shape(second["prior"]) == (3, 3)
    one = S.learn_chain(public[0], states=[0, 1, 2], pseudocount=0)
    assert np.array(one["prior"]).max() == 1.0
    with pytest.raises(sg.InputError, match="no state"):
        S.learn_chain([0, 1, 5], states=[0, 1])
    with pytest.raises(sg.InputError, match="pseudocount"):
        S.learn_chain([0, 0, 0], states=[0, 1], pseudocount=0)


def test_points_can_be_learnt_too():
    points = [[0.0, 0.0], [1.0, 0.0]]
    path = [points[i] for i in (0, 0, 0, 1, 1, 0)]
    chain = S.learn_chain(path, states=points)
    assert np.array(chain["transition"])[0, 0] == pytest.approx(3 / 5)
    several = S.learn_chain([path, path], states=points)
    assert np.array(several["transition"])[0, 0] == pytest.approx(5 / 8)


def test_temporal_leakage_spans_from_independence_to_certainty():
    """Cao and others: independent values leak ε each, equal values all of it, in between in between."""
    shares = [0.1] * 6
    independent = S.temporal_leakage(shares, prior=[0.5, 0.5], transition=[[0.5, 0.5], [0.5, 0.5]])
    np.testing.assert_allclose(independent, 0.1)
    equal = S.temporal_leakage(shares, prior=[0.5, 0.5], transition=np.eye(2))
    np.testing.assert_allclose(equal, 0.6)
    sticky = S.temporal_leakage(shares, prior=[0.5, 0.5], transition=[[0.8, 0.2], [0.2, 0.8]])
    assert np.all((sticky > 0.1) & (sticky < 0.6))
    assert sticky[2] > sticky[0]
    # One step by hand: L(0.1) for rows (0.8, 0.2) and (0.2, 0.8).
    growth = math.expm1(0.1)
    carried = math.log((0.8 * growth + 1) / (0.2 * growth + 1))
    two = S.temporal_leakage([0.1, 0.1], prior=[0.5, 0.5], transition=[[0.8, 0.2], [0.2, 0.8]])
    np.testing.assert_allclose(two, 0.1 + carried)


@pytest.mark.parametrize("k", [3, 4])
def test_the_subset_that_leaks_most_is_found(k):
    """Against all subsets of columns, for random rows."""
    rng = np.random.default_rng(5)
    for _ in range(20):
        moves = rng.dirichlet(np.full(k, 0.7), k)
        growth = math.expm1(0.8)
        best = 0.0
        for q, d in product(moves, repeat=2):
            for size in range(1, 2**k):
                columns = [i for i in range(k) if size >> i & 1]
                best = max(best, math.log((q[columns].sum() * growth + 1) / (d[columns].sum() * growth + 1)))
        forward = S.temporal_leakage([0.0, 0.8], prior=np.full(k, 1 / k), transition=moves)[0]
        assert forward == pytest.approx(best, rel=1e-9)


def test_a_belief_of_first_order_moves_as_a_matrix_product():
    belief = MarkovBelief([0.2, 0.3, 0.5], P3)
    np.testing.assert_allclose(belief.batch(2).reshape(3, 3), np.array([[0.2], [0.3], [0.5]]) * np.array(P3))
    belief.move_on(belief.ahead(1), 1)
    np.testing.assert_allclose(belief.joint, np.array([0.2, 0.3, 0.5]) @ np.array(P3))
    for prior, transition in (([0.5, 0.5], P3), ([0.5, 0.6, 0.1], P3), ([1, 0, 0], [[1, 0, 0]])):
        with pytest.raises(sg.ConfigError):
            MarkovBelief(prior, transition)

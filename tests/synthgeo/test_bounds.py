"""(α, β) bounds: measured errors respect them, and they are not idle."""

from __future__ import annotations

import numpy as np
import pytest

import synthgeo as sg
from streams.accumulated import Accumulated
from streams.counters import make_bank
from streams.counters.choose import error_bound
from synthgeo.privacy import bounds
from synthgeo.privacy.selection import exponential_mechanism
from tabular.multiplicative_weights import mwem, reweigh

BETA = 0.1
RUNS = 4000
#: P(Binomial(RUNS, BETA) > LIMIT) < 1e-9.
LIMIT = 520


def over(errors, bound):
    return int(np.count_nonzero(np.abs(errors) >= bound))


def test_the_largest_of_many_laplace_draws():
    draws = sg.SeededNoise(1).discrete_laplace(5.0, RUNS * 10).reshape(RUNS, 10)
    largest = np.abs(draws).max(axis=1)
    assert over(largest, bounds.laplace(5.0, BETA, count=10)) < LIMIT
    assert over(largest, bounds.laplace(5.0, BETA, count=10) / 1.5) > LIMIT  # a smaller one would not do


@pytest.mark.parametrize("kind", ["simple", "block", "binary", "kary", "hybrid", "unbounded_block"])
def test_counters_keep_their_accuracy(kind):
    bank = make_bank(kind, epsilon=0.5, horizon=40, noise=sg.SeededNoise(2))
    slots, zeros = bank.add(RUNS), np.zeros(RUNS, dtype=np.int64)
    for step in range(1, 41):
        noisy = bank.step(slots, zeros)
        if step in (1, 7, 40):
            bound = error_bound(bank, step, BETA)
            assert over(noisy, bound) < LIMIT, step
            assert bound < 4 * np.std(noisy) * np.log(2 / BETA) / 2, "the bound says nothing"


def test_the_gaussian_counter_keeps_its_accuracy():
    bank = make_bank("toeplitz", rho=0.1, horizon=20, noise=sg.SeededNoise(3))
    slots, zeros = bank.add(RUNS), np.zeros(RUNS, dtype=np.int64)
    for _ in range(20):
        noisy = bank.step(slots, zeros)
    assert over(noisy, error_bound(bank, 20, BETA)) < LIMIT


def test_a_series_of_totals_knows_its_bound():
    made = sg.series.ContinualCounter(budget=sg.PrivacyBudget(1.0), horizon=40, grid_bits=3)
    assert made.error_bound(40, BETA) > made.expected_error(40)
    assert made.error_bound(40, 0.01) > made.error_bound(40, BETA)


def test_a_selection_is_nearly_as_good_as_the_best():
    scores, noise = np.arange(12.0), sg.SeededNoise(4)
    chosen = [exponential_mechanism(scores, epsilon=1.0, sensitivity=1.0, noise=noise) for _ in range(800)]
    short = scores.max() - scores[chosen]
    assert (
        np.count_nonzero(short >= bounds.selection(1.0, 12, BETA)) < 150
    )  # P(Binomial(800, 0.1) > 150) < 1e-12
    assert np.count_nonzero(short >= bounds.selection(1.0, 12, BETA) / 6) > 150


def table(seed, size=4000):
    """Counts of three dependent bits and a column of four, and all pairs of values as queries."""
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 2, size)
    columns = [a, a ^ (rng.uniform(size=size) < 0.1), rng.integers(0, 2, size), rng.integers(0, 4, size) * a]
    shape = (2, 2, 2, 4)
    cells = np.ravel_multi_index(columns, shape)
    places = np.array(np.unravel_index(np.arange(32), shape))
    queries = [
        (places[i] == x) & (places[j] == y)
        for i in range(4)
        for j in range(i)
        for x in range(shape[i])
        for y in range(shape[j])
    ]
    return np.bincount(cells, minlength=32), np.array(queries)


def test_mwem_respects_its_bound_and_learns():
    counts, queries = table(1)
    known = {"cells": 32, "queries": len(queries), "epsilon": 1.0, "beta": BETA}
    k = bounds.mwem_iterations([counts.sum()], **known)
    bound = bounds.mwem([counts.sum()], iterations=k, **known)
    errors = []
    for seed in range(10):
        found = mwem(
            counts,
            queries,
            budget=sg.PrivacyBudget(1.0),
            iterations=k,
            public_total=int(counts.sum()),
            noise=sg.SeededNoise(seed),
        )
        errors.append(np.abs(queries @ (found - counts)).max())
    flat = np.abs(queries @ (np.full(32, counts.sum() / 32) - counts)).max()
    assert max(errors) < bound
    assert np.mean(errors) < 0.95 * flat


def test_the_best_number_of_iterations_is_the_best():
    known = {"cells": 64, "queries": 200, "epsilon": 1.0, "beta": BETA}
    best = bounds.mwem_iterations([10_000] * 3, **known)
    at = {
        k: bounds.mwem([10_000] * 3, iterations=k, **known)
        for k in (best // 2, best - 1, best, best + 1, 2 * best)
    }
    assert min(at, key=at.__getitem__) == best


def test_a_stream_of_mwem_respects_the_bound_of_the_theorem():
    """Algorithm 13: Algorithm 1 around MWEM."""
    batches = [table(seed, 1000)[0] for seed in range(5)]
    queries = table(0)[1]
    noise = sg.SeededNoise(5)
    stream = Accumulated(
        lambda batch, budget: mwem(
            batch, queries, budget=budget, iterations=6, public_total=1000, noise=noise
        ),
        budget=sg.PrivacyBudget(2.0),
    )
    for batch in batches:
        found = stream.update(batch)
    bound = bounds.mwem([1000] * 5, cells=32, queries=len(queries), epsilon=2.0, iterations=6, beta=BETA)
    assert np.abs(queries @ (found - sum(batches))).max() < bound


def test_the_bound_of_algorithm_14_triples():
    known = {"cells": 32, "queries": 10, "epsilon": 1.0, "iterations": 4, "beta": BETA}
    short = bounds.algorithm_14([100] * 3, counter=[10.0] * 3, **known)
    long = bounds.algorithm_14([100] * 4, counter=[10.0] * 4, **known)
    assert 3 * short < long < 3.6 * short


def test_reweighing_keeps_the_total_and_moves_towards_the_measurement():
    table = np.array([1.0, 2.0, 3.0, 4.0])
    query = np.array([1.0, 1.0, 0.0, 0.0])
    up = reweigh(table, query, 8.0)
    assert up.sum() == pytest.approx(10)
    assert 3 < query @ up < 8
    assert reweigh(np.zeros(2), query[:2], 5.0).tolist() == [0, 0]


def test_mwem_spends_what_it_has_and_no_more():
    class Scales(sg.SeededNoise):
        scales: list[float]

        def discrete_laplace(self, scale, size=None):
            self.scales.append(scale)
            return super().discrete_laplace(scale, size)

    counts, queries = table(1)
    for public, draws in ((None, 4), (4000, 3)):
        noise = Scales(1)
        noise.scales = []
        mwem(counts, queries, budget=sg.PrivacyBudget(2.0), iterations=3, public_total=public, noise=noise)
        assert len(noise.scales) == draws
        selections = 3 * 2.0 / (6 + (public is None))
        assert sum(1 / scale for scale in noise.scales) + selections <= 2.0 * (1 + 1e-12)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"counts": [1.5, 2.0]}, "whole numbers"),
        ({"counts": [-1, 2]}, "whole numbers"),
        ({"queries": [[1, 0, 1]]}, "rows of 0 and 1"),
        ({"queries": [[2, 0]]}, "rows of 0 and 1"),
        ({"budget": sg.PrivacyBudget(1.0, 1e-6)}, "pure"),
        ({"iterations": 0}, "iterations"),
    ],
)
def test_mwem_refuses_before_it_spends(change, problem):
    class Silent(sg.SeededNoise):
        def discrete_laplace(self, *_):
            raise AssertionError("noise was drawn")

    given = {"counts": [3, 4], "queries": [[1, 0]], "budget": sg.PrivacyBudget(1.0), "iterations": 2} | change
    with pytest.raises((sg.ConfigError, sg.InputError), match=problem):
        mwem(given.pop("counts"), given.pop("queries"), noise=Silent(1), **given)


def test_an_accumulated_stream_hands_each_batch_to_the_algorithm_once():
    """Theorem 2.3.4: a record is in one call. The twin hands over everything that has come so far."""
    calls = []

    def algorithm(batch, budget):
        assert budget == sg.PrivacyBudget(0.5)
        calls.append(list(batch))
        return list(batch)

    stream = Accumulated(algorithm, budget=sg.PrivacyBudget(0.5))
    assert stream.spent is None
    stream.update(["a", "b"])
    assert stream.update(["c"]) == ["a", "b", "c"]
    assert calls == [["a", "b"], ["c"]]
    assert stream.spent == sg.PrivacyBudget(0.5)
    assert max(sum("a" in call for call in calls), 1) == 1
    with pytest.raises(sg.ConfigError, match="function"):
        Accumulated(None, budget=sg.PrivacyBudget(1.0))

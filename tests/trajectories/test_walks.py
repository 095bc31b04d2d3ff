"""Bridges: exact against enumeration, for both length models, and sound at the edges."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from synthgeo.errors import ConfigError
from trajectories.walks import bridges as walks_module
from trajectories.walks.bridges import (
    Chain,
    KilledBridge,
    Walks,
    chained,
    exponential_steps,
    fixed_walks,
    killed_walks,
    probable_hops,
)

DRAWS = 20_000
REJECT = 1e-9


def chain_of(matrix) -> Chain:
    matrix = np.asarray(matrix, dtype=float)
    rows, columns = np.nonzero(matrix)
    first = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(matrix)))])
    return Chain(first, columns, matrix[rows, columns])


SMALL = np.array(
    [
        [0.0, 0.3, 0.4, 0.0, 0.0],
        [0.2, 0.0, 0.1, 0.5, 0.0],
        [0.0, 0.3, 0.0, 0.2, 0.3],
        [0.1, 0.0, 0.3, 0.0, 0.4],
        [0.3, 0.2, 0.0, 0.3, 0.0],
    ]
)


def enumerate_paths(matrix, origin, destination, steps):
    """Weight of every path of exactly ``steps`` steps."""
    paths = {(origin,): 1.0}
    for _ in range(steps):
        longer = {}
        for path, weight in paths.items():
            for state in np.flatnonzero(matrix[path[-1]]):
                longer[(*path, int(state))] = weight * matrix[path[-1], state]
        paths = longer
    return {path: weight for path, weight in paths.items() if path[-1] == destination}


def tally(walks):
    counts = {}
    for low, high in zip(walks.start[:-1], walks.start[1:], strict=True):
        path = tuple(walks.states[low:high].tolist())
        counts[path] = counts.get(path, 0) + 1
    return counts


def p_value(weights, counts, rest=0.0):
    """Chi-square of counts against weights; ``rest`` is the weight of all paths that are not listed."""
    listed = [
        path for path, weight in weights.items() if weight * DRAWS > 10 * (sum(weights.values()) + rest)
    ]
    total = sum(weights.values()) + rest
    expected = (
        np.array([weights[path] for path in listed] + [total - sum(weights[p] for p in listed)]) / total
    )
    observed = np.array([counts.get(path, 0) for path in listed])
    observed = np.append(observed, DRAWS - observed.sum())
    if expected[-1] < 1e-9:
        assert observed[-1] == 0
        expected, observed = expected[:-1] / expected[:-1].sum(), observed[:-1]
    return stats.chisquare(observed, expected * DRAWS).pvalue


def fixed_counts(matrix, steps):
    rng = np.random.default_rng(3)
    ones = np.ones(DRAWS, dtype=np.int64)
    return tally(fixed_walks(chain_of(matrix), 0 * ones, 4 * ones, steps * ones, rng))


def killed_counts(matrix):
    rng = np.random.default_rng(4)
    ones = np.ones(DRAWS, dtype=np.int64)
    return tally(killed_walks(chain_of(matrix), 0 * ones, 4 * ones, rng))


def killed_weights(matrix, longest=7):
    weights = {}
    for steps in range(longest + 1):
        weights |= enumerate_paths(matrix, 0, 4, steps)
    whole = np.linalg.inv(np.eye(len(matrix)) - matrix)[0, 4]
    return weights, whole - sum(weights.values())


@pytest.mark.statistical
@pytest.mark.parametrize("steps", [3, 4, 6])
def test_fixed_bridge_matches_enumeration(steps):
    """Seeded: never flakes. With fresh seeds it would fail with probability 1e-9; the twin below fails
    at 1e-9 always.
    """
    weights = enumerate_paths(SMALL, 0, 4, steps)
    assert p_value(weights, fixed_counts(SMALL, steps)) > REJECT


@pytest.mark.statistical
def test_fixed_bridge_of_another_chain_is_rejected():
    """Twin: one weight a quarter off is found (power > 1 - 1e-6 at 20,000 draws)."""
    wrong = SMALL.copy()
    wrong[0, 1] *= 1.25
    assert p_value(enumerate_paths(SMALL, 0, 4, 6), fixed_counts(wrong, 6)) < REJECT


@pytest.mark.statistical
def test_killed_bridge_matches_enumeration():
    """Seeded: never flakes. Paths of up to 7 steps one by one, all longer ones together."""
    weights, rest = killed_weights(SMALL)
    assert p_value(weights, killed_counts(SMALL), rest) > REJECT


@pytest.mark.statistical
def test_killed_bridge_of_another_chain_is_rejected():
    """Twin: the same chain killed a little less makes longer walks, which is found."""
    weights, rest = killed_weights(SMALL)
    assert p_value(weights, killed_counts(SMALL * 1.08), rest) < REJECT


TWIN = np.array([1, 0, -1, 4, 3])  # 0 and 1 are one street, 3 and 4 another


def twin_counts(matrix, either):
    rng = np.random.default_rng(5)
    ones = np.ones(DRAWS, dtype=np.int64)
    return tally(KilledBridge(chain_of(matrix), twin=TWIN).walks(0 * ones, 4 * ones, rng, either=either))


def twin_weights(matrix, longest=6):
    """Paths from either of the first two states to either of the last two."""
    weights = {}
    for steps in range(longest + 1):
        for origin in (0, 1):
            for destination in (3, 4):
                weights |= enumerate_paths(matrix, origin, destination, steps)
    whole = np.linalg.inv(np.eye(len(matrix)) - matrix)[:2, 3:].sum()
    return weights, whole - sum(weights.values())


@pytest.mark.statistical
def test_bridges_between_streets_choose_directions_as_their_paths_weigh():
    """Seeded: never flakes. With fresh seeds it would fail with probability 1e-9."""
    weights, rest = twin_weights(SMALL)
    assert p_value(weights, twin_counts(SMALL, True), rest) > REJECT


@pytest.mark.statistical
def test_bridges_that_leave_in_one_direction_only_are_rejected():
    """Twin: who starts in the first state always does not choose."""
    weights, rest = twin_weights(SMALL)
    assert p_value(weights, twin_counts(SMALL, False), rest) < REJECT


def test_only_those_walks_turn_at_their_start_that_may():
    rng, origin = np.random.default_rng(0), np.tile([0, 1, 2], 200)
    either = np.arange(600) < 300
    walks = KilledBridge(chain_of(SMALL), twin=TWIN).walks(origin, np.full(600, 4), rng, either=either)
    begin = walks.states[walks.start[:-1]]
    assert (begin == origin)[~either].all()
    turned = begin != origin
    assert 50 < turned.sum() < 150
    assert (begin == TWIN[origin])[turned].all()
    assert set(walks.last(origin).tolist()) == {3, 4}


def test_walks_follow_steps_and_keep_their_ends():
    rng = np.random.default_rng(0)
    origin, destination = rng.integers(0, 5, 300), rng.integers(0, 5, 300)
    chain = chain_of(SMALL)
    for walks in (
        killed_walks(chain, origin, destination, rng),
        fixed_walks(chain, origin, destination, rng.integers(1, 9, 300), rng),
    ):
        assert walks.found.all()
        assert (walks.states[walks.start[:-1]] == origin).all()
        assert (walks.states[walks.start[1:] - 1] == destination).all()
        inner = np.ones(len(walks.states) - 1, dtype=bool)
        inner[walks.start[1:-1] - 1] = False
        assert (SMALL[walks.states[:-1], walks.states[1:]][inner] > 0).all()


@pytest.mark.parametrize("table", [1, 40 * 30 * 3])
def test_destinations_taken_together_or_apart_give_the_same_walks(table, monkeypatch):
    rng = np.random.default_rng(4)
    matrix = rng.random((40, 40)) * (rng.random((40, 40)) < 0.2)
    chain = chain_of(0.9 * matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1e-9))
    origin, destination = rng.integers(0, 40, 500), rng.integers(0, 40, 500)
    steps = np.full(500, 20)
    together = fixed_walks(chain, origin, destination, steps, np.random.default_rng(1))
    monkeypatch.setattr(walks_module, "_TABLE", max(table, 40 * 40))
    apart = fixed_walks(chain, origin, destination, steps, np.random.default_rng(1))
    assert together.found.any()
    np.testing.assert_array_equal(apart.states, together.states)
    np.testing.assert_array_equal(apart.start, together.start)


def test_on_a_bipartite_graph_the_next_length_is_taken():
    ring = np.zeros((4, 4))
    for i in range(4):
        ring[i, (i + 1) % 4] = ring[i, (i - 1) % 4] = 0.5
    walks = fixed_walks(
        chain_of(ring), np.array([0, 0]), np.array([2, 1]), np.array([3, 4]), np.random.default_rng(0)
    )
    assert np.diff(walks.start).tolist() == [5, 6]  # 4 and 5 steps


def test_unreachable_pairs_are_empty_and_others_are_not_disturbed():
    chain = chain_of([[0, 0.5, 0], [0.5, 0, 0], [0, 0, 0]])
    rng = np.random.default_rng(0)
    origin, destination = np.array([0, 2, 0, 2]), np.array([2, 0, 1, 2])
    for walks in (
        killed_walks(chain, origin, destination, rng),
        fixed_walks(chain, origin, destination, np.array([3, 3, 1, 0]), rng),
    ):
        assert walks.found.tolist() == [False, False, True, True]
        assert walks.states[walks.start[3] :].tolist() == [2]


def test_most_probable_paths_are_counted_in_steps():
    matrix = np.array([[0, 0.9, 0.05, 0], [0, 0, 0.9, 0], [0, 0, 0, 0.9], [0, 0, 0, 0]])
    hops = probable_hops(chain_of(matrix), np.array([0, 0, 3, 1]), np.array([3, 2, 0, 1]))
    assert hops.tolist() == [3, 2, -1, 0]


@pytest.mark.statistical
def test_lengths_have_the_median_of_the_probable_path():
    """Clipped from below at the median, so half of all lengths equal it. Seeded; 10 standard deviations
    of slack.
    """
    hops = np.full(40_000, 20)
    steps = exponential_steps(hops, np.random.default_rng(0))
    assert abs((steps == 20).mean() - 0.5) < 0.05
    assert steps.min() == 20
    assert abs((steps > 40).mean() - 0.25) < 0.025


def test_weights_that_do_not_die_are_refused():
    with pytest.raises(ConfigError, match="less than 1"):
        KilledBridge(chain_of([[0, 1.0], [1.0, 0]]))
    with pytest.raises(ConfigError, match="finite"):
        KilledBridge(Chain(np.array([0, 1, 1]), np.array([1]), np.array([np.nan])))
    with pytest.raises(ConfigError, match="states must be"):
        killed_walks(chain_of(SMALL), np.array([7]), np.array([0]), np.random.default_rng(0))


def test_a_long_line_does_not_underflow_silently():
    """300 steps of weight 0.05: the total weight is below what a double holds, so the walk is reported
    as not found.
    """
    size = 301
    line = Chain(np.append(np.arange(size), size - 1), np.arange(1, size), np.full(size - 1, 0.05))
    walks = killed_walks(line, np.array([0, 280]), np.array([300, 300]), np.random.default_rng(0))
    assert walks.found.tolist() == [False, True]
    fixed = fixed_walks(line, np.array([0]), np.array([300]), np.array([300]), np.random.default_rng(0))
    assert np.diff(fixed.start).tolist() == [301]


def test_walks_in_a_row_meet_once():
    one = Walks(np.array([0, 1, 2, 5]), np.array([0, 3, 3, 4]), np.array([True, False, True]))
    two = Walks(np.array([2, 4, 7, 8, 5]), np.array([0, 2, 4, 5]), np.array([True, True, True]))
    both = chained(one, two)
    assert both.states.tolist() == [0, 1, 2, 4, 5]
    assert both.start.tolist() == [0, 4, 4, 5]
    assert both.found.tolist() == [True, False, True]

"""PrivTree against a slow reference, its exact privacy loss, and its refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import synthgeo as sg
from synthgeo.hierarchy.base import hierarchy_of
from synthgeo.hierarchy.privtree import GRID, SplitRule, privtree
from synthgeo.privacy.noise import SeededNoise
from tests.reference.privtree import reference_leaves

BOX = sg.BoxDomain(0, 0, 1, 1)


@settings(max_examples=60, deadline=None)
@given(
    keys=st.lists(st.integers(0, 2**8 - 1), max_size=80),
    epsilon=st.sampled_from([0.3, 1.0, 5.0, 40.0]),
    fanout=st.sampled_from([2, 4, 16]),
    theta=st.sampled_from([0.0, 2.5]),
    seed=st.integers(0, 10**6),
)
def test_equals_the_reference_under_the_same_noise(keys, epsilon, fanout, theta, seed):
    step = fanout.bit_length() - 1
    depth = 8 // step
    distinct, counts = np.unique(np.array(keys, dtype=np.uint64), return_counts=True)
    weights = counts.astype(np.int64) * GRID.one
    found = privtree(
        distinct,
        weights,
        hierarchy=hierarchy_of(BOX),
        epsilon=epsilon,
        noise=SeededNoise(seed),
        max_depth=depth,
        fanout=fanout,
        theta=theta,
    )
    twin = SeededNoise(seed)
    scale = SplitRule(epsilon, fanout, theta).scale * GRID.one
    expected = reference_leaves(
        list(zip(distinct.tolist(), weights.tolist(), strict=True)),
        epsilon=epsilon,
        draw=lambda n: twin.discrete_laplace(scale, n),
        max_depth=depth,
        fanout=fanout,
        theta=theta,
    )
    assert [
        (b // step, p) for p, b in zip(found.prefix.tolist(), found.bits.tolist(), strict=True)
    ] == expected


def log_tail(x, scale):
    """ln P(noise > x) for discrete Laplace noise on the grid, x a whole number of grid steps."""
    ratio = math.exp(-1 / scale)
    if x >= 0:
        return -(x + 1) / scale - math.log1p(ratio)
    return math.log1p(-math.exp(x / scale) / (1 + ratio))


def path_loss(scores, epsilon, fanout, *, unit, decay, change=None):
    """Largest |log-likelihood ratio| of any outcome along one path when every score on it grows by one unit
    (or by ``change`` grid steps).

    Splits favour the larger world and add up; the stop at the end favours the smaller one.
    """
    scale = (2 * fanout - 1) / ((fanout - 1) * epsilon) * unit
    splits = worst = 0.0
    for depth, score in enumerate(scores):
        low = max(score - depth * decay, -decay)
        high = max(score + (unit if change is None else change) - depth * decay, -decay)
        # P(no split) = P(noise <= -score) = P(noise > score - 1), because the noise is symmetric.
        stop = log_tail(low - 1, scale) - log_tail(high - 1, scale)
        worst = max(worst, stop - splits)
        splits += log_tail(-high, scale) - log_tail(-low, scale)
        worst = max(worst, splits)
    return worst


@pytest.mark.parametrize("fanout", [2, 4, 16, 256])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0, 12.0])
def test_worst_case_loss_of_a_path_is_at_most_epsilon(fanout, epsilon):
    """Exact, by search over falling score sequences on a coarse grid of offsets; the grid of the code is
    finer still.
    """
    unit = 64  # grid steps in one count: fewer than in the code, so the decay is rounded more coarsely
    scale = (2 * fanout - 1) / ((fanout - 1) * epsilon) * unit
    decay = math.ceil(scale * math.log(fanout))
    worst = worst_path(epsilon, fanout, unit=unit, decay=decay)
    assert worst <= epsilon * (1 + 1e-9)
    assert worst > 0.5 * epsilon  # the search reaches the region where the bound is nearly tight


def worst_path(epsilon, fanout, *, unit, decay, change=None):
    """The largest loss over falling score sequences of several slopes, lengths and ends."""
    worst = 0.0
    for drop in {0, 1, unit // 2, unit, decay // 2, decay}:
        for depth in (1, 5, 30):
            # The sequence that hurts most stays just above the bias for as long as it can.
            for end in np.unique(np.linspace(-2 * decay, 2 * decay, 81).astype(int)):
                top = int(depth * decay + end + drop * depth)
                scores = [max(top - drop * i, 0) for i in range(depth + 40)]
                worst = max(worst, path_loss(scores, epsilon, fanout, unit=unit, decay=decay, change=change))
    return worst


@pytest.mark.parametrize("epsilon", [0.5, 5.0, 20.0])
@pytest.mark.parametrize("part", [48, 16, 1])
def test_a_fraction_of_a_unit_pays_that_fraction_of_epsilon(epsilon, part):
    unit = 64
    decay = max(unit, math.ceil(3 / epsilon * unit * math.log(2)))
    assert SplitRule(epsilon, fractional=True).decay == max(GRID.one, SplitRule(epsilon).decay)
    assert worst_path(epsilon, 2, unit=unit, decay=decay, change=part) <= part / unit * epsilon * (1 + 1e-9)


def test_the_search_sees_a_rule_without_bias():
    """The twin: with no decay a deep path pays at every level, and the same search finds it."""
    loss = path_loss([10] * 40, 1.0, 2, unit=64, decay=0)
    assert loss > 1.0


def test_the_search_sees_scores_that_rise_along_a_path():
    """Scores that rise from parent to child, as in the paper's literal rule with negative counts, break the
    bound.
    """
    unit = 64
    decay = math.ceil(3 * unit * math.log(2))
    literal = [depth * decay for depth in range(20)]
    assert path_loss(literal, 1.0, 2, unit=unit, decay=decay) > 3.0


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=60), st.data())
def test_one_event_moves_scores_by_one_on_one_path_only(points, data):
    """The sensitivity that the theorem asks for."""
    from synthgeo.hierarchy.privtree import KeyScore

    xy = np.array(points)
    leave = data.draw(st.integers(0, len(points) - 1))
    keys, _ = hierarchy_of(BOX).locate(xy, 10)

    def scores(k):
        values, counts = np.unique(k, return_counts=True)
        score = KeyScore(values, 10, counts.astype(np.int64) * GRID.one)
        return [score(np.arange(2**b, dtype=np.uint64), b, np.ones(2**b)) for b in range(11)]

    for with_it, without in zip(scores(keys), scores(np.delete(keys, leave)), strict=True):
        difference = with_it - without
        assert np.count_nonzero(difference) == 1
        assert difference.sum() == GRID.one


def test_leaves_cover_the_domain_once():
    rng = np.random.default_rng(1)
    keys = np.unique(hierarchy_of(BOX).locate(rng.random((5000, 2)) ** 2, 20)[0])
    tree = privtree(
        keys, np.full(keys.size, GRID.one), hierarchy=hierarchy_of(BOX), epsilon=1.0, noise=SeededNoise(3)
    )
    assert tree.size > 100
    assert tree.start[0] == 0
    assert np.array_equal(tree.stop[:-1], tree.start[1:])
    assert math.isclose(tree.measure.sum(), 1.0)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"fanout": 3}, "power of two"),
        ({"fanout": 1}, "power of two"),
        ({"max_depth": 0}, "max_depth"),
        ({"max_depth": 63}, "max_depth"),
        ({"max_depth": True}, "max_depth"),
        ({"theta": -1.0}, "theta"),
    ],
)
def test_bad_parameters_are_refused(options, text):
    empty = np.empty(0, dtype=np.uint64)
    call = {"epsilon": 1.0, "hierarchy": hierarchy_of(BOX), "noise": SeededNoise(0)} | options
    with pytest.raises(sg.ConfigError, match=text):
        privtree(empty, np.empty(0, dtype=np.int64), **call)


def test_negative_contributions_are_refused():
    with pytest.raises(sg.ConfigError, match="non-negative"):
        privtree(
            np.zeros(1, np.uint64),
            np.array([-1]),
            hierarchy=hierarchy_of(BOX),
            epsilon=1.0,
            noise=SeededNoise(0),
        )

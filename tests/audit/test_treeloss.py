"""PrivTree's exact worst case: closed form, dynamic programming, the products' rules, and broken ones."""

from __future__ import annotations

import math
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import synthgeo as sg
import trajectories.measure.pairs as pairs
from synthgeo.auditing.whitebox import (
    least_scale,
    log_survival,
    path_loss,
    privtree_loss,
    rule_loss,
    worst_loss,
    worst_loss_of_fractions,
)
from synthgeo.errors import ConfigError
from synthgeo.hierarchy.base import hierarchy_of
from synthgeo.hierarchy.cells import Partition
from synthgeo.hierarchy.privtree import GRID, SplitRule
from synthgeo.privacy.noise import SeededNoise
from trajectories.ground.base import PlacedTrips
from trajectories.measure.ends import measure_cells


def constants(epsilon, fanout, one, *, times=1.0):
    """λ and δ in grid steps of ``one`` a count; ``times`` scales the theorem's λ."""
    scale = times * (2 * fanout - 1) / ((fanout - 1) * epsilon) * one
    return scale, math.ceil(scale * math.log(fanout))


@pytest.mark.parametrize("one", [1, 4, 16])
@pytest.mark.parametrize("fanout", [2, 4, 16])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.0, 5.0])
@pytest.mark.parametrize("times", [1.0, 0.7])
def test_the_closed_form_is_what_dynamic_programming_finds(one, fanout, epsilon, times):
    """All falling paths of 16 levels are searched; longer ones add less than 1e-4."""
    scale, decay = constants(epsilon, fanout, one, times=times)
    searched = privtree_loss(scale, decay, unit=one, depth=16)
    exact = worst_loss(scale, decay, one)
    assert searched <= exact * (1 + 1e-12)
    assert searched == pytest.approx(exact, rel=2e-4)


@pytest.mark.parametrize("fanout", [2, 4, 16])
@pytest.mark.parametrize("fractional", [False, True])
def test_the_rules_in_use_keep_their_promise_at_every_epsilon(fanout, fractional):
    for epsilon in np.geomspace(1e-4, 200, 60).tolist():
        loss = rule_loss(SplitRule(epsilon, fanout, fractional=fractional))
        assert 0.6 * epsilon < loss <= epsilon


@pytest.mark.parametrize("fractional", [False, True])
def test_half_the_noise_breaks_it(fractional):
    for epsilon in (0.1, 1.0, 5.0):
        rule = SplitRule(epsilon, fractional=fractional)
        loss = worst_loss_of_fractions if fractional else worst_loss
        decay = max(math.ceil(rule.decay / 2), GRID.one if fractional else 1)
        assert loss(rule.scale / 2 * GRID.one, decay, GRID.one) > 1.3 * epsilon


@pytest.mark.parametrize("fanout", [2, 4])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 5.0])
def test_the_least_scale_is_tight(fanout, epsilon):
    """Found by the search itself, on a coarser grid: near that scale no path exceeds ε, with a little less
    noise one does.
    """
    one = 16
    for times, private in ((1.04, True), (0.94, False)):
        scale = times * least_scale(epsilon, fanout) * one
        loss = privtree_loss(scale, math.ceil(scale * math.log(fanout)), unit=one, depth=16)
        assert (loss <= epsilon) is private


def searched_fractions(scale, decay, one, depth):
    """The most that a path's share can cost, for a whole unit: over falling scores and falling shares."""
    top = math.ceil(depth * decay + 30 * scale + one)
    counts = np.arange(top + 1)
    worst = np.zeros((one, counts.size))  # by share - 1, and score
    for d in range(depth - 1, -1, -1):
        small = -np.maximum(counts - d * decay, -decay)
        for share in range(1, one + 1):
            large = -np.maximum(counts + share - d * decay, -decay)
            gain = (log_survival(large, scale) - log_survival(small, scale)) * one / share
            worst[share - 1] += gain
        # A child's score and share are at most its parent's.
        worst = np.maximum.accumulate(np.maximum.accumulate(worst, axis=0), axis=1)
    return float(worst.max())


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_fractions_cost_what_the_bound_says_and_no_more(epsilon):
    one = 8
    scale, decay = constants(epsilon, 2, one)
    decay = max(decay, one)
    searched = searched_fractions(scale, decay, one, depth=10)
    bound = worst_loss_of_fractions(scale, decay, one)
    assert searched <= bound * (1 + 1e-12)
    assert searched > 0.85 * bound
    assert bound <= epsilon


def test_fractions_need_a_whole_count_of_bias():
    with pytest.raises(ConfigError, match="one count"):
        worst_loss_of_fractions(10.0, 7, 8)
    # What it guards against: with less bias, shares linger between floor and threshold.
    assert searched_fractions(4.0, 2, 8, depth=10) > 1.2 * worst_loss_of_fractions(4.0, 8, 8)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=14),
    st.integers(0, 3),
    st.sampled_from([2, 4]),
    st.data(),
)
def test_any_path_of_any_forest(counts, first, fanout, data):
    """Roots may count as any depth, and the worlds may differ by anything from 0 to 1 at each node."""
    rule = SplitRule(1.0, fanout)
    small = np.sort(np.array(counts) * GRID.one)[::-1]
    by = np.array([data.draw(st.integers(0, GRID.one)) for _ in counts])
    large = np.minimum.accumulate(small + by)
    shift = first * rule.decay  # depth d + first
    loss = path_loss(small - shift, large - shift, scale=rule.scale * GRID.one, decay=rule.decay)
    assert loss <= rule_loss(rule) + 1e-12


def test_the_product_tree_asks_what_the_theorem_is_about(monkeypatch):
    """Every question of the tree of pairs in both worlds: scores fall along the path, depths rise by one from
    1, one trip moves one node a level by one count; and the loss of what was asked is within ε. Some blocks
    are split without asking, as released ends say: these are the same in both worlds.
    """
    cells = Partition(np.arange(256, dtype=np.uint64), np.full(256, 8), np.full(256, 1 / 256))
    ends = np.where(np.arange(256) < 128, 3.0, 0.0)
    asked = []
    decide = SplitRule.decide

    def watch(rule, scores, depth, noise):
        asked.append((rule, depth.copy(), scores))
        decide(rule, scores, depth, noise)
        return np.ones(scores.size, dtype=bool)  # the outcome that tells most: split to the end

    monkeypatch.setattr(SplitRule, "decide", watch)
    for extra in (0, 1):
        origin = np.r_[np.zeros(6, dtype=np.int64), np.full(extra, 255)]
        destination = np.r_[np.full(6, 3), np.full(extra, 7)]
        pairs.measure_pairs(
            origin, destination, cells, epsilon_tree=0.5, epsilon_count=0.5, noise=SeededNoise(1), ends=ends
        )
    half = len(asked) // 2
    scores, depths = [], []
    for (rule, depth, one), (_, again, other) in zip(asked[:half], asked[half:], strict=True):
        assert rule.fanout == 4
        assert not rule.fractional
        assert depth.tolist() == again.tolist()
        moved = np.flatnonzero(one != other)
        assert moved.size <= 1
        if moved.size == 0:  # split without asking, or a pair of single cells by now
            continue
        depths.append(depth[moved[0]])
        scores.append((one[moved[0]], other[moved[0]]))
        assert other[moved[0]] - one[moved[0]] == GRID.one
    assert depths == list(range(1, len(depths) + 1))
    assert len(depths) >= 4
    assert {int(part.max()) for _, part, _ in asked[:half] if part.size} >= {1, len(depths)}
    small, large = (np.array(part) - rule.decay for part in zip(*scores, strict=True))
    assert np.all(np.diff(small) <= 0)
    loss = path_loss(small, large, scale=rule.scale * GRID.one, decay=rule.decay)
    assert 0 < loss <= rule_loss(rule) <= 0.5


@pytest.mark.parametrize("at_ends", [0.0, 0.2, 1.0])
def test_the_forest_of_places_asks_what_the_theorem_is_about(at_ends):
    """A trip's shares in the tree of places: every level's changes add up to at most one count."""
    box, bits = hierarchy_of(sg.BoxDomain(0, 0, 1, 1)), 8
    keys = np.r_[np.arange(0, 250, 10), np.arange(5, 250, 25)].astype(np.uint64)
    start = np.array([0, 25, keys.size])
    shares = np.repeat(GRID.one // np.diff(start), np.diff(start))
    ends = np.stack([keys[start[:-1]], keys[start[1:] - 1]], axis=1)
    both = PlacedTrips(keys, shares, ends, np.arange(keys.size), start, None, None)
    one = PlacedTrips(keys[:25], shares[:25], ends[:1], np.arange(25), start[:2], None, None)
    asked = []

    def watch(rule, scores, depth, noise):
        asked.append((rule, depth, scores))
        return np.ones(scores.size, dtype=bool)

    with mock.patch.object(SplitRule, "decide", watch):
        for private in (one, both):
            measure_cells(
                private, box, epsilon=1.0, noise=SeededNoise(1), max_depth=bits, base=3, at_ends=at_ends
            )
    half = len(asked) // 2
    for (rule, depth, small), (_, _, large) in zip(asked[:half], asked[half:], strict=True):
        assert rule.fractional
        assert rule.decay >= GRID.one
        moved = large - small
        assert moved.min() >= 0
        assert 0 < moved.sum() <= GRID.one
        assert depth >= 1

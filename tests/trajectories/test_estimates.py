"""Estimates after the noise: sums, shrinkage, selection. Post-processing, so only utility is at stake."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from synthgeo.domain.box import BoxDomain
from synthgeo.hierarchy.cells import Partition
from trajectories.fit.calibrate import fit_weights
from trajectories.fit.shrinkage import (
    combine,
    combine_blocks,
    expected_counts,
    gravity,
    misfit_of_parts,
    mixed,
    posterior_means,
    traffic_exponent,
)
from trajectories.ground.plane import PlaneGround
from trajectories.measure.ends import BUCKETS, EndCounts, bucket
from trajectories.measure.pairs import PairBlocks, non_negative
from trajectories.walks.bridges import Walks, join
from trajectories.walks.sampler import EndPicker, Pool, fewer
from trajectories.walks.traits import WalkFeatures, WalkTraits, WalkWeights


@given(st.lists(st.floats(-50, 50), min_size=1, max_size=40))
def test_non_negative_numbers_keep_a_positive_sum(values):
    values = np.array(values)
    fixed = non_negative(values)
    assert fixed.min() >= 0
    assert fixed.sum() == pytest.approx(max(values.sum(), 0.0), abs=1e-6)


def test_non_negative_is_the_closest_point():
    assert non_negative(np.array([5.0, -1.0, 2.0])).tolist() == pytest.approx([4.5, 0.0, 1.5])


def blocks_of(count) -> PairBlocks:
    cells = len(count)
    low = np.repeat(np.arange(2), 2) * 2, np.tile(np.arange(2), 2) * 2
    assert cells == 4
    return PairBlocks(low[0], low[0] + 2, low[1], low[1] + 2, np.array(count, dtype=float))


def test_counts_that_agree_with_gravity_are_pulled_to_it():
    """Scatter below the noise: the expectation wins. Far above: the measurement."""
    even, centres = np.ones(4), np.arange(8.0).reshape(4, 2)
    calm = combine_blocks(blocks_of([28.0, 24.0, 22.0, 26.0]), 100.0, even, centres, 100.0)
    assert np.ptp(calm) < 1e-9
    loud = combine_blocks(blocks_of([400.0, 0.0, 0.0, 400.0]), 4.0, even, centres, 800.0)
    assert loud[0] > 390


@pytest.mark.parametrize("empty", [0.0, 0.9])
def test_posterior_means_keep_what_little_counts_have_together(empty):
    """Of 400 places a few hold much and the others a little, or nothing: what all of the others have is right
    in both worlds, though none of them stands out of noise of deviation 10. Cutting off loses the little.
    """
    rng = np.random.default_rng(3)
    true = np.where(rng.random(400) < empty, 0.0, rng.gamma(2.0, 2.0, 400))
    true[:20] = rng.uniform(60, 200, 20)
    noisy = true + rng.laplace(0, 10 / np.sqrt(2), 400)
    expected = np.full(400, true.sum() / 400)
    found, _ = posterior_means(noisy, expected, np.full(400, 100.0))
    assert found.min() >= 0
    assert found[:20] == pytest.approx(true[:20], abs=35)
    assert found[20:].sum() == pytest.approx(true[20:].sum(), abs=490)  # two and a half deviations
    assert np.abs(found - true).sum() < 0.5 * np.abs(noisy - true).sum()
    if not empty:
        cut = combine(noisy, expected, 100.0)
        assert np.abs(found - true).sum() < np.abs(cut - true).sum()


def test_posterior_means_agree_with_a_sum_over_the_grid():
    """With one count and much noise the mean is that of what is usual; with none it is the count."""
    far, _ = posterior_means(np.array([5.0]), np.array([5.0]), np.array([1e8]))
    assert 5.0 < far[0] < 50.0
    exact, _ = posterior_means(np.array([0.0, 5.0, 40.0]), np.full(3, 10.0), np.full(3, 1e-8))
    assert exact == pytest.approx([0.0, 5.0, 40.0], abs=1e-3)


def ends_like(weight, rng) -> EndCounts:
    """Noisy ends of cells, none of them cut."""
    cells = Partition(np.arange(len(weight), dtype=np.uint64), np.full(len(weight), 8), np.ones(len(weight)))
    noisy = 5000 * weight / weight.sum() + rng.laplace(0, 5, len(weight))
    nothing = np.full(len(weight), np.nan)
    return EndCounts(noisy, cells, np.arange(len(weight)), nothing, 50.0, 50.0)


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 2.0])
def test_released_ends_say_whether_they_lie_where_traffic_is(exponent):
    rng = np.random.default_rng(5)
    traffic, size = rng.lognormal(0, 1.5, 200), rng.lognormal(0, 1, 200)
    counts = ends_like(mixed(traffic, size, exponent), rng)
    assert traffic_exponent(counts, traffic, size) == pytest.approx(exponent, rel=0.25, abs=0.25)


def test_gravity_learns_that_few_go_far_and_leaves_ends_where_they_are():
    """Cells along a line; trips fall off with distance. Half of the noise's error is gone."""
    rng, cells = np.random.default_rng(0), 30
    one, two = (index.ravel() for index in np.indices((cells, cells)))
    weight = rng.uniform(1, 3, cells)
    true = weight[one] * weight[two] * np.exp(-np.abs(one - two) / 5.0)
    true *= 50_000 / true.sum()
    blocks = PairBlocks(one, one + 1, two, two + 1, true + rng.laplace(0, 10, true.size))
    ends = (np.bincount(one, true) + np.bincount(two, true)) / 2
    centres = np.column_stack([np.arange(cells, dtype=float), np.zeros(cells)])
    expected = gravity(blocks, 200.0, ends, centres, 50_000.0)
    apart = expected_counts(blocks, ends, 50_000.0)
    assert np.abs(expected - true).sum() < 0.3 * np.abs(apart - true).sum()
    assert np.bincount(one, expected) == pytest.approx(ends, rel=0.1)
    # Where groups of distances say no more than noise there is one group.
    assert gravity(blocks, 1e6, ends, centres, 50_000.0) == pytest.approx(apart)


def test_links_between_prior_and_measurement():
    rng = np.random.default_rng(0)
    expected = np.concatenate([np.zeros(500), rng.uniform(5, 60, 100)])
    deviation = 3.0
    measured = expected + rng.normal(0, deviation, 600)
    combined = combine(measured, expected, deviation**2)
    assert np.abs(combined - expected).mean() < 0.3 * np.abs(measured - expected).mean()
    # A street that the prior does not expect and everybody takes is believed.
    measured[3] = 80.0
    assert combine(measured, expected, deviation**2)[3] >= 80 - 2 * deviation


def test_noise_below_the_threshold_is_cut_off():
    measured, expected = np.array([1.0, 90.0]), np.array([0.0, 100.0])
    assert combine(measured, expected, 100.0).tolist()[0] == 0
    assert combine(measured, expected, 100.0, threshold=0.0)[1] > 80


BOX = BoxDomain(0, 0, 800, 800)
GRAPH = PlaneGround(BOX, 6).graph(Partition(np.arange(64, dtype=np.uint64), np.full(64, 6), np.full(64, 1e4)))


def random_walks(rng, count, steps=12) -> Walks:
    states = np.empty((count, steps), dtype=np.int64)
    states[:, 0] = rng.integers(0, 64, count)
    for k in range(1, steps):
        first, last = GRAPH.first[states[:, k - 1]], GRAPH.first[states[:, k - 1] + 1]
        states[:, k] = GRAPH.to[rng.integers(first, last)]
    return Walks(states.ravel(), np.arange(0, count * steps + 1, steps), np.ones(count, dtype=bool))


def pool_of(rng, count=6000, each=1) -> tuple[Pool, np.ndarray]:
    """Random walks, of random lengths whatever their way, ``each`` for a pair."""
    walks = random_walks(rng, count)
    metres = rng.uniform(1000, 8000, count)
    pair = np.arange(count) // each
    return Pool(
        walks,
        WalkFeatures.of(GRAPH, WalkTraits.of(GRAPH, walks), bucket(metres, 0.9 * metres), pair, pair % 40),
        np.full(count, 1.0),
    ), metres


NEAR, FAR = bucket(np.array([2900.0, 5500.0]), np.array([2700.0, 5000.0]))


def wanted_lengths(near=75.0, far=25.0) -> np.ndarray:
    lengths = np.zeros(BUCKETS)
    lengths[[NEAR, FAR]] = near, far
    return lengths


@pytest.mark.parametrize("each", [1, 16])
def test_selection_fills_the_buckets_as_wanted(each):
    """Walks of 1 to 8 km are offered; the table wants three of 3 km for one of 5 km, and no others."""
    rng = np.random.default_rng(0)
    pool, metres = pool_of(rng, each=each)
    chosen = pool.choose(fit_weights(pool.features, pool.weight, wanted_lengths(), None, 0.0), 1000, rng)
    # Walks are told apart by their states: which of those offered were taken.
    offered = {tuple(pool.walks.states[12 * i : 12 * i + 12]): metres[i] for i in range(pool.walks.size)}
    taken = np.array([offered[tuple(chosen.states[12 * i : 12 * i + 12])] for i in range(1000)])
    assert ((taken > 2520) & (taken < 3175)).mean() == pytest.approx(0.75, abs=0.05)
    assert ((taken > 5040) & (taken < 6350)).mean() == pytest.approx(0.25, abs=0.05)


def test_pairs_keep_their_weight_where_lengths_can_be_had_within_them():
    """With 64 walks each, nearly every pair has both lengths, and none has to give way to another."""
    rng = np.random.default_rng(1)
    pool, _ = pool_of(rng, each=64)
    weight = pool.features.weights(
        pool.weight, fit_weights(pool.features, pool.weight, wanted_lengths(), None, 0.0)
    )
    by_pair = np.bincount(pool.features.pair, weight / weight.sum()) * (pool.features.pair.max() + 1)
    assert np.quantile(by_pair, 0.05) > 0.7
    assert np.quantile(by_pair, 0.95) < 1.4


def test_selection_follows_links_and_keeps_the_lengths():
    rng = np.random.default_rng(1)
    pool, _ = pool_of(rng)
    features, even = pool.features, pool.weight / pool.weight.sum()
    # Counts that can be had: those of the same walks with another weight.
    truth = np.exp(features.links @ rng.normal(0, 3, GRAPH.links))
    links, lengths = features.links.T @ (truth / truth.sum()), features.by_bucket(truth / truth.sum())
    fitted = fit_weights(features, pool.weight, 1e4 * lengths, 1e4 * links, 0.1)
    weight = features.weights(pool.weight, fitted)
    weight /= weight.sum()
    # Not exactly: six thousand walks are a sample, and not to be taken for more.
    assert (
        np.abs(features.links.T @ weight - links).sum() < 0.7 * np.abs(features.links.T @ even - links).sum()
    )
    assert np.abs(features.by_bucket(weight) - lengths).sum() < 0.01
    # With noise far above the counts there is nothing to follow.
    deaf = fit_weights(features, pool.weight, 1e4 * lengths, 1e4 * links, 1e12)
    assert np.abs(deaf.links).max() < 1e-3 * np.abs(fitted.links).max()


def test_features_count_each_crossing_once():
    walks = random_walks(np.random.default_rng(2), 50)
    features = WalkFeatures.of(
        GRAPH, WalkTraits.of(GRAPH, walks), np.zeros(50, np.int64), np.arange(50), np.zeros(50, np.int64)
    )
    counted = np.zeros(GRAPH.links)
    for i in range(50):
        way = walks.states[12 * i : 12 * i + 12]
        np.add.at(counted, GRAPH.link_between(way[:-1], way[1:]), 1 / 11)
    assert features.links.T @ np.ones(50) == pytest.approx(counted)


def test_a_walk_that_was_not_found_is_never_chosen():
    rng = np.random.default_rng(3)
    pool, _ = pool_of(rng, 400)
    weight = np.where(np.arange(400) < 40, 1.0, 0.0)
    fitted = WalkWeights(np.zeros(BUCKETS), np.zeros(BUCKETS), 20.0 * rng.random(GRAPH.links), np.array(20.0))
    chosen = Pool(pool.walks, pool.features, weight).choose(fitted, 300, rng)
    allowed = {tuple(pool.walks.states[12 * i : 12 * i + 12]) for i in range(40)}
    assert {tuple(chosen.states[12 * i : 12 * i + 12]) for i in range(300)} <= allowed


def test_blocks_of_pairs_keep_their_weight():
    """Half of the blocks offer more short walks than the others, and short ones are wanted: blocks that could
    fill the table alone do not take over.
    """
    rng = np.random.default_rng(2)
    walks = random_walks(rng, 4000)
    block = np.repeat(np.arange(40), 100)
    metres = np.where(rng.random(4000) < np.where(block < 20, 0.9, 0.2), 2900.0, 5500.0)

    def late(of_block):
        features = WalkFeatures.of(
            GRAPH, WalkTraits.of(GRAPH, walks), bucket(metres, 0.9 * metres), np.arange(4000), of_block
        )
        fitted = fit_weights(features, np.ones(4000), wanted_lengths(99, 1), None, 0.0)
        weight = features.weights(np.ones(4000), fitted)
        return weight[block >= 20].sum() / weight.sum()

    assert late(np.zeros(4000, np.int64)) < 0.25
    assert late(block) > 0.4


def test_a_short_walk_over_a_link_that_was_one_of_many_does_not_take_over():
    """Walks of twelve steps teach that a link is liked; one that crosses nothing else comes later."""
    rng = np.random.default_rng(4)
    pool, _ = pool_of(rng, 2000)
    lengths = pool.features.by_bucket(np.ones(2000))
    liked = int(np.argmax(pool.features.links.T @ np.ones(2000)))
    links = np.where(np.arange(GRAPH.links) == liked, 300.0, 1.0)
    fitted = fit_weights(pool.features, pool.weight, lengths, links, 1.0)
    assert fitted.links[liked] > 5 + fitted.most
    short = Walks(np.array([end[liked] for end in GRAPH.link_ends]), np.array([0, 2]), np.ones(1, dtype=bool))
    walks = join([short, pool.walks])
    bucket_of = np.concatenate([pool.features.bucket[:1], pool.features.bucket])
    number = np.arange(2001)
    weight = WalkFeatures.of(GRAPH, WalkTraits.of(GRAPH, walks), bucket_of, number, number % 40).weights(
        np.ones(2001), fitted
    )
    assert weight[0] < 0.05 * weight.sum()


def end_counts(by_part, cells=2):
    """Cells cut into as many parts each; what the parts have is also what the cells have."""
    by_part = np.asarray(by_part, dtype=float)
    cell = np.repeat(np.arange(cells), len(by_part) // cells)
    bits = np.full(len(by_part), 5)
    parts = Partition(np.arange(len(by_part), dtype=np.uint64), bits, np.ones(len(by_part)))
    return EndCounts(np.bincount(cell, by_part), parts, cell, by_part, 4.0, 4.0)


def test_the_misfit_of_parts_knows_where_ends_are():
    """Ends on a route agree with a route, ends anywhere with the whole cell; how many a cell has is not
    asked.
    """
    route, anywhere = np.array([8.0, 1, 1, 1, 1, 8]), np.ones(6)
    on_it, spread = end_counts([160, 20, 20, 20, 20, 160]), end_counts([67, 67, 66, 66, 67, 67])
    assert misfit_of_parts(on_it, route) < 1 < 100 < misfit_of_parts(on_it, anywhere)
    assert misfit_of_parts(spread, anywhere) < 1 < 100 < misfit_of_parts(spread, route)
    assert misfit_of_parts(on_it, route * np.repeat([1.0, 7.0], 3)) < 1
    whole = Partition(np.zeros(1, np.uint64), np.zeros(1, np.int64), np.ones(1))
    none = EndCounts(np.array([3.0]), whole, np.zeros(1, np.int64), np.full(1, np.nan), 4.0, 4.0)
    assert misfit_of_parts(none, np.ones(1)) == 0


@given(st.integers(1, 60), st.integers(0, 10**6))
def test_near_destinations_share_one(most, seed):
    """Trips move to a destination that some trip has, in the same run of neighbours."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(200)
    before = rng.integers(0, 200, 80)
    after = fewer(before, order, most, rng)
    assert len(np.unique(after)) <= most
    assert np.isin(after, before).all()
    known = np.sort(order[np.unique(before)])
    moved = np.abs(np.searchsorted(known, order[after]) - np.searchsorted(known, order[before]))
    assert moved.max() <= -(-len(known) // most) - 1 or len(known) <= most


class _Model:
    """What ``EndPicker`` reads of a model: four cells with two places each."""

    places = type("Places", (), {"state": np.arange(8), "part": np.repeat(np.arange(4), 2)})
    place_weight = np.array([1.0, 3, 2, 2, 4, 1, 0, 5])
    cell_of_part = np.arange(4)
    partition = type("Cells", (), {"size": 4})

    def __init__(self, count):
        self.pairs = blocks_of(count)


@given(st.lists(st.integers(0, 50), min_size=4, max_size=4).filter(any), st.integers(1, 400))
def test_pairs_are_drawn_as_often_as_they_are_due(count, number):
    """Each block the whole number below or above its due; within it starts and ends spread alike."""
    origin, destination, block = EndPicker(_Model(count)).draw(number, np.random.default_rng(1))
    due = number * np.array(count) / sum(count)
    taken = np.bincount(block, minlength=4)
    assert (np.abs(taken - due) < 1).all()
    for side, states in ((0, origin), (1, destination)):
        for here in range(4):
            found = states[block == here]
            low = (here // 2, here % 2)[side] * 4
            weight = _Model.place_weight[low : low + 4]
            assert np.isin(found, np.arange(low, low + 4)).all()
            share = np.bincount(found - low, minlength=4) - taken[here] * weight / weight.sum()
            assert (np.abs(share) <= 2).all()

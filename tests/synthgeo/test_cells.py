"""Partitions, estimates on them, scores from estimates, adaptation and rounding."""

from __future__ import annotations

import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

import synthgeo as sg
from synthgeo.hierarchy.base import MAX_BITS, aligned, hierarchy_of, sticky, unbiased
from synthgeo.hierarchy.cells import Estimate, EstimateScore, Partition
from synthgeo.hierarchy.privtree import adapt

BOX = sg.BoxDomain(0, 0, 1, 1)
LAND = sg.PolygonDomain(shapely.Polygon([(0, 0), (1, 0), (1, 0.2), (0.1, 1), (0, 1)]))
DEPTH = 7


def random_partition(domain, rng, *, chance=0.7, step=1):
    """A partition made by splitting at random."""
    prefix, bits, parts = np.zeros(1, np.uint64), 0, []
    while True:
        measure = hierarchy_of(domain).measure(prefix, bits)
        prefix, measure = prefix[measure > 0], measure[measure > 0]
        split = (rng.random(prefix.size) < chance) & (bits + step <= DEPTH)
        parts.append((prefix[~split], bits, measure[~split]))
        if not split.any():
            return Partition.join(parts)
        prefix = ((prefix[split] << np.uint64(step))[:, None] | np.arange(1 << step, dtype=np.uint64)).ravel()
        bits += step


def blank(partition, rng):
    return Estimate(partition, rng.normal(5, 10, partition.size), rng.random(partition.size))


domains = st.sampled_from([BOX, LAND])
seeds = st.integers(0, 2**32 - 1)


@settings(max_examples=80, deadline=None)
@given(domains, seeds)
def test_refining_keeps_every_total_and_makes_a_refinement(domain, seed):
    rng = np.random.default_rng(seed)
    mine, theirs = random_partition(domain, rng), random_partition(domain, rng)
    estimate = blank(mine, rng)
    before = estimate.values.copy()
    estimate.refine(theirs)
    np.testing.assert_allclose(estimate.sums(mine, estimate.values), before)
    owner = theirs.holder_of(estimate.cells.start)
    assert (owner >= 0).all()
    assert (estimate.cells.stop <= theirs.stop[owner]).all()
    np.testing.assert_allclose(
        estimate.cells.measure.sum(), hierarchy_of(domain).measure(np.zeros(1, np.uint64), 0)[0]
    )
    assert (estimate.cells.start[1:] >= estimate.cells.stop[:-1]).all()


@settings(max_examples=80, deadline=None)
@given(domains, seeds)
def test_adding_to_a_coarser_partition_adds_there_and_spreads_by_measure(domain, seed):
    rng = np.random.default_rng(seed)
    mine, theirs = random_partition(domain, rng), random_partition(domain, rng)
    estimate = blank(mine, rng)
    estimate.refine(theirs)
    before = estimate.values.copy()
    extra = rng.normal(0, 3, theirs.size)
    estimate.add(theirs, extra, np.ones(theirs.size))
    np.testing.assert_allclose(estimate.sums(theirs, estimate.values - before), extra, atol=1e-9)
    owner = theirs.holder_of(estimate.cells.start)
    density = (estimate.values - before) / estimate.cells.measure
    np.testing.assert_allclose(density, (extra / theirs.measure)[owner], rtol=1e-6, atol=1e-9)
    totals = estimate.sums(theirs, estimate.values)
    estimate.coarsen(theirs)
    np.testing.assert_allclose(estimate.values, totals)


def slow_non_negative(cells, values):
    """Top-down, one node at a time."""
    out = np.zeros(cells.size)

    def go(prefix, bits, total):
        low, high = aligned(np.array([prefix, prefix + 1], np.uint64), bits)
        inside = (cells.start >= low) & (cells.start < high)
        if inside.sum() == 1:
            out[inside] = total
            return
        children = []
        for child in (2 * prefix, 2 * prefix + 1):
            a, b = aligned(np.array([child, child + 1], np.uint64), bits + 1)
            here = (cells.start >= a) & (cells.start < b)
            if here.any():
                children.append((child, max(values[here].sum(), 0.0), cells.measure[here].sum()))
        weights = [count for _, count, _ in children]
        if sum(weights) <= 0:
            weights = [measure for _, _, measure in children]
        for (child, _, _), weight in zip(children, weights, strict=True):
            go(child, bits + 1, total * weight / sum(weights))

    go(0, 0, max(values.sum(), 0.0))
    return out


@settings(max_examples=80, deadline=None)
@given(domains, seeds)
def test_non_negative_equals_the_recursion(domain, seed):
    rng = np.random.default_rng(seed)
    estimate = blank(random_partition(domain, rng), rng)
    fast = estimate.non_negative()
    np.testing.assert_allclose(fast, slow_non_negative(estimate.cells, estimate.values), atol=1e-9)
    assert (fast >= 0).all()


@settings(max_examples=80, deadline=None)
@given(domains, seeds)
def test_scores_are_whole_non_negative_and_fall_towards_the_leaves(domain, seed):
    """What PrivTree's theorem needs of the part of the score that comes from past releases."""
    rng = np.random.default_rng(seed)
    estimate = blank(random_partition(domain, rng), rng)
    score = EstimateScore(estimate.cells, estimate.non_negative(), 2**20)
    parent = None
    for bits in range(DEPTH + 3):
        prefix = np.arange(2**bits, dtype=np.uint64)
        measure = hierarchy_of(domain).measure(prefix, bits)
        values = score(prefix, bits, measure)
        assert values.dtype == np.int64
        assert (values >= 0).all()
        assert (values[measure == 0] == 0).all()
        if parent is not None:
            assert (values <= parent[prefix >> np.uint64(1)]).all()
        parent = values


@settings(max_examples=80, deadline=None)
@given(domains, seeds, st.sampled_from([1, 2]))
def test_adapting_covers_the_domain_and_keeps_its_thresholds(domain, seed, step):
    rng = np.random.default_rng(seed)
    partition = random_partition(domain, rng, step=step)
    count = rng.exponential(20, partition.size)
    found = adapt(
        partition,
        count,
        hierarchy=hierarchy_of(domain),
        split_above=25,
        merge_below=10,
        levels=range(0, DEPTH + 1, step),
    )
    np.testing.assert_allclose(found.measure.sum(), partition.measure.sum())
    np.testing.assert_allclose(
        found.measure, hierarchy_of(domain).measure(found.prefix, found.bits), rtol=1e-9
    )
    assert (found.start[1:] >= found.stop[:-1]).all()
    assert found.bits.max() <= DEPTH
    same = found.size == partition.size
    unmoved = (
        same and np.array_equal(found.start, partition.start) and np.array_equal(found.bits, partition.bits)
    )
    if not unmoved:
        fine = Estimate(partition, count, np.zeros(partition.size))
        fine.refine(found)
        spread = fine.sums(found, fine.values)
        may_split = found.bits + step <= DEPTH
        assert (spread[may_split] <= 25 + 1e-9).all()


def test_an_unchanged_partition_is_returned_as_it_is():
    partition = random_partition(BOX, np.random.default_rng(2))
    count = np.full(partition.size, 5.0)
    assert (
        adapt(
            partition,
            count,
            hierarchy=hierarchy_of(BOX),
            split_above=9,
            merge_below=1,
            levels=range(DEPTH + 1),
        )
        is partition
    )


def test_rounding_is_unbiased_and_keeps_the_total():
    rng = np.random.default_rng(0)
    values = rng.exponential(0.7, 200)
    rounds = np.array([unbiased(values, rng) for _ in range(4000)])
    assert (np.abs(rounds - values) < 1).all()
    assert (np.abs(rounds.sum(axis=1) - values.sum()) < 1).all()
    # Each cell's mean is within 6 standard errors (of at most 0.5/sqrt(4000)): a miss has probability below
    # 1e-6.
    assert np.abs(rounds.mean(axis=0) - values).max() < 6 * 0.5 / np.sqrt(4000)


def test_sticky_rounding_leaves_cells_alone_where_it_can():
    rng = np.random.default_rng(0)
    values = np.array([2.5, 0.5, 3.5, 1.5])
    current = np.array([3, 0, 3, 2])
    for _ in range(20):
        rounded = sticky(values, current, rng)
        assert rounded.sum() == 8
        np.testing.assert_array_equal(rounded, current)


def test_cell_of_knows_the_gaps():
    partition = random_partition(LAND, np.random.default_rng(5), chance=1.0)
    corner, _ = hierarchy_of(BOX).locate(np.array([[0.99, 0.99]]), 20)
    assert partition.cell_of(corner, 20).tolist() == [-1]
    assert MAX_BITS == 62


@pytest.mark.parametrize("weights", [1, 2])
def test_totals_are_exact(weights):
    rng = np.random.default_rng(3)
    partition = random_partition(BOX, rng)
    keys = np.sort(rng.integers(0, 2**20, 500).astype(np.uint64))
    amounts = rng.integers(-5, 5, (500, weights))
    expected = np.zeros((partition.size, weights), dtype=np.int64)
    np.add.at(expected, partition.cell_of(keys, 20), amounts)
    np.testing.assert_array_equal(partition.totals(keys, 20, amounts), expected)

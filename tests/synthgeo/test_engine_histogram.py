"""Sparse histograms: exact, canonical, and the same in whatever pieces the rows come."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synthgeo.errors import InputError
from synthgeo.sources import histogram as histogram_module
from synthgeo.sources.histogram import Accumulator, Histogram, merge_all

keys_and_weights = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 6), st.integers(2**63, 2**64 - 1)), st.integers(-2, 2), st.integers(-2, 2)
    ),
    max_size=40,
)


def arrays(rows):
    keys = np.array([row[0] for row in rows], dtype=np.uint64)
    return keys, np.array([row[1:] for row in rows], dtype=np.int64).reshape(len(rows), 2)


def by_hand(rows):
    sums = defaultdict(lambda: np.zeros(2, dtype=np.int64))
    for key, *weights in rows:
        sums[key] += weights
    return {key: tuple(total) for key, total in sums.items() if any(total)}


def as_dict(histogram):
    return {int(key): tuple(row) for key, row in zip(histogram.keys, histogram.weights, strict=True)}


@settings(deadline=None)
@given(rows=keys_and_weights)
def test_weighted_histogram_is_the_sum_by_key(rows):
    histogram = Histogram.of(*arrays(rows))
    assert as_dict(histogram) == by_hand(rows)
    assert (np.diff(histogram.keys.astype(object)) > 0).all()


@settings(deadline=None)
@given(keys=st.lists(st.one_of(st.integers(0, 9), st.integers(0, 2**64 - 1)), max_size=40))
def test_counting_is_the_same_dense_or_sorted(keys):
    """Small keys are counted in a dense array, large ones by sorting; both mean the same."""
    plain = Histogram.of(np.array(keys, dtype=np.uint64))
    weighted = Histogram.of(np.array(keys, dtype=np.uint64), np.full((len(keys), 1), 3))
    assert np.array_equal(plain.keys, weighted.keys)
    assert np.array_equal(3 * plain.weights, weighted.weights)
    assert as_dict(plain) == {key: (keys.count(key),) for key in set(keys)}


@settings(deadline=None)
@given(rows=keys_and_weights, cuts=st.lists(st.integers(0, 40), max_size=5), compact_at=st.integers(0, 10))
def test_pieces_in_any_cut_give_the_same_bits(rows, cuts, compact_at):
    keys, weights = arrays(rows)
    whole = Histogram.of(keys, weights)
    total = Accumulator(2, compact_at=compact_at)
    for at in np.split(np.arange(len(rows)), sorted(min(cut, len(rows)) for cut in cuts)):
        part = Histogram.of(keys[at], weights[at])
        total.add(part if part.size else Histogram.empty(2))
    assert total.result().equals(whole if whole.size else Histogram.empty(2))


@pytest.mark.slow
@settings(deadline=None)
@given(parts=st.lists(keys_and_weights, min_size=2, max_size=5))
def test_compiled_merge_is_the_same(parts):
    """Large histograms are merged in pairs by compiled code, small ones in numpy."""
    histograms = [Histogram.of(*arrays(rows)) for rows in parts if rows]
    histograms = [part for part in histograms if part.size] or [Histogram.empty(2)]
    if len(histograms) > 1:
        merged = merge_all(histograms)
        compiled = histogram_module._merge_tree(histograms)
        assert compiled.equals(merged if merged.size else Histogram.empty(2))
        assert as_dict(compiled) == by_hand([row for rows in parts for row in rows])


def test_a_key_that_cancels_is_absent_however_it_is_cut():
    plus = Histogram.of(np.array([5, 7], dtype=np.uint64), np.array([[2], [1]]))
    minus = Histogram.of(np.array([5], dtype=np.uint64), np.array([[-2]]))
    assert as_dict(plus.merge(minus)) == {7: (1,)}


def test_sums_beyond_float_precision_stay_exact():
    big = np.full((3, 1), 2**60 + 1)
    assert as_dict(Histogram.of(np.zeros(3, dtype=np.uint64), big)) == {0: (3 * (2**60 + 1),)}


@pytest.mark.parametrize(
    ("keys", "weights"),
    [
        (np.array([1, 2]), None),
        (np.array([[1], [2]], dtype=np.uint64), None),
        (np.array([1, 2], dtype=np.uint64), np.array([[1.0], [2.0]])),
        (np.array([1, 2], dtype=np.uint64), np.array([[1], [2], [3]])),
    ],
)
def test_wrong_shapes_and_types_are_refused(keys, weights):
    with pytest.raises(TypeError):
        Histogram.of(keys, weights)


def test_histograms_of_different_width_do_not_merge():
    with pytest.raises(InputError, match="weight columns"):
        merge_all([Histogram.empty(1), Histogram.empty(2)])
    with pytest.raises(InputError, match="2 weights per row, expected 1"):
        Accumulator(1).add(Histogram.empty(2))

"""Morton keys: a point is in its cell, to the last bit."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synthgeo.errors import ConfigError
from synthgeo.hierarchy import morton
from synthgeo.hierarchy.base import MAX_BITS, children, coarsen, key_range

UNIT = (0.0, 0.0, 1.0, 1.0)


@st.composite
def frames(draw):
    """Bounds of very different sizes and places: degrees, UTM metres, thin strips."""
    low = [draw(st.floats(-1e7, 1e7)) for _ in range(2)]
    size = [draw(st.floats(1e-3, 1e6)) for _ in range(2)]
    return (low[0], low[1], low[0] + size[0], low[1] + size[1])


def points_in(bounds, draw, bits, count=20):
    """Random points, corners, points on grid lines, and the floats next to those."""
    low, high = np.array(bounds[:2]), np.array(bounds[2:])
    shares = np.array(draw(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=count)))
    places = [low + shares * (high - low), np.array([bounds[:2], bounds[2:]])]
    column = np.array(draw(st.lists(st.integers(0, 2 ** ((bits + 1) // 2)), min_size=1, max_size=count)))
    row = np.array([draw(st.integers(0, 2 ** (bits // 2)))] * column.size)
    lines = np.column_stack(
        [
            morton.edge(column, (bits + 1) // 2, bounds[0], bounds[2]),
            morton.edge(row, bits // 2, bounds[1], bounds[3]),
        ]
    )
    places += [lines, np.nextafter(lines, -np.inf), np.nextafter(lines, np.inf)]
    return np.clip(np.vstack(places), low, high)


def holds(cell, xy, bounds):
    """Half-open membership, with the frame's own upper edges closed."""
    inside = (xy >= cell[:, :2]).all(axis=1)
    for axis in (0, 1):
        inside &= (xy[:, axis] < cell[:, axis + 2]) | (
            (xy[:, axis] == bounds[axis + 2]) & (cell[:, axis + 2] == bounds[axis + 2])
        )
    return inside


@settings(max_examples=150, deadline=None)
@given(st.data(), frames(), st.integers(0, MAX_BITS))
def test_cell_of_a_point_contains_it(data, bounds, bits):
    xy = points_in(bounds, data.draw, bits)
    keys, inside = morton.locate(xy, bits, bounds)
    assert inside.all()
    assert (keys < 2**bits).all()
    assert holds(morton.cell_bounds(keys, bits, bounds), xy, bounds).all()


@settings(max_examples=100, deadline=None)
@given(st.data(), frames(), st.integers(0, MAX_BITS), st.integers(0, MAX_BITS))
def test_coarser_key_is_the_finer_one_shifted(data, bounds, first, second):
    coarse, fine = sorted((first, second))
    xy = points_in(bounds, data.draw, fine)
    assert np.array_equal(
        morton.locate(xy, coarse, bounds)[0], coarsen(morton.locate(xy, fine, bounds)[0], fine, coarse)
    )


@settings(max_examples=100, deadline=None)
@given(st.integers(0, MAX_BITS), st.data())
def test_encode_and_decode_are_inverse(bits, data):
    prefix = np.array(data.draw(st.lists(st.integers(0, 2**bits - 1), min_size=1)), dtype=np.uint64)
    column, row = morton.decode(prefix, bits)
    assert (column < 2 ** ((bits + 1) // 2)).all()
    assert (row < 2 ** (bits // 2)).all()
    assert np.array_equal(morton.encode(column, row, bits), prefix)


def test_encode_matches_bit_by_bit_interleaving():
    rng = np.random.default_rng(0)
    for bits in (1, 2, 7, 20, 41, 62):
        column = rng.integers(0, 2 ** ((bits + 1) // 2), 50)
        row = rng.integers(0, 2 ** (bits // 2), 50)
        for c, r, key in zip(column, row, morton.encode(column, row, bits), strict=True):
            across, up = format(c, f"0{(bits + 1) // 2}b"), format(r, f"0{max(1, bits // 2)}b")
            text = "".join(across[i // 2] if i % 2 == 0 else up[i // 2] for i in range(bits))
            assert int(text, 2) == int(key)


@settings(max_examples=60, deadline=None)
@given(frames(), st.integers(0, MAX_BITS - 2), st.integers(1, 2), st.data())
def test_children_tile_their_parent(bounds, bits, levels, data):
    prefix = np.array([data.draw(st.integers(0, 2**bits - 1))], dtype=np.uint64)
    parent = morton.cell_bounds(prefix, bits, bounds)[0]
    below = children(prefix, step=levels)
    assert below.shape == (1, 2**levels)
    cells = morton.cell_bounds(below.ravel(), bits + levels, bounds)
    assert cells[:, 0].min() == parent[0]
    assert cells[:, 1].min() == parent[1]
    assert cells[:, 2].max() == parent[2]
    assert cells[:, 3].max() == parent[3]
    edges = {tuple(cell[[0, 2]]) for cell in cells}, {tuple(cell[[1, 3]]) for cell in cells}
    for axis in edges:  # neighbours share the very same float
        ends = sorted(axis)
        assert all(a[1] == b[0] for a, b in itertools.pairwise(ends))
    low, high = key_range(prefix, bits, bits + levels)
    assert below.ravel().tolist() == list(range(int(low[0]), int(high[0])))


def test_bits_may_differ_from_cell_to_cell():
    prefix = np.array([0, 1, 3, 5], dtype=np.uint64)
    bits = np.array([0, 1, 2, 3])
    together = morton.cell_bounds(prefix, bits, UNIT)
    apart = np.vstack([morton.cell_bounds(prefix[[i]], int(bits[i]), UNIT) for i in range(4)])
    assert np.array_equal(together, apart)
    assert together.tolist() == [[0, 0, 1, 1], [0.5, 0, 1, 1], [0.5, 0.5, 1, 1], [0.75, 0, 1, 0.5]]


def test_x_is_halved_first():
    keys, _ = morton.locate(np.array([[0.9, 0.1], [0.1, 0.9]]), 1, UNIT)
    assert keys.tolist() == [1, 0]


def test_outside_the_frame_is_reported_not_clipped():
    xy = np.array([[0.5, 0.5], [1.0, 1.0], [1.0000001, 0.5], [-1e-12, 0.5], [np.nan, 0.5], [0.5, np.inf]])
    keys, inside = morton.locate(xy, 10, UNIT)
    assert inside.tolist() == [True, True, False, False, False, False]
    assert keys[1] == 2**10 - 1
    assert (keys[2:] == 0).all()


def test_more_points_than_one_chunk():
    xy = np.random.default_rng(1).random((100_003, 2))
    keys, _ = morton.locate(xy, 31, UNIT)
    assert np.array_equal(keys[::1000], morton.locate(xy[::1000], 31, UNIT)[0])
    assert morton.locate(np.zeros((0, 2)), 31, UNIT)[0].size == 0


@pytest.mark.parametrize("bits", [-1, MAX_BITS + 1, 3.0, np.array([2, 63])])
def test_impossible_bits_are_refused(bits):
    with pytest.raises(ConfigError, match="bits"):
        morton.cell_bounds(np.zeros(1, dtype=np.uint64), bits, UNIT)

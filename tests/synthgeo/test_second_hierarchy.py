"""Nothing above a hierarchy knows that space is halved: trees, moves, estimates and a stream over thirds.

The root is cut into five strips (three bits, three of eight codes unused), each strip into thirds (two bits,
one of four codes unused) again and again: uneven levels, a fanout that is no power of two, and codes that no
cell has. H3 is of that form: 122 base cells in seven bits, then seven children in three bits a level.
"""

from __future__ import annotations

import numpy as np
import pytest
import shapely

import synthgeo as sg
from synthgeo.domain.box import BoxDomain
from synthgeo.errors import ConfigError
from synthgeo.hierarchy import base
from synthgeo.hierarchy.base import ROOT, as_cells
from synthgeo.hierarchy.cells import Estimate, Partition
from synthgeo.hierarchy.privtree import GRID, SplitRule, adapt, grow, privtree

STRIPS = 5


class Thirds:
    """The unit square in vertical strips: five, then thirds of thirds."""

    fanout = 3

    def __init__(self, domain):
        self.domain = domain

    def names(self, prefix, bits):
        return None

    def levels(self, max_depth, fanout):
        if fanout != 3:
            raise ConfigError(f"strips are cut into thirds, got a fanout of {fanout}")
        return (0, *range(3, 2 * max_depth + 2, 2))

    def locate(self, xy, bits):
        inside = self.domain.contains(xy)
        place = np.where(inside, xy[:, 0], 0.0) * STRIPS
        keys = np.zeros(len(xy), dtype=np.uint64)
        width = 3
        for _ in range(0 if bits == 0 else (bits - 1) // 2):
            digit = np.minimum(place.astype(np.int64), (STRIPS if width == 3 else 3) - 1)
            keys = (keys << np.uint64(width)) | digit.astype(np.uint64)
            place, width = (place - digit) * 3, 2
        return np.where(inside, keys, np.uint64(0)), inside

    def strips(self, prefix, bits):
        """Left ends and widths; no width where a code names no cell."""
        prefix, bits = as_cells(prefix, bits)
        left, width = np.zeros(prefix.size), np.ones(prefix.size)
        for i, (code, b) in enumerate(zip(prefix.tolist(), bits.tolist(), strict=True)):
            if b:
                parts = [(code >> (b - 3), STRIPS)]
                parts += [((code >> shift) & 3, 3) for shift in range(b - 5, -1, -2)]
                for digit, base_ in parts:
                    width[i] = width[i] / base_ if digit < base_ else 0.0
                    left[i] += digit * width[i]
        return left, width

    def measure(self, prefix, bits):
        return self.strips(prefix, bits)[1]

    def sample(self, prefix, bits, counts, rng):
        left, width = (np.repeat(part, counts) for part in self.strips(prefix, bits))
        return np.column_stack([left + width * rng.random(len(left)), rng.random(len(left))])

    def geometry(self, prefix, bits):
        left, width = self.strips(prefix, bits)
        return shapely.box(left, 0, left + width, 1)


@pytest.fixture
def thirds(monkeypatch):
    domain = BoxDomain(0, 0, 1, 1)
    base.hierarchy_of.cache_clear()
    monkeypatch.setitem(base.HIERARCHIES, "box", f"{__name__}:Thirds")
    yield base.hierarchy_of(domain)
    base.hierarchy_of.cache_clear()


def dense(n=4000):
    rng = np.random.default_rng(1)
    return np.column_stack([rng.beta(2, 8, n), rng.random(n)])


def test_trees_follow_the_levels(thirds):
    keys, counts = np.unique(thirds.locate(dense(), 11)[0], return_counts=True)
    tree = privtree(
        keys, counts * GRID.one, hierarchy=thirds, epsilon=1.0, noise=sg.SeededNoise(1), max_depth=5, fanout=3
    )
    assert set(tree.bits.tolist()) <= {3, 5, 7, 9, 11}
    assert tree.size > 20
    np.testing.assert_allclose(tree.measure.sum(), 1.0)
    assert tree.totals(keys, 11, counts).sum() == 4000
    assert (np.diff(thirds.strips(tree.prefix, tree.bits)[0]) > 0).all()


def test_a_partition_moves_and_its_estimate_stays_consistent(thirds, silence):
    levels = thirds.levels(4, 3)
    start = grow(
        thirds,
        lambda p, b, m: np.full(p.size, 50 * GRID.one),
        SplitRule(1.0, 3),
        levels=levels[:3],
        noise=silence,
    )
    assert start.size == 15
    counts = np.where(np.arange(15) < 3, 81.0, 0.2)
    moved = adapt(start, counts, hierarchy=thirds, levels=levels, split_above=10, merge_below=1)
    # The first strip's thirds of 81 are cut twice, into 9 of 9; the other four families become strips again.
    assert moved.bits.tolist() == [9] * 27 + [3] * 4
    estimate = Estimate(start, counts - 0.4, np.ones(15), levels=levels)
    estimate.refine(moved)
    np.testing.assert_allclose(estimate.values.sum(), (counts - 0.4).sum())
    released = estimate.non_negative()
    np.testing.assert_allclose(released.sum(), estimate.values.sum())
    assert (released >= 0).all()
    assert (
        adapt(moved, np.full(31, 5.0), hierarchy=thirds, levels=levels, split_above=10, merge_below=1)
        is moved
    )
    whole = Partition.whole(thirds)
    assert (whole.size, whole.measure.tolist()) == (1, [1.0])
    assert thirds.measure(ROOT, 0).tolist() == [1.0]


@pytest.mark.parametrize("persist", [False, True])
def test_a_stream_runs_on_it(thirds, persist, tmp_path):
    with pytest.raises(ConfigError, match="thirds"):
        sg.PHDStream(domain=thirds.domain, budget=sg.PrivacyBudget(5.0), settings=sg.PointSettings(fanout=2))
    stream = sg.PHDStream(
        domain=thirds.domain, budget=sg.PrivacyBudget(5.0),
        settings=sg.PointSettings(max_depth=5, persist=persist), noise=sg.SeededNoise(1),
    )  # fmt: skip
    for _ in range(3):
        release = stream.update(dense())
    assert abs(release.total - 12_000) < 200
    assert release.xy[:, 0].mean() == pytest.approx(0.2, abs=0.02)
    assert len(release.cells) == release.partition.size
    stream.save(tmp_path / "state")
    again = sg.PHDStream.load(tmp_path / "state")
    assert np.array_equal(again.update(dense()).xy, stream.update(dense()).xy)

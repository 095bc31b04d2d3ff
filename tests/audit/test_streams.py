"""Audits of PrivTree and the spatial stream, with the literal PHDStream and its kin as twins.

White-box parts are exact. Black-box parts use fixed seeds; over the choice of seeds an honest mechanism is
accused with probability at most 1e-9 an audit.
"""

from __future__ import annotations

import functools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audits.stream_attacks import (
    BOX,
    RULE,
    depth_reached,
    event_costs,
    first_release,
    make,
    tree_scores,
)
from audits.stream_twins import Literal, Spanning, Watched
from streams.spatial.phd import PHDStream
from synthgeo.auditing.blackbox import audit
from synthgeo.auditing.neighbours import deletion_path
from synthgeo.auditing.whitebox import path_loss
from synthgeo.hierarchy.base import hierarchy_of
from synthgeo.hierarchy.privtree import GRID
from synthgeo.privacy.noise import SeededNoise

CONFIDENCE = 1 - 1e-9


class TestTree:
    """ε_tree = 1 throughout: λ = 3, δ = 2.08 counts per level."""

    DECAY = RULE.decay / GRID.one

    def loss(self, kind, levels=20):
        one, other = (
            tree_scores(kind, batch, levels) for batch in deletion_path(BOX, levels=levels, decay=self.DECAY)
        )
        return path_loss(one * GRID.one, other * GRID.one, scale=RULE.scale * GRID.one, decay=RULE.decay)

    def test_the_literal_rule_loses_five_times_its_share_on_a_deletion_path(self):
        assert self.loss(Literal) > 4.5

    def test_the_mended_rule_does_not(self):
        assert self.loss(Watched) <= 1.0

    @pytest.mark.statistical
    @pytest.mark.parametrize(("kind", "broken"), [(Watched, False), (Literal, True)])
    def test_black_box_on_the_depth_reached(self, kind, broken):
        levels = 10
        pair = [
            tree_scores(kind, batch, levels) for batch in deletion_path(BOX, levels=levels, decay=self.DECAY)
        ]
        mechanism = functools.partial(depth_reached, rule=RULE)
        result = audit(
            mechanism, pair, runs=120_000, confidence=CONFIDENCE, claimed=1.0, batched=True, seed=1
        )
        assert result.violates is broken

    @settings(max_examples=25, deadline=None)
    @given(
        st.lists(
            st.lists(st.tuples(st.integers(0, 15), st.sampled_from([1, 1, -1])), max_size=25),
            min_size=1,
            max_size=4,
        ),
        st.integers(0, 15),
        st.integers(0, 2**32),
    )
    def test_scores_of_any_stream_are_non_negative_monotone_and_move_by_one(self, batches, cell, seed):
        """The conditions of PrivTree's theorem, on the scores that were really used, after any past of
        inserts and deletes.
        """
        worlds = []
        for extra in (False, True):
            stream = make(Watched, epsilon=2.0, max_depth=4, noise=SeededNoise(seed))
            for number, batch in enumerate(batches):
                rows = [*batch, (cell, 1)] if extra and number == len(batches) - 1 else batch
                stream.update(_cells_frame(rows))
            worlds.append(_all_scores(stream, 4))
        for scores in worlds:
            for depth, level in enumerate(scores):
                assert level.min() >= 0
                if depth:
                    assert np.all(level <= np.repeat(scores[depth - 1], 2))
        for depth, (one, other) in enumerate(zip(*worlds, strict=True)):
            moved = other - one
            assert moved[cell >> (4 - depth)] == GRID.one
            assert np.count_nonzero(moved) == 1


def _cells_frame(rows):
    """Points in the middle of the 16 cells of depth 4."""
    shapes = hierarchy_of(BOX).geometry(np.arange(16, dtype=np.uint64), 4)
    places = np.array([(s.centroid.x, s.centroid.y) for s in shapes])
    cells = np.array([cell for cell, _ in rows], dtype=np.int64)
    return pd.DataFrame(
        {
            "x": places[cells, 0],
            "y": places[cells, 1],
            "op": np.array([op for _, op in rows], dtype=np.int64),
        }
    )


def _all_scores(stream, depths):
    levels = []
    for depth in range(depths):
        prefix = np.arange(1 << depth, dtype=np.uint64)
        measure = hierarchy_of(stream.domain).measure(prefix, depth)
        levels.append(stream.mechanism.structure.last(prefix, depth, measure))
    return levels


class TestCounts:
    @pytest.mark.parametrize("schedule", ["every_step", "once", "growing", "auto"])
    @pytest.mark.parametrize("counter", ["simple", "block", "kary"])
    def test_structure_and_counts_together_stay_within_epsilon(self, counter, schedule):
        costs = event_costs(PHDStream, counter=counter, schedule=schedule)
        assert costs.max() <= 1.0 + 1e-9
        assert costs.max() >= 1.0 - 1e-9

    @pytest.mark.parametrize("schedule", ["once", "growing"])
    def test_a_counter_that_spans_a_rebuild_is_caught(self, schedule):
        assert event_costs(Spanning, counter="block", schedule=schedule).max() == pytest.approx(1.5)


def test_what_is_audited_is_what_is_released():
    row = first_release(np.full((50, 2), 0.1), SeededNoise(1), epsilon=100.0)
    assert row[1] == pytest.approx(50, abs=2)
    assert row[2:].sum() == pytest.approx(row[1])

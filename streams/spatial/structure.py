"""Where the leaves of a spatial mechanism come from: a private tree, or what was released so far."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from streams.mechanism import EventBudget
from streams.spatial.cells import ReleasedCells
from streams.spatial.requests import Counts
from streams.spatial.settings import PointSettings
from synthgeo.arrays import Floats, Ints, Keys
from synthgeo.hierarchy.base import Hierarchy
from synthgeo.hierarchy.cells import EstimateScore, Partition
from synthgeo.hierarchy.privtree import GRID, KeyScore, Score, SplitRule, adapt, grow
from synthgeo.privacy.noise import Noise
from synthgeo.sources import Histogram

# Cells are split above, and families merged below, this many standard deviations of the noise in a leaf.
# Chosen on the circles (ADR 2); the sweep in docs/benchmarks.md has what other values do elsewhere.
SPLIT_AT = 2.0
MERGE_AT = 1.0


class Structure:
    """The rules by which leaves are found, and what they cost.

    Guarantee
    ---------
    ``grow`` costs an event of its batch ``event.structure`` and other events nothing. It sees score(v) = Ĝ(v)
    + inserted(v): Ĝ is the last release made non-negative and consistent, the same in both worlds, and one
    event moves ``inserted`` by at most 1 on one path, so scores are non-negative and monotone in both worlds,
    as PrivTree's theorem requires (``synthgeo.hierarchy.privtree``). Deletions reach the tree one step later,
    through Ĝ. ``follow`` reads released counts alone, which costs nothing.
    """

    def __init__(
        self,
        hierarchy: Hierarchy,
        *,
        event: EventBudget,
        settings: PointSettings,
        noise: Noise,
    ) -> None:
        self.hierarchy = hierarchy
        max_depth, theta = settings.max_depth, settings.theta
        fanout = hierarchy.fanout if settings.fanout is None else settings.fanout
        self.levels = hierarchy.levels(max_depth, fanout)  # bits of the cells by depth
        self.bits = self.levels[-1]
        self.max_depth, self.fanout = max_depth, fanout
        self.rule = SplitRule(event.structure.epsilon, fanout, theta)
        self.theta = self.rule.theta
        self.noise = noise

    def blank(self) -> ReleasedCells:
        """What is released before the first step: nothing, on one leaf."""
        return ReleasedCells(self.hierarchy, levels=self.levels)

    def grow(self, cells: ReleasedCells, keys: Keys, inserted: Ints) -> Partition:
        """The leaves of a private tree over what was released and what a batch inserts."""
        score = self.score(cells, keys, inserted)
        return grow(self.hierarchy, score, self.rule, levels=self.levels, noise=self.noise)

    def leaves(self, cells: ReleasedCells, counts: Counts) -> tuple[Partition, Counts]:
        """The same tree, which asks for the counts of its nodes where these do not come at once; and the
        counts, with what was asked for.
        """
        if isinstance(counts, Histogram):
            return self.grow(cells, counts.keys, counts.weights[:, 0]), counts
        past, now = EstimateScore(cells.estimate.cells, cells.released, GRID.one), counts.score()

        def score(prefix: Keys, bits: int, measure: Floats) -> Ints:
            both: Ints = past(prefix, bits, measure) + now(prefix, bits, measure)
            return both

        leaves = grow(self.hierarchy, score, self.rule, levels=self.levels, noise=self.noise)
        return leaves, now.counts

    def score(self, cells: ReleasedCells, keys: Keys, inserted: Ints) -> Score:
        """What the tree sees: non-negative, monotone, moved by at most 1 on one path by one event."""
        past = EstimateScore(cells.estimate.cells, cells.released, GRID.one)
        now = KeyScore(keys, self.bits, inserted * GRID.one)
        return lambda prefix, bits, measure: past(prefix, bits, measure) + now(prefix, bits, measure)

    def follow(
        self,
        cells: ReleasedCells,
        variance: float,
        *,
        collected: bool = False,
        expected: Floats | None = None,
    ) -> Partition:
        """The leaves moved by the released counts: split where they stand out of the noise, merged where they
        do not. ``variance`` is that of a leaf that stays; with ``collected``, a leaf that has collected more
        noise than that (it was several leaves) has to hold more in proportion. ``expected`` are released
        counts to follow in place of the last release's.
        """
        counts, deviation = cells.on_leaves(), math.sqrt(variance)
        if expected is not None:
            counts, collected = np.maximum(expected, 0.0), False
        if collected:
            counts = counts * np.sqrt(variance / np.maximum(cells.variance(), variance))
        return adapt(
            cells.partition,
            counts,
            hierarchy=self.hierarchy,
            levels=self.levels,
            split_above=SPLIT_AT * deviation,
            merge_below=MERGE_AT * deviation,
        )

    def settings(self) -> dict[str, Any]:
        """What was chosen, as plain values."""
        return {"max_depth": self.max_depth, "fanout": self.fanout, "theta": self.theta}

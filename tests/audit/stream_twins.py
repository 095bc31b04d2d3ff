"""Broken twins of the spatial stream."""

from __future__ import annotations

import numpy as np

from streams.spatial.phd import PHDStream
from synthgeo.hierarchy.base import hierarchy_of
from synthgeo.hierarchy.cells import EstimateScore
from synthgeo.hierarchy.privtree import GRID, KeyScore, grow


class Watched(PHDStream):
    """The honest stream, with the score function of the last structure step kept for a look."""

    def _score(self, keys, inserted):
        past = EstimateScore(self._estimate.cells, self._released, GRID.one)
        now = KeyScore(keys, self.bits, inserted * GRID.one)
        return lambda prefix, bits, measure: past(prefix, bits, measure) + now(prefix, bits, measure)

    def _grow(self, keys, inserted):
        self.score = self._score(keys, inserted)
        return grow(self.hierarchy, self.score, self.rule, levels=self.levels, noise=self.noise)


class Literal(Watched):
    """PHDStream as printed: PrivTree is fed G(t-1) + ∇F(t), with its negative values and with deletions."""

    def _privatise(self, counts, *, structure):
        weights = counts.weights
        self._net = weights[:, 0] - (weights[:, 1] if weights.shape[1] > 1 else 0)
        super()._privatise(counts, structure=structure)

    def _score(self, keys, inserted):
        past = EstimateScore(self._estimate.cells, self._estimate.values, GRID.one)
        now = KeyScore(keys, self.bits, self._net * GRID.one)
        return lambda prefix, bits, measure: past(prefix, bits, measure) + now(prefix, bits, measure)


class Spanning(PHDStream):
    """Standing counters go on through structure steps at full ε: those events pay for both."""

    def _privatise(self, counts, *, structure):
        if structure:
            self._move_to(self._grow(counts.keys, counts.weights[:, 0]))
        super()._privatise(counts, structure=False)


class TrueTotal(PHDStream):
    """Releases that are rescaled to the true number of points."""

    def _privatise(self, counts, *, structure):
        super()._privatise(counts, structure=structure)
        true = float(counts.weights[:, 0].sum())
        total = float(self._released.sum())
        self._released = (
            self._released * (true / total) if total else self._released + true / self._released.size
        )


def path_scores(stream, depths: int) -> np.ndarray:
    """Scores, in counts, of the nodes on the path of prefix 0 at the last structure step."""
    prefix = np.zeros(1, dtype=np.uint64)
    return np.array(
        [
            stream.score(prefix, d, hierarchy_of(stream.domain).measure(prefix, d))[0] / GRID.one
            for d in range(depths)
        ]
    )

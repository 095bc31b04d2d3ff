"""Broken twins of the spatial stream: the honest driver with a faulty mechanism."""

from __future__ import annotations

import numpy as np

from streams.spatial.phd import PHD, PHDStream
from synthgeo.hierarchy.base import hierarchy_of
from synthgeo.hierarchy.cells import EstimateScore
from synthgeo.hierarchy.privtree import GRID, KeyScore


class WatchedPHD(PHD):
    """The honest mechanism, with the score function of the last structure step kept for a look."""

    def _grown(self, keys, inserted):
        self.score = self._score(keys, inserted)
        return super()._grown(keys, inserted)


class LiteralPHD(WatchedPHD):
    """PHDStream as printed: PrivTree is fed G(t-1) + ∇F(t), with its negative values and with deletions."""

    def advance(self, counts, *, step, structure):
        self._net = counts.weights[:, 0] - counts.weights[:, 1]
        super().advance(counts, step=step, structure=structure)

    def _score(self, keys, inserted):
        past = EstimateScore(self.cells.estimate.cells, self.cells.estimate.values, GRID.one)
        now = KeyScore(keys, self.bits, self._net * GRID.one)
        return lambda prefix, bits, measure: past(prefix, bits, measure) + now(prefix, bits, measure)


class SpanningPHD(PHD):
    """Standing counters go on through structure steps at full ε: those events pay for both."""

    def advance(self, counts, *, step, structure):
        if structure:
            self._move_to(self._grown(counts.keys, counts.weights[:, 0]))
        super().advance(counts, step=step, structure=False)
        if structure:
            self._paid = (self.event.structure.epsilon, self.event.whole.epsilon)


class TrueTotalPHD(PHD):
    """Releases that are rescaled to the true number of points."""

    def advance(self, counts, *, step, structure):
        super().advance(counts, step=step, structure=structure)
        released = self.cells.released
        true, total = float(counts.weights[:, 0].sum()), float(released.sum())
        self.cells.released = released * (true / total) if total else released + true / released.size


class Watched(PHDStream):
    mechanism_type = WatchedPHD


class Literal(PHDStream):
    mechanism_type = LiteralPHD


class Spanning(PHDStream):
    mechanism_type = SpanningPHD


class TrueTotal(PHDStream):
    mechanism_type = TrueTotalPHD


def path_scores(stream, depths: int) -> np.ndarray:
    """Scores, in counts, of the nodes on the path of prefix 0 at the last structure step."""
    prefix, score = np.zeros(1, dtype=np.uint64), stream.mechanism.score
    measure = hierarchy_of(stream.domain).measure
    return np.array([score(prefix, d, measure(prefix, d))[0] / GRID.one for d in range(depths)])

"""Broken twins of the spatial stream: the honest driver with a faulty mechanism."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from streams.spatial.counted import LeafCounts
from streams.spatial.expiring import Expiring
from streams.spatial.lasting import Lasting
from streams.spatial.phd import PHD, PHDStream
from streams.spatial.structure import Structure
from synthgeo.hierarchy.base import hierarchy_of
from synthgeo.hierarchy.cells import EstimateScore
from synthgeo.hierarchy.privtree import GRID, KeyScore
from synthgeo.privacy.contribution import ContributionBounder
from synthgeo.sources import Histogram


class WatchedStructure(Structure):
    """The honest rules, with the score function of the last structure step kept for a look."""

    def score(self, cells, keys, inserted):
        self.last = super().score(cells, keys, inserted)
        return self.last


class LiteralStructure(Structure):
    """PHDStream as printed: PrivTree is fed G(t-1) + ∇F(t), with its negative values and with deletions."""

    def score(self, cells, keys, inserted):
        past = EstimateScore(cells.estimate.cells, cells.estimate.values, GRID.one)
        now = KeyScore(keys, self.bits, self.net * GRID.one)
        self.last = lambda prefix, bits, measure: past(prefix, bits, measure) + now(prefix, bits, measure)
        return self.last


class LiteralPHD(PHD):
    def advance(self, counts, *, step, structure):
        self.structure.net = counts.weights[:, 0] - counts.weights[:, 1]
        super().advance(counts, step=step, structure=structure)


class SpanningPHD(PHD):
    """Standing counters go on through structure steps at full ε: those events pay for both."""

    def advance(self, counts, *, step, structure):
        if structure:
            self._move_to(self.structure.grow(self.cells, counts.keys, counts.weights[:, 0]))
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


class SlidingExpiring(Expiring):
    """Every batch of the window is noised again at each slide."""

    raw = ()

    def advance(self, counts, *, step, structure):
        net = Histogram(counts.keys, counts.weights[:, :1] - counts.weights[:, 1:2])
        self.raw = (*self.raw, (step, net))[-self.lifetime :]
        super().advance(counts, step=step, structure=structure)
        again = [(self._measure((batch,), born, born, self.plan.scale), 1.0) for born, batch in self.raw]
        window = LeafCounts.sum_of(again, self.cells.partition)
        self.cells.replace(window.values, window.spread)
        self.cells.settle()


class PeekingExpiring(Expiring):
    """How much is borrowed is decided by the true batch."""

    def _measure(self, batches, first, last, scale):
        batches = tuple(batches)
        leaves, bits = self.cells.partition, self.structure.bits
        self.exact = leaves.totals(batches[0].keys, bits, batches[0].weights[:, 0]).astype(float)
        return super()._measure(batches, first, last, scale)

    def _borrowed(self, borrower, fresh, structure):
        borrowed = super()._borrowed(borrower, fresh, structure)
        near = np.abs(self.exact - borrower.means[0]) < 1
        return replace(borrowed, values=np.where(near, borrowed.values, fresh.values))


class GreedyLasting(Lasting):
    """Every level of the tree over time has all of ε."""

    def _scale(self, epoch, level):
        return 1 / self.event.whole.epsilon


class Watched(PHDStream):
    structure_type = WatchedStructure


class Literal(PHDStream):
    structure_type = LiteralStructure
    counting_type = LiteralPHD


class Spanning(PHDStream):
    counting_type = SpanningPHD


class TrueTotal(PHDStream):
    counting_type = TrueTotalPHD


class Sliding(PHDStream):
    expiring_type = SlidingExpiring


class Peeking(PHDStream):
    expiring_type = PeekingExpiring


class Greedy(PHDStream):
    lasting_type = GreedyLasting


class SlidingBounder(ContributionBounder):
    """A bound over the last P steps in place of fixed blocks; ``now`` is the step of the batch."""

    kept, now = (), 0

    def admit(self, users, keys, ops=None, **_):
        mask, step = np.zeros(len(keys), dtype=bool), self.now
        for row, user in enumerate(users):
            recent = [when for who, when in self.kept if who == user and when > step - self.unit.per]
            if len(recent) < self.unit.max_contributions:
                mask[row] = True
                self.kept = (*self.kept, (user, step))
        return mask


class OwnPeriodBounder(ContributionBounder):
    """A deletion takes a place of the period in which it comes, not one that its insertion reserved."""

    used = None

    def admit(self, users, keys, ops, *, period, **_):
        self.used = {} if self.used is None else self.used
        mask = np.zeros(len(keys), dtype=bool)
        for row in range(len(keys)):
            places = self.used.get((users[row], period), 0)
            if places < self.unit.max_contributions:
                mask[row] = True
                self.used[users[row], period] = places + 1
        return mask


def path_scores(stream, depths: int) -> np.ndarray:
    """Scores, in counts, of the nodes on the path of prefix 0 at the last structure step."""
    prefix, score = np.zeros(1, dtype=np.uint64), stream.mechanism.structure.last
    measure = hierarchy_of(stream.domain).measure
    return np.array([score(prefix, d, measure(prefix, d))[0] / GRID.one for d in range(depths)])

"""Datasets that hold everything so far, for streams without an end: inserts and deletes at any time."""

from __future__ import annotations

from copy import copy
from typing import Any, ClassVar, Self

from streams.mechanism import EventBudget, laplace_scale
from streams.spatial.cells import ReleasedCells
from streams.spatial.counted import (
    LeafCounts,
)
from streams.spatial.release import PointSnapshot
from streams.spatial.requests import Counts, KnownTo, below_leaves, on_leaves, together, with_weights
from streams.spatial.structure import Structure
from streams.sums import Epoch, epoch_of
from synthgeo.codec import Stateful
from synthgeo.privacy.noise import Noise
from synthgeo.sources import Histogram


class Lasting(Stateful):
    """Noisy counts of batches, of blocks of batches, of blocks of blocks: a tree over public time whose nodes
    are each counted on the leaves of the moment at which they are complete.

    Leaves may move at every step, by what was released, and yet no leaf keeps its own luck: which sums are in
    use is decided by the clock, and a sum's noise is drawn after its leaves are fixed. So the noise of every
    estimate has mean 0, and its variance grows like a power of log t, where a counter on each leaf has either
    the one or the other (``streams.sums``; docs/guarantees.md).

    Guarantee
    ---------
    Unit: one event (an insertion or a deletion). Pure ε-differential privacy over the whole infinite stream
    of releases, where ε is ``event.whole``. *Structure:* a tree at a structure step costs ``event.structure``
    (``Structure``). *Counts:* an event at step τ is in one leaf of its batch and in one leaf of one node of
    each higher level of its epoch; the levels' shares of ε sum to 1 and each number is measured once. The
    batch of a structure step is measured once, at ``event.counts``, and is in no node. Leaves are chosen by
    earlier outputs (adaptive composition); combining the numbers is post-processing.
    """

    name: ClassVar[str] = "PHDStream"
    is_private: ClassVar[bool] = True
    asks: ClassVar[bool] = True
    keeps: ClassVar[dict[str, Any]] = {
        "cells": ReleasedCells,
        "settled": LeafCounts,
        "nodes": tuple[tuple[LeafCounts, ...], ...],
        "waiting": tuple[tuple[Histogram | KnownTo, ...], ...],
        "variance": float,
    }

    def __init__(
        self, *, structure: Structure, event: EventBudget, noise: Noise, horizon: int | None = None
    ) -> None:
        self.structure = structure
        self.horizon = horizon  # makes no difference
        self.event = event
        self.noise = noise
        self.scale_at_structure = laplace_scale(event.counts)
        laplace_scale(event.whole / 8)  # no level has a smaller share
        self.cells = structure.blank()
        self.settled = LeafCounts.sum_of([], self.cells.partition)  # what no later node replaces
        self.nodes: tuple[tuple[LeafCounts, ...], ...] = ()  # complete, by level, until their parent is
        self.waiting: tuple[tuple[Histogram, ...], ...] = ()  # exact: what their parents will hold
        self.variance = 0.0  # of the sum in a leaf that stays
        self._paid = (0.0, 0.0)

    def advance(self, counts: Counts, *, step: int, structure: bool) -> None:
        event, epoch = self.event, epoch_of(step)
        if structure:
            self.cells.partition, counts = self.structure.leaves(self.cells, counts)
        else:
            self.cells.partition = self.structure.follow(self.cells, self.variance, collected=True)
        waits = not structure and epoch.levels > 1
        batch = (below_leaves if waits else on_leaves)(counts, self.cells.partition)
        inserted, deleted = batch.weights.T
        net = with_weights(batch, (inserted - deleted)[:, None])
        if structure:
            self._settle([self._measure((net,), step, step, self.scale_at_structure)])
        else:
            self._count(net, step, epoch)
        self._close(step, epoch)
        terms = [(self.settled, 1.0), *((node, 1.0) for level in self.nodes for node in level)]
        now = LeafCounts.sum_of(terms, self.cells.partition)
        self.cells.replace(now.values, now.spread)
        self.cells.settle()
        self.variance = now.variance
        self._paid = (
            (event.structure.epsilon, event.counts.epsilon) if structure else (0.0, event.whole.epsilon)
        )

    def _measure(self, batches: tuple[Histogram, ...], first: int, last: int, scale: float) -> LeafCounts:
        leaves, bits = self.cells.partition, self.structure.bits
        return LeafCounts.measure(batches, (first, last), leaves, bits, scale=scale, noise=self.noise)

    def _scale(self, epoch: Epoch, level: int) -> float:
        return 1 / (self.event.whole.epsilon * epoch.shares[level])

    def _count(self, net: Histogram, step: int, epoch: Epoch) -> None:
        """Measure a batch by itself; where it is in nodes, it waits for them too."""
        batch = self._measure((net,), step, step, self._scale(epoch, 0))
        if epoch.levels == 1:
            self._settle([batch])
            return
        empty: tuple[tuple[Any, ...], ...] = ((),) * (epoch.levels - 1)
        nodes, waiting = self.nodes or empty, self.waiting or empty
        self.nodes = ((*nodes[0], batch), *nodes[1:])
        self.waiting = ((*waiting[0], net), *waiting[1:])

    def _close(self, step: int, epoch: Epoch) -> None:
        """Measure the nodes that are complete with this step, and put them in the place of their parts."""
        for level in range(1, epoch.closes(step) + 1):
            parts, batches = self.nodes[level - 1], self.waiting[level - 1]
            if parts:
                node = self._combined(parts, batches, self._scale(epoch, level))
                self.nodes, self.waiting = _without(self.nodes, level - 1), _without(self.waiting, level - 1)
                if level == epoch.levels - 1:
                    self._settle([node])
                else:
                    self.nodes = _with(self.nodes, level, node)
                    self.waiting = _with(self.waiting, level, together(batches))
        if step == epoch.last:
            self._settle([node for level in self.nodes for node in level])
            self.nodes = self.waiting = ()

    def _combined(
        self, parts: tuple[LeafCounts, ...], batches: tuple[Histogram, ...], scale: float
    ) -> LeafCounts:
        """A node's own noisy sum and the sum of its parts, weighted by their precision."""
        own = self._measure(batches, parts[0].first, parts[-1].last, scale)
        below = sum(part.variance for part in parts)
        weight = below / (below + own.variance)
        terms = [(own, weight), *((part, 1 - weight) for part in parts)]
        return LeafCounts.sum_of(terms, self.cells.partition)

    def _settle(self, numbers: list[LeafCounts]) -> None:
        terms = [(self.settled, 1.0), *((number, 1.0) for number in numbers)]
        self.settled = LeafCounts.sum_of(terms, self.cells.partition)

    def paid(self) -> tuple[float, float]:
        return self._paid

    def snapshot(self) -> PointSnapshot:
        return self.cells.snapshot()

    def facts(self) -> dict[str, Any]:
        return self.structure.settings() | {"counter": "time tree"}

    def settings(self) -> dict[str, Any]:
        return self.structure.settings() | {"counter": "auto", "horizon": self.horizon}

    def copy(self) -> Self:
        twin = copy(self)
        twin.cells = self.cells.copy()
        return twin


def _without(levels: tuple[tuple[Any, ...], ...], level: int) -> tuple[tuple[Any, ...], ...]:
    return (*levels[:level], (), *levels[level + 1 :])


def _with(levels: tuple[tuple[Any, ...], ...], level: int, item: Any) -> tuple[tuple[Any, ...], ...]:
    return (*levels[:level], (*levels[level], item), *levels[level + 1 :])

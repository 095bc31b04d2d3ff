"""Datasets that expire: the synthetic points of the last L steps, with noise that never grows.

A release at step t describes the events of the steps t - L + 1, ..., t. Expiry is public, so nothing has to
be deleted: an event is counted when it comes, and its noisy number is left out when its time is over.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np

from streams.ages import age_groups
from streams.borrow import Borrower, Seasons
from streams.mechanism import EventBudget, laplace_scale
from streams.spatial.cells import ReleasedCells
from streams.spatial.counted import (
    LeafCounts,
)
from streams.spatial.overlay import overlay
from streams.spatial.release import PointSnapshot
from streams.spatial.requests import Counts, KnownTo, below_leaves, on_leaves, with_weights
from streams.spatial.structure import Structure
from streams.sums import WindowPlan
from synthgeo.arrays import Floats
from synthgeo.codec import Stateful
from synthgeo.hierarchy.cells import Partition, families_of
from synthgeo.privacy.noise import Noise
from synthgeo.sources import Histogram

# Counts of cells are judged one by one, not by their squares: all of the shrinkage that squares ask for
# spreads points over places that are empty in most steps. Measured on three streams (docs/benchmarks.md).
TRUST = 0.6


class Expiring(Stateful):
    """A noisy count of each batch, and for long lifetimes of each block of batches, summed over the window.

    Deletions inside a lifetime say in their own row when their event was inserted. They are counted by age,
    in groups of 1, 2, 4, ... steps (``age_groups``), and a group's noisy number fades out of the sum as its
    insertions expire.

    Guarantee
    ---------
    Unit: one event (an insertion or a deletion). Pure ε-differential privacy over the whole infinite stream
    of releases, where ε is ``event.whole``. *Structure:* a tree at a structure step costs ``event.structure``
    (``Structure``). *Counts:* an event at step τ is in one leaf of one count of τ (insertions and deletions
    of age 0 together, or one age group of deletions) and, where there are blocks, in one leaf of its block.
    Each is measured once, with noise whose costs add up to ε (``streams.sums.WindowPlan``); the counts of a
    structure step cost ``event.counts`` and are in no block. Everything after that, the sum over the window,
    what is left out of it and what is borrowed from earlier batches (``streams.borrow``), is post-processing
    of those numbers: no batch meets noise a second time when the window slides, and which deletions belong to
    which insertions is never looked at.
    """

    name: ClassVar[str] = "PHDStream"
    is_private: ClassVar[bool] = True
    asks: ClassVar[bool] = True
    keeps: ClassVar[dict[str, Any]] = {
        "cells": ReleasedCells,
        "batches": tuple[LeafCounts, ...],
        "blocks": tuple[LeafCounts, ...],
        "waiting": tuple[Histogram | KnownTo, ...],
        "alone": tuple[int, ...],
        "variance": float,
        "borrower": Borrower | None,
        "past": Partition,
        "seasons": Seasons,
    }

    def __init__(
        self,
        *,
        structure: Structure,
        event: EventBudget,
        lifetime: int,
        deletions: bool,
        adapts: bool,
        noise: Noise,
        horizon: int | None = None,
        borrow: bool = False,
    ) -> None:
        self.structure = structure
        self.borrower = Borrower(TRUST) if borrow else None
        self.horizon = horizon  # makes no difference
        self.event = event
        self.lifetime = lifetime
        self.adapts = adapts
        self.ages = age_groups(lifetime) if deletions else [(0, 1)]
        # Where deletions are counted by age, blocks would need the ages of whole blocks.
        self.plan = WindowPlan.of(lifetime, event.whole.epsilon, blocks=not deletions)
        self.noise = noise
        self.scale_at_structure = laplace_scale(event.counts)
        laplace_scale(event.whole / 4)  # no plan has a smaller share
        self.cells = structure.blank()
        self.past = self.cells.partition  # the leaves that the borrower's means are on
        self.seasons = Seasons()
        self.batches: tuple[LeafCounts, ...] = ()
        self.blocks: tuple[LeafCounts, ...] = ()
        self.waiting: tuple[Histogram, ...] = ()  # exact: the batches of a block that is not full
        self.alone: tuple[int, ...] = ()  # structure steps, whose batches are in no block
        self.variance = 0.0  # of the window's sum in a leaf that stays
        self._paid = (0.0, 0.0)

    def advance(self, counts: Counts, *, step: int, structure: bool) -> None:
        event, plan = self.event, self.plan
        if structure:
            self.cells.partition, counts = self.structure.leaves(self.cells, counts)
        elif self.adapts:
            self.cells.partition = self.structure.follow(
                self.cells, self.variance, collected=True, expected=self._expected()
            )
        scale = self.scale_at_structure if structure else plan.scale
        waits = not structure and plan.block > 1
        batch = (below_leaves if waits else on_leaves)(counts, self.cells.partition)
        signed = batch.weights * np.where(np.arange(batch.weights.shape[1]) == 0, 1, -1)
        net = with_weights(batch, signed[:, :2].sum(axis=1, keepdims=True))
        fresh = self._measure([net], step, step, scale)
        measured = [fresh if self.borrower is None else self._borrowed(self.borrower, fresh, structure)]
        for group, (youngest, older) in enumerate(self.ages[1:], start=2):
            gone = Histogram(batch.keys, signed[:, group : group + 1])
            measured.append(self._measure([gone], step - older + 1, step - youngest, scale))
        self.batches = (*self.batches, *measured)
        if structure:
            self.alone = (*self.alone, step)
        elif plan.block > 1:
            self.waiting = (*self.waiting, net)
        if plan.closes(step):
            if self.waiting:
                block = self._measure(self.waiting, step - plan.block + 1, step, plan.block_scale)
                self.blocks = (*self.blocks, block)
            self.waiting = ()
        self._forget(step)
        window = LeafCounts.sum_of(self._terms(step), self.cells.partition)
        self.cells.replace(window.values, window.spread)
        self.cells.settle()
        self.variance = window.variance
        self._paid = (
            (event.structure.epsilon, event.counts.epsilon) if structure else (0.0, event.whole.epsilon)
        )

    def enter(self, seasons: tuple[str, ...]) -> None:
        if self.borrower is not None:
            # Hours of a day differ. Points of whole days are told better by the days before than by their
            # weekday, which has one window in seven to learn from (stops in Minneapolis).
            self.seasons.enter(seasons if len(seasons) > 1 else (), self.borrower.steps)

    def _expected(self) -> Floats | None:
        """What the leaves will hold, where single steps are told by earlier ones."""
        if self.borrower is None or self.lifetime > 1 or not self.borrower.steps:
            return None
        return self.borrower.expected(self.variance, self._predictions(self.borrower, self.cells.partition))

    def _predictions(self, borrower: Borrower, cells: Partition) -> Floats:
        """What each predictor says, on some cells."""

        def read(found: Partition, mean: Floats) -> Floats:
            return mean if found is cells else overlay(cells, found, mean, np.zeros(found.size))[0]

        means = np.stack([read(self.past, mean) for mean in borrower.means])
        return self.seasons.predict(means, lambda season: read(season.cells or self.past, season.mean))

    def _borrowed(self, borrower: Borrower, fresh: LeafCounts, structure: bool) -> LeafCounts:
        """A batch's noisy counts combined with what earlier ones predict. Post-processing."""
        predictions = np.zeros((0, fresh.values.size))
        if borrower.steps:
            predictions = self._predictions(borrower, fresh.cells)
        values, spread = fresh.values, fresh.spread
        if borrower.steps and not structure:  # where other noise was drawn, it would teach wrong weights
            families = families_of(fresh.cells, self.structure.levels)
            values, spread = borrower.combine(values, fresh.variance, families, predictions)
        borrower.learn(fresh.values, predictions)
        self.seasons.learn(fresh.values, predictions, fresh.cells)
        self.past = fresh.cells
        return replace(fresh, values=values, spread=spread)

    def _measure(self, batches: Iterable[Histogram], first: int, last: int, scale: float) -> LeafCounts:
        leaves, bits = self.cells.partition, self.structure.bits
        return LeafCounts.measure(batches, (first, last), leaves, bits, scale=scale, noise=self.noise)

    def _forget(self, step: int) -> None:
        """Let go of blocks that have expired, and of batches that have, unless a block still needs them."""
        since = step - self.lifetime + 1
        self.blocks = tuple(block for block in self.blocks if block.last >= since)
        oldest = min([since, *(block.first for block in self.blocks)])
        self.batches = tuple(batch for batch in self.batches if batch.last >= oldest)
        self.alone = tuple(born for born in self.alone if born >= oldest)

    def _terms(self, step: int) -> list[tuple[LeafCounts, float]]:
        """What the window's sum is made of."""
        since = step - self.lifetime + 1
        weights = [batch.alive(since) for batch in self.batches]
        used: list[tuple[LeafCounts, float]] = []
        for block in self.blocks:
            inside = [
                i
                for i, batch in enumerate(self.batches)
                if block.first <= batch.first <= block.last and batch.first not in self.alone
            ]
            alive = sum(self.batches[i].first >= since for i in inside)
            weight = self.plan.block_weight(alive, len(inside))
            used.append((block, weight))
            for i in inside:
                weights[i] -= weight
        return used + [(batch, w) for batch, w in zip(self.batches, weights, strict=True) if w]

    def paid(self) -> tuple[float, float]:
        return self._paid

    def snapshot(self) -> PointSnapshot:
        since = max((batch.last for batch in self.batches), default=0) - self.lifetime + 1
        totals = {b.first: float(b.values.sum()) for b in self.batches if b.first == b.last >= since}
        return self.cells.snapshot(totals=totals)

    def facts(self) -> dict[str, Any]:
        return self.structure.settings() | {"borrow": self.borrower is not None}

    def settings(self) -> dict[str, Any]:
        return self.facts() | {"counter": "auto", "horizon": self.horizon}

    def copy(self) -> Self:
        twin = copy(self)
        twin.cells = self.cells.copy()
        twin.borrower = None if self.borrower is None else self.borrower.copy()
        twin.seasons = self.seasons.copy()
        return twin

"""What attacks on spatial streams share: streams to attack, scores of their trees, what their events pay."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple
from unittest import mock

import numpy as np

from audits.stream_twins import path_scores
from streams.spatial.counted import LeafCounts
from streams.spatial.phd import PHDStream
from streams.sums import Epoch
from synthgeo.auditing.whitebox import linear_costs
from synthgeo.domain.box import BoxDomain
from synthgeo.hierarchy.privtree import GRID, SplitRule
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.noise import SeededNoise
from synthgeo.privacy.unit import PrivacyUnit

BOX = BoxDomain(0, 0, 1, 1)
RULE = SplitRule(1.0)  # λ = 3, δ = 2.08 counts per level
STEPS = 9


def make(kind=PHDStream, *, epsilon=1.0, noise=None, **options):
    """A small stream that looks for its structure at every step."""
    options = {"max_depth": 6, "schedule": "every_step", **options}
    noise = SeededNoise(1) if noise is None else noise
    return kind.from_options(domain=BOX, budget=PrivacyBudget(epsilon), noise=noise, **options)


def tree_scores(kind, batch, levels):
    """Scores, in counts, along the path of prefix 0 of a tree that has ε = 1."""
    stream = make(kind, epsilon=2.0, max_depth=levels)
    assert stream.mechanism.structure.rule == RULE
    stream.update(batch)
    return path_scores(stream, levels)


def depth_reached(scores, noise, n, *, rule):
    """How deep n independent runs of the split rule get along a path with these scores (in counts)."""
    alive = np.ones(n, dtype=bool)
    reached = np.zeros(n)
    for depth, score in enumerate(scores):
        steps = np.full(n, int(score * GRID.one))
        alive &= rule.decide(steps, depth, noise)
        reached += alive
    return reached[:, None]


def event_costs(kind, *, counter, schedule):
    """What an event of each step pays for structure and counts, where two leaves stay: then released counts
    are exact counts plus a linear map of the noise draws.
    """
    halves = np.array([[0.2, 0.5]] * 100 + [[0.8, 0.5]] * 100)
    structure = []

    def run(noise):
        stream = make(kind, noise=noise, max_depth=1, schedule=schedule, counter=counter, horizon=STEPS)
        outputs = []
        for _ in range(STEPS):
            stream.update(halves)
            assert stream.mechanism.cells.partition.size == 2
            outputs.append(stream.mechanism.cells.estimate.values)
        structure[:] = stream.costs["structure"]
        return np.array(outputs)

    changes = np.zeros((STEPS, STEPS, 2))
    for step in range(STEPS):
        changes[step, step:, 0] = 1.0
    return linear_costs(run, changes, impulse=8) + structure


def first_release(batch, noise, *, kind=PHDStream, epsilon=1.0, **options):
    """A row of numbers from the first release: leaves, total, and the counts of four quarters."""
    stream = make(kind, epsilon=epsilon, noise=noise, max_depth=2, **options)
    release = stream.update(batch)
    prefix = np.arange(4, dtype=np.uint64)
    inside = release.partition.cell_of(prefix, 2)
    share = release.released[inside] * 0.25 / release.partition.measure[inside]
    return np.r_[release.partition.size, release.released.sum(), share]


def _sums(kind, noise, steps, **options):
    """What is released on one leaf: exact sums (of nothing) plus a linear map of the noise draws."""
    stream = make(kind, noise=noise, max_depth=1, theta=1.0, schedule="auto", **options)
    outputs = []
    for _ in range(steps):
        stream.update(np.empty((0, 2)))
        assert stream.mechanism.cells.partition.size == 1
        outputs.append(stream.mechanism.cells.estimate.values)
    return np.array(outputs)


def window_costs(kind, *, steps=14, lifetime=7):
    """What an event of each step pays with a lifetime and blocks of 3 steps."""
    with mock.patch("streams.sums._best_block", return_value=(3, 0.5)):
        changes = [[float(s <= t < s + lifetime) for t in range(steps)] for s in range(steps)]
        costs = linear_costs(lambda noise: _sums(kind, noise, steps, lifetime=lifetime), changes, impulse=1)
    return costs + np.where(np.arange(steps) == 0, 0.5, 0.0)


EPOCHS = (
    Epoch(1, 4, 2, (1.0,), 0.0),
    Epoch(5, 10, 3, (0.5, 0.5), 8.0),
    Epoch(11, 22, 2, (0.3, 0.3, 0.4), 20.0),
)


def short_epochs():
    """While it lasts, a stream without an end has short epochs of one, two and three levels."""
    found = {step: epoch for epoch in EPOCHS for step in range(epoch.first, epoch.last + 1)}
    return mock.patch("streams.spatial.lasting.epoch_of", found.__getitem__)


def noised_costs(events, **options):
    """What each row of ``events`` (batch by batch) pays for counts, draw by draw: how far it moves each exact
    number that Laplace noise of a scale is put on, over that scale.
    """

    def run(batches):
        met, measure = [], LeafCounts.measure.__func__

        def watched(cls, *args, scale, noise):
            found = measure(cls, *args, scale=scale, noise=noise)
            met.append((found.values, scale))
            return found

        still = mock.patch("streams.spatial.structure.SPLIT_AT", np.inf)  # one leaf, whatever it holds
        with still, mock.patch.object(LeafCounts, "measure", classmethod(watched)):
            stream = make(noise=_Zero(1), max_depth=1, theta=1.0, schedule="auto", **options)
            for batch in batches:
                stream.update(batch)
                assert stream.mechanism.cells.partition.size == 1
        return met

    whole, costs = run(events), []
    for step, batch in enumerate(events):
        for row in range(len(batch)):
            without = [*events[:step], batch.drop(index=batch.index[row]), *events[step + 1 :]]
            pairs = zip(whole, run(without), strict=True)
            costs.append(sum(np.abs(one - other).sum() / scale for (one, scale), (other, _) in pairs))
    return np.array(costs)


class _Zero(SeededNoise):
    """No noise on counts, and a tree that is never split."""

    def discrete_laplace(self, scale, size=None):
        return np.full(size, -(2**40) if scale > 2**16 else 0, dtype=np.int64)


class Row(NamedTuple):
    """One row of a user: its step, its key, +1 or -1, and the step of its insertion."""

    step: int
    key: int
    op: int
    born: int


def period_cost(kind, rows, *, per, bound, deletes=False):
    """What a user pays at most for one period, when each admitted event pays 1 / ``bound``: over all periods,
    the admitted events that the user's rows of that period change, times what each pays.
    """

    def kept(rows):
        bounder = kind(PrivacyUnit.user(max_events=bound, per=per), deletes=deletes)
        found = Counter()
        for step in range(1, max((row.step for row in rows), default=0) + 1):
            batch = [row for row in rows if row.step == step]
            bounder.now = step
            keys = np.array([row.key for row in batch], dtype=np.uint64)
            ops = np.array([row.op for row in batch], dtype=np.int64)
            born = np.array([(row.born - 1) // per for row in batch], dtype=np.int64)
            users = np.zeros(len(batch), dtype=np.int64)
            mask = bounder.admit(users, keys, ops, period=(step - 1) // per, born=born)
            found.update(row for row, good in zip(batch, mask, strict=True) if good)
        return found

    one, costs = kept(rows), []
    for period in {(row.born - 1) // per for row in rows}:
        two = kept([row for row in rows if (row.born - 1) // per != period])
        costs.append(((one - two) + (two - one)).total() / bound)
    return max(costs)


def lasting_costs(kind, *, steps=22):
    """What an event of each step pays without an end, on short epochs."""
    with short_epochs():
        changes = [[float(s <= t) for t in range(steps)] for s in range(steps)]
        costs = linear_costs(lambda noise: _sums(kind, noise, steps), changes, impulse=1)
    return costs + np.where(np.arange(steps) == 0, 0.5, 0.0)

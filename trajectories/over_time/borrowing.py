"""Borrowing: the counts of one batch, combined with what earlier releases let expect. Post-processing.

The fresh count y of a cell (a link, a block of pairs, a bucket of lengths) is noisy with a known variance v.
The estimate of the batch before, scaled by the growth of the total, predicts it with an error of unknown
variance q. Over a group of cells that expect about as much, the released residuals tell it:
E[(y - m)²] = q + v. The two are combined by inverse variance, as in an ensemble of Kalman filters whose
process noise is learnt from released data alone (Fan and Xiong's FAST, for thousands of cells at once).

What is no drift is looked for. A count whose residual, in this batch or in this and the last one together, is
beyond what noise does three times in 10,000 starts anew from there. One link of a street that is closed
seldom shows that much, so links before and after it are asked too: where it is likelier that all of a link's
traffic has gone than that it goes on, by more than the number of links, the link is expected to be empty, and
its neighbours to have what is left.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from synthgeo.arrays import Bools, Floats, Ints
from synthgeo.ragged import offsets_of, owners_of, ranks_of
from trajectories.ground.state_graph import StateGraph
from trajectories.measure.measured import MeasuredTrips

# Deviations that a mean of n Laplace variables exceeds three times in 10,000, either way: _NORMAL of the
# normal distribution, and _TAIL / n^0.75 more.
_NORMAL, _TAIL = 3.6, 2.1
_LEAST = 1e-3  # of the variance, what is left after borrowing at least: no estimate is exact
_ROUNDS = 3  # of telling changes from drift: a change must not widen the group that it is judged by
_EDGES = (0.25, 1.0, 4.0, 16.0, 64.0, 256.0)  # of groups, in deviations of the noise


class BorrowedCount(NamedTuple):
    """Counts after borrowing, the mean variance of the noise that is left in them, and what of each fresh
    count they do not follow.
    """

    values: Floats
    variance: float
    left: Floats


class Borrowed(NamedTuple):
    """A batch after borrowing, what of its fresh counts it does not follow, and which links closed."""

    estimate: MeasuredTrips
    left: dict[str, Floats]
    shut: Bools


def borrow(
    fresh: MeasuredTrips, before: MeasuredTrips, left: Mapping[str, Floats], graph: StateGraph
) -> Borrowed:
    """The counts of a batch after borrowing from the estimate of the batch before, on the same cells.
    ``left`` is what that one did not follow, where it is known.
    """
    growth = total_of(fresh) / max(total_of(before), 1.0)
    found, shut = {}, np.zeros(graph.links, dtype=bool)
    for name, (values, variance) in fresh.counts().items():
        expected, remains = growth * before.counts()[name][0], left.get(name)
        if name == "links":
            residuals = [fresh.by_link(one) for one in (values - expected, remains) if one is not None]
            usual, noise = fresh.by_link(expected), float(np.mean(fresh.crossing_variance))
            gone = closed(residuals, usual, noise, graph)
            shut = (gone > 0) & (gone >= usual)
            lost = fresh.by_segment(gone, expected)
            expected, remains = expected - lost, None if remains is None else remains + lost
        found[name] = combined(values, expected, variance, left=remains)
    estimate = fresh.with_counts({name: (one.values, one.variance) for name, one in found.items()})
    return Borrowed(estimate, {name: one.left for name, one in found.items()}, shut)


def combined(
    fresh: Floats, expected: Floats, variance: float, *, left: Floats | None = None
) -> BorrowedCount:
    """One kind of count combined with its prediction.

    ``left`` is what the prediction does not follow of the counts that it was made of. A count loses at most
    what it has. Numbers that were not counted (NaN) stay as they are.
    """
    known = ~np.isnan(fresh)
    residual, m = np.where(known, fresh - expected, 0.0), np.where(known, expected, 0.0)
    recent = [(residual, 1)]
    if left is not None:
        recent.append((0.5 * (residual + np.where(known, left, 0.0)), 2))
    least = -np.maximum(m, 0.0)
    group = np.searchsorted(np.sqrt(variance) * np.array(_EDGES), m)
    groups = len(_EDGES) + 1
    changed = ~known
    for _ in range(_ROUNDS):
        steady = ~changed
        members = np.bincount(group[steady], minlength=groups)
        scatter = np.bincount(group[steady], residual[steady] ** 2, minlength=groups)
        spread = np.maximum(scatter / np.maximum(members, 1), variance)[group]
        change = changes(recent, least, np.sqrt(spread))
        changed = (change != 0) | ~known
    gain = np.where(changed, 1.0, 1.0 - variance / spread)
    values = np.where(known, m + np.where(changed, change, gain * residual), fresh)
    mean_gain = float(gain[known].mean()) if known.any() else 1.0
    return BorrowedCount(values, variance * max(mean_gain, _LEAST), (1.0 - gain) * residual)


def changes(recent: list[tuple[Floats, int]], least: Floats, deviation: Floats) -> Floats:
    """By how much each count has changed, at least by ``least``; 0 where nothing stands out. ``recent`` are
    mean residuals, and of how many; ``deviation`` is that of one.
    """
    change, furthest = np.zeros(len(least)), np.ones(len(least))
    for mean, number in recent:
        found = np.maximum(mean, least)
        beyond = np.abs(found) * np.sqrt(number) / (deviation * (_NORMAL + _TAIL / number**0.75))
        change = np.where(beyond > furthest, found, change)
        furthest = np.maximum(beyond, furthest)
    return change


def closed(residuals: list[Floats], expected: Floats, variance: float, graph: StateGraph) -> Floats:
    """What each link loses to links that are closed: themselves, or before or after it.

    Closing a link takes all of its expected traffic and, of the links that it comes from and goes to, the
    part that passes both, if trips leave a cell by each link in proportion to its traffic and do not turn
    round. It is told by the likelihood of the residuals, of one batch or of the last two, under Laplace noise
    with and without that loss; before they are seen, one link in all is as good as sure to have closed.
    """
    traffic = np.maximum(expected, 0.0)
    one, two = turns(graph)
    some = traffic + 1e-9
    onward = np.bincount(one, some[two], minlength=graph.links)
    inward = np.bincount(two, some[one], minlength=graph.links)
    # Closing a link, what another one loses: itself, those after it, those before it.
    link = np.concatenate([np.arange(graph.links), one, two])
    other = np.concatenate([np.arange(graph.links), two, one])
    part = np.concatenate([np.ones(graph.links), some[two] / onward[one], some[one] / inward[two]])
    loss = np.minimum(part * traffic[link], traffic[other])
    usual = float(np.median(np.abs(residuals[0]))) / np.log(2)  # of Laplace variables, their scale
    scale = max(usual, float(np.sqrt(0.5 * variance)), 1e-300)
    told = [
        np.bincount(link, (np.abs(one[other]) - np.abs(one[other] + loss)) / scale, minlength=graph.links)
        for one in residuals
    ]
    likelier = np.maximum(told[0], np.sum(told, axis=0))
    found = likelier > np.log(max(graph.links, 1))
    gone = np.zeros(graph.links)
    np.maximum.at(gone, other[found[link]], loss[found[link]])
    return gone


def turns(graph: StateGraph) -> tuple[Ints, Ints]:
    """Pairs of links, one after the other, that lead on and not back."""
    leaves, enters = graph.link_ends
    order = np.argsort(leaves, kind="stable")
    first = np.searchsorted(leaves[order], np.arange(graph.cells + 1))
    ways = np.diff(first)[enters]
    one = owners_of(offsets_of(ways))
    two = order[first[enters[one]] + ranks_of(ways)]
    on = enters[two] != leaves[one]
    return one[on], two[on]


def total_of(measured: MeasuredTrips) -> float:
    """Trips of a batch."""
    return measured.total[0]


__all__ = ["Borrowed", "BorrowedCount", "borrow", "changes", "closed", "combined", "total_of", "turns"]

"""Borrowing from the past: fresh noisy counts combined with what earlier releases predict.

A window's count in a cell is a rate that moves slowly plus chance. The noisy counts of many windows tell the
rate well; the fresh one tells what chance did, with much noise. Post-processing: only released numbers are
read, so it costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd

from synthgeo.arrays import Floats, Ints
from synthgeo.codec import Stateful
from synthgeo.hierarchy.cells import Partition

# For each level of a tree: where its groups of cells begin, and each group's parent one level up.
Families = Sequence[tuple[Ints, Ints]]

# Each predictor is a running mean of the fresh counts that moves by this part of what is new.
RATES = (0.4, 0.1, 0.03)
# So are those of windows of the same hour, and of the same hour and weekday, which come less often.
SEASON_RATES = (0.2, 0.3)
_DAY = pd.Timedelta(days=1)
# How fast the predictors' errors are forgotten, per step.
_MEMORY = 0.95
# No weight is trusted on fewer squared errors than this.
_FEWEST = 4.0
_LEAVES = -1  # the bucket of single cells; others are powers of two of a node's number of cells
_ROOT = -2


class Borrower(Stateful):
    """Combines fresh counts on the cells of a tree with predictions, from the root down.

    A node's fresh count (the sum of its cells') is corrected to its parent's estimate, its prediction is
    scaled to it, and the two are weighted: x = m + K (y - m). The noise variance v of y is known, and the
    mean square of y - m over all nodes with about as many cells, over recent steps, estimates v plus the
    error of the prediction; so K = 1 - v / mean square (James and Stein's estimator: where the prediction is
    worth nothing, K is 1 and y stays as it is). Predictors are weighted by the second moments of their
    errors. Coarse nodes have weights of their own, so that a day with twice as many events is believed as a
    whole before its cells are smoothed. ``trust`` is the part of this shrinkage that is done.

    Guarantee
    ---------
    None of its own and none needed: it reads noisy numbers that were paid for, public trees, and what it kept
    of earlier ones.
    """

    keeps: ClassVar[dict[str, Any]] = {
        "means": np.ndarray,
        "steps": int,
        "errors": dict[int, tuple[np.ndarray, float]],
    }

    def __init__(self, trust: float = 1.0) -> None:
        self.trust = trust
        self.means: Floats = np.zeros((len(RATES), 0))  # predictors, on the cells of the last step
        self.steps = 0
        self.errors: dict[int, tuple[Floats, float]] = {}  # by bucket: sums of products, how many

    def learn(self, fresh: Floats, predictions: Floats) -> None:
        """Move the running means, which ``predictions`` begins with, on the cells of the fresh counts."""
        rates = np.maximum(RATES, 1 / (self.steps + 1))[:, None]
        before = predictions[: len(RATES)] if self.steps else np.tile(fresh, (len(RATES), 1))
        self.means = before + rates * (fresh - before)
        self.steps += 1

    def expected(self, variance: float, predictions: Floats) -> Floats:
        """The counts to expect, from predictions on some cells."""
        return self._weights(_LEAVES, variance, len(predictions))[0] @ predictions

    def combine(
        self, fresh: Floats, variance: float, families: Families, predictions: Floats
    ) -> tuple[Floats, Floats]:
        """Estimates for the cells, and the variance of their errors as far as it is known.

        ``variance`` is that of the noise in each cell's fresh count.
        """
        self._see(_LEAVES, fresh - predictions, fresh.size)
        size = np.array([float(fresh.size)])
        observed, predicted = np.array([fresh.sum()]), predictions.sum(axis=1, keepdims=True)
        self._see(_ROOT, (observed - predicted) / np.sqrt(size), 1)
        weights, gain = self._weights(_ROOT, variance, len(predictions))
        estimate = weights @ predicted + gain * (observed - weights @ predicted)
        spread = gain * variance * size
        cells = np.ones(fresh.size)
        for first, parent in families:
            below, sizes = np.add.reduceat(fresh, first), np.add.reduceat(cells, first)
            share = sizes / size[parent]
            # Given the parent's estimate: what the fresh counts say, and what each predictor does.
            corrected = below + share * (estimate - observed)[parent]
            scaled = _scaled(
                np.add.reduceat(predictions, first, axis=1), parent, share, estimate, size * variance
            )
            bucket = np.round(np.log2(size)).astype(np.int64)[parent]
            parts = np.bincount(parent, minlength=size.size)[parent] > 1
            expected, gains = scaled[0].copy(), np.ones(below.size)
            for number in np.unique(bucket[parts]).tolist():
                here = parts & (bucket == number)
                free = int(here.sum()) - np.unique(parent[here]).size  # siblings sum to their parent
                self._see(number, (corrected - scaled)[:, here] / np.sqrt(sizes[here]), free)
                weights, gain = self._weights(number, variance, len(predictions))
                expected[here], gains[here] = weights @ scaled[:, here], gain
            own = np.where(parts, gains * variance * sizes * (1 - share), 0.0)
            spread = own + spread[parent] * share**2
            estimate = expected + gains * (corrected - expected)
            observed, size = below, sizes
        return estimate, spread

    def _see(self, bucket: int, errors: Floats, number: float) -> None:
        """Take note of errors of the predictors, each scaled to the noise of one cell."""
        products, before = self.errors.get(bucket, (np.zeros((len(errors), len(errors))), 0.0))
        self.errors[bucket] = (_MEMORY * products + errors @ errors.T, _MEMORY * before + number)

    def _weights(self, bucket: int, variance: float, predictors: int) -> tuple[Floats, float]:
        """How much each predictor counts in a bucket, and the gain K of the fresh count over them."""
        products, number = self.errors.get(bucket, (np.zeros((0, 0)), 0.0))
        if number <= _FEWEST:
            return np.eye(predictors)[0], 1.0
        moments = products / number
        weights = least_squares_weights(moments - variance * (1 - 0.05 * np.eye(predictors)))
        missed = max(float(weights @ moments @ weights), 1e-9)
        # Weights that fit few errors well fit the next ones less well: each counts as an error or two less.
        known = max(number - 2 * predictors, 0.0) / number
        gain = 1 - self.trust * min(variance * known / missed, 1.0)
        return weights, gain

    def copy(self) -> Self:
        """An independent borrower in the same state: arrays are replaced, never changed."""
        twin = type(self)(self.trust)
        twin.means, twin.steps, twin.errors = self.means, self.steps, dict(self.errors)
        return twin


@dataclass(frozen=True, eq=False)
class Season:
    """The running mean of windows of one kind, on the cells of the last of them (None: cells that stay)."""

    cells: Partition | None
    mean: Floats
    seen: int


class Seasons(Stateful):
    """Predictors for windows that come round: those of the same hour, and of the same hour and weekday.

    ``now`` are the names of the present window (``seasons_of``); without windows there are none.
    """

    keeps: ClassVar[dict[str, Any]] = {"now": tuple[str, ...], "known": dict[str, Season]}

    def __init__(self) -> None:
        self.now: tuple[str, ...] = ()
        self.known: dict[str, Season] = {}

    def enter(self, names: tuple[str, ...], steps: int) -> None:
        """Take the names of a window, after so many steps: as many as the first window had."""
        if not steps or len(names) == len(self.now):
            self.now = names

    def predict(self, means: Floats, read: Callable[[Season], Floats]) -> Floats:
        """``means``, and a row for each of ``now`` on the same cells, which ``read`` finds.

        A window of a new kind is told by the next wider kind, that by a running mean.
        """
        rows = list(means)
        for name in self.now:
            usual = rows[-1] if len(rows) > len(RATES) else rows[1]
            rows.append(read(self.known[name]) if name in self.known else usual)
        return np.stack(rows)

    def learn(self, fresh: Floats, predictions: Floats, cells: Partition | None = None) -> None:
        """Move the means of the present window's kinds."""
        for place, name in enumerate(self.now, start=-len(self.now)):
            seen = self.known[name].seen if name in self.known else 0
            rate = max(SEASON_RATES[place], 1 / (seen + 2))
            before = predictions[place] if predictions.size else fresh  # nothing is known at first
            self.known[name] = Season(cells, before + rate * (fresh - before), seen + 1)

    def copy(self) -> Self:
        """Independent, in the same state."""
        twin = type(self)()
        twin.now, twin.known = self.now, dict(self.known)
        return twin


def seasons_of(window: tuple[pd.Timestamp, pd.Timestamp]) -> tuple[str, ...]:
    """Names of the kinds of windows that one is of: its hour, and its hour and weekday. Public.

    >>> seasons_of((pd.Timestamp("2026-03-02 06:00"), pd.Timestamp("2026-03-02 12:00")))
    ('06:00', 'Mon 06:00')
    """
    begin, end = window
    hour, weekday = f"{begin:%H:%M}", f"{begin:%a %H:%M}"
    if end - begin < 0.9 * _DAY:  # days of 23 hours are days
        return hour, weekday
    return (weekday,) if end - begin < 6.9 * _DAY else ()


def _scaled(below: Floats, parent: Ints, share: Floats, estimate: Floats, noise: Floats) -> Floats:
    """Predictions of nodes, fitted to the estimates of their parents: in proportion where the parents'
    predictions stand out of the noise, by an equal amount for each cell elsewhere.
    """
    together = np.stack([np.bincount(parent, row, minlength=estimate.size) for row in below])
    clear = together > 2 * np.sqrt(noise)
    ratio = np.where(clear, np.clip(estimate / np.where(clear, together, 1.0), 0.0, 4.0), 1.0)
    rest = estimate - ratio * together
    return below * ratio[:, parent] + share * rest[:, parent]


def least_squares_weights(moments: Floats) -> Floats:
    """Weights >= 0 with sum 1 that make the mean square of the weighted errors small.

    ``moments`` are second moments of the errors. Predictors that would have a negative weight are left out.

    >>> least_squares_weights(np.array([[1.0, 0.0], [0.0, 3.0]]))
    array([0.75, 0.25])
    """
    kept = np.arange(len(moments))
    while len(kept) > 1:
        found = np.linalg.lstsq(moments[np.ix_(kept, kept)], np.ones(len(kept)), rcond=None)[0]
        if found.sum() <= 0:
            kept = kept[[int(np.argmin(np.diag(moments)[kept]))]]
        elif found.min() < 0:
            kept = np.delete(kept, int(np.argmin(found)))
        else:
            break
    weights = np.zeros(len(moments))
    weights[kept] = found / found.sum() if len(kept) > 1 else 1.0
    return weights

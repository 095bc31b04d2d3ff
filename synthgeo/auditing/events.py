"""Learning a distinguishing event: scores that rank outputs, and the best threshold on one of them.

Outputs are rows of numbers. A *view* turns rows into one score; an event is "this view's score is at least
(or at most) a threshold". Views are fitted on one part of the runs, the threshold is chosen on a second; the
audit measures on a third.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from synthgeo.arrays import Array, Floats, Ints

Rows = Floats
View = Callable[[Rows], Floats]
# How good an event is, from its hits in the two worlds and the number of runs.
Goal = Callable[[Ints, Ints, int], Floats]

_BINS = 48
_COLUMNS = 64
_THRESHOLDS = 160
_CLASSIFIER_ROWS = 40_000


@dataclass(frozen=True)
class Event:
    """A set of outputs: those whose score lies on one side of a threshold; ``first`` says which world favours
    it.
    """

    name: str
    view: View
    threshold: float
    above: bool
    first: bool

    def hits(self, rows: Rows) -> int:
        """How many of the outputs are in the set."""
        score = self.view(rows)
        return int(np.count_nonzero(score >= self.threshold if self.above else score <= self.threshold))

    def __str__(self) -> str:
        return f"{self.name} {'>=' if self.above else '<='} {self.threshold:.6g}"


def with_low_bits(rows: Rows) -> Rows:
    """Add, for columns that hold fractions, the place of the lowest set bit of each double.

    Floating-point noise leaves different low bits for different inputs (Mironov 2012); noise on a grid does
    not.
    """
    with np.errstate(invalid="ignore"):
        fractional = ~np.all((rows == np.floor(rows)) | ~np.isfinite(rows), axis=0)
    if not fractional.any():
        return rows
    part = np.where(np.isfinite(rows[:, fractional]), rows[:, fractional], 0.0)
    mantissa, exponent = np.frexp(part)
    whole = np.abs(mantissa * 2.0**53).astype(np.int64)
    lowest = np.log2(np.maximum(whole & -whole, 1).astype(np.float64)) + exponent - 53
    return np.concatenate([rows, np.where(whole == 0, 2000.0, lowest)], axis=1)


def views(first: Rows, second: Rows, *, classifier: bool) -> dict[str, View]:
    """Scores fitted to tell the first world's outputs from the second's."""
    columns = _most_different(first, second)
    fitted: dict[str, View] = {}
    tables = {}
    for column in columns:
        fitted[f"column {column}"] = partial(_column, column)
        tables[column] = _log_ratio_table(first[:, column], second[:, column])
        fitted[f"log-ratio of column {column}"] = partial(_column_ratio, tables[column], column)
    if len(columns) > 1:
        fitted["sum of log-ratios"] = lambda rows: sum(
            (_look_up(tables[c], rows[:, c]) for c in columns), np.zeros(len(rows))
        )
        fitted["linear"] = _linear(first, second)
        if classifier:
            trees = _trees(first, second)
            if trees is not None:
                fitted["trees"] = trees
    return fitted


def best_event(fitted: dict[str, View], first: Rows, second: Rows, goal: Goal) -> Event:
    """The event of largest ``goal`` over all views, thresholds, sides and worlds."""
    best: tuple[float, Event] | None = None
    runs = min(len(first), len(second))
    for name, view in fitted.items():
        a, b = np.sort(view(first[:runs])), np.sort(view(second[:runs]))
        cuts = _cuts(np.concatenate([a, b]))
        for above in (True, False):
            if above:
                in_a, in_b = runs - np.searchsorted(a, cuts), runs - np.searchsorted(b, cuts)
            else:
                in_a, in_b = np.searchsorted(a, cuts, side="right"), np.searchsorted(b, cuts, side="right")
            for world, value in ((True, goal(in_a, in_b, runs)), (False, goal(in_b, in_a, runs))):
                i = int(np.argmax(value))
                if best is None or value[i] > best[0]:
                    best = float(value[i]), Event(name, view, float(cuts[i]), above, world)
    assert best is not None
    return best[1]


def _cuts(scores: Floats) -> Floats:
    values = np.unique(scores)
    if values.size <= _THRESHOLDS:
        return values
    # Even steps through the middle, finer ones through both tails, where rare and telling outputs are.
    levels = np.concatenate(
        [np.linspace(0, 1, 96), np.geomspace(1e-5, 0.02, 32), 1 - np.geomspace(1e-5, 0.02, 32)]
    )
    return np.unique(np.quantile(scores, levels, method="lower"))


def _most_different(first: Rows, second: Rows) -> list[int]:
    """Columns in order of how far apart the worlds' distributions are, the clearest first."""
    distance = []
    for column in range(first.shape[1]):
        a, b = np.sort(first[:, column]), np.sort(second[:, column])
        grid = _cuts(np.concatenate([a, b]))
        gap = np.abs(
            np.searchsorted(a, grid, side="right") / a.size - np.searchsorted(b, grid, side="right") / b.size
        )
        distance.append(float(gap.max()))
    return [int(column) for column in np.argsort(distance)[::-1][:_COLUMNS]]


def _log_ratio_table(a: Floats, b: Floats) -> tuple[Array, Floats]:
    values = np.unique(np.concatenate([a, b]))
    if values.size > _BINS:
        values = np.unique(np.quantile(np.concatenate([a, b]), np.linspace(0, 1, _BINS), method="lower"))
    here = [np.bincount(np.searchsorted(values, x, side="right"), minlength=values.size + 1) for x in (a, b)]
    # Half a count in each cell keeps rare cells from looking infinitely telling.
    ratio = np.log((here[0] + 0.5) / (a.size + 1)) - np.log((here[1] + 0.5) / (b.size + 1))
    return values, ratio


def _column(column: int, rows: Rows) -> Floats:
    return rows[:, column]


def _column_ratio(table: tuple[Array, Floats], column: int, rows: Rows) -> Floats:
    return _look_up(table, rows[:, column])


def _look_up(table: tuple[Array, Floats], x: Floats) -> Floats:
    return np.asarray(table[1][np.searchsorted(table[0], x, side="right")])


def _linear(first: Rows, second: Rows) -> View:
    """Fisher's discriminant."""
    spread = np.cov(first.T) + np.cov(second.T)
    direction = np.linalg.pinv(spread) @ (first.mean(axis=0) - second.mean(axis=0))
    return lambda rows: rows @ direction


def _trees(first: Rows, second: Rows) -> View | None:
    """Gradient-boosted trees, when scikit-learn is installed (the ``audit`` extra)."""
    try:
        from sklearn.ensemble import HistGradientBoostingClassifier
        from threadpoolctl import threadpool_limits
    except ImportError:
        return None
    a, b = first[:_CLASSIFIER_ROWS], second[:_CLASSIFIER_ROWS]
    model = HistGradientBoostingClassifier(
        max_iter=40, max_leaf_nodes=8, early_stopping=False, random_state=0
    )
    # One thread: the same trees every time, and no threads that wait for each other on a busy machine.
    with threadpool_limits(1):
        model.fit(np.concatenate([a, b]), np.r_[np.ones(len(a)), np.zeros(len(b))])

    def score(rows: Rows) -> Floats:
        with threadpool_limits(1):
            return np.asarray(model.decision_function(rows))

    return score

"""Borrowing: the counts of one batch, combined with what earlier releases let expect. Post-processing.

The fresh count y of a cell (a link, a block of pairs, a bucket of lengths) is noisy with a known variance v.
The estimate of the batch before, scaled by the growth of the total, predicts it with an error of unknown
variance q. Over a group of cells that expect about as much, the released residuals tell it:
E[(y - m)²] = q + v. The two are combined by inverse variance, as in an ensemble of Kalman filters whose
process noise is learnt from released data alone (Fan and Xiong's FAST, for thousands of cells at once).

A street that is closed, or one that is new, is no drift: a residual beyond ``_CHANGED`` deviations of what
its group does is taken for a change, and such a cell starts anew from its fresh count. No estimate strays
more than ``_REACH`` deviations of the noise from its fresh count.
"""

from __future__ import annotations

import numpy as np

from synthgeo.arrays import Bools, Floats
from trajectories.measure.measured import Measured

_CHANGED = 4.0
_REACH = 2.0
_LEAST = 1e-3  # of the variance, what is left after borrowing at least: no estimate is exact
_ROUNDS = 3  # of telling changes from drift: a change must not widen the group that it is judged by
_EDGES = (0.25, 1.0, 4.0, 16.0, 64.0, 256.0)  # of groups, in deviations of the noise


def borrow(fresh: Measured, before: Measured) -> Measured:
    """The counts of a batch after borrowing from the estimate of the batch before, on the same cells."""
    growth = total_of(fresh) / max(total_of(before), 1.0)
    expected = before.counts()
    return fresh.with_counts(
        {
            name: combined(values, growth * expected[name][0], variance)
            for name, (values, variance) in fresh.counts().items()
        }
    )


def combined(fresh: Floats, expected: Floats, variance: float) -> tuple[Floats, float]:
    """One kind of count combined with its prediction, and the mean variance of the noise that is left.

    Numbers that were not counted (NaN) stay as they are.
    """
    known = ~np.isnan(fresh)
    y, m = fresh[known], expected[known]
    if not len(y):
        return fresh, variance
    gain, changed = _gains(y - m, m, variance)
    deviation = float(np.sqrt(variance))
    x = np.clip(m + gain * (y - m), y - _REACH * deviation, y + _REACH * deviation)
    out = fresh.copy()
    out[known] = np.where(changed, y, x)
    return out, variance * max(float(np.where(changed, 1.0, gain).mean()), _LEAST)


def _gains(residual: Floats, expected: Floats, variance: float) -> tuple[Floats, Bools]:
    """Of each count the weight of its residual, q / (q + v), and whether it changed."""
    group = np.searchsorted(np.sqrt(variance) * np.array(_EDGES), expected)
    groups = len(_EDGES) + 1
    changed = np.zeros(len(residual), dtype=bool)
    for _ in range(_ROUNDS):
        steady = ~changed
        members = np.bincount(group[steady], minlength=groups)
        scatter = np.bincount(group[steady], residual[steady] ** 2, minlength=groups)
        spread = np.maximum(scatter / np.maximum(members, 1), variance)[group]
        changed = np.abs(residual) > _CHANGED * np.sqrt(spread)
    gain: Floats = 1.0 - variance / spread
    return gain, changed


def total_of(measured: Measured) -> float:
    """Trips of a batch."""
    return measured.total[0]


__all__ = ["borrow", "combined", "total_of"]

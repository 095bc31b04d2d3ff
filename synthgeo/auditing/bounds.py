"""The arithmetic of audits: exact binomial confidence bounds, and what they can and cannot show."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import stats

from synthgeo.arrays import Floats


def clopper_pearson(hits: Any, runs: int, miss: float) -> tuple[Floats, Floats]:
    """Lower and upper bounds of a probability, each wrong with probability at most ``miss``, for any true
    value.
    """
    hits = np.asarray(hits, dtype=np.float64)
    # At the ends the beta law degenerates, and the bound is 0 or 1.
    low = np.where(hits > 0, stats.beta.ppf(miss, np.maximum(hits, 1), runs - hits + 1), 0.0)
    high = np.where(hits < runs, stats.beta.isf(miss, hits + 1, np.maximum(runs - hits, 1)), 1.0)
    return np.asarray(low), np.asarray(high)


def epsilon_bound(hits: Any, other_hits: Any, runs: int, *, confidence: float, delta: float = 0.0) -> Floats:
    """Lower bound on ε from one event's hits in two worlds: ln((P(a) - δ) / P(b)), with the bounds' bad ends.

    Both bounds hold at once with the given confidence (each misses with half of what is left).
    """
    miss = (1 - confidence) / 2
    low = clopper_pearson(hits, runs, miss)[0] - delta
    high = clopper_pearson(other_hits, runs, miss)[1]
    with np.errstate(divide="ignore"):
        return np.asarray(np.maximum(np.log(np.maximum(low, 0.0)) - np.log(high), 0.0))


def delta_bound(hits: Any, other_hits: Any, runs: int, *, confidence: float, epsilon: float) -> Floats:
    """Lower bound on δ at ``epsilon``: P(a) - e^ε P(b), with the bounds' bad ends."""
    miss = (1 - confidence) / 2
    low = clopper_pearson(hits, runs, miss)[0]
    high = clopper_pearson(other_hits, runs, miss)[1]
    return np.asarray(np.maximum(low - math.exp(epsilon) * high, 0.0))


def detectable_epsilon(runs: int, *, confidence: float, claimed: float = 0.0, delta: float = 0.0) -> float:
    """The true ε from which an audit of ``runs`` runs a world reports more than ``claimed``, nine times in
    ten.

    For a mechanism that is as easy to tell apart as randomised response (one event holds all there is to see)
    when the audit has learned that event. Harder mechanisms need more. Infinity: no mechanism can be caught
    with so few runs.

    >>> round(detectable_epsilon(20_000, confidence=0.999, claimed=1.0), 2)
    1.11
    """
    measured = runs - runs // 2

    def reported(epsilon: float) -> float:
        rare = 1 / (1 + math.exp(epsilon))
        spread = 1.3 * math.sqrt(measured * rare * (1 - rare))
        hits = math.floor(max(0.0, measured * (1 - rare) - spread))
        other = math.ceil(min(measured, measured * rare + spread))
        return float(epsilon_bound(hits, other, measured, confidence=confidence, delta=delta))

    low, high = claimed, claimed + 1.0
    while reported(high) <= claimed:
        low, high = high, 2 * high
        if high > 200:
            return math.inf
    for _ in range(40):
        middle = (low + high) / 2
        if reported(middle) <= claimed:
            low = middle
        else:
            high = middle
    return high

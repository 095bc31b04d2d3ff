"""MWEM on a table with a cell for every combination of values (Hardt, Ligett and McSherry 2012): the one-off
algorithm inside Kumar's Algorithms 12 and 13, whose error ``synthgeo.privacy.bounds.mwem`` bounds.

For small tables and for comparison; ``TabularSynthesizer`` has no table of all cells and does better.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from synthgeo import validate
from synthgeo.arrays import Floats
from synthgeo.errors import ConfigError, InputError
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.noise import Noise
from synthgeo.privacy.selection import exponential_mechanism


def reweigh(table: Floats, query: Floats, measured: float) -> Floats:
    """One step of multiplicative weights: cells of the query grow if it was measured larger, and all are
    scaled to the total they had. ``query`` has a 1 for each cell that it counts.

    >>> reweigh(np.array([5.0, 5.0]), np.array([1.0, 0.0]), 9.0).round(2).tolist()
    [5.5, 4.5]
    """
    total = float(table.sum())
    if total <= 0:
        return table
    change = np.exp(query * (measured - float(query @ table)) / (2 * total))
    return np.asarray(table * change * (total / float(table @ change)))


def mwem(
    counts: Any,
    queries: Any,
    *,
    budget: PrivacyBudget,
    iterations: int,
    public_total: int | None = None,
    noise: Noise,
) -> Floats:
    """A table of the same cells that answers counting queries nearly as ``counts`` does.

    ``queries`` is a matrix of 0 and 1, a row for each query. Each iteration selects a query on which the
    table is wrong, measures it and reweighs; the average of the tables before each iteration is returned. Two
    things are as the proof of the error bound needs them, not as listed: the listing averages the tables
    after each iteration, and never selects a query twice, though it may be the worst again.

    Guarantee
    ---------
    Pure ε, for one record added or removed. ε is cut into 2k + 1 equal parts: k selections (a record moves
    each score |q(counts) - q(table)| by at most 1, in either direction, so the exponent is ε' / 2 times the
    score: Algorithm 13's is twice that), k measurements with discrete Laplace noise (sensitivity 1), and one
    for the number of records, which Algorithm 13 takes from the data as it is. With ``public_total`` there
    are 2k parts. All else is post-processing.
    """
    true = np.asarray(counts)
    asked = np.asarray(queries, dtype=np.float64)
    k = validate.whole(iterations, "iterations", low=1)
    validate.instance(budget, "budget", PrivacyBudget)
    if not budget.is_pure:
        raise ConfigError("mwem runs under pure differential privacy: give a budget with delta=0")
    if true.ndim != 1 or true.dtype.kind not in "iu" or np.any(true < 0):
        raise InputError("counts are whole numbers >= 0, one for each cell")
    if asked.ndim != 2 or asked.shape[1] != true.size or not np.isin(asked, (0.0, 1.0)).all():
        raise InputError(f"queries are rows of 0 and 1, one number for each of {true.size} cells")
    parts = budget.split([1.0] * (2 * k + (public_total is None)))
    if public_total is None:
        total = max(0.0, _measured(true.sum(), parts[-1], noise))
    else:
        total = float(validate.rows(public_total, "public_total"))
    answers = asked.astype(np.int64) @ true
    table = np.full(true.size, total / true.size)
    average = np.zeros(true.size)
    for i in range(k):
        average += table / k
        scores = np.abs(answers - asked @ table)
        chosen = exponential_mechanism(scores, epsilon=parts[2 * i].epsilon, sensitivity=1.0, noise=noise)
        measured = _measured(answers[chosen], parts[2 * i + 1], noise)
        table = reweigh(table, asked[chosen], min(max(measured, 0.0), total))
    return average


def _measured(count: Any, part: PrivacyBudget, noise: Noise) -> float:
    """A count of sensitivity 1 with noise, for this part of the budget."""
    return float((np.array([count]) + noise.discrete_laplace(1 / part.epsilon, 1))[0])


__all__ = ["mwem", "reweigh"]

"""How far off a private answer can be: (α, β) bounds, each error at least α with probability at most β.

After Kumar (2024), chapters 2 and 4, with the constants that the dissertation hides in O(·). All are
functions of public numbers, so they may be published and planned with.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from synthgeo import validate


def laplace(scale: float, beta: float, *, count: int = 1) -> float:
    """The largest of ``count`` draws of Laplace noise (Lemma 2.2.1.1, Theorem 2.2.5): scale · ln(count / β).

    P(|X| >= α) = e^(-α / scale) for one, at most count times that for the largest. Discrete noise is smaller.

    >>> round(laplace(2.0, 0.05, count=10), 2)
    10.6
    """
    scale = validate.positive(scale, "scale")
    number = validate.whole(count, "count", low=1)
    return scale * math.log(number / validate.share(beta, "beta"))


def laplace_sum(variance: float, scale: float, beta: float) -> float:
    """A sum of independent Laplace draws with this variance in all, none of a larger ``scale``.

    For |λ| <= 1 / (2 scale), ln E e^(λX) = -ln(1 - λ²b²) <= (4/3) λ²b² for a draw of scale b, so (2/3) λ²
    times the variance for the sum, and P(|S| >= α) <= 2 e^((2/3) λ² variance - λα); λ is the best one
    allowed. Discrete Laplace noise has a smaller moment generating function than continuous noise of its
    scale, so give the variance of the latter, 2 scale² per draw.

    >>> round(laplace_sum(200.0, 1.0, 0.05), 1)
    44.4
    """
    variance, scale = validate.positive(variance, "variance"), validate.positive(scale, "scale")
    log = math.log(2 / validate.share(beta, "beta"))
    rate = min(1 / (2 * scale), math.sqrt(1.5 * log / variance))
    return log / rate + 2 / 3 * rate * variance


def gaussian(deviation: float, beta: float) -> float:
    """Gaussian noise, continuous or discrete: P(|X| >= α) <= 2 e^(-α² / (2 σ²))."""
    return validate.positive(deviation, "deviation") * math.sqrt(
        2 * math.log(2 / validate.share(beta, "beta"))
    )


def selection(epsilon: float, candidates: int, beta: float, *, sensitivity: float = 1.0) -> float:
    """How far below the best score the exponential mechanism chooses (Theorem 2.2.9): 2 Δ ln(|R| / β) / ε.

    >>> round(selection(1.0, 100, 0.05), 2)
    15.2
    """
    number = validate.whole(candidates, "candidates", low=1)
    log = math.log(number / validate.share(beta, "beta"))
    return 2 * validate.positive(sensitivity, "sensitivity") * log / validate.positive(epsilon, "epsilon")


def mwem(
    totals: Sequence[float], *, cells: int, queries: int, epsilon: float, iterations: int, beta: float
) -> float:
    """The largest error of any query after MWEM on each of several batches (Theorem 4.4.1).

    ``totals`` are the sizes of the batches (one for a dataset that is there at once). With probability 1 - β
    every selection and measurement of all T batches is as good as (4.7) and (4.9) say at β / (2kT); the
    potential of multiplicative weights falls from at most ln |X| by ((error of the selected query)² -
    (measurement's error)²) / (2n)² in an iteration, so that the average of the k tables is off by at most

        2n sqrt(ln |X| / k) + (2k / ε) ln(2kT / β) + (4k / ε) ln(2kT|Q| / β)

    in a batch of n records, and batches add up.
    """
    sizes = [validate.non_negative(total, "a total") for total in totals]
    k = validate.whole(iterations, "iterations", low=1)
    constant = _mwem_noise(len(sizes), queries, epsilon, k, beta)
    shape = 2 * math.sqrt(math.log(validate.whole(cells, "cells", low=2, high=None)) / k)
    return math.fsum(shape * n + k * constant for n in sizes)


def _mwem_noise(batches: int, queries: int, epsilon: float, k: int, beta: float) -> float:
    """What selection and measurement add for each unit of k in a batch."""
    events = 2 * k * max(1, batches) / validate.share(beta, "beta")
    number = validate.whole(queries, "queries", low=1)
    return (2 * math.log(events) + 4 * math.log(events * number)) / validate.positive(epsilon, "epsilon")


def mwem_iterations(totals: Sequence[float], *, cells: int, queries: int, epsilon: float, beta: float) -> int:
    """k*, the number of iterations with the least bound (the end of the proof of Theorem 4.4.1).

    a / sqrt(k) + b k is least at (a / 2b)^(2/3); b holds a logarithm of k, so it is looked for nearby.

    >>> mwem_iterations([10_000], cells=64, queries=200, epsilon=1.0, beta=0.05)
    43
    """
    rough = 1
    a = 2 * math.sqrt(math.log(validate.whole(cells, "cells", low=2, high=None))) * math.fsum(totals)
    for _ in range(20):
        b = len(totals) * _mwem_noise(len(totals), queries, epsilon, rough, beta)
        rough = max(1, round((a / (2 * b)) ** (2 / 3)))

    def bound(k: int) -> float:
        return mwem(totals, cells=cells, queries=queries, epsilon=epsilon, iterations=k, beta=beta)

    return min(range(max(1, rough // 2), 2 * rough + 2), key=bound)


def algorithm_14(
    totals: Sequence[float],
    *,
    cells: int,
    queries: int,
    epsilon: float,
    iterations: int,
    beta: float,
    counter: Sequence[float],
) -> float:
    """The recursion (4.23) for Algorithm 14 after as many steps as there are ``totals`` (sizes of the data).

    ``counter`` is the counters' own bound at each step, at β / (2kT). The bound triples with every step, as
    the dissertation remarks: it is no help beyond a few, and measured errors are far below it.
    """
    steps, k = len(totals), validate.whole(iterations, "iterations", low=1)
    shape = 2 * math.sqrt(math.log(validate.whole(cells, "cells", low=2, high=None)) / k)
    chosen = k * selection(epsilon / 2, queries, validate.share(beta, "beta") / (2 * k * steps))
    error = 0.0
    for n, noise in zip(totals, counter, strict=True):
        error = 3 * error + shape * n + 2 * noise + chosen
    return error


__all__ = [
    "algorithm_14",
    "gaussian",
    "laplace",
    "laplace_sum",
    "mwem",
    "mwem_iterations",
    "selection",
]

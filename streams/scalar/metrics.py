"""How far a released series is from the true one. For the curator only: every one of these reads the private
series.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from synthgeo import validate
from synthgeo.arrays import Floats
from synthgeo.errors import InputError


def _pair(true: Any, released: Any) -> tuple[Floats, Floats]:
    a, b = np.asarray(true, dtype=np.float64), np.asarray(released, dtype=np.float64)
    if a.ndim != 1 or a.shape != b.shape or a.size == 0:
        raise InputError(
            f"two series of the same length, at least 1, are compared; got {a.shape} and {b.shape}"
        )
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise InputError("a compared series has missing or infinite values; leave those steps out of both")
    return a, b


def relative_error(true: Any, released: Any, *, sanity: float = 1.0) -> float:
    """Mean of |released - true| / max(true, sanity) (Fan and Xiong 2014, equation 1).

    >>> relative_error([10, 0], [11, 2])
    1.05
    """
    a, b = _pair(true, released)
    return float(np.mean(np.abs(b - a) / np.maximum(a, sanity)))


def mean_absolute_error(true: Any, released: Any) -> float:
    """Mean of |released - true|."""
    a, b = _pair(true, released)
    return float(np.mean(np.abs(b - a)))


def normalized_rmse(
    true: Any, released: Any, *, form: Literal["rmse", "zhang"] = "rmse", scale: float | None = None
) -> float:
    """Root mean squared error over the largest |true| value, or over ``scale``.

    ``form="zhang"`` is the relative error of Zhang, Khalili and Liu (2021): the Euclidean norm divided by T,
    not by sqrt(T), so smaller by sqrt(T). For series that drift they divide by ``scale`` = 3 σ.

    >>> normalized_rmse([3, 4, 5, 6], [3, 4, 5, 8], scale=2.0)
    0.5
    """
    validate.one_of(form, "form", ("rmse", "zhang"))
    a, b = _pair(true, released)
    largest = float(np.max(np.abs(a))) if scale is None else validate.positive(scale, "scale")
    if largest == 0:
        raise InputError("the true series is 0 throughout: there is nothing to normalise by")
    norm = float(np.linalg.norm(b - a))
    return norm / (a.size if form == "zhang" else math.sqrt(a.size)) / largest


def outbreak_f1(true: Any, released: Any, *, threshold: float = 0.05) -> float:
    """F1 of finding the steps where the series rises by more than ``threshold`` times the true median.

    1.0 when neither series has such a step.
    """
    a, b = _pair(true, released)
    rise = threshold * float(np.median(a))
    real, seen = np.diff(a) > rise, np.diff(b) > rise
    hits = int(np.count_nonzero(real & seen))
    found, there = int(np.count_nonzero(seen)), int(np.count_nonzero(real))
    if found + there == 0:
        return 1.0
    return 2 * hits / (found + there)


def spearman(true: Any, released: Any) -> float:
    """Spearman's rank correlation; 0.0 when either series is constant, where ranks say nothing."""
    from scipy.stats import rankdata

    a, b = _pair(true, released)
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return 0.0
    return float(np.corrcoef(rankdata(a), rankdata(b))[0, 1])


__all__ = ["mean_absolute_error", "normalized_rmse", "outbreak_f1", "relative_error", "spearman"]

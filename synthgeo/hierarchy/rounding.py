"""Whole numbers of synthetic points from released counts. Post-processing."""

from __future__ import annotations

import numpy as np

from synthgeo.arrays import Floats, Ints


def unbiased(values: Floats, rng: np.random.Generator) -> Ints:
    """Systematic rounding: each number is right on average, and so is the total, off by less than 1."""
    running = np.floor(np.cumsum(values) + rng.random()).astype(np.int64)
    return np.diff(running, prepend=0)


def sticky(values: Floats, current: Ints, rng: np.random.Generator) -> Ints:
    """Rounding that leaves a cell's number of points alone where it can.

    The total is unbiased; the leftover ones go to cells that already hold one more than their floor, then by
    largest remainder.
    """
    floor = np.floor(values).astype(np.int64)
    total = int(np.floor(values.sum() + rng.random()))
    extra = min(max(total - int(floor.sum()), 0), values.size)
    priority = (values - floor) + (current > floor)
    chosen = np.argsort(-priority, kind="stable")[:extra]
    out = floor.copy()
    out[chosen] += 1
    return out

"""A fast 64-bit hash of whole columns: to choose and to compare, never to hide."""

from __future__ import annotations

from typing import Any

import numpy as np

from synthgeo.arrays import Keys

_STEP = np.uint64(0x9E3779B97F4A7C15)


def mix(*columns: Any) -> Keys:
    """One well mixed number for each row of uint64 columns (the finaliser of SplitMix64, chained)."""
    state = _STEP
    with np.errstate(over="ignore"):
        for column in columns:
            state = (state ^ column) + _STEP
            state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            state = state ^ (state >> np.uint64(31))
    return np.asarray(state, dtype=np.uint64)

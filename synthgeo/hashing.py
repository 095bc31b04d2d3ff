"""Hashes: of whole columns, to choose by, and of files, to compare. They hide nothing."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np

from synthgeo.arrays import Keys

_STEP = np.uint64(0x9E3779B97F4A7C15)


def mix(*columns: Any) -> Keys:
    """One well mixed number for each row of uint64 columns (the finaliser of SplitMix64, chained).

    To spread and to choose by, never to identify: each step can be undone, so anybody can compute rows that
    get the same number.
    """
    state = _STEP
    with np.errstate(over="ignore"):
        for column in columns:
            state = (state ^ column) + _STEP
            state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            state = state ^ (state >> np.uint64(31))
    return np.asarray(state, dtype=np.uint64)


def file_hash(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a file's bytes."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

"""Checks that the simulators share."""

from __future__ import annotations

import numpy as np
import pandas as pd

from synthgeo import validate
from synthgeo.errors import ConfigError


def generator(seed: int) -> np.random.Generator:
    """A generator of its own for one call."""
    return np.random.default_rng(validate.whole(seed, "seed", low=0, high=None))


def timestamp(start: object) -> pd.Timestamp:
    """A start time."""
    try:
        moment = pd.Timestamp(start)  # type: ignore[arg-type]
    except (ValueError, TypeError) as problem:
        raise ConfigError(f"start must be a date, got {start!r}") from problem
    if pd.isna(moment):
        raise ConfigError(f"start must be a date, got {start!r}")
    return moment


def zipf_weights(count: int, exponent: float) -> np.ndarray:
    """Shares that fall like rank^-exponent."""
    weights = np.arange(1, count + 1, dtype=np.float64) ** -exponent
    return np.asarray(weights / weights.sum())


def microseconds(start: pd.Timestamp, seconds: np.ndarray) -> np.ndarray:
    """``start`` plus seconds as datetime64."""
    offset = np.rint(np.asarray(seconds) * 1e6).astype("timedelta64[us]")
    return np.asarray(np.datetime64(start.to_datetime64(), "us") + offset)

"""One short digest of whatever a product gives back, so that a moved line of code cannot move a number."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd


def digest(value: Any) -> str:
    """Twelve hex digits of a frame, an array, a number, text, or a mapping or list of these.

    Floats are rounded to ten significant digits: libraries differ in the last bits, products do not.
    """
    state = hashlib.sha256()
    _feed(state, value)
    return state.hexdigest()[:12]


def _feed(state: Any, value: Any) -> None:
    if isinstance(value, pd.DataFrame):
        for name in value.columns:
            _feed(state, str(name))
            _feed(state, value[name])
    elif isinstance(value, pd.Series):
        plain = value.to_wkb() if value.dtype.name == "geometry" else value
        _feed(state, plain.to_numpy())
    elif isinstance(value, Mapping):
        for key in value:
            _feed(state, str(key))
            _feed(state, value[key])
    elif isinstance(value, np.ndarray) and value.dtype.kind not in "OUmM":
        for number in value.ravel().tolist():
            state.update(f"{number:.10g};".encode())
    elif isinstance(value, np.ndarray | list | tuple):
        for item in value:
            _feed(state, item)
    elif isinstance(value, float):
        state.update(f"{value:.10g};".encode())
    else:
        state.update(f"{value!r};".encode())

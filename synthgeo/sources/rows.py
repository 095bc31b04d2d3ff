"""Hashes of whole rows: to tell whether a batch is the one that was seen before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from synthgeo.hashing import mix
from synthgeo.sources.chunk import Array


@dataclass(frozen=True)
class RowHash:
    """A key function: one 64-bit number for each row, the same on every engine."""

    columns: tuple[str, ...]

    def __call__(self, chunk: Mapping[str, Array]) -> tuple[NDArray[np.uint64], None]:
        return mix(*(_numbers(chunk[name]) for name in self.columns)), None


def _numbers(values: Array) -> NDArray[np.uint64]:
    kind = values.dtype.kind
    if kind in "iubM":
        return values.astype("datetime64[us]").view(np.uint64) if kind == "M" else values.astype(np.uint64)
    if kind == "f":
        plain = np.where(np.isnan(values), np.nan, values + 0.0)  # one NaN, one zero
        return np.ascontiguousarray(plain).view(np.uint64)
    missing = pd.isna(values)
    texts = np.where(missing, "", values)
    if not all(isinstance(text, str) for text in texts):  # geometries, mixed types
        texts = np.array([getattr(text, "wkb_hex", None) or repr(text) for text in texts], dtype=object)
    hashed = pd.util.hash_array(texts.astype(object), categorize=True).astype(np.uint64)
    return np.where(missing, np.uint64(0), hashed)

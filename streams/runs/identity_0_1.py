"""How version 0.1 knew a batch again: files and frames by their bytes, windows by hashes of whole rows.

Runs that it began go on comparing in this way; nothing else does.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from synthgeo.hashing import mix
from synthgeo.sources import Source
from synthgeo.sources.fingerprint import content_hash


def content_0_1(batch: Any) -> str:
    """The fingerprint that version 0.1 took of a batch."""
    if isinstance(batch, Source):
        return _rows(batch)
    if isinstance(batch, list | tuple) and batch and all(isinstance(p, str | os.PathLike) for p in batch):
        # It took the names of several files for their content; such a batch is not known again.
        return " ".join(content_hash(path) for path in batch)
    return content_hash(batch)


def _rows(source: Source) -> str:
    names = sorted(source.columns)
    rows = source.histogram(_RowHash(tuple(names)), names)
    digest = hashlib.sha256(json.dumps(names).encode())
    digest.update(rows.keys.tobytes())
    digest.update(rows.weights.tobytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class _RowHash:
    """A key function: one 64-bit number for each row."""

    columns: tuple[str, ...]

    def __call__(self, chunk: Mapping[str, Any]) -> tuple[NDArray[np.uint64], None]:
        return mix(*(_numbers(np.asarray(chunk[name])) for name in self.columns)), None


def _numbers(values: np.ndarray) -> NDArray[np.uint64]:
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

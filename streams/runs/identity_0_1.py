"""How version 0.1 knew a batch again: files and frames by their bytes, windows by hashes of whole rows.

Runs that it began go on comparing in this way; nothing else does.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from synthgeo.errors import ConfigError, InputError
from synthgeo.hashing import file_hash, mix
from synthgeo.sources import Source


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


def content_hash(data: Any) -> str:
    """The SHA-256 fingerprint of a batch: a frame (also Arrow, dask), array, dict of arrays, path, or number.

    >>> content_hash(3) == content_hash(3.0), content_hash(3) == content_hash(4)
    (True, False)
    """
    digest = hashlib.sha256()
    _feed(digest, data)
    return digest.hexdigest()


def _feed(digest: Any, data: Any) -> None:
    if data is None:
        digest.update(b"none")
    elif isinstance(data, Real) and not isinstance(data, bool):
        digest.update(f"number {float(data).hex()}".encode())
    elif isinstance(data, str | os.PathLike):
        for path in _paths_of(data):
            digest.update(f"file {file_hash(path)}".encode())
    elif isinstance(data, np.ndarray):
        _feed_array(digest, data)
    elif isinstance(data, Mapping):
        for name in sorted(data):
            digest.update(f"column {name}".encode())
            _feed(digest, np.asarray(data[name]))
    elif isinstance(data, list | tuple):
        _feed(digest, np.asarray(data))
    elif hasattr(data, "map_partitions") and hasattr(data, "partitions"):  # dask, one partition at a time
        for i in range(data.npartitions):
            _feed(digest, data.partitions[i].compute())
    elif hasattr(data, "to_pandas"):  # Arrow
        _feed_frame(digest, data.to_pandas())
    elif hasattr(data, "columns") and hasattr(data, "iloc"):
        _feed_frame(digest, data)
    else:
        raise ConfigError(f"cannot take a fingerprint of a {type(data).__name__}: give content_hash=")


def _paths_of(data: str | os.PathLike[str]) -> list[Path]:
    """The files that a path or glob names, in order."""
    text = os.fspath(data)
    found = [text] if Path(text).exists() else sorted(glob.glob(text, recursive=True))  # noqa: PTH207
    if not found:
        raise InputError(f"no file matches {text}")
    files: list[Path] = []
    for name in found:
        path = Path(name)
        files += sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    return files


def _feed_array(digest: Any, array: np.ndarray) -> None:
    if array.dtype.hasobject:
        digest.update(f"objects {array.shape}".encode())
        digest.update(pd.util.hash_array(array.ravel(), categorize=False).tobytes())
        return
    digest.update(f"array {array.dtype.str} {array.shape}".encode())
    digest.update(np.ascontiguousarray(array).view(np.uint8).data if array.size else b"")


def _feed_frame(digest: Any, frame: pd.DataFrame) -> None:
    digest.update(f"frame of {len(frame)} rows".encode())
    for name in frame.columns:
        column = frame[name]
        digest.update(f"column {name!r}".encode())
        if column.dtype.name == "geometry":
            _feed_array(digest, np.asarray(column.to_wkb(), dtype=object))
        elif isinstance(column.dtype, np.dtype) and not column.dtype.hasobject:
            _feed_array(digest, column.to_numpy())
        else:
            digest.update(pd.util.hash_pandas_object(column, index=False).to_numpy().tobytes())

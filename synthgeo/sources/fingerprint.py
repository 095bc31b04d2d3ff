"""A fingerprint of a batch's content, to tell a repeated batch from another one under the same name.

Equal content gives an equal fingerprint whatever holds it in memory; for frames the index does not count. A
fingerprint of little data can be guessed back, so whoever stores one salts it (the run directory and the
ledger do).
"""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Mapping
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from synthgeo.errors import ConfigError, InputError

if TYPE_CHECKING:
    import pandas as pd


def content_hash(data: Any) -> str:
    """The SHA-256 fingerprint of a batch: a frame (also Arrow, dask), array, dict of arrays, path, or number.

    >>> content_hash(3) == content_hash(3.0), content_hash(3) == content_hash(4)
    (True, False)
    """
    digest = hashlib.sha256()
    _feed(digest, data)
    return digest.hexdigest()


def paths_of(data: Any) -> list[Path]:
    """The files that a path or glob names, in order; empty for data in memory."""
    if not isinstance(data, str | os.PathLike):
        return []
    text = os.fspath(data)
    found = [text] if Path(text).exists() else sorted(glob.glob(text, recursive=True))  # noqa: PTH207
    if not found:
        raise InputError(f"no file matches {text}")
    files: list[Path] = []
    for name in found:
        path = Path(name)
        files += sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    return files


def file_hash(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a file's bytes."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _feed(digest: Any, data: Any) -> None:
    if data is None:
        digest.update(b"none")
    elif isinstance(data, Real) and not isinstance(data, bool):
        digest.update(f"number {float(data).hex()}".encode())
    elif isinstance(data, str | os.PathLike):
        for path in paths_of(data):
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


def _feed_array(digest: Any, array: np.ndarray) -> None:
    if array.dtype.hasobject:
        import pandas as pd

        digest.update(f"objects {array.shape}".encode())
        digest.update(pd.util.hash_array(array.ravel(), categorize=False).tobytes())
        return
    digest.update(f"array {array.dtype.str} {array.shape}".encode())
    digest.update(np.ascontiguousarray(array).view(np.uint8).data if array.size else b"")


def _feed_frame(digest: Any, frame: pd.DataFrame) -> None:
    import pandas as pd

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

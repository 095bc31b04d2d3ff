"""The identity of a batch's content, to tell a repeated batch from another one under the same name.

Records count, not what holds them: the order of rows, the names and kinds of files and the engine play no
part. A hash is computed for each record and the hashes are added up, so that the rows can be counted in the
same pass (``with_identity``). A fingerprint of little data can be guessed back: whoever stores one salts it.
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
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from synthgeo.errors import ConfigError, InputError
from synthgeo.hashing import mix
from synthgeo.sources import values
from synthgeo.sources.histogram import Histogram

if TYPE_CHECKING:
    import pandas as pd

# Four sums of 64-bit hashes and the number of rows, under the largest keys there are: no cell has these.
_LANES = 4
_KEYS = np.arange(2**64 - 1 - _LANES, 2**64, dtype=np.uint64)


@dataclass(frozen=True)
class RecordHash:
    """A key function whose histogram is a hash of the multiset of records."""

    kinds: tuple[tuple[str, str], ...]
    salt: bytes = b""
    per_row: ClassVar[bool] = False

    def __call__(self, chunk: Mapping[str, Any]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        columns = [
            part for name, kind in sorted(self.kinds) for part in values.record_hash(chunk, name, kind)
        ]
        seeds = np.frombuffer(hashlib.blake2b(self.salt, digest_size=8 * _LANES).digest(), dtype="<u8")
        rows = len(columns[0]) if columns else 0
        with np.errstate(over="ignore"):
            sums = [mix(seed.astype(np.uint64), *columns).sum(dtype=np.uint64) for seed in seeds]
        return _KEYS, np.array([*sums, rows], dtype=np.uint64).view(np.int64)[:, None]


@dataclass(frozen=True)
class WithIdentity:
    """A key function that also hashes the records: one pass gives the counts and the identity."""

    key_fn: Any
    rows: RecordHash
    weights: int
    per_row: ClassVar[bool] = False

    def __call__(self, chunk: Any) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        keys, amounts = self.key_fn(chunk)
        if amounts is None:
            amounts = np.ones((len(keys), 1), dtype=np.int64)
        own, sums = self.rows(chunk)
        padded = np.zeros((len(own), self.weights), dtype=np.int64)
        padded[:, :1] = sums
        amounts = np.asarray(amounts, dtype=np.int64).reshape(len(keys), self.weights)
        return np.concatenate([keys, own]), np.concatenate([amounts, padded])


def split_identity(counts: Histogram) -> tuple[Histogram, Histogram]:
    """The counts and the identity of a histogram that ``WithIdentity`` made."""
    cut = int(np.searchsorted(counts.keys, _KEYS[0]))
    return (
        Histogram(counts.keys[:cut], counts.weights[:cut]),
        Histogram(counts.keys[cut:], counts.weights[cut:]),
    )


def digest(rows: RecordHash, sums: Histogram, crs: Any) -> str:
    """The fingerprint of the records whose hashes were added up."""
    lanes = np.zeros(_LANES + 1, dtype=np.int64)
    lanes[(sums.keys - _KEYS[0]).astype(np.int64)] = sums.weights[:, 0]
    facts = {"columns": sorted(rows.kinds), "crs": None if crs is None else crs.to_string()}
    state = hashlib.sha256(json.dumps(facts).encode())
    state.update(rows.salt)
    state.update(lanes.astype("<i8").tobytes())
    return state.hexdigest()


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

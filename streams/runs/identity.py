"""The identity of a batch's content: how a run knows a batch again, whatever holds it.

Runs compare records, so the same rows are the same batch as a frame, as a file under another name, or on a
cluster.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from synthgeo.errors import ConfigError, InputError
from synthgeo.sources import open_source
from synthgeo.sources.files import expand

_NUMBERS = {"position": "number", "value": "number"}


def content_of(stream: Any, batch: Any, *, key: bytes = b"") -> str:
    """A fingerprint of what a stream reads of a batch, under a key; to be salted before it is kept."""
    if reads_records(stream):
        source = open_source(batch, reading=stream.reading)
        return source.fingerprint(stream.kinds(source), key=key)
    return fingerprint_of(batch, key=key)


def fingerprint_of(batch: Any, *, key: bytes = b"") -> str:
    """The identity of a batch of which nothing is declared: numbers in their order, or columns as text."""
    try:
        numbers = np.atleast_1d(np.asarray(batch, dtype=np.float64)).ravel()
    except (TypeError, ValueError):
        try:
            source = open_source(batch)
        except InputError:
            raise ConfigError(
                f"cannot take a fingerprint of a {type(batch).__name__}: give content_hash="
            ) from None
        return source.fingerprint(
            {name: "point" if name == source.geometry else "word" for name in source.columns}, key=key
        )
    rows = {"position": np.arange(numbers.size), "value": numbers}
    return open_source(rows).fingerprint(_NUMBERS, key=key)


def reads_records(stream: Any) -> bool:
    """Whether a stream reads rows of a source, which would pay again if they came again, and not numbers."""
    return hasattr(stream, "kinds")


def counts_first(stream: Any) -> bool:
    """Whether a stream counts a batch before it takes it, so that the identity comes with the counts."""
    return hasattr(stream, "count") and hasattr(stream, "take")


def marks_of(batch: Any) -> list[tuple[str, int, int, int]]:
    """Name, inode, size and time of each file of a batch: they change when a file does."""
    if not (isinstance(batch, str | os.PathLike) or is_list_of_paths(batch)):
        return []
    try:
        stats = [(path, Path(path).stat()) for path in expand(batch)]
    except OSError as problem:
        raise InputError(f"cannot read the batch: {problem.strerror}") from problem
    return [(name, stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in stats]


def is_list_of_paths(batch: Any) -> bool:
    """Whether a batch is several files."""
    return (
        isinstance(batch, list | tuple)
        and bool(batch)
        and all(isinstance(one, str | os.PathLike) for one in batch)
    )

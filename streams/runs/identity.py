"""The identity of a batch's content: how a run knows a batch again, whatever holds it.

Runs compare records, so the same rows are the same batch as a frame, as a file under another name, or on a
cluster. Runs that version 0.1 began compare what that version compared (``identity_0_1``); the journal says
which.
"""

from __future__ import annotations

import os
from typing import Any

from streams.runs.identity_0_1 import content_0_1
from synthgeo.errors import InputError
from synthgeo.sources import open_source
from synthgeo.sources.fingerprint import RecordHash, content_hash, paths_of

RECORDS, VERSION_0_1 = "records", "0.1"


def content_of(stream: Any, batch: Any, *, identity: str = RECORDS) -> str:
    """A fingerprint of what a stream reads of a batch, to be salted before it is kept."""
    if identity == VERSION_0_1:
        return content_0_1(batch)
    if not reads_records(stream):
        return content_hash(batch)
    source = open_source(batch, reading=stream.reading)
    return source.fingerprint(stream.kinds(source))


def has_records(stream: Any, batch: Any) -> bool:
    """Whether a batch holds records, which would pay again if they came again under another name.

    Numbers and empty batches come as they come.
    """
    if not reads_records(stream):
        return False
    source = open_source(batch, reading=stream.reading)
    kinds = stream.kinds(source)
    counts = source.histogram(RecordHash(tuple(kinds.items())), list(kinds))
    return bool(counts.size and counts.weights[-1, 0])  # the number of records that are not left out


def reads_records(stream: Any) -> bool:
    """Whether a stream reads rows of a source, and not numbers."""
    return hasattr(stream, "kinds")


def marks_of(batch: Any) -> list[tuple[str, int, int, int]]:
    """Name, inode, size and time of each file of a batch: they change when a file does."""
    given = batch if is_list_of_paths(batch) else [batch]
    try:
        stats = [(str(path), path.stat()) for one in given for path in paths_of(one)]
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

"""The identity of a batch's content: how a run knows a batch again, whatever holds it.

Runs compare records, so the same rows are the same batch as a frame, as a file under another name, or on a
cluster. Runs that version 0.1 began compare bytes, as they always did: the journal says which.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from synthgeo.errors import InputError
from synthgeo.sources import Source, open_source
from synthgeo.sources.fingerprint import content_hash, paths_of

RECORDS, BYTES = "records", "bytes"


class Content(NamedTuple):
    """A fingerprint, to be salted before it is kept, and whether it stands for records.

    Records that come again under another name pay again. Numbers and empty batches come as they come.
    """

    fingerprint: str
    has_records: bool


def content_of(stream: Any, batch: Any, *, identity: str = RECORDS) -> Content:
    """What a batch holds, for a stream that reads certain columns of it. Changes nothing."""
    if not hasattr(stream, "check_columns"):  # a stream of numbers
        return Content(content_hash(batch), has_records=False)
    if identity == BYTES:
        return Content(_bytes_of(batch), has_records=True)
    source = open_source(batch)
    columns = stream.check_columns(source)
    found = source.fingerprint(columns)
    return Content(found, has_records=found != _nothing(columns))


def marks_of(batch: Any) -> list[tuple[str, int, int, int]]:
    """Name, inode, size and time of each file of a batch: they change when a file does."""
    given = batch if _is_list_of_paths(batch) else [batch]
    try:
        stats = [(str(path), path.stat()) for one in given for path in paths_of(one)]
    except OSError as problem:
        raise InputError(f"cannot read the batch: {problem.strerror}") from problem
    return [(name, stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in stats]


def _nothing(columns: list[str]) -> str:
    return open_source({name: [] for name in columns}).fingerprint(columns)


def _bytes_of(batch: Any) -> str:
    if isinstance(batch, Source):
        return batch.fingerprint()
    if _is_list_of_paths(batch):  # version 0.1 took the names for the content
        return " ".join(content_hash(path) for path in batch)
    return content_hash(batch)


def _is_list_of_paths(batch: Any) -> bool:
    return (
        isinstance(batch, list | tuple)
        and bool(batch)
        and all(isinstance(one, str | os.PathLike) for one in batch)
    )

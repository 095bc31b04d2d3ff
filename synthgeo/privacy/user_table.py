"""The memory of a bounder as a table on disk: who contributed how much, one Parquet file per bucket of users.

For more users than a driver should remember, and for clusters: each bucket's file is read and written by the
task that bounds the bucket's users. A file is named by its content and never changed, so a step writes new
files beside those of the last step, and whichever of two attempts of a task ends first has written the same.
The list of files is the table's version. It is part of the stream's state, so state and table move together:
a step that is undone, at whatever point, leaves the old list and the old files.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from synthgeo import validate
from synthgeo.errors import ConfigError, StateError
from synthgeo.privacy.contribution import ContributionBounder
from synthgeo.privacy.unit import PrivacyUnit
from synthgeo.state import write_atomic

_NAME = re.compile(r"users-\d{5}-[0-9a-f]{64}\.parquet")
_META = b"synthgeo"
MAX_BUCKETS = 99_999


@dataclass(frozen=True)
class StoredPart:
    """The memory of one bucket of users: a file, or None where none of them contributed yet."""

    folder: str
    bucket: int
    file: str | None
    unit: PrivacyUnit
    deletes: bool

    def opened(self) -> ContributionBounder:
        """A bounder with this memory."""
        if self.file is None:
            return ContributionBounder(self.unit, deletes=self.deletes)
        try:
            content = (Path(self.folder) / self.file).read_bytes()
        except OSError as problem:
            raise StateError(
                f"the user table lacks {self.file} ({problem.strerror}): it belongs to a later state, or is "
                f"not where it was"
            ) from None
        if hashlib.sha256(content).hexdigest() not in self.file:
            raise StateError(f"the user table is damaged: {self.file} has other content than was written")
        return _parsed(content)

    def closed(self, bounder: ContributionBounder) -> StoredPart:
        """Write what the bounder remembers now; on disk when this returns."""
        content = _written(bounder)
        name = f"users-{self.bucket:05d}-{hashlib.sha256(content).hexdigest()}.parquet"
        target = Path(self.folder) / name
        if not target.exists():
            write_atomic(target, content)
        return replace(self, file=name)


class StoredBounder:
    """A ``ContributionBounder`` whose memory is a table on disk, in ``buckets`` files of users.

    It keeps what one in memory would keep. ``folder`` has to be seen by every worker under the same path; the
    table gets a folder of its own there, readable by its owner only. It is as private as the data: it says
    who was seen and how often.

    Guarantee
    ---------
    That of ``ContributionBounder``: what is kept of a user is a function of that user's own events. A user
    is in one bucket, by a public hash of the id, and a bucket's memory goes through one ``admit`` per batch.
    """

    def __init__(
        self, unit: PrivacyUnit, folder: str | os.PathLike[str], *, buckets: int = 64, deletes: bool = False
    ) -> None:
        ContributionBounder(unit, deletes=deletes)  # refuses what cannot be bounded
        self.unit, self.deletes = unit, deletes
        self._folder = Path(folder).absolute() / f"users-{secrets.token_hex(8)}"
        count = validate.whole(buckets, "buckets", low=1, high=MAX_BUCKETS)
        self._files: tuple[str | None, ...] = (None,) * count
        self._saved: frozenset[str] = frozenset()

    def parts(self, count: int) -> list[StoredPart]:  # noqa: ARG002
        """The memory of each bucket; the table says how many there are, whatever ``count`` is."""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as problem:
            raise ConfigError(
                f"the user table cannot be kept in {self._folder.parent} ({problem.strerror})"
            ) from None
        return [
            StoredPart(str(self._folder), bucket, file, self.unit, self.deletes)
            for bucket, file in enumerate(self._files)
        ]

    def join(self, parts: Sequence[StoredPart]) -> None:
        """Take over the list of files."""
        self._files = tuple(part.file for part in parts)

    def was_saved(self) -> None:
        """Remove the files that neither the state just saved nor the one saved before it lists."""
        now = frozenset(file for file in self._files if file is not None)
        for path in self._folder.glob("users-*.parquet"):
            if path.name not in now | self._saved:
                path.unlink(missing_ok=True)
        self._saved = now

    def to_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Where the table is, and which files are its current version."""
        return {
            "table": str(self._folder),
            "unit": self.unit.to_dict(),
            "deletes": self.deletes,
            "files": list(self._files),
        }, {}

    @classmethod
    def from_state(cls, values: dict[str, Any], arrays: dict[str, np.ndarray]) -> StoredBounder:  # noqa: ARG003
        """The bounder that ``to_state`` wrote."""
        try:
            unit, deletes = PrivacyUnit.from_dict(values["unit"]), bool(values["deletes"])
            files, folder = tuple(values["files"]), Path(values["table"])
            bounder = cls(unit, folder.parent, buckets=len(files), deletes=deletes)
            if any(file is not None and not _NAME.fullmatch(file) for file in files):
                raise ValueError("a file of the user table has another name")
        except (KeyError, TypeError, ValueError) as problem:
            raise StateError(f"contribution state is damaged ({type(problem).__name__})") from problem
        bounder._folder, bounder._files = folder, files
        bounder._saved = frozenset(file for file in files if file is not None)
        return bounder

    def __repr__(self) -> str:
        return f"StoredBounder({self.unit.describe()}, {len(self._files)} buckets)"


def _written(bounder: ContributionBounder) -> bytes:
    values, arrays = bounder.to_state()
    names = ["users", *(f"open_{period}" for period in values["open"])]
    tables = []
    for name in names:
        first, second, rest = (arrays[f"{name}_{part}"] for part in ("first", "second", "values"))
        slot = rest[:, 1] if name == "users" else np.zeros(len(first), np.int64)
        label = pa.array([name], pa.string()).dictionary_encode()
        part = pa.DictionaryArray.from_arrays(np.zeros(len(first), np.int32), label.dictionary)
        columns = [part.cast(pa.string()), first, second, np.ascontiguousarray(rest[:, 0]), slot]
        tables.append(pa.table(columns, names=["table", "first", "second", "value", "slot"]))
    whole = pa.concat_tables(tables).replace_schema_metadata({_META: json.dumps(values)})
    buffer = io.BytesIO()
    pq.write_table(whole, buffer)
    return buffer.getvalue()


def _parsed(content: bytes) -> ContributionBounder:
    whole = pq.read_table(io.BytesIO(content))
    values = json.loads(whole.schema.metadata[_META])
    names = whole["table"].combine_chunks().dictionary_encode()
    codes, labels = names.indices.to_numpy(), names.dictionary.to_pylist()
    columns = {name: whole[name].to_numpy() for name in ("first", "second", "value", "slot")}
    arrays: dict[str, np.ndarray] = {}
    for name in ["users", *(f"open_{period}" for period in values["open"])]:
        rows = codes == labels.index(name) if name in labels else np.zeros(len(codes), dtype=bool)
        value = [columns["value"][rows], columns["slot"][rows]][: 2 if name == "users" else 1]
        arrays |= {f"{name}_first": columns["first"][rows], f"{name}_second": columns["second"][rows]}
        arrays[f"{name}_values"] = np.column_stack(value)
    return ContributionBounder.from_state(values, arrays)

"""Parts as files in a folder of their own, which is gone when nobody needs them any more.

The folder holds private rows. It is made by ``tempfile`` (TMPDIR says where), readable by its owner only, and
removed with the object or at the end of the process.
"""

from __future__ import annotations

import os
import shutil
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np

from synthgeo.arrays import Array
from trajectories.parts.columns import Columns, Parts, PartWork
from trajectories.parts.workers import Workers


class PrivateFolder:
    """A folder for private rows that is gone with the object."""

    def __init__(self) -> None:
        self.name = mkdtemp(prefix="synthgeo-trips-")
        weakref.finalize(self, shutil.rmtree, self.name, ignore_errors=True)


class FolderParts(Parts):
    """Parts as files, worked on by processes."""

    def __init__(
        self,
        folder: PrivateFolder,
        files: Sequence[Columns],
        names: Iterable[str],
        workers: Workers,
    ) -> None:
        self._folder, self._files, self._workers = folder, files, workers
        self.names = frozenset(names)

    @classmethod
    def made(cls, work: PartWork, items: Iterable[Any], workers: Workers) -> FolderParts:
        """The parts that the work makes of items, one of each; there is at least one."""
        folder = PrivateFolder()
        made = list(workers.map(_Keeping(work, folder.name), enumerate(items)))
        return cls(folder, made, made[0].names, workers)

    def __len__(self) -> int:
        return len(self._files)

    def results(self, work: PartWork) -> Iterator[Any]:
        return self._workers.map(work, self._files)

    def map(self, work: PartWork, more: Sequence[Any] | None = None) -> FolderParts:
        items: Iterable[Any] = self._files if more is None else zip(self._files, more, strict=True)
        return FolderParts.made(work, items, self._workers)


@dataclass(frozen=True)
class LazyColumns(Mapping[str, Array], ABC):
    """Columns of one part; each is read when it is asked for."""

    names: tuple[str, ...]

    @abstractmethod
    def read(self, name: str) -> Array:
        """One of the columns."""

    def __getitem__(self, name: str) -> Array:
        if name not in self.names:
            raise KeyError(name)
        return self.read(name)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True)
class FolderPart(LazyColumns):
    """A part in one file."""

    path: str

    def read(self, name: str) -> Array:
        with np.load(self.path) as stored:
            return widened(stored[name])


@dataclass(frozen=True, eq=False)
class _Keeping:
    """Does work and keeps its arrays in a file. A task that is done again replaces its file as a whole."""

    work: PartWork
    folder: str

    def __call__(self, task: tuple[int, Any]) -> FolderPart:
        number, item = task
        arrays = self.work(item)
        path = Path(self.folder) / f"{number}.npz"
        unfinished = path.with_name(f"{number}-{os.getpid()}.part")
        with unfinished.open("wb") as file:
            kept: dict[str, Any] = {name: narrowed(array) for name, array in arrays.items()}
            np.savez(file, **kept)
        unfinished.replace(path)
        return FolderPart(tuple(arrays), str(path))


def narrowed(array: Array) -> Array:
    """The same whole numbers in as few bytes as they need; anything else as it is."""
    if array.dtype.kind not in "iu" or not array.size:
        return array
    low, high = int(array.min()), int(array.max())
    for size in (1, 2, 4):
        limits = np.iinfo(f"{array.dtype.kind}{size}")
        if limits.min <= low and high <= limits.max:
            return array.astype(limits.dtype)
    return array


def widened(array: Array) -> Array:
    """Whole numbers in eight bytes again."""
    return array if array.dtype.kind not in "iu" else array.astype(f"{array.dtype.kind}8", copy=False)


__all__ = ["FolderPart", "FolderParts", "LazyColumns", "PrivateFolder", "narrowed", "widened"]

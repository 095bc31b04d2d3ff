"""What a durable run can drive, and how it knows its streams and its batches again."""

from __future__ import annotations

import os
from typing import Any, Protocol, cast

from synthgeo.errors import ConfigError, InputError
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.unit import PrivacyUnit
from synthgeo.sources.fingerprint import paths_of


class Stream(Protocol):
    """What a run can drive."""

    @property
    def budget(self) -> PrivacyBudget: ...
    @property
    def spent(self) -> PrivacyBudget | None: ...
    @property
    def unit(self) -> PrivacyUnit: ...
    def update(self, batch: Any) -> Any: ...
    def save(self, path: str | os.PathLike[str]) -> None: ...
    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Any: ...


def check_stream(stream: Any) -> None:
    """``ConfigError`` unless a run can drive this object."""
    missing = [
        name for name in ("update", "save", "load", "spent", "budget", "unit") if not hasattr(stream, name)
    ]
    if missing:
        raise ConfigError(f"a {type(stream).__name__} cannot be run: it has no {', '.join(missing)}")


def check_parts(parts: Any) -> None:
    """``ConfigError`` unless these can be names of a release's parts."""
    good = isinstance(parts, tuple | list) and all(isinstance(p, str) and p.isidentifier() for p in parts)
    if not good or not parts:
        raise ConfigError(f'parts must be names like ("data", "cells"), got {parts!r}')


def class_of(name: str) -> type[Any]:
    """One of the toolkit's own streams by name; never an arbitrary import."""
    import synthgeo

    if name in synthgeo.__all__:
        return cast("type[Any]", getattr(synthgeo, name))
    from streams import scalar

    if name in scalar.__all__:
        return cast("type[Any]", getattr(scalar, name))
    raise ConfigError(f"this is a run of {name}, which is not one of the toolkit's streams: give the stream")


def marks_of(batch: Any) -> list[tuple[str, int, int, int]]:
    """Name, inode, size and time of each file of a batch, to see that none changes while it is read."""
    try:
        stats = [(str(path), path.stat()) for path in paths_of(batch)]
    except OSError as problem:
        raise InputError(f"cannot read the batch: {problem.strerror}") from problem
    return [(name, stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in stats]

"""Files that several passes read: every pass has to find what was there when they were opened."""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from synthgeo.errors import InputError

Item = TypeVar("Item")
# Device, number of the file on it, bytes, nanosecond of the last change; None for what is not a plain file.
_State = tuple[int, int, int, int] | None


class Unchanged:
    """Recognises files that were written, replaced or removed after they were opened.

    A file that keeps its size and its time of change is taken for unchanged. Picklable, but what it knows is
    what this machine sees.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self._states = {path: _state(path) for path in paths}

    def check(self) -> None:
        """Raise ``InputError`` about the first file that has changed."""
        for path, state in self._states.items():
            if _state(path) != state:
                raise InputError(
                    f"{Path(path).name}: the file has changed since it was opened; what was counted of it "
                    f"was not released: give it again when it is complete"
                )

    @contextmanager
    def while_read(self) -> Iterator[None]:
        """A pass over the files: checked before it and after it."""
        self.check()
        yield
        self.check()

    def read(self, items: Iterable[Item]) -> Iterator[Item]:
        """What a pass gives."""
        with self.while_read():
            yield from items


def _state(path: str) -> _State:
    try:
        found = Path(path).stat()
    except OSError:
        return (-1, -1, -1, -1)
    if not stat.S_ISREG(found.st_mode):
        return None
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)

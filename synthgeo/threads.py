"""Work done for several items at once, in threads: compiled loops and solvers let go of Python's lock."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from synthgeo.progress import track

T = TypeVar("T")
R = TypeVar("R")

MOST = 4  # threads: each holds the arrays of its own item


def in_threads(work: Callable[[T], R], items: Iterable[T], *, label: str | None = None) -> list[R]:
    """``work`` of each item, in their order; with a ``label``, several items show a progress bar.

    >>> in_threads(abs, [-2, 1])
    [2, 1]
    """
    listed = list(items)
    threads = min(MOST, os.cpu_count() or 1, len(listed))
    shown = partial(track, label=label or "", total=len(listed), enabled=None if label else False)
    if threads < 2:
        return list(shown(map(work, listed)))
    with ThreadPoolExecutor(threads, thread_name_prefix="synthgeo") as pool:
        return list(shown(pool.map(work, listed)))


__all__ = ["in_threads"]

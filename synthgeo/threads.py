"""Work done for several items at once, in threads: compiled loops and solvers let go of Python's lock."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

MOST = 4  # threads: each holds the arrays of its own item


def in_threads(work: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """``work`` of each item, in their order.

    >>> in_threads(abs, [-2, 1])
    [2, 1]
    """
    listed = list(items)
    threads = min(MOST, os.cpu_count() or 1, len(listed))
    if threads < 2:
        return [work(item) for item in listed]
    with ThreadPoolExecutor(threads, thread_name_prefix="synthgeo") as pool:
        return list(pool.map(work, listed))


__all__ = ["in_threads"]

"""Progress bars on long work: on a terminal they show, elsewhere they are silent.

They count steps, cells and samples that the caller planned, never private totals.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def track(
    items: Iterable[T], *, label: str, total: int | None = None, enabled: bool | None = None
) -> Iterator[T]:
    """Iterate with a progress bar on stderr. ``enabled=None`` shows it only on a terminal."""
    if enabled is None:
        enabled = sys.stderr.isatty()
    if not enabled:
        yield from items
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total if total is not None else _length(items))
        for item in items:
            yield item
            bar.advance(task)


def _length(items: Iterable[T]) -> int | None:
    try:
        return len(items)  # type: ignore[arg-type]
    except TypeError:
        return None

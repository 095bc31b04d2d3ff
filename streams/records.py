"""The public ends of a stream: how rows become exact counts, and how released numbers become a dataset."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pandas as pd

from streams.mechanism import Arrays
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.contribution import ContributionBounder
from synthgeo.release import Release
from synthgeo.sources import Histogram, KeyFunction, Source


class ReadingKeys(KeyFunction, Protocol):
    """A key function that says which columns it reads, and what it asks of each (``values.KINDS``)."""

    @property
    def kinds(self) -> dict[str, str]: ...


@dataclass(frozen=True)
class Clock:
    """The step of a batch, and when the windows began that the stream still holds, as far as that is known.

    ``starts`` are pairs (step, microseconds since 1970; instants where ``tz`` names a zone).
    """

    step: int = 0
    starts: tuple[tuple[int, int], ...] = ()
    tz: str | None = None

    def next(self, start: pd.Timestamp | None, held: int) -> Clock:
        """The clock one step on, for a window that begins at ``start`` (None: it is no window)."""
        step, starts, tz = self.step + 1, self.starts, self.tz
        if start is not None:
            starts = (*starts, (step, int(start.as_unit("us").value // 1000)))
            tz = None if start.tz is None else str(start.tz)
        return Clock(step, tuple(pair for pair in starts if pair[0] > step - held), tz)


class Records(Protocol):
    """What the rows of a stream are: points on a domain, rows of a schema. Public, and never changed.

    ``width`` is the number of weight columns of its histograms.
    """

    width: int

    def keys(self, source: Source) -> ReadingKeys:
        """The key function for a source's rows, which knows what it asks of each column. Looks at no row."""
        ...

    def count(self, source: Source, bounder: ContributionBounder | None, clock: Clock) -> Histogram:
        """Exact counts of one batch; with a bounder, of the events that it admits (it is moved on).

        Errors name the column and the row.
        """
        ...

    def release(
        self,
        snapshot: Any,
        *,
        kept: Any,
        clock: Clock,
        spent: PrivacyBudget | None,
        provenance: dict[str, Any],
        rng: np.random.Generator,
    ) -> tuple[Release, Any]:
        """The synthetic dataset of a mechanism's snapshot, and what the next release needs of it (``kept``).

        Post-processing.
        """
        ...

    def facts(self) -> dict[str, Any]:
        """Public settings for the statement that goes with a release."""
        ...

    def settings(self) -> dict[str, Any]:
        """What was chosen, as plain values."""
        ...

    def to_state(self, kept: Any) -> tuple[dict[str, Any], Arrays]:
        """What ``settings`` leave out, and what the last release left for the next."""
        ...

    def kept(self, values: dict[str, Any] | None = None, arrays: Arrays | None = None) -> Any:
        """What the next release needs of the last: as ``to_state`` wrote it, or before the first step."""
        ...


def with_columns(counts: Histogram, columns: int) -> Histogram:
    """The same counts with this many weight columns: columns of zeros are added or left out."""
    have = counts.weights.shape[1]
    if have >= columns:
        return counts if have == columns else Histogram(counts.keys, counts.weights[:, :columns])
    room = np.zeros((counts.size, columns - have), dtype=np.int64)
    return Histogram(counts.keys, np.hstack([counts.weights, room]))

"""The public ends of a stream: how rows become exact counts, and how released numbers become a dataset."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pandas as pd

from streams.mechanism import Arrays
from streams.slots import SlotShares, TimeSlots
from synthgeo.preflight import Probe
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.release import Release
from synthgeo.sources import Histogram, KeyFunction, Source


class ReadingKeys(KeyFunction, Protocol):
    """A key function that says which columns it reads, and what it asks of each (``values.KINDS``)."""

    @property
    def kinds(self) -> dict[str, str]: ...


@dataclass(frozen=True)
class Clock:
    """The step of a batch, and when the windows began that the stream still holds, as far as that is known.

    ``starts`` are pairs (step, microseconds since 1970; instants where ``tz`` names a zone), ``first`` is
    when the first window began, ``window`` begin and end of this step's, ``period`` the number of the public
    period that it lies in. Where times inside windows are asked for, ``slots`` says how these are cut
    further, and ``within``, for a release, how the events of each spread over its slots.
    """

    step: int = 0
    starts: tuple[tuple[int, int], ...] = ()
    tz: str | None = None
    first: int | None = None
    window: tuple[int, int] | None = None
    period: int = 0
    slots: TimeSlots | None = None
    within: dict[int, SlotShares] | None = None

    def next(self, window: tuple[pd.Timestamp, pd.Timestamp] | None, held: int) -> Clock:
        """The clock one step on, for a batch that is this window (None: it is no window)."""
        step, starts, tz, first, span = self.step + 1, self.starts, self.tz, self.first, None
        if window is not None:
            span = (_microseconds(window[0]), _microseconds(window[1]))
            starts = (*starts, (step, span[0]))
            tz = None if window[0].tz is None else str(window[0].tz)
            first = span[0] if first is None else first
        starts = tuple(pair for pair in starts if pair[0] > step - held)
        return Clock(step, starts, tz, first, span, self.period)

    def stamp(self, microseconds: int) -> pd.Timestamp:
        """A time of this clock."""
        stamp = pd.Timestamp(microseconds, unit="us", tz=None if self.tz is None else "UTC")
        return stamp if self.tz is None else stamp.tz_convert(self.tz)


def _microseconds(stamp: pd.Timestamp) -> int:
    return int(stamp.as_unit("us").value // 1000)


class Records(Protocol):
    """What the rows of a stream are: points on a domain, rows of a schema. Public, and never changed.

    ``width`` is the number of weight columns of its histograms.
    """

    width: int

    def keys(self, source: Source) -> ReadingKeys:
        """The key function for a source's rows, which knows what it asks of each column. Looks at no row."""
        ...

    def probes(self, source: Source) -> list[Probe]:
        """What a preflight looks at beyond single rows."""
        ...

    def count(self, source: Source, bounder: Any, clock: Clock) -> Any:
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

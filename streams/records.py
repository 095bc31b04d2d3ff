"""The public ends of a stream: how rows become exact counts, and how released numbers become a dataset."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from streams.mechanism import Arrays
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.contribution import ContributionBounder
from synthgeo.release import Release
from synthgeo.sources import Histogram, KeyFunction, Source


class ReadingKeys(KeyFunction, Protocol):
    """A key function that says which columns it reads, and what it asks of each (``values.KINDS``)."""

    @property
    def kinds(self) -> dict[str, str]: ...


class Records(Protocol):
    """What the rows of a stream are: points on a domain, rows of a schema. Public, and never changed.

    ``width`` is the number of weight columns of its histograms.
    """

    width: int

    def keys(self, source: Source) -> ReadingKeys:
        """The key function for a source's rows, which knows what it asks of each column. Looks at no row."""
        ...

    def count(self, source: Source, bounder: ContributionBounder | None) -> Histogram:
        """Exact counts of one batch; with a bounder, of the events that it admits (it is moved on).

        Errors name the column and the row.
        """
        ...

    def release(
        self,
        snapshot: Any,
        *,
        kept: Any,
        step: int,
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

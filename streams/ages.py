"""Deletions inside a lifetime: their own rows say when their events were inserted, and they are counted in
public groups of ages. Deletions are never matched with insertions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from streams.periods import Periods
from streams.records import Clock
from synthgeo import validate
from synthgeo.arrays import Bools, Ints
from synthgeo.errors import ConfigError
from synthgeo.privacy.unit import PrivacyUnit
from synthgeo.sources import Source, values
from synthgeo.sources.chunk import refuse


@dataclass(frozen=True)
class InsertionAges:
    """How a deletion's row says when its event was inserted: by a time where the stream is cut into windows,
    else by the number of a step.

    ``ages`` are public groups [a, b) of ages in steps; an older event has expired.
    """

    column: str
    clock: Clock  # of the batch
    ages: tuple[tuple[int, int], ...]
    periods: Periods | None = None

    @classmethod
    def of(
        cls,
        column: str,
        source: Source,
        clock: Clock | None,
        ages: tuple[tuple[int, int], ...],
        unit: PrivacyUnit,
    ) -> InsertionAges:
        """How the rows of a batch say it; without its clock, for a look at rows whose step is not known."""
        if clock is None:
            clock = Clock(starts=((0, 0),)) if source.time is not None else Clock(step=2**62)
        return cls(column, clock, ages, None if unit.per is None else Periods(unit.per))

    @property
    def kind(self) -> str:
        """What the column is asked for."""
        return "time" if self.clock.starts else "number"

    def steps(self, chunk: Mapping[str, Any], deleted: Bools) -> Ints:
        """The step in which the event of each deleted row was inserted; -1 where that has expired."""
        if self.clock.starts:
            steps, starts = np.array(self.clock.starts).T
            when = values.times(chunk, self.column).astype("datetime64[us]").astype(np.int64)
            refuse(deleted & (when < -(2**62)), self.column, "a deletion needs the time of its insertion")
            place = np.searchsorted(starts, when, side="right") - 1
            return np.where(place >= 0, steps[np.maximum(place, 0)], -1)
        number, step = values.numbers(chunk, self.column), self.clock.step
        whole = (number == np.floor(number)) & (number >= 1) & (number <= step)
        refuse(deleted & ~whole, self.column, f"must be a step from 1 to {step}: that of the insertion")
        return np.where(whole, np.nan_to_num(number), -1).astype(np.int64)

    def group(self, inserted: Ints, deleted: Bools) -> Ints:
        """The age group of each deleted row; -1 for what has expired, and for insertions."""
        edges = np.array([older for _, older in self.ages])
        group = np.searchsorted(edges, self.clock.step - inserted, side="right")
        return np.where(deleted & (inserted >= 0) & (group < edges.size), group, -1)

    def born(self, inserted: Ints, deleted: Bools) -> Ints:
        """The period of the insertion of each deleted row, and of the batch for insertions."""
        if self.periods is None:
            return np.zeros(inserted.size, dtype=np.int64)
        return np.where(deleted, self.periods.of_steps(inserted, self.clock), self.clock.period)


def check_deletions(
    deletions: bool | None, inserted: str | None, lifetime: int | None, unit: PrivacyUnit
) -> bool:
    """Whether deletions can come: by default yes, and with a lifetime or periods where their rows say when
    their event was inserted; never where one row of an event counts.
    """
    if inserted is not None and lifetime is None:
        raise ConfigError("inserted= says when the event of a deletion expires: give a lifetime too")
    possible = ((lifetime is None and unit.per is None) or inserted is not None) and not unit.unique
    if deletions and unit.unique:
        raise ConfigError(
            "an insertion and its deletion are two rows of one event, of which one counts: protect them with "
            "PrivacyUnit.user(max_events=2, key=...), which keeps both"
        )
    if deletions and not possible:
        where = "inside a lifetime" if unit.per is None else "by users with a bound per period"
        raise ConfigError(
            f"deletions {where} need inserted=, the column that says when their event was inserted, and a "
            "lifetime"
        )
    return possible if deletions is None else validate.flag(deletions, "deletions")


def age_groups(lifetime: int) -> list[tuple[int, int]]:
    """Public groups of ages [a, b) that cover 0, ..., lifetime - 1; each group is twice as wide as the last.

    >>> age_groups(10)
    [(0, 1), (1, 3), (3, 7), (7, 10)]
    """
    groups, begin, width = [], 0, 1
    while begin < lifetime:
        groups.append((begin, min(begin + width, lifetime)))
        begin, width = begin + width, 2 * width
    return groups

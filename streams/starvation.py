"""Whether a stream runs out of users, by what is public: the bound, the number of steps, released totals.

A bound on what a user contributes over all time is used up one day: whoever has no place left is not counted
any more, and a long stream fades. Nobody may count the users who were dropped, but releases that fall can be
seen.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from synthgeo.privacy.unit import PrivacyUnit

_KEPT = 64
_FEWEST = 16
# A stream starves when what is new of late is below this part of what was new at its best.
_FALLEN = 0.25


class StarvingStreamWarning(UserWarning):
    """Users seem to have used up their events: releases fall, and every user had room for few."""


@dataclass(frozen=True)
class ReleasedTotals:
    """Released totals at every so many steps, at most 64 of them."""

    values: tuple[float, ...] = ()
    stride: int = 1

    def seen(self, step: int, total: float) -> ReleasedTotals:
        """With the total of one more step."""
        if step % self.stride:
            return self
        values, stride = (*self.values, float(total)), self.stride
        if len(values) == _KEPT:
            values, stride = values[1::2], 2 * stride
        return replace(self, values=values, stride=stride)

    def starve(self, unit: PrivacyUnit, *, expires: bool, deletions: bool) -> bool:
        """Whether users seem to run out: the steps outnumber a user's events, and what is new of late is
        little. That is the growth of a dataset that only grows, and the size of one that also shrinks.
        """
        steps = len(self.values) * self.stride
        if not unit.is_user or unit.per is not None or len(self.values) < _FEWEST:
            return False
        if steps < 2 * unit.max_contributions:
            return False
        new = np.array(self.values)
        if not (expires or deletions):
            new = np.diff(new, prepend=0.0)
        quarters = [part.mean() for part in np.array_split(new, 4)]
        return bool(quarters[-1] < _FALLEN * max(quarters[:-1]))


def message(unit: PrivacyUnit, steps: int) -> str:
    """What to tell the curator, and what to do."""
    return (
        f"after {steps} steps the released totals fall, and each user may contribute "
        f"{unit.max_contributions} events in all: users may have used them up. "
        "PrivacyUnit.user(..., per=...) bounds them in each public period instead"
    )

"""When the records of a release came: the windows that it holds, from released numbers alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from streams.records import Clock
from streams.slots import SlotShares
from synthgeo.arrays import Floats, Ints
from synthgeo.hashing import mix
from synthgeo.hierarchy.base import unbiased

_SECOND = 1_000_000


@dataclass(frozen=True, eq=False)
class BirthTimes:
    """Which windows a release holds records of, and how many of each by the released numbers."""

    steps: Ints  # rising
    starts: pd.DatetimeIndex
    totals: Floats  # >= 0
    within: tuple[SlotShares, ...] = ()  # of each window, where times inside them were asked for

    @classmethod
    def of(cls, totals: dict[int, float], clock: Clock) -> BirthTimes | None:
        """From the released totals of steps; None where the stream was not cut into windows."""
        starts = dict(clock.starts)
        if not totals or any(step not in starts for step in totals):
            return None
        steps = np.array(sorted(totals), dtype=np.int64)
        index = _stamps(np.array([starts[step] for step in steps.tolist()]), clock.tz)
        shares = () if clock.within is None else tuple(clock.within[step] for step in steps.tolist())
        return cls(steps, index, np.maximum([totals[step] for step in steps.tolist()], 0.0), shares)

    def draw(self, count: int, rng: np.random.Generator) -> Ints:
        """A window's step for each of ``count`` records, in random order."""
        weight = self.totals if self.totals.sum() > 0 else np.ones(self.totals.size)
        numbers = unbiased(weight * (count / weight.sum()), rng)
        numbers[int(np.argmax(weight))] += count - int(numbers.sum())  # rounding may be off by one
        return rng.permutation(np.repeat(self.steps, numbers))

    def columns(self, steps: Ints, luck: Floats) -> dict[str, pd.DatetimeIndex]:
        """``window_start`` of records that came in these steps and, where times inside windows were asked
        for, ``time``. ``luck`` are numbers in [0, 1), one for each record, that decide on its time.
        """
        place = np.searchsorted(self.steps, steps)
        found = {"window_start": self.starts[place]}
        if self.within:
            found["time"] = _stamps(
                self._times(place, luck), None if self.starts.tz is None else str(self.starts.tz)
            )
        return found

    def _times(self, place: Ints, luck: Floats) -> Ints:
        """Whole seconds, spread evenly over a slot that is drawn by the shares of its window."""
        # All windows in one search: the cumulative shares of window i run from i to i + 1.
        sizes = [shares.shares.size for shares in self.within]
        first = np.repeat(np.arange(len(sizes)), sizes)
        shares = np.concatenate([found.shares for found in self.within])
        begins = np.concatenate([found.edges[:-1] for found in self.within])
        lengths = np.concatenate([np.diff(found.edges) for found in self.within])
        upto = np.concatenate([np.cumsum(found.shares) for found in self.within])
        stop = first + np.minimum(upto, 1.0)
        stop[np.cumsum(sizes) - 1] = np.arange(len(sizes)) + 1.0
        at = place + luck
        slot = np.searchsorted(stop, at, side="right")
        inside = np.clip((at - stop[slot]) / np.maximum(shares[slot], 1e-300) + 1, 0.0, 1.0)
        when = begins[slot] + (inside * lengths[slot]).astype(np.int64)
        whole = np.minimum(when, begins[slot] + lengths[slot] - 1) // _SECOND * _SECOND
        return np.asarray(np.maximum(whole, begins[slot]))


def _stamps(microseconds: Ints, tz: str | None) -> pd.DatetimeIndex:
    index = pd.DatetimeIndex(microseconds.astype("datetime64[us]"))
    return index if tz is None else index.tz_localize("UTC").tz_convert(tz)


def luck_of(ids: Ints) -> Floats:
    """A number in [0, 1) for each id, always the same one: what persists keeps its time."""
    return (mix(ids.astype(np.uint64)) >> np.uint64(11)).astype(np.float64) * 2.0**-53

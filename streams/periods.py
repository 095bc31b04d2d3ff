"""Public periods of a stream: the blocks of time for which a user's contributions are bounded.

A period is a block of steps, or of the calendar that the stream's windows follow. Every batch lies in one
period; which one is public. Periods are fixed blocks, numbered from 0: a bound over a sliding stretch would
let one event decide about all later ones (``synthgeo.privacy.contribution``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from pandas.tseries.offsets import Day, Tick

from streams.records import Clock
from synthgeo import validate
from synthgeo.arrays import Ints
from synthgeo.errors import ConfigError
from synthgeo.privacy.unit import PrivacyUnit
from synthgeo.sources.grid import Grid


@dataclass(frozen=True)
class Periods:
    """Blocks of ``per`` steps, or of a length of time: a calendar one (``"1MS"``) begins with the calendar's
    own, any other (``"28D"``) with the stream's first window.

    >>> Periods(28).at(Clock(step=28)), Periods(28).at(Clock(step=29))
    (0, 1)
    """

    per: int | str

    def at(self, clock: Clock) -> int:
        """The period of a clock's step; ``ConfigError`` where its window is unknown or lies in two."""
        if isinstance(self.per, int):
            return (clock.step - 1) // self.per
        if clock.window is None:
            raise ConfigError(
                f"periods of {self.per!r} need windows of time: use run(..., time=, every=), or give per= "
                "as a number of steps"
            )
        begin, end = self.of_times(np.array([clock.window[0], clock.window[1] - 1]), clock).tolist()
        if begin != end:
            raise ConfigError(
                f"a window lies in two periods of {self.per!r}: choose windows that end where periods do"
            )
        return int(begin)

    def of_steps(self, steps: Ints, clock: Clock) -> Ints:
        """The period of each of the steps that the clock still holds; -1 for others."""
        if isinstance(self.per, int):
            return np.where(steps > 0, (steps - 1) // self.per, -1)
        held, starts = np.array(clock.starts).T
        place = np.minimum(np.searchsorted(held, steps), held.size - 1)
        return np.where(held[place] == steps, self.of_times(starts[place], clock), -1)

    def of_windows(self, grid: Grid) -> Ints:
        """The period of each window of a grid with which a stream begins."""
        if isinstance(self.per, int):
            return np.arange(grid.size) // self.per
        tz = None if grid.starts.tz is None else str(grid.starts.tz)
        begin, end = int(grid.edges[0]), int(grid.edges[-1])
        return self.of_times(grid.edges[:-1], Clock(grid.size, tz=tz, first=begin, window=(begin, end)))

    def of_times(self, times: Ints, clock: Clock) -> Ints:
        """The period of each time (microseconds, as in ``Clock``) up to the end of the clock's window; -1
        before the first.
        """
        assert clock.window is not None
        borders = self._borders(clock)
        return np.searchsorted(borders, times, side="right") - 1

    def _borders(self, clock: Clock) -> Ints:
        length = validate.length_of_time(self.per, "per")
        assert clock.window is not None
        first = clock.window[0] if clock.first is None else clock.first
        begin, end = clock.stamp(first), clock.stamp(clock.window[1])
        if not isinstance(length, Tick | Day):
            begin = length.rollback(begin.normalize())
        return np.asarray(pd.date_range(begin, end, freq=length).as_unit("us").asi8)


def oldest_period(unit: PrivacyUnit, clock: Clock, lifetime: int | None) -> int | None:
    """The first period of which an insertion can still be alive; None where that is not known."""
    if unit.per is None or lifetime is None:
        return None
    first = max(clock.step - lifetime + 1, 1)
    found = int(Periods(unit.per).of_steps(np.array([first]), clock)[0])
    return found if found >= 0 else None

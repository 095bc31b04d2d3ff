"""When the records of a release came: the windows that it holds, from released numbers alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from streams.records import Clock
from synthgeo.arrays import Floats, Ints
from synthgeo.hierarchy.rounding import unbiased


@dataclass(frozen=True, eq=False)
class BirthTimes:
    """Which windows a release holds records of, and how many of each by the released numbers."""

    steps: Ints  # rising
    starts: pd.DatetimeIndex
    totals: Floats  # >= 0

    @classmethod
    def of(cls, totals: dict[int, float], clock: Clock) -> BirthTimes | None:
        """From the released totals of steps; None where the stream was not cut into windows."""
        starts = dict(clock.starts)
        if not totals or any(step not in starts for step in totals):
            return None
        steps = np.array(sorted(totals), dtype=np.int64)
        index = pd.DatetimeIndex(np.array([starts[step] for step in steps.tolist()], dtype="datetime64[us]"))
        if clock.tz is not None:
            index = index.tz_localize("UTC").tz_convert(clock.tz)
        return cls(steps, index, np.maximum([totals[step] for step in steps.tolist()], 0.0))

    def draw(self, count: int, rng: np.random.Generator) -> Ints:
        """A window's step for each of ``count`` records, in random order."""
        weight = self.totals if self.totals.sum() > 0 else np.ones(self.totals.size)
        numbers = unbiased(weight * (count / weight.sum()), rng)
        numbers[int(np.argmax(weight))] += count - int(numbers.sum())  # rounding may be off by one
        return rng.permutation(np.repeat(self.steps, numbers))

    def starts_of(self, steps: Ints) -> pd.DatetimeIndex:
        """The start of the window of each step."""
        return self.starts[np.searchsorted(self.steps, steps)]

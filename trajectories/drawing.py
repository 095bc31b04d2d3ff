"""Drawing synthetic trips from a released model, for one-off fits and streams alike. Post-processing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from synthgeo.arrays import Floats, Ints
from synthgeo.errors import ConfigError
from synthgeo.privacy.budget import PrivacyBudget
from trajectories.release import DrawnTrips, TrajectoryRelease
from trajectories.walks.conditions import wanted_states
from trajectories.walks.sampler import TripSampler

_WEEK = pd.Timestamp("2024-01-01", tz="UTC")  # a Monday


@dataclass(frozen=True)
class Drawing:
    """What is asked of synthetic trips: how many, under which conditions, and how their points are spaced."""

    n: int
    start: Any = None
    end: Any = None
    hour: int | None = None
    spacing: float = 25.0
    interval: float | None = None
    first_id: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.n, bool) or not isinstance(self.n, int | np.integer) or self.n < 0:
            raise ConfigError(f"n must be a whole number >= 0, got {self.n!r}")
        if not self.spacing > 0 or (self.interval is not None and not self.interval > 0):
            raise ConfigError("spacing and interval must be > 0")
        if self.hour is not None and (isinstance(self.hour, bool) or not 0 <= self.hour < 24):
            raise ConfigError(f"hour must be from 0 to 23, got {self.hour!r}")

    def part(self, first: int, n: int) -> Drawing:
        """``n`` of these trips, numbered from ``first``."""
        return replace(self, n=n, first_id=first)

    def draw(
        self,
        sampler: TripSampler,
        rng: np.random.Generator,
        *,
        spent: PrivacyBudget | None,
        statement: Mapping[str, Any],
        again: Callable[[], TrajectoryRelease] | None = None,
        step: int = 1,
        later: bool = False,
    ) -> TrajectoryRelease:
        """The trips; with ``later`` they are drawn when first asked for, from a generator of their own."""
        model = sampler.model
        if model.clock is None and (self.hour is not None or self.interval is not None):
            raise ConfigError("hour and interval need times: fit data with a time column and times > 0")
        return TrajectoryRelease(
            domain=model.domain, size=int(self.n),
            drawn=partial(self._drawn, sampler, rng) if later else self._drawn(sampler, rng),
            week=_WEEK, spent=spent, provenance=dict(statement), first_id=self.first_id, again=again,
            step=step,
        )  # fmt: skip

    def _drawn(self, sampler: TripSampler, rng: np.random.Generator) -> DrawnTrips:
        model, n = sampler.model, int(self.n)
        masks = [None if where is None else wanted_states(model, where) for where in (self.start, self.end)]
        walks = sampler.draw(n, rng, start=masks[0], end=masks[1])
        lines = model.ground.lines(model, walks, rng)
        departure = duration = None
        if model.clock is not None:
            departure = model.clock.departures(n, rng, hour=self.hour)
            usual = model.ground.usual_seconds(model.graph, walks.states, walks.start)
            duration = np.maximum(model.clock.draw_paces(n, rng) * usual, 1.0)
        return DrawnTrips(walks, lines, self._gaps(lines.lengths, duration), departure, duration)

    def _gaps(self, metres: Floats, duration: Floats | None) -> Ints:
        timed = self.interval is not None and duration is not None
        parts = duration / self.interval if timed else metres / self.spacing  # type: ignore[operator]
        return np.maximum(np.rint(parts), 1).astype(np.int64)


__all__ = ["Drawing"]

"""Drawing synthetic trips from a released model, for one-off fits and streams alike. Post-processing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import shapely

from synthgeo import validate
from synthgeo.arrays import Bools, Floats, Points
from synthgeo.errors import ConfigError, DomainError
from synthgeo.privacy.budget import PrivacyBudget
from trajectories.attributes import AttributeModel
from trajectories.calendar import Week, wanted_hours
from trajectories.fit.clock import Recording
from trajectories.model import TripModel
from trajectories.release import DrawnTrips, TrajectoryRelease
from trajectories.walks.bridges import Walks, join
from trajectories.walks.pacing import Pieces, Timetable, timetable
from trajectories.walks.sampler import TripSampler

__all__ = ["Drawing", "wanted_states"]


_SPACING = 25.0  # metres between points, where nothing is known of how trips were recorded
_TRIP_BYTES = 64  # of the shortest trip: its departure, its number and two points with times
_CANDIDATES = 4  # trips that are drawn for each that is to agree with a record


@dataclass(frozen=True)
class Drawing:
    """What is asked of synthetic trips: how many, under which conditions, and how their points are spaced.

    Attributes
    ----------
    start, end
        A point (x, y) in the domain's CRS, a shapely geometry in it, or numbers of cells.
    hour, weekday
        Hours of the day, and days of the week (0 is Monday), by local clocks: one number or several.
    spacing, interval
        Metres (units, in a domain without a CRS), or seconds, between points; None: as in the data.
    week
        First day of the week of the times; None: the one that was chosen before.
    """

    n: int
    start: Any = None
    end: Any = None
    hour: Any = None
    weekday: Any = None
    spacing: float | None = None
    interval: float | None = None
    week: Any = None
    given: Mapping[str, Any] | None = None
    legs: tuple[tuple[Any, Any, int], ...] | None = None  # start, end and number of trips, in place of both
    first_id: int = 0
    attributes: AttributeModel | None = None
    crs: Any = None  # of files, by default the domain's

    def __post_init__(self) -> None:
        validate.rows(self.n, "n")
        for name in ("spacing", "interval"):
            if getattr(self, name) is not None:
                validate.positive(getattr(self, name), name)
        if self.spacing is not None and self.interval is not None:
            raise ConfigError("give spacing or interval, not both")
        if self.given and self.attributes is None:
            raise ConfigError("given fixes attributes of trips: fit with attributes=, a Schema")
        wanted_hours(self.hour, self.weekday)
        Week.of(self.week, "UTC")

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
        week: Week | None = None,
        max_speed: float | None = None,
        again: Callable[[], TrajectoryRelease] | None = None,
        step: int = 1,
        later: bool = False,
    ) -> TrajectoryRelease:
        """The trips, dated in ``week`` unless this asks for another, none faster than ``max_speed`` km/h.
        With ``later`` they are drawn when first asked for, from a generator of their own.
        """
        validate.drawn(self.n, "n", each=_TRIP_BYTES, more="sample_to_parquet writes more, in parts")
        timed = (self.hour, self.weekday, self.interval, self.week)
        if sampler.model.clock is None and any(wish is not None for wish in timed):
            raise ConfigError(
                "hour, weekday, interval and week need times: fit data with a time column and times > 0"
            )
        dated = Week.of(None, "UTC") if week is None else week
        if self.week is not None:
            dated = Week.of(self.week, dated.tz)
        drawn = partial(self._drawn, sampler, rng, dated, max_speed)
        return TrajectoryRelease(
            domain=sampler.model.domain, size=int(self.n), drawn=drawn if later else drawn(), spent=spent,
            provenance=dict(statement), first_id=self.first_id, again=again, step=step, crs=self.crs,
        )  # fmt: skip

    def _drawn(
        self, sampler: TripSampler, rng: np.random.Generator, week: Week, max_speed: float | None
    ) -> DrawnTrips:
        n = int(self.n)
        if self.attributes is None:
            return self._walked(sampler, n, rng, week, max_speed)
        # Trips are chosen that agree with records, from more than are wanted; where trips are asked for by
        # place or time, records are chosen that agree with them.
        asked = (self.start, self.end, self.hour, self.weekday, self.legs)
        leads = bool(self.given) or all(wish is None for wish in asked)
        wanted = n * _CANDIDATES if leads else n
        drawn = self._walked(sampler, wanted, rng, week, max_speed)
        model = sampler.model
        hours = None if drawn.departure is None else drawn.departure.hour.to_numpy()
        features = self.attributes.features(model.ground, drawn.ends(), hours)
        chosen, records = self.attributes.draw(features, rng, n if leads else None, self.given)
        return drawn.take(chosen, records)

    def _walks(self, sampler: TripSampler, n: int, rng: np.random.Generator, hours: Bools | None) -> Walks:
        legs = ((self.start, self.end, n),) if self.legs is None else self.legs
        model, known = sampler.model, dict[int, Bools]()

        def states(where: Any) -> Bools | None:
            if where is None:
                return None
            if id(where) not in known:
                known[id(where)] = wanted_states(model, where)
            return known[id(where)]

        parts = [
            sampler.draw(number, rng, start=states(start), end=states(end), hours=hours)
            for start, end, number in legs
        ]
        return parts[0] if len(parts) == 1 else join(parts)

    def _walked(
        self, sampler: TripSampler, n: int, rng: np.random.Generator, week: Week, max_speed: float | None
    ) -> DrawnTrips:
        model, clock = sampler.model, sampler.model.clock
        hours = wanted_hours(self.hour, self.weekday)
        walks = self._walks(sampler, n, rng, hours)
        lines, pieces = model.ground.lines(model, walks, rng)
        gap = None if model.recording is None else model.recording.draw_gaps(n, rng)
        departure = table = None
        if clock is not None:
            cells = model.graph.cell[walks.states]
            first, last = (clock.zones(cells[at]) for at in (walks.start[:-1], walks.start[1:] - 1))
            seconds = clock.departures(first, last, rng, wanted=hours)
            usual = model.ground.usual_seconds(model.graph, walks, pieces)
            duration = np.maximum(clock.draw_paces(usual, seconds, rng) * usual, 1.0)
            cap = model.ground.fastest(clock, model.recording) if max_speed is None else max_speed / 3.6
            table = _timetable(model.recording, pieces, duration, gap, rng, cap)
            departure = week.instants(seconds)
        even = table is not None and self.spacing is None and (gap is not None or self.interval is not None)
        every: Any = self.interval if even else self.spacing
        if every is not None and not even and model.domain.crs is None:
            every = every * lines.scale[0]  # spacing is in the domain's units, lines are in metres
        if every is None:
            every = gap if even or (table is None and gap is not None) else _spacing(model)
        parts = (table.duration if even and table is not None else lines.lengths) / every
        gaps = np.maximum(np.rint(parts), 1).astype(np.int64)
        return DrawnTrips(walks, lines, gaps, departure, table, even)


def _spacing(model: TripModel) -> float:
    """Metres between points where nothing is known of how trips were recorded. Trips that are known by their
    ends have no other points, unless a map says where they go.
    """
    ends_only = model.measured is not None and model.measured.links is None
    return np.inf if ends_only and not model.ground.has_ways else _SPACING


def _timetable(
    recording: Recording | None,
    pieces: Pieces,
    duration: Floats,
    gap: Floats | None,
    rng: np.random.Generator,
    max_speed: float | None,
) -> Timetable:
    """When each trip is where; ``max_speed`` in metres per second."""
    steady = np.zeros(len(duration))
    variation = steady if recording is None else recording.draw_variations(len(duration), rng)
    return timetable(pieces, duration, variation, steady if gap is None else gap, rng, max_speed=max_speed)


# Where a synthetic trip is asked to start or end: a point, an area, or cells.


def wanted_states(model: TripModel, where: Any) -> Bools:
    """States that match: the road (both directions) or cell nearest to a point; those whose middle lies in
    a geometry, or that it touches where it holds no middle; those of cells given by number.
    """
    if isinstance(where, shapely.Geometry):
        if isinstance(where, shapely.Point):
            return _at_point(model, np.array([where.x, where.y]))
        return _in_area(model, where)
    values = np.atleast_1d(np.asarray(where))
    if values.dtype.kind in "iu" and not isinstance(where, tuple):
        if values.size == 0 or values.min() < 0 or values.max() >= model.graph.cells:
            raise DomainError(f"cells must be numbers from 0 to {model.graph.cells - 1}")
        return np.isin(model.graph.cell, values)
    if values.shape == (2,) and values.dtype.kind in "iuf":
        return _at_point(model, values.astype(np.float64))
    raise ConfigError("start and end take a point (x, y), a shapely geometry, or an array of cell numbers")


def _at_point(model: TripModel, xy: Points) -> Bools:
    mask = np.zeros(model.graph.size, dtype=bool)
    mask[model.ground.states_at(model.partition, xy)] = True
    return mask


def _in_area(model: TripModel, area: shapely.Geometry) -> Bools:
    mask = model.ground.states_in(model.graph, model.partition, area)
    if not mask.any():
        raise DomainError("nothing of the domain lies in the area that was asked for")
    return mask

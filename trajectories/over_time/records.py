"""Trips as records of a stream: rows become placed trips, a released model becomes synthetic trips."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from streams.mechanism import Arrays, prefixed
from streams.records import Clock
from synthgeo.errors import ConfigError
from synthgeo.preflight import Places, Probe
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.schema import Schema
from synthgeo.sources import Source
from synthgeo.sources.declared import ColumnNames
from synthgeo.sources.grid import make_grid
from trajectories.attributes import TripRows
from trajectories.drawing import Drawing
from trajectories.over_time.admission import TripBounder
from trajectories.over_time.counting import CountedTrips, TripSnapshot
from trajectories.parts.opening import rows_in_parts
from trajectories.parts.placing import admitted_in_parts
from trajectories.parts.records import RecordParts
from trajectories.parts.windows import windows_of_parts
from trajectories.reading.checking import warn_of_unused
from trajectories.reading.chunks import ChunkSource
from trajectories.reading.points import PointColumns, last_moments, trip_codes
from trajectories.release import TrajectoryRelease
from trajectories.setup import TripSetup
from trajectories.walks.sampler import TripSampler


class TripRecords:
    """Points of trips on a domain. What a batch becomes is its admitted trips, matched or located."""

    width = 1

    def __init__(
        self,
        setup: TripSetup,
        *,
        columns: ColumnNames,
        workers: int | None = None,
        attributes: Schema | None = None,
    ) -> None:
        self.setup, self.workers, self.attributes = setup, workers, attributes
        self.columns, self.time = columns, columns.time

    def keys(self, source: Source) -> PointColumns:
        names = self.columns
        return PointColumns.of(
            source, self.setup.domain, unit=self.setup.unit, trip=names.trip,
            time=False if names.time is None else names.time, x=names.x, y=names.y, crs=names.crs,
            attributes=self.attributes,
        )  # fmt: skip

    def probes(self, source: Source) -> list[Probe]:
        return [Places(self.keys(source).reader, self.setup.domain)]

    def count(self, source: Source, bounder: TripBounder, clock: Clock) -> CountedTrips:
        columns = self.keys(source)
        if clock.step == 1 and source.window is None:
            warn_of_unused(source, columns.kinds, self.setup.unit)
        rows = rows_in_parts(source, columns, self.workers)
        if rows is not None:
            placed, parts = admitted_in_parts(rows, self.setup, bounder, clock.period)
            records = None if self.attributes is None else RecordParts(parts, self.attributes)
            return CountedTrips(placed, records, columns.degrees)
        recorded = columns.read(source)
        trips = recorded.trips.take(bounder.admit(recorded.ids, recorded.users, period=clock.period))
        trips = self.setup.clean(trips)
        held = None
        if self.attributes is not None and recorded.rows is not None:
            held = TripRows(source, recorded.rows, trips)
        return CountedTrips(self.setup.place(trips), held, columns.degrees)

    def release(
        self,
        snapshot: TripSnapshot,
        *,
        kept: None,
        clock: Clock,
        spent: PrivacyBudget | None,
        provenance: dict[str, Any],
        rng: np.random.Generator,
    ) -> tuple[TrajectoryRelease, None]:
        number = max(round(snapshot.model.total), 0)
        drawing = Drawing(number, attributes=snapshot.attributes, crs=snapshot.crs)
        sampler, seeds = TripSampler(snapshot.model), np.random.default_rng(int(rng.integers(2**62)))

        def draw() -> TrajectoryRelease:
            own = np.random.default_rng(int(seeds.integers(2**62)))
            return drawing.draw(
                sampler, own, spent=spent, statement=provenance, week=self.setup.week,
                max_speed=self.setup.max_speed, again=draw, step=clock.step, later=True,
            )  # fmt: skip

        return draw(), kept

    def facts(self) -> dict[str, Any]:
        return {"domain": self.setup.domain.describe()}

    def settings(self) -> dict[str, Any]:
        return {"domain": self.setup.domain.describe()}

    def to_state(self, kept: None) -> tuple[dict[str, Any], Arrays]:  # noqa: ARG002
        values, arrays = self.setup.domain.to_state()
        return {"domain": values}, prefixed("domain", arrays)

    def kept(self, values: dict[str, Any] | None = None, arrays: Arrays | None = None) -> None:
        """Nothing: trips are drawn anew for each release."""

    def windows(
        self, source: Source, *, every: str, start: Any, end: Any, tz: str | None = None
    ) -> Iterator[tuple[pd.Timestamp, Source]]:
        """Trips cut by a public grid: a trip is in the window of its last point, with all its points."""
        if self.time is None:
            raise ConfigError("windows need times: name the column of times (ColumnNames(time=...))")
        columns = self.keys(source)
        warn_of_unused(source, columns.kinds, self.setup.unit)
        rows = rows_in_parts(source, columns, self.workers)
        if rows is not None:
            return windows_of_parts(source, columns, rows, every=every, start=start, end=end, tz=tz)
        chunk = source.read(list(columns.kinds), check=columns.fields)
        _, ids, seconds, users = columns.fields(chunk)
        assert seconds is not None
        code = trip_codes(ids, users)
        ends = last_moments(code, seconds).astype("datetime64[us]")
        span = (ends.min(), ends.max()) if len(ends) else None
        zone = tz or source.reading.tz
        grid = make_grid(every, start, end, zoned=True, span=span, column=self.time, tz=zone)
        window = grid.window_of(ends)[code]
        order = np.argsort(window, kind="stable")
        bounds = np.searchsorted(window[order], np.arange(grid.size + 1))
        windows = (ChunkSource(source, chunk, np.sort(order[low:high])) for low, high in pairwise(bounds))
        return grid.marked(windows, self.time)


__all__ = ["TripRecords"]

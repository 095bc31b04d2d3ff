"""Placing trips that lie in parts: grouped, bounded, cleaned and matched part by part.

Guarantee
---------
A part holds whole trips and, where users are protected, all trips of its users. So what is admitted of a trip
or user, and what a trip becomes, is what it would be if all trips were read at once (``read_trips``); which
part that happens in is a public hash of its id. What is measured is a sum over trips: the parts, the
processes and the machines that they are on change no bit of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from synthgeo.arrays import Array, Bools, Keys
from synthgeo.privacy.unit import PrivacyUnit
from synthgeo.privacy.users import UserIds
from trajectories.ground.base import PlacedTrips
from trajectories.over_time.admission import TripBounder
from trajectories.parts.columns import Columns, Parts, Stored, arrays_of, in_parts
from trajectories.parts.records import records_of
from trajectories.parts.shuffle import end_rows, point_rows, row_ids
from trajectories.reading.points import EndColumns, PointColumns, trip_codes
from trajectories.setup import TripSetup

_IDENTITY = "identity"


def placed_in_parts(
    rows: Parts, setup: TripSetup, unit: PrivacyUnit, *, ends_only: bool = False
) -> tuple[PlacedTrips, Parts, Keys]:
    """Trips of rows in parts, bounded by user and placed; the parts, which hold the trips' records too where
    there are attributes (``RecordParts``); and their identity (``Trips.identity``).
    """
    parts = rows.map(PlacingEnds(setup, unit) if ends_only else Placing(setup, unit))
    return in_parts(PlacedTrips, parts), parts, parts.sum(Stored(_IDENTITY))


def admitted_in_parts(
    rows: Parts, setup: TripSetup, bounder: TripBounder, period: int
) -> tuple[PlacedTrips, Parts]:
    """Trips of rows in parts, as a stream admits and places them, and the parts. Only ids come to the
    driver.
    """
    found = list(rows.results(ids_of))
    ids = UserIds.concatenate([part for part, _ in found])
    users = [part for _, part in found if part is not None]
    admitted = bounder.admit(ids, UserIds.concatenate(users) if users else None, period=period)
    masks = np.split(admitted, np.cumsum([len(part) for part, _ in found])[:-1])
    parts = rows.map(PlacingSome(setup), masks)
    return in_parts(PlacedTrips, parts), parts


@dataclass(frozen=True, eq=False)
class Placing:
    """Rows of one part to placed trips, with at most as many of each user as the unit says."""

    setup: TripSetup
    unit: PrivacyUnit

    def __call__(self, rows: Columns) -> dict[str, Array]:
        trips = self.setup.clean(PointColumns.grouped(point_rows(rows)).bounded(self.unit))
        return arrays_of(self.setup.place(trips)) | {_IDENTITY: trips.identity()} | records_of(rows, trips)


@dataclass(frozen=True, eq=False)
class PlacingEnds:
    """Rows of one part to placed trips that are known by their ends."""

    setup: TripSetup
    unit: PrivacyUnit

    def __call__(self, rows: Columns) -> dict[str, Array]:
        trips = EndColumns.grouped(end_rows(rows)).bounded(self.unit)
        placed = arrays_of(self.setup.place(trips, ends_only=True))
        return placed | {_IDENTITY: trips.identity()} | records_of(rows, trips)


@dataclass(frozen=True, eq=False)
class PlacingSome:
    """Rows of one part to placed trips, of which a mask says which were admitted."""

    setup: TripSetup

    def __call__(self, item: tuple[Columns, Bools]) -> dict[str, Array]:
        rows, admitted = item
        trips = self.setup.clean(PointColumns.grouped(point_rows(rows)).trips.take(admitted))
        return arrays_of(self.setup.place(trips)) | records_of(rows, trips)


def ids_of(rows: Columns) -> tuple[UserIds, UserIds | None]:
    """The trips of a part, in the order in which they are grouped (that of their first rows), and whose they
    are.
    """
    trips, users = row_ids(rows)
    first = np.unique(trip_codes(trips, users), return_index=True)[1]
    return trips.take(first), None if users is None else users.take(first)


__all__ = ["Placing", "PlacingEnds", "PlacingSome", "admitted_in_parts", "ids_of", "placed_in_parts"]

"""Trips as arrays: read from frames, files or dask, with at most a bounded number of trips of each user.

A set of trips is a flat array of points and the offsets at which each trip starts. What one trip becomes here
depends on that trip's rows alone, and what is kept of a user on that user's trips alone, so reading costs
no privacy.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from synthgeo.arrays import Array, Bools, Floats, Ints, Keys
from synthgeo.domain.box import SpatialDomain
from synthgeo.domain.coordinates import CoordinateReader, find_coordinates, parse_crs, stretch
from synthgeo.errors import ConfigError, InputError
from synthgeo.hashing import mix
from synthgeo.privacy.contribution import ContributionBounder
from synthgeo.privacy.unit import PrivacyUnit
from synthgeo.privacy.users import UserIds
from synthgeo.ragged import offsets_of, owners_of, ranks_of, take, where
from synthgeo.schema import Schema
from synthgeo.sources import Reading, Source, open_source, refuse, values
from synthgeo.sources.chunk import Chunk
from synthgeo.sources.declared import check_reading
from tabular.discovery import trial_schema

_SMALLEST = 100.0  # units across, up to which coordinates without a CRS are no metres
_STRETCHED = 0.02  # that metres of a CRS may differ from those on the ground
_DRAWING = 10_000.0  # metres that such a domain counts as


@dataclass(frozen=True, eq=False)
class Trips:
    """Points of all trips, one after the other. Private, until something says otherwise.

    Attributes
    ----------
    xy
        (n, 2) coordinates in the domain's CRS.
    start
        (m + 1,) offsets: trip i is ``xy[start[i]:start[i + 1]]``. No trip is empty.
    time
        (n,) seconds since 1970 (UTC), not falling within a trip; None when unknown.
    user
        (m,) number of the trip's user; None when users play no part.
    record
        (m,) row of the trip in what else was read of it; None when nothing was.

    >>> trips = Trips(np.array([[0.0, 0.0], [3.0, 4.0], [9.0, 9.0]]), np.array([0, 2, 3]))
    >>> trips.size, trips.lengths().tolist()
    (2, [5.0, 0.0])
    """

    xy: Floats
    start: Ints
    time: Floats | None = None
    user: Ints | None = None
    record: Ints | None = None

    def __post_init__(self) -> None:
        xy, start = np.asarray(self.xy, dtype=np.float64), np.asarray(self.start, dtype=np.int64)
        if xy.ndim != 2 or xy.shape[1] != 2:
            raise InputError(f"trips: xy must have shape (n, 2), got {xy.shape}")
        if start.ndim != 1 or len(start) == 0 or start[0] != 0 or start[-1] != len(xy):
            raise InputError("trips: start must run from 0 to the number of points")
        if (np.diff(start) < 1).any():
            raise InputError("trips: a trip must have at least one point")
        object.__setattr__(self, "xy", xy)
        object.__setattr__(self, "start", start)
        each = len(start) - 1
        for name, length, dtype in (
            ("time", len(xy), np.float64),
            ("user", each, np.int64),
            ("record", each, np.int64),
        ):
            if getattr(self, name) is not None:
                values = np.asarray(getattr(self, name), dtype=dtype)
                if values.shape != (length,):
                    raise InputError(f"trips: {name} must have shape ({length},), got {values.shape}")
                object.__setattr__(self, name, values)

    @property
    def size(self) -> int:
        """Number of trips."""
        return len(self.start) - 1

    @property
    def trip(self) -> Ints:
        """Which trip each point belongs to."""
        return owners_of(self.start)

    def steps(self, scale: tuple[float, float] = (1.0, 1.0)) -> Floats:
        """Distance to the point before, 0 at the first of a trip; ``scale`` turns coordinates to metres."""
        step = np.zeros(len(self.xy))
        step[1:] = np.hypot(*(np.diff(self.xy, axis=0) * scale).T)
        step[self.start[:-1]] = 0.0
        return step

    def lengths(self) -> Floats:
        """Length of each trip's polyline, in units of the coordinates."""
        return np.add.reduceat(self.steps(), self.start[:-1]) if self.size else np.empty(0)

    def take(self, trips: Array) -> Trips:
        """The trips at these positions (or where a mask is True), in that order."""
        trips = np.asarray(trips)
        chosen = np.flatnonzero(trips) if trips.dtype == bool else trips.astype(np.int64)
        rows, start = take(self.start, chosen)
        return Trips(
            self.xy[rows],
            start,
            None if self.time is None else self.time[rows],
            None if self.user is None else self.user[chosen],
            None if self.record is None else self.record[chosen],
        )

    def only(self, keep: Bools) -> Trips:
        """The points where ``keep`` is True; trips that lose all their points disappear."""
        counts = np.diff(where(self.start, keep))
        left = counts > 0
        return Trips(
            self.xy[keep],
            offsets_of(counts[left]),
            None if self.time is None else self.time[keep],
            None if self.user is None else self.user[left],
            None if self.record is None else self.record[left],
        )

    def ends(self) -> Trips:
        """First and last point of each trip; a trip of one point gives it twice."""
        rows = np.column_stack([self.start[:-1], self.start[1:] - 1]).ravel()
        time = None if self.time is None else self.time[rows]
        return Trips(self.xy[rows], 2 * np.arange(self.size + 1), time, self.user, self.record)

    def fingerprint(self) -> str:
        """The identity of the content: the same whatever order the trips are in and whatever held them."""
        return fingerprint_of(self.identity(), timed=self.time is not None)

    def identity(self) -> Keys:
        """Number of trips, and sums of 64-bit hashes of whole trips: those of disjoint sets add up."""
        columns = [*self.xy.T, np.zeros(len(self.xy)) if self.time is None else self.time]
        place = np.arange(len(self.xy)) - np.repeat(self.start[:-1], np.diff(self.start))
        bits = [np.ascontiguousarray(column + 0.0).view(np.uint64) for column in columns]
        lanes = [np.uint64(self.size)]
        for lane in range(4):
            points = mix(np.uint64(lane), place.astype(np.uint64), *bits)
            trips = np.add.reduceat(points, self.start[:-1]) if self.size else points
            lanes.append(mix(trips).sum(dtype=np.uint64))
        return np.array(lanes, dtype=np.uint64)

    def __repr__(self) -> str:
        kind = "with" if self.time is not None else "without"
        return f"Trips({kind} times)"  # how many there are is private


def fingerprint_of(identity: Keys, *, timed: bool) -> str:
    """The identity of trips as text."""
    size, *lanes = identity.tolist()
    digest = hashlib.sha256(f"{size} trips, timed: {timed}".encode())
    for lane in lanes:
        digest.update(lane.to_bytes(8, "little"))
    return digest.hexdigest()


def read_trips(
    data: Any,
    domain: SpatialDomain,
    *,
    unit: PrivacyUnit,
    trip: str = "trip_id",
    time: str | bool | None = None,
    x: str | None = None,
    y: str | None = None,
    crs: Any = None,
    reading: Reading | None = None,
) -> Trips:
    """Read points and put them together to trips.

    Parameters
    ----------
    data
        Frame, GeoDataFrame, Arrow table, dict of arrays, path or glob of CSV or Parquet files, dask frame:
        whatever ``open_source`` takes. Columns ``lon``/``lat`` are degrees; ``x``/``y`` are in the domain's
        CRS.
    unit
        ``PrivacyUnit.trajectory()``, or ``PrivacyUnit.user(max_trajectories=..., key=...)``: then the
        column ``key`` is read, a trip is a pair (user, trip id), and at most ``max_trajectories`` trips of
        each user are kept, chosen by a hash of the user and the trip's place among that user's own trips:
        fixed, not drawn afresh, so that the same file always keeps the same trips.
    trip
        Column that says which trip a point belongs to: numbers or text.
    time
        Column of times, or seconds since 1970. None: ``time`` if there is such a column. False: there are
        no times. Points are put in order of time, ties in order of rows; without times the order of rows is
        the order of points.
    x, y, crs
        The coordinate columns, and their CRS, where the names do not say it.
    reading
        How text is read (``sg.Reading``): delimiter, formats of numbers and times, time zone.

    Guarantee
    ---------
    Adding or removing one trip (``trajectory``), or all trips of a user (``user``), adds or removes exactly
    that trip, or at most ``max_trajectories`` trips, and changes no other: grouping and ordering look at
    one trip at a time, the choice of a user's trips at that user's trips only.
    """
    _check_unit(unit)
    source = open_source(data, reading=instants(reading))
    columns = PointColumns.of(source, domain, unit=unit, trip=trip, time=time, x=x, y=y, crs=crs)
    return columns.read(source).bounded(unit)


@dataclass(frozen=True, eq=False)
class Recorded:
    """Trips as they were recorded, with the id and the user of each. Private."""

    trips: Trips
    ids: UserIds
    users: UserIds | None
    rows: Chunk | None = None  # as they were read; ``trips.record`` is the first of each trip

    def bounded(self, unit: PrivacyUnit) -> Trips:
        """The trips, of each user at most as many as the unit says."""
        return self.trips if self.users is None else _bounded(self.trips, self.users, unit)


@dataclass(frozen=True, eq=False)
class PointRows:
    """What rows of points say: where, of which trip, when (seconds since 1970), whose. Private."""

    xy: Floats
    trips: UserIds
    seconds: Floats | None = None
    users: UserIds | None = None


@dataclass(frozen=True, eq=False)
class EndRows:
    """What rows of trips say: both ends, both times, whose. Private."""

    xy: Floats  # (n, 2, 2)
    seconds: Floats | None = None  # (n, 2)
    users: UserIds | None = None


@dataclass(frozen=True)
class PointColumns:
    """The columns that say where and when each point of a trip is, which trip it is of, and whose."""

    reader: CoordinateReader
    trip: str
    time: str | None
    user: str | None
    attributes: Schema | None = None

    @classmethod
    def of(
        cls,
        source: Source,
        domain: SpatialDomain,
        *,
        unit: PrivacyUnit,
        trip: str,
        time: str | bool | None = None,
        x: str | None = None,
        y: str | None = None,
        crs: Any = None,
        attributes: Schema | None = None,
    ) -> PointColumns:
        """Find the columns by their names; looks at no row."""
        reader = coordinates_of_trips(source, domain, x, y, crs)
        user = unit.key if unit.is_user else None
        found = cls(reader, trip, column_of_times(source, time), user, attributes)
        source.require(list(found.kinds))
        return found

    @property
    def degrees(self) -> str | None:
        """The CRS of the data, where they hold longitude and latitude and the domain does not."""
        source = parse_crs(self.reader.source)
        return self.reader.source if source is not None and source.is_geographic else None

    @property
    def kinds(self) -> dict[str, str]:
        """What is asked of each column."""
        extra = {self.trip: "id"} | ({} if self.time is None else {self.time: "time"})
        more = {} if self.attributes is None else self.attributes.kinds
        return self.reader.kinds | extra | ({} if self.user is None else {self.user: "id"}) | more

    def fields(self, chunk: Any) -> tuple[Floats, UserIds, Floats | None, UserIds | None]:
        """Of each row: coordinates, trip, seconds since 1970, user; its attributes are tried, too."""
        if self.attributes is not None:
            trial_schema(self.attributes).encode(chunk)
        return (
            self.reader(chunk),
            values.ids(chunk, self.trip),
            None if self.time is None else _seconds(chunk, self.time),
            None if self.user is None else values.ids(chunk, self.user),
        )

    def __call__(self, chunk: Any) -> tuple[Array, None]:
        """As a key function, which reads the same values: a number of each row's trip."""
        return self.fields(chunk)[1].low, None

    def read(self, source: Source) -> Recorded:
        """Read all rows, and put the points of each trip together in order."""
        rows = source.read(list(self.kinds), check=self.fields)
        return self.grouped(PointRows(*self.fields(rows)), rows)

    def rows(self, chunk: Any) -> PointRows:
        """The rows of a chunk."""
        return PointRows(*self.fields(chunk))

    @staticmethod
    def grouped(rows: PointRows, chunk: Chunk | None = None) -> Recorded:
        """The points of each trip together, in order of time, ties in order of rows."""
        xy, trip_ids, seconds, users = rows.xy, rows.trips, rows.seconds, rows.users
        ids = trip_codes(trip_ids, users)
        order = _order(ids, seconds)
        number = np.arange(len(ids)) if order is None else order
        if order is not None:
            xy, ids, trip_ids = xy[order], ids[order], trip_ids.take(order)
            seconds = None if seconds is None else seconds[order]
            users = None if users is None else users.take(order)
        first = np.flatnonzero(np.concatenate([np.ones(min(len(ids), 1), bool), ids[1:] != ids[:-1]]))
        start = np.concatenate([first, [len(ids)]]).astype(np.int64)
        trips = Trips(xy, start, seconds, record=number[first])
        return Recorded(trips, trip_ids.take(first), None if users is None else users.take(first), chunk)


def trip_codes(trips: UserIds, users: UserIds | None) -> Ints:
    """A number for each row's trip, in order of first appearance; a trip is a pair (user, id) where users
    are told apart.
    """
    codes = trips.codes()
    if users is None:
        return codes
    pairs: Ints = users.codes() * (int(codes.max(initial=0)) + 1) + codes
    return np.asarray(pd.factorize(pairs)[0], dtype=np.int64)


def read_ends(
    data: Any,
    domain: SpatialDomain,
    *,
    unit: PrivacyUnit,
    origin: tuple[str, str],
    destination: tuple[str, str],
    departure: str | None = None,
    arrival: str | None = None,
    crs: Any = None,
    reading: Reading | None = None,
) -> Trips:
    """Read trips that are known by their two ends only, one row per trip (taxi records): trips of two points.

    The parameters and the guarantee are those of ``record_ends``; of a user as many are kept as the unit
    says.
    """
    source = open_source(data, reading=instants(reading))
    recorded = record_ends(
        source, domain, unit=unit, origin=origin, destination=destination, departure=departure,
        arrival=arrival, crs=crs,
    )  # fmt: skip
    return recorded.bounded(unit)


def record_ends(
    source: Source,
    domain: SpatialDomain,
    *,
    unit: PrivacyUnit,
    origin: tuple[str, str],
    destination: tuple[str, str],
    departure: str | None = None,
    arrival: str | None = None,
    crs: Any = None,
    attributes: Schema | None = None,
) -> Recorded:
    """All trips of a source with one row for each, known by their two ends.

    ``origin`` and ``destination`` name two columns each, such as ``("pickup_lon", "pickup_lat")``;
    ``departure`` and ``arrival`` name columns of times (give both or neither). An arrival before its
    departure is an error with its row. The guarantee is that of ``read_trips``.
    """
    columns = EndColumns.of(
        source, domain, unit=unit, origin=origin, destination=destination, departure=departure,
        arrival=arrival, crs=crs, attributes=attributes,
    )  # fmt: skip
    return columns.read(source)


@dataclass(frozen=True)
class EndColumns:
    """The columns that say where and when trips of one row each begin and end, and whose they are."""

    readers: tuple[CoordinateReader, CoordinateReader]
    times: tuple[str, str] | None
    user: str | None
    attributes: Schema | None = None

    @classmethod
    def of(
        cls,
        source: Source,
        domain: SpatialDomain,
        *,
        unit: PrivacyUnit,
        origin: tuple[str, str],
        destination: tuple[str, str],
        departure: str | None = None,
        arrival: str | None = None,
        crs: Any = None,
        attributes: Schema | None = None,
    ) -> EndColumns:
        """Find the columns by their names; looks at no row."""
        _check_unit(unit)
        if (departure is None) != (arrival is None):
            raise ConfigError("give both departure and arrival, or neither")
        first, last = (coordinates_of_trips(source, domain, *pair, crs) for pair in (origin, destination))
        times = None if departure is None or arrival is None else (departure, arrival)
        found = cls((first, last), times, unit.key if unit.is_user else None, attributes)
        source.require(list(found.kinds))
        return found

    @property
    def kinds(self) -> dict[str, str]:
        """What is asked of each column."""
        users = {} if self.user is None else {self.user: "id"}
        more = {} if self.attributes is None else self.attributes.kinds
        return (
            self.readers[0].kinds | self.readers[1].kinds | dict.fromkeys(self.times or (), "time")
        ) | users | more  # fmt: skip

    def fields(self, chunk: Any) -> tuple[Floats, Floats | None, UserIds | None]:
        """Of each row: both ends, both times (seconds since 1970), user; its attributes are tried, too."""
        if self.attributes is not None:
            trial_schema(self.attributes).encode(chunk)
        xy = np.stack([reader(chunk) for reader in self.readers], axis=1)
        seconds = None
        if self.times is not None:
            seconds = np.column_stack([_seconds(chunk, name) for name in self.times])
            refuse(seconds[:, 1] < seconds[:, 0], self.times[1], "the trip arrives before it departs")
        return xy, seconds, None if self.user is None else values.ids(chunk, self.user)

    def read(self, source: Source) -> Recorded:
        """Read all rows; each is a trip."""
        rows = source.read(list(self.kinds), check=self.fields)
        return self.grouped(self.rows(rows), rows)

    def rows(self, chunk: Any) -> EndRows:
        """The rows of a chunk."""
        return EndRows(*self.fields(chunk))

    @staticmethod
    def grouped(rows: EndRows, chunk: Chunk | None = None) -> Recorded:
        """A trip of two points for each row."""
        number = np.arange(len(rows.xy))
        seconds = None if rows.seconds is None else rows.seconds.ravel()
        trips = Trips(rows.xy.reshape(-1, 2), 2 * np.arange(len(number) + 1), seconds, record=number)
        return Recorded(trips, UserIds.of_integers(number), rows.users, chunk)


TripColumns = PointColumns | EndColumns


def last_moments(code: Ints, seconds: Floats) -> Ints:
    """The last moment of each trip in microseconds, from the trip and the time of each of its points."""
    last = np.full(int(code.max(initial=-1)) + 1, -np.inf)
    np.maximum.at(last, code, seconds)
    return (last * 1e6).round().astype(np.int64)


def metres_per_unit(domain: SpatialDomain) -> tuple[float, float]:
    """What one unit of the domain's coordinates is in metres, along x and y.

    Coordinates without a CRS are metres; but a domain at most 100 across is a drawing, not a place, and
    counts as one of 10 km. For degrees, the figures of the middle latitude of the domain.
    """
    if domain.crs is None:
        minx, miny, maxx, maxy = domain.bounds
        across = max(maxx - minx, maxy - miny)
        scale = 1.0 if across > _SMALLEST else _DRAWING / across
        return scale, scale
    if domain.crs.is_geographic:
        latitude = np.radians((domain.bounds[1] + domain.bounds[3]) / 2)
        return float(111_320 * np.cos(latitude)), 110_574.0
    factors = [float(axis.unit_conversion_factor) for axis in domain.crs.axis_info[:2]]
    across, up = stretch(domain.bounds, domain.crs)
    if max(abs(across - 1), abs(up - 1)) > _STRETCHED:  # Web Mercator's metres are longer than the ground's
        return factors[0] / across, factors[1] / up
    return factors[0], factors[1]


def _check_unit(unit: PrivacyUnit) -> None:
    if unit.of != "trajectory":
        raise ConfigError(
            "trips are protected whole: use PrivacyUnit.trajectory() or "
            f"PrivacyUnit.user(max_trajectories=...), not {unit.describe()}"
        )


def coordinates_of_trips(
    source: Source, domain: SpatialDomain, x: str | None, y: str | None, crs: Any
) -> CoordinateReader:
    """How the places of trips are read."""
    if source.geometry is not None and x is None and y is None:
        given = source.crs if crs is None else crs
        return find_coordinates(source.columns, domain, geometry=source.geometry, crs=given)
    return find_coordinates(source.columns, domain, x=x, y=y, crs=crs, open_schema=source.open_schema)


def column_of_times(source: Source, time: str | bool | None) -> str | None:
    """The column of times, where there is one."""
    if time is False:
        return None
    if isinstance(time, str):
        source.require([time])
        return time
    if time is None:
        return "time" if "time" in source.columns else None
    raise ConfigError(f"time must name a column, or be None ('time' if there is one) or False, got {time!r}")


def instants(reading: Reading | None, tz: str = "UTC") -> Reading:
    """A trip's times are instants: clock times without a declared zone are those of ``tz``."""
    declared = check_reading(reading)
    return declared if declared.tz is not None else declared.but(tz=tz)


def _seconds(chunk: Mapping[str, Any], column: str) -> Floats:
    """Seconds since 1970 of times, or of numbers that are seconds already."""
    found = values.times(chunk, column, seconds=True)
    refuse(np.isnat(found), column, "is missing or not a time")
    return np.asarray(found.astype("datetime64[us]").astype(np.int64) / 1e6)


def _order(ids: Ints, seconds: Floats | None) -> Ints | None:
    """The permutation that groups points by trip and orders them by time; None when they already are."""
    if len(ids) < 2:
        return None
    step = np.diff(ids)
    # Codes are given in order of first appearance, so grouped rows have codes that never fall.
    if (step >= 0).all() and (seconds is None or (np.diff(seconds)[step == 0] >= 0).all()):
        return None
    order: Ints = np.argsort(ids, kind="stable") if seconds is None else np.lexsort((seconds, ids))
    return order


def bounded(trips: Trips, unit: PrivacyUnit) -> Trips:
    """At most ``max_contributions`` trips of each user, by ``trips.user``. Trips that are bounded already
    stay as they are.
    """
    if trips.user is None:
        raise InputError(f"trips: user must say whose each trip is: the unit is {unit.describe()}")
    return _keep(trips, UserIds.of(trips.user, column="user"), trips.user, unit)


def _bounded(trips: Trips, users: UserIds, unit: PrivacyUnit) -> Trips:
    owner = users.codes()
    return _keep(replace(trips, user=owner), users, owner, unit)


def _keep(trips: Trips, users: UserIds, owner: Ints, unit: PrivacyUnit) -> Trips:
    """At most ``max_contributions`` trips of each user.

    A trip's key is its rank among its user's own trips. A key from the whole data, such as the code of the
    trip id, would let one user's trips decide which of another's are kept.
    """
    owner = pd.factorize(owner)[0].astype(np.int64)
    order = np.argsort(owner, kind="stable")
    rank = np.empty(len(owner), dtype=np.uint64)
    rank[order] = ranks_of(np.bincount(owner))
    return trips.take(ContributionBounder(unit).admit(users, rank))


__all__ = [
    "EndColumns", "EndRows", "PointColumns", "PointRows", "Recorded", "TripColumns", "Trips", "bounded",
    "fingerprint_of", "instants", "last_moments", "metres_per_unit", "read_ends", "read_trips", "record_ends",
    "trip_codes",
]  # fmt: skip

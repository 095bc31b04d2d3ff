"""Attributes of trips that lie in parts: their codes travel with the rows, and are counted where they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from synthgeo.arrays import Array, Floats, Ints, Keys, Points
from synthgeo.errors import ConfigError
from synthgeo.hierarchy.base import aligned
from synthgeo.schema import Binned, Schema
from synthgeo.sources import Histogram
from tabular.counting import Groups, RowPlaces
from tabular.marginals import Counts, MarginalIndex
from tabular.model.junction_tree import Clique
from trajectories.calendar import local_seconds
from trajectories.ground import Ground
from trajectories.measure.measured import MeasuredTrips
from trajectories.measure.pairs import non_negative
from trajectories.parts.columns import Columns, Parts
from trajectories.reading.points import Trips, metres_per_unit

__all__ = [
    "DESTINATION",
    "DISTANCE",
    "HOUR",
    "ORIGIN",
    "PartTable",
    "RecordParts",
    "can_travel",
    "feature_sizes",
    "features_of",
    "hours_of",
    "record_arrays",
    "record_names",
    "records_of",
    "zone_borders",
]


_ENDS = ("first_x", "first_y", "last_x", "last_y")
_LEAVES = "leaves"
_NONE, _DECLARED, _OTHER = 0, 1, 2  # what a column that takes others has in a row


def can_travel(attributes: Schema | None) -> bool:
    """Whether rows can be coded where they are read: bins and values that are still to be found need all of
    them at once.
    """
    return attributes is None or not (attributes.pending_bins or attributes.pending_values)


def record_names(attributes: Schema | None) -> list[str]:
    """The names of the columns of codes."""
    if attributes is None:
        return []
    return [*_code_names(len(attributes.sizes)), *(f"declared{i}" for i in range(len(_others(attributes))))]


def record_arrays(attributes: Schema | None, chunk: Any) -> dict[str, Array]:
    """The codes of each row's attributes, and whether values are among those that were declared."""
    if attributes is None:
        return {}
    codes = attributes.encode(chunk).T
    flags = []
    for name in _others(attributes):
        known, declared = attributes.columns[name].declared(name, chunk)
        flags.append(np.where(known, np.where(declared, _DECLARED, _OTHER), _NONE))
    return {
        name: np.ascontiguousarray(values, dtype=np.int64)
        for name, values in zip(record_names(attributes), [*codes, *flags], strict=True)
    }


def records_of(rows: Columns, trips: Trips) -> dict[str, Array]:
    """What a part keeps of each trip for its record: codes, ends and departure; nothing where there are no
    attributes.
    """
    names = [name for name in rows if name.startswith(("attribute", "declared"))]
    if not names:
        return {}
    assert trips.record is not None
    ends = trips.ends().xy.reshape(-1, 4)
    found = {name: rows[name][trips.record] for name in names} | dict(zip(_ENDS, ends.T, strict=True))
    return found if trips.time is None else found | {_LEAVES: trips.time[trips.start[:-1]]}


@dataclass(frozen=True, eq=False)
class RecordParts:
    """The records of admitted trips, in parts. Private."""

    parts: Parts
    attributes: Schema

    @property
    def timed(self) -> bool:
        """Whether trips have times."""
        return _LEAVES in self.parts.names

    def table(self, ground: Ground, borders: Keys, tz: str) -> PartTable:
        """The records with the features of their trips, as a table that can be counted."""
        return PartTable(self, Features(ground, borders, tz, len(self.attributes.sizes)))


@dataclass(frozen=True, eq=False)
class Features:
    """The codes of a part's records: of their attributes, then of the features of the trips."""

    ground: Ground
    borders: Keys
    tz: str
    attributes: int

    def __call__(self, rows: Columns) -> Ints:
        codes = [rows[name] for name in _code_names(self.attributes)]
        ends: Floats = np.column_stack([rows[name] for name in _ENDS]).reshape(-1, 2)
        hours = hours_of(rows[_LEAVES], self.tz) if _LEAVES in rows else None
        return np.column_stack([*codes, *features_of(self.ground, self.borders, ends, hours).values()])


@dataclass(frozen=True, eq=False)
class PartTable:
    """The table of records in parts (``tabular.counting.TableRows``): only histograms leave them."""

    records: RecordParts
    features: Features

    def marginals(self, schema: Schema, cliques: Sequence[Clique], groups: Groups | None = None) -> Counts:
        index = MarginalIndex(schema, cliques, groups=groups)
        found: Histogram = self.records.parts.sum(_Cells(index, self.features))
        return index.split(found)

    def values(self, name: str, column: Binned) -> Histogram:
        raise ConfigError(f"column {name!r}: bins {column!r} cannot be found of trips in parts")

    def misplaced(self, schema: Schema) -> list[str]:
        own = self.records.attributes
        places = RowPlaces(own)
        if not places.columns:
            return []
        counts: Ints = self.records.parts.sum(_Declared(len(places.columns)))
        keys = np.arange(len(counts), dtype=np.uint64)
        return [name for name in places.wrong(Histogram(keys, counts)) if name in schema.columns]

    def words(self, name: str, schema: Schema) -> tuple[list[str], Ints]:  # noqa: ARG002
        raise ConfigError(f"column {name!r}: values cannot be found of trips in parts")


@dataclass(frozen=True, eq=False)
class _Cells:
    """The cells of marginals, counted over the records of a part."""

    index: MarginalIndex
    features: Features

    def __call__(self, rows: Columns) -> Histogram:
        codes = self.features(rows)
        return Histogram.of(*self.index.keys(codes, np.ones(len(codes), dtype=np.int64)))


@dataclass(frozen=True)
class _Declared:
    """How many records of a part hold a declared value, and how many another one, for each such column."""

    columns: int

    def __call__(self, rows: Columns) -> Ints:
        flags = np.column_stack([rows[f"declared{number}"] for number in range(self.columns)])
        return np.stack([(flags == kind).sum(axis=0) for kind in (_DECLARED, _OTHER)], axis=1)


def hours_of(leaves: Floats, tz: str) -> Ints:
    """The hours of departures, by the clocks of a zone."""
    return (np.floor(local_seconds(leaves, tz) / 3600) % 24).astype(np.int64)


def _code_names(number: int) -> list[str]:
    return [f"attribute{at}" for at in range(number)]


def _others(attributes: Schema) -> list[str]:
    return RowPlaces(attributes).columns


# What a trip itself says to a table of attributes: how far it goes, from which zone to which, and when.

ZONES = 12
_ELSEWHERE = ZONES  # an end outside the domain
_SHORTEST, _DISTANCES = 125.0, 22  # metres; halves of octaves to 128 km
DISTANCE, HOUR, ORIGIN, DESTINATION = "trip distance", "trip hour", "trip origin", "trip destination"
_HOURS = 4  # that are told apart from others: finer, and what an attribute has to do with them drowns


def feature_sizes(*, timed: bool) -> dict[str, int]:
    """How many values each feature has."""
    sizes = {DISTANCE: _DISTANCES, ORIGIN: ZONES + 1, DESTINATION: ZONES + 1}
    return sizes | {HOUR: 24 // _HOURS} if timed else sizes


def zone_borders(measured: MeasuredTrips) -> Keys:
    """Where zones begin: runs of cells, in the order of their keys, with about as many released ends each."""
    ends = non_negative(measured.ends.by_cell) + 1e-9
    middle = np.cumsum(ends) - ends / 2
    zone = np.minimum((middle / ends.sum() * ZONES).astype(np.int64), ZONES - 1)
    first: Keys = measured.partition.start[
        np.minimum(np.searchsorted(zone, np.arange(1, ZONES)), len(zone) - 1)
    ]
    return first


def features_of(ground: Ground, borders: Keys, ends: Points, hours: Ints | None) -> dict[str, Ints]:
    """Distance, zones of both ends and, where trips have times, the hours of departure, four at a time."""
    first, last = ends[::2], ends[1::2]
    apart: Floats = np.hypot(*((last - first) * metres_per_unit(ground.domain)).T)
    octave = np.floor(2 * np.log2(np.maximum(apart, 1e-9) / _SHORTEST)).astype(np.int64) + 1

    def zones(xy: Points) -> Ints:
        keys, inside = ground.hierarchy.locate(xy, ground.bits)
        return np.where(
            inside, np.searchsorted(borders, aligned(keys, ground.bits), side="right"), _ELSEWHERE
        )

    out = {DISTANCE: np.clip(octave, 0, _DISTANCES - 1), ORIGIN: zones(first), DESTINATION: zones(last)}
    return out if hours is None else out | {HOUR: hours.astype(np.int64) // _HOURS}

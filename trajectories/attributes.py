"""What else is recorded of each trip (fare, vehicle, purpose), measured and drawn together with it.

A trip's attributes depend on where it starts and ends, when, and how far it goes. So one record for each trip
holds its attributes and four *features* of the trip itself: the zones of its two ends, the four hours of its
departure, and the straight-line distance between its ends. A table model is fitted to these records
(``tabular.once``), and each synthetic trip is put together with a synthetic record that agrees with its
features.

Guarantee
---------
Each admitted trip is one record, made from its own rows, from public facts and from released cells (zones are
runs of released cells with about as many released ends each). The table is ε_a-differentially private for one
record (``TabularSynthesizer``), whatever the other measurements released, so that together with them a trip
pays ε_a + Σ ε_i = ε by adaptive composition. Drawing records and handing them to synthetic trips is
post-processing: no synthetic trip meets a true record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import numpy as np
import pandas as pd

from synthgeo.arrays import Array, Ints, Keys, Points
from synthgeo.errors import ConfigError
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.noise import Noise
from synthgeo.schema import Schema
from synthgeo.schema.columns import Ordinal
from synthgeo.sources import Source
from synthgeo.sources.chunk import Chunk
from tabular.discovery import trial_schema
from tabular.once import TabularSynthesizer
from tabular.settings import TableSettings
from trajectories.ground import Ground
from trajectories.measure.measured import MeasuredTrips
from trajectories.parts.records import (
    DESTINATION,
    DISTANCE,
    HOUR,
    ORIGIN,
    RecordParts,
    feature_sizes,
    features_of,
    hours_of,
    zone_borders,
)
from trajectories.reading.chunks import ChunkSource
from trajectories.reading.points import Trips

_PAIRS = 3  # marginals that are measured for each attribute, at most: each more leaves less ε for the others
_POOL = 4  # synthetic records drawn for each trip
_LEAST_POOL = 20_000
MOST_TABLES = 8  # of a stream that keeps everything; more are folded into one
_FOLDED = 50_000  # synthetic records that stand for all so far
_EXACT = 1e6  # ε at which synthetic records are counted: no noise to speak of


@dataclass(frozen=True, eq=False)
class AttributeModel:
    """A released model of attributes: tables of them with features of trips, and the borders of zones.

    One table for each batch that it describes, with the batch's released number of trips as its weight;
    records are drawn from each in proportion.
    """

    schema: Schema
    tables: tuple[TabularSynthesizer, ...]
    weights: tuple[float, ...]
    borders: Keys  # zones are runs of places in the order of their keys: where each but the first begins

    def joined(self, other: AttributeModel, last: int | None) -> AttributeModel:
        """The ``last`` batches (None: all) of this model and of another one with the same borders."""
        keep = slice(None if last is None else -last, None)
        tables, weights = (*self.tables, *other.tables), (*self.weights, *other.weights)
        return AttributeModel(self.schema, tables[keep], weights[keep], self.borders)

    def folded(self, noise: Noise) -> AttributeModel:
        """One table in place of all, fitted to synthetic records of theirs. Post-processing: ``noise`` is
        what sampling and fitting draw from, and what it adds to counts is far below one record.
        """
        timed = HOUR in self.tables[0].schema.columns
        table = _record_table(self.schema, PrivacyBudget(_EXACT), noise, timed=timed)
        rows = self.records(_FOLDED, noise.rng)
        return AttributeModel(self.schema, (table.fit(rows),), (sum(self.weights),), self.borders)

    def to_state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """JSON values and arrays."""
        each, arrays = [], {"borders": self.borders}
        for number, table in enumerate(self.tables):
            values, own = table.to_state()
            each.append(values)
            arrays |= {f"{number}/{name}": array for name, array in own.items()}
        return {"tables": each, "weights": list(self.weights), "schema": self.schema.to_json()}, arrays

    @classmethod
    def from_state(
        cls, values: Mapping[str, Any], arrays: Mapping[str, Array], noise: Noise
    ) -> AttributeModel:
        """The inverse of ``to_state``; trips and their attributes are drawn from one generator."""
        tables = []
        for number, each in enumerate(values["tables"]):
            prefix = f"{number}/"
            own = {n.removeprefix(prefix): array for n, array in arrays.items() if n.startswith(prefix)}
            tables.append(_RecordTable.from_state(dict(each), own))
            tables[-1].noise = noise
        weights = tuple(map(float, values["weights"]))
        return cls(Schema.from_json(values["schema"]), tuple(tables), weights, arrays["borders"])

    def features(self, ground: Ground, ends: Points, hours: Ints | None) -> dict[str, Ints]:
        """The features of trips with these ends and hours of departure, by name."""
        timed = HOUR in self.tables[0].schema.columns
        return features_of(ground, self.borders, ends, hours if timed else None)

    def records(
        self, rows: int, rng: np.random.Generator, given: Mapping[str, Any] | None = None
    ) -> pd.DataFrame:
        """Synthetic records, of which ``given`` fixes attributes."""
        unknown = sorted(set(given or {}) - set(self.schema.columns))
        if unknown:
            raise ConfigError(f"given: there is no attribute {unknown[0]!r}; {sorted(self.schema.columns)}")
        numbers = [rows]
        if len(self.tables) > 1:
            weights = np.maximum(self.weights, 0.0) + 1e-9
            numbers = rng.multinomial(rows, weights / weights.sum()).tolist()
        parts = [
            table.sample(0, given=None).sample(number, given=given, seed=int(rng.integers(2**31)))
            for table, number in zip(self.tables, numbers, strict=True)
            if number or len(self.tables) == 1
        ]
        if len(parts) == 1:
            return parts[0]
        whole = pd.concat(parts, ignore_index=True)
        return whole.iloc[rng.permutation(len(whole))].reset_index(drop=True)

    def draw(
        self,
        features: Mapping[str, Ints],
        rng: np.random.Generator,
        n: int | None = None,
        given: Mapping[str, Any] | None = None,
    ) -> tuple[Ints, pd.DataFrame]:
        """Trips and their attributes: which of the trips with these ``features``, and one record for each.

        With ``n``, so many records are drawn, of which ``given`` fixes attributes, and for each a trip is
        chosen that agrees with it. Without, every trip is taken, with a record that agrees with it.
        """
        columns = list(self.schema.columns)
        if n is not None:
            pool = self.records(n, rng, given)
            # What is given may be rare among the trips; otherwise none is taken twice.
            found = agreeing(_codes(pool, features), features, rng, once=not given)
            return found, pool[columns].reset_index(drop=True)
        size = len(features[DISTANCE])
        pool = self.records(max(_POOL * size, _LEAST_POOL), rng)
        found = agreeing(features, _codes(pool, features), rng)
        return np.arange(size), pool[columns].iloc[found].reset_index(drop=True)


def attribute_schema(attributes: Schema, *, timed: bool) -> Schema:
    """The schema of a record: attributes, and the features of the trip."""
    sizes = feature_sizes(timed=timed)
    taken = sorted(set(sizes) & set(attributes.columns))
    if taken:
        raise ConfigError(f"attributes: the name {taken[0]!r} is taken by a feature of trips")
    own = {name: Ordinal(range(size)) for name, size in sizes.items()}
    return Schema({**attributes.columns, **own})


def attribute_pairs(attributes: Schema, *, timed: bool) -> list[tuple[str, str]]:
    """The pairs that matter: attributes with each other and with features. How features go together is known
    from the trips themselves.
    """
    names = list(trial_schema(attributes).sizes)
    own = [DISTANCE, ORIGIN, DESTINATION] + ([HOUR] if timed else [])
    return [*combinations(names, 2), *product(names, own)]


def check_attributes(attributes: Schema, per_trip: PrivacyBudget | None) -> None:
    """Refuse attributes that no table could be fitted to: before anything is read or spent."""
    if per_trip is None:
        raise ConfigError("attribute_share must be > 0 where there are attributes")
    _RecordTable(schema=attribute_schema(attributes, timed=True), budget=per_trip)


def measure_attributes(
    attributes: Schema,
    records: TripRows | RecordParts,
    ground: Ground,
    measured: MeasuredTrips,
    *,
    tz: str,
    epsilon: float,
    noise: Noise,
    borders: Keys | None = None,
) -> AttributeModel:
    """Fit a table to the records of admitted trips: ε-differentially private.

    ``borders`` of zones follow from what was ``measured``, unless an earlier release gives them.
    """
    borders = zone_borders(measured) if borders is None else borders
    table = _record_table(attributes, PrivacyBudget(epsilon), noise, timed=records.timed)
    if isinstance(records, RecordParts):
        table.fit_rows(records.table(ground, borders, tz))
    else:
        table.fit(records.table(ground, borders, tz))
    total = float(measured.pairs.count.sum())
    return AttributeModel(attributes, (table,), (total,), borders)


def _record_table(
    attributes: Schema, budget: PrivacyBudget, noise: Noise, *, timed: bool
) -> TabularSynthesizer:
    """What a table of records is fitted with."""
    return _RecordTable(
        schema=attribute_schema(attributes, timed=timed),
        budget=budget,
        workload=attribute_pairs(attributes, timed=timed),
        settings=TableSettings(rounds=_PAIRS * len(trial_schema(attributes).sizes)),
        noise=noise,
    )


@dataclass(frozen=True, eq=False)
class TripRows:
    """The rows that hold the attributes of admitted trips, in memory: ``trips.record`` says which row of
    ``chunk``, read from ``source``, belongs to each. Private.
    """

    source: Source
    chunk: Chunk
    trips: Trips

    @property
    def timed(self) -> bool:
        """Whether trips have times."""
        return self.trips.time is not None

    def table(self, ground: Ground, borders: Keys, tz: str) -> Source:
        """The records: a row of each trip, with the features of the trip."""
        trips = self.trips
        assert trips.record is not None
        hours = None if trips.time is None else hours_of(trips.time[trips.start[:-1]], tz)
        features = features_of(ground, borders, trips.ends().xy, hours)
        return ChunkSource(self.source, self.chunk, trips.record, features)


class _RecordTable(TabularSynthesizer):
    """A table that may have no rows: a batch without trips is a batch like any other."""

    _takes_no_rows = True


def agreeing(
    wanted: Mapping[str, Ints], offered: Mapping[str, Ints], rng: np.random.Generator, *, once: bool = False
) -> Ints:
    """For each row that is wanted one that is offered and agrees with it: in all features or, where none
    does, in distance, hour and origin, in distance and hour, in distance alone, or any. With ``once`` no row
    is taken twice, and at least as many must be offered as are wanted.
    """
    names = [name for name in (DISTANCE, HOUR, ORIGIN, DESTINATION) if name in wanted]
    size, most = len(wanted[DISTANCE]), len(offered[DISTANCE])
    found = np.full(size, -1, dtype=np.int64)
    free = rng.permutation(most) if once else np.arange(most)
    for depth in range(len(names), -1, -1):
        left = np.flatnonzero(found < 0)
        if not len(left):
            break
        keys = _keys([wanted[name][left] for name in names[:depth]], len(left))
        have = _keys([offered[name][free] for name in names[:depth]], len(free))
        order = np.argsort(have, kind="stable")
        low = np.searchsorted(have[order], keys, side="left")
        high = np.searchsorted(have[order], keys, side="right")
        if once:
            place = low + _ranks(keys)
        else:
            place = low + np.floor(rng.random(len(left)) * (high - low)).astype(np.int64)
        some = place < high
        found[left[some]] = free[order[place[some]]]
        if once:
            free = np.delete(free, order[place[some]])
    return found


def _ranks(keys: Ints) -> Ints:
    """How many rows before each have the same key."""
    order = np.argsort(keys, kind="stable")
    ranks = np.empty(len(keys), dtype=np.int64)
    ranks[order] = np.arange(len(keys)) - np.searchsorted(keys[order], keys[order], side="left")
    return ranks


def _keys(columns: list[Ints], size: int) -> Ints:
    keys = np.zeros(size, dtype=np.int64)
    for column in columns:
        keys = keys * 64 + column
    return keys


def _codes(pool: pd.DataFrame, features: Mapping[str, Array]) -> dict[str, Ints]:
    return {name: pool[name].to_numpy().astype(np.int64) for name in features}


__all__ = [
    "AttributeModel",
    "TripRows",
    "agreeing",
    "attribute_schema",
    "check_attributes",
    "measure_attributes",
]

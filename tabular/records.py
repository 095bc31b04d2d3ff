"""Rows of a table as records of a stream: rows become cells of marginals, a model becomes synthetic rows."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np

from streams.birth_times import BirthTimes
from streams.mechanism import Arrays
from streams.records import Clock
from synthgeo.preflight import Probe
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.contribution import ContributionBounder
from synthgeo.privacy.unit import PrivacyUnit
from synthgeo.schema import Schema
from synthgeo.sources import Histogram, Source
from synthgeo.sources.values import ids
from tabular.counting import UserRecords
from tabular.marginals import MarginalIndex, row_keys
from tabular.model.message_passing import Clique
from tabular.model.snapshot import Snapshot
from tabular.release import TableRelease


class TableRecords:
    """Rows of a schema. Histograms have one weight: the net count of each cell of each marginal."""

    width = 1

    def __init__(self, *, index: MarginalIndex, unit: PrivacyUnit, deletions: bool, op: str) -> None:
        self.index = copy(index)
        self.index.deletions = deletions
        self.unit = unit
        self.op = op

    @property
    def schema(self) -> Schema:
        """What the columns hold."""
        return self.index.schema

    def keys(self, source: Source) -> MarginalIndex:
        return self._index_for(source)[0]

    def _index_for(self, source: Source) -> tuple[MarginalIndex, list[str]]:
        index, inputs = copy(self.index), self.schema.inputs
        index.operations = self.op if source.has(self.op) and self.op not in inputs else None
        columns = [*inputs, *([index.operations] if index.operations else [])]
        source.require(columns)
        return index, columns

    def probes(self, source: Source) -> list[Probe]:  # noqa: ARG002
        return []

    def count(self, source: Source, bounder: ContributionBounder | None, clock: Clock) -> Histogram:
        index, columns = self._index_for(source)
        if bounder is None:
            return source.histogram(index, columns)
        # Rows of one batch are held in memory: whether a row counts depends on the user's other rows.
        assert self.unit.key is not None
        source.require([self.unit.key])
        check = UserRecords(self.schema, self.unit.key, lambda chunk: index.signs(chunk, chunk.rows))
        chunk = source.read(list(dict.fromkeys([*columns, self.unit.key])), check=check)
        codes = self.schema.encode(chunk)
        signs = index.signs(chunk, len(codes))
        users = ids(chunk, self.unit.key)
        keys = row_keys(codes, list(self.schema.sizes.values()))
        kept = bounder.admit(users, keys, signs, period=clock.period)
        return Histogram.of(*index.keys(codes[kept], signs[kept]))

    def release(
        self,
        snapshot: tuple[Snapshot, dict[Clique, float], dict[int, float]],
        *,
        kept: None,
        clock: Clock,
        spent: PrivacyBudget | None,
        provenance: dict[str, Any],
        rng: np.random.Generator,
    ) -> tuple[TableRelease, None]:
        table, deviations, totals = snapshot
        release = TableRelease(
            step=clock.step,
            spent=spent,
            provenance=provenance,
            schema=self.schema,
            snapshot=table,
            deviations=deviations,
            seed=int(rng.integers(2**62)),
            times=BirthTimes.of(totals, clock),
        )
        return release, kept

    def facts(self) -> dict[str, Any]:
        return {"schema": self.schema.fingerprint()}

    def settings(self) -> dict[str, Any]:
        return {"schema": self.schema.fingerprint(), "op": self.op}

    def to_state(self, kept: None) -> tuple[dict[str, Any], Arrays]:  # noqa: ARG002
        return {"schema": self.schema.to_json()}, {}

    def kept(self, values: dict[str, Any] | None = None, arrays: Arrays | None = None) -> None:
        """Nothing: rows are drawn anew for each release."""

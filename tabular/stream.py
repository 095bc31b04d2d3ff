"""Tables over time: a stream of private batches of records in, a stream of synthetic tables out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd

from streams.schedule import Growing, Schedule
from streams.stream import ContinualStream, part_of, prefixed
from synthgeo.domain.schema import Schema
from synthgeo.errors import ConfigError
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.contribution import ContributionBounder
from synthgeo.privacy.noise import Noise
from synthgeo.privacy.unit import PrivacyUnit
from synthgeo.privacy.users import UserIds
from synthgeo.release import provenance
from synthgeo.sources import Histogram, KeyFunction, Source
from tabular.marginals import MarginalIndex, row_keys
from tabular.methods import Arrays, Method, Setup
from tabular.model.junction_tree import check_size
from tabular.release import TableRelease
from tabular.rotating import Rotating
from tabular.selecting import EveryStep
from tabular.workload import Workload, workload_of

MAX_CELLS = 50_000


class TabularStream(ContinualStream):
    """Releases a synthetic table after every batch of inserted (and deleted) records.

    ``schedule="every_step"`` is Algorithm 14 of Kumar, *Differentially Private Synthetic Data Generation
    of Data Collected Over Time* (2024), with tight constants. ``schedule="auto"`` chooses marginals
    rarely, counts every record in each chosen marginal, and lets marginals release in turns. ``workload``
    names the marginals that matter, by default all pairs. ``marginals_per_step`` is how many a selection
    picks, ``structure_share`` the part of ε that it costs: by default a quarter at every step, or a tenth
    while the structure is being chosen. ``horizon``, where it is known, helps the counters.

    A batch is a frame, a dict of arrays, a path or glob of files, or a dask DataFrame with the schema's
    columns, and optionally ``op`` (+1 insert, -1 delete). Missing values, unseen categories and the like
    follow the schema; a row that does not fit it is refused with its column and row, before anything is
    spent.

    Guarantee
    ---------
    Pure ε for one event, or for all events of a user under ``PrivacyUnit.user``, under add/remove
    neighbours. The number of rows is private: it is counted with noise like everything else. See
    ``tabular.rotating.Rotating`` and ``tabular.selecting.EveryStep`` for the arguments, and
    ``docs/guarantees.md``."""

    state_kind: ClassVar[str] = "tabular-stream"
    mechanism: ClassVar[str] = "TabularStream"

    def __init__(
        self,
        *,
        schema: Schema,
        budget: PrivacyBudget,
        unit: PrivacyUnit | None = None,
        workload: Workload | Iterable[Sequence[str]] | None = None,
        marginals_per_step: int = 4,
        counter: str = "auto",
        horizon: int | None = None,
        schedule: str | Schedule = "auto",
        structure_share: float | None = None,
        deletions: bool = True,
        op: str = "op",
        max_cells: int = MAX_CELLS,
        t0: int = 0,
        noise: Noise | None = None,
        ledger: Any = None,
    ) -> None:
        if not isinstance(schema, Schema):
            raise ConfigError(f"schema must be a Schema, got {type(schema).__name__}")
        every_step = (
            self._selects_always or schedule == "every_step" or getattr(schedule, "name", "") == "every_step"
        )
        usual = self._structure_share if every_step else 0.1
        share = usual if structure_share is None else structure_share
        super().__init__(
            budget=budget,
            unit=unit,
            schedule="every_step" if self._selects_always else schedule,
            auto=Growing(),
            deletions=deletions,
            structure_share=share,
            t0=t0,
            noise=noise,
            ledger=ledger,
        )
        if self.schedule.name in ("once", "release_driven"):
            raise ConfigError(
                "a tabular stream chooses its marginals over time: schedule 'auto' or 'every_step'"
            )
        if counter == "toeplitz":
            raise ConfigError("the Toeplitz counter is Gaussian; a tabular stream is purely private")
        if (
            isinstance(marginals_per_step, bool)
            or not isinstance(marginals_per_step, int)
            or marginals_per_step < 1
        ):
            raise ConfigError(f"marginals_per_step must be a whole number >= 1, got {marginals_per_step!r}")
        self.schema = schema
        self.workload = workload_of(schema, workload, weighting="cells")
        self.marginals_per_step = marginals_per_step
        self.counter = counter
        self.horizon = horizon
        self.op = op
        self.max_cells = max_cells
        sizes = schema.sizes
        for clique in [*self.workload, *((name,) for name in sizes)]:
            check_size(sizes, [clique], (), max_cells=max_cells)
        check_size(sizes, [], schema.rules, max_cells=max_cells)
        setup = Setup(
            sizes=sizes,
            rules=schema.rules,
            workload=self.workload,
            epsilon=self.epsilon,
            structure_share=self.structure_share,
            picks=marginals_per_step,
            counter=counter,
            horizon=horizon,
            max_cells=max_cells,
            noise=self.noise,
        )
        self._method = self._make_method(setup)
        self._index = MarginalIndex(schema, self._method.needs(), deletions=deletions)
        self._paid: list[tuple[float, float]] = []

    _selects_always: ClassVar[bool] = False
    # The dissertation chooses with half of ε; less error with a quarter (benchmarks/results/sweep_tabular).
    _structure_share: ClassVar[float] = 0.25

    def _make_method(self, setup: Setup) -> Method:
        return EveryStep(setup) if self.schedule.name == "every_step" else Rotating(setup)

    def settings(self) -> dict[str, Any]:
        """What was chosen when the stream was made, as plain values."""
        return super().settings() | {
            "schema": self.schema.fingerprint(),
            "workload": [list(clique) for clique in self.workload],
            "weights": list(self.workload.weights),
            "marginals_per_step": self.marginals_per_step,
            "counter": self.counter,
            "horizon": self.horizon,
            "op": self.op,
            "max_cells": self.max_cells,
        }

    def _key_function(self, source: Source) -> tuple[KeyFunction, list[str], int]:
        index = copy(self._index)
        index.operations = (
            self.op if self.op in source.columns and self.op not in self.schema.inputs else None
        )
        columns = [*self.schema.inputs] + ([index.operations] if index.operations else [])
        source.require(columns)
        return index, columns, 1

    def _count(self, source: Source) -> tuple[Histogram, ContributionBounder | None]:
        if self._bounder is None:
            return super()._count(source)
        # Rows of one batch are held in memory: whether a row counts depends on the user's other rows.
        index, columns, _ = self._key_function(source)
        assert isinstance(index, MarginalIndex)
        assert self.unit.key is not None
        source.require([self.unit.key])
        chunk = source.read(list(dict.fromkeys([*columns, self.unit.key])), user=self.unit.key)
        codes = self.schema.encode(chunk)
        signs = index.signs(chunk, len(codes))
        users = UserIds.of(chunk[self.unit.key], column=self.unit.key, where=chunk.where)
        bounder = copy(self._bounder)
        kept = bounder.admit(users, row_keys(codes, list(self.schema.sizes.values())), signs)
        return Histogram.of(*index.keys(codes[kept], signs[kept])), bounder

    def _privatise(self, counts: Histogram, *, structure: bool) -> None:
        if counts.weights.shape[1] > 1:  # inserts and deletes apart, where batches were merged before t0
            counts = Histogram(counts.keys, counts.weights[:, :1] - counts.weights[:, 1:])
        self._method.advance(self._index.split(counts), structure=structure)
        self._paid += [self._method.paid()] * (self.step - len(self._paid))

    @property
    def costs(self) -> pd.DataFrame:
        """What an event of each past step pays at most over the life of the stream; never above
        ``epsilon``.
        """
        paid = np.array(self._paid, dtype=np.float64).reshape(-1, 2)
        steps = np.arange(1, len(paid) + 1)
        return pd.DataFrame(
            {"step": steps, "structure": paid[:, 0], "counts": paid[:, 1], "total": paid.sum(axis=1)}
        )

    def _release(self) -> TableRelease:
        return TableRelease(
            step=self.step,
            spent=self.spent,
            provenance=provenance(
                mechanism=self.mechanism,
                unit=self.unit,
                budget=self.budget,
                noise=self.noise,
                step=self.step,
                schedule=self.schedule.name,
                counter=self.counter,
                structure_share=self.structure_share,
                marginals_per_step=self.marginals_per_step,
                schema=self.schema.fingerprint(),
                workload=len(self.workload),
            ),
            schema=self.schema,
            snapshot=self._method.snapshot(),
            deviations=self._method.deviations(),
            seed=int(self.noise.rng.integers(2**62)),
        )

    def _to_state(self) -> tuple[dict[str, Any], Arrays]:
        values, arrays = super()._to_state()
        method, method_arrays = self._method.to_state()
        values |= {
            "schema": self.schema.to_json(),
            "workload": [list(clique) for clique in self.workload],
            "weights": list(self.workload.weights),
            "marginals_per_step": self.marginals_per_step,
            "counter": self.counter,
            "horizon": self.horizon,
            "op": self.op,
            "max_cells": self.max_cells,
            "method": method,
            "paid": [list(pair) for pair in self._paid],
        }
        return values, arrays | prefixed("method", method_arrays)

    @classmethod
    def _from_state(cls, values: dict[str, Any], arrays: Arrays, ledger: Any) -> Self:
        stream = cls(
            schema=Schema.from_json(values["schema"]),
            workload=Workload(tuple(map(tuple, values["workload"])), tuple(values["weights"])),
            ledger=ledger,
            **cls._common_options(values),
            **{key: values[key] for key in ("marginals_per_step", "counter", "horizon", "op", "max_cells")},
        )
        stream._restore_common(values, arrays)
        stream._method.restore(values["method"], part_of("method", arrays))
        stream._paid = [(pair[0], pair[1]) for pair in values["paid"]]
        return stream

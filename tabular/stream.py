"""Tables over time: a stream of private batches of records in, a stream of synthetic tables out."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from streams.ages import check_deletions
from streams.mechanism import Arrays, EventBudget, check_noise
from streams.schedule import Growing, Schedule, make_schedule, schedule_from_state
from streams.slots import TIMES_SHARE, check_times
from streams.stream import Counted, Stream, check_lifetime
from synthgeo import validate
from synthgeo.errors import ConfigError
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.noise import Noise
from synthgeo.privacy.unit import PrivacyUnit
from synthgeo.schema import Schema
from synthgeo.sources import Source, open_source
from synthgeo.sources.declared import Reading
from tabular.counting import rows_of
from tabular.discovery import Unknown, trial_schema
from tabular.model.junction_tree import check_size
from tabular.over_time.baselines import Fresh
from tabular.over_time.every_step import EveryStep
from tabular.over_time.expiring_marginals import ExpiringMarginals, longest_wait
from tabular.over_time.method import Setup, TableMechanism
from tabular.over_time.rotating_marginals import Rotating
from tabular.records import TableRecords
from tabular.values import LaplaceCounts
from tabular.workload import Workload, all_k_way, cell_count, workload_of

MAX_CELLS = 50_000
# Bins or values that are still to be found: their share of ε, and at most so many bins.
FIND_SHARE, MOST_BINS = 0.1, 64


class TabularStream(Stream):
    """Releases a synthetic table after every batch of inserted (and deleted) records.

    ``schedule="every_step"`` is Algorithm 14 of Kumar, *Differentially Private Synthetic Data Generation
    of Data Collected Over Time* (2024), with tight constants. ``schedule="auto"`` chooses marginals
    rarely, counts every record in each chosen marginal, and lets marginals release in turns. ``workload``
    names the marginals that matter, by default all pairs. ``marginals_per_step`` is how many a selection
    picks, ``structure_share`` the part of ε that it costs: by default a quarter at every step, or a tenth
    while the structure is being chosen. ``horizon``, where it is known, helps the counters.

    ``lifetime=L`` makes tables that expire: a release describes the rows inserted in the last L steps
    (``lifetime=1``: in this step only), with noise that stays the same for ever. Deletions inside a lifetime
    are counted where ``inserted`` names the column that says when their row was inserted (the number of its
    step; in ``run``, its time); without it they are refused.
    ``times="hour"`` gives each synthetic row a ``time`` inside its window, drawn from noisy counts of the
    window's hours (or minutes, or slots such as ``"15min"``) that cost ``times_share`` of ε
    (``streams.slots``); it needs a lifetime, and windows (``run``).
    ``borrow="auto"`` combines the marginals of ``lifetime=1`` with what earlier ones predict
    (``streams.borrow``), at no cost in privacy.

    Columns with ``bins="auto"``, and categories with ``candidates``, get their bins and values from the first
    batch, at a tenth of ε; what later batches hold is counted in these. ``schema`` is then the found one.

    A batch is a frame, a dict of arrays, a path or glob of files, or a dask DataFrame with the schema's
    columns, and optionally ``op`` (+1 insert, -1 delete). Missing values, unseen categories and the like
    follow the schema; a row that does not fit it is refused with its column and row, before anything is
    spent. ``reading`` declares how text is read.

    Guarantee
    ---------
    Pure ε for one event, or for all events of a user under ``PrivacyUnit.user``, under add/remove
    neighbours. The number of rows is private: it is counted with noise like everything else. Where bins or
    values are found, that is purely private with its own tenth of ε, which only events of the first batch
    pay, and all else runs at the other nine tenths. See
    ``tabular.over_time.rotating_marginals.Rotating`` and ``tabular.over_time.every_step.EveryStep`` for the
    arguments, and ``docs/guarantees.md``."""

    state_kind = "tabular-stream"

    def __init__(
        self,
        *,
        schema: Schema,
        budget: PrivacyBudget,
        unit: PrivacyUnit | None = None,
        lifetime: int | None = None,
        schedule: str | Schedule = "auto",
        t0: int = 0,
        horizon: int | None = None,
        deletions: bool | None = None,
        workload: Workload | Iterable[Sequence[str]] | None = None,
        marginals_per_step: int = 4,
        borrow: str | bool = "auto",
        counter: str = "auto",
        structure_share: float | None = None,
        max_cells: int = MAX_CELLS,
        op: str = "op",
        inserted: str | None = None,
        times: str | None = None,
        times_share: float = TIMES_SHARE,
        reading: Reading | None = None,
        noise: Noise | None = None,
        ledger: Any = None,
    ) -> None:
        validate.instance(schema, "schema", Schema)
        plan = make_schedule(schedule, auto=Growing())
        if plan.name in ("once", "release_driven"):
            raise ConfigError(
                "a tabular stream chooses its marginals over time: schedule 'auto' or 'every_step'"
            )
        if counter == "toeplitz":
            raise ConfigError("the Toeplitz counter is Gaussian; a tabular stream is purely private")
        if structure_share is None:
            # The dissertation chooses with half of ε at every step; less error with a quarter
            # (benchmarks/results/sweep_tabular).
            structure_share = 0.25 if plan.name == "every_step" else 0.1
        event = EventBudget.of(budget, unit, structure_share, times_share=check_times(times, times_share))
        source = check_noise(noise)
        lifetime = check_lifetime(lifetime)
        deletions = check_deletions(deletions, inserted, lifetime, event.unit)
        self._given_schema = schema
        self._given_workload: Any = (
            workload if workload is None or isinstance(workload, Workload) else list(workload)
        )
        self._unknown = bool(schema.pending_bins or schema.pending_values)
        # Of what the times inside windows leave, if they are asked for.
        self._for_finding = (
            event.whole.split((FIND_SHARE, 1 - FIND_SHARE))[0].epsilon if self._unknown else 0.0
        )
        rest = budget.split((1 - FIND_SHARE, FIND_SHARE))[0] if self._unknown else budget
        _check_listed(schema)
        self._plan = plan
        self._setup: dict[str, Any] = {
            "event": EventBudget.of(rest, unit, structure_share, times_share=event.times_share),
            "picks": validate.whole(marginals_per_step, "marginals_per_step", low=1),
            "counter": counter,
            "horizon": horizon,
            "max_cells": max_cells,
            "noise": source,
            "lifetime": lifetime,
            "borrow": self._check_borrow(borrow, lifetime),
            "aged": inserted is not None,
        }
        self.schema = trial_schema(schema, most_bins=MOST_BINS) if self._unknown else schema
        mechanism = self._mechanism_of(self.schema)
        super().__init__(
            records=TableRecords(
                index=mechanism.index,
                unit=event.unit,
                lifetime=lifetime,
                deletions=deletions,
                inserted=inserted,
                op=op,
            ),
            mechanism=mechanism,
            event=event,
            lifetime=lifetime,
            schedule=plan,
            t0=t0,
            deletions=deletions,
            reading=reading,
            noise=source,
            ledger=ledger,
            times=times,
        )
        self.inserted, self.times_share = inserted, times_share
        self.workload, self.op = mechanism.setup.workload, op
        if self._unknown:
            self.schema = schema
        self.marginals_per_step, self.counter, self.horizon = marginals_per_step, counter, horizon
        self.max_cells, self.borrow = max_cells, borrow

    def _mechanism_of(self, schema: Schema) -> TableMechanism:
        workload = _sized_workload(schema, self._given_workload, self._setup["max_cells"])
        return self._make_mechanism(self._plan, Setup(schema=schema, workload=workload, **self._setup))

    def count(self, batch: Any, *, identify: bool | bytes = False) -> Counted:
        if not self._unknown:
            return super().count(batch, identify=identify)
        source = open_source(batch, reading=self.reading)
        counted = super().count(source, identify=identify)  # with the most bins: what fits them will fit
        trial = self._table_records.schema
        unknown = Unknown.of(self._given_schema, rows_of(source, trial, self.unit), trial)
        return replace(counted, counts=_First(source, unknown))

    def _learn(self, counted: Counted) -> Counted:
        first = counted.counts
        if not isinstance(first, _First):
            return counted
        self._know(self._found(first.unknown))
        return replace(super().count(first.source), identity=counted.identity)

    def _found(self, unknown: Unknown) -> Schema:
        """The schema with bins and values found in the first batch: the only noise outside a mechanism."""
        each, bound = self._for_finding / unknown.columns, self.unit.max_contributions
        return unknown.found(
            self._given_schema,
            [each] * len(unknown.numbers),
            [LaplaceCounts(each * bound, bound)] * len(unknown.words),
            delta=0.0,
            noise=self.noise,
            most_bins=MOST_BINS,
        )

    def _know(self, schema: Schema) -> None:
        """Go on with a schema in which nothing is left to be found."""
        mechanism, records = self._mechanism_of(schema), self._table_records
        self._records = records.on(mechanism.index)
        self._now = replace(self._now, mechanism=mechanism)
        self.schema, self.workload, self._unknown = schema, mechanism.setup.workload, False

    @property
    def _table_records(self) -> TableRecords:
        assert isinstance(self._records, TableRecords)
        return self._records

    @property
    def costs(self) -> pd.DataFrame:
        found = super().costs
        if self._for_finding and len(found) and found["total"].any():
            found.loc[0, ["structure", "total"]] += self._for_finding
        return found

    def settings(self) -> dict[str, Any]:
        values = super().settings()
        if self._for_finding:  # what follows from the bins is no choice
            given = self._given_workload
            cliques = list(given) if given is not None else None
            values |= {"schema": self._given_schema.fingerprint(), "weights": None}
            values["workload"] = None if cliques is None else [list(clique) for clique in cliques]
            if isinstance(given, Workload):
                values["weights"] = list(given.weights)
        return values

    def _to_state(self) -> tuple[dict[str, Any], Arrays]:
        values, arrays = super()._to_state()
        if self._for_finding:
            values["found_schema"] = None if self._unknown else self.schema.to_json()
            values["schema"] = self._given_schema.to_json()
        return values, arrays

    def _restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        if values.get("found_schema") is not None:
            self._know(Schema.from_json(values["found_schema"]))
        super()._restore(values, arrays)

    @staticmethod
    def _make_mechanism(plan: Schedule, setup: Setup) -> TableMechanism:
        if setup.lifetime is None:
            return EveryStep(setup) if plan.name == "every_step" else Rotating(setup)
        if plan.name == "every_step":
            raise ConfigError(
                "schedule 'every_step' chooses other marginals at each step, so no sum covers a lifetime; "
                "a table with a lifetime has schedule 'auto' (a fresh fit per step is StreamingMWEM)"
            )
        if setup.counter not in ("auto", "simple"):
            raise ConfigError("sums over a lifetime have no counter to choose: leave counter at 'auto'")
        return ExpiringMarginals(setup)

    @staticmethod
    def _check_borrow(borrow: Any, lifetime: int | None) -> bool:
        if borrow == "auto":
            return lifetime == 1
        if validate.flag(borrow, "borrow") and (lifetime is None or longest_wait(lifetime) > 1):
            raise ConfigError("borrow=True is for short lifetimes: over longer ones sums of counts tell more")
        return bool(borrow)

    @classmethod
    def _own_params(cls, values: dict[str, Any], arrays: Arrays) -> dict[str, Any]:
        return {
            **super()._own_params(values, arrays),
            "schema": Schema.from_json(values["schema"]),
            "schedule": schedule_from_state(values["schedule"]),
            "workload": _workload_from(values["workload"], values["weights"]),
            **{key: values[key] for key in ("marginals_per_step", "counter", "horizon", "op", "max_cells")},
            "lifetime": values.get("lifetime"),
            "inserted": values.get("inserted"),
            "borrow": values.get("borrow", False),
        }


class StreamingMWEM(TabularStream):
    """Algorithm 13 of Kumar's dissertation with PGM, made private as claimed: the baseline to compare with.

    It takes the options of ``TabularStream`` except ``schedule`` and ``counter``.

    Guarantee
    ---------
    Pure event-level ε: that of ``tabular.over_time.baselines.Fresh``.
    """

    state_kind = "streaming-mwem"

    def __init__(
        self,
        *,
        schema: Schema,
        budget: PrivacyBudget,
        unit: PrivacyUnit | None = None,
        lifetime: int | None = None,
        t0: int = 0,
        deletions: bool | None = None,
        workload: Workload | Iterable[Sequence[str]] | None = None,
        marginals_per_step: int = 4,
        structure_share: float = 0.5,
        max_cells: int = MAX_CELLS,
        op: str = "op",
        reading: Reading | None = None,
        noise: Noise | None = None,
        ledger: Any = None,
    ) -> None:
        super().__init__(
            schema=schema,
            budget=budget,
            unit=unit,
            lifetime=lifetime,
            schedule="every_step",
            t0=t0,
            deletions=deletions,
            workload=workload,
            marginals_per_step=marginals_per_step,
            borrow=False,
            structure_share=structure_share,
            max_cells=max_cells,
            op=op,
            reading=reading,
            noise=noise,
            ledger=ledger,
        )

    @staticmethod
    def _make_mechanism(plan: Schedule, setup: Setup) -> TableMechanism:  # noqa: ARG004
        return Fresh(setup)

    @classmethod
    def _own_params(cls, values: dict[str, Any], arrays: Arrays) -> dict[str, Any]:
        params = super()._own_params(values, arrays)
        return {
            key: value
            for key, value in params.items()
            if key not in ("schedule", "counter", "horizon", "borrow", "inserted")
        }


@dataclass(frozen=True)
class _First:
    """The first batch of a stream that has bins or values to find. Private."""

    source: Source
    unknown: Unknown


def _workload_from(cliques: Any, weights: Any) -> Any:
    """The workload that a state holds; None where none was given."""
    if cliques is None or weights is None:
        return cliques
    return Workload(tuple(map(tuple, cliques)), tuple(weights))


def _check_listed(schema: Schema) -> None:
    """Refuse values that only a budget with δ could find."""
    for name in schema.pending_values:
        if schema.columns[name].candidates is None:  # type: ignore[attr-defined]
            raise ConfigError(
                f"column {name!r} has values='private': a stream finds them among public candidates="
            )


def _sized_workload(
    schema: Schema, given: Workload | Iterable[Sequence[str]] | None, max_cells: int
) -> Workload:
    """The workload, if each of its marginals and each rule of the schema fits a model of ``max_cells``. Of
    all pairs, which nobody asked for by name, those that fit.
    """
    workload, sizes = workload_of(schema, given, weighting="cells"), schema.sizes
    if given is None:
        large = [clique for clique in workload if cell_count(sizes, clique) > max_cells]
        if 0 < len(large) < len(workload):
            named = ", ".join(" x ".join(clique) for clique in large[:3]) + (
                ", ..." if len(large) > 3 else ""
            )
            warnings.warn(
                f"{len(large)} of {len(workload)} pairs have more than max_cells={max_cells:,} cells and are "
                f"left out ({named}): coarser bins, fewer values or a larger max_cells would keep them",
                stacklevel=4,
            )
            workload = all_k_way(schema, 2, weighting="cells", max_cells=max_cells)
    for clique in [*workload, *((name,) for name in sizes)]:
        check_size(sizes, [clique], (), max_cells=max_cells)
    check_size(sizes, [], schema.rules, max_cells=max_cells)
    return workload

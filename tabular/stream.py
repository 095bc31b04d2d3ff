"""Tables over time: a stream of private batches of records in, a stream of synthetic tables out."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pandas as pd

from streams.ages import check_deletions
from streams.mechanism import Arrays, EventBudget, check_noise
from streams.schedule import Growing, Schedule, make_schedule
from streams.slots import check_times
from streams.stream import Counted, Stream, check_lifetime
from synthgeo import codec, validate
from synthgeo.errors import ConfigError
from synthgeo.parameters import check_settings
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.noise import Noise
from synthgeo.privacy.unit import PrivacyUnit
from synthgeo.schema import Schema
from synthgeo.sources import Source, open_source
from synthgeo.sources.declared import ColumnNames, Reading, check_columns
from tabular.counting import rows_of
from tabular.discovery import Unknown, trial_schema
from tabular.model.junction_tree import check_size
from tabular.over_time.baselines import Fresh
from tabular.over_time.every_step import EveryStepModel
from tabular.over_time.expiring_marginals import ExpiringMarginals, longest_wait
from tabular.over_time.method import Setup, TableMechanism
from tabular.over_time.rotating_marginals import Rotating
from tabular.records import TableRecords
from tabular.settings import TableSettings
from tabular.values import LaplaceCounts
from tabular.workload import Workload, all_k_way, cell_count, workload_of

MAX_CELLS = 50_000
# Bins or values that are still to be found: their share of ε, and at most so many bins.
FIND_SHARE, MOST_BINS = 0.1, 64


class TabularStream(Stream):
    """Releases a synthetic table after every batch of inserted (and deleted) records.

    Columns with ``bins="auto"``, and categories with ``candidates``, get their bins and values from the first
    batch, at a tenth of ε; what later batches hold is counted in these. ``schema`` is then the found one.

    A batch is a frame, a dict of arrays, a path or glob of files, or a dask DataFrame with the schema's
    columns, and optionally ``op`` (+1 insert, -1 delete). Missing values, unseen categories and the like
    follow the schema; a row that does not fit it is refused with its column and row, before anything is
    spent.

    Parameters
    ----------
    schema
        What is public about the columns (``Schema``).
    budget
        ε for the whole stream, however long it is. The guarantee is pure: δ must be 0.
    unit
        Who is protected. None: one event. ``PrivacyUnit.user(max_events=m)``: users with at most m events.
    lifetime
        A release describes the rows inserted in the last ``lifetime`` steps (1: in this step only), with
        noise that stays the same for ever. None: everything so far, inserted and not deleted.
    workload
        The marginals that matter. None: all pairs.
    deletions
        Whether batches can hold deletions: rows whose column ``op`` is -1. None: they can, but with a
        lifetime only where ``columns.inserted`` says when their row was inserted.
    columns
        Names of columns beside the schema's (``ColumnNames``): op, inserted.
    reading
        How text is read (``Reading``).
    settings
        All other choices (``TableSettings``).
    noise
        ``SystemNoise()`` unless given; ``SeededNoise(seed)`` for tests.
    ledger
        A ``Ledger`` to charge, where one data set has several products.

    Guarantee
    ---------
    Pure ε for one event, or for all events of a user under ``PrivacyUnit.user``, under add/remove
    neighbours. The number of rows is private: it is counted with noise like everything else. Where bins or
    values are found, that is purely private with its own tenth of ε, which only events of the first batch
    pay, and all else runs at the other nine tenths. See
    ``tabular.over_time.rotating_marginals.Rotating`` and ``tabular.over_time.every_step.EveryStepModel`` for
    the arguments, and ``docs/guarantees.md``."""

    state_kind = "tabular-stream"
    parts: ClassVar[dict[str, type]] = {"settings": TableSettings, "columns": ColumnNames}
    takes: ClassVar[tuple[str, ...] | None] = (
        "max_cells", "schedule", "t0", "horizon", "marginals_per_step", "borrow", "counter",
        "structure_share", "times", "times_share",
    )  # fmt: skip
    _reads: ClassVar[tuple[str, ...]] = ("op", "inserted")

    def __init__(
        self,
        *,
        schema: Schema,
        budget: PrivacyBudget,
        unit: PrivacyUnit | None = None,
        lifetime: int | None = None,
        workload: Workload | Iterable[Sequence[str]] | None = None,
        deletions: bool | None = None,
        columns: ColumnNames | None = None,
        reading: Reading | None = None,
        settings: TableSettings | None = None,
        noise: Noise | None = None,
        ledger: Any = None,
    ) -> None:
        validate.instance(schema, "schema", Schema)
        given = check_settings(settings, TableSettings).only(type(self).__name__, self.takes)
        chosen = replace(given, **self.fixed)
        names = check_columns(columns).only("a table", self._reads)
        counter, inserted = chosen.counter, names.inserted
        plan = make_schedule(chosen.schedule, auto=Growing())
        if plan.name in ("once", "release_driven"):
            raise ConfigError(
                "a tabular stream chooses its marginals over time: schedule 'auto' or 'every_step'"
            )
        if counter == "toeplitz":
            raise ConfigError("the Toeplitz counter is Gaussian; a tabular stream is purely private")
        structure_share = chosen.structure_share or self._usual_share(plan)
        event = EventBudget.of(
            budget, unit, structure_share, times_share=check_times(chosen.times, chosen.times_share)
        )
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
            "picks": chosen.marginals_per_step,
            "counter": counter,
            "horizon": chosen.horizon,
            "max_cells": chosen.max_cells or MAX_CELLS,
            "noise": source,
            "lifetime": lifetime,
            "borrow": self._check_borrow(chosen.borrow, lifetime),
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
                columns=names,
            ),
            mechanism=mechanism,
            event=event,
            lifetime=lifetime,
            schedule=plan,
            t0=chosen.t0,
            deletions=deletions,
            reading=reading,
            noise=source,
            ledger=ledger,
            times=chosen.times,
        )
        self.columns, self.settings = names, given
        self.workload = mechanism.setup.workload
        if self._unknown:
            self.schema = schema

    @staticmethod
    def _usual_share(plan: Schedule) -> float:
        """The dissertation chooses with half of ε at every step; less error with a quarter
        (benchmarks/results/sweep_tabular).
        """
        return 0.25 if plan.name == "every_step" else 0.1

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

    def choices(self) -> dict[str, Any]:
        values = super().choices()
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
            return EveryStepModel(setup) if plan.name == "every_step" else Rotating(setup)
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
            "workload": _workload_from(values["workload"], values["weights"]),
            "settings": codec.load(TableSettings, values["settings"]),
        }


class StreamingMWEM(TabularStream):
    """Algorithm 13 of Kumar's dissertation with PGM, made private as claimed: the baseline to compare with.

    Its settings are those of ``TabularStream`` but for ``horizon``, ``counter``, ``borrow``, ``times`` and
    ``schedule``.

    Guarantee
    ---------
    Pure event-level ε: that of ``tabular.over_time.baselines.Fresh``.
    """

    state_kind = "streaming-mwem"
    takes = ("max_cells", "t0", "marginals_per_step", "structure_share")
    fixed: ClassVar[dict[str, Any]] = {"schedule": "every_step", "borrow": False}
    _reads = ("op",)

    @staticmethod
    def _usual_share(plan: Schedule) -> float:  # noqa: ARG004
        return 0.5

    @staticmethod
    def _make_mechanism(plan: Schedule, setup: Setup) -> TableMechanism:  # noqa: ARG004
        return Fresh(setup)


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

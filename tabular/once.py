"""One table, released once: measure marginals, fit, sample."""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from synthgeo import codec, validate
from synthgeo.errors import BudgetExhausted, ConfigError, StateError
from synthgeo.parameters import Parameters, check_settings
from synthgeo.preflight import CheckReport, Probe, Users, preflight
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.filter import PrivacyFilter
from synthgeo.privacy.ledger import settle
from synthgeo.privacy.noise import Noise, SeededNoise, SystemNoise
from synthgeo.privacy.unit import PrivacyUnit
from synthgeo.release import provenance
from synthgeo.schema import Schema
from synthgeo.sources import open_source
from synthgeo.sources.declared import Reading, check_reading
from synthgeo.sources.source import Identified
from synthgeo.sources.windows import Ids
from synthgeo.state import MALFORMED, load_state, save_state
from tabular.counting import TableRows, rows_of
from tabular.discovery import Unknown, check_findable, trial_schema, word_counts
from tabular.marginals import Counts
from tabular.measuring import (
    Count,
    MeasuredColumns,
    few_enough,
    measure_by_choice,
    measure_by_scores,
)
from tabular.model.fitting import Measurement, fit, load_mbi, model_arrays, model_of, shrunk
from tabular.model.junction_tree import Clique, Layout, check_size
from tabular.model.value_groups import GroupedSnapshot, Groups, grouped_rules, lies_in
from tabular.release import TableRelease
from tabular.rounds import measure_in_rounds
from tabular.settings import TableSettings
from tabular.workload import Workload, workload_of

MAX_CELLS, ITERATIONS = 400_000, 1000
# Shares of the budget for bins, and for values of categories, where they are asked for; and of δ for values.
BIN_SHARE, VALUE_SHARE, VALUE_DELTA = 0.1, 0.1, 0.5
# No measurement gets less of the budget than this.
_LEAST_FRACTION = 1e-6
_KIND, _VERSION = "tabular-synthesizer", 2


@dataclass(frozen=True)
class _Fitted:
    """Everything that a fit leaves behind. It is set at once, so that a fit that was interrupted leaves
    nothing."""

    schema: Schema
    snapshot: GroupedSnapshot
    deviations: dict[Clique, float]
    way: str  # how marginals were found


def fit_table(
    columns: MeasuredColumns,
    count: Count,
    workload: Workload,
    *,
    selection: str = "auto",
    public_total: int | None = None,
    rounds: int | None = None,
    iterations: int = ITERATIONS,
    estimator: str = "own",
    progress: bool | None = None,
) -> tuple[GroupedSnapshot, dict[Clique, float], str]:
    """Measure a table with all that is left of its columns' budget, and fit a model: the model, the standard
    deviation of each measurement, and how marginals were found.
    """
    spending, max_cells = columns.spending, columns.max_cells
    options: dict[str, Any] = {"public_total": public_total, "most": rounds, "max_cells": max_cells}
    if selection != "auto":
        measured = measure_in_rounds(
            columns,
            count,
            workload,
            annealed=selection == "annealed",
            iterations=iterations,
            progress=progress,
            **options,
        )
    elif spending.kind == "gaussian" or (
        spending.kind == "pure" and few_enough(sum(len(c) > 1 for c in workload), len(columns.sizes))
    ):
        measured = measure_by_scores(columns, count, workload, **options)
    else:
        measured = measure_by_choice(columns, count, workload, **options)
    options = {"total": measured.total, "iterations": iterations, "estimator": estimator}

    def layout_of(found: Sequence[Measurement]) -> Layout:
        return columns.layout([m.clique for m in found])

    triples = [m for m in measured.found if m.interaction and len(m.clique) > 2]
    found = [m for m in measured.found if not (m.interaction and len(m.clique) > 2)]
    model = fit(layout_of(found), found, **options)
    if triples:  # they are many and noisy: what pairs say of them counts as well
        found += shrunk(triples, model)
        model = fit(layout_of(found), found, start=model, **options)
    own = {finer: name for name, finer in measured.finer.items()}
    deviations = {tuple(own.get(name, name) for name in m.clique): m.sigma for m in measured.found}
    return GroupedSnapshot(model, measured.groups, measured.finer), deviations, measured.way


class TabularSynthesizer(Parameters):
    """Releases a synthetic table once: noisy marginals of every column and of the pairs that matter, one
    model.

    How many marginals are measured, which, and with how much noise follows from the budget, the released
    number of rows, the columns' sizes and the model's room (``tabular.measuring``).

    Parameters
    ----------
    schema
        What is public about the columns (``Schema``).
    budget
        ε, and δ for Gaussian noise; spent whole by ``fit``.
    unit
        Who is protected. None: one record. ``PrivacyUnit.user(max_events=m)``: users with at most m records.
    workload
        The marginals that matter. None: all pairs, counted equally, and triples where all pairs can be
        measured with little noise.
    public_total
        The number of rows, where that is public. None: it follows from the noisy marginals.
    reading
        How text is read (``Reading``).
    settings
        All other choices (``TableSettings``).
    noise
        ``SystemNoise()`` unless given; ``SeededNoise(seed)`` for tests.
    ledger
        A ``Ledger`` to charge, where one data set has several products.
    progress
        Show a progress bar. None: where fitting takes long.

    Guarantee
    ---------
    (ε, δ) for one record, or for all records of a user, under add/remove neighbours; δ = 0 gives pure ε
    with Laplace noise, δ > 0 Gaussian noise. A record is in one cell of each marginal, so a measured
    histogram changes by 1 in one cell. ``PrivacyFilter`` adds up the parts: pure ε, exactly by Gaussian
    differential privacy where everything is Gaussian, else in zCDP; ``tabular.measuring`` and
    ``tabular.rounds`` say what they are. Bins found by PrivTree are purely private with their own share;
    values found for categories (``tabular.values``) have a tenth of the budget, in the filter's own noise,
    and half of δ where they are found without candidates. All else is post-processing.

    An interrupted fit leaves nothing that anybody could have seen: no bins, no model. Fitting again is then
    the first release. The ledger is charged before the first noise, and commits the fit before anybody can
    have the model. A fit of the same table that was stopped in between is made again on the same charge.
    Without a ledger, that no copy of this object was fitted too is the curator's word."""

    parts: ClassVar[dict[str, type]] = {"settings": TableSettings}
    takes = ("max_cells", "iterations", "selection", "rounds", "estimator")
    _takes_no_rows = False

    def __init__(
        self,
        *,
        schema: Schema,
        budget: PrivacyBudget,
        unit: PrivacyUnit | None = None,
        workload: Workload | Iterable[Sequence[str]] | None = None,
        public_total: int | None = None,
        reading: Reading | None = None,
        settings: TableSettings | None = None,
        noise: Noise | None = None,
        ledger: Any = None,
        progress: bool | None = None,
    ) -> None:
        self.reading = check_reading(reading)
        self._given_schema = validate.instance(schema, "schema", Schema)
        self.budget = validate.instance(budget, "budget", PrivacyBudget)
        self.unit = PrivacyUnit.event() if unit is None else validate.instance(unit, "unit", PrivacyUnit)
        self.unit.over_all_time()
        if self.unit.of != "event":
            raise ConfigError("a table protects records, or users with a bound on their records")
        self.settings = check_settings(settings, TableSettings).only("TabularSynthesizer", self.takes)
        self.public_total = (
            None if public_total is None else validate.rows(public_total, "public_total", low=1)
        )
        self.max_cells = self.settings.max_cells or MAX_CELLS
        self.iterations = self.settings.iterations or ITERATIONS
        if self.settings.estimator == "mbi":
            load_mbi()  # what is missing is noticed now
        self.noise = (
            SystemNoise() if noise is None else validate.instance(noise, "noise", SystemNoise, SeededNoise)
        )
        self.ledger = ledger
        self.progress = progress
        named = workload is None or isinstance(workload, Workload | str)
        self._given_workload: Any = workload if named else list(workload)  # type: ignore[arg-type]
        self._identity = secrets.token_hex(16)
        self._fitted: _Fitted | None = None
        if not schema.pending_bins and not schema.pending_values:
            self._check_workload(schema)
        check_findable(schema, budget)

    def _check_workload(self, schema: Schema) -> Workload:
        workload = workload_of(schema, self._given_workload, weighting="equal")
        if self._given_workload is not None:
            # Merging values makes a pair's table smaller, so only marginals that were asked for by name
            # are refused here.
            for clique in workload:
                check_size(schema.sizes, [clique], (), max_cells=self.max_cells)
        for name in schema.sizes:
            check_size(schema.sizes, [(name,)], (), max_cells=self.max_cells)
        # Other rules get as coarse as they have to.
        fixed = [rule for rule in schema.rules if not rule.mergeable]
        check_size(schema.sizes, [], fixed, max_cells=self.max_cells)
        return workload

    @property
    def schema(self) -> Schema:
        """The public facts of the table; after the fit with the bins that were found."""
        return self._given_schema if self._fitted is None else self._fitted.schema

    @property
    def spent(self) -> PrivacyBudget | None:
        """What the fit has spent; None before. Of this object: a ledger alone knows of its copies."""
        return None if self._fitted is None else self.budget

    def fit(self, data: Any) -> Self:
        """Read the private table, spend the budget, keep the model. The data is read, never changed, and only
        histograms of it leave the engine. A second call is refused: it would spend the budget again."""
        if self._fitted is not None:
            raise BudgetExhausted("this synthesizer has spent its budget; a new one would spend a new budget")
        schema = self._given_schema
        source = open_source(data, reading=self.reading)
        source.require(schema.inputs)
        known = None
        if self.ledger is not None:
            source = known = source.identified(self._kinds(schema))
        # Everything is checked with the most bins and values first: a refused table must cost nothing.
        trial = trial_schema(schema)
        self._check_workload(trial)
        return self._fit_rows(rows_of(source, trial, self.unit), trial, known)

    def fit_rows(self, rows: TableRows) -> Self:
        """Fit a table of records that is counted elsewhere, of which exact marginals can be asked for."""
        if self._fitted is not None:
            raise BudgetExhausted("this synthesizer has spent its budget; a new one would spend a new budget")
        trial = trial_schema(self._given_schema)
        self._check_workload(trial)
        return self._fit_rows(rows, trial, None)

    def _fit_rows(self, rows: TableRows, trial: Schema, known: Identified | None) -> Self:
        schema = self._given_schema
        singles = rows.marginals(trial, [(name,) for name in trial.sizes])
        if not self._takes_no_rows and not next(iter(singles.values())).any():
            self.reading.remark("the table has no rows")
        for name in (name for name in rows.misplaced(trial) if name not in schema.pending_values):
            self.reading.remark(
                f"column {name!r}: every value lies outside of what the schema declares for it, so that the "
                "schema or the file is a wrong one"
            )
        unknown = Unknown.of(schema, rows, trial)
        lists, values = unknown.lists(schema), len(unknown.words)
        spending, trees = self._budget(trial, bins=len(unknown.numbers), lists=lists)
        reservation = None
        if self.ledger is not None:
            content = None if known is None else known.identity.fingerprint
            reservation = self.ledger.reserve(
                _KIND, self.budget, self.unit, key=self._identity, content_hash=content
            )
        bound = self.unit.max_contributions
        found = unknown.found(
            schema,
            trees(),
            [word_counts(spending, VALUE_SHARE / values, bound=bound, rows=bound) for _ in range(values)],
            delta=self._discovery_delta() / max(lists, 1),
            noise=self.noise,
        )
        if found is not schema:
            schema, singles = found, rows.marginals(found, [(name,) for name in found.sizes])

        def count(groups: Mapping[str, Groups], cliques: Sequence[Clique]) -> Counts:
            return rows.marginals(schema, cliques, {name: g.group for name, g in groups.items()})

        fitted = self._privatise(spending, schema, singles, count)
        settle(self.ledger, reservation, self, "_fitted", fitted)
        return self

    def check(self, data: Any) -> CheckReport:
        """Everything in ``data`` that does not fit the schema, at once; spends nothing.

        The report is for the curator only.
        """
        source = open_source(data, reading=self.reading)
        trial = trial_schema(self._given_schema)
        uses: list[Any] = [trial.encode]
        probes: list[Probe] = []
        if self.unit.key is not None:
            uses.append(Ids(self.unit.key))
            probes.append(Users(self.unit.key, self.unit.max_contributions, "rows"))
        files = data if isinstance(data, list) else []
        return preflight(source, self._kinds(self._given_schema), uses, probes, files=files)

    def _discovery_delta(self) -> float:
        """The δ of all lists of values that are found without candidates."""
        return VALUE_DELTA * self.budget.delta

    def _budget(
        self, schema: Schema, *, bins: int, lists: int
    ) -> tuple[PrivacyFilter, Callable[[], list[float]]]:
        """The filter for everything that is measured, and what spends the ε of each column's bins, for one
        record. A budget that some measurement could not be made with is refused here, before anything is
        spent. Lists of values take a part of δ, the rest is the filter's: they are all that it would be, but
        for a probability of that part (``tabular.values.frequent_words``).
        """
        several = sum(len(clique) > 1 for clique in self._check_workload(schema))
        scores = few_enough(several, len(schema.sizes))
        shares = [BIN_SHARE / max(bins, 1)] * bins
        delta = self.budget.delta - (self._discovery_delta() if lists else 0.0)
        budget = PrivacyBudget(self.budget.epsilon, delta)
        if self.budget.is_pure or self.settings.selection != "auto" or not scores:
            spending = PrivacyFilter(budget, self.unit, self.noise)
            spending.check(_LEAST_FRACTION)
            return spending, lambda: [spending.pure_epsilon(share) for share in shares]
        alone = PrivacyFilter(budget, self.unit, self.noise, gaussian=True)
        each = [math.sqrt(share * alone.whole) for share in shares]
        spending = PrivacyFilter(budget, self.unit, self.noise, gaussian=True, pure=each)
        spending.check(_LEAST_FRACTION)
        return spending, lambda: each

    def _kinds(self, schema: Schema) -> dict[str, str]:
        """What is asked of each column: the columns that make the identity of the table."""
        return schema.kinds | ({} if self.unit.key is None else {self.unit.key: "id"})

    def _privatise(self, spending: PrivacyFilter, schema: Schema, singles: Counts, count: Count) -> _Fitted:
        columns = MeasuredColumns(
            spending, schema.attributes, schema.rules, singles, max_cells=self.max_cells, refined=True
        )
        snapshot, deviations, way = fit_table(
            columns,
            count,
            self._check_workload(schema),
            selection=self.settings.selection,
            public_total=self.public_total,
            rounds=self.settings.rounds,
            iterations=self.iterations,
            estimator=self.settings.estimator,
            progress=self.progress,
        )
        return _Fitted(schema, snapshot, deviations, way)

    def sample(self, rows: int | None = None, *, given: Mapping[str, Any] | None = None) -> TableRelease:
        """A synthetic table of ``rows`` rows, by default as many as the released number says.

        ``given`` fixes columns: a value, a range (low, high) of numbers or dates that is closed at both ends,
        None for a missing value, or a list of these; or a mapping of parts of a time. The model is
        conditioned on it. Every row meets it, and every rule of the schema. Costs no privacy."""
        fitted = self._after_fit()
        return TableRelease(
            step=1,
            spent=self.budget,
            provenance=provenance(
                mechanism="TabularSynthesizer",
                unit=self.unit,
                budget=self.budget,
                noise=self.noise,
                selection=fitted.way,
                schema=fitted.schema.fingerprint(),
                public_total=self.public_total is not None,
                marginals=[list(clique) for clique in fitted.deviations],
                given=None if not given else {name: repr(value) for name, value in given.items()},
            ),
            schema=fitted.schema,
            snapshot=fitted.snapshot,
            deviations=fitted.deviations,
            seed=int(self.noise.rng.integers(2**62)),
            rows=rows,
            given=given,
        )

    def _after_fit(self) -> _Fitted:
        if self._fitted is None:
            raise ConfigError("fit the synthesizer first")
        return self._fitted

    def __getstate__(self) -> dict[str, Any]:
        # A copy of what is not fitted yet pays for itself.
        return self.__dict__ if self._fitted else {**self.__dict__, "_identity": secrets.token_hex(16)}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model. It holds released numbers only."""
        save_state(path, _KIND, _VERSION, *self.to_state())

    def to_state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The fitted model as plain values and arrays; released numbers only."""
        fitted = self._after_fit()
        model, arrays = model_arrays(fitted.snapshot.model)
        values = {
            "identity": self._identity,
            "budget": self.budget.to_dict(),
            "unit": self.unit.to_dict(),
            "schema": fitted.schema.to_json(),
            "settings": codec.dump(self.settings)[0],
            "way": fitted.way,
            "public_total": self.public_total,
            "noise": self.noise.state(),
            "sizes": fitted.snapshot.model.layout.sizes,
            "model": model,
            "deviations": [[list(clique), value] for clique, value in fitted.deviations.items()],
        }
        for name, groups in fitted.snapshot.groups.items():
            arrays |= {f"group/{name}": groups.group, f"share/{name}": groups.share}
        if fitted.snapshot.finer:
            values["finer"] = fitted.snapshot.finer
            inside = {rule.attributes: rule.allowed for rule in fitted.snapshot.model.layout.rules}
            for pair in fitted.snapshot.finer.items():
                arrays[f"coarse/{pair[0]}"] = np.argmax(inside[pair], axis=0)
        return values, arrays

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, ledger: Any = None) -> TabularSynthesizer:
        """The fitted synthesizer that ``save`` wrote.

        ``ledger`` is charged for the fit, unless that was done when it was fitted or loaded before.
        """
        values, arrays = load_state(path, _KIND, _VERSION)
        try:
            synthesizer = cls.from_state(values, arrays, ledger=ledger)
        except MALFORMED as problem:
            raise StateError(f"{path}: not a saved synthesizer ({type(problem).__name__})") from problem
        if ledger is not None:
            ledger.charge(_KIND, synthesizer.budget, synthesizer.unit, key=str(values["identity"]))
        return synthesizer

    @classmethod
    def from_state(
        cls, values: dict[str, Any], arrays: dict[str, Any], *, ledger: Any = None
    ) -> TabularSynthesizer:
        """The fitted synthesizer that ``to_state`` described; charges nothing."""
        synthesizer = cls(
            schema=Schema.from_json(values["schema"]),
            budget=PrivacyBudget(**values["budget"]),
            unit=PrivacyUnit.from_dict(values["unit"]),
            settings=codec.load(TableSettings, values["settings"]),
            public_total=values["public_total"],
            noise=Noise.from_state(values["noise"]),
            ledger=ledger,
        )
        schema = synthesizer.schema
        groups = {n: Groups(arrays[f"group/{n}"], arrays[f"share/{n}"]) for n in schema.sizes}
        finer = {str(name): str(inside) for name, inside in values.get("finer", {}).items()}
        rules = grouped_rules(schema.rules, groups)
        rules += [lies_in(name, inside, arrays[f"coarse/{name}"]) for name, inside in finer.items()]
        model = model_of(values["sizes"], rules, values["model"], arrays)
        deviations = {tuple(names): float(value) for names, value in values["deviations"]}
        way = str(values["way"])
        synthesizer._fitted = _Fitted(schema, GroupedSnapshot(model, groups, finer), deviations, way)
        synthesizer._identity = str(values["identity"])
        return synthesizer

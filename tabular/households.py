"""Two tables, released once: a parent table (households) and a child table (persons), joined by a key."""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd

from streams.mechanism import check_noise, part_of, prefixed
from synthgeo import codec, validate
from synthgeo.arrays import Ints
from synthgeo.errors import BudgetExhausted, ConfigError, InputError, StateError
from synthgeo.parameters import Parameters, check_settings
from synthgeo.preflight import CheckReport, Finding, Users, preflight
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.filter import PrivacyFilter
from synthgeo.privacy.ledger import settle
from synthgeo.privacy.noise import Noise, generator
from synthgeo.privacy.unit import PrivacyUnit
from synthgeo.privacy.users import UserIds
from synthgeo.release import Release, provenance
from synthgeo.schema import Attribute, Ordinal, Schema
from synthgeo.sources import open_source
from synthgeo.sources.chunk import Chunk, refuse
from synthgeo.sources.declared import Reading, check_reading
from synthgeo.sources.values import ids
from synthgeo.sources.windows import Ids
from synthgeo.state import MALFORMED, load_state, save_state
from tabular.conditional import Codes, ConditionalTable, counter, settled_rows, singles_of
from tabular.counting import UserRecords, UserRows
from tabular.discovery import Unknown, check_findable, trial_schema, word_counts
from tabular.drawing import draw_rows, drawable
from tabular.measuring import MeasuredColumns, few_enough
from tabular.model.junction_tree import check_size
from tabular.model.value_groups import GroupedSnapshot
from tabular.once import BIN_SHARE, ITERATIONS, VALUE_DELTA, VALUE_SHARE, fit_table
from tabular.settings import TableSettings
from tabular.workload import all_k_way

MAX_CELLS = 200_000
# Synthetic households from which the child table learns what households look like.
_CONTEXT_ROWS = 20_000
_PLACE = "place among the children"
_LEAST_FRACTION = 1e-6
_KIND, _VERSION = "household-synthesizer", 2


@dataclass(frozen=True)
class _Tables:
    """What is declared of both tables."""

    parent: Schema
    child: Schema
    count: str
    max_children: int

    @cached_property
    def counted(self) -> Schema:
        """The parent schema with the number of children."""
        return Schema(
            {**self.parent.columns, self.count: Ordinal(range(self.max_children + 1))},
            impossible=self.parent.impossible,
            depends=self.parent.depends,
            relations=self.parent.relations,
        )

    @cached_property
    def attributes(self) -> list[Attribute]:
        """The attributes of a row of the child table: of its household, its place, its own."""
        above = [replace(a, name=_above(a.name)) for a in self.counted.attributes]
        return [*above, Attribute(_PLACE, self.max_children, ordered=True), *self.child.attributes]

    @property
    def both(self) -> tuple[Schema, Schema]:
        return self.parent, self.child

    def trial(self) -> _Tables:
        """With as many bins and values as columns can get."""
        return replace(self, parent=trial_schema(self.parent), child=trial_schema(self.child))


@dataclass(frozen=True)
class _Private:
    """The exact rows of both tables, those that count, and the household of each child. Private."""

    parents: UserRows
    children: UserRows
    household: Ints
    content: str | None

    def codes(self, tables: _Tables) -> tuple[Codes, Codes]:
        """The codes of households with the number of children, and of the children that count with what
        their household says.
        """
        codes = tables.child.encode(self.children.chunk)[self.children.kept]
        household = self.household[self.children.kept]
        # Sorted within each household by what the child is: a function of the household's own rows.
        order = np.lexsort((*codes.T[::-1], household))
        codes, household = codes[order], household[order]
        number = np.bincount(household, minlength=self.parents.chunk.rows)
        above = tables.parent.by_name(tables.parent.encode(self.parents.chunk)) | {tables.count: number}
        place = np.arange(len(household)) - (np.cumsum(number) - number)[household]
        below = {_above(name): found[household] for name, found in above.items()}
        below |= {_PLACE: place} | tables.child.by_name(codes)
        return above, below


@dataclass(frozen=True)
class _FittedTree:
    """Everything that a fit leaves behind: released numbers."""

    tables: _Tables
    parents: ConditionalTable
    children: ConditionalTable


class HouseholdSynthesizer(Parameters):
    """Releases a parent table and a child table once: households and their persons, orders and their items.

    ``fit(parents, children)`` reads both tables; ``sample`` draws households with fresh keys and their
    children.

    Parameters
    ----------
    parent, child
        The schemas of the two tables, without the key.
    max_children
        A household has at most this many children; of others this many are kept, chosen at random.
    budget
        ε, and δ for Gaussian noise; spent whole by ``fit``.
    key
        The column that joins the tables, in both.
    count
        The column of the synthetic parent table that says how many children there are.
    public_total
        The number of households, where that is public. None: it follows from the noisy marginals.
    reading
        How text is read (``Reading``).
    settings
        All other choices (``TableSettings``).
    noise
        ``SystemNoise()`` unless given; ``SeededNoise(seed)`` for tests.
    ledger
        A ``Ledger`` to charge, where one data set has several products.

    Notes
    -----
    Columns of both may leave their bins and values to the data, as in ``TabularSynthesizer``; ``parent`` and
    ``child`` are then the found ones after the fit. A value of children is found where so many *households*
    hold it as noise of standard deviation σ sqrt(k) hides from all but a δ (about six times that much; under
    pure ε, k/ε times a logarithm): list the values that are public, or candidates.

    The parent table is measured with one more column, the number of children. Each child is measured as one
    row: its own columns, its place among the children of its household (sorted by the child schema's first
    column, then by the next), and the columns of its household. Given a synthetic household and a place, a
    child's columns are drawn together. Two children of a household are alike as far as their household and
    their places tell: put the column that tells them apart (their relation, or their age) first.

    Guarantee
    ---------
    (ε, δ) for one household: its row of the parent table and all its children. Neighbours differ by one
    household. It is one record of the parent table, and at most ``max_children`` = k rows of the child table,
    all made from its own rows, which move a histogram or a score of that table by at most k, in sum and in
    length. So the parent table's share of the budget is spent as for a record, and the child table's divided
    by k (pure ε) or by k² (zCDP and Gaussian differential privacy); see ``PrivacyFilter.part``. Bins
    (``bins="auto"``) and values (``Categorical("private")``) are found before, in either table, with a tenth
    of the budget each, and half of δ where values are found without candidates (``_found``). What the child
    table learns about households comes from synthetic ones. Keys are numbered afresh. All else is
    post-processing.

    >>> import synthgeo as sg
    >>> households, persons = sg.simulate.households(3_000, seed=1)
    >>> parent, child = sg.simulate.household_schemas()
    >>> model = sg.HouseholdSynthesizer(
    ...     parent=parent, child=child, max_children=6, budget=sg.PrivacyBudget(2.0, 1e-6),
    ...     noise=sg.SeededNoise(1),
    ... ).fit(households, persons)
    >>> release = model.sample(100)
    >>> len(release.parents), sorted(release.children)[:3]
    (100, ['age', 'household_id', 'relation'])
    """

    parts: ClassVar[dict[str, type]] = {"settings": TableSettings}
    takes = ("max_cells", "iterations", "parent_share")

    def __init__(
        self,
        *,
        parent: Schema,
        child: Schema,
        max_children: int,
        budget: PrivacyBudget,
        key: str = "household_id",
        count: str = "children",
        public_total: int | None = None,
        reading: Reading | None = None,
        settings: TableSettings | None = None,
        noise: Noise | None = None,
        ledger: Any = None,
    ) -> None:
        validate.instance(parent, "parent", Schema)
        validate.instance(child, "child", Schema)
        self.unit = PrivacyUnit.household(max_children=max_children, key=key)
        self.max_children = self.unit.max_contributions
        self.budget = validate.instance(budget, "budget", PrivacyBudget)
        self.key, self.count = key, validate.text(count, "count (the column for the number of children)")
        self.settings = check_settings(settings, TableSettings).only("HouseholdSynthesizer", self.takes)
        self.public_total = (
            None if public_total is None else validate.rows(public_total, "public_total", low=1)
        )
        self.max_cells = self.settings.max_cells or MAX_CELLS
        self.iterations = self.settings.iterations or ITERATIONS
        self.reading = check_reading(reading)
        self.noise = check_noise(noise)
        self.ledger = ledger
        for what, schema in (("parent", parent), ("child", child)):
            if key in schema.inputs:
                raise ConfigError(f"the key {key!r} is no column of the {what} schema: keys are made afresh")
            check_findable(schema, budget)
            trial = trial_schema(schema)
            check_size(trial.sizes, [(name,) for name in trial.sizes], trial.rules, max_cells=self.max_cells)
        if count in parent.inputs or count == key:
            raise ConfigError(f"count={count!r} is a column already; leave it out of the parent schema")
        self._given_tables = _Tables(parent, child, count, self.max_children)
        self._identity = secrets.token_hex(16)
        self._fitted: _FittedTree | None = None

    @property
    def tables(self) -> _Tables:
        """What is known of both tables; after the fit with the bins and values that were found."""
        return self._given_tables if self._fitted is None else self._fitted.tables

    @property
    def parent(self) -> Schema:
        """The public facts of the parent table; after the fit with the bins and values that were found."""
        return self.tables.parent

    @property
    def child(self) -> Schema:
        """The same of the child table."""
        return self.tables.child

    @property
    def spent(self) -> PrivacyBudget | None:
        """What the fit has spent; None before. Of this object: a ledger alone knows of its copies."""
        return None if self._fitted is None else self.budget

    def fit(self, parents: Any, children: Any) -> Self:
        """Read both private tables, spend the budget, keep the model. The tables are read, never changed.

        Each household has one row of ``parents``; each row of ``children`` belongs to one of these. A second
        call is refused: it would spend the budget again.
        """
        if self._fitted is not None:
            raise BudgetExhausted("this synthesizer has spent its budget; a new one would spend a new budget")
        given = self._given_tables
        trial = given.trial()  # what fits the most bins and values fits those that are found
        private = self._read(parents, children, trial)
        rows = private.parents, private.children
        unknown = [Unknown.of(*each) for each in zip(given.both, rows, trial.both, strict=True)]
        spending, trees, delta = self._filter(unknown)
        reservation = None
        if self.ledger is not None:
            reservation = self.ledger.reserve(
                _KIND, self.budget, self.unit, key=self._identity, content_hash=private.content
            )
        tables = self._found(unknown, spending, trees(), delta)
        fitted = self._privatise(spending, tables, *private.codes(tables))
        settle(self.ledger, reservation, self, "_fitted", fitted)
        return self

    def check(self, parents: Any, children: Any) -> CheckReport:
        """Everything in both tables that does not fit their schemas, and keys that do not, at once; spends
        nothing.

        The report is for the curator only.
        """
        reports, trial = {}, self._given_tables.trial()
        for table, data, schema in (("parent", parents, trial.parent), ("child", children, trial.child)):
            bound = Users(self.key, self.max_children, "children", "households")
            reports[table] = preflight(
                open_source(data, reading=self.reading),
                {**schema.kinds, self.key: "id"},
                [schema.encode, Ids(self.key)],
                [bound] if table == "child" else [],
            )
        findings = [
            replace(finding, text=f"{table} table: {finding.text}")
            for table, report in reports.items()
            for finding in report.findings
        ]
        if all(report.ok for report in reports.values()):
            try:
                self._read(parents, children, trial)
            except InputError as problem:
                findings.append(Finding("problem", str(problem)))
        columns = [report.columns.assign(table=table) for table, report in reports.items()]
        rows = sum(report.rows for report in reports.values())
        return CheckReport(rows, tuple(findings), pd.concat(columns, ignore_index=True))

    def _read(self, parents: Any, children: Any, tables: _Tables) -> _Private:
        """The exact rows of both tables, as far as they count."""
        sources = [open_source(data, reading=self.reading) for data in (parents, children)]
        chunks, users, hashes = [], [], []
        for source, schema in zip(sources, tables.both, strict=True):
            source.require([*schema.inputs, self.key])
            known = source
            if self.ledger is not None:
                known = source.identified({**schema.kinds, self.key: "id"})
            check = UserRecords(schema, self.key)
            chunk = known.read(list(dict.fromkeys([*schema.inputs, self.key])), check=check)
            if self.ledger is not None:
                hashes.append(known.identity.fingerprint)  # type: ignore[attr-defined]
            chunks.append(chunk)
            users.append(ids(chunk, self.key))
        if not chunks[0].rows:
            self.reading.remark("the parent table has no rows")
        chunks, users, household = self._households(chunks, users)
        bound = PrivacyUnit.user(max_events=self.max_children, key=self.key)
        return _Private(
            UserRows(chunks[0], users[0], np.ones(chunks[0].rows, dtype=bool)),
            UserRows.of(chunks[1], users[1], tables.child, bound),
            household,
            "".join(hashes) or None,
        )

    def _households(
        self, chunks: list[Chunk], users: list[UserIds]
    ) -> tuple[list[Chunk], list[UserIds], Ints]:
        """Both tables and their keys as far as they count, and the row of the parent table to which each
        child belongs.

        A household counts once, with the first of its rows of the parent table, and its children count where
        it has one: its own rows decide. Attended use refuses other rows, and unattended use drops them.
        """
        codes = UserIds.concatenate(users).codes()
        above, below = codes[: len(users[0])], codes[len(users[0]) :]
        first = np.full(int(codes.max(initial=-1)) + 1, -1, dtype=np.int64)
        first[above[::-1]] = np.arange(len(above))[::-1]
        checks = (
            (first[above] != np.arange(len(above)), "stands in an earlier row of the parent table"),
            (first[below] < 0, "has no row in the parent table"),
        )
        for at, (wrong, problem) in enumerate(checks):
            if not self.reading.unattended:
                try:
                    refuse(wrong, self.key, problem)
                except InputError as found:
                    raise chunks[at].located(found) from None
            elif wrong.any():
                self.reading.remark(f"column {self.key!r} in {wrong.sum()} rows: {problem}; they are dropped")
                kept = np.flatnonzero(~wrong)
                chunks[at], users[at] = chunks[at].take(kept), users[at].take(kept)
        rank = np.cumsum(~checks[0][0]) - 1
        return chunks, users, rank[first[below[~checks[1][0]]]]

    def _filter(self, unknown: list[Unknown]) -> tuple[PrivacyFilter, Callable[[], list[float]], float]:
        """The budget of one household; what spends the ε of each column whose bins are to be found, of
        parents first, for one household; and the δ of each list of values without candidates. A budget that
        some measurement could not be made with is refused here.
        """
        tables = self._given_tables
        fresh, known = len(tables.trial().child.sizes), len(tables.trial().counted.sizes) + 1
        pairs = fresh * (fresh - 1) // 2 + fresh * known
        bins = sum(len(u.numbers) for u in unknown)
        lists = sum(u.lists(schema) for u, schema in zip(unknown, tables.both, strict=True))
        for_lists = VALUE_DELTA * self.budget.delta if lists else 0.0
        budget = PrivacyBudget(self.budget.epsilon, self.budget.delta - for_lists)
        shares = [BIN_SHARE / max(bins, 1)] * bins
        event, gaussian = PrivacyUnit.event(), few_enough(pairs, fresh + known) and not budget.is_pure
        spending = PrivacyFilter(budget, event, self.noise, gaussian=gaussian)

        def trees() -> list[float]:
            return [spending.pure_epsilon(share) for share in shares]

        if gaussian and shares:
            each = [math.sqrt(share * spending.whole) for share in shares]
            spending = PrivacyFilter(budget, event, self.noise, gaussian=True, pure=each)
            trees = each.copy
        spending.check(_LEAST_FRACTION / self.max_children**2)
        return spending, trees, for_lists / max(lists, 1)

    def _found(
        self, unknown: list[Unknown], spending: PrivacyFilter, trees: list[float], delta: float
    ) -> _Tables:
        """Both tables with the bins and values that are found.

        Guarantee
        ---------
        For one household, the sum of ``trees``, a tenth of the filter, and ``delta`` for each list without
        candidates: it has one row of the parent table, and of the child table at most k, which move a
        column's counts by k in sum and hold at most k values, each counted once per household: by k in sum
        and by sqrt(k) in length. So a child column's trees get 1/k of its ε for one row (``Unknown.found``),
        and its values the noise of k (``word_counts``).
        """
        values, made = sum(len(u.words) for u in unknown), []
        for one, schema, k in zip(unknown, self._given_tables.both, (1, self.max_children), strict=True):
            own, trees = trees[: len(one.numbers)], trees[len(one.numbers) :]
            words = [word_counts(spending, VALUE_SHARE / values, bound=k) for _ in one.words]
            each = [epsilon / k for epsilon in own]
            made.append(one.found(schema, each, words, delta=delta, noise=self.noise))
        return replace(self._given_tables, parent=made[0], child=made[1])

    def _privatise(self, spending: PrivacyFilter, tables: _Tables, above: Codes, below: Codes) -> _FittedTree:
        first = spending.part(self.settings.parent_share * spending.left)
        parts = first, spending.part(spending.left, bound=self.max_children)
        schema = tables.counted
        singles = singles_of(above, schema.sizes)
        columns = MeasuredColumns(
            parts[0], schema.attributes, schema.rules, singles, max_cells=self.max_cells
        )
        snapshot, deviations, _ = fit_table(
            columns,
            counter(above),
            all_k_way(schema, 2, weighting="equal"),
            public_total=self.public_total,
            iterations=self.iterations,
        )
        parents = ConditionalTable(snapshot, deviations, ())
        rng = self.noise.rng
        context = self._context(_draw_parents(tables, snapshot, _CONTEXT_ROWS, rng, {})[1])
        total = snapshot.total * len(context[_PLACE]) / _CONTEXT_ROWS
        children = ConditionalTable.fit(
            parts[1],
            tables.attributes,
            tables.child.rules,
            below,
            context,
            total=max(total, 1.0),
            max_cells=self.max_cells,
            iterations=self.iterations,
        )
        return _FittedTree(tables, parents, children)

    def _context(self, parents: Codes) -> dict[str, Ints]:
        """What is known of each child of some households."""
        number = parents[self.count]
        row = np.repeat(np.arange(len(number)), number)
        place = np.arange(len(row)) - np.repeat(np.cumsum(number) - number, number)
        return {_above(name): found[row] for name, found in parents.items()} | {_PLACE: place}

    def draw(
        self, rows: int, rng: np.random.Generator, given: Mapping[str, Any]
    ) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Synthetic households and their children, with fresh keys. Post-processing."""
        fitted = self._after_fit()
        parents, codes = _draw_parents(self.tables, fitted.parents.snapshot, rows, rng, given)
        context = self._context(codes)
        names = list(self.child.sizes)

        def again(at: Ints) -> Ints:
            drawn = fitted.children.draw({name: found[at] for name, found in context.items()}, rng)
            return np.column_stack([drawn[name] for name in names])

        found, values = settled_rows(self.child, fitted.children.snapshot, again, len(context[_PLACE]), rng)
        children = self.child.frame(found, values, rng)
        keys = np.arange(1, rows + 1)
        parents.insert(0, self.key, keys)
        children.insert(0, self.key, np.repeat(keys, codes[self.count]))
        return parents, children

    def sample(self, rows: int | None = None, *, given: Mapping[str, Any] | None = None) -> HouseholdRelease:
        """``rows`` synthetic households, by default as many as the released number says, and their children.

        ``given`` fixes columns of the households, as in ``TabularSynthesizer.sample``; ``count`` is one of
        them. Costs no privacy.
        """
        fitted = self._after_fit()
        return HouseholdRelease(
            model=self,
            rows=round(fitted.parents.snapshot.total) if rows is None else drawable(self.parent, rows),
            given=dict(given or {}),
            seed=int(self.noise.rng.integers(2**62)),
        )

    def statement(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """What goes with a release: public facts."""
        return provenance(
            mechanism="HouseholdSynthesizer",
            unit=self.unit,
            budget=self.budget,
            noise=self.noise,
            schema=self.parent.fingerprint(),
            child_schema=self.child.fingerprint(),
            key=self.key,
            public_total=self.public_total is not None,
            given={name: repr(value) for name, value in given.items()} or None,
        )

    def errors(self) -> pd.DataFrame:
        """The noise of each measured marginal of both tables."""
        fitted = self._after_fit()
        rows = [
            (table, " x ".join(clique), sigma)
            for table, held in (("parents", fitted.parents), ("children", fitted.children))
            for clique, sigma in held.deviations.items()
        ]
        return pd.DataFrame(rows, columns=["table", "marginal", "standard_error_per_cell"])

    def _after_fit(self) -> _FittedTree:
        if self._fitted is None:
            raise ConfigError("fit the synthesizer first")
        return self._fitted

    def __getstate__(self) -> dict[str, Any]:
        # A copy of what is not fitted yet pays for itself.
        return self.__dict__ if self._fitted else {**self.__dict__, "_identity": secrets.token_hex(16)}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model. It holds released numbers only."""
        fitted = self._after_fit()
        (above, high), (below, low) = fitted.parents.to_state(), fitted.children.to_state()
        values = {
            "identity": self._identity,
            "budget": self.budget.to_dict(),
            "parent": self.parent.to_json(),
            "child": self.child.to_json(),
            **{name: getattr(self, name) for name in ("max_children", "key", "count", "public_total")},
            "settings": codec.dump(self.settings)[0],
            "noise": self.noise.state(),
            "parents": above,
            "children": below,
        }
        save_state(path, _KIND, _VERSION, values, prefixed("parents", high) | prefixed("children", low))

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, ledger: Any = None) -> HouseholdSynthesizer:
        """The fitted synthesizer that ``save`` wrote.

        ``ledger`` is charged for the fit, unless that was done when it was fitted or loaded before.
        """
        values, arrays = load_state(path, _KIND, _VERSION)
        try:
            made = cls(
                parent=Schema.from_json(values["parent"]),
                child=Schema.from_json(values["child"]),
                max_children=values["max_children"],
                budget=PrivacyBudget(**values["budget"]),
                key=values["key"],
                count=values["count"],
                public_total=values["public_total"],
                settings=codec.load(TableSettings, values["settings"]),
                noise=Noise.from_state(values["noise"]),
                ledger=ledger,
            )
            made._fitted = _FittedTree(
                made.tables,
                ConditionalTable.from_state(
                    values["parents"], part_of("parents", arrays), made.tables.counted.rules
                ),
                ConditionalTable.from_state(
                    values["children"], part_of("children", arrays), made.child.rules
                ),
            )
            made._identity = str(values["identity"])
        except MALFORMED as problem:
            raise StateError(f"{path}: not a saved synthesizer ({type(problem).__name__})") from problem
        if ledger is not None:
            ledger.charge(_KIND, made.budget, made.unit, key=str(values["identity"]))
        return made


class HouseholdRelease(Release):
    """Synthetic households with their children: ``parents`` and ``children``, joined by the key."""

    product = "table"

    def __init__(
        self, *, model: HouseholdSynthesizer, rows: int, given: Mapping[str, Any], seed: int
    ) -> None:
        super().__init__(step=1, spent=model.budget, provenance=model.statement(given))
        model.tables.counted.conditions(given)  # what cannot be met is refused now
        self.schema = model.parent
        self.child_schema = model.child
        self._model, self._rows, self._given, self._seed = model, rows, dict(given), seed

    @cached_property
    def _tables(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        return self._model.draw(self._rows, generator(self._seed), self._given)

    @property
    def total(self) -> int:
        """Number of synthetic households."""
        return self._rows

    @property
    def parents(self) -> pd.DataFrame:
        """One row per household; the same as ``data``."""
        return self.data

    @property
    def children(self) -> pd.DataFrame:
        """One row per child."""
        return self._tables[1]

    @property
    def layers(self) -> dict[str, pd.DataFrame]:
        return {"parents": self.parents, "children": self.children}

    def _build(self) -> pd.DataFrame:
        return self._tables[0]

    def redraw(self, turn: int) -> HouseholdRelease:
        """The same release with other synthetic households drawn from the same model."""
        twin = copy(self)
        for name in ("data", "_tables"):
            twin.__dict__.pop(name, None)
        twin._seed = self._seed + turn  # noqa: SLF001 - a copy of itself
        return twin

    def expected_error(self) -> pd.DataFrame:
        return self._model.errors()


def _draw_parents(
    tables: _Tables,
    snapshot: GroupedSnapshot,
    rows: int,
    rng: np.random.Generator,
    given: Mapping[str, Any],
) -> tuple[pd.DataFrame, Codes]:
    """Synthetic households, as a frame and as codes."""
    schema = tables.counted
    frame = draw_rows(schema, snapshot, rows, rng, given)
    chunk = open_source(frame).read(schema.inputs)
    return frame, schema.by_name(schema.encode(chunk))


def _above(name: str) -> str:
    """The name of a household's attribute in a row of the child table."""
    return f"household: {name}"

"""One table, released once: measure marginals, fit, sample."""

from __future__ import annotations

import hashlib
import math
import os
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from synthgeo import validate
from synthgeo.domain.schema import Rule, Schema
from synthgeo.domain.schema.columns import Numeric
from synthgeo.errors import BudgetExhausted, ConfigError, InputError, StateError
from synthgeo.parameters import Parameters
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.filter import PrivacyFilter
from synthgeo.privacy.noise import Noise, SystemNoise
from synthgeo.privacy.unit import PrivacyUnit
from synthgeo.progress import track
from synthgeo.release import provenance
from synthgeo.sources import open_source
from synthgeo.sources.declared import Reading, check_reading
from synthgeo.state import load_state, save_state
from tabular.bins import tree_edges, with_fine_bins
from tabular.counting import rows_of
from tabular.marginals import Counts
from tabular.model.fitting import Measurement, Model, fit
from tabular.model.junction_tree import Layout, check_size, room_for
from tabular.model.mbi import load_mbi
from tabular.model.message_passing import Clique
from tabular.model.value_groups import GroupedSnapshot, Groups, find_groups
from tabular.release import TableRelease
from tabular.snapshot import model_arrays, model_of
from tabular.workload import Workload, l1_scores, score_sensitivity, workload_of

MAX_CELLS = 400_000
# Shares of the budget: bins (where asked for), columns alone, and of each round's part, its selection.
BIN_SHARE, SINGLE_SHARE, CHOICE_SHARE = 0.1, 0.25, 0.15
# Marginals of several columns that are planned for, for each column.
PLANNED = 1.5
# Annealed selection takes about as many rounds at most.
MOST_ROUNDS = 25
# No column enters the joint model with more groups than about this.
MOST_GROUPS = 200
_KIND, _VERSION = "tabular-synthesizer", 1


@dataclass(frozen=True)
class _Fitted:
    """Everything that a fit leaves behind. It is set at once, so that a fit that was interrupted leaves
    nothing."""

    schema: Schema
    snapshot: GroupedSnapshot
    deviations: dict[Clique, float]


class TabularSynthesizer(Parameters):
    """Releases a synthetic table once: noisy marginals of every column and of the pairs that matter, one
    model.

    ``selection="annealed"`` picks marginals in rounds and makes later measurements more accurate when a
    round taught nothing that its noise does not explain, as AIM does (McKenna et al., 2022).
    ``selection="mwem"`` runs ``rounds`` rounds of one marginal at equal cost (MWEM+PGM). ``workload``
    names the marginals that matter, by default all pairs, counted equally. ``public_total`` is the number
    of rows where that is public; else it follows from the noisy marginals. ``estimator="mbi"`` fits with the
    library of that name instead of our own mirror descent; it is slower.

    Guarantee
    ---------
    (ε, δ) for one record, or for all records of a user, under add/remove neighbours; δ = 0 gives pure ε
    with Laplace noise, δ > 0 goes through zCDP with Gaussian noise. A record is in one cell of each
    marginal, so a measured histogram changes by 1 in one cell, and a score weight * (|counts - model|_1 -
    penalty) by at most its weight; model and penalty depend on earlier noisy numbers only.
    ``PrivacyFilter`` adds up the parts. Bins found by PrivTree are purely private with their own share. All
    else is post-processing.

    An interrupted fit leaves nothing that anybody could have seen: no bins, no model. Fitting again is then
    the first release, and the ledger, which is charged before the first noise, is charged once for both."""

    def __init__(
        self,
        *,
        schema: Schema,
        budget: PrivacyBudget,
        unit: PrivacyUnit | None = None,
        workload: Workload | Iterable[Sequence[str]] | None = None,
        rounds: int | None = None,
        selection: str = "annealed",
        public_total: int | None = None,
        max_cells: int = MAX_CELLS,
        iterations: int = 1000,
        estimator: str = "own",
        reading: Reading | None = None,
        noise: Noise | None = None,
        ledger: Any = None,
        progress: bool | None = None,
    ) -> None:
        self.reading = check_reading(reading)
        if not isinstance(schema, Schema):
            raise ConfigError(f"schema must be a Schema, got {type(schema).__name__}")
        if not isinstance(budget, PrivacyBudget):
            raise ConfigError(f"budget must be a PrivacyBudget, got {budget!r}")
        self.unit = PrivacyUnit.event() if unit is None else unit
        if self.unit.of != "event":
            raise ConfigError("a table protects records, or users with a bound on their records")
        if selection not in ("annealed", "mwem"):
            raise ConfigError(f"selection must be 'annealed' or 'mwem', got {selection!r}")
        whole = {"rounds": rounds, "public_total": public_total, "iterations": iterations}
        for name, value in {**whole, "max_cells": max_cells}.items():
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise ConfigError(f"{name} must be a whole number >= 1, got {value!r}")
        self._given_schema = schema
        self.budget = budget
        self.selection = selection
        self.rounds = rounds
        self.public_total = public_total
        self.max_cells = max_cells
        self.iterations = iterations
        self.estimator = validate.one_of(estimator, "estimator", ("own", "mbi"))
        if estimator == "mbi":
            load_mbi()  # what is missing is noticed now
        self.noise = SystemNoise() if noise is None else noise
        if not isinstance(self.noise, Noise):
            raise ConfigError(f"noise must be a SystemNoise or SeededNoise, got {type(noise).__name__}")
        self.ledger = ledger
        self.progress = progress
        named = workload is None or isinstance(workload, Workload | str)
        self._given_workload: Any = workload if named else list(workload)  # type: ignore[arg-type]
        self._identity = secrets.token_hex(16)
        self._fitted: _Fitted | None = None
        if not schema.pending_bins:
            self._check_workload(schema)

    def _check_workload(self, schema: Schema) -> Workload:
        workload = workload_of(schema, self._given_workload, weighting="equal")
        if self._given_workload is not None:
            # Merging values makes a pair's table smaller, so only marginals that were asked for by name
            # are refused here.
            for clique in workload:
                check_size(schema.sizes, [clique], (), max_cells=self.max_cells)
        for name in schema.sizes:
            check_size(schema.sizes, [(name,)], (), max_cells=self.max_cells)
        check_size(schema.sizes, [], schema.rules, max_cells=self.max_cells)
        return workload

    @property
    def schema(self) -> Schema:
        """The public facts of the table; after the fit with the bins that were found."""
        return self._given_schema if self._fitted is None else self._fitted.schema

    @property
    def spent(self) -> PrivacyBudget | None:
        """What the fit has spent; None before."""
        return None if self._fitted is None else self.budget

    def _charge(self, content: str | None = None) -> None:
        """Charge the ledger. The key makes it one charge, however often the fit is tried."""
        if self.ledger is not None:
            self.ledger.charge(
                product=_KIND, budget=self.budget, unit=self.unit, content_hash=content, key=self._identity
            )

    def fit(self, data: Any) -> Self:
        """Read the private table, spend the budget, keep the model. The data is read, never changed, and only
        histograms of it leave the engine. A second call is refused: it would spend the budget again."""
        if self._fitted is not None:
            raise BudgetExhausted("this synthesizer has spent its budget; a new one would spend a new budget")
        source = open_source(data, reading=self.reading)
        schema = self._given_schema
        source.require(schema.inputs)
        pending = {name: schema.columns[name] for name in schema.pending_bins}
        # Everything is checked with the finest bins first: a refused table must cost nothing.
        trial = with_fine_bins(schema)
        self._check_workload(trial)
        rows = rows_of(source, trial, self.unit)
        needed = [(name,) for name in trial.sizes] if pending else self._needed(trial)
        counts = rows.marginals(trial, needed)
        if not counts[needed[0]].any():
            raise InputError("the table has no rows: nothing was fitted and nothing spent")
        fine = {name: rows.fine(name, c) for name, c in pending.items() if isinstance(c, Numeric)}
        spending = PrivacyFilter(self.budget, self.unit, self.noise)
        self._check_noise(spending, trial, bins=len(fine))
        self._charge(None if self.ledger is None else source.fingerprint(self._kinds(schema)))
        for name, vector in fine.items():
            column = pending[name]
            assert isinstance(column, Numeric)
            epsilon = spending.pure_epsilon(BIN_SHARE / len(fine))
            schema = schema.with_column(
                name, column.with_edges(tree_edges(column, vector, epsilon=epsilon, noise=self.noise))
            )
        if pending:
            counts = rows.marginals(schema, self._needed(schema))
        self._fitted = self._privatise(spending, schema, counts)
        return self

    def _kinds(self, schema: Schema) -> dict[str, str]:
        """What is asked of each column: the columns that make the identity of the table."""
        return schema.kinds | ({} if self.unit.key is None else {self.unit.key: "id"})

    def _check_noise(self, spending: PrivacyFilter, schema: Schema, *, bins: int) -> None:
        """Refuse a budget that some measurement could not be made with, before anything is spent."""
        columns = len(schema.sizes)
        left = 1 - SINGLE_SHARE - BIN_SHARE
        fractions = [SINGLE_SHARE / columns, left * (1 - CHOICE_SHARE) / self._planned(schema)]
        spending.check(min([*fractions, BIN_SHARE / (3 * bins)] if bins else fractions))

    def _planned(self, schema: Schema) -> int:
        """How many marginals of several columns the budget is planned for."""
        most = sum(len(clique) > 1 for clique in self._check_workload(schema))
        return max(1, min(self.rounds or round(PLANNED * len(schema.sizes)), most))

    def _needed(self, schema: Schema) -> list[Clique]:
        return [*((name,) for name in schema.sizes), *self._check_workload(schema)]

    def _privatise(self, spending: PrivacyFilter, schema: Schema, counts: Counts) -> _Fitted:
        sizes = schema.sizes
        share = SINGLE_SHARE / len(sizes)
        deviation = spending.sigma(share)
        singles = {name: spending.measure(counts[name,], share) for name in sizes}
        total = self.public_total or _total(singles)
        workload = self._check_workload(schema)
        several = [c for c in workload if len(c) > 1]
        planned = self._planned(schema)
        per_pair = spending.sigma(max(spending.left, 1e-9) * (1 - CHOICE_SHARE) / planned)
        ruled = {name for rule in schema.rules for name in rule.attributes}
        # A group should stand out of its own noise, and two groups' common cell out of a pair's.
        least = max(3 * deviation, math.sqrt(total * per_pair), total / MOST_GROUPS)
        groups = {
            a.name: find_groups(a, singles[a.name], least=least, total=total, keep=a.name in ruled)
            for a in schema.attributes
        }
        board = _Board(
            self, spending, workload, schema.rules, _merged(counts, several, groups), groups, total
        )
        for name, noisy in singles.items():
            merged = np.bincount(groups[name].group, weights=noisy).astype(np.float64)
            board.add(Measurement((name,), merged, deviation * math.sqrt(sizes[name] / groups[name].size)))
        board.refit(50)
        if several:
            board.run(planned, annealed=self.selection == "annealed")
        model = board.refit(self.iterations)
        deviations = {m.clique: m.sigma for m in board.found.values()}
        return _Fitted(schema, GroupedSnapshot(model, groups), deviations)

    def sample(self, rows: int | None = None, *, given: Mapping[str, Any] | None = None) -> TableRelease:
        """A synthetic table of ``rows`` rows, by default as many as the released number says.

        ``given`` fixes columns: a value, a list of values, a range (low, high) of a numeric column, a
        mapping of parts of a time. The model is conditioned on it exactly; no rows are thrown away. Costs
        no privacy."""
        fitted = self._after_fit()
        return TableRelease(
            step=1,
            spent=self.budget,
            provenance=provenance(
                mechanism="TabularSynthesizer",
                unit=self.unit,
                budget=self.budget,
                noise=self.noise,
                selection=self.selection,
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

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model. It holds released numbers only."""
        fitted = self._after_fit()
        model, arrays = model_arrays(fitted.snapshot.model)
        values = {
            "identity": self._identity,
            "budget": self.budget.to_dict(),
            "unit": self.unit.to_dict(),
            "schema": fitted.schema.to_json(),
            "selection": self.selection,
            "public_total": self.public_total,
            "noise": self.noise.state(),
            "sizes": fitted.snapshot.model.layout.sizes,
            "model": model,
            "deviations": [[list(clique), value] for clique, value in fitted.deviations.items()],
        }
        for name, groups in fitted.snapshot.groups.items():
            arrays |= {f"group/{name}": groups.group, f"share/{name}": groups.share}
        save_state(path, _KIND, _VERSION, values, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, ledger: Any = None) -> TabularSynthesizer:
        """The fitted synthesizer that ``save`` wrote.

        ``ledger`` is charged for the fit, unless that was done when it was fitted or loaded before.
        """
        values, arrays = load_state(path, _KIND, _VERSION)
        try:
            synthesizer = cls(
                schema=Schema.from_json(values["schema"]),
                budget=PrivacyBudget(**values["budget"]),
                unit=PrivacyUnit.from_dict(values["unit"]),
                selection=values["selection"],
                public_total=values["public_total"],
                noise=Noise.from_state(values["noise"]),
                ledger=ledger,
            )
            schema = synthesizer.schema
            model = model_of(values["sizes"], schema.rules, values["model"], arrays)
            groups = {n: Groups(arrays[f"group/{n}"], arrays[f"share/{n}"]) for n in schema.sizes}
            deviations = {tuple(names): float(value) for names, value in values["deviations"]}
            synthesizer._fitted = _Fitted(schema, GroupedSnapshot(model, groups), deviations)
            # Files of 0.1.0 have no identity: theirs is what they hold.
            held = hashlib.sha256(Path(path).read_bytes()).hexdigest()
            synthesizer._identity = str(values.get("identity", held))
        except (KeyError, TypeError, ConfigError) as problem:
            raise StateError(f"{path}: not a saved synthesizer ({problem})") from problem
        synthesizer._charge()
        return synthesizer


class _Board:
    """The measurements so far, and the model that fits them."""

    def __init__(
        self,
        owner: TabularSynthesizer,
        spending: PrivacyFilter,
        workload: Workload,
        rules: Sequence[Rule],
        counts: Counts,
        groups: Mapping[str, Groups],
        total: float,
    ) -> None:
        self.owner = owner
        self.spending = spending
        self.counts = counts
        self.sizes = {name: group.size for name, group in groups.items()}
        self.total = total
        self.rules = rules
        self.found: dict[Clique, Measurement] = {}
        self.model = Model(Layout(self.sizes, [], self.rules), total)
        weights = dict(zip(workload.cliques, workload.weights, strict=True))
        self.weights = {clique: weights[clique] for clique in counts}

    def add(self, fresh: Measurement) -> None:
        """Keep a measurement; one of the same marginal is combined with the earlier one by precision."""
        old = self.found.get(fresh.clique)
        if old is not None:
            a, b = old.sigma**-2, fresh.sigma**-2
            fresh = Measurement(fresh.clique, (a * old.values + b * fresh.values) / (a + b), (a + b) ** -0.5)
        self.found[fresh.clique] = fresh

    def refit(self, iterations: int) -> Model:
        layout = Layout(self.sizes, list(self.found), self.rules)
        self.model = fit(
            layout,
            list(self.found.values()),
            total=self.total,
            start=self.model,
            iterations=iterations,
            estimator=self.owner.estimator,
        )
        return self.model

    def run(self, planned: int, *, annealed: bool) -> None:
        """Rounds of choosing, measuring and fitting until the budget is spent.

        Annealed rounds hold several marginals where there are many to choose: each round ends with a fit.
        """
        a_round = math.ceil(planned / MOST_ROUNDS) if annealed else 1
        part = self.spending.left / planned
        for _ in track(range(planned), label="marginals", enabled=self.owner.progress):
            if self.spending.left < 1e-6:
                break
            before = self.model
            cliques = self._round(a_round, part)
            if not cliques:
                break
            self.refit(self.owner.iterations // 4)
            if annealed:
                noise = self.spending.sigma(part * (1 - CHOICE_SHARE)) * math.sqrt(2 / math.pi)
                old, new = before.counts(cliques), self.model.counts(cliques)
                if all(float(np.abs(old[c] - new[c]).sum()) <= noise * old[c].size for c in cliques):
                    part *= 2

    def _round(self, size: int, part: float) -> list[Clique]:
        """Choose and measure up to ``size`` marginals at ``part`` of the budget each."""
        candidates = list(self.counts)
        expected = self.model.counts(candidates)
        picked: list[Clique] = []
        for _ in range(size):
            if self.spending.left < 1e-6:
                break
            part = self.spending.left if self.spending.left < 1.5 * part else part
            noise = self.spending.sigma(part * (1 - CHOICE_SHARE)) * math.sqrt(2 / math.pi)
            penalty = {clique: noise * vector.size for clique, vector in expected.items()}
            scores = l1_scores(self.counts, expected, self.weights, penalty)
            layout = Layout(self.sizes, list(self.found), self.rules)
            fits = room_for(layout, candidates, max_cells=self.owner.max_cells)
            open_to = [ok and c not in picked for ok, c in zip(fits, candidates, strict=True)]
            if not any(open_to):
                break
            choice = candidates[
                self.spending.choose(
                    np.where(open_to, scores, -np.inf),
                    score_sensitivity(list(self.weights.values())),
                    part * CHOICE_SHARE,
                )
            ]
            fraction = part * (1 - CHOICE_SHARE)
            sigma = self.spending.sigma(fraction)
            self.add(Measurement(choice, self.spending.measure(self.counts[choice], fraction), sigma))
            picked.append(choice)
        return picked


def _total(singles: Mapping[str, NDArray[np.float64]]) -> float:
    """The number of rows by the noisy columns, each weighted by its precision."""
    sums = [float(noisy.sum()) for noisy in singles.values()]
    return max(float(np.average(sums, weights=[1 / noisy.size for noisy in singles.values()])), 1.0)


def _merged(counts: Counts, cliques: list[Clique], groups: Mapping[str, Groups]) -> Counts:
    """Exact marginals over groups. Each is still a histogram in which a record has one cell. Private."""
    out: Counts = {}
    for clique in cliques:
        table = counts[clique].reshape([groups[name].group.size for name in clique])
        for axis, name in enumerate(clique):
            group = groups[name].group
            order = np.argsort(group, kind="stable")
            begin = np.searchsorted(group[order], np.arange(groups[name].size))
            table = np.add.reduceat(np.take(table, order, axis=axis), begin, axis=axis)
        out[clique] = table.ravel()
    return out

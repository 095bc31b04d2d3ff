"""Errors of a synthetic table in detail: by column, pair and group, by distance, and by what a model learns
from it. For the curator only: everything here reads private data.

Each score has a *floor*: the same score between two random halves of the real table, which no honest release
of that many rows is expected to beat.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from synthgeo.arrays import Floats, Ints
from synthgeo.errors import ConfigError
from synthgeo.extras import require
from synthgeo.schema import Binned, Categorical, DateTime, Identifier, Schema
from synthgeo.sources import open_source
from tabular.marginals import MarginalIndex

# Groups with a smaller share of the real rows say more about chance than about the release.
_LEAST_GROUP = 0.01
_MOST_TARGETS, _MOST_CLASSES = 5, 10
_SEED = 0


@dataclass(frozen=True)
class TableOf:
    """Rows with their schema: what scores ask of a release."""

    schema: Schema
    data: pd.DataFrame


def halves(real: Any, schema: Schema) -> tuple[pd.DataFrame, TableOf]:
    """Two random halves of the real table, the second in the place of a release."""
    frame = real if isinstance(real, pd.DataFrame) else _frame(real, schema)
    order = np.random.default_rng(_SEED).permutation(len(frame))
    half = len(frame) // 2
    return frame.iloc[order[:half]], TableOf(schema, frame.iloc[order[half:]])


def _frame(real: Any, schema: Schema) -> pd.DataFrame:
    from synthgeo.sources.values import as_frame

    return as_frame(open_source(real), schema.kinds)


def column_errors(real: Any, release: Any) -> pd.DataFrame:
    """One row per attribute: total variation, the distance of numbers (see ``wasserstein``), and floors."""
    schema: Schema = release.schema
    rows = []
    cliques = [(name,) for name in schema.sizes]
    first, second = halves(real, schema)
    found = total_variation(*(marginal_counts(d, schema, cliques) for d in (real, release.data)))
    floor = total_variation(*(marginal_counts(d, schema, cliques) for d in (first, second.data)))
    distance, least = wasserstein(real, release), wasserstein(first, second)
    for (name,), value in found.items():
        near = distance.get(name, np.nan), least.get(name, np.nan)
        rows.append((name, value, floor[name,], *near))
    columns = ["column", "tv", "tv_floor", "wasserstein", "wasserstein_floor"]
    return pd.DataFrame(rows, columns=columns)


def pair_errors(real: Any, release: Any) -> pd.DataFrame:
    """One row per pair of attributes, the worst first: total variation and its floor."""
    schema: Schema = release.schema
    cliques = list(combinations(schema.sizes, 2))
    first, second = halves(real, schema)
    found = total_variation(*(marginal_counts(d, schema, cliques) for d in (real, release.data)))
    floor = total_variation(*(marginal_counts(d, schema, cliques) for d in (first, second.data)))
    rows = [(a, b, value, floor[a, b]) for (a, b), value in found.items()]
    frame = pd.DataFrame(rows, columns=["first", "second", "tv", "tv_floor"])
    return frame.sort_values("tv", ascending=False, ignore_index=True)


def wasserstein(real: Any, release: Any) -> dict[str, float]:
    """The Wasserstein-1 distance of each column of numbers, dates or times, over the interquartile range of
    the real values (over the distance of their 5 and 95 % quantiles, or their whole range, where that is 0).
    """
    from scipy.stats import wasserstein_distance

    schema: Schema = release.schema
    out = {}
    for name, column in schema.columns.items():
        if not isinstance(column, Binned):
            continue
        sides = [_numbers(data, name, column) for data in (real, release.data)]
        if not all(len(side) for side in sides):
            continue
        low = [float(np.quantile(sides[0], share)) for share in (0.25, 0.05, 0.0)]
        high = [float(np.quantile(sides[0], share)) for share in (0.75, 0.95, 1.0)]
        width = next((b - a for a, b in zip(low, high, strict=True) if b > a), 1.0)
        out[name] = float(wasserstein_distance(*sides)) / width
    return out


def _numbers(data: Any, name: str, column: Binned) -> Floats:
    found, absent = column.numbers(name, open_source(data).read(column.inputs(name)))
    return found[~absent]


def group_errors(real: Any, release: Any) -> pd.DataFrame:
    """One row per value of a categorical column that at least one real row in a hundred holds, the worst
    first: the mean total variation of the other columns among the rows with that value.
    """
    schema: Schema = release.schema
    sizes = schema.sizes
    groups = [name for name, c in schema.columns.items() if isinstance(c, Categorical) and name in sizes]
    cliques = [(group, other) for group in groups for other in sizes if other != group]
    sides = [marginal_counts(data, schema, cliques) for data in (real, release.data)]
    errors: dict[tuple[str, int], list[float]] = {}
    shares: dict[tuple[str, int], float] = {}
    for group, other in cliques:
        truth, made = (side[group, other].reshape(sizes[group], sizes[other]) for side in sides)
        held = truth.sum(axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            gap = np.abs(truth / held[:, None] - made / made.sum(axis=1)[:, None]).sum(axis=1) / 2
        gap = np.where(made.sum(axis=1) > 0, gap, 1.0)
        for code in np.flatnonzero(held >= _LEAST_GROUP * max(held.sum(), 1)):
            errors.setdefault((group, int(code)), []).append(float(gap[code]))
            shares[group, int(code)] = float(held[code] / held.sum())
    rows = [(g, _value(schema, g, c), shares[g, c], float(np.mean(e))) for (g, c), e in errors.items()]
    frame = pd.DataFrame(rows, columns=["column", "value", "share", "tv"])
    return frame.sort_values("tv", ascending=False, ignore_index=True)


def _value(schema: Schema, name: str, code: int) -> Any:
    column = schema.columns[name]
    assert isinstance(column, Categorical)
    return column.values[code] if code < len(column.values) else None


def propensity(real: Any, release: Any) -> float:
    """How well real and synthetic rows can be told apart (pMSE; Snoke et al., 2018): 0 for not at all, 1 for
    always.

    Boosted trees give each row that they were not trained on a probability of being synthetic; this is the
    mean squared distance of the probabilities from the share of synthetic rows, over its greatest value.
    """
    ensemble = require("sklearn.ensemble", extra="ml")
    selection = require("sklearn.model_selection", extra="ml")
    pools = require("threadpoolctl", extra="ml")
    schema: Schema = release.schema
    sides = [_codes(data, schema) for data in (real, release.data)]
    rows, labels = np.concatenate(sides), np.repeat([0, 1], [len(side) for side in sides])
    if min(map(len, sides)) < 10:
        raise ConfigError("pMSE needs at least ten rows of each table")
    folds = selection.StratifiedKFold(3, shuffle=True, random_state=_SEED)
    model = ensemble.HistGradientBoostingClassifier(random_state=_SEED, max_iter=50)
    with pools.threadpool_limits(1):
        chance = selection.cross_val_predict(model, rows, labels, cv=folds, method="predict_proba")[:, 1]
    share = labels.mean()
    return float(np.mean((chance - share) ** 2) / (share * (1 - share)))


def efficacy(real: Any, release: Any) -> float:
    """What a classifier keeps of its accuracy on real rows when it is trained on synthetic ones instead of
    real ones: the mean ratio over up to five columns of two to ten values. Real rows are halved, for training
    and for testing.
    """
    schema: Schema = release.schema
    train, test = halves(real, schema)
    targets = [a.name for a in schema.attributes if 2 <= a.size <= _MOST_CLASSES][:_MOST_TARGETS]
    if not targets:
        raise ConfigError("no column of two to ten values to predict")
    found = []
    for target in targets:
        scores = train_on_synthetic(train, release.data, test.data, schema=schema, target=target)
        found.append(scores["synthetic"] / max(scores["real"], 1e-9))
    return float(np.mean(found))


def _codes(data: Any, schema: Schema) -> Ints:
    return schema.encode(open_source(data).read(schema.inputs))


def detail_scores(real: Any, release: Any) -> dict[str, float]:
    """The worst group's error, and the mean distance of numbers."""
    groups, distances = group_errors(real, release), wasserstein(real, release)
    out = {"worst_group": float(groups["tv"].max())} if len(groups) else {}
    return out | ({"wasserstein": float(np.mean(list(distances.values())))} if distances else {})


def sdmetrics_metadata(schema: Schema) -> dict[str, Any]:
    """The metadata that the reports of the package SDMetrics take, for the columns of a schema."""
    columns: dict[str, dict[str, Any]] = {}
    for name, column in schema.columns.items():
        for given in column.inputs(name) or (name,):
            columns[given] = _sdtype(column)
    return {"columns": columns}


def _sdtype(column: Any) -> dict[str, Any]:
    kinds: list[tuple[Callable[[], bool], dict[str, Any]]] = [
        (lambda: isinstance(column, Identifier), {"sdtype": "id"}),
        (lambda: isinstance(column, DateTime) or column.kind == "date", {"sdtype": "datetime"}),
        (lambda: column.kind in ("numeric", "location"), {"sdtype": "numerical"}),
    ]
    for fits, found in kinds:
        if fits():
            form = getattr(column, "format", None)
            return found | ({"datetime_format": form} if form else {})
    boolean = isinstance(column, Categorical) and all(isinstance(v, bool) for v in column.values)
    return {"sdtype": "boolean" if boolean else "categorical"}


# How far a synthetic table is from the real one. For the curator only: everything here reads private data.
#
# Workload errors follow Kumar, *Differentially Private Synthetic Data Generation of Data Collected Over
# Time* (2024), 4.7.3, with counts divided by the number of real rows. A workload is one marginal; its error
# is the mean over its cells. Relative errors divide by the true count and are taken over the cells where it
# is not 0.

Clique = tuple[str, ...]
Vector = Floats
_MOST_TRIPLES = 100


@dataclass(frozen=True)
class WorkloadErrors:
    """Mean and maximum over marginals of the mean error of a cell, absolute (of all rows) and relative, and
    of the sum of absolute errors over the sum of counts.

    The last is what the tables of Kumar's dissertation seem to print as AvgRelWE and MaxRelWE. There these
    are 31 to 51 times AvgWE and MaxWE in every row, as many as a marginal has cells; the mean of relative
    errors of cells, the formula in its text, is hundreds of times as large.
    """

    avg_we: float
    max_we: float
    avg_rel_we: float
    max_rel_we: float
    avg_sum_we: float
    max_sum_we: float


def marginal_counts(data: Any, schema: Schema, cliques: Sequence[Clique]) -> dict[Clique, Vector]:
    """Exact marginals of a table, through whatever engine fits the data."""
    index = MarginalIndex(schema, cliques)
    counts = index.split(open_source(data).histogram(index, schema.inputs))
    return {clique: counts[clique].astype(np.float64) for clique in index.cliques}


def workload_errors(real: Mapping[Clique, Vector], synthetic: Mapping[Clique, Vector]) -> WorkloadErrors:
    """AvgWE, MaxWE, AvgRelWE and MaxRelWE over the marginals of ``real``, and the sums' relative errors."""
    if not real:
        raise ConfigError("no marginal to compare")
    absolute, relative, sums = [], [], []
    for clique, truth in real.items():
        gap = np.abs(truth - synthetic[clique])
        sums.append(float(gap.sum()) / max(float(truth.sum()), 1.0))
        absolute.append(sums[-1] / gap.size)
        there = truth > 0
        relative.append(float((gap[there] / truth[there]).mean()) if there.any() else 0.0)
    means = [(float(np.mean(found)), max(found)) for found in (absolute, relative, sums)]
    return WorkloadErrors(*means[0], *means[1], *means[2])


def total_variation(real: Mapping[Clique, Vector], synthetic: Mapping[Clique, Vector]) -> dict[Clique, float]:
    """Total variation distance of each marginal, both sides as distributions: 0 equal, 1 disjoint."""
    return {
        clique: 0.5 * float(np.abs(_shares(truth) - _shares(synthetic[clique])).sum())
        for clique, truth in real.items()
    }


def _shares(counts: Vector) -> Vector:
    total = float(counts.sum())
    return counts / total if total > 0 else np.full(counts.size, 1.0 / counts.size)


def table_scores(real: Any, release: Any) -> dict[str, float]:
    """Mean total variation over columns, pairs and (up to 100 evenly chosen) triples, and the workload
    errors of pairs.
    """
    schema: Schema = release.schema
    names = list(schema.sizes)
    out: dict[str, float] = {}
    for width in (1, 2, 3):
        cliques = list(combinations(names, width))
        if width == 3 and len(cliques) > _MOST_TRIPLES:
            chosen = np.linspace(0, len(cliques) - 1, _MOST_TRIPLES).astype(int)
            cliques = [cliques[i] for i in chosen]
        if not cliques:
            continue
        truth = marginal_counts(real, schema, cliques)
        made = marginal_counts(release.data, schema, cliques)
        out[f"tv_{width}way"] = float(np.mean(list(total_variation(truth, made).values())))
        if width == 3:
            out["k_marginal"] = 1000 * (1 - out["tv_3way"])
        if width == 2:
            errors = workload_errors(truth, made)
            out |= {"avg_we": errors.avg_we, "max_we": errors.max_we}
            out |= {"avg_rel_we": errors.avg_rel_we, "max_rel_we": errors.max_rel_we}
    return out


def train_on_synthetic(
    real_train: pd.DataFrame,
    synthetic: pd.DataFrame,
    real_test: pd.DataFrame,
    *,
    schema: Schema,
    target: str,
    seed: int = 0,
) -> dict[str, float]:
    """Accuracy on real test rows of a classifier trained on synthetic rows, beside one trained on real rows.

    ``kept`` is the share of the accuracy above the majority class that training on synthetic rows keeps.
    """
    if target not in schema.sizes:
        raise ConfigError(f"no attribute {target!r}; there are {', '.join(schema.sizes)}")
    ensemble = require("sklearn.ensemble", extra="ml")
    pools = require("threadpoolctl", extra="ml")
    at = list(schema.sizes).index(target)
    tables = [
        schema.encode(open_source(frame).read(schema.inputs)) for frame in (real_train, synthetic, real_test)
    ]

    def accuracy(train: Ints) -> float:
        labels = train[:, at]
        if np.unique(labels).size < 2:
            return float(np.mean(tables[2][:, at] == labels[0])) if labels.size else 0.0
        model = ensemble.HistGradientBoostingClassifier(random_state=seed, max_iter=100)
        with pools.threadpool_limits(1):  # small tables: threads would wait for each other
            model.fit(np.delete(train, at, axis=1), labels)
            return float(model.score(np.delete(tables[2], at, axis=1), tables[2][:, at]))

    majority = float(np.bincount(tables[2][:, at]).max() / max(len(tables[2]), 1))
    on_real, on_synthetic = accuracy(tables[0]), accuracy(tables[1])
    kept = (on_synthetic - majority) / (on_real - majority) if on_real > majority else float("nan")
    return {"real": on_real, "synthetic": on_synthetic, "majority": majority, "kept": kept}

"""How far a synthetic table is from the real one. For the curator only: everything here reads private data.

Workload errors follow Kumar, *Differentially Private Synthetic Data Generation of Data Collected Over
Time* (2024), 4.7.3, with counts divided by the number of real rows. A workload is one marginal; its error
is the mean over its cells. Relative errors divide by the true count and are taken over the cells where it
is not 0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from synthgeo.arrays import Floats, Ints
from synthgeo.errors import ConfigError
from synthgeo.extras import require
from synthgeo.schema import Schema
from synthgeo.sources import open_source
from tabular.marginals import MarginalIndex

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

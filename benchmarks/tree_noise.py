"""What less noise in PrivTree would buy: ADR 4. ``python -m benchmarks.tree_noise`` writes tree_noise.json.

One mixture of clusters, cut by PrivTree with the theorem's noise and with the least that keeps ε
(``synthgeo.auditing.whitebox``), counted with the rest of ε, and asked for random squares.
"""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np

import synthgeo as sg
from benchmarks._common import record
from synthgeo.auditing.whitebox import least_scale
from synthgeo.hierarchy.base import hierarchy_of
from synthgeo.hierarchy.cells import Partition
from synthgeo.hierarchy.privtree import GRID, SplitRule, privtree

BOX = sg.BoxDomain(0, 0, 1, 1)
BITS, SIDE, QUERIES = 20, 64, 600
POINTS, EPSILONS, SEEDS = (2_000, 20_000), (0.25, 1.0, 4.0), 16
METHODS = {"theorem": 0.5, "least": 0.5, "least, share 0.4": 0.4}


def main() -> None:
    """Every setting, then the ratios that the ADR quotes."""
    table: list[dict[str, Any]] = []
    for points in POINTS:
        xy = _clusters(points)
        for epsilon in EPSILONS:
            for method, share in METHODS.items():
                found = [_error(xy, epsilon, share, least=method != "theorem", seed=s) for s in range(SEEDS)]
                error, leaves = np.mean(found, axis=0)
                row = {"points": points, "epsilon": epsilon, "method": method, "share": share}
                table.append({**row, "error": float(error), "leaves": float(leaves)})
                print(table[-1], flush=True)
    record("tree_noise", {"seeds": SEEDS, "queries": QUERIES}, {"table": table, **_changes(table)})


def _changes(table: list[dict[str, Any]]) -> dict[str, list[float]]:
    """Least and largest change against the theorem's noise, in per cent."""
    of = {(row["points"], row["epsilon"], row["method"]): row for row in table}
    out = {}
    for name, method, key in (
        ("error", "least", "error"),
        ("leaves", "least", "leaves"),
        ("error_with_smaller_share", "least, share 0.4", "error"),
    ):
        change = [
            100 * (of[p, e, method][key] / of[p, e, "theorem"][key] - 1) for p in POINTS for e in EPSILONS
        ]
        out[name] = [float(min(change)), float(max(change))]
    return out


def _clusters(points: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    parts = (
        rng.normal(0.3, 0.05, (points // 2, 2)),
        rng.normal(0.7, 0.1, (points // 4, 2)),
        rng.random((points // 4, 2)),
    )
    return np.clip(np.concatenate(parts), 0, 0.9999)


def _error(xy: np.ndarray, epsilon: float, share: float, *, least: bool, seed: int) -> tuple[float, int]:
    """Mean relative error of squares (no true count below half a per cent), and the number of leaves."""
    noise = sg.SeededNoise(seed)
    keys, counts = np.unique(hierarchy_of(BOX).locate(xy, BITS)[0], return_counts=True)
    for_tree = epsilon * share
    scale = least_scale(for_tree) if least else SplitRule(for_tree).scale
    with mock.patch.object(SplitRule, "scale", scale):
        tree = privtree(
            keys,
            counts.astype(np.int64) * GRID.one,
            hierarchy=hierarchy_of(BOX),
            epsilon=for_tree,
            noise=noise,
            max_depth=BITS,
        )
    true = tree.totals(keys, BITS, counts.astype(np.int64))
    noisy = np.maximum(true + noise.discrete_laplace(1 / (epsilon - for_tree), true.size), 0)
    found, real = (
        _grid(tree, noisy.astype(np.float64), seed),
        _binned(xy),
    )
    sums = [np.pad(grid.cumsum(0).cumsum(1), ((1, 0), (1, 0))) for grid in (found, real)]
    rng = np.random.default_rng(1)
    width = rng.choice([4, 8, 20], QUERIES)
    low = rng.integers(0, SIDE + 1 - width, (2, QUERIES))
    high = low + width
    a, b = (s[high[0], high[1]] - s[low[0], high[1]] - s[high[0], low[1]] + s[low[0], low[1]] for s in sums)
    return float(np.mean(np.abs(a - b) / np.maximum(b, 0.005 * len(xy)))), tree.size


def _grid(tree: Partition, counts: np.ndarray, seed: int) -> np.ndarray:
    """Expected counts on a grid: each leaf's count spread evenly, by many points where it is large."""
    rng = np.random.default_rng(seed)
    copies = np.maximum(1, np.ceil(tree.measure * SIDE**2 * 8)).astype(np.int64)
    xy = hierarchy_of(BOX).sample(tree.prefix, tree.bits, copies, rng)
    weights = np.repeat(counts / copies, copies)
    return _binned(xy, weights)


def _binned(xy: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    counts, _, _ = np.histogram2d(xy[:, 0], xy[:, 1], bins=SIDE, range=[[0, 1], [0, 1]], weights=weights)
    return np.asarray(counts)


if __name__ == "__main__":
    main()

"""Which marginals a synthetic table should keep, and how much each counts.

A *marginal* (the papers' workload) is a set of attributes with all combinations of their values: one
histogram of the table. One record sits in exactly one of its cells."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from synthgeo.errors import ConfigError
from synthgeo.schema import Schema
from tabular.model.junction_tree import Clique


@dataclass(frozen=True)
class Workload:
    """Marginals, each with a weight: a marginal's error is its L1 error times the weight."""

    cliques: tuple[Clique, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.cliques:
            raise ConfigError("a workload needs at least one marginal")
        if len(self.cliques) != len(self.weights) or min(self.weights) <= 0:
            raise ConfigError("a workload needs one positive weight for each marginal")
        if len({frozenset(clique) for clique in self.cliques}) != len(self.cliques):
            raise ConfigError("a workload lists each marginal once")

    def __iter__(self) -> Iterator[Clique]:
        return iter(self.cliques)

    def __len__(self) -> int:
        return len(self.cliques)

    @classmethod
    def of(cls, schema: Schema, cliques: Iterable[Sequence[str]], *, weighting: str = "cells") -> Workload:
        """Marginals named by attributes.

        With ``weighting="cells"`` the mean error of a marginal's cells counts (weight 1 / cells, as in
        the workload errors of Kumar), with ``"equal"`` their sum (twice the total variation)."""
        if weighting not in ("cells", "equal"):
            raise ConfigError(f"weighting must be 'cells' or 'equal', got {weighting!r}")
        sizes = schema.sizes
        order = {name: i for i, name in enumerate(sizes)}
        ordered = []
        for clique in cliques:
            names = (clique,) if isinstance(clique, str) else tuple(clique)
            for name in names:
                if name not in sizes:
                    raise ConfigError(f"the workload names {name!r}; the schema has {', '.join(sizes)}")
            if not names or len(set(names)) != len(names):
                raise ConfigError(f"a marginal needs distinct attributes, got {names!r}")
            ordered.append(tuple(sorted(names, key=order.__getitem__)))
        cells = [cell_count(sizes, clique) if weighting == "cells" else 1 for clique in ordered]
        return cls(tuple(ordered), tuple(1.0 / count for count in cells))

    def check(self, schema: Schema) -> Workload:
        """This workload, if the schema has its attributes."""
        unknown = {name for clique in self.cliques for name in clique} - set(schema.sizes)
        if unknown:
            raise ConfigError(f"the workload names {min(unknown)!r}, which the schema does not have")
        return self


def all_k_way(schema: Schema, k: int, *, weighting: str = "cells", max_cells: int | None = None) -> Workload:
    """All marginals of ``k`` attributes; with ``max_cells`` those of at most that many cells.

    ``weighting`` is that of ``Workload.of``.
    """
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise ConfigError(f"k must be a whole number >= 1, got {k!r}")
    sizes = schema.sizes
    if k > len(sizes):
        raise ConfigError(f"k={k} is more than the schema's {len(sizes)} attributes")
    cliques = [c for c in combinations(sizes, k) if max_cells is None or cell_count(sizes, c) <= max_cells]
    if not cliques:
        raise ConfigError(f"no marginal of {k} attributes has at most {max_cells} cells")
    return Workload.of(schema, cliques, weighting=weighting)


def workload_of(
    schema: Schema, given: Workload | Iterable[Sequence[str]] | None, *, weighting: str
) -> Workload:
    """A workload from what a user may give: one, a list of marginals, or nothing (all pairs)."""
    if given is None:
        return all_k_way(schema, min(2, len(schema.sizes)), weighting=weighting)
    if isinstance(given, Workload):
        return given.check(schema)
    if isinstance(given, str):
        raise ConfigError(f"a workload is a list of marginals, each a tuple of attributes; got {given!r}")
    return Workload.of(schema, given, weighting=weighting)


def cell_count(sizes: Mapping[str, int], clique: Sequence[str]) -> int:
    """Cells of a marginal, as an exact whole number."""
    return math.prod(sizes[name] for name in clique)


def score_sensitivity(weights: Sequence[float]) -> float:
    """How far one record can move any score of the form weight * (|counts - model|_1 - a public number).

    A record is in one cell of each marginal, so an L1 error moves by at most 1 and a score by at most its
    weight."""
    return float(max(weights))


def l1_scores(
    counts: Mapping[Clique, NDArray[Any]],
    expected: Mapping[Clique, NDArray[np.float64]],
    weights: Mapping[Clique, float],
    penalty: Mapping[Clique, float],
) -> NDArray[np.float64]:
    """weight * (|counts - expected|_1 - penalty) for each marginal of ``weights``, in its order.

    ``counts`` are private; everything else is public or already released.
    """
    return np.array(
        [
            weight * (float(np.abs(counts[c] - expected[c]).sum()) - penalty[c])
            for c, weight in weights.items()
        ]
    )

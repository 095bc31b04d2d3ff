"""What a release of a table may keep: enough to draw rows and read marginals, and nothing private."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from synthgeo.arrays import Floats, Ints
from synthgeo.schema import Rule
from tabular.model.fitting import Model
from tabular.model.junction_tree import Layout
from tabular.model.message_passing import Clique

Arrays = dict[str, np.ndarray]
# Of all tables of a model: a file of a few bytes can claim any number of values in each column.
_MOST_CELLS = 10**8


class Snapshot(ABC):
    """A released table before its rows are drawn."""

    total: float

    @abstractmethod
    def expected(self, cliques: Sequence[Clique]) -> dict[Clique, Floats]:
        """The released table's marginals as expected counts."""

    @abstractmethod
    def sample(self, rows: int, rng: np.random.Generator, given: Mapping[Clique, Floats]) -> Ints:
        """Codes of synthetic rows, under conditions: how much of each code, or combination, is accepted."""

    def evened(self) -> Snapshot:
        """The same table with more room for rows that it makes improbable by chance alone."""
        return self


class ModelSnapshot(Snapshot):
    """A table that is one fitted model."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.total = max(model.total, 0.0)

    def expected(self, cliques: Sequence[Clique]) -> dict[Clique, Floats]:
        return self.model.counts(cliques)

    def sample(self, rows: int, rng: np.random.Generator, given: Mapping[Clique, Floats]) -> Ints:
        tree = self.model.weighted(given) if given else self.model.tree
        drawn = tree.sample(rows, rng)
        return np.column_stack([drawn[name] for name in self.model.layout.sizes])


def model_arrays(model: Model, name: str = "model") -> tuple[dict[str, Any], Arrays]:
    """A model as plain values and arrays."""
    values = {
        "total": model.total,
        "cliques": [list(clique) for clique in model.layout.cliques],
        "potentials": [list(clique) for clique in model.potentials],
    }
    return values, {f"{name}/{i}": table for i, table in enumerate(model.potentials.values())}


def model_of(
    sizes: Mapping[str, int],
    rules: Sequence[Rule],
    values: dict[str, Any],
    arrays: Arrays,
    name: str = "model",
) -> Model:
    """The inverse of ``model_arrays``; ``ValueError`` if they describe no model."""
    layout = Layout(sizes, [tuple(clique) for clique in values["cliques"]], rules)
    potentials = {tuple(clique): arrays[f"{name}/{i}"] for i, clique in enumerate(values["potentials"])}
    if layout.cells > _MOST_CELLS:
        raise ValueError("a model that is larger than any that was fitted")
    for clique, table in potentials.items():
        if table.shape != tuple(sizes[column] for column in clique) or np.any(np.isnan(table)):
            raise ValueError("a table that does not fit its columns")
    return Model(layout, float(values["total"]), potentials)

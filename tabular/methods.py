"""What the ways of releasing a table over time share: their settings, their model, and how they are saved.

A method takes the exact marginals of one batch and moves its model on by one step. It is the only place
of the tabular streams where noise meets counts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from synthgeo.domain.schema import Rule
from synthgeo.privacy.noise import Noise
from tabular.marginals import Counts
from tabular.model.fitting import Model
from tabular.model.junction_tree import Layout, room_for
from tabular.model.message_passing import Clique
from tabular.workload import Workload, cell_count

Vector = NDArray[np.float64]
Codes = NDArray[np.int64]
Arrays = dict[str, np.ndarray]


@dataclass
class Setup:
    """The public settings of a tabular stream, as its method sees them. ``epsilon`` is what one event may
    spend.
    """

    sizes: dict[str, int]
    rules: tuple[Rule, ...]
    workload: Workload
    epsilon: float
    structure_share: float
    picks: int
    counter: str
    horizon: int | None
    max_cells: int
    noise: Noise
    weights: dict[Clique, float] = field(init=False)
    cells: dict[Clique, int] = field(init=False)

    def __post_init__(self) -> None:
        self.weights = dict(zip(self.workload.cliques, self.workload.weights, strict=True))
        self.cells = {clique: cell_count(self.sizes, clique) for clique in [*self.workload, *self.singles]}

    @property
    def singles(self) -> list[Clique]:
        """The marginals of one attribute."""
        return [(name,) for name in self.sizes]

    def empty_model(self, cliques: Sequence[Clique] = ()) -> Model:
        """The model that knows the schema and nothing else."""
        return Model(Layout(self.sizes, cliques, self.rules), 0.0)

    def room(self, cliques: Sequence[Clique], candidates: Sequence[Clique]) -> list[bool]:
        """Which candidates the model has room for beside ``cliques``: a public question."""
        return room_for(Layout(self.sizes, cliques, self.rules), candidates, max_cells=self.max_cells)


class Snapshot(ABC):
    """What a release may keep of a method: enough to draw rows and read marginals, and nothing private."""

    total: float

    @abstractmethod
    def expected(self, cliques: Sequence[Clique]) -> dict[Clique, Vector]:
        """The released table's marginals as expected counts."""

    @abstractmethod
    def sample(self, rows: int, rng: np.random.Generator, given: Mapping[str, NDArray[np.bool_]]) -> Codes:
        """Codes of synthetic rows that meet the conditions."""


class ModelSnapshot(Snapshot):
    """A table that is one fitted model."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.total = max(model.total, 0.0)

    def expected(self, cliques: Sequence[Clique]) -> dict[Clique, Vector]:
        return self.model.counts(cliques)

    def sample(self, rows: int, rng: np.random.Generator, given: Mapping[str, NDArray[np.bool_]]) -> Codes:
        tree = self.model.conditioned(given) if given else self.model.tree
        drawn = tree.sample(rows, rng)
        return np.column_stack([drawn[name] for name in self.model.layout.sizes])


class Method(ABC):
    """One way of moving a model on by one batch."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.model = setup.empty_model()

    @abstractmethod
    def needs(self) -> list[Clique]:
        """The marginals of a batch that ``advance`` reads."""

    @abstractmethod
    def advance(self, counts: Counts, *, structure: bool) -> None:
        """Take one batch's exact marginals; ``structure`` says whether the schedule asks for a new
        structure.
        """

    @abstractmethod
    def paid(self) -> tuple[float, float]:
        """What an event of the last step pays at most over its life: for structure, and for counts."""

    @abstractmethod
    def deviations(self) -> dict[Clique, float]:
        """Standard deviation that the noise puts on a cell of each marginal that was measured."""

    def snapshot(self) -> Snapshot:
        """The table as released at this step. Holds nothing private."""
        return ModelSnapshot(self.model)

    @abstractmethod
    def to_state(self) -> tuple[dict[str, Any], Arrays]:
        """Plain values and arrays, from which ``restore`` goes on bit for bit. Holds private sums."""

    @abstractmethod
    def restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        """The inverse of ``to_state``."""


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
    """The inverse of ``model_arrays``."""
    layout = Layout(sizes, [tuple(clique) for clique in values["cliques"]], rules)
    potentials = {tuple(clique): arrays[f"{name}/{i}"] for i, clique in enumerate(values["potentials"])}
    return Model(layout, float(values["total"]), potentials)

"""What the mechanisms for tables over time share: their settings, their model, and how they are saved."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from streams.mechanism import Arrays, EventBudget, part_of, prefixed
from synthgeo.privacy.noise import Noise
from synthgeo.schema import Schema
from synthgeo.sources import Histogram
from tabular.marginals import MarginalIndex
from tabular.model.fitting import Model, ModelSnapshot, Snapshot
from tabular.model.junction_tree import Clique, Layout, room_for
from tabular.workload import Workload, cell_count


@dataclass
class Setup:
    """The public settings of a tabular stream, as its mechanism sees them."""

    schema: Schema
    workload: Workload
    event: EventBudget
    picks: int
    counter: str
    horizon: int | None
    max_cells: int
    noise: Noise
    lifetime: int | None = None
    borrow: bool = False
    aged: bool = False  # whether deletions come by age groups
    sizes: dict[str, int] = field(init=False)
    weights: dict[Clique, float] = field(init=False)
    cells: dict[Clique, int] = field(init=False)

    def __post_init__(self) -> None:
        self.sizes = self.schema.sizes
        self.weights = dict(zip(self.workload.cliques, self.workload.weights, strict=True))
        self.cells = {clique: cell_count(self.sizes, clique) for clique in [*self.workload, *self.singles]}

    @property
    def singles(self) -> list[Clique]:
        """The marginals of one attribute."""
        return [(name,) for name in self.sizes]

    def empty_model(self, cliques: Sequence[Clique] = ()) -> Model:
        """The model that knows the schema and nothing else."""
        return Model(self.layout(cliques), 0.0)

    def layout(self, cliques: Sequence[Clique]) -> Layout:
        """The shape of a model with these cliques."""
        return Layout(self.sizes, cliques, self.schema.rules)

    def room(self, cliques: Sequence[Clique], candidates: Sequence[Clique]) -> list[bool]:
        """Which candidates the model has room for beside ``cliques``: a public question."""
        return room_for(self.layout(cliques), candidates, max_cells=self.max_cells)


class TableMechanism(ABC):
    """A way of moving a model on by one batch: a ``streams.mechanism.Mechanism`` over exact marginals."""

    name: ClassVar[str] = "TabularStream"
    is_private: ClassVar[bool] = True

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.model = setup.empty_model()
        self.index = MarginalIndex(setup.schema, self.needs())

    @abstractmethod
    def needs(self) -> list[Clique]:
        """The marginals of a batch that ``advance`` reads."""

    @abstractmethod
    def advance(self, counts: Histogram, *, step: int, structure: bool) -> None:
        """Take the exact counts of one batch (cells of ``index``), and spend."""

    @abstractmethod
    def deviations(self) -> dict[Clique, float]:
        """Standard deviation that the noise puts on a cell of each marginal that was measured."""

    def paid(self) -> tuple[float, float]:
        event = self.setup.event
        return event.structure.epsilon, event.counts.epsilon

    def snapshot(self) -> tuple[Snapshot, dict[Clique, float], dict[int, float]]:
        return self.table(), self.deviations(), self.totals()

    def totals(self) -> dict[int, float]:
        """Released numbers of rows of the steps that a release holds, where it holds the last ones alone."""
        return {}

    def table(self) -> Snapshot:
        """The table as released at this step."""
        return ModelSnapshot(self.model)

    def facts(self) -> dict[str, Any]:
        setup = self.setup
        return {
            "counter": setup.counter,
            "marginals_per_step": setup.picks,
            "workload": len(setup.workload),
            **({} if setup.lifetime is None else {"borrow": setup.borrow}),
        }

    def copy(self) -> Self:
        return copy(self)

    def settings(self) -> dict[str, Any]:
        setup = self.setup
        return {
            "workload": [list(clique) for clique in setup.workload],
            "weights": list(setup.workload.weights),
            "marginals_per_step": setup.picks,
            "counter": setup.counter,
            "horizon": setup.horizon,
            "max_cells": setup.max_cells,
            **({} if setup.lifetime is None else {"borrow": setup.borrow}),
        }

    def to_state(self) -> tuple[dict[str, Any], Arrays]:
        values, arrays = self.own_state()
        return {"method": values}, prefixed("method", arrays)

    def restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        self.restore_own(values["method"], part_of("method", arrays))

    @abstractmethod
    def own_state(self) -> tuple[dict[str, Any], Arrays]:
        """Plain values and arrays, from which ``restore_own`` goes on bit for bit. Holds private sums."""

    @abstractmethod
    def restore_own(self, values: dict[str, Any], arrays: Arrays) -> None:
        """The inverse of ``own_state``."""

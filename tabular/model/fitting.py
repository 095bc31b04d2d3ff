"""The model whose marginals come closest to noisy ones. Post-processing: it reads noisy numbers only."""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from synthgeo.arrays import Bools, Floats, Ints
from synthgeo.extras import require
from synthgeo.privacy.filter import LEAST_SIGMA
from synthgeo.schema import Rule
from tabular.model.junction_tree import Clique, Layout, MessagePlan, Table, cells_of, spread
from tabular.model.mirror_descent import Target, descend, interaction_of
from tabular.model.sampling import Tree


class Measurement(NamedTuple):
    """A noisy marginal: its values, flattened in the order of the clique, the noise's standard deviation, and
    whether they are its interaction alone (what its margins do not tell).
    """

    clique: Clique
    values: Floats
    sigma: float
    interaction: bool = False


@dataclass
class Model:
    """A fitted model: potentials by clique, the total it stands for, and its tree of probabilities."""

    layout: Layout
    total: float
    potentials: dict[Clique, Table] = field(default_factory=dict)
    tree: Tree = field(init=False)

    def __post_init__(self) -> None:
        self.tree = self.weighted({})

    def counts(self, cliques: Sequence[Clique]) -> dict[Clique, Floats]:
        """The model's marginals as flat vectors of expected counts."""
        return {c: table.ravel() * self.total for c, table in self.tree.marginals(cliques).items()}

    def conditioned(self, accepted: Mapping[str, Bools]) -> Tree:
        """The model's tree given that attributes take accepted codes: exact inference, no rejection."""
        return self.weighted({(name,): mask.astype(np.float64) for name, mask in accepted.items()})

    def weighted(self, likelihood: Mapping[Clique, Floats]) -> Tree:
        """The model's tree with codes, or combinations of them, weighted by a likelihood."""
        layout = self.layout
        members = [set(node) for node in layout.nodes]
        apart = [c for c in likelihood if not any(set(c) <= inside for inside in members)]
        if apart:  # attributes that the tree does not hold together yet
            layout = Layout(layout.sizes, [*layout.cliques, *apart], layout.rules)
        logs = list(self.potentials.items())
        logs += [(rule.attributes, log_allowed(rule)) for rule in self.layout.rules]
        with np.errstate(divide="ignore"):
            logs += [(clique, np.log(weight)) for clique, weight in likelihood.items()]
        return Tree(layout.sizes, layout.nodes, layout.parent).calibrate(logs)


def fit(
    layout: Layout,
    measurements: Sequence[Measurement],
    *,
    total: float,
    start: Model | None = None,
    iterations: int = 300,
    tolerance: float = 1e-6,
    estimator: str = "own",
) -> Model:
    """The model whose marginals come closest to the measurements, weighted by their precision.

    Marginals of the layout without a measurement keep the potentials of ``start`` (or none).
    ``estimator`` is "own" (``mirror_descent``) or "mbi", which takes no start. Post-processing: it reads
    noisy numbers only."""
    total = max(float(total), 1.0)
    measurements = [m._replace(sigma=max(m.sigma, LEAST_SIGMA)) for m in measurements]
    before = start.potentials if start is not None else {}
    potentials: dict[Clique, Table] = {}
    for part in layout.parts():
        own = [m for m in measurements if m.clique[0] in part.sizes]
        if not any(clique in before for clique in part.cliques):
            # A cold start: independent columns are closer than nothing.
            for single in own:
                if len(single.clique) == 1:
                    before = {**before, **_fit_single(single.clique[0], [single], total, {})}
        if not own and not any(clique in before for clique in part.cliques):
            continue
        if len(part.sizes) == 1 and not part.rules:
            name = next(iter(part.sizes))
            potentials.update(_fit_single(name, own, total, before))
        else:
            if estimator == "mbi" and own:
                found = fit_mbi(part, own, total, iterations)
            else:
                found = _fit_own(part, own, total, before, iterations, tolerance)
            potentials.update(_onto_layout(part, found))
    return Model(layout, total, potentials)


def shrunk(measurements: Sequence[Measurement], model: Model) -> list[Measurement]:
    """Noisy interactions, moved towards what a model without them expects: by James and Stein, as far as
    their distance from it is what their noise explains. None, where that is all of it. Post-processing.
    """
    expected = model.counts([m.clique for m in measurements])
    gaps, by_noise = [], 0.0
    for m in measurements:
        shape = [model.layout.sizes[name] for name in m.clique]
        gaps.append(m.values - interaction_of(expected[m.clique].reshape(shape)).ravel())
        by_noise += m.sigma**2 * math.prod(size - 1 for size in shape)
    kept = 1 - by_noise / max(sum(float(gap @ gap) for gap in gaps), 1e-300)
    if kept <= 0:
        return []
    return [
        m._replace(values=m.values - (1 - kept) * gap, sigma=m.sigma * math.sqrt(kept))
        for m, gap in zip(measurements, gaps, strict=True)
    ]


def _fit_single(
    name: str, measurements: Sequence[Measurement], total: float, before: Mapping[Clique, Table]
) -> dict[Clique, Table]:
    """One attribute alone: the projection of the weighted mean onto the simplex, in closed form."""
    if not measurements:
        return {(name,): before[(name,)]}
    weights = np.array([m.sigma**-2.0 for m in measurements])
    mean = np.average([m.values for m in measurements], axis=0, weights=weights)
    share = project_to_simplex(mean, total) / total
    with np.errstate(divide="ignore"):
        return {(name,): np.maximum(np.log(share), -50.0)}


def project_to_simplex(values: Floats, total: float) -> Floats:
    """The nearest point with no negative entry and this sum."""
    ordered = np.sort(values)[::-1]
    excess = np.cumsum(ordered) - total
    count = np.arange(1, values.size + 1)
    last = int(np.flatnonzero(ordered - excess / count > 0)[-1])
    nearest: Floats = np.maximum(values - excess[last] / count[last], 0.0)
    return nearest


def _maximal(cliques: Sequence[Clique]) -> list[Clique]:
    """The cliques that lie in no other."""
    return [c for c in cliques if not any(set(c) < set(other) for other in cliques)]


def _onto_layout(part: Layout, before: Mapping[Clique, Table]) -> dict[Clique, Table]:
    """Potentials of an earlier model, moved to the maximal cliques of a layout; what fits none is dropped."""
    maximal = _maximal(part.cliques)
    tables = {clique: np.zeros([part.sizes[name] for name in clique]) for clique in maximal}
    for clique, table in before.items():
        holders = [c for c in maximal if set(clique) <= set(c)]
        if holders:
            home = min(holders, key=lambda c: cells_of(part.sizes, c))
            tables[home] = tables[home] + spread(table, clique, home)
    return tables


def _fit_own(
    part: Layout,
    measurements: Sequence[Measurement],
    total: float,
    before: Mapping[Clique, Table],
    iterations: int,
    tolerance: float,
) -> dict[Clique, Table]:
    start = _onto_layout(part, before)
    if not measurements:
        return start
    targets = {}
    for m in measurements:
        shape = [part.sizes[name] for name in m.clique]
        targets[m.clique] = Target(m.values.reshape(shape), m.sigma, m.interaction)
    return descend(
        MessagePlan(part.sizes, part.nodes, part.parent),
        [(rule.attributes, log_allowed(rule)) for rule in part.rules],
        start,
        targets,
        total=total,
        first_step=min(m.sigma for m in measurements) ** 2 / total,
        iterations=iterations,
        tolerance=tolerance,
    )


def log_allowed(rule: Rule) -> Table:
    """0 where a combination can exist, -inf where it cannot."""
    return np.where(rule.allowed, 0.0, -np.inf)


# The estimator of mbi, for those who want it (``estimator="mbi"``) and for tests that compare with it.
#
# Importing it brings JAX, and each new structure is compiled for seconds, so nothing here is loaded unless it
# is asked for. JAX runs in 64 bits inside ``precise()`` only; a caller's own JAX code keeps its settings.


@lru_cache(maxsize=1)
def load_mbi() -> Any:
    """mbi, imported once, without its advice about JAX settings that ``precise`` takes care of."""
    jax = require("jax", extra="tabular")
    with warnings.catch_warnings(), jax.enable_x64(True):
        warnings.simplefilter("ignore")
        return require("mbi", extra="tabular")


@contextmanager
def precise() -> Iterator[Any]:
    """mbi with 64-bit JAX, for the duration: 32 bits stall beyond some 10^5 rows."""
    mbi = load_mbi()
    import jax

    with jax.enable_x64(True):
        yield mbi


def fit_mbi(
    part: Layout, measurements: Sequence[Measurement], total: float, iterations: int
) -> dict[Clique, Table]:
    """Potentials on the maximal cliques of a layout, by mbi's own mirror descent."""
    with precise() as mbi:
        domain = mbi.Domain(tuple(part.sizes), tuple(part.sizes.values()))
        rows = []
        for m in measurements:
            query = {"query": _interaction} if m.interaction else {}
            values = np.asarray(m.values, dtype=np.float64).ravel()
            rows.append(mbi.LinearMeasurement(values, m.clique, m.sigma, **query))
        rules = [
            mbi.Constraint(domain.project(rule.attributes), valid=np.argwhere(rule.allowed))
            for rule in part.rules
        ]
        found = mbi.estimation.MirrorDescent().estimate(
            domain, rows, known_total=total, iters=iterations, constraints=tuple(rules)
        )
        return {clique: np.asarray(found.potentials[clique].values) for clique in found.potentials.cliques}


def _interaction(factor: Any) -> Any:
    """What the margins of a table do not tell, flat."""
    values = factor.values
    for axis in range(values.ndim):
        values = values - values.mean(axis=axis, keepdims=True)
    return values.ravel()


# What a release of a table may keep: enough to draw rows and read marginals, and nothing private.

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

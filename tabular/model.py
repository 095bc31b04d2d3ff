"""Fitting a graphical model to noisy marginals.

The junction tree is mbi's, and so are the loss and the marginal oracle of large models. The loop around
them is ours: XLA compiles once for each clique structure, which takes seconds, so small models are fitted
in numpy, and the compiled loop asks for one oracle and one gradient a step where mbi's own estimator asks
for two oracles. Everything that changes from step to step (values, weights, the total, the start, how
long to iterate) is traced, so only a new structure compiles.

JAX runs in 64 bits inside ``precise()`` only; a caller's own JAX code keeps its settings.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from synthgeo._extras import require
from synthgeo.domain.schema import Rule
from synthgeo.errors import ConfigError
from tabular.descent import descend
from tabular.messages import Clique, Plan, Table, spread
from tabular.tree import Tree

# Measured on two cores: a fit touches each cell of the tree about this long in each iteration.
_SECONDS_PER_CELL = 5e-8
_BYTES_PER_CELL = 8 * 8
# Cells times iterations from which XLA is faster than numpy in spite of compiling first (9 s on Adult).
_WORTH_COMPILING = 4e8
# An estimated growth up to this share of the limit is taken as it is. The trees that went over the limit
# had estimates of a fifteenth of it and more (random structures on Adult, limits 50,000 and 400,000).
_SMALL_GROWTH = 1 / 20
_MOST_TREES = 4000  # trees built to see what fits, times columns: a tree costs as they are many


# Noise of less than a thousandth of a row counts as this much: nothing is weighted by 1 / 0.
LEAST_SIGMA = 2.0**-10


class Measurement(NamedTuple):
    """A noisy marginal: its values, flattened in the order of the clique, and the noise's standard
    deviation.
    """

    clique: Clique
    values: NDArray[np.float64]
    sigma: float


@lru_cache(maxsize=1)
def _mbi() -> Any:
    """mbi, imported once, without its advice about JAX settings that ``precise`` takes care of."""
    jax = require("jax", extra="tabular")
    with warnings.catch_warnings(), jax.enable_x64(True):
        warnings.simplefilter("ignore")
        require("mbi", extra="tabular")
        require("mbi.marginal_oracles", extra="tabular")
        require("mbi.junction_tree", extra="tabular")
        return require("mbi", extra="tabular")


def require_mbi() -> None:
    """Say what to install where the junction tree's library is missing: before anything is spent."""
    _mbi()


@contextmanager
def precise() -> Iterator[Any]:
    """mbi with 64-bit JAX, for the duration: 32 bits stall beyond some 10^5 rows."""
    mbi = _mbi()
    import jax

    with jax.enable_x64(True):
        yield mbi


class Layout:
    """Which marginals a model is made of, in one canonical order, and the junction tree they need."""

    def __init__(
        self, sizes: Mapping[str, int], cliques: Sequence[Clique], rules: Sequence[Rule] = ()
    ) -> None:
        self.sizes = dict(sizes)
        order = {name: i for i, name in enumerate(self.sizes)}
        unique = {tuple(sorted(clique, key=order.__getitem__)) for clique in cliques}
        self.cliques = tuple(sorted(unique, key=lambda c: (len(c), [order[name] for name in c])))
        self.rules = tuple(rules)
        everything = (*self.cliques, *(rule.attributes for rule in self.rules))
        self.nodes, self.parent = _junction_tree(tuple(self.sizes.items()), everything)

    @property
    def cells(self) -> int:
        """Cells of all tables of the junction tree."""
        return sum(_cells(self.sizes, node) for node in self.nodes)

    @property
    def largest(self) -> Clique:
        """The node with the largest table."""
        return max(self.nodes, key=lambda node: _cells(self.sizes, node))

    def parts(self) -> list[Layout]:
        """The connected parts: they are independent in the model, and each is fitted (and compiled) alone."""
        graph = nx.Graph()
        graph.add_nodes_from(self.sizes)
        for clique in [*self.cliques, *(rule.attributes for rule in self.rules)]:
            nx.add_path(graph, clique)
        parts = [
            Layout(
                {name: size for name, size in self.sizes.items() if name in names},
                [clique for clique in self.cliques if clique[0] in names],
                [rule for rule in self.rules if rule.attributes[0] in names],
            )
            for names in nx.connected_components(graph)
        ]
        return sorted(parts, key=lambda part: list(self.sizes).index(next(iter(part.sizes))))


def check_size(
    sizes: Mapping[str, int], cliques: Sequence[Clique], rules: Sequence[Rule], *, max_cells: int
) -> None:
    """Refuse a model that is too big, with its cost and the marginal to blame."""
    for clique in cliques:
        cells = _cells(sizes, clique)
        if cells > max_cells:
            raise ConfigError(_too_big(f"the marginal {clique} alone has {cells:,} cells", cells, max_cells))
    layout = Layout(sizes, cliques, rules) if len(cliques) > 1 or rules else None
    if layout is not None and layout.cells > max_cells:
        what = f"the model needs tables of {layout.cells:,} cells, the largest over {layout.largest}"
        raise ConfigError(_too_big(what, layout.cells, max_cells))


def room_for(layout: Layout, candidates: Sequence[Clique], *, max_cells: int) -> list[bool]:
    """Which marginals could join the model without its tables growing beyond ``max_cells``.

    A marginal inside one of the tree's tables always can. For a pair the growth is estimated by carrying one
    of its attributes along the tree to the other; the tree that would be built may be larger, so where the
    estimate is not small it is built. Public: it depends on the structure alone.
    """
    now = layout.cells
    carried: dict[str, dict[str, int]] = {}
    fits, unsure = [], []
    for i, clique in enumerate(candidates):
        own = _cells(layout.sizes, clique)
        if len(clique) == 2:
            a, b = clique
            for name in clique:
                if name not in carried:
                    carried[name] = _carrying(layout, name)
            growth = min(carried[a].get(b, own), carried[b].get(a, own))
        else:
            growth = 0 if any(set(clique) <= set(node) for node in layout.nodes) else max_cells
        too_big = own > max_cells or (len(clique) == 2 and now + growth > max_cells)
        fits.append(growth == 0 or (not too_big and growth <= _SMALL_GROWTH * max_cells))
        if not fits[-1] and not too_big:
            unsure.append((growth, i))
    # A wide table has thousands of pairs: the likeliest are tried, the others left out.
    for _, i in sorted(unsure)[: _MOST_TREES // len(layout.sizes)]:
        grown = Layout(layout.sizes, [*layout.cliques, candidates[i]], layout.rules)
        fits[i] = grown.cells <= max_cells
    return fits


def _carrying(layout: Layout, name: str) -> dict[str, int]:
    """Cells that the tree gains when ``name`` is carried from its nodes to each other attribute's nearest
    one.
    """
    neighbours: list[list[int]] = [[] for _ in layout.nodes]
    for i, above in enumerate(layout.parent):
        if above >= 0:
            neighbours[i].append(above)
            neighbours[above].append(i)
    cost = {i: 0 for i, node in enumerate(layout.nodes) if name in node}
    waiting = list(cost)
    for i in waiting:
        for other in neighbours[i]:
            if other not in cost:
                cost[other] = cost[i] + _cells(layout.sizes, layout.nodes[other]) * layout.sizes[name]
                waiting.append(other)
    gains: dict[str, int] = {}
    for i, gain in cost.items():
        for member in layout.nodes[i]:
            gains[member] = min(gains.get(member, gain), gain)
    return gains


def _too_big(what: str, cells: int, max_cells: int) -> str:
    memory, seconds = cells * _BYTES_PER_CELL / 2**30, cells * _SECONDS_PER_CELL * 500
    return (
        f"{what}, more than max_cells={max_cells:,}: a fit would take about {memory:.2g} GiB and "
        f"{seconds:.2g} s; use fewer bins or categories, leave the marginal out of the workload, or raise "
        "max_cells"
    )


@dataclass
class Model:
    """A fitted model: potentials by clique, the total it stands for, and its tree of probabilities."""

    layout: Layout
    total: float
    potentials: dict[Clique, Table] = field(default_factory=dict)
    tree: Tree = field(init=False)

    def __post_init__(self) -> None:
        self.tree = self.weighted({})

    def counts(self, cliques: Sequence[Clique]) -> dict[Clique, NDArray[np.float64]]:
        """The model's marginals as flat vectors of expected counts."""
        return {c: table.ravel() * self.total for c, table in self.tree.marginals(cliques).items()}

    def conditioned(self, accepted: Mapping[str, NDArray[np.bool_]]) -> Tree:
        """The model's tree given that attributes take accepted codes: exact inference, no rejection."""
        return self.weighted({name: mask.astype(np.float64) for name, mask in accepted.items()})

    def weighted(self, likelihood: Mapping[str, NDArray[np.float64]]) -> Tree:
        """The model's tree with each attribute's codes weighted by a likelihood."""
        logs = list(self.potentials.items())
        with np.errstate(divide="ignore"):
            logs += [(rule.attributes, np.log(rule.allowed.astype(np.float64))) for rule in self.layout.rules]
            logs += [((name,), np.log(weight)) for name, weight in likelihood.items()]
        return Tree(self.layout.sizes, self.layout.nodes, self.layout.parent).calibrate(logs)


def fit(
    layout: Layout,
    measurements: Sequence[Measurement],
    *,
    total: float,
    start: Model | None = None,
    iterations: int = 300,
    tolerance: float = 1e-7,
    compiled: bool | None = None,
) -> Model:
    """The model whose marginals come closest to the measurements, weighted by their precision.

    Marginals of the layout without a measurement keep the potentials of ``start`` (or none).
    ``compiled`` says whether XLA does it or numpy (``tabular.descent``); None leaves that to the size of the
    work. Post-processing: it reads noisy numbers only."""
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
            start_here = _onto_layout(part, before)
            if part.cells * iterations >= _WORTH_COMPILING if compiled is None else compiled:
                found = _fit_compiled(part, own, total, start_here, iterations, tolerance)
            else:
                found = _fit_plain(part, own, total, start_here, iterations, tolerance)
            potentials.update(found)
    return Model(layout, total, potentials)


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


def project_to_simplex(values: NDArray[np.float64], total: float) -> NDArray[np.float64]:
    """The nearest point with no negative entry and this sum."""
    ordered = np.sort(values)[::-1]
    excess = np.cumsum(ordered) - total
    count = np.arange(1, values.size + 1)
    last = int(np.flatnonzero(ordered - excess / count > 0)[-1])
    nearest: NDArray[np.float64] = np.maximum(values - excess[last] / count[last], 0.0)
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
            home = min(holders, key=lambda c: _cells(part.sizes, c))
            tables[home] = tables[home] + spread(table, clique, home)
    return tables


def _first_step(part: Layout, measurements: Sequence[Measurement], total: float) -> float:
    """The inverse of the loss's curvature, bounded by the worst maximal clique."""
    maximal = _maximal(part.cliques)
    bound = dict.fromkeys(maximal, 0.0)
    for m in measurements:
        home = min((c for c in maximal if set(m.clique) <= set(c)), key=lambda c: _cells(part.sizes, c))
        bound[home] += _cells(part.sizes, home) / _cells(part.sizes, m.clique) / m.sigma**2
    return 1.0 / (max(bound.values()) * total)


def _fit_plain(
    part: Layout,
    measurements: Sequence[Measurement],
    total: float,
    start: Mapping[Clique, Table],
    iterations: int,
    tolerance: float,
) -> dict[Clique, Table]:
    if not measurements:
        return dict(start)
    with np.errstate(divide="ignore"):
        fixed = [(rule.attributes, np.log(rule.allowed.astype(np.float64))) for rule in part.rules]
    found = descend(
        Plan(part.sizes, part.nodes, part.parent),
        fixed,
        start,
        {m.clique: (m.values, m.sigma) for m in measurements},
        total=total,
        first_step=_first_step(part, measurements, total),
        iterations=iterations,
        tolerance=tolerance,
    )
    return _onto_layout(part, found)


def _fit_compiled(
    part: Layout,
    measurements: Sequence[Measurement],
    total: float,
    start: Mapping[Clique, Table],
    iterations: int,
    tolerance: float,
) -> dict[Clique, Table]:
    if not measurements:
        return dict(start)
    with precise() as mbi:
        import jax.numpy as jnp

        domain = mbi.Domain(tuple(part.sizes), tuple(part.sizes.values()))
        given = {m.clique: m for m in measurements}
        # A marginal without a measurement stays in the program, with weight 0: the program stays the same.
        rows = []
        for clique in part.cliques:
            one = given.get(clique)
            values = one.values if one is not None else np.zeros(_cells(part.sizes, clique))
            sigma = one.sigma if one is not None else 1e30
            rows.append(
                mbi.LinearMeasurement(jnp.asarray(values, dtype=jnp.float64), clique, jnp.asarray(sigma))
            )
        loss = mbi.marginal_loss.from_linear_measurements(rows, domain)
        tables = {c: mbi.Factor(domain.project(c), jnp.asarray(start[c])) for c in loss.cliques}
        begin = mbi.CliqueVector(domain, loss.cliques, tables)
        constraints = tuple(
            mbi.Constraint(domain.project(rule.attributes), valid=np.argwhere(rule.allowed))
            for rule in part.rules
        )
        step = _first_step(part, measurements, total)
        found = _descend()(begin, loss, total, constraints, step, iterations, tolerance)
        return {clique: np.asarray(found[clique].values) for clique in loss.cliques}


@lru_cache(maxsize=1)
def _descend() -> Any:
    """Entropic mirror descent with a step that doubles back when the loss does not fall, compiled per
    structure.
    """
    import jax
    import jax.numpy as jnp

    mbi = _mbi()
    oracles = mbi.marginal_oracles

    @jax.jit
    def descend(
        begin: Any, loss: Any, total: Any, constraints: Any, first_step: Any, iterations: Any, tolerance: Any
    ) -> Any:
        oracle = oracles.message_passing_shafer_shenoy if constraints else oracles.message_passing_hugin

        def step(state: Any) -> Any:
            count, stalled, theta, gradient, value, alpha = state
            candidate = theta - alpha * gradient
            mu = oracle(candidate, total, constraints=constraints)
            new_value, new_gradient = jax.value_and_grad(loss)(mu)
            better = new_value <= value
            small = value - new_value <= tolerance * jnp.maximum(new_value, 1.0)
            stalled = jnp.where(better & small & (count > 0), stalled + 1, jnp.where(better, 0, stalled))

            def pick(a: Any, b: Any) -> Any:
                return jax.tree.map(lambda x, y: jnp.where(better, x, y), a, b)

            # The first evaluation is the start itself (alpha 0): then the real step begins.
            alpha = jnp.where(count == 0, first_step, jnp.where(better, 1.25 * alpha, 0.5 * alpha))
            return (
                count + 1, stalled, pick(candidate, theta), pick(new_gradient, gradient),
                jnp.where(better, new_value, value), alpha,
            )  # fmt: skip

        def going(state: Any) -> Any:
            return (state[0] < iterations) & (state[1] < 3)

        nothing = jax.tree.map(jnp.zeros_like, begin)
        state = (0, 0, begin, nothing, jnp.inf, 0.0)
        state = jax.tree.map(jnp.asarray, state)
        return jax.lax.while_loop(going, step, state)[2]

    return descend


def compilations() -> int:
    """How many programs the fit has compiled in this process."""
    return int(_descend()._cache_size())


def _cells(sizes: Mapping[str, int], clique: Sequence[str]) -> int:
    return math.prod(sizes[name] for name in clique)


def _elimination_order(sizes: Mapping[str, int], cliques: Sequence[Clique]) -> list[str] | None:
    """The order that mbi's greedy rule finds, always the attribute whose table is the smallest; None where
    mbi has no need of one. Only neighbours of what was eliminated are looked at again, which for two hundred
    columns is a hundred times less work.
    """
    near: dict[str, set[str]] = {name: set() for name in sizes}
    for clique in cliques:
        for name in clique:
            near[name] |= set(clique)
    edges = [(a, b) for a, others in near.items() for b in others if a < b]
    if len(edges) == len(sizes) - 1:
        graph = nx.Graph(edges)
        if len(graph) == len(sizes) and nx.is_tree(graph):
            return None
    cost = {name: _cells(sizes, tuple(others)) for name, others in near.items()}
    order = []
    while cost:
        name = min(cost, key=cost.__getitem__)
        order.append(name)
        del cost[name]
        others = near[name] - {name}
        for other in others:
            near[other] = (near[other] | others) - {name}
            cost[other] = _cells(sizes, tuple(near[other]))
    return order


@lru_cache(maxsize=512)
def _junction_tree(
    sizes: tuple[tuple[str, int], ...], cliques: tuple[Clique, ...]
) -> tuple[list[Clique], list[int]]:
    """Nodes (parents first) and parents of a junction tree; the same in every process."""
    mbi = _mbi()
    domain = mbi.Domain(*zip(*sizes, strict=True))
    tree, _ = mbi.junction_tree.make_junction_tree(
        domain, sorted(set(cliques)), _elimination_order(dict(sizes), cliques)
    )
    position = {name: i for i, (name, _) in enumerate(sizes)}
    nodes: list[Clique] = []
    parent: list[int] = []
    seen: dict[Clique, int] = {}
    for root in sorted(tree.nodes, key=lambda node: [position[name] for name in node]):
        if root in seen:
            continue
        waiting = [(root, -1)]
        while waiting:
            node, above = waiting.pop()
            seen[node] = len(nodes)
            parent.append(above)
            nodes.append(tuple(sorted(node, key=position.__getitem__)))
            waiting += [(other, seen[node]) for other in sorted(tree.neighbors(node)) if other not in seen]
    return nodes, parent

"""mbi: the library that supplies the junction tree, and a compiled fit for the largest models.

XLA compiles once for each clique structure, which takes seconds. The compiled loop asks for one oracle and
one gradient per step, where mbi's own estimator asks for two oracles. Everything that changes from step to
step (values, weights, the total, the start, how long to iterate) is traced, so only a new structure compiles.

JAX runs in 64 bits inside ``precise()`` only; a caller's own JAX code keeps its settings.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from synthgeo._extras import require
from tabular.model.message_passing import Clique, Table

if TYPE_CHECKING:
    from tabular.model.fitting import Measurement
    from tabular.model.junction_tree import Layout


@lru_cache(maxsize=1)
def load_mbi() -> Any:
    """mbi, imported once, without its advice about JAX settings that ``precise`` takes care of."""
    jax = require("jax", extra="tabular")
    with warnings.catch_warnings(), jax.enable_x64(True):
        warnings.simplefilter("ignore")
        require("mbi", extra="tabular")
        require("mbi.marginal_oracles", extra="tabular")
        require("mbi.junction_tree", extra="tabular")
        return require("mbi", extra="tabular")


def requireload_mbi() -> None:
    """Say what to install where the junction tree's library is missing: before anything is spent."""
    load_mbi()


@contextmanager
def precise() -> Iterator[Any]:
    """mbi with 64-bit JAX, for the duration: 32 bits stall beyond some 10^5 rows."""
    mbi = load_mbi()
    import jax

    with jax.enable_x64(True):
        yield mbi


def fit_compiled(
    part: Layout,
    measurements: Sequence[Measurement],
    total: float,
    start: Mapping[Clique, Table],
    first_step: float,
    iterations: int,
    tolerance: float,
) -> dict[Clique, Table]:
    """Potentials on the maximal cliques of a layout, by mirror descent in XLA."""
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
            values = (
                one.values
                if one is not None
                else np.zeros(int(np.prod([part.sizes[name] for name in clique])))
            )
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
        found = _descend()(begin, loss, total, constraints, first_step, iterations, tolerance)
        return {clique: np.asarray(found[clique].values) for clique in loss.cliques}


@lru_cache(maxsize=1)
def _descend() -> Any:
    """Entropic mirror descent with a step that doubles back when the loss does not fall, compiled per
    structure.
    """
    import jax
    import jax.numpy as jnp

    mbi = load_mbi()
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

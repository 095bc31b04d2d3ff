"""The estimator of mbi, for those who want it (``estimator="mbi"``) and for tests that compare with it.

Importing it brings JAX, and each new structure is compiled for seconds, so nothing here is loaded unless it
is asked for. JAX runs in 64 bits inside ``precise()`` only; a caller's own JAX code keeps its settings.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from synthgeo.extras import require
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

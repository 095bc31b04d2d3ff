"""Synthetic rows that keep every rule of a schema, and meet every condition. Post-processing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from synthgeo import validate
from synthgeo.arrays import Floats, Ints
from synthgeo.errors import ConfigError
from synthgeo.schema import Binned, Schema
from tabular.model.fitting import Snapshot

# How often rows that break a rule are drawn again.
_ROUNDS = 40
# If none was good after so many rounds, merged values are drawn more evenly: under much noise the values that
# are left of two columns may be such that no two of them agree.
_PATIENCE = 10


def drawable(schema: Schema, rows: int) -> int:
    """How many rows are drawn at once: no more than memory could hold, with a code and a value for each
    attribute.
    """
    return validate.drawn(rows, "rows", each=16 * len(schema.attributes))


def draw_rows(
    schema: Schema, snapshot: Snapshot, rows: int, rng: np.random.Generator, given: Mapping[str, Any]
) -> pd.DataFrame:
    """``rows`` rows of a released table.

    The model itself knows conditions and rules about codes. What it cannot know (an order between values
    inside bins, values that were merged, sums that are conditioned on) is met by drawing such rows again.
    """
    rows = drawable(schema, rows)
    masses = _masses(schema, snapshot)
    conditions = schema.conditions(given, masses)
    likelihood = schema.likelihood(conditions)
    codes, values = np.zeros((0, len(schema.attributes)), dtype=np.int64), dict[str, Floats]()
    for turn in range(_ROUNDS):
        wanted = rows - len(codes)
        # More than are wanted where few are good.
        size = wanted if turn == 0 else max(2 * wanted, min(rows, 1000))
        if turn > 0 and len(codes) < 0.5 * rows:
            size = max(size, min(20_000, 10 * rows))
        if turn == _PATIENCE and not len(codes):
            snapshot = snapshot.evened()
        fresh = schema.settled(snapshot.sample(size, rng, likelihood))
        drawn, good = schema.draw(fresh, rng, masses=masses, conditions=conditions)
        kept = np.flatnonzero(good)[:wanted]
        values = {n: np.concatenate([values.get(n, np.zeros(0)), v[kept]]) for n, v in drawn.items()}
        codes = np.concatenate([codes, fresh[kept]])
        if len(codes) == rows:
            break
    if len(codes) < rows:
        if not len(codes):
            raise ConfigError("the conditions contradict each other or the schema: no row can meet them")
        again: Ints = np.append(np.arange(len(codes)), rng.integers(0, len(codes), rows - len(codes)))
        codes, values = codes[again], {name: found[again] for name, found in values.items()}
    return schema.frame(codes, values, rng, conditions)


def _masses(schema: Schema, snapshot: Snapshot) -> dict[str, Floats]:
    """Released counts of the bins, from which the slope of the density inside them follows."""
    binned = [(name,) for name, column in schema.modelled.items() if isinstance(column, Binned)]
    return {clique[0]: counts for clique, counts in snapshot.expected(binned).items()}

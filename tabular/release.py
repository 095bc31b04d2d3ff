"""A released table: synthetic rows, drawn from the model when first asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from streams.birth_times import BirthTimes
from synthgeo.errors import ConfigError
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.noise import generator
from synthgeo.release import Release
from synthgeo.schema import Schema
from tabular.drawing import draw_rows, drawable
from tabular.model.fitting import Snapshot
from tabular.model.junction_tree import Clique


class TableRelease(Release):
    """A synthetic table as of one step.

    ``data`` has as many rows as the released number says; ``sample`` draws any number of rows, also under
    conditions; ``marginal`` reads expected counts off the model without drawing. All of it is
    post-processing. With a lifetime and windows, ``window_start`` says of each row which window it stands
    for, dealt out by the windows' released numbers of rows."""

    product = "table"

    def __init__(
        self,
        *,
        step: int,
        spent: PrivacyBudget | None,
        provenance: dict[str, Any],
        schema: Schema,
        snapshot: Snapshot,
        deviations: dict[Clique, float],
        seed: int,
        rows: int | None = None,
        given: Mapping[str, Any] | None = None,
        times: BirthTimes | None = None,
    ) -> None:
        super().__init__(step=step, spent=spent, provenance=provenance)  # type: ignore[arg-type]
        self.schema = schema
        self._rows = round(snapshot.total) if rows is None else drawable(schema, rows)
        self._given = dict(given or {})
        schema.conditions(self._given)  # what cannot be met is refused now
        self._snapshot = snapshot
        self._deviations = deviations
        self._seed = seed
        self._times = times

    @property
    def total(self) -> int:
        """Number of synthetic rows."""
        return self._rows

    def _build(self) -> pd.DataFrame:
        rng = generator(self._seed)
        rows = draw_rows(self.schema, self._snapshot, self.total, rng, self._given)
        if self._times is None:
            return rows
        times = self._times.columns(self._times.draw(len(rows), rng), rng.random(len(rows)))
        return rows.assign(**{name: column for name, column in times.items() if name not in rows})

    def redraw(self, turn: int) -> TableRelease:
        """The same release with other synthetic rows drawn from the same model."""
        twin = copy(self)
        twin.__dict__.pop("data", None)
        twin._seed = self._seed + turn  # noqa: SLF001 - a copy of itself
        return twin

    def sample(self, rows: int, *, given: Mapping[str, Any] | None = None, seed: int = 0) -> pd.DataFrame:
        """``rows`` synthetic rows, of which ``given`` fixes columns: to a value, a range (low, high) of
        numbers or dates, None for a missing value, or a list of these. Conditions are met by inference on
        the model. ``seed`` tells draws apart.
        """
        rng = generator(self._seed + 2**40 + seed)
        return draw_rows(self.schema, self._snapshot, rows, rng, given or {})

    def marginal(self, *names: str) -> NDArray[np.float64]:
        """Expected counts of the released table over some attributes, one axis each."""
        sizes = self.schema.sizes
        for name in names:
            if name not in sizes:
                raise ConfigError(f"no attribute {name!r}; there are {', '.join(sizes)}")
        return self._snapshot.expected([names])[names].reshape([sizes[name] for name in names])

    def marginals(self, cliques: Sequence[Clique]) -> dict[Clique, NDArray[np.float64]]:
        """Expected counts of several marginals, flat."""
        return self._snapshot.expected(cliques)

    def expected_error(self) -> pd.DataFrame:
        rows = [(" x ".join(clique), deviation) for clique, deviation in self._deviations.items()]
        return pd.DataFrame(rows, columns=["marginal", "standard_error_per_cell"])

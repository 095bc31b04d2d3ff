"""What a schema leaves to the data: bins of numbers and values of categories, found privately."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from synthgeo.arrays import Ints
from synthgeo.errors import ConfigError
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.noise import Noise
from synthgeo.schema import Binned, Categorical, Schema
from synthgeo.schema.binned import MOST_BINS
from synthgeo.sources import Histogram
from tabular.bins import tree_edges, with_trial_bins
from tabular.counting import Rows
from tabular.values import find_values, with_trial_values


def check_findable(schema: Schema, budget: PrivacyBudget) -> None:
    """Refuse values that are to be found without candidates and without a δ."""
    for name in schema.pending_values if budget.is_pure else ():
        column = schema.columns[name]
        if isinstance(column, Categorical) and column.candidates is None:
            raise ConfigError(
                f"column {name!r}: finding values needs a budget with delta > 0, or candidates="
            )


def trial_schema(schema: Schema, *, most_bins: int = MOST_BINS) -> Schema:
    """The schema with as many bins and values as columns can get: what fits it fits what is found."""
    return with_trial_values(with_trial_bins(schema, most_bins))


@dataclass(frozen=True)
class Unknown:
    """The exact values of the columns whose bins, or values, are still to be found. Private."""

    numbers: dict[str, Histogram]
    words: dict[str, tuple[list[str], Ints]]

    @classmethod
    def of(cls, schema: Schema, rows: Rows, trial: Schema) -> Unknown:
        """What ``rows`` hold of these columns."""
        binned = {name: schema.columns[name] for name in schema.pending_bins}
        return cls(
            {
                name: rows.values(name, column)
                for name, column in binned.items()
                if isinstance(column, Binned)
            },
            {name: rows.words(name, trial) for name in schema.pending_values},
        )

    @property
    def columns(self) -> int:
        """How many columns there are."""
        return len(self.numbers) + len(self.words)

    def lists(self, schema: Schema) -> int:
        """How many of them list their values without candidates: each takes a part of δ."""
        found = (schema.columns[name] for name in self.words)
        return sum(isinstance(column, Categorical) and column.candidates is None for column in found)

    def found(
        self,
        schema: Schema,
        epsilons: Sequence[float],
        *,
        delta: float,
        bound: int,
        noise: Noise,
        most_bins: int = MOST_BINS,
    ) -> Schema:
        """The schema with what was found: ``epsilons`` are those of each column for one record, of bins first
        and then of values; ``delta`` is that of each list of values without candidates.

        Guarantee
        ---------
        For a unit with at most ``bound`` rows: bound times the sum of ``epsilons``, and ``delta`` for each
        list without candidates (``tabular.bins.tree_edges``, ``tabular.values.find_values``).
        """
        share = dict(zip([*self.numbers, *self.words], epsilons, strict=True))
        for name, (words, holders) in self.words.items():
            column = schema.columns[name]
            assert isinstance(column, Categorical)
            listed = find_values(
                column, words, holders, epsilon=share[name] * bound, delta=delta, bound=bound, noise=noise
            )
            schema = schema.with_column(name, listed)
        for name, held in self.numbers.items():
            binned = schema.columns[name]
            assert isinstance(binned, Binned)
            edges = tree_edges(
                binned,
                held.keys.astype("int64"),
                held.weights[:, 0],
                epsilon=share[name],
                noise=noise,
                most=most_bins,
            )
            schema = schema.with_column(name, binned.with_edges(edges))
        return schema

"""What a schema leaves to the data: bins of numbers and values of categories, found privately."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from synthgeo.arrays import Ints
from synthgeo.errors import ConfigError
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.filter import PrivacyFilter
from synthgeo.privacy.noise import Noise
from synthgeo.schema import Binned, Categorical, Schema
from synthgeo.schema.binned import MOST_BINS
from synthgeo.sources import Histogram
from tabular.bins import tree_edges, with_trial_bins
from tabular.counting import TableRows
from tabular.values import GaussianCounts, LaplaceCounts, WordCounts, find_values, with_trial_values


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


def word_counts(spending: PrivacyFilter, share: float, *, bound: int, rows: int = 1) -> WordCounts:
    """The noise that a share of a budget buys for the values of a column, of which a unit holds at most
    ``bound``; ``rows`` is how many the filter reckons with for a unit. Spends the share.
    """
    if spending.kind == "pure":
        return LaplaceCounts(rows * spending.pure_epsilon(share), bound)
    return GaussianCounts(spending.deviation(share, math.sqrt(bound) / rows), bound)


@dataclass(frozen=True)
class Unknown:
    """The exact values of the columns whose bins, or values, are still to be found. Private."""

    numbers: dict[str, Histogram]
    words: dict[str, tuple[list[str], Ints]]

    @classmethod
    def of(cls, schema: Schema, rows: TableRows, trial: Schema) -> Unknown:
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
        trees: Sequence[float],
        words: Sequence[WordCounts],
        *,
        delta: float,
        noise: Noise,
        most_bins: int = MOST_BINS,
    ) -> Schema:
        """The schema with what was found: ``trees`` are the ε of each column's bins for one record, ``words``
        the noise of each column's values for one unit; ``delta`` is that of each list of values without
        candidates.

        Guarantee
        ---------
        For a unit with at most m rows: m times the sum of ``trees`` (``tabular.bins.tree_edges``); what the
        noise of ``words`` costs, and ``delta`` for each list without candidates
        (``tabular.values.find_values``).
        """
        for (name, (listed, holders)), counts in zip(self.words.items(), words, strict=True):
            column = schema.columns[name]
            assert isinstance(column, Categorical)
            found = find_values(column, listed, holders, counts=counts, delta=delta, noise=noise)
            schema = schema.with_column(name, found)
        for (name, held), epsilon in zip(self.numbers.items(), trees, strict=True):
            binned = schema.columns[name]
            assert isinstance(binned, Binned)
            edges = tree_edges(
                binned,
                held.keys.astype("int64"),
                held.weights[:, 0],
                epsilon=epsilon,
                noise=noise,
                most=most_bins,
            )
            schema = schema.with_column(name, binned.with_edges(edges))
        return schema

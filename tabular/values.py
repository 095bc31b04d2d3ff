"""The values of a categorical column that are frequent enough to be named: found privately."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from synthgeo.arrays import Floats, Ints
from synthgeo.canonical import word_of
from synthgeo.privacy.gaussian import noise_tail, noisy_counts
from synthgeo.privacy.noise import Noise
from synthgeo.schema import Categorical, Schema

#: At most so many values of a column are found: the most frequent ones.
MOST_VALUES = 500


@dataclass(frozen=True)
class LaplaceCounts:
    """Noise for the counts of a column's words under pure ε: of scale bound / ε.

    A holder (a record, or a user) holds at most ``bound`` words and moves the count of each by 1: all counts
    by ``bound`` in sum.
    """

    epsilon: float
    bound: int

    def noisy(self, holders: Ints, noise: Noise) -> Floats:
        """The counts with noise."""
        drawn = noise.discrete_laplace(self.bound / self.epsilon, holders.size)
        return np.asarray(holders + drawn, dtype=np.float64)

    def threshold(self, delta: float) -> float:
        """The least count, noise included, that names a word: 1 + noise reaches it with a probability of at
        most δ / bound.

        >>> LaplaceCounts(1.0, 1).threshold(1e-9)
        22.0
        """
        ratio = math.exp(-self.epsilon / self.bound)  # P(noise >= k) = ratio^k / (1 + ratio)
        gap = math.ceil(math.log((1 + ratio) * delta / self.bound) / math.log(ratio))
        return 1.0 + max(1, gap)

    def reach(self, keys: int) -> float:
        """What noise alone reaches for one list of so many keys in e."""
        return math.ceil(self.bound / self.epsilon * (1 + math.log(max(keys / 2, 1))))


@dataclass(frozen=True)
class GaussianCounts:
    """Gaussian noise of standard deviation ``sigma`` for the counts of a column's words (``noisy_counts``).

    A holder moves the counts of at most ``bound`` words by 1: all of them by sqrt(bound) in length.
    """

    sigma: float
    bound: int

    def noisy(self, holders: Ints, noise: Noise) -> Floats:
        """The counts with noise."""
        return noisy_counts(holders, self.sigma, noise)

    def threshold(self, delta: float) -> float:
        """The least count, noise included, that names a word: 1 + noise reaches it with a probability of at
        most δ / bound.

        >>> round(GaussianCounts(10.0, 1).threshold(1e-9))
        61
        """
        return 1.0 + noise_tail(self.sigma, delta / self.bound)

    def reach(self, keys: int) -> float:
        """What noise alone reaches for one list of so many keys in e."""
        return noise_tail(self.sigma, min(1 / (math.e * max(keys, 1)), 0.5))


#: How the counts of words get their noise.
WordCounts = LaplaceCounts | GaussianCounts


def frequent_words(
    words: Sequence[str], holders: Ints, *, counts: WordCounts, delta: float, noise: Noise
) -> list[str]:
    """The words that ``holders`` (records, or users) hold often, each holder at most ``counts.bound`` words.

    Guarantee
    ---------
    Take two worlds, with and without one holder. About words that others hold, too, both tell the noisy
    counts of the same words, which the holder moves by ``bound`` in sum and by sqrt(bound) in length: pure ε,
    or sqrt(bound)/σ-GDP. A word that nobody else holds is in the first world only, with a count of 1; it is
    told with a probability of at most δ / bound, independently of all others, and there are at most ``bound``
    of them. So the first world is a mixture: but for a probability p <= δ no such word is told, and it is as
    if there were none, whatever is released afterwards. The second world is the same mixture of itself with
    itself, and hockey-stick divergences are jointly convex: if all else together is (ε, δ'), then with this
    list it is (ε, (1 - p) δ' + p), at most (ε, δ' + δ), in both directions (the threshold is that of Korolova
    et al., *Releasing search queries and clicks privately*, 2009; with Gaussian noise that of Gopi et al.,
    *Differentially private set union*, 2020). Words are taken in alphabetical order and the most frequent
    ones by noisy count: post-processing.
    """
    order = np.argsort(np.asarray(words, dtype=object), kind="stable")
    found = _most(counts.noisy(holders[order], noise), counts.threshold(delta))
    return [words[order[i]] for i in found]


def frequent_keys(holders: Ints, *, counts: WordCounts, noise: Noise) -> Ints:
    """Which keys of a public list are held often: their positions.

    Guarantee
    ---------
    Pure ε, or sqrt(bound)/σ-GDP, for one holder: each key of the list gets noise, held or not, and a holder
    moves at most ``bound`` of the counts by 1. A key is told when its noisy count exceeds what noise alone
    reaches for one list in e.
    """
    return _most(counts.noisy(holders, noise), max(counts.reach(holders.size), 1.0))


def _most(noisy: Floats, least: float) -> Ints:
    """The positions of the largest that reach ``least``."""
    found = np.flatnonzero(noisy >= least)
    return np.sort(found[np.argsort(-noisy[found], kind="stable")[:MOST_VALUES]])


def with_trial_values(schema: Schema) -> Schema:
    """The schema with as many values as a column can get wherever they are still to be found; each value of
    the data counts as another one.
    """
    for name in schema.pending_values:
        column = schema.columns[name]
        assert isinstance(column, Categorical)
        dummies = [f"value {i}" for i in range(MOST_VALUES)]
        schema = schema.with_column(name, column.with_values(dummies))
    return schema


def find_values(
    column: Categorical,
    words: Sequence[str],
    holders: Ints,
    *,
    counts: WordCounts,
    delta: float,
    noise: Noise,
) -> Categorical:
    """The column with the values that were found; the others are its ``other``.

    Guarantee
    ---------
    That of ``frequent_keys`` where the column lists candidates, else that of ``frequent_words``.
    """
    if column.candidates is None:
        found: list[Any] = frequent_words(words, holders, counts=counts, delta=delta, noise=noise)
        if found and all(word.lstrip("-").isdigit() and word == str(int(word)) for word in found):
            found = [int(word) for word in found]
        return column.with_values(found)
    at = {word_of(value): i for i, value in enumerate(column.candidates)}
    held = np.zeros(len(at), dtype=np.int64)
    for word, number in zip(words, holders.tolist(), strict=True):
        if word in at:
            held[at[word]] = number
    kept = frequent_keys(held, counts=counts, noise=noise)
    return column.with_values([column.candidates[i] for i in kept])

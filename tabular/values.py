"""The values of a categorical column that are frequent enough to be named: found privately."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from synthgeo.arrays import Ints
from synthgeo.canonical import word_of
from synthgeo.privacy.noise import Noise
from synthgeo.schema import Categorical, Schema

#: At most so many values of a column are found: the most frequent ones.
MOST_VALUES = 500


def threshold(epsilon: float, delta: float, bound: int) -> int:
    """The least count, noise included, that a value must reach: 1 + noise of scale bound / ε reaches it with
    a probability of at most δ / bound.

    >>> threshold(1.0, 1e-9, 1)
    22
    """
    ratio = math.exp(-epsilon / bound)  # P(noise >= k) = ratio^k / (1 + ratio)
    return 1 + max(1, math.ceil(math.log((1 + ratio) * delta / bound) / math.log(ratio)))


def frequent_words(
    words: Sequence[str], holders: Ints, *, epsilon: float, delta: float, bound: int, noise: Noise
) -> list[str]:
    """The words that ``holders`` (records, or users) hold often, each holder at most ``bound`` words.

    Guarantee
    ---------
    (ε, δ) for one holder. A holder moves the counts of at most ``bound`` words by 1: noise of scale
    bound / ε on every word makes what is told about words that others hold, too, ε-private. A word that
    nobody else holds is in one world only, with a count of 1; that it is told has a probability of at most
    δ / bound, and there are at most ``bound`` of them (Korolova et al., *Releasing search queries and clicks
    privately*, 2009). Words are taken in alphabetical order and the most frequent ones by noisy count:
    post-processing.
    """
    order = np.argsort(np.asarray(words, dtype=object), kind="stable")
    noisy = holders[order] + noise.discrete_laplace(bound / epsilon, len(words))
    return _named([words[i] for i in order], noisy, threshold(epsilon, delta, bound))


def frequent_keys(holders: Ints, *, epsilon: float, bound: int, noise: Noise) -> Ints:
    """Which keys of a public list are held often: their positions.

    Guarantee
    ---------
    Pure ε for one holder: each key of the list gets noise of scale bound / ε, held or not, and a holder moves
    at most ``bound`` of the counts by 1. A key is told when its noisy count exceeds what noise alone reaches
    for one key in e.
    """
    scale = bound / epsilon
    noisy = holders + noise.discrete_laplace(scale, holders.size)
    least = math.ceil(scale * (1 + math.log(max(holders.size / 2, 1))))
    found = np.flatnonzero(noisy >= max(least, 1))
    return np.sort(found[np.argsort(-noisy[found], kind="stable")[:MOST_VALUES]])


def _named(words: list[str], noisy: Ints, least: int) -> list[str]:
    found = np.flatnonzero(noisy >= least)
    found = np.sort(found[np.argsort(-noisy[found], kind="stable")[:MOST_VALUES]])
    return [words[i] for i in found]


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
    epsilon: float,
    delta: float,
    bound: int,
    noise: Noise,
) -> Categorical:
    """The column with the values that were found; the others are its ``other``.

    Guarantee
    ---------
    That of ``frequent_keys`` where the column lists candidates, else that of ``frequent_words``.
    """
    if column.candidates is None:
        found: list[Any] = frequent_words(
            words, holders, epsilon=epsilon, delta=delta, bound=bound, noise=noise
        )
        if found and all(word.lstrip("-").isdigit() and word == str(int(word)) for word in found):
            found = [int(word) for word in found]
        return column.with_values(found)
    at = {word_of(value): i for i, value in enumerate(column.candidates)}
    counts = np.zeros(len(at), dtype=np.int64)
    for word, held in zip(words, holders.tolist(), strict=True):
        if word in at:
            counts[at[word]] = held
    kept = frequent_keys(counts, epsilon=epsilon, bound=bound, noise=noise)
    return column.with_values([column.candidates[i] for i in kept])

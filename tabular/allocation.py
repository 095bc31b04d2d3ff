"""Which marginals to measure, and how precisely: the division of a Gaussian budget. Public: it reads released
numbers only.

Leaving a marginal out costs its *error*: how far the model is from it, in rows. Measuring it with precision
b (one over the variance that a whole table would get) costs noise, its *size* divided by the square root of
b: the sum of the absolute errors of its cells. Budgets are sums of precisions, so the least noise for a
given choice is a division by the size to the power 2/3; marginals are taken up, the most error for their
size first, as long as what is left out and the noise of all together gets less. The same rule is behind
SWIFT (McKenna et al., dpsynth, 2025).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from synthgeo.arrays import Floats
from tabular.model.message_passing import Clique

#: The mean of |x| for x of the standard normal law.
MEAN_ABSOLUTE = math.sqrt(2 / math.pi)


class Candidate(NamedTuple):
    """A marginal that may be measured."""

    clique: Clique
    error: float
    size: float


class Standing(NamedTuple):
    """A marginal that is measured in any case, with the precision that it has already."""

    clique: Clique
    size: float
    precision: float


def divide(sizes: Floats, known: Floats, budget: float) -> Floats:
    """Precisions, of sum ``budget``, to add to those known: the sum of size / sqrt(precision) is least.

    >>> divide(np.array([1.0, 8.0]), np.zeros(2), 5.0).round(6).tolist()
    [1.0, 4.0]
    """
    wanted = sizes ** (2 / 3)
    if not known.any():
        return np.asarray(budget * wanted / wanted.sum())
    low, high = 0.0, (budget + known.sum()) / wanted.min()
    for _ in range(80):
        level = (low + high) / 2
        low, high = (level, high) if np.maximum(level * wanted - known, 0).sum() < budget else (low, level)
    added = np.maximum(high * wanted - known, 0.0)
    return np.asarray(added * (budget / added.sum()))


def allocate(
    candidates: Sequence[Candidate],
    standing: Sequence[Standing],
    budget: float,
    *,
    room: Callable[[list[Clique], Clique], bool],
    most: int | None = None,
) -> dict[Clique, float]:
    """The precision to buy for each marginal that is worth it, and more for the standing ones.

    ``room(chosen, clique)`` says whether the model can hold one more; ``most`` bounds how many are chosen.
    """
    known = np.array([one.precision for one in standing])
    sizes = np.array([one.size for one in standing])

    def noise(chosen: list[Candidate]) -> tuple[float, Floats, Floats]:
        every = np.concatenate([sizes, [one.size for one in chosen]])
        before = np.concatenate([known, np.zeros(len(chosen))])
        added = divide(every, before, budget)
        return float((every / np.sqrt(before + added)).sum()), before, added

    chosen: list[Candidate] = []
    least = noise([])[0]
    worth = [one for one in candidates if one.error > 0]
    for one in sorted(worth, key=lambda one: -one.error / one.size ** (2 / 3)):
        if most is not None and len(chosen) >= most:
            break
        cost = noise([*chosen, one])[0] - sum(c.error for c in chosen) - one.error
        if cost < least and room([c.clique for c in chosen], one.clique):
            least = cost
            chosen.append(one)
    added = noise(chosen)[2]
    cliques = [one.clique for one in standing] + [one.clique for one in chosen]
    worth_it = added > 1e-5 * budget  # less would be noise without an end
    return {clique: float(b) for clique, b, ok in zip(cliques, added, worth_it, strict=True) if ok}

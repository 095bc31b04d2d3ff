"""Which marginals to measure, and how precisely: the division of a budget. Public: it reads released numbers
only.

Leaving a marginal out costs its *error*: how far the model is from it, in rows. Measuring it with the part b
of the budget costs noise, the sum of the absolute errors of its cells: its *size* divided by b to some power
r. Of Gaussian noise b is a precision (one over the variance) and r = 1/2, of Laplace noise b is an ε and
r = 1. Budgets are sums of parts, so the least noise for a given choice is a division by the size to the power
1 / (1 + r); marginals are taken up, the most error for their size first, as long as what is left out and the
noise of all together gets less. The same rule is behind SWIFT (McKenna et al., dpsynth, 2025).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from synthgeo.arrays import Floats
from tabular.model.junction_tree import Clique

#: The mean of |x| for x of the standard normal law.
MEAN_ABSOLUTE = math.sqrt(2 / math.pi)
#: How noise falls with the part of the budget that a marginal gets.
GAUSSIAN, LAPLACE = 0.5, 1.0


class Candidate(NamedTuple):
    """A marginal that may be measured; of those with the same ``instead_of``, one."""

    clique: Clique
    error: float
    size: float
    instead_of: Clique = ()

    @property
    def choice(self) -> Clique:
        """What it is an answer to: at most one candidate is chosen for each."""
        return self.instead_of or self.clique


class Standing(NamedTuple):
    """A marginal that is measured in any case, with the part of the budget that it has had already."""

    clique: Clique
    size: float
    precision: float


def divide(sizes: Floats, known: Floats, budget: float, *, power: float = GAUSSIAN) -> Floats:
    """Parts, of sum ``budget``, to add to those known: the sum of size / part ** power is least.

    >>> divide(np.array([1.0, 8.0]), np.zeros(2), 5.0).round(6).tolist()
    [1.0, 4.0]
    >>> divide(np.array([1.0, 9.0]), np.zeros(2), 4.0, power=LAPLACE).round(6).tolist()
    [1.0, 3.0]
    """
    wanted = sizes ** (1 / (1 + power))
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
    power: float = GAUSSIAN,
) -> dict[Clique, float]:
    """The part of the budget for each marginal that is worth it, and more for the standing ones.

    ``room(chosen, clique)`` says whether the model can hold one more; ``most`` bounds how many are chosen. A
    candidate may take the place of another that was chosen before.
    """
    known = np.array([one.precision for one in standing])
    sizes = np.array([one.size for one in standing])

    def noise(chosen: list[Candidate]) -> tuple[float, Floats, Floats]:
        every = np.concatenate([sizes, [one.size for one in chosen]])
        before = np.concatenate([known, np.zeros(len(chosen))])
        added = divide(every, before, budget, power=power)
        return float((every / (before + added) ** power).sum()), before, added

    chosen: list[Candidate] = []
    least = noise([])[0] if standing else 0.0
    worth = [one for one in candidates if one.error > 0]
    for one in sorted(worth, key=lambda one: -one.error / one.size ** (1 / (1 + power))):
        others = [c for c in chosen if c.choice != one.choice]
        if most is not None and len(others) >= most:
            continue
        cost = noise([*others, one])[0] - sum(c.error for c in others) - one.error
        if cost < least and room([c.clique for c in others], one.clique):
            least = cost
            chosen = [*others, one]
    added = noise(chosen)[2] if standing or chosen else np.zeros(0)
    cliques = [one.clique for one in standing] + [one.clique for one in chosen]
    worth_it = added > 1e-5 * budget  # less would be noise without an end
    return {clique: float(b) for clique, b, ok in zip(cliques, added, worth_it, strict=True) if ok}


def take_up(
    candidates: Sequence[Candidate],
    standing: Sequence[float],
    budget: float,
    *,
    room: Callable[[list[Clique], Clique], bool],
) -> list[Clique]:
    """The marginals that are worth measuring beside those of sizes ``standing``, where all get the same part
    of a pure budget: each makes the noise of all others larger.
    """
    chosen: list[Candidate] = []
    sizes, least = sum(standing), sum(standing) * len(standing) / budget
    gained = 0.0
    worth = [one for one in candidates if one.error > 0]
    for one in sorted(worth, key=lambda one: -one.error / math.sqrt(one.size)):
        number = len(standing) + len(chosen) + 1
        cost = (sizes + one.size) * number / budget - gained - one.error
        if cost < least and room([c.clique for c in chosen], one.clique):
            least, sizes, gained = cost, sizes + one.size, gained + one.error
            chosen.append(one)
    return [one.clique for one in chosen]

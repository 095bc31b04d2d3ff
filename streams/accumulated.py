"""From a one-off private algorithm to a stream: run it on each batch alone, and add up (Kumar 2024, Algorithm
1).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from synthgeo import validate
from synthgeo.errors import ConfigError
from synthgeo.privacy.budget import PrivacyBudget


class Accumulated:
    """A stream of synthetic data from any one-off algorithm: the baseline that every stream should beat.

    ``algorithm(batch, budget)`` returns the synthetic data of one batch, as a frame, a list of rows or an
    array of counts; ``update`` adds it to what there is. Error adds up batch by batch, which is why
    ``PHDStream`` and ``TabularStream`` exist.

    Guarantee
    ---------
    That of ``algorithm`` at ``budget``, for one record of the stream over all releases (Theorem 2.3.4): a
    record is in one batch, the other batches are the same in both worlds, and each batch is handled apart by
    fresh noise. So pure ε if the algorithm is ε-private for one record. It needs records that are in one
    batch each and an algorithm that keeps nothing between its calls; users whose records are in several
    batches pay for each. Deletions are records of their own to it: what an algorithm makes of them is its
    affair.

    >>> stream = Accumulated(lambda batch, budget: np.asarray(batch), budget=PrivacyBudget(1.0))
    >>> _ = stream.update([1, 2])
    >>> stream.update([0, 5]).tolist()
    [1, 7]
    """

    def __init__(self, algorithm: Callable[[Any, PrivacyBudget], Any], *, budget: PrivacyBudget) -> None:
        if not callable(algorithm):
            raise ConfigError("algorithm must be a function of a batch and a budget")
        self.algorithm = algorithm
        self.budget = validate.instance(budget, "budget", PrivacyBudget)
        self.step = 0
        self.data: Any = None

    def __repr__(self) -> str:
        return f"Accumulated({self.algorithm!r}, budget={self.budget!r})"

    @property
    def spent(self) -> PrivacyBudget | None:
        """What a record has paid at most: the budget, once there was a batch."""
        return self.budget if self.step else None

    def update(self, batch: Any) -> Any:
        """Make synthetic data of one batch; all synthetic data so far."""
        fresh = self.algorithm(batch, self.budget)
        self.data = fresh if self.data is None else _sum(self.data, fresh)
        self.step += 1
        return self.data


def _sum(one: Any, other: Any) -> Any:
    """Counts are added, rows are put one below the other."""
    if isinstance(one, pd.DataFrame):
        return pd.concat([one, other], ignore_index=True)
    if isinstance(one, np.ndarray):
        return one + other
    return [*one, *other]

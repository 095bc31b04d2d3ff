"""How far off a counter can be at a step: the (α, β) accuracy of Kumar (2024), Lemmas 2.4.1.1 to 2.4.1.4."""

from __future__ import annotations

import math

from streams.counters.base import CounterBank, LaplaceBank
from streams.counters.unbounded import HybridBank
from synthgeo import validate
from synthgeo.errors import ConfigError
from synthgeo.privacy import bounds
from synthgeo.privacy.noise import laplace_variance


def error_bound(bank: CounterBank, step: int, beta: float) -> float:
    """α with P(|noisy sum - true sum| >= α) <= ``beta`` after ``step`` values, in grid steps.

    The noise at t is a sum of independent draws whose variance the bank knows in closed form: O(sqrt(t)),
    O(t^(1/4)) and O(log^1.5 t) for the simple, block and binary counters, as in the lemmas.
    """
    time = validate.whole(step, "step", low=1)
    variance = float(bank.variance(time))
    if not isinstance(bank, LaplaceBank):
        return bounds.gaussian(math.sqrt(variance), beta)
    smallest = largest = float(getattr(bank, "scale", 0.0))
    if isinstance(bank, HybridBank):
        smallest, largest = bank.scale_for(1), bank.scale_for(int(math.log2(time)) + 1)
    elif not largest:
        raise ConfigError(f"no bound is known for a {bank.kind} counter")
    # Continuous noise of the same scales has a variance larger by at most this factor.
    return bounds.laplace_sum(variance * 2 * smallest**2 / laplace_variance(smallest), largest, beta)

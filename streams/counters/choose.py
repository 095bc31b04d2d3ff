"""Counters by name: make one, choose the best for a horizon, read a saved one, bound its error."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streams.counters.base import MAX_HORIZON, CounterBank, LaplaceBank
from streams.counters.bounded import BinaryBank, BlockBank, KaryBank, SimpleBank, ToeplitzBank
from streams.counters.unbounded import HybridBank, UnboundedBlockBank, UnboundedKaryBank
from synthgeo import validate
from synthgeo.errors import ConfigError, StateError
from synthgeo.privacy import bounds
from synthgeo.privacy.noise import Noise, SystemNoise, laplace_variance

# The one list of counters: everything that names kinds reads it.
BANKS: dict[str, Any] = {
    bank.kind: bank
    for bank in (
        SimpleBank,
        BlockBank,
        BinaryBank,
        KaryBank,
        HybridBank,
        UnboundedBlockBank,
        UnboundedKaryBank,
        ToeplitzBank,
    )
}
KINDS = (*BANKS, "auto")
LAPLACE_KINDS = tuple(kind for kind, bank in BANKS.items() if issubclass(bank, LaplaceBank))

# How long a stream of unknown length is assumed to be when a counter is chosen for it.
NOMINAL_HORIZON = 1000
# A longer horizon's error is averaged over this many of its times.
_MOST_TIMES = 1 << 20


def make_bank(
    kind: str,
    *,
    noise: Noise,
    epsilon: float | None = None,
    rho: float | None = None,
    horizon: int | None = None,
    grid_bits: int = 0,
) -> CounterBank:
    """An empty bank of counters.

    ``kind`` is "simple", "block", "binary", "kary" (these expect ``horizon`` steps and go on past them with
    more error), "hybrid", "unbounded_block", "unbounded_kary" (no horizon needed), "toeplitz" (Gaussian, with
    ``rho`` in place of ``epsilon``), or "auto": the one of least expected error over the horizon, and among
    those that need none where ``horizon`` is None. Each event pays at most ``epsilon`` (or ``rho``, in zCDP)
    in each slot it is fed to.

    With ``grid_bits=b`` values are in grid steps and one event is worth at most 2^b of them.

    >>> from synthgeo.privacy.noise import SeededNoise
    >>> bank = make_bank("auto", epsilon=1.0, horizon=365, noise=SeededNoise(1))
    >>> bank.kind, bank.branching, bank.levels
    ('kary', 29, 2)
    >>> slots = bank.add(3)
    >>> bank.step(slots, [5, 0, 2]).shape
    (3,)
    """
    if kind not in KINDS:
        raise ConfigError(f"counter must be one of {', '.join(KINDS)}; got {kind!r}")
    if (kind == "toeplitz") != (epsilon is None) or (epsilon is None) == (rho is None):
        raise ConfigError("give rho for a toeplitz counter, epsilon for every other")
    if kind == "auto":
        assert epsilon is not None
        kind = _best_kind(SimpleBank(epsilon=epsilon, noise=noise, horizon=horizon).epsilon, horizon)
    privacy = {"rho": rho} if kind == "toeplitz" else {"epsilon": epsilon}
    bank: CounterBank = BANKS[kind](noise=noise, horizon=horizon, grid_bits=grid_bits, **privacy)
    return bank


def expected_rmse(
    kind: str,
    *,
    horizon: int,
    epsilon: float | None = None,
    rho: float | None = None,
    grid_bits: int = 0,
) -> float:
    """Root of the mean variance of the noisy sum over times 1 to ``horizon``, in grid steps. Spends nothing.

    >>> round(expected_rmse("kary", epsilon=1.0, horizon=365), 1)
    10.3
    """
    times = validate.whole(horizon, "horizon", low=1, high=MAX_HORIZON)
    bank = make_bank(kind, epsilon=epsilon, rho=rho, horizon=times, grid_bits=grid_bits, noise=SystemNoise())
    if times <= _MOST_TIMES:
        which = np.arange(1, times + 1)
    else:
        which = np.linspace(1, times, _MOST_TIMES).astype(np.int64)
    return math.sqrt(float(np.mean(bank.variance(which))))


@lru_cache(maxsize=512)
def _best_kind(epsilon: float, horizon: int | None) -> str:
    kinds = [kind for kind in LAPLACE_KINDS if horizon is not None or not BANKS[kind].needs_horizon]
    steps = NOMINAL_HORIZON if horizon is None else horizon
    return min(kinds, key=lambda kind: expected_rmse(kind, epsilon=epsilon, horizon=steps))


def bank_from_state(values: dict[str, Any], arrays: dict[str, NDArray[Any]], noise: Noise) -> CounterBank:
    """The bank that ``to_state`` described, drawing from ``noise``. ``StateError`` on anything unexpected."""
    parameters = dict(values)
    try:
        bank: CounterBank = BANKS[parameters.pop("kind")](noise=noise, **parameters)
    except (KeyError, TypeError, ConfigError) as problem:
        raise StateError(f"not the state of a bank of counters ({problem})") from problem
    bank.restore(arrays)
    return bank


# How far off a counter can be at a step: the (α, β) accuracy of Kumar (2024), Lemmas 2.4.1.1 to 2.4.1.4.


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

"""The square-root Toeplitz counter with Gaussian noise: the least error of all counters here, under zCDP.

The matrix A of all running sums (ones on and below the diagonal) is the square of the Toeplitz matrix R with
coefficients 1, 1/2, 3/8, 5/16, ... (those of (1 - x)^(-1/2)). Noise goes in between: release R x + z, read
off A x = R (R x). See Henzinger, Upadhyay and Upadhyay, "Almost Tight Error Bounds on Differentially Private
Continual Counting", and Fichtenberger, Henzinger and Upadhyay, "Constant Matters".
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from streams.counters.base import ROUND_UP, CounterBank, check_times, need_horizon
from synthgeo import validate
from synthgeo.arrays import Floats, Ints
from synthgeo.errors import ConfigError, StateError
from synthgeo.privacy.noise import MAX_SCALE, Noise

# Coefficients of R are whole multiples of 2^-16, so that R x is whole on a finer grid, where exact noise
# lives.
FACTOR_BITS = 16
MAX_TOEPLITZ_HORIZON = 1 << 15


class ToeplitzBank(CounterBank):
    """A bank of square-root Toeplitz counters with discrete Gaussian noise.

    Guarantee
    ---------
    ρ-zCDP for each event, for everything a slot ever puts out, also when later values, and which slots are
    stepped, depend on earlier outputs. An event is a change of at most 1 (2^grid_bits grid steps) in one
    value of one slot.

    Let B be R with each coefficient rounded to a multiple of 2^-16. The mechanism is y = B x + z with z
    discrete Gaussian on that grid; every output is computed from y alone (by the inverse of B, in floating
    point, then rounded), so it costs nothing more. Row t of B x uses x_1, ..., x_t only. Given the outputs
    before it, an event at τ moves row t by b_(t-τ), a known whole number of grid steps, so row t is
    (b_(t-τ))² / (2 σ²)-zCDP (Canonne, Kamath, Steinke, "The Discrete Gaussian for Differential Privacy"), and
    adaptive composition adds the rows up to at most the squared norm of B's first column over 2 σ², which σ
    makes equal to ρ.

    Past the horizon a fresh epoch starts on top of the last noisy sum. An event is in one epoch, so it pays
    at most ρ.

    Variance
    --------
    σ² (c_0² + ... + c_(t-1)²), where c is the first column of A times the inverse of B, nearly that of R,
    plus at most 1/4 for rounding. With e epochs behind, e times that at the horizon comes on top.

    Memory: 2 numbers per slot for each step of the horizon (true values and noisy rows of the epoch), and a
    step takes time in proportion: for short horizons or small banks.
    """

    kind = "toeplitz"
    needs_horizon = True
    _growing = ("value", "row")

    def __init__(self, *, rho: float, noise: Noise, horizon: int | None = None, grid_bits: int = 0) -> None:
        super().__init__(noise=noise, horizon=need_horizon(horizon, self.kind), grid_bits=grid_bits)
        self.rho = validate.positive(rho, "rho")
        self._length = validate.whole(horizon, "horizon", low=1, high=MAX_TOEPLITZ_HORIZON)
        self._factor, self._decoder = _factors(self._length)
        norm = math.sqrt(int(np.sum(self._factor.astype(object) ** 2)))
        # In steps of the fine grid, 2^-(grid_bits + 16) of an event.
        self.sigma = norm * 2.0**self.grid_bits / math.sqrt(2 * self.rho) * ROUND_UP
        if self.sigma > MAX_SCALE:
            raise ConfigError(f"rho={self.rho} is too small for a grid of 2^-{self.grid_bits}")
        # Of the shared arrays, "total" is the last noisy sum of the epochs behind, and "noise" the last one.
        self._arrays["value"] = np.zeros((0, 0), dtype=np.int64)
        self._arrays["row"] = np.zeros((0, 0), dtype=np.int64)

    def _advance(self, slots: Ints, time: Ints, values: Ints) -> Ints:
        before = (time - 1) % self._length
        fresh = self.noise.discrete_gaussian(self.sigma, slots.size)
        longest = int(before.max()) + 1
        arrays = self._arrays
        for name in self._growing:
            if longest > arrays[name].shape[0]:
                self._grow_rows(name, min(self._length, max(longest, 2 * arrays[name].shape[0])))
        starting = slots[(before == 0) & (time > 1)]
        arrays["total"][starting] = arrays["noise"][starting]
        arrays["value"][:, starting] = 0
        arrays["row"][:, starting] = 0
        arrays["value"][before, slots] = values
        noisy = np.empty(slots.size, dtype=np.int64)
        for now in np.unique(before):  # slots of one age share their coefficients
            here = np.flatnonzero(before == now)
            who = slots[here]
            row = self._factor[now::-1] @ arrays["value"][: now + 1, who] + fresh[here]
            arrays["row"][now, who] = row
            decoded = self._decoder[now::-1] @ arrays["row"][: now + 1, who].astype(np.float64)
            noisy[here] = np.rint(decoded).astype(np.int64)
        noisy += arrays["total"][slots]
        arrays["noise"][slots] = noisy
        return noisy

    def restore(self, arrays: dict[str, Ints]) -> None:
        super().restore(arrays)
        rows = self._arrays["value"].shape[0]
        clock = self._arrays["clock"]
        needed = np.where(clock > 0, (clock - 1) % self._length + 1, 0)  # a fresh counter has no row yet
        if rows > self._length or np.any(needed > rows):
            raise StateError(f"{rows} rows do not fit the clocks of a toeplitz bank")

    def variance(self, time: Any) -> Floats:
        """σ² times the squared norm of the decoder's row. Rounding adds at most 1/4, not counted."""
        times = check_times(time)
        squares = self.sigma**2 * np.concatenate([[0.0], np.cumsum(self._decoder**2)])
        past = np.maximum(times - 1, 0) // self._length
        return np.asarray(past * squares[-1] + squares[times - past * self._length])

    def event_cost(self, horizon: int) -> Floats:
        """ρ paid: the squared change of the rows from the event to the end of its epoch, over 2 σ²."""
        before = np.arange(validate.whole(horizon, "horizon", low=1, high=2**32)) % self._length
        change = np.cumsum(self._factor.astype(np.float64) ** 2) * 4.0**self.grid_bits
        return np.asarray(change[self._length - 1 - before] / (2 * self.sigma**2))

    def _parameters(self) -> dict[str, Any]:
        return {"rho": self.rho}


@lru_cache(maxsize=8)
def _factors(length: int) -> tuple[Ints, Floats]:
    """First columns of B, in steps of 2^-16, and of the decoder A B^-1 (which undoes those steps)."""
    from scipy.signal import lfilter  # slow to import, and seldom needed

    steps = np.arange(1, length)
    root = np.concatenate([[1.0], np.cumprod(1 - 0.5 / steps)])
    factor = np.rint(root * 2.0**FACTOR_BITS).astype(np.int64)
    decoder = lfilter([1.0], factor.astype(np.float64), np.ones(length))
    return factor, np.asarray(decoder)

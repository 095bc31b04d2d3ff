"""Counters of a known horizon: partial sums of the digits of the clock, and square-root Toeplitz noise."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from streams.counters.base import ROUND_UP, CounterBank, LaplaceBank, check_times, need_horizon
from synthgeo import validate
from synthgeo.arrays import Floats, Ints
from synthgeo.errors import ConfigError, StateError
from synthgeo.privacy.noise import MAX_SCALE, Noise, laplace_variance

# Counters that write the clock in a number system: simple, block and binary tree.
#
# At local time t the noisy sum is made of one noisy partial sum for each unit of each digit of t. With radix
# r and ``levels`` digits, a partial sum of level l covers r^l steps; the top digit may grow as large as it
# likes.
#
#     simple   one level: every step has its own noise
#     block    two levels, radix B = about sqrt(horizon): whole blocks, and the steps since the last whole
#              block
#     binary   radix 2, floor(log2 horizon) + 1 levels


class RadixBank(LaplaceBank):
    """A bank of counters whose partial sums follow the digits of the clock.

    Guarantee
    ---------
    Event-level ε-differential privacy for everything a slot ever puts out, also when later values, and which
    slots are stepped, depend on earlier outputs. An event is a change of at most 1 (2^grid_bits grid steps)
    in one value of one slot. It lies in at most one partial sum of each of the ``levels`` levels, each with
    discrete Laplace noise at scale levels / ε. Shift the noise of those sums by the event: every output is
    the same in both worlds, and the shift costs e^(ε / levels) for each. (Kumar's dissertation prints scale
    log2(T) / ε for the binary tree; an event at time 1 is in floor(log2 T) + 1 nodes, so that scale is too
    small.)

    Past the horizon no level is added, for that would overspend: the top level goes on, which is a fresh
    counter of the same size on top of the last noisy sum, again and again. An event still pays at most ε; the
    variance grows.

    Variance
    --------
    (sum of the digits of t, the top one without limit) times the variance of discrete Laplace noise at scale
    levels / ε.

    Memory: levels + 2 numbers per slot. Each step draws one number per slot.
    """

    def __init__(
        self,
        *,
        epsilon: float,
        noise: Noise,
        radix: int,
        levels: int,
        horizon: int | None = None,
        grid_bits: int = 0,
    ) -> None:
        super().__init__(epsilon=epsilon, noise=noise, horizon=horizon, grid_bits=grid_bits)
        self.radix = radix
        self.levels = levels
        self.scale = self.scale_for(levels)
        self._widths = [radix**level for level in range(levels)]
        # The top level is never taken back, so it lives in "noise" alone.
        self._arrays["level"] = np.zeros((levels - 1, 0), dtype=np.int64)

    def _advance(self, slots: Ints, time: Ints, values: Ints) -> Ints:
        fresh = self.noise.discrete_laplace(self.scale, slots.size)
        arrays = self._arrays
        level = arrays["level"]
        if self.levels == 1:
            return self._add(slots, values, fresh)
        change = fresh.copy()
        moving = np.arange(slots.size)  # positions whose digit at this level moves
        for row in range(self.levels - 1):
            ends = time[moving] % self._widths[row + 1] == 0
            here, moving = moving[~ends], moving[ends]
            level[row, slots[here]] += fresh[here]
            if not moving.size:
                break
            change[moving] -= level[row, slots[moving]]
            level[row, slots[moving]] = 0
        return self._add(slots, values, change)

    def variance(self, time: Any) -> Floats:
        """Sum of the digits of the time, times the variance of one draw."""
        times = check_times(time)
        digits = times // self._widths[-1]
        for width in self._widths[:-1]:
            digits = digits + times // width % self.radix
        return np.asarray(laplace_variance(self.scale) * digits)

    def event_cost(self, horizon: int) -> Floats:
        """ε / levels for each level at which a noisy sum holds the event."""
        before = np.arange(validate.whole(horizon, "horizon", low=1, high=2**32), dtype=np.int64)
        count = np.ones(before.size, dtype=np.int64)  # the top level
        for width in self._widths[:-1]:
            # The last part of a larger one is never released: the larger one is.
            count += before // width % self.radix != self.radix - 1
        return np.asarray(count * self._cost_of(self.levels))


class SimpleBank(RadixBank):
    """Fresh noise at scale 1 / ε at every step: t draws at time t. ``RadixBank`` states the guarantee."""

    kind = "simple"

    def __init__(
        self, *, epsilon: float, noise: Noise, horizon: int | None = None, grid_bits: int = 0
    ) -> None:
        super().__init__(
            epsilon=epsilon, noise=noise, radix=2, levels=1, horizon=horizon, grid_bits=grid_bits
        )


class BlockBank(RadixBank):
    """Blocks of B = about sqrt(horizon) steps at scale 2 / ε: t // B + t % B draws at time t.

    ``RadixBank`` states the guarantee.
    """

    kind = "block"
    needs_horizon = True

    def __init__(
        self,
        *,
        epsilon: float,
        noise: Noise,
        horizon: int | None = None,
        grid_bits: int = 0,
        block: int | None = None,
    ) -> None:
        if block is None:
            block = max(2, round(math.sqrt(need_horizon(horizon, self.kind))))
        super().__init__(
            epsilon=epsilon,
            noise=noise,
            radix=validate.whole(block, "block", low=2, high=2**40),
            levels=2,
            horizon=horizon,
            grid_bits=grid_bits,
        )

    def _parameters(self) -> dict[str, Any]:
        return {"epsilon": self.epsilon, "block": self.radix}


class BinaryBank(RadixBank):
    """A binary tree with L = floor(log2 horizon) + 1 levels at scale L / ε.

    ``RadixBank`` states the guarantee.
    """

    kind = "binary"
    needs_horizon = True

    def __init__(
        self, *, epsilon: float, noise: Noise, horizon: int | None = None, grid_bits: int = 0
    ) -> None:
        levels = need_horizon(horizon, self.kind).bit_length()
        super().__init__(
            epsilon=epsilon, noise=noise, radix=2, levels=levels, horizon=horizon, grid_bits=grid_bits
        )


# The k-ary tree with subtraction: the clock in balanced digits, so that few partial sums are needed.
#
# After Andersson, Pagh, Steiner and Torkamani, "Count on Your Elders: Laplace vs Gaussian Noise". With odd k,
# every t has one form t = sum of d_l k^l with digits from -(k-1)/2 to (k-1)/2. A positive digit adds that
# many parts of k^l steps, a negative one takes parts away again from a larger part that reaches beyond t.


class KaryBank(LaplaceBank):
    """A bank of k-ary tree counters with subtraction.

    Guarantee
    ---------
    Event-level ε-differential privacy for everything a slot ever puts out, also when later values, and which
    slots are stepped, depend on earlier outputs. An event is a change of at most 1 (2^grid_bits grid steps)
    in one value of one slot, at local time τ. It lies in one part of each of the h levels, each with discrete
    Laplace noise at scale h / ε, drawn once. Shift the noise of those parts by the event. An output before τ
    uses them with coefficients that sum to 0 (a part that reaches beyond its time is there with +1 and, one
    level or more below, with -1), an output from τ on with coefficients that sum to 1. So every output, and
    with it every later choice, is the same in both worlds, and the shift costs e^(ε / h) for each of at most
    h parts.

    That a part reaches into the future needs no knowledge of it: the output is the true sum so far plus the
    noise of the parts, and noise does not depend on data.

    k and h are chosen for the horizon, with (k^h - 1) / 2 >= horizon. Past that no level is added, for that
    would overspend: the top digit goes on, which is a fresh tree on top of the last noisy sum, again and
    again. An event still pays at most ε; the variance grows by one draw every k^(h-1) steps.

    Variance
    --------
    (sum of |balanced digits of t|, the top one without limit) times the variance of discrete Laplace noise at
    scale h / ε. Over a full range its mean is about h^3 (k^2 - 1) / (2 k ε^2).

    Memory: (h - 1) (k + 1) / 2 + 3 numbers per slot. A step draws one number per slot on average, (k - 1) / 2
    at once where a digit turns negative.
    """

    kind = "kary"
    needs_horizon = True

    def __init__(
        self,
        *,
        epsilon: float,
        noise: Noise,
        horizon: int | None = None,
        grid_bits: int = 0,
        branching: int | None = None,
        levels: int | None = None,
    ) -> None:
        super().__init__(epsilon=epsilon, noise=noise, horizon=horizon, grid_bits=grid_bits)
        if branching is None and levels is None:
            branching, levels = best_tree(need_horizon(horizon, self.kind))
        self.branching = validate.whole(branching, "branching", low=3, high=2**20 + 1)
        self.levels = validate.whole(levels, "levels", low=1, high=40)
        if self.branching % 2 == 0:
            raise ConfigError(f"branching must be odd, got {branching!r}")
        self.scale = self.scale_for(self.levels)
        self._half = (self.branching - 1) // 2
        self._widths = [self.branching**level for level in range(self.levels)]
        self._shift = (self.branching**self.levels - 1) // 2
        # For each level below the top: the noise of the parts added, and of the parts still to be given back.
        self._arrays["added"] = np.zeros((self.levels - 1, 0), dtype=np.int64)
        self._arrays["ahead"] = np.zeros((self.levels - 1, self._half, 0), dtype=np.int64)

    def _advance(self, slots: Ints, time: Ints, values: Ints) -> Ints:
        half, arrays = self._half, self._arrays
        # First find out which digits move and how, so that all noise is drawn in one call.
        moving = np.arange(slots.size)
        moves: list[tuple[Ints, Ints, Ints, Ints]] = []
        draws = 0
        for row in range(self.levels - 1):
            digit = self._digit(time[moving], row)
            up, back, turn = moving[digit > 0], moving[(digit <= 0) & (digit > -half)], moving[digit == -half]
            moves.append((up, back, digit[(digit <= 0) & (digit > -half)] + half - 1, turn))
            draws += up.size + half * turn.size
            moving = turn
            if not moving.size:
                break
        fresh = self.noise.discrete_laplace(self.scale, draws + moving.size)
        change = np.zeros(slots.size, dtype=np.int64)
        change[moving] = fresh[draws:]  # the top level
        start = 0
        for row, (up, back, which, turn) in enumerate(moves):
            added, ahead = arrays["added"][row], arrays["ahead"][row]
            drawn = fresh[start : start + up.size]
            start += up.size
            change[up] += drawn
            added[slots[up]] += drawn
            change[back] += ahead[which, slots[back]]
            ahead[which, slots[back]] = 0
            drawn = fresh[start : start + half * turn.size].reshape(half, turn.size)
            start += half * turn.size
            change[turn] -= drawn.sum(axis=0) + added[slots[turn]]
            added[slots[turn]] = 0
            ahead[:, slots[turn]] = drawn
        return self._add(slots, values, change)

    def _digit(self, times: Ints, row: int) -> Ints:
        """Balanced digit of a level below the top."""
        return np.asarray((times + self._shift) // self._widths[row] % self.branching - self._half)

    def variance(self, time: Any) -> Floats:
        """Sum of the absolute balanced digits of the time, times the variance of one draw."""
        times = check_times(time)
        top = (times + (self._widths[-1] - 1) // 2) // self._widths[-1]
        digits = top + sum(np.abs(self._digit(times, row)) for row in range(self.levels - 1))
        return np.asarray(laplace_variance(self.scale) * digits)

    def event_cost(self, horizon: int) -> Floats:
        """ε / h for each level at which a noisy part holds the event."""
        before = np.arange(validate.whole(horizon, "horizon", low=1, high=2**32), dtype=np.int64)
        count = np.ones(before.size, dtype=np.int64)  # the top level
        for width in self._widths[:-1]:
            count += before // width % self.branching != self._half  # the middle part is never needed
        return np.asarray(count * self._cost_of(self.levels))

    def _parameters(self) -> dict[str, Any]:
        return {"epsilon": self.epsilon, "branching": self.branching, "levels": self.levels}


@lru_cache(maxsize=256)
def best_tree(horizon: int) -> tuple[int, int]:
    """The (k, h) with (k^h - 1) / 2 >= horizon that has the lowest mean variance over times 1 to horizon."""
    best: tuple[float, int, int] | None = None
    for levels in range(2, max(3, horizon.bit_length() + 1)):
        k = _smallest_branching(horizon, levels)
        mean = levels**2 * mean_digit_sum(horizon, k, levels)
        if best is None or mean < best[0]:
            best = (mean, k, levels)
        if k == 3:
            break
    assert best is not None
    return best[1], best[2]


def _smallest_branching(horizon: int, levels: int) -> int:
    k = max(3, int((2 * horizon + 1) ** (1 / levels)) - 2) | 1
    while (k**levels - 1) // 2 < horizon:
        k += 2
    return k


def mean_digit_sum(horizon: int, k: int, levels: int) -> float:
    """Mean of the sum of |balanced digits| over t = 1, ..., horizon, exactly, without a loop over t."""
    half = (k - 1) // 2
    shift = (k**levels - 1) // 2
    total = 0
    for level in range(levels):
        width = k**level

        def below(u: int, width: int = width) -> int:
            """Sum of |digit| over shifted times 0, ..., u - 1."""
            cycles, rest = divmod(u, width * k)
            whole, part = divmod(rest, width)
            steps = sum(abs(i - half) for i in range(whole))
            return cycles * width * half * (half + 1) + steps * width + part * abs(whole - half)

        total += below(shift + horizon + 1) - below(shift + 1)
    return total / horizon


# The square-root Toeplitz counter with Gaussian noise: the least error of all counters here, under zCDP.
#
# The matrix A of all running sums (ones on and below the diagonal) is the square of the Toeplitz matrix R
# with coefficients 1, 1/2, 3/8, 5/16, ... (those of (1 - x)^(-1/2)). Noise goes in between: release R x + z,
# read off A x = R (R x). See Henzinger, Upadhyay and Upadhyay, "Almost Tight Error Bounds on Differentially
# Private Continual Counting", and Fichtenberger, Henzinger and Upadhyay, "Constant Matters".

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

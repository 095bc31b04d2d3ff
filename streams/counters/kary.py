"""The k-ary tree with subtraction: the clock in balanced digits, so that few partial sums are needed.

After Andersson, Pagh, Steiner and Torkamani, "Count on Your Elders: Laplace vs Gaussian Noise". With odd k,
every t has one form t = sum of d_l k^l with digits from -(k-1)/2 to (k-1)/2. A positive digit adds that many
parts of k^l steps, a negative one takes parts away again from a larger part that reaches beyond t.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from streams.counters.base import LaplaceBank, check_times, need_horizon
from synthgeo import validate
from synthgeo.arrays import Floats, Ints
from synthgeo.errors import ConfigError
from synthgeo.privacy.noise import Noise, laplace_variance


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

"""Counters that write the clock in a number system: simple, block and binary tree.

At local time t the noisy sum is made of one noisy partial sum for each unit of each digit of t. With radix r
and ``levels`` digits, a partial sum of level l covers r^l steps; the top digit may grow as large as it likes.

    simple   one level: every step has its own noise
    block    two levels, radix B = about sqrt(horizon): whole blocks, and the steps since the last whole block
    binary   radix 2, floor(log2 horizon) + 1 levels
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from streams.counters.base import LaplaceBank, check_times, need_horizon
from synthgeo import validate
from synthgeo.arrays import Floats, Ints
from synthgeo.privacy.noise import Noise, laplace_variance


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

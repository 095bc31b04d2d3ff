"""Counters for streams of unknown length: growing binary trees (hybrid), growing blocks, growing k-ary trees.

All cut time into epochs that grow at times fixed in advance. Each epoch runs a bounded counter on top of the
last noisy sum.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from streams.counters.base import LaplaceBank, check_times
from synthgeo import validate
from synthgeo.arrays import Floats, Ints
from synthgeo.privacy.noise import Noise, laplace_variance

# Far more than anybody will wait for; up to here floor(log2 t) is exact in doubles.
_MAX_EPOCHS = 52


class HybridBank(LaplaceBank):
    """A bank of binary tree counters that never run out: epoch i lasts 2^i steps and has i + 1 levels.

    After Chan, Shi and Song, "Private and Continual Release of Statistics". They give half of ε to the sums
    of whole epochs and half to the trees; here the top node of a tree *is* the sum of its epoch, so the tree
    gets all of ε.

    Guarantee
    ---------
    Event-level ε-differential privacy for everything a slot ever puts out, also when later values, and which
    slots are stepped, depend on earlier outputs. An event (a change of at most 1, that is 2^grid_bits grid
    steps, in one value) belongs to one epoch, fixed by the clock alone, and lies in at most one node of each
    of its i + 1 levels, each with discrete Laplace noise at scale (i + 1) / ε. Shifting the noise of those
    nodes by the event makes all outputs equal and costs e^ε. There is no horizon.

    Variance
    --------
    With V(L) the variance of discrete Laplace noise at scale L / ε, i = floor(log2 t) and r = t - 2^i + 1:
    V(1) + ... + V(i) + V(i + 1) * (number of ones of r in binary).

    Memory: floor(log2 t) + 3 numbers per slot. Each step draws one number per slot.
    """

    kind = "hybrid"
    _growing = ("level",)

    def __init__(
        self, *, epsilon: float, noise: Noise, horizon: int | None = None, grid_bits: int = 0
    ) -> None:
        super().__init__(epsilon=epsilon, noise=noise, horizon=horizon, grid_bits=grid_bits)
        self._arrays["level"] = np.zeros((0, 0), dtype=np.int64)
        self._scales = np.array([self.scale_for(epoch + 1) for epoch in range(_MAX_EPOCHS)])

    def _advance(self, slots: Ints, time: Ints, values: Ints) -> Ints:
        epoch, local = _hybrid_epoch(time)
        fresh = self.noise.discrete_laplace(self._scales[epoch])
        rows = int(epoch.max())
        self._grow_rows("level", rows)
        level = self._arrays["level"]
        change = fresh.copy()
        moving = np.arange(slots.size)  # positions whose digit at this level moves
        for row in range(rows):
            ends = local[moving] & ((2 << row) - 1) == 0
            here, moving = moving[~ends], moving[ends]
            # The top node of an epoch is never taken back, so it lives in "noise" alone.
            here = here[epoch[here] > row]
            level[row, slots[here]] += fresh[here]
            if not moving.size:
                break
            change[moving] -= level[row, slots[moving]]
            level[row, slots[moving]] = 0
        return self._add(slots, values, change)

    def variance(self, time: Any) -> Floats:
        """The top nodes of the epochs behind, and the nodes of the present one."""
        times = check_times(time)
        epoch, local = _hybrid_epoch(np.maximum(times, 1))
        one = np.array([laplace_variance(scale) for scale in self._scales])
        behind = np.concatenate([[0.0], np.cumsum(one)])
        value = behind[epoch] + one[epoch] * np.bitwise_count(local)
        return np.where(times == 0, 0.0, value)

    def event_cost(self, horizon: int) -> Floats:
        """ε / (levels of its epoch) for each level at which a noisy node holds the event."""
        epoch, local = _hybrid_epoch(np.arange(1, validate.whole(horizon, "horizon", low=1, high=2**32) + 1))
        count = np.ones(local.size, dtype=np.int64)
        for row in range(int(epoch.max())):
            # A right child is never released: its parent is.
            count += (epoch > row) & ((local - 1) >> row & 1 == 0)
        cost = np.array([self._cost_of(number + 1) for number in range(_MAX_EPOCHS)])
        return np.asarray(count * cost[epoch])


def _hybrid_epoch(time: Ints) -> tuple[Ints, Ints]:
    """Number of the epoch, floor(log2 t), and the time within it, from 1 to 2^epoch."""
    epoch = np.frexp(time.astype(np.float64))[1].astype(np.int64) - 1
    return epoch, time - (np.int64(1) << epoch) + 1


class UnboundedBlockBank(LaplaceBank):
    """A bank of block counters that never run out: epochs of 4, 9, 16, ... steps, blocks of 2, 3, 4, ...

    Kumar, "Differentially Private Synthetic Data Generation of Data Collected Over Time", algorithm 15.

    Guarantee
    ---------
    Event-level ε-differential privacy for everything a slot ever puts out, also when later values, and which
    slots are stepped, depend on earlier outputs. Where blocks begin and end depends on the clock alone. An
    event (a change of at most 1, that is 2^grid_bits grid steps, in one value) lies in at most two noisy
    sums, its step's and its block's, each with discrete Laplace noise at scale 2 / ε. Shifting their noise by
    the event makes all outputs equal and costs e^ε. There is no horizon.

    Variance
    --------
    In the epoch with blocks of B steps, d steps after its start: (2 + 3 + ... + (B - 1) + d // B + d % B)
    times the variance of discrete Laplace noise at scale 2 / ε.

    Memory: 4 numbers per slot. Each step draws one number per slot.
    """

    kind = "unbounded_block"

    def __init__(
        self, *, epsilon: float, noise: Noise, horizon: int | None = None, grid_bits: int = 0
    ) -> None:
        super().__init__(epsilon=epsilon, noise=noise, horizon=horizon, grid_bits=grid_bits)
        self.scale = self.scale_for(2)
        self._arrays["level"] = np.zeros((1, 0), dtype=np.int64)

    def _advance(self, slots: Ints, time: Ints, values: Ints) -> Ints:
        block, local = _block_epoch(time)
        fresh = self.noise.discrete_laplace(self.scale, slots.size)
        inside = self._arrays["level"][0]
        ends = local % block == 0
        before = inside[slots]
        inside[slots] = np.where(ends, 0, before + fresh)
        return self._add(slots, values, np.where(ends, fresh - before, fresh))

    def variance(self, time: Any) -> Floats:
        """Blocks behind, blocks of this epoch, steps since the last block: times the variance of one draw."""
        times = check_times(time)
        block, local = _block_epoch(np.maximum(times, 1))
        local = np.where(times == 0, 0, local)
        behind = (block - 1) * block // 2 - 1
        return np.asarray(laplace_variance(self.scale) * (behind + local // block + local % block))

    def event_cost(self, horizon: int) -> Floats:
        """ε for most events, ε / 2 for one at the end of a block."""
        block, local = _block_epoch(np.arange(1, validate.whole(horizon, "horizon", low=1, high=2**32) + 1))
        return np.asarray((1 + (local % block != 0)) * self._cost_of(2))


def _block_epoch(time: Ints) -> tuple[Ints, Ints]:
    """Block size of the epoch that holds each time, and the time within that epoch, from 1 to block^2."""
    block = np.maximum(2, np.floor(np.cbrt(3.0 * time)).astype(np.int64) - 1)
    for _ in range(3):  # the cube root is at most a few off
        block = np.where(_steps_before(block + 1) < time, block + 1, block)
    block = np.where(_steps_before(block) >= time, block - 1, block)
    return block, time - _steps_before(block)


def _steps_before(block: Ints) -> Ints:
    """Steps in the epochs with smaller blocks: 2^2 + 3^2 + ... + (block - 1)^2."""
    n = block - 1
    return np.asarray(n * (n + 1) * (2 * n + 1) // 6 - 1)


class UnboundedKaryBank(LaplaceBank):
    """A bank of two-level trees with subtraction that never run out: each tree is wider than the last.

    The tree that starts after s steps is k = 2 round(sqrt(2 s)) + 1 steps wide (at least 3). In its first
    half the output adds the noisy steps since its start; from the middle on it adds the noisy sum of the
    whole tree and takes away the noisy steps still to come. With k in proportion to sqrt(s) the number of
    trees behind and the number of steps in use grow alike, as sqrt(t); algorithm 15 of Kumar's dissertation
    carries about t^(2/3) blocks along.

    Guarantee
    ---------
    Event-level ε-differential privacy for everything a slot ever puts out, also when later values, and which
    slots are stepped, depend on earlier outputs. The widths depend on the clock alone. An event (a change of
    at most 1, that is 2^grid_bits grid steps, in one value) at local time τ lies in two noisy sums, its step
    and its tree, each with discrete Laplace noise at scale 2 / ε, drawn once. Shift both by the event: an
    output before τ uses neither or both, with coefficients +1 and -1; an output from τ on uses exactly one of
    them, with +1. So every output is the same in both worlds, and the shift costs e^ε. There is no horizon.

    Variance
    --------
    With j trees behind and r steps into a tree of width k: (j + r) draws for r <= (k - 1) / 2, else (j + 1 +
    k - r) draws, each with the variance of discrete Laplace noise at scale 2 / ε.

    Memory: about 1.4 sqrt(t) numbers per slot. A step draws one number per slot on average, (k + 1) / 2 at
    once in the middle of a tree.
    """

    kind = "unbounded_kary"
    _growing = ("ahead",)

    def __init__(
        self, *, epsilon: float, noise: Noise, horizon: int | None = None, grid_bits: int = 0
    ) -> None:
        super().__init__(epsilon=epsilon, noise=noise, horizon=horizon, grid_bits=grid_bits)
        self.scale = self.scale_for(2)
        self._arrays["added"] = np.zeros((1, 0), dtype=np.int64)
        self._arrays["ahead"] = np.zeros((0, 0), dtype=np.int64)

    def _advance(self, slots: Ints, time: Ints, values: Ints) -> Ints:
        _, half, local = _tree_epoch(time)
        up, turn, back = (
            np.flatnonzero(where) for where in (local <= half, local == half + 1, local > half + 1)
        )
        widths = half[turn]
        fresh = self.noise.discrete_laplace(self.scale, up.size + turn.size + int(widths.sum()))
        self._grow_rows("ahead", int(half.max()))
        added, ahead = self._arrays["added"][0], self._arrays["ahead"]
        change = np.zeros(slots.size, dtype=np.int64)
        change[up] = fresh[: up.size]
        added[slots[up]] += fresh[: up.size]
        giving, which = slots[back], local[back] - half[back] - 2
        change[back] = ahead[which, giving]
        ahead[which, giving] = 0
        if turn.size:
            # Steps still to come, side by side for all turning slots; a slot with a narrower tree has fewer
            # rows.
            row = np.arange(int(widths.sum())) - np.repeat(np.cumsum(widths) - widths, widths)
            owner = np.repeat(np.arange(turn.size), widths)
            steps = fresh[up.size + turn.size :]
            ahead[row, slots[turn][owner]] = steps
            coming = np.zeros(turn.size, dtype=np.int64)
            np.add.at(coming, owner, steps)
            change[turn] = fresh[up.size : up.size + turn.size] - coming - added[slots[turn]]
            added[slots[turn]] = 0
        return self._add(slots, values, change)

    def variance(self, time: Any) -> Floats:
        """Trees behind plus steps in use, times the variance of one draw."""
        times = check_times(time)
        trees, half, local = _tree_epoch(np.maximum(times, 1))
        inside = np.where(local <= half, local, 1 + 2 * half + 1 - local)
        return np.asarray(laplace_variance(self.scale) * np.where(times == 0, 0, trees + inside))

    def event_cost(self, horizon: int) -> Floats:
        """ε for most events, ε / 2 for one in the middle of a tree."""
        _, half, local = _tree_epoch(np.arange(1, validate.whole(horizon, "horizon", low=1, high=2**32) + 1))
        return np.asarray((1 + (local != half + 1)) * self._cost_of(2))


def _tree_epoch(time: Ints) -> tuple[Ints, Ints, Ints]:
    """Trees behind, half width of the tree that holds each time, time within it (from 1 to its width)."""
    starts = _tree_starts(int(time.max()).bit_length())
    trees = np.searchsorted(starts, time, side="left") - 1
    half = (starts[trees + 1] - starts[trees]) // 2
    return trees, half, time - starts[trees]


@lru_cache(maxsize=64)
def _tree_starts(bits: int) -> Ints:
    """Start of each tree, as many as reach past time 2^bits."""
    starts = [0]
    while starts[-1] < 1 << bits:
        starts.append(starts[-1] + 2 * max(1, round(math.sqrt(2 * starts[-1]))) + 1)
    return np.array(starts, dtype=np.int64)

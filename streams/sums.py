"""Plans for sums over time: which batches share a noisy number, at what scale, and how they are combined.

A plan is public: it depends on the step's number alone. Batches are summed *exactly* while they wait, and a
sum meets its noise once, when its last batch is there, on whatever cells the mechanism has then. Since the
plan's clock is public and the noise of a sum is drawn after its cells are fixed, the noise of every sum has
mean 0 whatever the mechanism does with earlier outputs: splitting a cell because it looks large keeps
nobody's noise. (The counters of ``streams.counters``, each with the clock of its own cell, cannot promise
that.)

Guarantee
---------
A batch is in one sum of each level. Level l has the part s_l of the event's budget, the parts add up to the
whole, and cells are disjoint, so an event pays at most s_0 + s_1 + ... over all releases: the whole. Which
cells a sum is counted on may depend on earlier outputs (adaptive composition).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from synthgeo.arrays import Floats
from synthgeo.privacy.noise import MAX_SCALE, laplace_variance


def alive_share(first: int, last: int, since: int) -> float:
    """The part of the steps ``first`` to ``last`` that are not before ``since``.

    >>> alive_share(3, 6, 5)
    0.5
    """
    return min(max(last - max(first, since) + 1, 0) / (last - first + 1), 1.0)


@dataclass(frozen=True)
class WindowPlan:
    """Sums over the last ``lifetime`` steps: every batch by itself and, for long lifetimes, whole blocks too.

    ``block`` steps make a block (1: none); ``share`` is the part of ε for single batches. ``of`` chooses both
    by the mean variance of a full window, in closed form.

    In a window, a block of n batches of which q are still alive is estimated in two ways, as the sum of the q
    (variance q v0) and as the block less the n - q that expired (v1 + (n - q) v0); the best combination gives
    the second the weight q v0 / (n v0 + v1).

    >>> plan = WindowPlan.of(365, 1.0)
    >>> plan.block, plan.share, round(plan.variance(1000)), round(WindowPlan(365, 1.0).variance(1000))
    (22, 0.5, 219, 672)
    """

    lifetime: int
    epsilon: float
    block: int = 1
    share: float = 1.0

    @classmethod
    def of(cls, lifetime: int, epsilon: float, *, blocks: bool = True) -> WindowPlan:
        """The plan of least mean variance, for this lifetime and ε."""
        block, share = _best_block(lifetime) if blocks else (1, 1.0)
        return cls(lifetime, epsilon, block, share)

    @property
    def scale(self) -> float:
        """Noise scale of one batch."""
        return 1 / (self.epsilon * self.share)

    @property
    def block_scale(self) -> float:
        """Noise scale of a block."""
        return 1 / (self.epsilon * (1 - self.share)) if self.block > 1 else MAX_SCALE

    @cached_property
    def step_variance(self) -> float:
        """v0, the variance of one batch's noise."""
        return laplace_variance(self.scale)

    @cached_property
    def block_variance(self) -> float:
        """v1, the variance of a block's noise."""
        return laplace_variance(self.block_scale)

    def closes(self, step: int) -> bool:
        """Whether a block ends with this step."""
        return self.block > 1 and step % self.block == 0

    def block_weight(self, alive: int, size: int) -> float:
        """Weight of a block of ``size`` batches of which ``alive`` are in the window."""
        v0 = self.step_variance
        return alive * v0 / (size * v0 + self.block_variance)

    def variance(self, step: int) -> float:
        """Variance of the sum of the window that ends with ``step``, on cells that stay."""
        return _window_variance(
            min(step, self.lifetime), step % self.block, self.block, self.step_variance, self.block_variance
        )


def _window_variance(length: int, rest: int, block: int, v0: float, v1: float) -> float:
    """Of ``length`` steps that end ``rest`` steps after a block's end."""
    if block == 1 or rest >= length:
        return length * v0
    whole, alive = divmod(length - rest, block)

    def combined(q: int) -> float:
        return q * v0 * (v1 + (block - q) * v0) / (block * v0 + v1)

    return rest * v0 + whole * combined(block) + combined(alive)


@lru_cache(maxsize=64)
def _best_block(lifetime: int) -> tuple[int, float]:
    """Block and share with the least mean variance of a full window; ε only scales it.

    Blocks have to save a seventh at least: their variance moves with the step, and cells move under them.
    """
    best, found = 2.0 * lifetime * 6 / 7, (1, 1.0)
    for block in range(2, math.isqrt(4 * lifetime) + 2):
        for share in (0.3, 0.4, 0.5, 0.6, 0.7, 0.8):
            v0, v1 = 2 / share**2, 2 / (1 - share) ** 2
            mean = np.mean([_window_variance(lifetime, rest, block, v0, v1) for rest in range(block)])
            if mean < best:
                best, found = float(mean), (block, share)
    return found


@dataclass(frozen=True)
class Epoch:
    """A stretch of a growing plan: steps ``first`` to ``last``, a tree of ``branching`` over them with
    ``shares`` of ε by level, single steps first.
    """

    first: int
    last: int
    branching: int
    shares: tuple[float, ...]
    before: float  # variance of all that was summed before it, at ε = 1

    @property
    def levels(self) -> int:
        """Levels of its tree."""
        return len(self.shares)

    def closes(self, step: int) -> int:
        """How many levels of nodes above the single step end with this step."""
        local, count = step - self.first + 1, 0
        while count + 1 < self.levels and local % self.branching ** (count + 1) == 0:
            count += 1
        return count

    def node_variances(self) -> list[float]:
        """Variance of a node of each level, its own sum combined with those below it, at ε = 1."""
        found = [2 / self.shares[0] ** 2]
        for share in self.shares[1:]:
            own, below = 2 / share**2, self.branching * found[-1]
            found.append(own * below / (own + below))
        return found

    def variances(self) -> Floats:
        """Variance of the sum up to each of its steps, at ε = 1."""
        rest = np.arange(1, self.last - self.first + 2)
        total = np.full(rest.size, self.before)
        for level, variance in reversed(list(enumerate(self.node_variances()))):
            count, rest = np.divmod(rest, self.branching**level)
            total += count * variance
        return total


# Until here a batch by itself at full ε is best; every later epoch doubles the length of the stream.
_SINGLE_STEPS = 64
_BRANCHINGS = (4, 6, 8, 10, 12, 16, 24, 32)
_SHARES = (
    (1.0,),
    *((share, 1 - share) for share in (0.75, 0.65, 0.5)),
    *((0.5, 0.25, 0.25), (0.4, 0.3, 0.3), (0.3, 0.3, 0.4)),
    *((0.4, 0.2, 0.2, 0.2), (0.25, 0.25, 0.25, 0.25), (0.2, 0.2, 0.2, 0.4)),
)
# The noise may never exceed that of counting every step by itself by more than this, in variance.
_MOST_ABOVE_SIMPLE = 1.1


def epoch_of(step: int) -> Epoch:
    """The epoch of a growing plan that holds a step.

    The variance of the sum of all steps so far grows like a power of the logarithm: 690 / ε² at step 1,000
    and 1,280 at step 10,000 (means over 100 steps), where counting single steps has 1,900 and 19,900.
    """
    number = 0
    while _epoch(number).last < step:
        number += 1
    return _epoch(number)


@lru_cache(maxsize=64)
def _epoch(number: int) -> Epoch:
    """The trees are chosen in closed form: least variance in the mean over the epoch and at its end."""
    if number == 0:
        return Epoch(1, _SINGLE_STEPS, 2, (1.0,), 0.0)
    previous = _epoch(number - 1)
    first, before = previous.last + 1, float(previous.variances()[-1])
    best: tuple[float, Epoch] | None = None
    for shares in _SHARES:
        for branching in _BRANCHINGS if len(shares) > 1 else (2,):
            top = branching ** (len(shares) - 1)
            if top > previous.last:
                continue
            epoch = Epoch(first, first - 1 + -(-previous.last // top) * top, branching, shares, before)
            variances = epoch.variances()
            if np.any(variances > _MOST_ABOVE_SIMPLE * 2 * np.arange(first, epoch.last + 1)):
                continue
            worth = float(variances.mean() + 2 * variances[-1])
            if best is None or worth < best[0]:
                best = (worth, epoch)
    assert best is not None  # single steps always qualify
    return best[1]

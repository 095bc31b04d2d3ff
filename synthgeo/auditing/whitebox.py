"""Exact privacy losses where the distribution is known: no sampling, no confidence, no luck.

Each function computes the worst log-ratio of output probabilities between neighbours from a mechanism's own
constants, so that a wrong constant shows at once. What they share with the code under audit is its
parameters, not its reasoning.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from synthgeo.arrays import Floats, Ints
from synthgeo.errors import ConfigError
from synthgeo.hierarchy.privtree import GRID, SplitRule
from synthgeo.privacy.noise import Noise, SeededNoise, bit_count, first_digits


def sampler_loss(scale: float, reach: int) -> float:
    """Worst |ln P(x) / P(x + 1)| over 0 <= x < ``reach``, of the geometric law that the sampler's own tables
    encode.

    A correct table gives 1 / scale. The tables hold 128 bits of each probability, so doubles are the limit
    here.
    """
    digits = first_digits(scale).astype(np.float64)
    p = digits @ (256.0 ** -np.arange(1, digits.shape[1] + 1))
    return geometric_loss(p[:-1], p[-1], reach)


def geometric_loss(bit_probabilities: Floats, carry: float, reach: int) -> float:
    """Worst |ln P(x) / P(x + 1)| of a number built from independent bits and a geometric carry above them."""
    bits = bit_probabilities.size
    x = np.arange(reach + 1)
    if reach > 1 << 24:
        raise ConfigError("reach must be at most 2^24")
    log_mass = np.zeros(x.size)
    for k, p in enumerate(bit_probabilities):
        log_mass += np.where(x >> k & 1, math.log(p), math.log1p(-p))
    log_mass += (x >> bits) * math.log(carry)
    return float(np.abs(np.diff(log_mass)).max())


def carry_bits(scale: float) -> int:
    """How many bits the sampler draws one by one at this scale."""
    return bit_count(scale)


def privtree_loss(
    scale: float, decay: float, *, theta: int = 0, unit: int = 1, depth: int = 20, top: int | None = None
) -> float:
    """Worst-case privacy loss of PrivTree's split decisions along one path, over *all* monotone count
    sequences.

    All in grid steps: the noise is discrete Laplace of ``scale`` on the whole numbers, counts are whole,
    non-negative and fall (weakly) from a node to its child, ``decay`` is the bias a level (δ), and one unit
    adds ``unit`` to every count on the path. Counts up to ``top`` are tried at each depth, by dynamic
    programming from the deepest node up:

        W_d(F) = max over F' <= F of (loss of a split at depth d with count F') + W_(d+1)(F').

    The other direction, a node that is not split, is a single term: splits above it favour the other world.
    """
    if top is None:
        top = math.ceil(depth * decay + theta + 40 * scale + unit)
    counts = np.arange(top + 1)
    worst = np.zeros(counts.size)
    single = 0.0
    for d in range(depth - 1, -1, -1):
        # Split when max(F - dδ, θ - δ) + N > θ, that is N > m with whole N, so m may be rounded down.
        small = np.floor(theta - np.maximum(counts - d * decay, theta - decay))
        large = np.floor(theta - np.maximum(counts + unit - d * decay, theta - decay))
        split = log_survival(large, scale) - log_survival(small, scale)
        stay = log_survival(-small - 1, scale) - log_survival(-large - 1, scale)  # P(N <= m) = P(N > -m - 1)
        single = max(single, float(stay.max()))
        worst = np.maximum.accumulate(worst + split)
    return max(float(worst[-1]), single)


def log_survival(m: Floats, scale: float) -> Floats:
    """ln P(N > m) of discrete Laplace noise N, m whole."""
    m = np.asarray(m, dtype=np.float64)
    log_one_plus_q = math.log1p(math.exp(-1 / scale))
    up = -(np.maximum(m, 0) + 1) / scale - log_one_plus_q
    down = np.log1p(-np.exp(-np.maximum(-m, 1) / scale - log_one_plus_q))
    return np.where(m >= 0, up, down)


def path_loss(scores: Any, other: Any, *, scale: float, decay: float, theta: float = 0.0) -> float:
    """Worst loss over how far one path is split, given the scores that two worlds really fed to PrivTree.

    Scores are by depth, in grid steps. Outcomes: the path is split down to some node, which is not; or to the
    end.
    """
    depth = np.arange(len(scores))
    small, large = (
        np.floor(theta - np.maximum(np.asarray(s) - depth * decay, theta - decay)) for s in (scores, other)
    )
    split = log_survival(small, scale) - log_survival(large, scale)
    stay = log_survival(-small - 1, scale) - log_survival(-large - 1, scale)
    above = np.concatenate([[0.0], np.cumsum(split)])
    return float(np.abs(np.append(above[:-1] + stay, above[-1])).max())


def exponential_law(scores: Any, rate: float) -> Floats:
    """P(i) of the exponential mechanism at exponent ``rate`` a unit of score."""
    scores = np.asarray(scores, dtype=np.float64)
    weights = np.exp(rate * (scores - scores.max()))
    return np.asarray(weights / weights.sum())


def permute_and_flip_law(scores: Any, rate: float) -> Floats:
    """P(i) of permute-and-flip: p_i times the integral of the product of (1 - t p_j) over j != i, exact by
    quadrature.
    """
    scores = np.asarray(scores, dtype=np.float64)
    p = np.exp(rate * (scores - scores.max()))
    nodes, weights = np.polynomial.legendre.leggauss(
        max(1, math.ceil(p.size / 2))
    )  # exact for these polynomials
    t = (nodes + 1) / 2
    factors = 1 - t[:, None] * p[None, :]
    return np.array(
        [p[i] * float(weights @ np.delete(factors, i, axis=1).prod(axis=1)) / 2 for i in range(p.size)]
    )


def law_loss(first: Floats, second: Floats) -> float:
    """Worst |ln P(i) / P'(i)| of two laws over the same outcomes; infinity when one has an outcome the other
    lacks.
    """
    if np.any((first > 0) != (second > 0)):
        return math.inf
    both = first > 0
    return float(np.abs(np.log(first[both] / second[both])).max())


class ImpulseNoise(Noise):
    """All draws are zero except one. Shows how each draw of a mechanism enters its outputs; never use it to
    release.
    """

    def __init__(self, index: int | None = None, size: int = 1 << 34) -> None:
        self.index = index
        self.size = size
        self.scales: list[float] = []

    def _impulse(self, scale: Any, size: int | None) -> Ints:
        scales = np.broadcast_to(np.asarray(scale, dtype=np.float64), (1 if size is None else size,))
        start = len(self.scales)
        self.scales.extend(float(s) for s in scales.ravel())
        out = np.zeros(scales.size, dtype=np.int64)
        if self.index is not None and start <= self.index < start + scales.size:
            out[self.index - start] = self.size
        return out

    def discrete_laplace(self, scale: Any, size: int | None = None) -> Ints:
        return self._impulse(scale, np.size(scale) if np.ndim(scale) else size)

    def discrete_gaussian(self, sigma: float, size: int) -> Ints:
        return self._impulse(sigma, size)

    def _bytes(self, count: int) -> NDArray[np.uint8]:
        raise ConfigError(f"an impulse is not random: {count} random bytes were asked for")

    @property
    def rng(self) -> np.random.Generator:
        """Post-processing may go on; it is the same in every world."""
        return SeededNoise(0).rng

    def state(self) -> dict[str, Any]:
        return {"kind": "impulse"}


def linear_costs(
    run: Callable[[Noise], Any], changes: Any, *, gaussian: bool = False, impulse: int = 1 << 34
) -> Floats:
    """What each change of the outputs costs a mechanism whose outputs are (exact numbers) + R (noise draws).

    ``run(noise)`` returns all outputs as numbers. R is found by feeding one draw at a time, so nothing is
    taken on trust. A change of the exact numbers can be hidden by any shift c of the draws with R c = change,
    so the loss is at most, and for independent columns exactly, the least sum of |c_i| / scale_i (Laplace: a
    linear programme), or in zCDP of c_i² / (2 σ_i²) (Gaussian). Infinity: no noise covers the change.
    ``impulse`` is the size of the draw fed: large where outputs are rounded, small where a large one would
    change what the mechanism does next.
    """
    noise = ImpulseNoise()
    quiet = np.asarray(run(noise), dtype=np.float64).ravel()
    widths = np.array(noise.scales)
    columns = [
        np.asarray(run(ImpulseNoise(i, impulse)), dtype=np.float64).ravel() - quiet
        for i in range(widths.size)
    ]
    response = np.stack(columns, axis=1) / impulse
    used = np.any(response != 0, axis=0)
    response, widths = response[:, used], widths[used]
    costs = []
    for change in changes:
        target = np.asarray(change, dtype=np.float64).ravel()
        if gaussian:
            shift, residual = np.linalg.lstsq(response * widths, target, rcond=None)[:2]
            costs.append(math.inf if residual.size and residual[0] > 1e-6 else float(shift @ shift) / 2)
        else:
            weights = np.concatenate([1 / widths, 1 / widths])
            found = linprog(weights, A_eq=np.hstack([response, -response]), b_eq=target)
            costs.append(float(found.fun) if found.success else math.inf)
    return np.array(costs)


def counter_costs(
    make: Callable[[Noise], Any], horizon: int, *, event: int = 1, gaussian: bool = False
) -> Floats:
    """What an event at each local time 1, ..., ``horizon`` costs a counter that ``make(noise)`` builds."""

    def run(noise: Noise) -> list[int]:
        bank = make(noise)
        slots = bank.add(1)
        return [int(bank.step(slots, np.zeros(1, dtype=np.int64))[0]) for _ in range(horizon)]

    # An event adds to all outputs from its time on.
    return linear_costs(run, event * np.triu(np.ones((horizon, horizon))), gaussian=gaussian)


# PrivTree's exact worst case, for any depth and any data, and the least noise that would keep its promise.
#
# What is proved here is less loss than PrivTree's own theorem allows; the library's noise is the theorem's
# (ADR 4 says why). The setting is that of ``privtree``: one world's scores are the smaller ones at every node
# of a path, by at most N grid steps (one count), and fall weakly from a parent to its child. Everything is in
# grid steps: noise is discrete Laplace of scale s, q = e^(-1/s), and δ is whole. Write z for the smaller
# world's score less the bias d δ and less θ, and A(z) = ln P(split) at max(z, -δ), so
#
#     A(z) = A(-δ) below the floor,  (z - 1)/s - ln(1 + q) from there to 0,  ln(1 - q^z / (1 + q)) above.
#
# *One path.* A node that is not split favours the smaller world by at most N/s, once, and splits above it
# favour the larger one; so the worst loss is the sum over split nodes of at most F(z) = A(z + N) - A(z). A is
# constant up to -δ and increasing and concave from there, so F rises up to -δ and falls from there. Along the
# path z falls by at least δ a level. Moving a node towards -δ until it is δ from its neighbour only adds to
# the sum, so the worst path has gaps of exactly δ, and may as well be endless at both ends:
#
#     worst loss = max over u of   sum over all whole j of F(u + j δ).
#
# With a(v) = A(v + 1) - A(v) this is the sum of b(v) over u <= v < u + N, where b(v) = sum_j a(v + j δ)
# repeats with period δ and falls from v = -δ to v = -1 (each of its terms does). N = m δ + r with r < δ: m
# whole periods hold -A(-δ) each, and the best r neighbours in the period are its first, since any other
# window can be moved there piece by piece without losing. So the worst loss is *exactly*
#
#     m (-A(-δ)) + r/s + sum over i >= 0 of (A(i δ + r) - A(i δ)),
#
# for any depth, any θ and any path, and it is attained where the score stays at θ + k δ all the way down. The
# bound of the paper, (2β - 1)/((β - 1) λ), puts e^-y for the slope e^-y/(2 - e^-y) of A, and 1/λ for the two
# nodes next to the floor even where r < δ spares them.
#
# *Fractions.* A unit whose N steps are spread over many leaves adds g(v) to node v, the sum over leaves
# below. Then the loss is the sum over split nodes of A(z + g) - A(z), which is the sum over leaves of their
# share times the sum over nodes above of (A(z + g) - A(z))/g. Above the floor, concavity makes that at most
# a(z); at -δ - x it is at most (1 - x/N)/s, as A's slope is at most 1/s and g <= N. Those terms rise up to -δ
# and fall from there, so again gaps are δ. With δ >= N, and u = -t, the sum is b(-t) + (1 - t/N)+ / s a step.
# It is convex in t (from 0 on, a is), so the worst is at t = 1 or at t = δ. Nodes that are not split hold
# disjoint shares, and favour the smaller world by at most N/s in all.
#
# The sums are evaluated in floating point, to about 1e-13.

# Terms of the sums that are added up one by one: q^δ <= 1/β, so what follows is below 2^-_TERMS of them.
_TERMS = 80


def worst_loss(scale: float, decay: int, one: int) -> float:
    """The exact worst loss of a path, for a unit that adds ``one`` grid steps to every score on it."""
    whole, rest = divmod(one, decay)
    period = (decay + 1) / scale + math.log1p(math.exp(-1 / scale))
    return whole * period + rest / scale + _rises(scale, decay, 0, rest)


def worst_loss_of_fractions(scale: float, decay: int, one: int) -> float:
    """An upper bound on the loss of a unit whose ``one`` grid steps are spread over any leaves."""
    if decay < one:
        raise ConfigError("fractions need a bias of at least one count per level")
    late = one / scale + one * _rises(scale, decay, 0, 1)
    early = (2 * one - 1) / scale + one * _rises(scale, decay, decay - 1, 1)
    return max(late, early)


def _rises(scale: float, decay: int, first: int, rest: int) -> float:
    """Sum over i >= 0 of A(first + i δ + rest) - A(first + i δ), first >= 0."""
    power = np.exp(-(first + np.arange(_TERMS) * float(decay)) / scale)
    missing = math.exp(-1 / scale) + (1 - power)
    return float(np.log1p(power * -math.expm1(-rest / scale) / missing).sum())


def rule_loss(rule: SplitRule) -> float:
    """The worst loss of a split rule as the library builds it."""
    loss = worst_loss_of_fractions if rule.fractional else worst_loss
    return loss(rule.scale * GRID.one, rule.decay, GRID.one)


def least_scale(epsilon: float, fanout: int = 2, *, fractional: bool = False) -> float:
    """The smallest noise scale λ, in counts, at which the worst loss is at most ``epsilon``, with δ = λ ln β.

    >>> round(least_scale(1.0), 3), round(least_scale(0.01), 1), round(least_scale(1.0, fractional=True), 3)
    (2.145, 260.1, 2.607)
    """

    def loss(scale: float) -> float:
        decay = math.ceil(scale * math.log(fanout) * GRID.one)
        if fractional:
            return worst_loss_of_fractions(scale * GRID.one, max(decay, GRID.one), GRID.one)
        return worst_loss(scale * GRID.one, decay, GRID.one)

    low, high = 1 / epsilon, (2 * fanout - 1) / ((fanout - 1) * epsilon)
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if loss(middle) > epsilon else (low, middle)
    return high

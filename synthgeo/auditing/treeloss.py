"""PrivTree's exact worst case, for any depth and any data, and the least noise that would keep its promise.

What is proved here is less loss than PrivTree's own theorem allows; the library's noise is the theorem's (ADR
4 says why). The setting is that of ``privtree``: one world's scores are the smaller ones at every node of a
path, by at most N grid steps (one count), and fall weakly from a parent to its child. Everything is in grid
steps: noise is discrete Laplace of scale s, q = e^(-1/s), and δ is whole. Write z for the smaller world's
score less the bias d δ and less θ, and A(z) = ln P(split) at max(z, -δ), so

    A(z) = A(-δ) below the floor,  (z - 1)/s - ln(1 + q) from there to 0,  ln(1 - q^z / (1 + q)) above.

*One path.* A node that is not split favours the smaller world by at most N/s, once, and splits above it
favour the larger one; so the worst loss is the sum over split nodes of at most F(z) = A(z + N) - A(z). A is
constant up to -δ and increasing and concave from there, so F rises up to -δ and falls from there. Along the
path z falls by at least δ a level. Moving a node towards -δ until it is δ from its neighbour only adds to the
sum, so the worst path has gaps of exactly δ, and may as well be endless at both ends:

    worst loss = max over u of   sum over all whole j of F(u + j δ).

With a(v) = A(v + 1) - A(v) this is the sum of b(v) over u <= v < u + N, where b(v) = sum_j a(v + j δ) repeats
with period δ and falls from v = -δ to v = -1 (each of its terms does). N = m δ + r with r < δ: m whole
periods hold -A(-δ) each, and the best r neighbours in the period are its first, since any other window can be
moved there piece by piece without losing. So the worst loss is *exactly*

    m (-A(-δ)) + r/s + sum over i >= 0 of (A(i δ + r) - A(i δ)),

for any depth, any θ and any path, and it is attained where the score stays at θ + k δ all the way down. The
bound of the paper, (2β - 1)/((β - 1) λ), puts e^-y for the slope e^-y/(2 - e^-y) of A, and 1/λ for the two
nodes next to the floor even where r < δ spares them.

*Fractions.* A unit whose N steps are spread over many leaves adds g(v) to node v, the sum over leaves below.
Then the loss is the sum over split nodes of A(z + g) - A(z), which is the sum over leaves of their share
times the sum over nodes above of (A(z + g) - A(z))/g. Above the floor, concavity makes that at most a(z); at
-δ - x it is at most (1 - x/N)/s, as A's slope is at most 1/s and g <= N. Those terms rise up to -δ and fall
from there, so again gaps are δ. With δ >= N, and u = -t, the sum is b(-t) + (1 - t/N)+ / s a step. It is
convex in t (from 0 on, a is), so the worst is at t = 1 or at t = δ. Nodes that are not split hold disjoint
shares, and favour the smaller world by at most N/s in all.

The sums are evaluated in floating point, to about 1e-13.
"""

from __future__ import annotations

import math

import numpy as np

from synthgeo.errors import ConfigError
from synthgeo.hierarchy.privtree import GRID, SplitRule

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

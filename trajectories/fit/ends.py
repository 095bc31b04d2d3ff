"""Where trips start and end: estimates from both noisy counts of ends. Post-processing."""

from __future__ import annotations

import numpy as np

from synthgeo.arrays import Floats
from trajectories.fit.posterior import posterior_means
from trajectories.fit.shrinkage import combine
from trajectories.measure.ends import EndCounts

# A part has to stand out by this many deviations: most of them hold no end at all.
_OUTSTANDING = 0.75
_EXPONENTS = (2.0, 1.5, 1.0, 0.75, 0.5, 0.25, 0.0)
_LIKELIER = 2.0  # by what logarithm one exponent has to be likelier than one closer to 1


def mixed(traffic: Floats, size: Floats, exponent: float) -> Floats:
    """What cells with this traffic and size of places are expected to have: between the two, or more than
    their share where most traffic is.
    """
    expected = traffic**exponent * size ** max(1 - exponent, 0.0)
    scaled: Floats = expected * (traffic.sum() / max(float(expected.sum()), 1e-300))
    return scaled


def traffic_exponent(counts: EndCounts, traffic: Floats, size: Floats) -> float:
    """How much the traffic of cells says of their ends, against the size of their places. Buses end where
    traffic is, others in any street: the likeliest of a few exponents, given the noisy ends, or one closer
    to 1 that is hardly less likely: noise alone must not gather ends. The traffic must have been counted
    apart from them, else it would agree with their noise.
    """
    measured, variance, _, _ = _by_cell(counts)
    likely = np.array([posterior_means(measured, mixed(traffic, size, e), variance)[1] for e in _EXPONENTS])
    good = [one for one, value in zip(_EXPONENTS, likely, strict=True) if value > likely.max() - _LIKELIER]
    return min(good, key=lambda exponent: abs(exponent - 1.0))


def estimate_ends(counts: EndCounts, expected: Floats) -> Floats:
    """Ends of each part: counts combined with what is ``expected`` of each part. Post-processing.

    In a cell that was cut both counts say how many ends it has, each by as much as its noise deserves, and
    its parts share that number.
    """
    part, cells = counts.counted, len(counts.by_cell)
    cell, count = counts.cell[part], counts.by_part[part]
    total, variance, together, number = _by_cell(counts)
    by_cell: Floats = np.bincount(counts.cell, expected, minlength=cells).astype(np.float64)
    whole, _ = posterior_means(total, by_cell, variance)
    share = expected / np.maximum(by_cell[counts.cell], 1e-300)
    out = whole[counts.cell] * share
    agreed = count + ((total - together) / np.maximum(number, 1))[cell]
    found = combine(agreed, total[cell] * share[part], counts.part_variance, threshold=_OUTSTANDING)
    sums = np.bincount(cell, found, minlength=cells)[cell]
    out[part] = np.where(sums > 0, found * whole[cell] / np.maximum(sums, 1e-300), out[part])
    return out


def misfit_of_parts(counts: EndCounts, expected: Floats) -> float:
    """The squared distance between the counts of parts and what is ``expected`` of each part of its cell's
    ends, in variances of the noise; 0 where no part was counted.
    """
    part = counts.counted
    cell = counts.cell[part]
    by_cell = np.bincount(counts.cell, expected, minlength=len(counts.by_cell))[cell]
    share = expected[part] / np.maximum(by_cell, 1e-300)
    residual = counts.by_part[part] - np.maximum(_by_cell(counts)[0], 0.0)[cell] * share
    return float((residual**2).sum() / max(counts.part_variance, 1e-300))


def _by_cell(counts: EndCounts) -> tuple[Floats, Floats, Floats, Floats]:
    """Ends of each cell by both counts together, the variance of each, the sum of the counts of its parts,
    and how many it has. A cell that was not cut was counted once: its parts say nothing.
    """
    part, cells = counts.counted, len(counts.by_cell)
    number = np.bincount(counts.cell[part], minlength=cells).astype(np.float64)
    together = np.bincount(counts.cell[part], counts.by_part[part], minlength=cells).astype(np.float64)
    trust = np.where(number > 0, 1.0, 0.0) / np.maximum(number * counts.part_variance, 1e-300)
    known = 1.0 / max(counts.cell_variance, 1e-300)
    total: Floats = (counts.by_cell * known + together * trust) / (known + trust)
    return total, 1.0 / (known + trust), together, number


__all__ = ["estimate_ends", "misfit_of_parts", "mixed", "traffic_exponent"]

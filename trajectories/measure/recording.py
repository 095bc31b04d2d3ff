"""How trips were recorded: the usual gap between points, and how much speed varies within a trip.

Guarantee
---------
A trip counts 1 in one bucket of its own median gap (seconds; metres where there are no times), and, with
times, 1 in one bucket of its own variation of speed. Histograms of L1 sensitivity 1 each, with discrete
Laplace noise of scale k/ε on every bucket, k = 2 with times and 1 without: ε together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from synthgeo.arrays import Floats, Ints
from synthgeo.privacy.noise import Noise, laplace_variance
from trajectories.parts.columns import total

GAPS = 26  # halves of octaves from 1 to 8192 seconds or metres
VARIATIONS = 16  # eighths, from 0 to 2


@dataclass(frozen=True, eq=False)
class RecordingCounts:
    """Released noisy counts of trips; those of disjoint sets of trips add up.

    Attributes
    ----------
    gaps
        By the median gap between two points: seconds, or metres without times.
    variations
        By the standard deviation of the speeds between points over their mean; empty without times.
    variance
        Of the noise in one count.
    """

    gaps: Floats
    variations: Floats
    variance: float


def gap_bucket(gap: Floats) -> Ints:
    """Bucket of gaps in seconds or metres."""
    half_octave = np.floor(2 * np.log2(np.maximum(gap, 1e-9)))
    return np.asarray(np.clip(half_octave, 0, GAPS - 1), dtype=np.int64)


def variation_bucket(variation: Floats) -> Ints:
    """Bucket of variations of speed."""
    eighth = np.floor(variation * VARIATIONS / 2)
    return np.asarray(np.clip(eighth, 0, VARIATIONS - 1), dtype=np.int64)


def count_gaps(gap: Floats) -> Ints:
    """Trips by gap, without those that have none (NaN). Private when the trips are."""
    return np.bincount(gap_bucket(gap[~np.isnan(gap)]), minlength=GAPS)


def count_variations(variation: Floats) -> Ints:
    """Trips by variation of speed, without those that have none (NaN). Private when the trips are."""
    return np.bincount(variation_bucket(variation[~np.isnan(variation)]), minlength=VARIATIONS)


def measure_recording(
    gap: Floats, variation: Floats | None, *, epsilon: float, noise: Noise
) -> RecordingCounts:
    """Noisy histograms of each trip's gap and, if given, variation; a trip without one (NaN) is left out."""
    each = epsilon if variation is None else epsilon / 2

    def noisy(exact: Ints) -> Floats:
        return (exact + noise.discrete_laplace(1 / each, exact.size)).astype(np.float64)

    gaps, variations = noisy(total(count_gaps, gap)), np.empty(0)
    if variation is not None:
        variations = noisy(total(count_variations, variation))
    return RecordingCounts(gaps, variations, laplace_variance(1 / each))


__all__ = [
    "GAPS", "VARIATIONS", "RecordingCounts", "gap_bucket", "measure_recording",
    "variation_bucket",
]  # fmt: skip

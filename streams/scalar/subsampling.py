"""Release a random sample of the time steps, filtered or not, and interpolate (Koga, Meehan and Chaudhuri
2022).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.interpolate import PchipInterpolator

from streams.scalar.accounting import (
    classical_sigma,
    corollary2_delta,
    corollary3_delta,
    subsampled_epsilon,
    subsampled_sigma,
)
from streams.scalar.base import Guarantee, Missing, OfflineMechanism, need_delta
from synthgeo import validate
from synthgeo.arrays import Floats, Ints
from synthgeo.errors import ConfigError
from synthgeo.privacy.accountant import approximate_dp_of_zcdp, zcdp_of
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.noise import MAX_SCALE, Noise
from synthgeo.privacy.unit import PrivacyUnit

_RATE_BITS = 32
_KERNEL_BITS = 16

Interpolation = Literal["linear", "nearest", "previous", "monotone"]
_INTERPOLATIONS: tuple[Interpolation, ...] = ("linear", "nearest", "previous", "monotone")


class _Subsampled(OfflineMechanism):
    """Draw the steps, release them with noise, interpolate between them."""

    def __init__(
        self,
        budget: PrivacyBudget,
        max_steps: int,
        rate: float,
        interpolation: Interpolation,
        sensitivity: float,
        grid_bits: int,
        missing: Missing,
        nonnegative: bool,
        noise: Noise | None,
    ) -> None:
        need_delta(budget, type(self).__name__)
        super().__init__(budget, sensitivity, grid_bits, missing, nonnegative, noise)
        self.max_steps = validate.whole(max_steps, "max_steps", low=1)
        self.rate = validate.share(rate, "rate", one=True)
        self.interpolation = validate.one_of(interpolation, "interpolation", _INTERPOLATIONS)
        # Rounded down to a multiple of 2^-32, so that drawing at this rate is exact.
        self._rate_steps = max(1, math.floor(self.rate * 2**_RATE_BITS))

    @property
    def guarantee(self) -> Guarantee:
        """User-level, approximate, central."""
        return Guarantee(
            "user", "approximate", "central", f"one user, who is in at most {self.max_steps} steps"
        )

    @property
    def unit(self) -> PrivacyUnit:
        """One user, in at most ``max_steps`` steps."""
        return PrivacyUnit.user(max_events=self.max_steps)

    @property
    def _exact_rate(self) -> float:
        return float(self._rate_steps / (1 << _RATE_BITS))

    def _draw_steps(self, length: int) -> NDArray[np.intp]:
        """The public random steps. Drawn before the data is looked at; privacy rests on them, so not from
        ``rng``.
        """
        return np.flatnonzero(self.noise.integers(2**_RATE_BITS, length) < self._rate_steps)

    def _interpolate(self, length: int, chosen: NDArray[np.intp], released: Floats) -> Floats:
        """All steps from those sampled; constant beyond the first and the last, NaN if none was drawn."""
        if chosen.size == 0:
            return np.full(length, np.nan)
        steps = np.arange(length)
        if self.interpolation == "linear" or chosen.size == 1:
            return np.interp(steps, chosen, released)
        inside = np.clip(steps, chosen[0], chosen[-1])
        if self.interpolation == "monotone":
            return np.asarray(PchipInterpolator(chosen, released)(inside))
        after = np.searchsorted(chosen, inside, side="left")
        before = np.where(chosen[after] == inside, after, after - 1)
        if self.interpolation == "previous":
            return released[before]
        return released[np.where(inside - chosen[before] <= chosen[after] - inside, before, after)]


class SubsampledRelease(_Subsampled):
    """Release each step with probability ``rate``, with noise for the few of a user's steps that are likely
    to be among them.

    Offline. ``max_steps`` I bounds how many steps one user is in; the caller vouches for it. Where it is
    wrong, ``epsilon_if`` says what is left of the promise. A series so short that no step is drawn is
    released as NaN. ``interpolation`` between the steps that are drawn is "linear", "nearest", "previous" or
    "monotone" (cubic, without overshooting).

    Guarantee
    ---------
    (ε, δ), user-level, central. Neighbours: one user, in at most I steps, moves each by at most Δ. The steps
    are drawn independently of the data and count as public. Each of the user's steps is then, independently,
    not released (probability 1 - p) or released with discrete Gaussian noise (p); the loss distribution of
    that mixture, composed I times by dp-accounting with losses rounded up, gives the least σ for the budget.
    Smaller changes and fewer steps are dominated, because the noise is log-concave. Interpolation is
    post-processing. ``paper_sigma`` is what Corollary 3 would use.
    """

    def __init__(
        self,
        *,
        budget: PrivacyBudget,
        max_steps: int,
        rate: float = 0.1,
        interpolation: Interpolation = "linear",
        sensitivity: float = 1,
        grid_bits: int = 0,
        missing: Missing = "refuse",
        nonnegative: bool = False,
        noise: Noise | None = None,
    ) -> None:
        super().__init__(
            budget, max_steps, rate, interpolation, sensitivity, grid_bits, missing, nonnegative, noise
        )
        self._sigma = subsampled_sigma(
            budget.epsilon, budget.delta, self._step_sensitivity, self._exact_rate, self.max_steps
        )

    @property
    def sigma(self) -> float:
        """The noise's standard deviation, in the unit of the values."""
        return self._sigma / self.grid.one

    @property
    def paper_sigma(self) -> float:
        """The least classical σ for which Corollary 3 claims the budget, over the number of steps allowed and
        the split of δ.
        """
        best = math.inf
        epsilon, delta = self.budget.epsilon, self.budget.delta
        for allowed in range(1, self.max_steps + 1):
            left = delta - corollary3_delta(epsilon, 0.0, self._exact_rate, self.max_steps, allowed)
            if left > 0:
                best = min(best, classical_sigma(epsilon, left, self.sensitivity * math.sqrt(allowed)))
        return best

    def epsilon_if(self, max_steps: int) -> float:
        """The ε, at the budget's δ, if a user is in more steps than was vouched for."""
        steps = validate.whole(max_steps, "max_steps", low=1)
        return subsampled_epsilon(
            self._sigma,
            self._step_sensitivity,
            self._exact_rate,
            steps,
            self.budget.delta,
            self.budget.epsilon,
        )

    def _release_all(self, steps: Ints) -> Floats:
        chosen = self._draw_steps(steps.size)
        noisy = steps[chosen] + self.noise.discrete_gaussian(self._sigma, chosen.size)
        return self._interpolate(steps.size, chosen, self.grid.value(noisy))


class FilteredRelease(_Subsampled):
    """Smooth with a kernel (circular), then release random steps of the result. Offline.

    Better than ``SubsampledRelease`` when the series itself is noisy and the trend behind it is wanted. The
    kernel is Gaussian of width ``bandwidth`` (10 unless given), or ``taps``: an odd number of weights >= 0,
    the middle one for the step itself. ``interpolation`` as in ``SubsampledRelease``. Where ``max_steps`` is
    wrong, ``epsilon_if`` says what is left of the promise.

    Guarantee
    ---------
    (ε, δ), user-level, central; the neighbours of ``SubsampledRelease``. The kernel is a public row of whole
    numbers over 2^16, so the filtered values are exact integers B x. The steps J are public and independent
    of the data, hence so is the sampled filter B_J, and the noise may follow from it: a change u with |u|_2
    <= sqrt(I) Δ moves B_J x by at most s(J) sqrt(I) Δ, s(J) the largest singular value. Discrete Gaussian
    noise for that sensitivity gives the budget for *every* J; there is no bad set, no δ', and no matrix
    concentration theorem. s(J)² is bounded from above by max_i (G v)_i / v_i for G = B_J B_J^T >= 0 and any v
    > 0 (Collatz and Wielandt); v comes from a power iteration. ``paper_sigma`` is what Corollary 2 (Theorem 4
    with α sqrt(I)) would use.
    """

    def __init__(
        self,
        *,
        budget: PrivacyBudget,
        max_steps: int,
        rate: float = 0.1,
        bandwidth: float | None = None,
        taps: Sequence[float] | None = None,
        interpolation: Interpolation = "linear",
        sensitivity: float = 1,
        grid_bits: int = 0,
        missing: Missing = "refuse",
        nonnegative: bool = False,
        noise: Noise | None = None,
    ) -> None:
        super().__init__(
            budget, max_steps, rate, interpolation, sensitivity, grid_bits, missing, nonnegative, noise
        )
        self.bandwidth = validate.positive(10.0 if bandwidth is None else bandwidth, "bandwidth")
        self.taps = None if taps is None else _check_taps(taps)
        if self.taps is not None and bandwidth is not None:
            raise ConfigError("bandwidth has no effect with taps of your own: give one of the two")
        self._rho = zcdp_of(budget)
        self._sigma = math.nan

    @property
    def sigma(self) -> float:
        """The noise's standard deviation in the unit of the values; NaN before the steps are drawn."""
        return float(self._sigma / (1 << _KERNEL_BITS) / self.grid.one)

    def kernel(self, length: int) -> Floats:
        """One row of the circular filter for a series of ``length``, by distance in steps; sums to 1."""
        t = np.arange(length)
        if self.taps is None:
            raw = np.exp(-0.5 * (np.minimum(t, length - t) / self.bandwidth) ** 2)
            return np.asarray(raw / raw.sum())
        half = len(self.taps) // 2
        row = np.zeros(length)
        np.add.at(row, np.arange(-half, half + 1) % length, self.taps)
        return np.asarray(row / row.sum())

    def epsilon_if(self, max_steps: int) -> float:
        """The ε, at the budget's δ, if a user is in more steps than was vouched for (Proposition 1).

        A user in c I steps has a change of norm sqrt(c I) Δ, which costs c times the zCDP.
        """
        steps = validate.whole(max_steps, "max_steps", low=1)
        return approximate_dp_of_zcdp(self._rho * steps / self.max_steps, self.budget.delta)

    def paper_sigma(self, length: int) -> float:
        """The least classical σ for which Corollary 2 claims the budget, over α and the split of δ."""
        kernel = self.kernel(length)
        best = math.inf
        epsilon, delta = self.budget.epsilon, self.budget.delta
        for alpha in np.linspace(math.sqrt(self.rate), 1, 400)[1:].tolist():
            left = delta - corollary2_delta(epsilon, 0.0, kernel, alpha, self._exact_rate)
            if left > 0:
                reach = self.sensitivity * alpha * math.sqrt(min(self.max_steps, length))
                best = min(best, classical_sigma(epsilon, left, reach))
        return best

    def whole_kernel(self, length: int) -> Ints:
        """The kernel in whole numbers, rounded down; what rounding took is made up for after the release."""
        kernel = np.floor(self.kernel(length) * (1 << _KERNEL_BITS)).astype(np.int64)
        if kernel.sum() < (1 << _KERNEL_BITS) // 2:
            raise ConfigError("the filter is too wide: most of its weights are below 2^-16")
        return kernel

    def sampled_filter(self, length: int, chosen: NDArray[np.intp]) -> sparse.csr_array:
        """The rows B_J of the whole-number filter."""
        whole_kernel = self.whole_kernel(length)
        offsets = np.flatnonzero(whole_kernel)
        columns = (chosen[:, None] - offsets[None, :]) % length
        rows = np.repeat(np.arange(chosen.size), offsets.size)
        data = np.tile(whole_kernel[offsets], chosen.size)
        return sparse.csr_array((data, (rows, columns.ravel())), shape=(chosen.size, length))

    def _release_all(self, steps: Ints) -> Floats:
        length = steps.size
        reach = math.sqrt(min(self.max_steps, length)) * self._step_sensitivity / math.sqrt(2 * self._rho)
        # The whole filter has norm at most 2^16, and rows left out only lower it: checked before any draw.
        if 2 * (1 << _KERNEL_BITS) * reach > MAX_SCALE:
            raise ConfigError("the noise needed exceeds the sampler's range: raise epsilon, lower grid_bits")
        total = float(self.whole_kernel(length).sum())
        chosen = self._draw_steps(length)
        if chosen.size == 0:
            return self._interpolate(length, chosen, np.empty(0))
        sampled = self.sampled_filter(length, chosen)
        sigma = largest_singular_value(sampled) * reach
        self._sigma = sigma * (1 << _KERNEL_BITS) / total
        noisy = sampled @ steps + self.noise.discrete_gaussian(sigma, chosen.size)
        return self._interpolate(length, chosen, self.grid.value(noisy) / total)


def _check_taps(taps: Any) -> tuple[float, ...]:
    """An odd number of weights >= 0."""
    if not isinstance(taps, Iterable):
        raise validate.refuse("taps", "a sequence of numbers", taps)
    weights = tuple(validate.non_negative(weight, "each of taps") for weight in taps)
    if len(weights) % 2 == 0 or sum(weights) <= 0:
        raise ConfigError("taps must hold an odd number of weights, not all of them 0")
    return weights


def largest_singular_value(matrix: sparse.csr_array, *, iterations: int = 60) -> float:
    """An upper bound, close to the truth, on the largest singular value of a non-negative matrix without zero
    rows.
    """
    floating = matrix.astype(np.float64)
    v = np.ones(matrix.shape[0])
    bound = math.inf
    for _ in range(iterations):
        image = floating @ (floating.T @ v)
        bound = min(bound, float(np.max(image / v)))
        # A floor keeps v positive, which the bound needs; it may cost sharpness, never validity.
        v = np.maximum(image / image.max(), 1e-9)
    return math.sqrt(bound) * (1 + 1e-9)  # for the rounding of the products

"""The Fourier perturbation algorithm: release the lowest frequencies of a whole series.

**An exact integer transform.** Floating-point Fourier coefficients would leave the privacy argument to
rounding errors that depend on the data. Here the orthonormal real Fourier basis B (rows: the mean, then
cosine and sine of each frequency) is rounded once to integers C = round(2^p B), p <= 20, which is public, and
C x is computed exactly on the series' grid steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from streams.scalar.base import Guarantee, Missing, OfflineMechanism, fill_gaps, read_series
from synthgeo import validate
from synthgeo.arrays import Floats, Ints
from synthgeo.errors import BudgetExhausted, ConfigError, InputError
from synthgeo.privacy.accountant import approximate_dp_of_zcdp, zcdp_of
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.noise import MAX_SCALE, Noise
from synthgeo.privacy.unit import PrivacyUnit

_MOST_BASIS_BITS = 20
_LEAST_BASIS_BITS = 8
_BLOCK = 1 << 22  # entries of the basis held at once


def real_fourier_rows(length: int, first: int, last: int) -> Floats:
    """Rows ``first`` to ``last`` - 1 of the orthonormal real Fourier basis of a series of ``length``.

    Row 0 is the mean, rows 2k - 1 and 2k are cosine and sine of frequency k.
    """
    rows = np.arange(first, last)
    frequency = (rows + 1) // 2
    # The angle is reduced exactly in integers first, so that long series lose no accuracy.
    phase = (frequency[:, None] * np.arange(length)[None, :]) % length
    angle = 2 * np.pi * phase / length
    basis = np.where((rows % 2 == 1)[:, None], np.cos(angle), np.sin(angle)) * math.sqrt(2 / length)
    basis[rows == 0] = math.sqrt(1 / length)
    if length % 2 == 0:
        basis[rows == length - 1] /= math.sqrt(2)  # the highest frequency has a cosine only
    return basis


def coordinate_count(length: int, frequencies: int) -> int:
    """How many real coordinates the first ``frequencies`` complex coefficients are."""
    return min(2 * frequencies - 1, length)


class DFT(OfflineMechanism):
    """The Fourier perturbation algorithm (Rastogi and Nath 2010): keep the lowest frequencies, with noise.

    Keeps the mean and the first ``coefficients`` - 1 frequencies. Laplace noise for a pure budget, Gaussian
    for one with a δ. Offline: it needs the whole series at once. With ``delay`` it works in blocks of delay +
    1 values, each released when its last value is there: ``run`` may be called again and again until
    ``horizon`` values are released, and ``update`` takes one block.

    Guarantee
    ---------
    Pure ε, or (ε, δ), central. Neighbours: one user moves at most I = ``max_steps`` values (None: all T) by
    at most Δ each. With d real coordinates (cosines and sines each count), C = 2^p B + E, B of orthonormal
    rows, |E| <= 0.51 entry by entry, a change u has |u|_2 <= sqrt(I) Δ and moves the coordinates by |C u|_2
    <= (2^p + 0.51 sqrt(d T)) sqrt(I) Δ. Value by value, since every column of B has norm sqrt(d / T), it is
    also at most (2^p sqrt(d / T) + 0.51 sqrt(d)) I Δ, which is less when I d < T. The smaller of the two is
    used, and |C u|_1 <= sqrt(d) |C u|_2. Discrete noise at those sensitivities: the Laplace mechanism, or the
    Gaussian one through zCDP. The coordinates are exact integers, so no rounding of data is left to account
    for. The inverse transform is post-processing.

    In blocks of L values a user moves i_b values of block b, Σ i_b <= I, which costs A sqrt(i_b) in L2 with A
    = (2^p + 0.51 sqrt(d L)) Δ. Gaussian: the squares add up to at most A² I. Laplace: Σ sqrt(d) A sqrt(i_b)
    is largest when the I values are spread evenly over m = min(number of blocks, I) of them (sqrt is
    concave), sqrt(d) A sqrt(I m); adding value by value, at most I times the largest value's share. Later
    blocks may depend on earlier releases (adaptive composition).

    Fan and Xiong's listing adds Laplace noise of scale d / ε to raw coefficients: that is not private, a user
    in every step moves the first coefficient alone by T.
    """

    def __init__(
        self,
        *,
        budget: PrivacyBudget,
        horizon: int | None = None,
        max_steps: int | None = None,
        coefficients: int = 20,
        delay: int | None = None,
        sensitivity: float = 1,
        grid_bits: int = 0,
        missing: Missing = "refuse",
        nonnegative: bool = False,
        noise: Noise | None = None,
    ) -> None:
        super().__init__(budget, sensitivity, grid_bits, missing, nonnegative, noise)
        self.coefficients = validate.whole(coefficients, "coefficients", low=1)
        self.max_steps = None if max_steps is None else validate.whole(max_steps, "max_steps", low=1)
        self.delay = None if delay is None else validate.whole(delay, "delay", low=0)
        self.horizon = None if horizon is None else validate.whole(horizon, "horizon", low=1)
        if (self.delay is None) != (self.horizon is None):
            raise ConfigError("delay= goes with horizon=, the number of values there will be in all")

    @property
    def online(self) -> bool:  # type: ignore[override]
        """Whether values can be released as they come, with a delay."""
        return self.delay is not None

    @property
    def batch(self) -> int | None:
        """How many values a block holds; None if the series is released as a whole."""
        return None if self.delay is None else self.delay + 1

    @property
    def guarantee(self) -> Guarantee:
        """User-level, central."""
        who = (
            "who may be in every step"
            if self.max_steps is None
            else f"who is in at most {self.max_steps} steps"
        )
        return Guarantee(
            "user", "pure" if self.budget.is_pure else "approximate", "central", f"one user, {who}"
        )

    @property
    def unit(self) -> PrivacyUnit:
        """One user."""
        return PrivacyUnit.user(max_events=self.max_steps or self.horizon or max(1, self.step))

    @property
    def spent(self) -> PrivacyBudget | None:
        """All of the budget once the series is released; in blocks, what those so far cost at most."""
        if self.horizon is None or not self._queries:
            return super().spent
        bits, _ = self.noise_scale(self.batch or 1)
        part = self._block_sensitivity(self._queries, bits) / self._block_sensitivity(self._blocks, bits)
        if self.budget.is_pure:
            return PrivacyBudget(self.budget.epsilon * part)
        rho = zcdp_of(self.budget) * part**2
        return PrivacyBudget(approximate_dp_of_zcdp(rho, self.budget.delta), self.budget.delta)

    def l2_sensitivity(self, length: int, bits: int = _MOST_BASIS_BITS) -> float:
        """What one user can move the integer coordinates of a whole series by, in L2."""
        d = coordinate_count(length, self.coefficients)
        most = min(length, self.max_steps or length)
        together = ((1 << bits) + 0.51 * math.sqrt(d * length)) * math.sqrt(most)
        one_by_one = ((1 << bits) * math.sqrt(d / length) + 0.51 * math.sqrt(d)) * most
        return min(together, one_by_one) * self._step_sensitivity

    def l1_sensitivity(self, length: int, bits: int = _MOST_BASIS_BITS) -> float:
        """What one user can move the integer coordinates of a whole series by, in L1."""
        return math.sqrt(coordinate_count(length, self.coefficients)) * self.l2_sensitivity(length, bits)

    @property
    def _blocks(self) -> int:
        return math.ceil((self.horizon or 1) / (self.batch or 1))

    def _block_sensitivity(self, blocks: int, bits: int) -> float:
        """What one user can move the coordinates of so many blocks by: in L1, or L2 for Gaussian noise."""
        assert self.batch is not None
        assert self.horizon is not None
        steps = min(self.max_steps or self.horizon, blocks * self.batch, self.horizon)
        d = coordinate_count(self.batch, self.coefficients)
        together = (1 << bits) + 0.51 * math.sqrt(d * self.batch)
        if not self.budget.is_pure:
            return together * math.sqrt(steps) * self._step_sensitivity
        spread = math.sqrt(d) * together * math.sqrt(steps * min(blocks, steps))
        lengths = {self.batch, self.horizon % self.batch or self.batch}  # the last block may be shorter
        one_by_one = max(self._column_norm(length, bits) for length in lengths) * steps
        return min(spread, one_by_one) * self._step_sensitivity

    def _column_norm(self, length: int, bits: int) -> float:
        """What a change of 1 in one value can move the coordinates of a block of ``length`` by, in L1."""
        d = coordinate_count(length, self.coefficients)
        return math.sqrt(d) * ((1 << bits) * math.sqrt(d / length) + 0.51 * math.sqrt(d))

    def noise_scale(self, length: int) -> tuple[int, float]:
        """Bits of the basis and the noise's scale (or σ) in its steps; both follow from public numbers."""
        for bits in range(_MOST_BASIS_BITS, _LEAST_BASIS_BITS - 1, -1):
            if self.delay is not None:
                reach = self._block_sensitivity(self._blocks, bits)
            elif self.budget.is_pure:
                reach = self.l1_sensitivity(length, bits)
            else:
                reach = self.l2_sensitivity(length, bits)
            scale = reach / (
                self.budget.epsilon if self.budget.is_pure else math.sqrt(2 * zcdp_of(self.budget))
            )
            if scale <= MAX_SCALE:
                return bits, scale
        raise ConfigError("the noise needed exceeds the sampler's range: raise epsilon or lower grid_bits")

    def coordinates(self, steps: Ints, bits: int = _MOST_BASIS_BITS) -> Ints:
        """The exact integer coordinates C x. Private: this is what the noise goes on."""
        length = steps.size
        d = coordinate_count(length, self.coefficients)
        out = np.empty(d, dtype=np.int64)
        block = max(1, _BLOCK // length)
        for first in range(0, d, block):
            rows = real_fourier_rows(length, first, min(d, first + block))
            out[first : first + block] = np.rint(rows * (1 << bits)).astype(np.int64) @ steps
        return out

    def update(self, value: Any) -> Any:
        """Release the next block of ``delay`` + 1 values; refused where the whole series is needed."""
        if self.batch is None:
            return super().update(value)
        values = read_series(value)
        if values.size != self.batch:
            raise InputError(f"a block holds {self.batch} values, got {values.size}")
        return self.run(values)

    def run(self, series: Iterable[float]) -> Floats:
        """Release a whole series, once; with a delay, the next values, in blocks."""
        if self.batch is None:
            return super().run(series)
        steps, gap = self._read(series)
        steps = fill_gaps(steps, gap)
        assert self.horizon is not None
        left = self.horizon - self.step
        if steps.size > left:
            raise BudgetExhausted(f"{steps.size} more values asked for, the budget covers {left}")
        if steps.size % self.batch and steps.size < left:
            raise InputError(f"a block holds {self.batch} values, got {steps.size}: some would be left over")
        parts = [steps[i : i + self.batch] for i in range(0, steps.size, self.batch)]
        self._check_size(steps, self.batch)
        out = [self._release_all(part) for part in parts]
        self._queries += len(parts)
        self.step += steps.size
        released = np.concatenate([np.empty(0), *out])
        return np.maximum(released, 0.0) if self.nonnegative else released

    def _check_size(self, steps: Ints, length: int) -> None:
        bits, _ = self.noise_scale(length)
        largest = 2.0**62 / (math.sqrt(2 * length) * (1 << bits))
        if np.any(np.abs(steps) > largest):
            row = int(np.argmax(np.abs(steps) > largest))
            raise InputError(f"value at row {row} is too large for an exact transform; use fewer grid_bits")

    def _release_all(self, steps: Ints) -> Floats:
        length = steps.size
        d = coordinate_count(length, self.coefficients)
        bits, scale = self.noise_scale(length)
        self._check_size(steps, length)
        exact = self.coordinates(steps, bits)
        draw = self.noise.discrete_laplace if self.budget.is_pure else self.noise.discrete_gaussian
        noisy = (exact + draw(scale, d)) / (1 << bits)
        out = np.zeros(length)
        block = max(1, _BLOCK // length)
        for first in range(0, d, block):
            last = min(d, first + block)
            out += noisy[first:last] @ real_fourier_rows(length, first, last)
        return out / self.grid.one

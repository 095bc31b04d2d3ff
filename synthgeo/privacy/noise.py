"""Exact discrete noise from the operating system's entropy. All noise of the toolkit is drawn here.

Everything is an integer. A count is an integer; a fractional contribution is an integer number of grid steps
(``FixedPoint``), and then ``scale`` is in grid steps too. No floating-point noise is ever added to anything,
so the attacks on the low bits of a double (Mironov 2012) have nothing to look at.

**The sampler and its proof.** Discrete Laplace noise at scale s has P(x) proportional to q^|x|, q = e^(-1/s).
It is a geometric variable G, P(G = g) = (1 - q) q^g for g = 0, 1, 2, ..., under a fair sign, drawn again when
it is a negative zero: every x != 0 keeps probability (1 - q) q^|x| / 2, and so does zero.

1. *The bits of G are independent.* Write g = sum of b_k 2^k. Then q^g is the product of q^(b_k 2^k), which
   factorises over k, so the bits are independent, each with
   P(b_k = 1) = q^(2^k) / (1 + q^(2^k)) = 1 / (1 + e^(2^k / s)).
2. *The high bits are one geometric.* For any K, G = L + 2^K H where L holds the bits below K and, by 1, H is
   independent of L and geometric with ratio q^(2^K): H counts successes of Bernoulli(e^(-2^K / s)) before the
   first failure. The loop over H has no limit, so no mass is cut off.
3. *Each Bernoulli(p) is exact.* Let p = 0.d1 d2 d3 ... in base 256. Draw random bytes r1, r2, ... and stop at
   the first i with r_i != d_i; answer r_i < d_i. This compares an infinitely fine uniform with p, and 255 of
   256 comparisons need one byte. The digits come from integer bounds on e^x (``synthgeo.privacy.certified``):
   a digit is used only when the lower and the upper bound agree on it. p is never a finite base-256 fraction,
   because e^x is transcendental for rational x != 0, so more digits can always be certified.

The discrete Gaussian is the rejection sampler of Canonne, Kamath and Steinke ("The Discrete Gaussian for
Differential Privacy", 2020): candidates from the exact discrete Laplace, each kept with probability e^(-γ), γ
rational. That Bernoulli compares 64 random bits with a double whose error is bounded, and falls back to the
integer bounds with as many more bits as it takes in the about 2^-44 of cases that the double cannot decide.
Exact as well.

What remains: the quality of the byte source (``os.urandom``); the rounding of the scale itself, so that a
scale computed as Δ / ε promises ε (1 + 2^-52); and timing, which this code does not hide.
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from synthgeo import validate
from synthgeo.errors import ConfigError, InputError, StateError
from synthgeo.privacy.certified import base256_digits, exp_bounds

IntArray = NDArray[np.int64]

# 2^40 grid steps keep sums of billions of draws far from the ends of an int64.
MAX_SCALE = 2.0**40
MIN_SIGMA = 2.0**-40
_CHUNK = 1 << 16  # draws at a time: the bytes of a chunk stay in the cache
_FIRST_DIGITS = 16


@dataclass(frozen=True)
class FixedPoint:
    """A grid of multiples of 2^-bits on which fractional contributions and their noise live.

    >>> grid = FixedPoint(20)
    >>> int(grid.floor(0.5)), float(grid.value(grid.floor(0.5)))
    (524288, 0.5)
    """

    bits: int = 20

    @property
    def one(self) -> int:
        """How many grid steps make 1."""
        return 1 << self.bits

    def floor(self, values: Any) -> IntArray:
        """Round towards zero on the grid: a contribution never grows, so its sensitivity still holds."""
        steps = np.trunc(np.asarray(values, dtype=np.float64) * self.one)
        bad = np.flatnonzero(~(np.abs(steps) < 2.0**62))
        if bad.size:
            raise InputError(f"contribution {bad[0]} is not a finite number below 2^{62 - self.bits}")
        return steps.astype(np.int64)

    def value(self, steps: Any) -> NDArray[np.float64]:
        """Grid steps as numbers (exact below 2^53)."""
        return np.asarray(steps, dtype=np.float64) / self.one


class Noise(ABC):
    """Exact samplers over a source of random bytes. Use ``SystemNoise``, or ``SeededNoise`` in tests."""

    releasable: bool = False

    @abstractmethod
    def _bytes(self, count: int) -> NDArray[np.uint8]:
        """``count`` fresh uniform bytes."""

    @property
    @abstractmethod
    def rng(self) -> np.random.Generator:
        """A generator for *post-processing* only: rounding, placing synthetic points, walks."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """What a saved stream needs to go on bit for bit (nothing, for the operating system's noise)."""

    @staticmethod
    def from_state(state: dict[str, Any]) -> Noise:
        """The noise source that ``state`` describes."""
        if state.get("kind") == "system":
            return SystemNoise()
        if state.get("kind") == "seeded":
            try:
                return SeededNoise(state["seed"]).resumed(state)
            except (KeyError, TypeError, ValueError, OverflowError) as problem:
                raise StateError(f"the saved noise state is damaged ({type(problem).__name__})") from problem
        raise StateError(f"unknown noise source {state.get('kind')!r} in the saved state")

    def words(self, count: int) -> NDArray[np.uint64]:
        """Uniform 64-bit words."""
        return self._bytes(8 * count).view(np.uint64)

    def integers(self, high: int, count: int) -> IntArray:
        """Exactly uniform integers in [0, high)."""
        if not 1 <= high <= 2**63:
            raise ConfigError(f"high must be in [1, 2^63], got {high!r}")
        limit = np.uint64((2**64 // high) * high - 1)  # words above the last whole block would bias the rest
        out = np.empty(count, dtype=np.int64)
        todo = np.arange(count)
        while todo.size:
            words = self.words(todo.size)
            good = words <= limit
            out[todo[good]] = (words[good] % np.uint64(high)).astype(np.int64)
            todo = todo[~good]
        return out

    def permutation(self, count: int) -> NDArray[np.intp]:
        """A uniform permutation, by sorting distinct random words."""
        while True:
            words = self.words(count)
            order = np.argsort(words, kind="stable")
            ordered = words[order]
            if count < 2 or bool(np.all(ordered[1:] != ordered[:-1])):
                return order

    def discrete_laplace(self, scale: Any, size: int | None = None) -> IntArray:
        """Integers with P(x) proportional to e^(-|x| / scale).

        ``scale`` is one number, with ``size`` draws, or an array with one scale a draw. For an L1 sensitivity
        of Δ grid steps, ``scale = Δ / ε`` gives pure ε-differential privacy.
        """
        scales = _numbers(scale, "a Laplace scale")
        bad = ~(np.isfinite(scales) & (scales > 0) & (scales <= MAX_SCALE))
        if np.any(bad):
            raise ConfigError(f"a Laplace scale must be in (0, 2^40], got {scales[bad].flat[0]!r}")
        if scales.ndim == 0:
            return self._laplace(float(scales), 1 if size is None else validate.whole(size, "size", low=0))
        if size is not None and size != scales.size:
            raise ConfigError(f"{scales.size} scales for {size} draws")
        flat = scales.ravel()
        out = np.zeros(flat.size, dtype=np.int64)
        order = np.argsort(flat, kind="stable")
        values, starts = np.unique(flat[order], return_index=True)
        for value, start, end in zip(values, starts, [*starts[1:], flat.size], strict=False):
            out[order[start:end]] = self._laplace(float(value), int(end - start))
        return out.reshape(scales.shape)

    def _laplace(self, scale: float, count: int) -> IntArray:
        out = np.empty(count, dtype=np.int64)
        for start in range(0, count, _CHUNK):
            size = min(_CHUNK, count - start)
            part = out[start : start + size]
            part[:], refused = self._signed(scale, size)
            again = np.flatnonzero(refused)
            while again.size:
                part[again], refused = self._signed(scale, again.size)
                again = again[refused]
        return out

    def _signed(self, scale: float, count: int) -> tuple[IntArray, NDArray[np.bool_]]:
        """Geometric variables under fair signs, and which of them are negative zeros."""
        value = self._geometric(scale, count)
        negative = self._coins(count)
        refused = negative & (value == 0)
        np.negative(value, out=value, where=negative)
        return value, refused

    def _coins(self, count: int) -> NDArray[np.bool_]:
        """Fair coins, eight a byte."""
        return np.unpackbits(self._bytes(-(-count // 8)), count=count).view(np.bool_)

    def _geometric(self, scale: float, count: int) -> IntArray:
        bits = bit_count(scale)
        digits = first_digits(scale)  # row k < bits: P(bit k = 1); last row: P(carry past them)
        hits = self._bernoulli_rows(scale, np.arange(bits + 1), digits, count)
        out = np.zeros(count, dtype=np.int64)
        for k in range(bits):
            out += hits[k].astype(np.int64) << k
        # Proof, step 2: the part above 2^bits is geometric again; few draws get past the first Bernoulli.
        high = np.flatnonzero(hits[bits])
        while high.size:
            out[high] += np.int64(1) << bits
            again = self._bernoulli_rows(scale, np.array([bits]), digits, high.size)[0]
            high = high[again]
        return out

    def _bernoulli_rows(
        self, scale: float, rows: NDArray[np.intp], digits: NDArray[np.uint8], count: int
    ) -> NDArray[np.bool_]:
        """``count`` exact Bernoulli draws for each probability in ``rows`` (proof, step 3)."""
        drawn = self._bytes(rows.size * count).reshape(rows.size, count)
        first = digits[rows, 0][:, None]
        hit: NDArray[np.bool_] = drawn < first
        row, column = np.divmod(np.flatnonzero(drawn == first), count)
        depth = 1
        while row.size:
            digit = (
                digits[rows[row], depth]
                if depth < _FIRST_DIGITS
                else np.array(
                    [_row_digits(scale, int(r), depth + 1)[depth] for r in rows[row]], dtype=np.uint8
                )
            )
            more = self._bytes(row.size)
            hit[row, column] = more < digit
            tied = more == digit
            row, column = row[tied], column[tied]
            depth += 1
        return hit

    def discrete_gaussian(self, sigma: float, size: int) -> IntArray:
        """Integers with P(x) proportional to e^(-x^2 / (2 sigma^2)).

        For an L2 sensitivity of Δ grid steps, ``sigma = Δ / sqrt(2 ρ)`` gives ρ-zCDP.
        """
        sigma = float(_numbers(sigma, "sigma"))
        if not MIN_SIGMA <= sigma <= MAX_SCALE:
            raise ConfigError(f"sigma must be in [2^-40, 2^40], got {sigma!r}")
        size = validate.whole(size, "size", low=0)
        out = np.empty(size, dtype=np.int64)
        filled = 0
        while filled < size:
            # Between 0.66 and 0.76 of the candidates are kept for sigma >= 1.
            proposals = self._laplace(math.floor(sigma) + 1.0, min(_CHUNK, int(1.6 * (size - filled)) + 16))
            kept = proposals[self._accept_gaussian(proposals, sigma)][: size - filled]
            out[filled : filled + kept.size] = kept
            filled += kept.size
        return out

    def contrast_gaussian(self, sigma: float, shape: tuple[int, ...]) -> IntArray:
        """The contrasts of a table of discrete Gaussian noise: noise for ``contrast`` of a table of counts.

        ``synthgeo.privacy.gaussian`` has its guarantee.
        """
        return contrast(self.discrete_gaussian(sigma, math.prod(shape)).reshape(shape))

    def _accept_gaussian(self, proposals: IntArray, sigma: float) -> NDArray[np.bool_]:
        t = math.floor(sigma) + 1
        variance = sigma * sigma
        reach = np.abs(proposals).astype(np.float64) * t
        gap = reach - variance
        gamma = gap * gap / (2 * variance * t * t)
        # Rounding of `variance` and of the difference, then of the quotient: bounded with room to spare.
        error = 2.0**-45 * (1 + gamma + np.abs(gap) * (reach + variance) / (variance * t * t))
        exact_variance = Fraction(sigma) ** 2

        def exact(i: int) -> Fraction:
            return (abs(int(proposals[i])) * t - exact_variance) ** 2 / (2 * exact_variance * t * t)

        return self.bernoulli_exp_near(gamma, error, exact)

    def bernoulli_exp(self, gamma: Any) -> NDArray[np.bool_]:
        """Exact Bernoulli draws with P(True) = e^(-gamma), one for each gamma >= 0 (infinity: never)."""
        gammas = _numbers(gamma, "gamma")
        if np.any(np.isnan(gammas)) or np.any(gammas < 0):
            raise ConfigError("gamma must be >= 0")
        out = np.zeros(gammas.shape, dtype=bool)
        finite = np.isfinite(gammas)
        values = gammas[finite]
        out[finite] = self.bernoulli_exp_near(values, 2.0**-45, lambda i: Fraction(float(values[i])))
        return out

    def bernoulli_exp_near(
        self, gamma: NDArray[np.float64], error: NDArray[np.float64] | float, exact: Callable[[int], Fraction]
    ) -> NDArray[np.bool_]:
        """Exact Bernoulli draws with P(True) = e^(-exact(i)), where ``gamma`` is only near the exact numbers.

        ``error`` bounds |gamma - exact| with at least 2^-46 to spare for this method's own rounding
        (``exact`` may be any number above 1000 where gamma is: no 64-bit draw tells those apart). ``exact``
        is asked for few i.
        """
        words = self.words(gamma.size)
        uniform = words.astype(np.float64)
        threshold = np.exp(-gamma) * 2.0**64
        hit: NDArray[np.bool_] = uniform + 1 <= threshold * (1 - error)
        unsure = ~hit & (uniform <= threshold * (1 + error) + 1)
        for i in np.flatnonzero(unsure):
            hit[i] = self._compare_exactly(int(words[i]), exact(int(i)))
        return hit

    def _compare_exactly(self, uniform: int, gamma: Fraction) -> bool:
        """Whether an infinitely fine uniform, whose first 64 bits are given, lies below e^-gamma."""
        if gamma == 0:
            return True
        bits = 64
        while True:
            low, high = exp_bounds(gamma, bits)
            if uniform + 1 <= low:
                return True
            if uniform >= high:
                return False
            uniform = (uniform << 64) | int(self.words(1)[0])
            bits += 64


def contrast(table: IntArray) -> IntArray:
    """What the margins of a table do not tell, times its number of cells, in exact integers.

    >>> contrast(np.array([[3, 1], [1, 0]])).tolist()
    [[1, -1], [-1, 1]]
    """
    for axis, size in enumerate(table.shape):
        table = table * np.int64(size) - table.sum(axis=axis, keepdims=True)
    return table


def _numbers(value: Any, name: str) -> NDArray[np.float64]:
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as problem:
        raise ConfigError(f"{name} must be a number, got {value!r}") from problem


def bit_count(scale: float) -> int:
    """How many low bits are drawn one by one: enough that a carry into the rest has probability < e^-16."""
    return max(0, math.ceil(math.log2(16 * scale)))


@lru_cache(maxsize=4096)
def first_digits(scale: float) -> NDArray[np.uint8]:
    """The first base-256 digits of the probability of each low bit, and of the carry in the last row."""
    rows = range(bit_count(scale) + 1)
    digits = np.array([_row_digits(scale, row, _FIRST_DIGITS) for row in rows], dtype=np.uint8)
    digits.flags.writeable = False  # shared by every sampler in the process
    return digits


def _row_digits(scale: float, row: int, count: int) -> tuple[int, ...]:
    """Certified base-256 digits of P(bit ``row`` = 1), or of P(carry) in the row after the last bit."""
    return base256_digits(2**row / Fraction(scale), count, logistic=row < bit_count(scale))


class SystemNoise(Noise):
    """Noise from ``os.urandom``: the default everywhere, and the only kind that may be released.

    Nothing is buffered, so a forked process cannot replay its parent's noise.
    """

    releasable = True

    def __init__(self) -> None:
        self._rng: np.random.Generator | None = None
        self._pid = -1

    def _bytes(self, count: int) -> NDArray[np.uint8]:
        return np.frombuffer(os.urandom(count), dtype=np.uint8)

    @property
    def rng(self) -> np.random.Generator:
        if self._rng is None or self._pid != os.getpid():
            self._rng = np.random.Generator(np.random.PCG64(int.from_bytes(os.urandom(32), "big")))
            self._pid = os.getpid()
        return self._rng

    def state(self) -> dict[str, Any]:
        return {"kind": "system"}

    def __reduce__(self) -> tuple[type[SystemNoise], tuple[()]]:
        return SystemNoise, ()  # a copy, in this process or another, starts with entropy of its own

    def __repr__(self) -> str:
        return "SystemNoise()"


class SeededNoise(Noise):
    """Reproducible noise for tests and teaching. Anybody who knows the seed can subtract it: never
    release."""

    releasable = False

    def __init__(self, seed: int) -> None:
        self._seed = validate.whole(seed, "seed", low=0, high=None)
        bits, rng = np.random.SeedSequence(self._seed).spawn(2)
        self._bits = np.random.Generator(np.random.PCG64(bits))
        self._rng = np.random.Generator(np.random.PCG64(rng))

    def _bytes(self, count: int) -> NDArray[np.uint8]:
        return np.frombuffer(self._bits.bytes(count), dtype=np.uint8)

    @property
    def rng(self) -> np.random.Generator:
        return self._rng

    def state(self) -> dict[str, Any]:
        return {
            "kind": "seeded",
            "seed": self._seed,
            "bits": self._bits.bit_generator.state,
            "rng": self._rng.bit_generator.state,
        }

    def resumed(self, state: dict[str, Any]) -> Self:
        """This noise, going on from what ``state`` wrote."""
        self._bits.bit_generator.state = state["bits"]
        self._rng.bit_generator.state = state["rng"]
        return self

    def __repr__(self) -> str:
        return f"SeededNoise({self._seed})"


def laplace_variance(scale: float) -> float:
    """Variance of discrete Laplace noise: 1 / (2 sinh^2(1 / (2 scale))), a little below 2 scale^2."""
    half = 0.5 / scale
    return 0.0 if half > 350 else 0.5 / math.sinh(half) ** 2


def generator(seed: int, part: int = 0) -> np.random.Generator:
    """A generator for post-processing that is put off: draw ``seed`` from ``noise.rng`` now, sample when
    asked. Each ``part`` has draws of its own.
    """
    return np.random.Generator(np.random.PCG64(seed).jumped(part))

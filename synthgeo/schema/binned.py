"""Columns over a line, cut into bins: numbers, dates, durations and times of day.

A column of this kind is a mixture: values that many rows share (0, round prices) and a continuous rest.
With a public resolution (``decimals``, days, seconds) both are bins: a bin that holds one value of the
resolution *is* that value. Inside wider bins synthetic values follow a density that is linear in each bin,
with the slope that the released masses of the neighbouring bins suggest.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from synthgeo import validate
from synthgeo.arrays import Floats
from synthgeo.errors import ConfigError
from synthgeo.schema.columns import (
    Attribute,
    Chunk,
    Codes,
    Column,
    Condition,
    no_value,
    wanted_values,
)
from synthgeo.sources.chunk import refuse
from synthgeo.sources.values import numbers

Bools = NDArray[np.bool_]
#: Intervals of values, rows (low, high), closed at both ends.
Intervals = Floats

#: A declaration asks for at most this many bins, and all columns of a schema file for four times as many.
MOST_DECLARED = 1 << 20
#: At most so many bins are found for a column.
MOST_BINS = 256
# Where nothing is said about decimals, bins are found among about a million values between the bounds.
_STEPS = 6
# Amounts of at least this size, in at least as many steps, have long tails more often than not.
_LONG = 10_000
_SLACK = 1e-9  # of a step: floating-point values of a decimal are not exact


class Binned(Column):
    """A column over a line, between public bounds, cut into bins.

    ``edges`` are None while the bins are still to be found. ``step`` is the resolution of its values, None
    where it has none. ``scale`` says in what terms bins are halved and filled: "linear", or "log" (signed,
    for amounts with long tails)."""

    low: float
    high: float
    edges: tuple[float, ...] | None
    step: float | None
    missing: bool
    outside: str
    scale: str

    def _set(
        self,
        low: float,
        high: float,
        *,
        bins: int | str | Sequence[float],
        step: float | None,
        missing: bool,
        outside: str,
        scale: str,
    ) -> None:
        if not low < high:
            raise ConfigError(f"a {self.kind} column needs low < high, got {low!r} and {high!r}")
        self.low, self.high = low, high
        self.edges = _edges(low, high, bins)
        if self.edges is None and step is None:
            step = 10.0 ** (math.floor(math.log10(high - low)) - _STEPS)
        self.step = step
        if step is not None and (high - low) / step > 2.0**50:
            raise ConfigError(f"there are too many values of a resolution of {step:g} between the bounds")
        if step is not None and math.floor(high / step + _SLACK) < math.ceil(low / step - _SLACK):
            raise ConfigError(f"no value of a resolution of {step:g} lies between {low:g} and {high:g}")
        self.missing = bool(missing)
        self.outside = validate.one_of(outside, "outside", ("error", "clip"))
        if validate.one_of(scale, "scale", ("auto", "linear", "log")) == "auto":
            # Only where bins are found: inside a wide public bin a logarithm would put everything near 0.
            long = self.edges is None and low <= 0 <= high and max(-low, high) >= _LONG
            scale = "log" if long and (high - low) / (step or 1.0) >= _LONG else "linear"
        self.scale = scale

    # -- what the kinds differ in ------------------------------------------------------------------

    @abstractmethod
    def read(self, name: str, chunk: Chunk) -> Floats:
        """The values of a chunk on the line, NaN where missing."""

    @abstractmethod
    def write(self, name: str, values: Floats) -> dict[str, Any]:
        """Values of the line as they stand in a table, NaN where missing."""

    @abstractmethod
    def point(self, name: str, value: Any) -> float:
        """One value that a user gave, on the line; ``ConfigError`` for what is none."""

    @abstractmethod
    def with_edges(self, edges: Sequence[float]) -> Self:
        """The same column with these bins."""

    # -- reading ---------------------------------------------------------------------------------

    @property
    def bins(self) -> int:
        """How many bins there are; bins that are still to be found count as an error."""
        if self.edges is None:
            raise ConfigError(f"this {self.kind} column has bins='auto', which a fit finds")
        return len(self.edges) - 1

    def attributes(self, name: str) -> tuple[Attribute, ...]:
        apart = (self.bins,) * self.missing
        return (Attribute(name, self.bins + self.missing, ordered=True, apart=apart),)

    def numbers(self, name: str, chunk: Chunk) -> tuple[Floats, Bools]:
        """The values within bounds, at the column's resolution (the lower bound where missing), and which are
        missing.
        """
        found = self.read(name, chunk)
        absent = np.isnan(found)
        if not self.missing:
            refuse(absent, name, "is missing; the schema does not say missing=True")
        if self.outside == "error":
            beyond = ~absent & ((found < self.low) | (found > self.high))
            problem = f"is outside the bounds {self._bounds()}; outside='clip' would move it there"
            refuse(beyond, name, problem)
        found = np.clip(np.where(absent, self.low, found), self.low, self.high)
        if self.step is not None:
            least, most = self.grid
            found = self.value(np.clip(np.rint(found / self.step), least, most))
        return found, absent

    def _bounds(self) -> str:
        return f"[{self.low:g}, {self.high:g}]"

    @property
    def takes_others(self) -> bool:
        return self.outside == "clip"

    def declared(self, name: str, chunk: Chunk) -> tuple[Bools, Bools]:
        found = self.read(name, chunk)
        return ~np.isnan(found), (found >= self.low) & (found <= self.high)

    def encode(self, name: str, chunk: Chunk) -> Codes:
        found, absent = self.numbers(name, chunk)
        codes = np.searchsorted(np.asarray(self.edges)[1:-1], found, side="right").astype(np.int64)
        codes[absent] = self.bins
        return codes[:, None]

    # -- the resolution ----------------------------------------------------------------------------

    @property
    def grid(self) -> tuple[int, int]:
        """The least and the greatest value between the bounds, in steps of the resolution."""
        assert self.step is not None
        return math.ceil(self.low / self.step - _SLACK), math.floor(self.high / self.step + _SLACK)

    def value(self, steps: NDArray[Any]) -> Floats:
        """Values of the line for whole numbers of steps, as exact as a decimal can be."""
        assert self.step is not None
        steps = np.asarray(steps, dtype=np.float64)
        found = steps / round(1 / self.step) if self.step < 1 else steps * self.step
        return found + 0.0  # no -0

    @cached_property
    def spans(self) -> tuple[Floats, Floats]:
        """The least and the greatest value of each bin (both the same where there is just one)."""
        edges = np.asarray(self.edges)
        if self.step is None:
            return edges[:-1], np.append(np.nextafter(edges[1:-1], -np.inf), edges[-1])
        least = np.ceil(edges[:-1] / self.step - _SLACK)
        most = np.ceil(edges[1:] / self.step - _SLACK) - 1
        most[-1] = self.grid[1]
        return self.value(least), self.value(np.maximum(most, least))

    @cached_property
    def _cells(self) -> tuple[Floats, Floats]:
        """The stretch of the line that stands for each bin: half a step around its values."""
        if self.step is None:
            edges = np.asarray(self.edges)
            return edges[:-1], edges[1:]
        least, most = self.spans
        return least - self.step / 2, most + self.step / 2

    # -- the density inside bins --------------------------------------------------------------------

    def stretch(self, values: Any) -> Floats:
        """Values of the line in terms of the scale: rising, and logarithmic away from 0 for "log"."""
        found = np.asarray(values, dtype=np.float64)
        return found if self.scale == "linear" else np.arcsinh(found / self._unit)

    def unstretch(self, values: Any) -> Floats:
        """The inverse of ``stretch``."""
        found = np.asarray(values, dtype=np.float64)
        return found if self.scale == "linear" else self._unit * np.sinh(found)

    @property
    def _unit(self) -> float:
        return 1.0 if self.step is None else self.step

    def _slopes(self, masses: Floats | None) -> Floats:
        """How the density rises across each bin: from 1 - s to 1 + s in relative terms, |s| <= 1.

        The slope is the harmonic mean of those to both neighbours where they agree, and 0 where they do not
        (van Leer's limiter: no new peaks, no negative density). Bins of one value have no slope and lend
        none."""
        slopes = np.zeros(self.bins)
        if masses is None or self.bins < 2:
            return slopes
        low, high = (self.stretch(end) for end in self._cells)
        width = np.maximum(high - low, 1e-300)
        least, most = self.spans
        wide = least < most
        density = np.where(wide, np.maximum(masses[: self.bins], 0.0) / width, np.nan)
        middle = (low + high) / 2
        rise = np.diff(density) / np.diff(middle)
        before, after = np.append(np.nan, rise), np.append(rise, np.nan)
        one_sided = np.where(np.isnan(before), after, before)
        with np.errstate(invalid="ignore", divide="ignore"):
            both = np.where(before * after > 0, 2 * before * after / (before + after), 0.0)
            slope = np.where(np.isnan(before) | np.isnan(after), one_sided, both)
            found = slope * width / (2 * density)
        return np.clip(np.where(np.isfinite(found), found, 0.0), -1.0, 1.0)

    def draw(
        self,
        codes: NDArray[np.int64],
        rng: np.random.Generator,
        *,
        masses: Floats | None = None,
        within: tuple[Intervals, bool] | None = None,
    ) -> Floats:
        """Values inside the bins of codes, NaN for the missing code; ``within`` are accepted intervals."""
        absent = codes >= self.bins
        at = np.where(absent, 0, codes)
        slopes = self._slopes(masses)
        uniform = rng.random(len(codes))
        if within is not None and len(within[0]):
            bins, begin, end = self._pieces(within[0], slopes)
            cumulated = np.concatenate([[0.0], np.cumsum(np.maximum(end - begin, 1e-12))])
            first, last = np.searchsorted(bins, at, side="left"), np.searchsorted(bins, at, side="right")
            wanted = cumulated[first] + uniform * (cumulated[last] - cumulated[first])
            piece = np.clip(
                np.searchsorted(cumulated, wanted, side="right") - 1, first, np.maximum(last - 1, first)
            )
            piece = np.minimum(piece, len(bins) - 1)
            share = np.clip(wanted - cumulated[piece], 0.0, None)
            uniform = np.minimum(begin[piece] + share, end[piece])
        slope = slopes[at]
        rest = 1 - slope
        # The inverse of F(z) = (1 - s) z + s z².
        z = 2 * uniform / np.maximum(rest + np.sqrt(rest**2 + 4 * slope * uniform), 1e-300)
        low, high = (self.stretch(end) for end in self._cells)
        least, most = self.spans
        found = self.unstretch(low[at] + np.clip(z, 0.0, 1.0) * (high - low)[at])
        if self.step is not None:
            found = self.value(np.rint(found / self.step))
        found = np.clip(found, least[at], most[at])
        if within is not None and len(within[0]):
            found = _nearest(found, self._settled(within[0]))
        return np.where(absent, np.nan, found)

    def _settled(self, intervals: Intervals) -> Intervals:
        """Intervals cut down to values of the resolution; those without any are left out."""
        low, high = np.maximum(intervals[:, 0], self.low), np.minimum(intervals[:, 1], self.high)
        if self.step is not None:
            low, high = np.ceil(low / self.step - _SLACK), np.floor(high / self.step + _SLACK)
            some = low <= high
            low, high = self.value(low), self.value(high)
        else:
            some = low <= high
        return np.column_stack([low, high])[some]

    def _pieces(self, intervals: Intervals, slopes: Floats) -> tuple[NDArray[np.int64], Floats, Floats]:
        """The parts of bins that intervals accept: bin, and from where to where in its distribution."""
        least, most = self.spans
        settled = self._settled(intervals)
        bins, low, high = [], [], []
        for begin, end in settled:
            met = np.flatnonzero((most >= begin) & (least <= end))
            bins.append(met)
            low.append(np.maximum(begin, least[met]))
            high.append(np.minimum(end, most[met]))
        at = np.concatenate([np.zeros(0, dtype=np.int64), *bins])
        half = 0.0 if self.step is None else self.step / 2
        ends = []
        a, b = (self.stretch(cell) for cell in self._cells)
        for side in (np.concatenate([[], *low]) - half, np.concatenate([[], *high]) + half):
            z = np.clip((self.stretch(side) - a[at]) / np.maximum(b[at] - a[at], 1e-300), 0.0, 1.0)
            ends.append((1 - slopes[at]) * z + slopes[at] * z**2)
        # The whole of a bin is the whole of it, also where its last values lie just below the upper edge.
        whole = (np.concatenate([[], *low]) <= least[at]) & (np.concatenate([[], *high]) >= most[at])
        ends = [np.where(whole, 0.0, ends[0]), np.where(whole, 1.0, ends[1])]
        order = np.lexsort((ends[0], at))
        return at[order], ends[0][order], ends[1][order]

    def decode(
        self,
        name: str,
        codes: Codes,
        rng: np.random.Generator,
        within: Any = None,
        masses: Floats | None = None,
    ) -> dict[str, Any]:
        return self.write(name, self.draw(codes[:, 0], rng, masses=masses, within=within))

    def matching(self, name: str, wanted: Any, masses: Floats | None = None) -> Condition:
        """A value, a range (low, high) that is closed at both ends, None for a missing value, or a list of
        these.
        """
        intervals, absent = [], False
        for value in wanted_values(name, wanted):
            if isinstance(value, tuple):
                if len(value) != 2:
                    raise ConfigError(f"given: a range of column {name!r} is (low, high), got {value!r}")
                intervals.append(tuple(self.point(name, end) for end in value))
            elif no_value(value):
                absent = True
            else:
                intervals.append((self.point(name, value),) * 2)
        if absent and not self.missing:
            raise ConfigError(f"given: column {name!r} has no missing values")
        merged = _merged(np.array(intervals, dtype=np.float64).reshape(-1, 2))
        accepted = np.zeros(self.bins + self.missing)
        if len(merged):
            bins, begin, end = self._pieces(merged, self._slopes(masses))
            if not len(bins) and not absent:
                raise ConfigError(f"given: column {name!r} has no value in {wanted!r}")
            np.add.at(accepted, bins, np.maximum(end - begin, 1e-9))
            np.minimum(accepted, 1.0, out=accepted)
        if absent:
            accepted[-1] = 1.0
        return Condition({(name,): accepted}, (merged, absent))

    def holds(self, values: Floats, within: tuple[Intervals, bool]) -> Bools:
        """Which values (NaN: missing) a condition accepts."""
        intervals, absent = within
        missing = np.isnan(values)
        known = np.where(missing, 0.0, values)
        inside = ((known[:, None] >= intervals[:, 0]) & (known[:, None] <= intervals[:, 1])).any(axis=1)
        return np.where(missing, absent, inside)

    def _common_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {"missing": True} if self.missing else {}
        return out if self.outside == "error" else {**out, "outside": self.outside}

    def _bins_json(self) -> Any:
        if self.edges is None:
            return "auto"
        return self.bins if self.edges == _edges(self.low, self.high, self.bins) else list(self.edges)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.to_json() == other.to_json()  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash((self.kind, self.low, self.high, self.edges))

    def __repr__(self) -> str:
        facts = ", ".join(f"{key}={value!r}" for key, value in self.to_json().items() if key != "type")
        return f"{type(self).__name__}({facts})"


class Numeric(Binned):
    """A number between public bounds, cut into public bins.

    ``bins`` is how many equal ones, the list of their edges, or ``"auto"``: then ``TabularSynthesizer``
    finds them with a share of the budget, and with them values that many rows share, such as 0. Bins are
    closed on the left, the last one on both sides. ``decimals`` is the public number of digits behind the
    point, ``integer=True`` the same as ``decimals=0``. ``outside="clip"`` moves values beyond the bounds to
    the nearest bin, ``"error"`` refuses them. ``scale="log"`` suits amounts with long tails, of either sign;
    "auto" takes it for bins that are to be found between bounds that hold 0 and reach 10,000 or more.

    >>> Numeric(0, 100, bins=4).encode("age", {"age": np.array([0, 24.9, 25, 100])}).ravel().tolist()
    [0, 0, 1, 3]
    """

    kind: ClassVar[str] = "numeric"
    reads: ClassVar[str] = "number"

    def __init__(
        self,
        low: float,
        high: float,
        *,
        bins: int | str | Sequence[float] = 20,
        integer: bool = False,
        decimals: int | None = None,
        missing: bool = False,
        outside: str = "error",
        scale: str = "auto",
    ) -> None:
        self.integer = bool(integer)
        if integer and decimals not in (None, 0):
            raise ConfigError(f"a whole number has no decimals, got decimals={decimals!r}")
        self.decimals = None if decimals is None else validate.whole(decimals, "decimals", low=0, high=12)
        digits = 0 if integer else self.decimals
        self._given_scale = scale
        self._set(
            validate.finite(low, "low"),
            validate.finite(high, "high"),
            bins=bins,
            step=None if digits is None else 10.0**-digits,
            missing=missing,
            outside=outside,
            scale=scale,
        )

    def with_edges(self, edges: Sequence[float]) -> Numeric:
        found = Numeric(self.low, self.high, bins=list(edges), integer=self.integer, decimals=self.decimals,
                        missing=self.missing, outside=self.outside, scale=self.scale)  # fmt: skip
        found.step = self.step  # also where it followed from bins="auto"
        return found

    def read(self, name: str, chunk: Chunk) -> Floats:
        return numbers(chunk, name)

    def write(self, name: str, values: Floats) -> dict[str, Any]:
        absent = np.isnan(values)
        if not self.integer and self.decimals != 0:
            return {name: pd.Series(values)}
        whole = pd.Series(np.rint(np.where(absent, 0.0, values)).astype(np.int64))
        return {name: whole.astype("Int64").mask(absent) if self.missing else whole}

    def point(self, name: str, value: Any) -> float:
        return validate.finite(value, f"given: value of {name!r}")

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {"type": self.kind, "low": self.low, "high": self.high}
        out["bins"] = self._bins_json()
        if self.integer:
            out["integer"] = True
        if self.decimals is not None:
            out["decimals"] = self.decimals
        elif self.step is not None and self.edges is not None and not self.integer:
            out["decimals"] = round(-math.log10(self.step)) if self.step < 1 else 0
        if self._given_scale != "auto":
            out["scale"] = self._given_scale
        return out | self._common_json()


def _edges(low: float, high: float, bins: Any) -> tuple[float, ...] | None:
    if isinstance(bins, str):
        if bins != "auto":
            raise ConfigError(f"bins must be a whole number, a list of edges or 'auto', got {bins!r}")
        return None
    if isinstance(bins, int | np.integer) and not isinstance(bins, bool):
        if bins < 1:
            raise ConfigError(f"bins must be >= 1, got {bins!r}")
        if bins > MOST_DECLARED:
            raise ConfigError(f"bins must be at most {MOST_DECLARED:,}")
        return tuple(np.linspace(low, high, int(bins) + 1).tolist())
    edges = tuple(validate.finite(edge, "a bin edge") for edge in bins)
    if len(edges) < 2 or edges[0] != low or edges[-1] != high or any(a >= b for a, b in pairwise(edges)):
        raise ConfigError(f"bin edges must rise from low={low:g} to high={high:g}, got {list(edges)}")
    return edges


def _merged(intervals: Intervals) -> Intervals:
    """Disjoint intervals, in order."""
    out: list[list[float]] = []
    for low, high in intervals[np.argsort(intervals[:, 0], kind="stable")]:
        if low > high:
            raise ConfigError(f"given: a range is (low, high), got ({low:g}, {high:g})")
        if out and low <= out[-1][1]:
            out[-1][1] = max(out[-1][1], float(high))
        else:
            out.append([float(low), float(high)])
    return np.array(out).reshape(-1, 2)


def _nearest(values: Floats, intervals: Intervals) -> Floats:
    """Values moved into the nearest interval; what lies in one stays."""
    if not len(intervals):
        return values
    at = np.clip(np.searchsorted(intervals[:, 0], values, side="right") - 1, 0, len(intervals) - 1)
    after = np.minimum(at + 1, len(intervals) - 1)
    options = [np.clip(values, intervals[i, 0], intervals[i, 1]) for i in (at, after)]
    closer = np.abs(options[1] - values) < np.abs(options[0] - values)
    return np.where(closer, options[1], options[0])

"""Times inside a window: a noisy count of each of its finer public slots, and the times drawn from them.

Where in a window events come is asked for with ``times="hour"``: the window is cut into slots of an hour, the
insertions of each are counted with noise, once, and every synthetic record draws its time from the released
numbers.

Guarantee
---------
Unit: one event. An insertion is in one slot of one window, and the window's slots are counted once, with
discrete Laplace noise of scale 1 / ε_times: pure ε_times, which ``EventBudget`` splits off before the
mechanism sees the rest, so that both together cost at most ε (composition). Deletions are in no slot. Slots
are public: they follow from the window and ``times`` alone. Users are bounded before slots are counted, so
that a user's m events pay m times their parts: ε. Smoothing over earlier windows and drawing times read
released numbers only.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
import pandas as pd

from streams.mechanism import Arrays, laplace_scale
from synthgeo import validate
from synthgeo.arrays import Bools, Floats, Ints, Keys
from synthgeo.errors import ConfigError
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.noise import Noise, laplace_variance
from synthgeo.sources import Histogram, values

_WORDS = {"hour": "1h", "minute": "1min"}
_SECOND = 1_000_000
# The part of ε that times inside windows cost where nothing else is said.
TIMES_SHARE = 0.1
MAX_SLOTS = 100_000
# Keys of slots lie above those of all cells (``MAX_BITS``) and below 2^63; the slot at ``anchor`` is in the
# middle.
_FIRST_KEY = 1 << 62
_ANCHOR_KEY = _FIRST_KEY + (1 << 61)
# How fast the usual shares of slots move once many windows have been seen.
_RATE = 0.05


def slot_length(times: Any) -> int:
    """``"hour"``, ``"minute"`` or a length such as ``"15min"``, in microseconds.

    >>> slot_length("hour")
    3600000000
    """
    wanted = "one of 'hour' and 'minute', or a length of whole seconds such as '15min'"
    if not isinstance(times, str):
        raise validate.refuse("times", wanted, times)
    try:
        length = pd.Timedelta(_WORDS.get(times, times)) // pd.Timedelta(1, unit="us")
    except (ValueError, TypeError):
        length = 0
    if length <= 0 or length % _SECOND:
        raise validate.refuse("times", wanted, times)
    return int(length)


def check_times(times: Any, share: Any) -> float:
    """The part of ε that times inside windows cost: none where they are not asked for."""
    validate.share(share, "times_share")
    if times is None:
        return 0.0
    slot_length(times)
    return float(share)


@runtime_checkable
class CoarseFirst(Protocol):
    """Counts of which those of coarse cells, and of slots, come first."""

    @property
    def coarse(self) -> Histogram: ...

    def with_coarse(self, counts: Histogram) -> Any:
        """The same with other counts of the coarse cells."""
        ...


@dataclass(frozen=True)
class TimeSlots:
    """Public slots of ``length`` microseconds; one begins at ``anchor``. Windows cut those at their edges.

    The same for all windows of a stream, so that one pass over a file can count several.
    """

    column: str
    anchor: int
    length: int

    def of(self, chunk: Mapping[str, Any]) -> Ints:
        """The number of each row's slot."""
        at = values.known_times(chunk, self.column).astype("datetime64[us]").astype(np.int64)
        return (at - self.anchor) // self.length

    def edges(self, window: tuple[int, int]) -> tuple[int, Ints]:
        """The number of a window's first slot, and where its slots begin; last, where the window ends."""
        begin, end = window
        first, last = (begin - self.anchor) // self.length, (end - 1 - self.anchor) // self.length
        if last - first >= MAX_SLOTS:
            raise ConfigError(f"times: a window has more than {MAX_SLOTS:,} slots; take longer ones")
        inner = self.anchor + np.arange(first + 1, last + 1) * self.length
        return first, np.concatenate([[begin], inner, [end]])


def with_slots(
    keys: Keys, weights: np.ndarray | None, slots: Ints, came: Bools
) -> tuple[Keys, np.ndarray | None]:
    """Keys and weights of a chunk's cells, and one more key with weight 1 in the first column for each row
    that ``came`` (was inserted).
    """
    more = (slots[came] + _ANCHOR_KEY).astype(np.uint64)
    joined = np.concatenate([keys, more])
    if weights is None:
        return joined, None
    ones = np.zeros((more.size, weights.shape[1]), dtype=np.int64)
    ones[:, 0] = 1
    return joined, np.concatenate([weights, ones])


def without_slots(counts: Any) -> tuple[Any, Histogram]:
    """The cells of a histogram, and its slots. Private."""
    if isinstance(counts, CoarseFirst):
        coarse, slots = without_slots(counts.coarse)
        return counts.with_coarse(coarse), slots
    border = int(np.searchsorted(counts.keys, np.uint64(_FIRST_KEY)))
    return (
        Histogram(counts.keys[:border], counts.weights[:border]),
        Histogram(counts.keys[border:], counts.weights[border:]),
    )


@dataclass(frozen=True, eq=False)
class SlotShares:
    """How the events of one window spread over its slots, by released numbers."""

    edges: Ints
    shares: Floats  # sum to 1

    @classmethod
    def of(cls, edges: Ints, totals: Floats) -> SlotShares:
        """In proportion to ``totals``; to the slots' lengths where there is nothing."""
        weight = np.maximum(totals, 0.0)
        if weight.sum() <= 0:
            weight = np.diff(edges).astype(np.float64)
        return cls(edges, weight / weight.sum())


@dataclass(frozen=True, eq=False)
class Usual:
    """What earlier windows of one kind say about the next: mean noisy totals of slots, the mean square by
    which a window's totals are apart from the usual ones, and the number of windows.
    """

    totals: Floats
    apart: float = 0.0
    windows: int = 0

    def combined(self, noisy: Floats, variance: float) -> tuple[Floats, Usual]:
        """A window's noisy totals, shrunk, and what is usual after it."""
        shape = SlotShares.of(np.arange(noisy.size + 1), self.totals).shares
        # As many events as fit the usual shape best: the sum of all slots has the noise of all.
        expected = max(float(noisy @ shape / (shape @ shape)), 0.0) * shape
        rate = max(1 / (self.windows + 1), _RATE)
        free = max(noisy.size - 1, 1)
        apart = self.apart + rate * (float(((noisy - expected) ** 2).sum()) / free - self.apart)
        seen = free / rate
        gain = 1 - min(variance * max(seen - 2, 0.0) / seen / max(apart, 1e-9), 1.0)
        before = self.totals if self.windows else noisy
        usual = Usual(before + rate * (noisy - before), apart, self.windows + 1)
        return np.asarray(expected + gain * (noisy - expected)), usual


class SlotTotals:
    """The released slots of the windows that a stream holds, and the usual shares of slots in a window.

    A window's noisy totals are shrunk towards the usual ones of windows that begin at the same time of day,
    at first towards equal ones, by James and Stein's estimator over the windows so far: fully where totals
    differ from the usual ones by noise alone, hardly where windows are unlike each other.
    """

    def __init__(self, length: int, budget: PrivacyBudget, noise: Noise) -> None:
        self.length, self.noise = length, noise
        self.scale = laplace_scale(budget)
        self.held: dict[int, SlotShares] = {}  # by step
        self.usual: dict[str, Usual] = {}  # by time of day and number of slots

    def advanced(
        self,
        counts: Histogram,
        slots: TimeSlots,
        *,
        step: int,
        window: tuple[int, int],
        time_of_day: str,
        lifetime: int,
    ) -> Self:
        """The totals after one more window, whose exact slots are ``counts``. Draws noise."""
        first, edges = slots.edges(window)
        place = counts.keys.astype(np.int64) - _ANCHOR_KEY - first
        exact = np.zeros(edges.size - 1, dtype=np.int64)
        exact[place] = counts.weights[:, 0]
        noisy = (exact + self.noise.discrete_laplace(self.scale, exact.size)).astype(np.float64)
        twin = copy(self)
        kind = f"{time_of_day} {noisy.size}"
        usual = self.usual.get(kind, Usual(np.ones(noisy.size)))
        estimate, usual = usual.combined(noisy, laplace_variance(self.scale))
        shares = SlotShares.of(edges, estimate)
        twin.usual = {**self.usual, kind: usual}
        twin.held = {s: found for s, found in self.held.items() if s > step - lifetime} | {step: shares}
        return twin

    def to_state(self) -> tuple[dict[str, Any], Arrays]:
        """Plain values and arrays. Nothing here is private."""
        arrays: Arrays = {}
        for i, found in enumerate(self.held.values()):
            arrays |= {f"edges/{i}": found.edges, f"shares/{i}": found.shares}
        arrays |= {f"usual/{i}": usual.totals for i, usual in enumerate(self.usual.values())}
        usual = [[kind, usual.apart, usual.windows] for kind, usual in self.usual.items()]
        return {"steps": list(self.held), "usual": usual}, arrays

    def restored(self, own: dict[str, Any], arrays: Arrays) -> Self:
        """The totals that ``to_state`` wrote."""
        twin = copy(self)
        twin.held = {
            int(step): SlotShares(arrays[f"edges/{i}"], arrays[f"shares/{i}"])
            for i, step in enumerate(own["steps"])
        }
        twin.usual = {
            kind: Usual(arrays[f"usual/{i}"], float(apart), int(windows))
            for i, (kind, apart, windows) in enumerate(own["usual"])
        }
        return twin

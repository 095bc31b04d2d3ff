"""What all counter banks share: slots, local clocks, growth, erasure, saved state.

A bank counts many streams at once. Slot i of every array is one counter; one ``step`` call moves any subset
of the slots on by one, each by its own clock. What a counter puts out is always *true sum so far + noise so
far*, where the noise is a sum of independent draws with coefficients that depend on the clock alone. A family
of counters only says how that noise moves from t - 1 to t (``_advance``), how large it is (``variance``) and
what an event pays (``event_cost``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import copy
from typing import Any, ClassVar, Self

import numpy as np

from synthgeo import validate
from synthgeo.arrays import Floats, Ints
from synthgeo.errors import ConfigError, InputError, StateError
from synthgeo.privacy.noise import MAX_SCALE, Noise

MAX_HORIZON = 2**40
MAX_GRID_BITS = 30
# Scales are rounded up by this much, so that rounding in `levels * step / epsilon` never costs a bit of ε.
ROUND_UP = 1 + 2.0**-50


class CounterBank(ABC):
    """Many private counters of one kind, stepped together. Build one with ``make_bank``."""

    kind: ClassVar[str]
    needs_horizon: ClassVar[bool] = False
    # Arrays whose first axis gets longer as the clock goes on.
    _growing: ClassVar[tuple[str, ...]] = ()

    def __init__(self, *, noise: Noise, horizon: int | None, grid_bits: int) -> None:
        self.noise = validate.instance(noise, "noise", Noise)  # type: ignore[type-abstract]
        self.horizon = (
            None if horizon is None else validate.whole(horizon, "horizon", low=1, high=MAX_HORIZON)
        )
        self.grid_bits = validate.whole(grid_bits, "grid_bits", low=0, high=MAX_GRID_BITS)
        self._used = 0  # slots ever handed out; the arrays may be longer
        self._free: Ints = np.empty(0, dtype=np.int64)
        self._arrays: dict[str, Ints] = {
            "clock": np.empty(0, dtype=np.int64),
            "total": np.empty(0, dtype=np.int64),
            "noise": np.empty(0, dtype=np.int64),
        }

    @property
    def size(self) -> int:
        """How many counters are alive."""
        return self._used - self._free.size

    @property
    def clock(self) -> Ints:
        """Local time of each slot: how many values it was fed; -1 for a slot that was dropped."""
        return self._arrays["clock"][: self._used].copy()

    def add(self, count: int) -> Ints:
        """Start ``count`` counters at local time 0 and return their slots. Dropped slots are used again."""
        count = validate.whole(count, "count", low=0, high=2**40)
        reused, free = np.split(self._free, [min(count, self._free.size)])
        used = self._used + count - reused.size
        self._grow(used)
        slots = np.concatenate([reused, np.arange(self._used, used, dtype=np.int64)])
        self._used, self._free = used, free
        self._arrays["clock"][slots] = 0
        return slots

    def step(self, slots: Any, values: Any) -> Ints:
        """Feed one value to each of ``slots`` and return their noisy sums so far.

        Values are whole grid steps (int64), one for each slot. Noise is drawn for these slots only.
        """
        slots = self._check_slots(slots)
        values = np.asarray(values)
        if slots.size == 0 and values.size == 0:
            return np.empty(0, dtype=np.int64)
        if values.dtype.kind not in "iu" or values.shape != slots.shape:
            raise InputError(
                f"values must be whole numbers, one for each of {slots.size} slots; "
                f"got {values.dtype} of shape {values.shape}"
            )
        clock = self._arrays["clock"]
        time = clock.take(slots) + 1
        noisy = self._advance(slots, time, values.astype(np.int64, copy=False))
        clock[slots] = time
        return noisy

    def drop(self, slots: Any) -> None:
        """Forget these counters: sums and noise are overwritten, and the slots may be used again."""
        slots = self._check_slots(slots)
        for array in self._arrays.values():
            array[..., slots] = 0
        self._arrays["clock"][slots] = -1
        self._free = np.concatenate([self._free, slots])

    def copy(self) -> Self:
        """An independent bank in the same state, with the same source of noise."""
        twin = copy(self)
        arrays = {name: array.copy() for name, array in self._arrays.items()}
        twin._arrays = arrays  # noqa: SLF001 - a copy of itself
        return twin

    @abstractmethod
    def variance(self, time: Any) -> Floats:
        """Variance of the noisy sum at local time ``time`` (0, 1, 2, ...; an array works), in closed form."""

    @abstractmethod
    def event_cost(self, horizon: int) -> Floats:
        """What an event at local time 1, 2, ..., ``horizon`` pays at most, past the bank's horizon too.

        For Laplace noise that is the sum of (one event) / scale over the noisy sums that hold it.
        """

    @abstractmethod
    def _advance(self, slots: Ints, time: Ints, values: Ints) -> Ints:
        """Move ``slots`` to local time ``time``; their noisy sums. Draws noise before it changes anything."""

    def _add(self, slots: Ints, values: Ints, change: Ints) -> Ints:
        """Add values to the true sums and ``change`` to the noise; the noisy sums."""
        total = self._arrays["total"].take(slots)  # twice as fast as indexing
        total += values
        noise = self._arrays["noise"].take(slots)
        noise += change
        self._arrays["total"][slots] = total
        self._arrays["noise"][slots] = noise
        total += noise
        return total

    @abstractmethod
    def _parameters(self) -> dict[str, Any]:
        """The keyword arguments, beyond noise, horizon and grid_bits, that make an equal empty bank."""

    def to_state(self) -> tuple[dict[str, Any], dict[str, Ints]]:
        """Plain values and arrays from which ``bank_from_state`` goes on bit for bit. Holds private sums.

        The noise source is not part of it: one source feeds many banks, so whoever owns it saves it once.
        """
        values = {
            "kind": self.kind,
            "horizon": self.horizon,
            "grid_bits": self.grid_bits,
            **self._parameters(),
        }
        arrays = {name: array[..., : self._used].copy() for name, array in self._arrays.items()}
        return values, {**arrays, "free": self._free.copy()}

    def restore(self, arrays: dict[str, Ints]) -> None:
        """Take over the arrays that ``to_state`` wrote."""
        expected = {*self._arrays, "free"}
        if set(arrays) != expected:
            raise StateError(f"a {self.kind} bank needs the arrays {sorted(expected)}, got {sorted(arrays)}")
        for name, array in arrays.items():
            if array.dtype != np.int64 or array.ndim != (1 if name == "free" else self._arrays[name].ndim):
                raise StateError(
                    f"array {name!r} of a {self.kind} bank has type {array.dtype} and shape {array.shape}"
                )
        self._used = arrays["clock"].shape[-1]
        for name in self._growing:
            self._grow_rows(name, arrays[name].shape[0])
        for name in self._arrays:
            if arrays[name].shape != (*self._arrays[name].shape[:-1], self._used):
                raise StateError(f"array {name!r} of a {self.kind} bank has shape {arrays[name].shape}")
            self._arrays[name] = arrays[name].copy()
        self._free = arrays["free"].copy()
        if not np.array_equal(np.sort(self._free), np.flatnonzero(self._arrays["clock"] == -1)):
            raise StateError(f"the free slots of a {self.kind} bank do not match its clocks")
        if np.any(self._arrays["clock"] < -1):
            raise StateError(f"a clock of a {self.kind} bank is negative")

    def _grow_rows(self, name: str, rows: int) -> None:
        """Give an array at least ``rows`` rows."""
        array = self._arrays[name]
        if rows > array.shape[0]:
            room = np.zeros((rows - array.shape[0], *array.shape[1:]), dtype=np.int64)
            self._arrays[name] = np.concatenate([array, room])

    def _grow(self, needed: int) -> None:
        capacity = self._arrays["clock"].size
        if needed <= capacity:
            return
        more = max(needed, 2 * capacity) - capacity
        for name, array in self._arrays.items():
            room = np.zeros((*array.shape[:-1], more), dtype=np.int64)
            self._arrays[name] = np.concatenate([array, room], axis=-1)

    def _check_slots(self, named: Any) -> Ints:
        given = np.asarray(named)
        if given.size == 0:
            return np.empty(0, dtype=np.int64)
        if given.dtype.kind not in "iu" or given.ndim != 1:
            raise InputError(
                f"slots must be a list of whole numbers, got {given.dtype} of shape {given.shape}"
            )
        slots: Ints = given.astype(np.int64, copy=False)
        if slots.min() < 0 or slots.max() >= self._used or np.any(self._arrays["clock"][slots] < 0):
            raise InputError("slots names a counter that does not exist (never added, or dropped)")
        seen = np.zeros(self._used, dtype=bool)
        seen[slots] = True
        if np.count_nonzero(seen) != slots.size:
            raise InputError("slots names a counter twice")
        return slots

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={value!r}" for name, value in self._parameters().items())
        return f"<{self.kind} bank of {self.size} counters: {inside}, horizon={self.horizon}>"


class LaplaceBank(CounterBank):
    """A bank whose draws are discrete Laplace: pure ε for each event."""

    def __init__(
        self, *, epsilon: float, noise: Noise, horizon: int | None = None, grid_bits: int = 0
    ) -> None:
        super().__init__(noise=noise, horizon=horizon, grid_bits=grid_bits)
        self.epsilon = validate.positive(epsilon, "epsilon")

    def scale_for(self, levels: int) -> float:
        """The scale at which an event that is in ``levels`` noisy sums pays ε in all."""
        scale = levels * 2.0**self.grid_bits / self.epsilon * ROUND_UP
        if scale > MAX_SCALE:
            raise ConfigError(f"epsilon={self.epsilon} is too small for a grid of 2^-{self.grid_bits}")
        return scale

    def _cost_of(self, levels: int) -> float:
        return 2.0**self.grid_bits / self.scale_for(levels)

    def _parameters(self) -> dict[str, Any]:
        return {"epsilon": self.epsilon}


def need_horizon(horizon: int | None, kind: str) -> int:
    """The horizon of a counter that cannot do without one."""
    if horizon is None:
        raise ConfigError(f"a {kind} counter needs a horizon: how many steps are expected")
    return validate.whole(horizon, "horizon", low=1, high=MAX_HORIZON)


def check_times(time: Any) -> Ints:
    """Local times >= 0 as an int64 array."""
    times = np.asarray(time)
    if times.dtype.kind not in "iu" or np.any(times < 0):
        raise ConfigError("times must be whole numbers >= 0")
    return times.astype(np.int64)

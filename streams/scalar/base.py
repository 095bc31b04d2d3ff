"""What every mechanism for a scalar series shares: the guarantee's label, reading values, saving and loading.

**Sensitivity on the grid.** A mechanism works on integers: value v becomes floor(v * 2^bits). If one unit
changes v by at most Δ, the two floors differ by less than Δ 2^bits + 1 and by a whole number, so by at most
ceil(Δ 2^bits) steps: that is the sensitivity that every noise scale here is computed from. For counts (bits =
0, whole Δ) rounding adds nothing. (Rounding to nearest would not do: ties to even can pull two values that
differ by one step two steps apart.) The bound is for *one* number: Δ in L1 over d numbers, rounded one by
one, is up to ceil(Δ 2^bits) + d - 1 steps, since they may all cross a step (``streams.scalar.window``).
"""

from __future__ import annotations

import copy
import math
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any, ClassVar, Literal, Self, get_type_hints

import numpy as np

from synthgeo import codec, validate
from synthgeo.arrays import Bools, Floats, Ints
from synthgeo.errors import BudgetExhausted, ConfigError, InputError, StateError
from synthgeo.parameters import Parameters
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.noise import FixedPoint, Noise, SystemNoise
from synthgeo.privacy.unit import PrivacyUnit
from synthgeo.release import provenance
from synthgeo.state import MALFORMED, load_state, save_state

Arrays = dict[str, np.ndarray]
Missing = Literal["refuse", "public"]
MISSING: tuple[Missing, ...] = ("refuse", "public")

# Grid steps stay exact in a double, and a product with a 2^20 weight stays far inside Python's cheap
# integers.
MAX_STEPS = 2**52

# As tuples: building a union of types at every update would cost more than the filter does.
_NUMBERS = (int, float, np.integer, np.floating)
_TRUTHS = (bool, np.bool_)


@dataclass(frozen=True)
class Guarantee:
    """What a mechanism promises, in four words and a sentence.

    >>> print(Guarantee("event", "pure", "central", "one event").describe())
    event-level, pure, central: one event
    """

    level: Literal["user", "event", "w-event", "sequence"]
    kind: Literal["pure", "approximate"]
    model: Literal["central", "local"]
    protects: str

    def describe(self) -> str:
        """The promise in one line."""
        level = self.level if self.level == "w-event" else f"{self.level}-level"
        return f"{level}, {self.kind}, {self.model}: {self.protects}"


class SeriesMechanism(Parameters, ABC):
    """A mechanism with a budget, a noise source and a state that can be saved.

    Subclasses keep each argument of their constructor under its own name, checked and with defaults filled
    in: provenance and saved states are made from that.
    """

    VERSION: ClassVar[int] = 4
    online: ClassVar[bool] = True

    def __init__(self, budget: PrivacyBudget, noise: Noise | None) -> None:
        self.budget = validate.instance(budget, "budget", PrivacyBudget)
        if noise is not None and not isinstance(noise, Noise):
            raise validate.refuse("noise", "SystemNoise() or SeededNoise(seed)", noise)
        self.noise: Noise = SystemNoise() if noise is None else noise
        self.step = 0

    @property
    @abstractmethod
    def guarantee(self) -> Guarantee:
        """Level, kind and model of the promise."""

    @property
    @abstractmethod
    def spent(self) -> PrivacyBudget | None:
        """What has been spent so far; None before the first release."""

    @property
    def unit(self) -> PrivacyUnit:
        """The unit of protection; for w-event and sequence privacy ``guarantee`` says it better."""
        return PrivacyUnit.event()

    def rehearse(self, value: Any) -> None:
        """Refuse what ``update`` would refuse, before anything is spent: a copy takes the value, and what it
        releases is thrown away unseen.
        """
        copy.deepcopy(self).update(value)

    @abstractmethod
    def update(self, value: Any) -> Any:
        """Release the next value."""

    @property
    def releasable(self) -> bool:
        """Whether what this releases may be published (the operating system's noise)."""
        return self.noise.releasable

    def provenance(self) -> dict[str, Any]:
        """The statement that goes with a release: public facts only."""
        settings = {name: plain(getattr(self, name)) for name in self._settings()}
        statement = provenance(
            mechanism=type(self).__name__,
            unit=self.unit,
            budget=self.budget,
            noise=self.noise,
            guarantee=asdict(self.guarantee),
            parameters=settings,
            steps=self.step,
        )
        statement["unit"] = self.guarantee.protects
        return statement

    @abstractmethod
    def run(self, series: Iterable[float]) -> Floats:
        """Release a whole series, or the next part of one."""

    def _settings(self) -> tuple[str, ...]:
        """The names of the constructor's arguments apart from budget and noise."""
        return tuple(name for name in self.parameter_names() if name not in ("budget", "noise"))

    def _in_use(self) -> bool:
        return self.step > 0

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        """What changes from step to step, apart from ``step``."""
        return {}, {}

    def _restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        """Take back what ``_state`` gave."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state to a file (mode 0600: it may hold private values)."""
        values, arrays = self._state()
        given = {name: _written(self._given[name]) for name in self._settings() if name in self._given}
        header = {
            "budget": self.budget.to_dict(),
            "config": given,
            "noise": self.noise.state(),
            "step": self.step,
            "state": values,
        }
        save_state(path, f"series.{type(self).__name__}", self.VERSION, header, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what ``save`` wrote; under seeded noise it goes on bit for bit."""
        values, arrays = load_state(path, f"series.{cls.__name__}", cls.VERSION)
        try:
            noise = Noise.from_state(values["noise"])
            hints = get_type_hints(cls.__init__)
            given = {name: codec.load(hints[name], value) for name, value in values["config"].items()}
            mechanism = cls(budget=PrivacyBudget(**values["budget"]), noise=noise, **given)
            mechanism.step = int(values["step"])
            mechanism._restore(values["state"], arrays)
        except MALFORMED as problem:
            raise StateError(f"{path}: damaged ({type(problem).__name__})") from problem
        return mechanism


def _written(value: Any) -> Any:
    """An argument of a constructor as a state holds it."""
    return codec.dump(value)[0] if is_dataclass(value) and not isinstance(value, type) else plain(value)


def plain(value: Any) -> Any:
    """A setting as JSON has it."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


class NumericMechanism(SeriesMechanism):
    """A central mechanism over numbers on a grid. Subclasses say how one value is released.

    ``sensitivity`` bounds what one unit can change one value by. ``grid_bits`` = 0 takes whole numbers; with
    b > 0 real values are rounded down to multiples of 2^-b. Negative values are values like any other (net
    flows); ``nonnegative`` clips what is released at 0, which is post-processing. A NaN is refused, or with
    ``missing="public"`` taken as a gap that everybody may know of: the mechanism releases its prediction and
    spends nothing.
    """

    def __init__(
        self,
        budget: PrivacyBudget,
        sensitivity: float,
        grid_bits: int,
        missing: Missing,
        nonnegative: bool,
        noise: Noise | None,
    ) -> None:
        super().__init__(budget, noise)
        self.sensitivity = validate.positive(sensitivity, "sensitivity")
        self.grid_bits = validate.whole(grid_bits, "grid_bits", low=0, high=30)
        self.missing: Missing = validate.one_of(missing, "missing", MISSING)
        self.nonnegative = validate.flag(nonnegative, "nonnegative")
        self.grid = FixedPoint(self.grid_bits)
        self._step_sensitivity = math.ceil(self.sensitivity * self.grid.one)  # see the module's docstring
        self._last = math.nan
        self._queries = 0

    @abstractmethod
    def _release(self, steps: int) -> float:
        """Release one value given in grid steps; draws noise and changes the state."""

    def _gap(self) -> float:
        """What is released at a public gap: by default the last release."""
        return self._last

    def _check(self, steps: Any) -> None:
        """Raise ``InputError`` if values (one or an array, in grid steps) are none that are taken."""

    def _require(self, queries: int, steps: int) -> None:
        """Raise ``BudgetExhausted`` if ``steps`` more, ``queries`` of them no gaps, are too many."""

    def update(self, value: float) -> float:
        """Release the next value. ``math.nan`` is a gap (see ``missing``)."""
        if isinstance(value, _TRUTHS) or not isinstance(value, _NUMBERS):
            raise InputError(f"value at step {self.step}: not a number")
        number = float(value)
        if number != number:
            if self.missing == "refuse":
                raise InputError(
                    f'value at step {self.step} is missing; missing="public" takes it as a public gap'
                )
            return self._done(self._gap())
        if math.isinf(number):
            raise InputError(f"value at step {self.step} is infinite")
        scaled = number * self.grid.one
        steps = math.floor(scaled)
        if self.grid.bits == 0 and steps != scaled:
            raise InputError(f"value at step {self.step} is not a whole number; grid_bits= takes real values")
        if abs(steps) > MAX_STEPS:
            raise InputError(f"value at step {self.step} is too large for a grid of 2^-{self.grid.bits}")
        self._check(steps)
        self._require(1, 1)
        return self._done(self._release(steps))

    def run(self, series: Iterable[float]) -> Floats:
        """Release the next ``len(series)`` values. Everything is checked before anything is spent."""
        steps, gap = self._read(series)
        self._require(int(np.count_nonzero(~gap)), gap.size)
        out = np.empty(steps.size)
        for i, (step, is_gap) in enumerate(zip(steps.tolist(), gap.tolist(), strict=True)):
            out[i] = self._done(self._gap() if is_gap else self._release(step))
        return out

    def _done(self, released: float) -> float:
        self._last = released
        self.step += 1
        return max(released, 0.0) if self.nonnegative else released

    def _read(self, series: Any) -> tuple[Ints, Bools]:
        """Grid steps and the mask of public gaps of a whole series."""
        return self._to_grid(read_series(series))

    def _to_grid(self, values: Floats) -> tuple[Ints, Bools]:
        """Grid steps and the mask of public gaps of values, or of rows of values."""
        gap = _any(np.isnan(values))
        _refuse_row(_any(np.isinf(values)), "is infinite")
        if self.missing == "refuse":
            _refuse_row(gap, 'is missing; missing="public" takes it as a public gap')
        scaled = np.where(np.isnan(values), 0.0, values) * self.grid.one
        floors = np.floor(scaled)
        if self.grid.bits == 0:
            _refuse_row(_any(floors != scaled), "is not a whole number; grid_bits= takes real values")
        too_large = _any(np.abs(floors) > MAX_STEPS)
        _refuse_row(too_large, f"is too large for a grid of 2^-{self.grid.bits}")
        self._check(floors)
        return floors.astype(np.int64), gap

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        return {"queries": self._queries}, {"last": np.array([self._last])}

    def _restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        self._queries = int(values["queries"])
        self._last = float(arrays["last"][0])


class OfflineMechanism(NumericMechanism):
    """A mechanism that needs the whole series at once and releases it once."""

    online: ClassVar[bool] = False

    def _release(self, steps: int) -> float:  # noqa: ARG002 - one shape for all
        raise ConfigError(f"{type(self).__name__} needs the whole series: call run(series)")

    def update(self, value: float) -> float:  # noqa: ARG002 - one shape for all
        """Refused: the method is offline. Use ``run``."""
        raise ConfigError(f"{type(self).__name__} needs the whole series: call run(series)")

    def run(self, series: Iterable[float]) -> Floats:
        """Release a whole series, once. Everything is checked before anything is spent."""
        if self._queries:
            raise BudgetExhausted(
                f"this {type(self).__name__} has released its series; make a new one to spend again"
            )
        steps, gap = self._read(series)
        if gap.any():
            steps = fill_gaps(steps, gap)
        if steps.size == 0:
            return np.empty(0)
        out = self._release_all(steps)
        self._queries = 1
        self.step = steps.size
        return np.maximum(out, 0.0) if self.nonnegative else out

    @abstractmethod
    def _release_all(self, steps: Ints) -> Floats:
        """Release a series in grid steps."""

    @property
    def spent(self) -> PrivacyBudget | None:
        """All of the budget once the series is released."""
        return self.budget if self._queries else None


def _any(mask: Bools) -> Bools:
    """Which values, or rows with such a value."""
    return mask if mask.ndim == 1 else np.asarray(mask.any(axis=1))


def _refuse_row(bad: Bools, why: str) -> None:
    if bad.any():
        raise InputError(f"value at row {int(np.argmax(bad))} {why}")


def fill_gaps(steps: Ints, gap: Bools) -> Ints:
    """Set public gaps to 0: the same constant in both of two neighbouring series, so no change in
    sensitivity.
    """
    return np.where(gap, 0, steps).astype(np.int64)


def read_series(series: Any) -> Floats:
    """A one-dimensional series of numbers as floats; None and NA become NaN."""
    values = _numbers(series)
    if values.ndim != 1:
        raise InputError(f"a series has one dimension, got {values.ndim}")
    return values


def read_rows(series: Any, columns: int) -> Floats:
    """A series of vectors, one a row, as floats; None and NA become NaN."""
    values = _numbers(series)
    if values.size == 0:
        return np.empty((0, columns))
    if values.ndim != 2 or values.shape[1] != columns:
        raise InputError(f"a series of vectors has {columns} numbers per row, got shape {values.shape}")
    return values


def _numbers(series: Any) -> Floats:
    if isinstance(series, str | bytes):
        raise InputError("a series is a sequence of numbers, got text")
    if hasattr(series, "to_numpy"):
        try:
            values = series.to_numpy(dtype=np.float64, na_value=np.nan)
        except (TypeError, ValueError):
            values = series.to_numpy()
    else:
        if not isinstance(series, Iterable):
            raise InputError(f"a series is a sequence of numbers, got one {type(series).__name__}")
        values = np.asarray(series if hasattr(series, "__len__") else list(series))
    if values.dtype.kind == "O":
        flat = [np.nan if v is None else v for v in values.ravel()]
        for place, v in enumerate(flat):
            row = place * len(values) // values.size
            if isinstance(v, bool) or not isinstance(v, _NUMBERS):
                raise InputError(f"value at row {row} is not a number")
            if isinstance(v, int) and abs(v) > sys.float_info.max:
                raise InputError(f"value at row {row} is larger than any number that is released")
        values = np.array(flat, dtype=np.float64).reshape(values.shape)
    elif values.dtype.kind not in "iuf" and values.size:
        raise InputError(f"a series holds numbers, got {values.dtype}")
    return np.array(values, dtype=np.float64)


def need_pure(budget: PrivacyBudget, name: str) -> None:
    """Refuse a δ that the mechanism cannot use."""
    if isinstance(budget, PrivacyBudget) and not budget.is_pure:
        raise ConfigError(f"{name} gives pure ε: its budget has no use for a delta, got {budget}")


def need_delta(budget: PrivacyBudget, name: str) -> None:
    """Refuse a pure budget where the mechanism cannot keep one."""
    if isinstance(budget, PrivacyBudget) and budget.is_pure:
        raise ConfigError(f"{name} gives (ε, δ): its budget needs a delta > 0, got {budget}")

"""The private heart of a stream: what a mechanism is, and what an event may spend in it.

A mechanism takes the exact counts of one batch after the other, adds noise, and keeps what it has released.
It never sees a row, a file or a ledger; the driver (``streams.stream.Stream``) never knows what a cell or a
marginal is. So the privacy of a mechanism can be checked in its own file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import numpy as np

from synthgeo import validate
from synthgeo.errors import ConfigError
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.noise import MAX_SCALE, Noise, SystemNoise
from synthgeo.privacy.unit import PrivacyUnit

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class EventBudget:
    """What one event may spend: a positive part for the structure, a positive part for the counts, and
    before these, where asked for, one for the time inside its window (``streams.slots``).

    The parts come from ``PrivacyBudget.split``, so no choice of ``structure_share`` makes one negative or
    lets them sum to more than the whole. A mechanism that needs finer parts splits these further.

    >>> event = EventBudget.of(PrivacyBudget(2.0), PrivacyUnit.user(max_events=4), structure_share=0.25)
    >>> event.structure.epsilon, event.counts.epsilon
    (0.125, 0.375)
    """

    budget: PrivacyBudget
    unit: PrivacyUnit
    structure_share: float
    times_share: float = 0.0
    each: PrivacyBudget = field(init=False)  # all of it
    times: PrivacyBudget | None = field(init=False)
    whole: PrivacyBudget = field(init=False)  # of the mechanism: structure and counts
    structure: PrivacyBudget = field(init=False)
    counts: PrivacyBudget = field(init=False)

    @classmethod
    def of(cls, budget: Any, unit: Any, structure_share: Any, *, times_share: Any = 0.0) -> Self:
        """Check what a user gave; the unit is one event where none is given."""
        validate.instance(budget, "budget", PrivacyBudget)
        if not budget.is_pure:
            raise ConfigError("streams run under pure differential privacy: give a budget with delta=0")
        unit = PrivacyUnit.event() if unit is None else validate.instance(unit, "unit", PrivacyUnit)
        if unit.of != "event":
            raise ConfigError("a stream protects events, or users with a bound on their events")
        if times_share:
            validate.share(times_share, "times_share")
        return cls(budget, unit, validate.share(structure_share, "structure_share"), times_share)

    def __post_init__(self) -> None:
        each = self.budget / self.unit.max_contributions
        times, whole = None, each
        if self.times_share:
            times, whole = each.split((self.times_share, 1 - self.times_share))
        structure, counts = whole.split((self.structure_share, 1 - self.structure_share))
        parts = {"each": each, "times": times, "whole": whole, "structure": structure, "counts": counts}
        for name, part in parts.items():
            object.__setattr__(self, name, part)


def laplace_scale(part: PrivacyBudget) -> float:
    """The noise scale at which an event pays ``part`` for one count; refused where no noise is so large."""
    scale = 1 / part.epsilon
    if scale > MAX_SCALE:
        raise ConfigError(f"ε = {part.epsilon:g} for one count is too small: its noise would exceed 2^40")
    return scale


def check_noise(noise: Any) -> Noise:
    """The source of noise, the operating system's where none is given."""
    return SystemNoise() if noise is None else validate.instance(noise, "noise", Noise)  # type: ignore[type-abstract]


class Mechanism(Protocol):
    """Moves on by the exact counts of one batch; the only place where noise meets them.

    A mechanism is changed by ``advance`` alone, and the driver advances a ``copy``: a step that is
    interrupted leaves the mechanism of the last step, and the noise it drew is thrown away unseen.
    """

    name: ClassVar[str]  # in the statement that goes with a release
    is_private: ClassVar[bool]  # False: a baseline without a guarantee

    def advance(self, counts: Any, *, step: int, structure: bool) -> None:
        """Spend. ``structure`` says whether the schedule asks for a new structure at this step (from 1)."""
        ...

    def paid(self) -> tuple[float, float]:
        """What an event of the last step pays at most over its life: for structure, and for counts."""
        ...

    def snapshot(self) -> Any:
        """What a release may know: released numbers and public facts, nothing private."""
        ...

    def facts(self) -> dict[str, Any]:
        """Public settings for the statement that goes with a release."""
        ...

    def settings(self) -> dict[str, Any]:
        """What was chosen, as plain values."""
        ...

    def copy(self) -> Self:
        """An independent mechanism in the same state, with the same source of noise."""
        ...

    def to_state(self) -> tuple[dict[str, Any], Arrays]:
        """What steps change, as plain values and arrays from which ``restore`` goes on bit for bit.

        Holds private sums.
        """
        ...

    def restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        """Take over what ``to_state`` wrote, from values and arrays that may hold more."""
        ...


@runtime_checkable
class Seasonal(Protocol):
    """A mechanism that learns from earlier windows of the same hour or weekday."""

    def enter(self, seasons: tuple[str, ...]) -> None:
        """Be told what kinds of windows the next batch is of (``streams.borrow.seasons_of``). Public."""
        ...


def prefixed(name: str, arrays: Arrays) -> Arrays:
    """The arrays of a part, named for the whole's state."""
    return {f"{name}/{key}": array for key, array in arrays.items()}


def part_of(name: str, arrays: Mapping[str, np.ndarray]) -> Arrays:
    """The inverse of ``prefixed``."""
    return {key[len(name) + 1 :]: array for key, array in arrays.items() if key.startswith(f"{name}/")}


__all__ = [
    "Arrays",
    "EventBudget",
    "Mechanism",
    "Seasonal",
    "check_noise",
    "laplace_scale",
    "part_of",
    "prefixed",
]

"""When a stream looks for a new structure (a tree's leaves, a table's marginals).

Looking costs a share of the ε of the events of that very step, so it should be rare; not looking leaves the
structure behind the data. A schedule decides at step t from the step's number and from what was released up
to t - 1, never from private data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

from synthgeo.errors import ConfigError, StateError


class Schedule(Protocol):
    """Decides before each step whether the structure is looked for again.

    Between those steps a product may also move its structure by what it has released so far (``adapts``),
    which costs nothing.
    """

    @property
    def name(self) -> str:
        """Its name in provenance and saved states."""
        ...

    @property
    def adapts(self) -> bool:
        """Whether the structure also follows the released counts between structure steps."""
        ...

    def due(self, step: int, last: int) -> bool:
        """Whether ``step`` (from 1) is a structure step; ``last`` is the last one (0: none yet)."""
        ...

    def to_state(self) -> dict[str, Any]:
        """Plain values from which ``schedule_from_state`` rebuilds the schedule."""
        ...


@dataclass(frozen=True)
class EveryStep:
    """A new structure at every step, as in the papers."""

    name: str = "every_step"
    adapts: bool = False

    def due(self, step: int, last: int) -> bool:  # noqa: ARG002
        return True

    def to_state(self) -> dict[str, Any]:
        return {"name": self.name}


@dataclass(frozen=True)
class Once:
    """A structure at the first step only."""

    name: str = "once"
    adapts: bool = False

    def due(self, step: int, last: int) -> bool:  # noqa: ARG002
        return last == 0

    def to_state(self) -> dict[str, Any]:
        return {"name": self.name}


@dataclass(frozen=True)
class ReleaseDriven:
    """A structure at the first step; from then on it follows the released counts, at no cost in privacy."""

    name: str = "release_driven"
    adapts: bool = True

    def due(self, step: int, last: int) -> bool:  # noqa: ARG002
        return last == 0

    def to_state(self) -> dict[str, Any]:
        return {"name": self.name}


@dataclass(frozen=True)
class Growing:
    """Often at first, then at intervals that grow by ``factor``.

    With ``factor`` 4/3 the steps are 1, 2, 3, 4, 6, 8, 11, 15, 20, ... The wait never exceeds ``longest``.
    """

    factor: float = 4 / 3
    longest: int = 10**9
    name: str = "growing"
    adapts: bool = False

    def __post_init__(self) -> None:
        if not self.factor > 1 or self.longest < 1:
            raise ConfigError("a growing schedule needs factor > 1 and longest >= 1")

    def due(self, step: int, last: int) -> bool:
        wait = min(self.longest, max(1, math.floor(last * self.factor + 0.5) - last))
        return last == 0 or step - last >= wait

    def to_state(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "factor": self.factor,
            "longest": self.longest,
            "adapts": self.adapts,
        }


_NAMED: dict[str, Schedule] = {s.name: s for s in (EveryStep(), Once(), ReleaseDriven(), Growing())}


def make_schedule(schedule: str | Schedule, *, auto: Schedule) -> Schedule:
    """A schedule from its name; ``auto`` is what ``"auto"`` means for the calling product."""
    if isinstance(schedule, str):
        if schedule != "auto" and schedule not in _NAMED:
            raise ConfigError(
                f"schedule must be one of {sorted(['auto', *_NAMED])} or a Schedule, got {schedule!r}"
            )
        return auto if schedule == "auto" else _NAMED[schedule]
    if not callable(getattr(schedule, "due", None)):
        raise ConfigError(
            f"schedule must be one of {sorted(['auto', *_NAMED])} or a Schedule, got {schedule!r}"
        )
    return schedule


def schedule_from_state(state: dict[str, Any]) -> Schedule:
    """The schedule that ``to_state`` described."""
    name = state.get("name")
    if name == "growing":
        return Growing(**state)
    if name not in _NAMED:
        raise StateError(f"unknown schedule {name!r} in the saved state")
    return _NAMED[name]

"""Who is protected: one event, one trajectory, or everything a user contributes.

Neighbours are add/remove throughout: two inputs are neighbours when one holds exactly one unit more than the
other. For streams, an event is one insertion or one deletion at one time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from synthgeo import validate
from synthgeo.errors import ConfigError

Kind = Literal["event", "trajectory", "user"]


@dataclass(frozen=True)
class PrivacyUnit:
    """What two neighbouring inputs differ in. Build one with ``event``, ``trajectory`` or ``user``."""

    kind: Kind
    max_contributions: int = 1
    key: str | None = None
    of: Literal["event", "trajectory"] = "event"

    @classmethod
    def event(cls) -> PrivacyUnit:
        """One insertion or deletion of one record at one time."""
        return cls("event")

    @classmethod
    def trajectory(cls) -> PrivacyUnit:
        """One whole trip."""
        return cls("trajectory", of="trajectory")

    @classmethod
    def user(
        cls, *, max_events: int | None = None, max_trajectories: int | None = None, key: str = "user_id"
    ) -> PrivacyUnit:
        """Everything one user contributes over the life of the data, cut to a bound that is enforced.

        Give exactly one of ``max_events`` (points, rows) and ``max_trajectories`` (trips). The mechanism runs
        at ε / bound (pure ε), so the user as a whole gets ε. What is kept of a user depends on that user's
        contributions alone.
        """
        if (max_events is None) == (max_trajectories is None):
            raise ConfigError("give exactly one of max_events and max_trajectories")
        bound = max_events if max_events is not None else max_trajectories
        name = "max_events" if max_events is not None else "max_trajectories"
        bound = validate.whole(bound, name, low=1)
        validate.text(key, "key (the column that identifies a user)")
        return cls("user", bound, key, "event" if max_events is not None else "trajectory")

    @property
    def is_user(self) -> bool:
        """Whether contributions have to be bounded by user."""
        return self.kind == "user"

    def describe(self) -> str:
        """The unit in words, for provenance and reports."""
        if self.kind == "event":
            return "one event (one insertion or deletion)"
        if self.kind == "trajectory":
            return "one whole trajectory"
        thing = "events" if self.of == "event" else "trajectories"
        return f"one user, who contributes at most {self.max_contributions} {thing}"

    def to_dict(self) -> dict[str, object]:
        """Plain values, for provenance and state files."""
        return {
            "kind": self.kind,
            "max_contributions": self.max_contributions,
            "key": self.key,
            "of": self.of,
        }

    @classmethod
    def from_dict(cls, value: dict) -> PrivacyUnit:
        """The unit that ``to_dict`` wrote."""
        return cls(value["kind"], int(value["max_contributions"]), value["key"], value["of"])

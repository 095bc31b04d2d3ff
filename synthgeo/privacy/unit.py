"""Who is protected: one event, one trajectory, or everything a user contributes.

Neighbours are add/remove throughout: two inputs are neighbours when one holds exactly one unit more than the
other. For streams, an event is one insertion or one deletion at one time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from synthgeo import validate
from synthgeo.errors import ConfigError

Kind = Literal["event", "trajectory", "user", "household"]

_CALENDAR = {
    "MS": "calendar month",
    "QS": "calendar quarter",
    "YS": "calendar year",
    "W": "calendar week",
    "D": "day",
    "h": "hour",
}


@dataclass(frozen=True)
class PrivacyUnit:
    """What two neighbouring inputs differ in. Build one with ``event``, ``trajectory``, ``user`` or
    ``household``.
    """

    kind: Kind
    max_contributions: int = 1
    key: str | None = None
    of: Literal["event", "trajectory"] = "event"
    per: int | str | None = None  # a period of so many steps, or of the calendar; None: all time
    unique: bool = False  # whether the key tells events apart, and not users

    @classmethod
    def event(cls, *, unique: str | None = None) -> PrivacyUnit:
        """One insertion or deletion of one record at one time: one row.

        Where a row may come again, in an export that grows or in a second file, name the column whose value
        each event has alone: ``unique="ride_id"``. The unit is then all rows with one value, of which one
        counts over the life of the data; which one depends on these rows alone. It is ``user(max_events=1,
        key="ride_id")`` in other words, and is enforced in the same way. Where events are numbered for each
        user, make one column of user and number.
        """
        if unique is None:
            return cls("event")
        return cls(
            "user", 1, validate.text(unique, "unique (the column that identifies an event)"), unique=True
        )

    @classmethod
    def trajectory(cls) -> PrivacyUnit:
        """One whole trip."""
        return cls("trajectory", of="trajectory")

    @classmethod
    def user(
        cls,
        *,
        max_events: int | None = None,
        max_trajectories: int | None = None,
        per: int | str | None = None,
        key: str = "user_id",
    ) -> PrivacyUnit:
        """Everything one user contributes over the life of the data, cut to a bound that is enforced.

        With ``per`` it is everything the user contributes in one public period of a stream, and the bound
        is for each period: blocks of so many steps (28), or of the calendar that a stream's windows follow
        (``"1MS"`` for months, ``"7D"``). A long stream then does not run out of users, and the promise is a
        smaller one: a stretch of time that touches k periods is protected with k ε.

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
        if isinstance(per, str):
            validate.length_of_time(per, "per")
        elif per is not None:
            per = validate.whole(per, "per", low=1)
        return cls("user", bound, key, "event" if max_events is not None else "trajectory", per)

    @classmethod
    def household(cls, *, max_children: int, key: str = "household_id") -> PrivacyUnit:
        """One row of a parent table with all its rows of the child table, cut to a bound that is enforced."""
        validate.text(key, "key (the column that identifies a household)")
        return cls("household", validate.whole(max_children, "max_children", low=1), key)

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
        if self.kind == "household":
            return f"one household with all its children, of whom at most {self.max_contributions} count"
        if self.unique:
            return f"one event: all rows with one value of {self.key}, of which one counts"
        thing = "events" if self.of == "event" else "trajectories"
        if self.per is None:
            return f"one user, who contributes at most {self.max_contributions} {thing}"
        return (
            f"everything one user does in {self._period_in_words()}, at most {self.max_contributions} "
            f"{thing}; a stretch as long as that touches two such periods and has 2ε, k periods have kε"
        )

    def _period_in_words(self) -> str:
        if isinstance(self.per, int):
            return f"one period of {self.per} steps" if self.per > 1 else "one step"
        length = validate.length_of_time(self.per, "per")
        word = _CALENDAR.get(length.rule_code.partition("-")[0], f"period of {length.rule_code}")
        if length.n == 1:
            return f"one {word}"
        return f"one period of {length.n} {word}s"

    def over_all_time(self) -> PrivacyUnit:
        """This unit, for a release that is made once; ``ConfigError`` where it speaks of periods."""
        if self.per is not None:
            raise ConfigError("per= is for streams: what is released once has no periods")
        return self

    def to_dict(self) -> dict[str, object]:
        """Plain values, for provenance and state files."""
        return {
            "kind": self.kind,
            "max_contributions": self.max_contributions,
            "key": self.key,
            "of": self.of,
            **({} if self.per is None else {"per": self.per}),
            **({"unique": True} if self.unique else {}),
        }

    @classmethod
    def from_dict(cls, value: dict) -> PrivacyUnit:
        """The unit that ``to_dict`` wrote."""
        own = (value["kind"], int(value["max_contributions"]), value["key"], value["of"], value.get("per"))
        return cls(*own, bool(value.get("unique", False)))

"""The pattern of every continual release, written once: check, count exactly, privatise, release.

A stream keeps a *structure* (a tree's leaves, a table's marginals) and a bank of counters on it. At a
structure step the structure is looked for again, privately, and the events of that step pay for both; at
every other step they pay for the counters alone.

Guarantee
---------
Neighbours are two streams that differ in one event. For an event at step τ the loss is

    ε_structure(τ) + sum over the noisy sums v that hold the event of 1 / scale(v)  <=  ε.

Everything else, including which step is a structure step and how the structure moves in between, is computed
from earlier releases. Later releases depend on the event through those noisy numbers alone, because counters
are private under adaptively chosen inputs (see ``streams.counters``). At a structure step of a schedule that
is not ``every_step`` the batch is released once, at scale 1 / (ε - ε_structure), and the standing counters
are not fed: no noisy sum holds both a cheap and a dear event.

With ``PrivacyUnit.user`` a user has at most m events over the life of the stream (enforced by
``ContributionBounder``), ε above is the budget's ε / m, and by group privacy the user as a whole gets the
budget's ε.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from copy import copy
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd

from streams.schedule import Schedule, make_schedule, schedule_from_state
from synthgeo.errors import ConfigError, InputError, StateError
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.contribution import ContributionBounder
from synthgeo.privacy.noise import Noise, SystemNoise
from synthgeo.privacy.unit import PrivacyUnit
from synthgeo.progress import track
from synthgeo.release import Release
from synthgeo.sources import Histogram, KeyFunction, Source, open_source
from synthgeo.state import load_state, save_state

Arrays = dict[str, np.ndarray]


class ContinualStream(ABC):
    """A private stream of batches in, a stream of synthetic datasets out."""

    state_kind: ClassVar[str]
    state_version: ClassVar[int] = 1
    is_private: ClassVar[bool] = True

    def __init__(
        self,
        *,
        budget: PrivacyBudget,
        unit: PrivacyUnit | None,
        schedule: str | Schedule,
        auto: Schedule,
        deletions: bool,
        structure_share: float,
        t0: int,
        noise: Noise | None,
        ledger: Any,
    ) -> None:
        if not isinstance(budget, PrivacyBudget):
            raise ConfigError(f"budget must be a PrivacyBudget, got {budget!r}")
        if not budget.is_pure:
            raise ConfigError("streams run under pure differential privacy: give a budget with delta=0")
        self.budget = budget
        self.unit = PrivacyUnit.event() if unit is None else unit
        if self.unit.of != "event":
            raise ConfigError("a stream protects events, or users with a bound on their events")
        if not 0 < structure_share < 1:
            raise ConfigError(f"structure_share must be between 0 and 1, got {structure_share!r}")
        if isinstance(t0, bool) or not isinstance(t0, int) or t0 < 0:
            raise ConfigError(f"t0 must be a whole number >= 0, got {t0!r}")
        self.schedule = make_schedule(schedule, auto=auto)
        self.structure_share = float(structure_share)
        self.deletions = bool(deletions)
        self.t0 = t0
        self.noise = SystemNoise() if noise is None else noise
        if not isinstance(self.noise, Noise):
            raise ConfigError(f"noise must be a SystemNoise or SeededNoise, got {type(noise).__name__}")
        self.ledger = ledger
        self.step = 0
        self._structure_steps: list[int] = []
        self._released_steps: int = 0
        self._pending: Histogram | None = None
        self._bounder = ContributionBounder(self.unit, deletes=self.deletions) if self.unit.is_user else None

    @property
    def epsilon(self) -> float:
        """What one event may spend: the budget's ε, divided by a user's bound where users are the unit."""
        return self.budget.epsilon / self.unit.max_contributions

    @property
    def spent(self) -> PrivacyBudget | None:
        """What any one unit has spent at most so far; None before the first release."""
        return self.budget if self._released_steps else None

    @property
    def release(self) -> Release:
        """The synthetic dataset as of the last step, drawn anew: post-processing, so it costs nothing.

        Asking changes nothing: the stream goes on as if nobody had looked.
        """
        if not self.step:
            raise ConfigError("this stream has released nothing yet: update it first")
        return self._copy_for_looking()._release()

    def _copy_for_looking(self) -> Self:
        """A copy whose post-processing leaves this stream as it is."""
        twin = copy(self)
        twin.noise = Noise.from_state(self.noise.state())
        return twin

    @property
    def costs(self) -> pd.DataFrame:
        """What an event of each past step paid: for structure, for counts, and in all; never above
        ``epsilon``.
        """
        steps = np.arange(1, self.step + 1)
        # Before t0 nothing is released; those events pay at step t0, with its batch.
        paid_at = np.maximum(steps, self.t0)
        structure = np.isin(paid_at, self._structure_steps) * (self.epsilon * self.structure_share)
        full = self.epsilon - structure
        counts = np.full(steps.size, self.epsilon * (1 - self.structure_share)) if self._always_half else full
        counts = np.where(paid_at <= self.step, counts, 0.0)
        return pd.DataFrame(
            {"step": steps, "structure": structure, "counts": counts, "total": structure + counts}
        )

    @property
    def _always_half(self) -> bool:
        """``every_step`` keeps standing counters at the count share throughout."""
        return self.schedule.name == "every_step"

    def update(self, batch: Any) -> Release:
        """Take the next batch, spend its events' budget, and release the synthetic dataset as of this step.

        A refused batch raises before any noise is drawn, and leaves the stream as it was.
        """
        histogram, admitted = self._count(open_source(batch))
        if self.step == 0 and self.ledger is not None and self.is_private:
            self.ledger.charge(product=self.state_kind, budget=self.budget, unit=self.unit)
        if admitted is not None:
            self._bounder = admitted
        self.step += 1
        if self._pending is not None:
            histogram = _with_deletes(self._pending).merge(_with_deletes(histogram))
        if self.step < self.t0:
            self._pending = histogram
            return self._release()
        self._pending = None
        last = self._structure_steps[-1] if self._structure_steps else 0
        due = self.schedule.due(self.step, last, self._misfit())
        if due:
            self._structure_steps.append(self.step)
        self._released_steps += 1
        self._privatise(histogram, structure=due)
        return self._release()

    def run(
        self,
        data: Any,
        *,
        time: str,
        every: str,
        start: Any = None,
        end: Any = None,
        progress: bool | None = None,
    ) -> Iterator[Release]:
        """Cut timestamped data by a public grid of windows, and release after each; an empty window is a
        step too.
        """
        windows = open_source(data).windows(time=time, every=every, start=start, end=end)
        for when, window in track(windows, label="windows", enabled=progress):
            release = self.update(window)
            release.provenance["window_start"] = when.isoformat()
            release.provenance["window"] = every
            yield release

    def _count(self, source: Source) -> tuple[Histogram, ContributionBounder | None]:
        """Exact counts of one batch, users bounded. Changes nothing; errors name the column and row."""
        key_function, columns, weights = self._key_function(source)
        if self._bounder is None:
            return source.histogram(key_function, columns, weights=weights), None
        assert self.unit.key is not None
        source.require([self.unit.key])
        events = source.user_events(key_function, columns, self.unit.key, weights=weights)
        bounder = copy(self._bounder)  # its tables are never changed in place, so a refusal loses nothing
        sign = events.weights[:, 0] - (events.weights[:, 1] if weights > 1 else 0)
        inside = sign != 0  # outside the domain: weight 0, no claim on the user's bound
        kept = np.zeros(len(inside), dtype=bool)
        kept[inside] = bounder.admit(events.users.take(inside), events.keys[inside], sign[inside])
        return events.histogram(kept), bounder

    def check_columns(self, source: Source) -> list[str]:
        """The columns that a batch is read from; ``InputError`` where one is missing. Looks at no row."""
        _, columns, _ = self._key_function(source)
        if self.unit.key is not None:
            columns = list(dict.fromkeys([*columns, self.unit.key]))
        source.require(columns)
        return columns

    def settings(self) -> dict[str, Any]:
        """What was chosen when the stream was made, as plain values; the same at every step of its life.

        Streams with equal settings make the same promise and answer in the same way.
        """
        noise = self.noise.state()
        return {
            "budget": self.budget.to_dict(),
            "unit": self.unit.to_dict(),
            "schedule": self.schedule.to_state(),
            "structure_share": self.structure_share,
            "deletions": self.deletions,
            "t0": self.t0,
            "noise": {name: noise.get(name) for name in ("kind", "seed")},
        }

    @abstractmethod
    def _key_function(self, source: Source) -> tuple[KeyFunction, list[str], int]:
        """The key function for a source's rows, the columns it reads, and how many weights it gives (insert,
        delete).
        """

    @abstractmethod
    def _privatise(self, counts: Histogram, *, structure: bool) -> None:
        """Spend: the only place where noise meets the counts."""

    @abstractmethod
    def _release(self) -> Release:
        """The synthetic dataset as of this step; post-processing."""

    def _misfit(self) -> float:
        """How badly the released data fits the structure, from releases alone (0: well, 1: not at all)."""
        return 0.0

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the whole state to one file, atomically, mode 0600. It holds private sums: keep it as you
        keep the data.
        """
        values, arrays = self._to_state()
        save_state(path, self.state_kind, self.state_version, values, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, ledger: Any = None) -> Self:
        """The stream that ``save`` wrote; under seeded noise it goes on bit for bit."""
        values, arrays = load_state(path, cls.state_kind, cls.state_version)
        try:
            return cls._from_state(values, arrays, ledger)
        except (KeyError, TypeError, ValueError, IndexError) as problem:
            raise StateError(f"{path}: not a state that {cls.state_kind} wrote ({problem!r})") from problem

    def _to_state(self) -> tuple[dict[str, Any], Arrays]:
        values: dict[str, Any] = {
            "budget": self.budget.to_dict(),
            "unit": self.unit.to_dict(),
            "schedule": self.schedule.to_state(),
            "structure_share": self.structure_share,
            "deletions": self.deletions,
            "t0": self.t0,
            "noise": self.noise.state(),
            "step": self.step,
            "released_steps": self._released_steps,
        }
        arrays: Arrays = {"structure_steps": np.array(self._structure_steps, dtype=np.int64)}
        if self._pending is not None:
            arrays |= {"pending/keys": self._pending.keys, "pending/weights": self._pending.weights}
        if self._bounder is not None:
            values["bounder"], bounder_arrays = self._bounder.to_state()
            arrays |= prefixed("bounder", bounder_arrays)
        return values, arrays

    @staticmethod
    def _common_options(values: dict[str, Any]) -> dict[str, Any]:
        """The constructor's arguments that all streams share."""
        return {
            "budget": PrivacyBudget(**values["budget"]),
            "unit": PrivacyUnit.from_dict(values["unit"]),
            "schedule": schedule_from_state(values["schedule"]),
            "structure_share": values["structure_share"],
            "deletions": values["deletions"],
            "t0": values["t0"],
            "noise": Noise.from_state(values["noise"]),
        }

    def _restore_common(self, values: dict[str, Any], arrays: Arrays) -> None:
        self.step = int(values["step"])
        self._released_steps = int(values["released_steps"])
        self._structure_steps = [int(step) for step in arrays["structure_steps"]]
        if "pending/keys" in arrays:
            self._pending = Histogram(arrays["pending/keys"], arrays["pending/weights"])
        if self._bounder is not None:
            self._bounder = ContributionBounder.from_state(values["bounder"], part_of("bounder", arrays))

    @classmethod
    @abstractmethod
    def _from_state(cls, values: dict[str, Any], arrays: Arrays, ledger: Any) -> Self:
        """Rebuild the stream from its state."""


def _with_deletes(counts: Histogram) -> Histogram:
    """The same counts with a column for deletes, which a batch without an operation column does not have."""
    if counts.weights.shape[1] > 1:
        return counts
    return Histogram(counts.keys, np.column_stack([counts.weights, np.zeros_like(counts.weights)]))


def prefixed(name: str, arrays: Arrays) -> Arrays:
    """The arrays of a part, named for the whole's state."""
    return {f"{name}/{key}": array for key, array in arrays.items()}


def part_of(name: str, arrays: Arrays) -> Arrays:
    """The inverse of ``prefixed``."""
    return {key[len(name) + 1 :]: array for key, array in arrays.items() if key.startswith(f"{name}/")}


def check_operations(values: np.ndarray, column: str, *, deletions: bool) -> np.ndarray:
    """+1 or -1 for each row, or the error that names the first row that is neither."""
    if values.dtype.kind not in "iufb":
        raise InputError(f"column {column!r} must hold +1 (insert) and -1 (delete), it holds {values.dtype}")
    good = (values == 1) | (values == -1)
    if not good.all():
        raise InputError(f"column {column!r}, row {int(np.argmin(good))}: must be +1 (insert) or -1 (delete)")
    if not deletions and (values == -1).any():
        row = int(np.argmax(values == -1))
        raise InputError(
            f"column {column!r}, row {row}: a delete, but the stream was made with deletions=False"
        )
    return values.astype(np.int64)

"""The driver of every stream: open, count, bound, charge, privatise, release, save.

One step is one line from top to bottom:

    batch -> open_source -> records.count (users bounded) -> ledger -> mechanism.advance (the noise)
          -> mechanism.snapshot -> records.release -> the release

A stream keeps a *structure* (a tree's leaves, a table's marginals) and counts on it. At a structure step,
which the schedule decides on from earlier releases, the structure is looked for again, privately, and the
events of that step pay for both; at every other step they pay for the counts alone.

Guarantee
---------
Neighbours are two streams that differ in one event. An event is in one batch, and a batch reaches the outside
through one call of ``mechanism.advance`` alone. The mechanism promises that over all later releases an event
pays at most ε for structure and counts together (its own file has the argument; ``costs`` lists it).

With ``PrivacyUnit.user`` a user has at most m events over the life of the stream (enforced by
``ContributionBounder``), an event may spend the budget's ε / m, and by group privacy the user as a whole gets
the budget's ε. With ``per`` the m events are those of one public period, neighbours differ in what one user
does in one period (its insertions and their deletions, whenever these come), and k periods get k ε.

*Interrupts.* A step is computed on a copy and takes effect with one assignment, after its release was built.
An interrupt at any other place leaves the stream at the step before; the noise that was drawn is thrown away
unseen, and taking the batch again draws fresh noise. The ledger is charged before the first noise is drawn,
under a key that the stream keeps, and says which step is next: the stream reserves its step before any noise
and commits it before the release is handed over. So a batch that is taken again pays once, and of several
copies of a stream one alone takes a step. A stream that was charged to a ledger takes no step without it.
Without a ledger, that no copy took the same step is the curator's word.
"""

from __future__ import annotations

import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd

from streams.borrow import seasons_of
from streams.mechanism import Arrays, EventBudget, Mechanism, Seasonal, part_of, prefixed
from streams.periods import Periods
from streams.records import Clock, Records, with_columns
from streams.schedule import Schedule
from streams.slots import SlotTotals, TimeSlots, slot_length, without_slots
from streams.starvation import ReleasedTotals, StarvingStreamWarning, message
from synthgeo import codec, validate
from synthgeo.domain.coordinates import crs_text, parse_crs
from synthgeo.errors import ConfigError, InputError, LedgerError, StateError
from synthgeo.parameters import Parameters, Settings
from synthgeo.preflight import CheckReport, PeriodOfRow, Probe, Users, Windows, preflight
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.contribution import ContributionBounder
from synthgeo.privacy.ledger import Reservation, settle
from synthgeo.privacy.noise import Noise
from synthgeo.privacy.unit import PrivacyUnit
from synthgeo.privacy.user_table import StoredBounder
from synthgeo.progress import track
from synthgeo.release import Release, provenance
from synthgeo.sources import Histogram, Source, open_source
from synthgeo.sources.declared import ColumnNames, Reading, check_reading
from synthgeo.sources.fingerprint import Identity
from synthgeo.sources.grid import Grid, check_grid, make_grid, windows_in
from synthgeo.sources.windows import Ids, KnownTimes
from synthgeo.state import MALFORMED, load_state, save_state

# Every step of a lifetime is kept.
MAX_LIFETIME = 100_000
_START = Clock()
_NO_TOTALS = ReleasedTotals()


@dataclass(frozen=True)
class _Moment:
    """All that a step changes, so that a step takes effect with one assignment. Private."""

    mechanism: Mechanism
    bounder: Any
    clock: Clock = _START
    pending: Histogram | None = None  # batches held back until t0
    structure_step: int = 0  # the last one; 0: none yet
    paid: tuple[tuple[int, float, float], ...] = ()  # (first step, structure, counts), where it changes
    kept: Any = None  # what the last release leaves for the next
    totals: ReleasedTotals = _NO_TOTALS
    within: SlotTotals | None = None  # times inside windows, where asked for


@dataclass(frozen=True)
class Counted:
    """A batch, counted: all that a stream needs of it, and perhaps the identity of its records. Private."""

    counts: Any
    bounder: Any
    clock: Clock
    identity: Identity | None = None


class Stream(Parameters, ABC):
    """A private stream of batches in, a stream of synthetic datasets out.

    The products (``PHDStream``, ``TabularStream`` and their baselines) are this driver with a mechanism and
    with records; their constructors spell out what may be chosen.
    """

    state_kind: ClassVar[str]
    state_version: ClassVar[int] = 3
    columns: ColumnNames
    settings: Settings

    def __init__(
        self,
        *,
        records: Records,
        mechanism: Mechanism,
        event: EventBudget,
        lifetime: int | None,
        schedule: Schedule,
        t0: int,
        deletions: bool,
        reading: Reading | None,
        noise: Noise,
        ledger: Any,
        times: str | None = None,
    ) -> None:
        self.budget, self.unit = event.budget, event.unit
        self.structure_share = event.structure_share
        self.times = times
        self.lifetime = check_lifetime(lifetime)
        self.schedule = schedule
        self.t0 = validate.whole(t0, "t0", low=0)
        if self.lifetime is not None and self.t0 > 1:
            raise ConfigError("t0 releases the first steps together, a lifetime lets each go: give one")
        self.deletions = validate.flag(deletions, "deletions")
        self.reading = check_reading(reading)
        self.noise = noise
        self.ledger = ledger
        self._event = event
        self._records = records
        within = None
        if times is not None and event.times is not None:
            within = SlotTotals(slot_length(times), event.times, noise)
        self._now = _Moment(mechanism, self._new_bounder(), kept=records.kept(), within=within)
        self._charge_key: str | None = None
        self._owes: str | None = None  # the identity of the ledger without which it takes no step
        self._starving = False

    def _new_bounder(self) -> Any:
        """What bounds contributions over the life of the stream; None where there is nothing to bound."""
        return ContributionBounder(self.unit, deletes=self.deletions) if self.unit.is_user else None

    def store_users(self, folder: str | os.PathLike[str], *, buckets: int = 64) -> None:
        """Keep what is remembered about users in a table in ``folder``, in this many Parquet files and not in
        memory; before the first step.

        For more users than this process should remember, and for clusters, whose workers must see the folder
        under the same path. The same events are kept. The table belongs to this stream: its version is part
        of the saved state. It is as private as the data.
        """
        if self._in_use() or not isinstance(self._now.bounder, ContributionBounder):
            raise ConfigError("store_users is for streams that bound users' events, before their first step")
        bounder = StoredBounder(self.unit, folder, buckets=buckets, deletes=self.deletions)
        self._now = replace(self._now, bounder=bounder)

    @property
    def step(self) -> int:
        """How many batches the stream has taken."""
        return self._now.clock.step

    @property
    def epsilon(self) -> float:
        """What one event may spend: the budget's ε, divided by a user's bound where users are the unit."""
        return self._event.each.epsilon

    @property
    def spent(self) -> PrivacyBudget | None:
        """What any one unit has spent at most so far; None before the first release.

        Of this object: a ledger alone knows of its copies.
        """
        return self.budget if self._now.paid else None

    @property
    def is_private(self) -> bool:
        """Whether the releases keep the promise; False for a baseline that makes none."""
        return self._now.mechanism.is_private

    @property
    def mechanism(self) -> Mechanism:
        """The mechanism as of the last step. It holds private sums."""
        return self._now.mechanism

    @property
    def costs(self) -> pd.DataFrame:
        """What an event of each past step pays at most over the life of the stream, for structure, for
        counts, for its time inside its window where that is asked for, and in all; never above ``epsilon``.
        Events held back until ``t0`` pay then.
        """
        first = [entry[0] for entry in self._now.paid]
        lengths = np.diff([*first, self.step + 1])
        paid = np.repeat([entry[1:] for entry in self._now.paid] or np.zeros((0, 2)), lengths, axis=0)
        rows = paid if len(paid) else np.zeros((self.step, 2))
        steps = np.arange(1, self.step + 1)
        columns = {"step": steps, "structure": rows[:, 0], "counts": rows[:, 1]}
        if self._event.times is None:
            return pd.DataFrame({**columns, "total": rows.sum(axis=1)})
        times = self._event.times.epsilon
        return pd.DataFrame({**columns, "times": times, "total": rows.sum(axis=1) + times})

    @property
    def release(self) -> Release:
        """The synthetic dataset as of the last step, drawn anew: post-processing, so it costs nothing.

        Asking changes nothing: the stream goes on as if nobody had looked.
        """
        if not self.step:
            raise ConfigError("this stream has released nothing yet: update it first")
        return self._publish(self._now, Noise.from_state(self.noise.state()).rng)[0]

    def update(self, batch: Any) -> Release:
        """Take the next batch, spend its events' budget, and release the synthetic dataset as of this step.

        A batch that is refused raises before any noise is drawn and leaves the stream as it was. So does an
        interrupt: ``step`` tells whether the batch was taken, and ``release`` shows the last release again.
        """
        return self.take(self.count(batch, identify=self.ledger is not None))

    def _steps_held(self) -> int:
        """Of how many of the last steps a release holds records whose step it can tell."""
        return self.lifetime or 1

    def count(self, batch: Any, *, identify: bool | bytes = False) -> Counted:
        """The next batch, counted exactly; ``identify`` also takes the identity of its records, and under a
        key a sample of them.

        Changes nothing, draws no noise and spends nothing: ``take`` does.
        """
        source = open_source(batch, reading=self.reading)
        bounder = copy(self._now.bounder)  # its tables are replaced, never changed
        clock = self._now.clock.next(source.window, self._steps_held())
        if self.unit.per is not None:
            clock = replace(clock, period=Periods(self.unit.per).at(clock))
        clock = replace(clock, slots=self._slots(source, clock))
        if not identify:
            return Counted(self._records.count(source, bounder, clock), bounder, clock)
        key = identify if isinstance(identify, bytes) else b""
        known = source.identified(self.kinds(source), key=key)
        return Counted(self._records.count(known, bounder, clock), bounder, clock, known.identity)

    def _slots(self, source: Source, clock: Clock) -> TimeSlots | None:
        """How the window of a batch is cut further, where times inside it are asked for."""
        if self._now.within is None:
            return None
        if self.lifetime is None:
            raise ConfigError("times= says when the records of a window came: give a lifetime")
        if source.time is None or clock.first is None or clock.window is None:
            raise ConfigError("times= needs windows, which say when a batch begins and ends: use run()")
        slots = TimeSlots(source.time, clock.first, self._now.within.length)
        slots.edges(clock.window)  # refuses too many
        return slots

    def take(self, counted: Counted) -> Release:
        """Spend the budget of a batch that ``count`` has counted, and release the dataset as of its step."""
        if counted.clock.step != self.step + 1:
            raise ConfigError(f"this batch was counted as step {counted.clock.step}; count it again")
        reservation = self._reserve(counted)
        taken = copy(self)  # thrown away where the step is not taken
        counted = taken._learn(counted)  # noqa: SLF001 - its own class
        after, release = taken._advance(counted.counts, counted.bounder, counted.clock)  # noqa: SLF001
        self._look_for_starvation(after)
        found = {"_now": after, "_starving": self._starving}
        settle(self.ledger, reservation, self, "__dict__", {**vars(taken), **found})
        return release

    def _learn(self, counted: Counted) -> Counted:
        """Find in a batch, privately, what has to be known before it is taken."""
        return counted

    def _look_for_starvation(self, after: _Moment) -> None:
        """Warn once when users seem to have used up what they may contribute.

        Before the step takes effect: who makes an error of the warning has the stream as it was.
        """
        if self._starving:
            return
        self._starving = after.totals.starve(
            self.unit, expires=self.lifetime is not None, deletions=self.deletions
        )
        if self._starving:
            warnings.warn(message(self.unit, after.clock.step), StarvingStreamWarning, stacklevel=3)

    def run(
        self,
        data: Any,
        *,
        time: str,
        every: str,
        start: Any = None,
        end: Any = None,
        tz: str | None = None,
        lifetime: str | int | None = None,
        progress: bool | None = None,
    ) -> Iterator[Release]:
        """Cut timestamped data by a public grid of windows, and release after each; an empty window is a
        step too.

        ``every`` is a pandas offset such as ``"6h"``, ``"1D"`` or ``"1MS"`` (months); days and months are
        those of the zone ``tz``, over changes of its clock. ``lifetime`` sets the stream's lifetime before
        its first step: a number of windows, or a length of time that is a whole number of them (``"30D"``).
        """
        self._live_for(lifetime, every)
        return self._run(data, time, every, start, end, tz, progress)

    def _live_for(self, lifetime: str | int | None, every: str) -> None:
        """Take over a lifetime that is given with the windows."""
        if lifetime is None:
            return
        steps = windows_in(lifetime, every) if isinstance(lifetime, str) else check_lifetime(lifetime)
        if self.lifetime not in (None, steps):
            raise ConfigError(f"this stream has a lifetime of {self.lifetime} steps, not of {lifetime}")
        if self.lifetime is None:
            self.set_params(lifetime=steps)

    def _run(
        self, data: Any, time: str, every: str, start: Any, end: Any, tz: str | None, progress: bool | None
    ) -> Iterator[Release]:
        windows = self.windows(data, time=time, every=every, start=start, end=end, tz=tz)
        for _, window in track(windows, label="windows", enabled=progress):
            release = self.update(window)
            release.provenance["window"] = every
            yield release

    def check_columns(self, batch: Any) -> list[str]:
        """The columns that a batch is read from; ``InputError`` where one is missing. Looks at no row."""
        source = open_source(batch, reading=self.reading)
        columns = list(self.kinds(source))
        source.require(columns)
        return columns

    def kinds(self, batch: Any) -> dict[str, str]:
        """What is asked of each column of a batch: the columns that make the identity of its content."""
        source = open_source(batch, reading=self.reading)
        users = {} if self.unit.key is None else {self.unit.key: "id"}
        times = {} if self.times is None or source.time is None else {source.time: "time"}
        return {**self._records.keys(source).kinds, **users, **times}

    def windows(
        self,
        data: Any,
        *,
        time: str,
        every: str,
        start: Any = None,
        end: Any = None,
        tz: str | None = None,
    ) -> Iterator[tuple[pd.Timestamp, Source]]:
        """Cut timestamped data by a public grid; an empty window is a window like any other."""
        check_grid(every, start, end)
        source = open_source(data, reading=self.reading)
        return source.windows(time=time, every=every, start=start, end=end, tz=tz)

    def check_rows(self, data: Any, *, time: str | None = None) -> None:
        """Read all rows once, and raise the error that names those that cannot be used, in every column.

        Spends nothing. Where bad rows are to be dropped there is nothing to refuse.
        """
        if self.reading.bad_rows == "drop":
            return
        source = self._to_look_at(data, time)
        keys = self._records.keys(source)
        uses: list[Any] = [keys]
        if time is not None:
            uses.append(KnownTimes(time))
        if self.unit.key is not None:
            uses.append(Ids(self.unit.key))
        wanted = [*self.kinds(source), *([] if time is None else [time])]
        source.check(list(dict.fromkeys(wanted)), *uses)

    def _to_look_at(self, data: Any, time: str | None) -> Source:
        """Data that windows of ``time`` would cut, where that is given."""
        source = copy(open_source(data, reading=self.reading))
        source.time = time if time is not None else source.time
        return source

    def check(
        self,
        data: Any,
        *,
        time: str | None = None,
        every: str | None = None,
        start: Any = None,
        end: Any = None,
    ) -> CheckReport:
        """Everything in ``data`` that does not fit what was declared, at once; spends nothing.

        ``data`` is what ``update`` takes, or a list of files that are batches; with ``time`` and ``every`` it
        is cut as ``run`` would cut it. The report is for the curator only.
        """
        if every is not None:
            check_grid(every, start, end)
        source = self._to_look_at(data, time)
        try:
            keys = self._records.keys(source)
            kinds = self.kinds(source) | ({} if time is None else {time: "time"})
        except InputError as problem:  # columns are missing
            return CheckReport.of_problem(problem)
        probes = self._probes(source)
        uses: list[Any] = [keys]
        grid = None
        if time is not None:
            uses.append(KnownTimes(time))
            if every is not None and start is not None and end is not None and source.has(time):
                zoned = source.is_zoned(time)
                grid = make_grid(every, start, end, zoned=zoned, column=time, tz=self.reading.tz)
                probes.append(Windows(time, grid))
        if self.unit.key is not None:
            uses.append(Ids(self.unit.key))
            probes += self._users(grid, time, op="op" if "op" in kinds else None)
        files = [data] if isinstance(data, str | os.PathLike) else data if isinstance(data, list) else []
        same = getattr(self, "same_persons", False)
        return preflight(source, kinds, uses, probes, files=files, same_persons=same)

    def _probes(self, source: Source) -> list[Probe]:
        """What looks at all rows of a check."""
        return self._records.probes(source)

    def _users(self, grid: Grid | None, time: str | None, *, op: str | None) -> list[Probe]:
        """What looks at how much each user contributes, where the bound's periods are known."""
        bound, per, key = self.unit.max_contributions, self.unit.per, self.unit.key
        assert key is not None
        things, remark = "events", ""
        if self.deletions:
            bound, things = bound // 2, "insertions"
            remark = (
                ": each keeps a place for its deletion; if rows only insert, say so (deletions=False, "
                "--no-deletions)"
            )
        if per is None:
            return [Users(key, bound, things, remark=remark, op=op)]
        if grid is None or time is None:
            return []
        period = PeriodOfRow(time, grid, Periods(per).of_windows(grid))
        return [Users(key, bound, things, who="users in a period", period=period, remark=remark, op=op)]

    def _reserve(self, counted: Counted) -> Reservation | None:
        """Reserve the next step in the ledger, which charges it for the stream's whole life at the first."""
        if not self.is_private:
            return None
        self._check_ledger()
        if self.ledger is None:
            return None
        self._charge_key = self._charge_key or self.ledger.new_key()
        content = None if counted.identity is None else counted.identity.fingerprint
        reservation: Reservation = self.ledger.reserve(
            self.state_kind, self.budget, self.unit,
            key=self._ledger_key, step=counted.clock.step, content_hash=content,
        )  # fmt: skip
        self._owes = self.ledger.identity
        return reservation

    def owe(self, identity: str) -> None:
        """Take no further step without the ledger that has this identity."""
        self._owes, self.ledger = identity, None

    @property
    def _ledger_key(self) -> str:
        return f"stream {self._charge_key}"

    def _check_ledger(self) -> None:
        """``LedgerError`` where the stream owes a ledger, and it is not this one, or an older copy of it."""
        if self._owes is None:
            return
        if self.ledger is None or self.ledger.identity != self._owes:
            raise LedgerError(
                "this stream was charged to a ledger, and takes no step without it: give that ledger "
                "(of the state of a run: open the run)"
            )
        if self.ledger.find(self._ledger_key) is None:
            raise LedgerError(
                "the ledger does not know this stream, which was charged to it: that ledger is an older copy"
            )

    def _advance(self, counts: Any, bounder: Any, clock: Clock) -> tuple[_Moment, Release]:
        """The moment after one more batch, and its release. Changes nothing but the source of noise."""
        now, step, within = self._now, clock.step, self._now.within
        counts = counts if now.pending is None else now.pending.merge(counts)
        if within is not None and clock.slots is not None and clock.window is not None:
            counts, by_slot = without_slots(counts)
            within = within.advanced(
                by_slot,
                clock.slots,
                step=step,
                window=clock.window,
                time_of_day=f"{clock.stamp(clock.window[0]):%X}",
                lifetime=self.lifetime or 1,
            )
        if step < self.t0:
            after = replace(now, clock=clock, bounder=bounder, pending=counts)
        else:
            structure = self.schedule.due(step, now.structure_step)
            mechanism = now.mechanism.copy()
            if isinstance(mechanism, Seasonal) and clock.window is not None:
                begin, end = map(clock.stamp, clock.window)
                mechanism.enter(seasons_of((begin, end)))
            mechanism.advance(counts, step=step, structure=structure)
            cost = mechanism.paid()
            paid = now.paid
            if not paid or paid[-1][1:] != cost:
                paid = (*paid, (step if paid else 1, *cost))
            after = _Moment(
                mechanism,
                bounder,
                clock,
                structure_step=step if structure else now.structure_step,
                paid=paid,
                kept=now.kept,
                within=within,
            )
        release, kept = self._publish(after, self.noise.rng)
        totals = now.totals.seen(step, release.total) if self.unit.is_user else now.totals
        return replace(after, kept=kept, totals=totals), release

    def _publish(self, moment: _Moment, rng: np.random.Generator) -> tuple[Release, Any]:
        """The release of a moment, and what the next one needs of it; post-processing."""
        return self._records.release(
            moment.mechanism.snapshot(),
            kept=moment.kept,
            clock=replace(moment.clock, within=None if moment.within is None else moment.within.held),
            spent=self.budget if moment.paid else None,
            provenance=self._statement(moment),
            rng=rng,
        )

    def _statement(self, moment: _Moment) -> dict[str, Any]:
        """What goes with the release of a moment: public facts."""
        mechanism = moment.mechanism
        return provenance(
            mechanism=mechanism.name,
            unit=self.unit,
            budget=self.budget,
            noise=self.noise,
            private=mechanism.is_private,
            step=moment.clock.step,
            schedule=self.schedule.name,
            structure_share=self.structure_share,
            t0=self.t0,
            **({} if self.lifetime is None else {"lifetime": self.lifetime}),
            **self._times_settings(),
            **_window_facts(moment.clock),
            **mechanism.facts(),
            **self._records.facts(),
        )

    def _times_settings(self) -> dict[str, Any]:
        """The slots of times inside windows, and their part of ε, where they are asked for."""
        return {} if self.times is None else {"times": self.times, "times_share": self._event.times_share}

    def _in_use(self) -> bool:
        return self.step > 0

    def choices(self) -> dict[str, Any]:
        """What was chosen when the stream was made, as plain values; the same at every step of its life.

        Streams with equal choices make the same promise and answer in the same way.
        """
        noise = self.noise.state()
        settings, _ = codec.dump(self.settings)
        return {
            **settings,
            "budget": self.budget.to_dict(),
            "unit": self.unit.to_dict(),
            "schedule": self.schedule.to_state(),
            "structure_share": self.structure_share,
            "lifetime": self.lifetime,
            "deletions": self.deletions,
            "columns": codec.dump(self._columns)[0],
            "reading": self.reading.to_dict(),
            "noise": {name: noise.get(name) for name in ("kind", "seed")},
            **self._records.settings(),
            **self.mechanism.settings(),
        }

    @property
    def _columns(self) -> ColumnNames:
        """The names of columns, with a coordinate system in words."""
        return replace(self.columns, crs=crs_text(parse_crs(self.columns.crs)))

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__}: ε = {self.budget.epsilon:g} for {self.unit.describe()}; "
            f"{self.step} steps taken>"
        )

    # Saving and loading.

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the whole state to one file, atomically, mode 0600. It holds private sums: keep it as you
        keep the data.
        """
        values, arrays = self._to_state()
        save_state(path, self.state_kind, self.state_version, values, arrays)
        if isinstance(self._now.bounder, StoredBounder):
            self._now.bounder.was_saved()

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, ledger: Any = None) -> Self:
        """The stream that ``save`` wrote; under seeded noise it goes on bit for bit.

        A ``ledger`` is charged at once if the stream has spent, unless it was charged for this very stream.
        A stream that was charged to a ledger can be looked at without it, and takes no step.
        """
        values, arrays = load_state(path, cls.state_kind, cls.state_version)
        product: Any = cls  # its constructor spells out its own settings
        try:
            stream: Self = product(
                budget=PrivacyBudget(**values["budget"]),
                unit=PrivacyUnit.from_dict(values["unit"]),
                reading=Reading.from_dict(values["reading"]),
                noise=Noise.from_state(values["noise"]),
                ledger=ledger,
                **cls._own_params(values, arrays),
            )
            stream._restore(values, arrays)
        except MALFORMED as problem:
            raise StateError(f"{path}: not a state that {cls.state_kind} wrote ({problem!r})") from problem
        if ledger is not None:
            stream._adopt()
        return stream

    def _adopt(self) -> None:
        """Charge the ledger for what the stream released without one."""
        self._check_ledger()
        if self.spent is None or not self.is_private:
            return
        self._charge_key = self._charge_key or self.ledger.new_key()
        self.ledger.adopt(self.state_kind, self.budget, self.unit, key=self._ledger_key, step=self.step)
        self._owes = self.ledger.identity

    @classmethod
    @abstractmethod
    def _own_params(cls, values: dict[str, Any], arrays: Arrays) -> dict[str, Any]:
        """The product's own arguments from its state."""
        return {
            "lifetime": values["lifetime"],
            "deletions": values["deletions"],
            "columns": codec.load(ColumnNames, values["columns"]),
        }

    def _to_state(self) -> tuple[dict[str, Any], Arrays]:
        """Settings, then everything that steps change."""
        now = self._now
        values: dict[str, Any] = {
            **self.choices(),
            "settings": codec.dump(self.settings)[0],
            "noise": self.noise.state(),
            "step": now.clock.step,
            "clock": {
                "starts": [list(pair) for pair in now.clock.starts],
                "tz": now.clock.tz,
                "first": now.clock.first,
                "period": now.clock.period,
            },
            "structure_step": now.structure_step,
            "costs": [list(entry) for entry in now.paid],
            "charge_key": self._charge_key,
            "owes": self._owes,
        }
        arrays: Arrays = {}
        if now.pending is not None:
            arrays |= {"pending/keys": now.pending.keys, "pending/weights": now.pending.weights}
        if now.bounder is not None:
            values["released_totals"] = [now.totals.stride, *now.totals.values]
            values["bounder"], bounder_arrays = now.bounder.to_state()
            arrays |= prefixed("bounder", bounder_arrays)
        if now.within is not None:
            values["within"], within_arrays = now.within.to_state()
            arrays |= prefixed("within", within_arrays)
        for own, own_arrays in (self._records.to_state(now.kept), now.mechanism.to_state()):
            values |= own
            arrays |= own_arrays
        return values, arrays

    def _restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        mechanism, bounder, pending = self._now.mechanism, self._now.bounder, None
        mechanism.restore(values, arrays)
        if bounder is not None:
            kind = StoredBounder if "table" in values["bounder"] else type(bounder)
            bounder = kind.from_state(values["bounder"], part_of("bounder", arrays))
        if "pending/keys" in arrays:
            pending = Histogram(arrays["pending/keys"], arrays["pending/weights"])
            pending = with_columns(pending, self._records.width)
        self._now = replace(
            self._now,
            bounder=bounder,
            clock=_clock_from(values),
            pending=pending,
            structure_step=int(values["structure_step"]),
            paid=tuple((int(first), float(a), float(b)) for first, a, b in values["costs"]),
            kept=self._records.kept(values, arrays),
            within=self._now.within
            and self._now.within.restored(values["within"], part_of("within", arrays)),
        )
        self._charge_key, self._owes = values["charge_key"], values["owes"]
        if "released_totals" in values:
            stride, *totals = values["released_totals"]
            self._now = replace(self._now, totals=ReleasedTotals(tuple(totals), int(stride)))


def check_lifetime(lifetime: Any) -> int | None:
    """A number of steps, or None for streams that hold everything so far."""
    return None if lifetime is None else validate.whole(lifetime, "lifetime", low=1, high=MAX_LIFETIME)


def _window_facts(clock: Clock) -> dict[str, str]:
    """When the window of the last step began, if it was one."""
    starts = dict(clock.starts)
    if clock.step not in starts:
        return {}
    return {"window_start": clock.stamp(starts[clock.step]).isoformat()}


def _clock_from(values: dict[str, Any]) -> Clock:
    known = values["clock"]
    starts = tuple((int(a), int(b)) for a, b in known["starts"])
    return Clock(int(values["step"]), starts, known["tz"], known["first"], None, int(known["period"]))

"""Panels: the same persons answer in every wave; synthetic persons that persist come out."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from streams.mechanism import Arrays, EventBudget, check_noise, part_of, prefixed
from streams.records import Clock
from streams.schedule import ReleaseDriven
from streams.stream import Counted, Stream
from synthgeo import codec, validate
from synthgeo.arrays import Ints
from synthgeo.errors import ConfigError, InputError
from synthgeo.parameters import check_settings
from synthgeo.preflight import CheckReport, Finding, Level, Probe, Users, share
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.contribution import ContributionBounder
from synthgeo.privacy.noise import Noise, generator
from synthgeo.privacy.unit import PrivacyUnit
from synthgeo.privacy.users import UserIds
from synthgeo.release import Release
from synthgeo.schema import Schema
from synthgeo.sources import Source, open_source
from synthgeo.sources.declared import ColumnNames, Reading
from synthgeo.sources.grid import Grid
from synthgeo.sources.values import ids
from synthgeo.sources.waves import waves_of
from synthgeo.sources.windows import Ids
from tabular.counting import UserRecords, UserRows
from tabular.discovery import Unknown, check_findable, trial_schema
from tabular.marginals import MarginalIndex, row_keys
from tabular.model.junction_tree import Clique, check_size
from tabular.over_time.panel import PanelMechanism, PanelWave, Population, before
from tabular.settings import TableSettings
from tabular.values import LaplaceCounts

MAX_CELLS, ITERATIONS = 100_000, 500
# Of the budget, for bins and values that the first wave is to find.
FIND_SHARE = 0.1


class PanelStream(Stream):
    """Releases a wave of synthetic persons after every wave of private ones: a panel survey, month by month.

    The same persons answer in each wave. A batch holds one wave, one row per person; of more rows of a person
    one is kept. Synthetic persons persist: they have stable ids in a column named like the key, answers that
    change as answers were seen to change from one wave to the next, and they join and leave. A person who
    leaves out a wave comes back as a new one. Numbers and dates keep their value as long as their bin does
    not change; places and the times of day of ``sg.DateTime`` are drawn anew.

    Where one file holds all waves, ``waves`` cuts it by the column that names them, and ``run`` by times.
    ``release.data`` is the wave; put the waves of several releases together, and the ids make histories of
    them. Bins (``bins="auto"``) and values (``Categorical("private")``) that are left to the data are found
    in the first wave, with a tenth of the budget; later waves are counted in these.

    Parameters
    ----------
    schema
        What is public about the answers (``Schema``), without the key.
    budget
        For the whole panel. It may have a δ: with many waves that is far more accurate.
    unit
        Which column knows a person, and in how many waves a person counts:
        ``sg.PrivacyUnit.user(max_events=12, key="person_id")`` over the life of the panel, or with ``per=12``
        in every twelve waves.
    reading
        How text is read (``Reading``).
    settings
        ``TableSettings``, of which a panel has ``max_cells`` and ``iterations``.
    noise
        ``SystemNoise()`` unless given; ``SeededNoise(seed)`` for tests.
    ledger
        A ``Ledger`` to charge, where one data set has several products.

    Guarantee
    ---------
    (ε, δ) for one person: all its answers, or all of one public period where the unit has such, under
    add/remove neighbours, over all releases. The bound on waves is enforced. Where the first wave finds bins
    or values, a person of that wave pays a tenth of ε and δ for them (``_found``), and all waves together the
    other nine tenths.
    ``tabular.over_time.panel.PanelMechanism`` has the argument; see also docs/guarantees.md. The state holds
    the last wave's answers: keep a saved stream as you keep the data.

    >>> import synthgeo as sg
    >>> answers = sg.simulate.panel(2_000, waves=3, seed=1)
    >>> panel = sg.PanelStream(
    ...     schema=sg.simulate.panel_schema(), budget=sg.PrivacyBudget(4.0, 1e-6),
    ...     unit=sg.PrivacyUnit.user(max_events=3, key="person_id"), noise=sg.SeededNoise(1),
    ... )
    >>> waves = [panel.update(wave).data for _, wave in answers.groupby("wave")]
    >>> first, third = (set(wave.person_id) for wave in (waves[0], waves[2]))
    >>> len(first & third) > 1_500
    True
    """

    state_kind = "panel-stream"
    parts: ClassVar[dict[str, type]] = {"settings": TableSettings}
    takes = ("max_cells", "iterations")
    same_persons: ClassVar[bool] = True

    def __init__(
        self,
        *,
        schema: Schema,
        budget: PrivacyBudget,
        unit: PrivacyUnit,
        reading: Reading | None = None,
        settings: TableSettings | None = None,
        noise: Noise | None = None,
        ledger: Any = None,
    ) -> None:
        validate.instance(schema, "schema", Schema)
        validate.instance(budget, "budget", PrivacyBudget)
        validate.instance(unit, "unit", PrivacyUnit)
        if not unit.is_user or unit.of != "event":
            raise ConfigError("a panel protects persons: unit=sg.PrivacyUnit.user(max_events=waves, key=...)")
        if unit.key in schema.inputs:
            raise ConfigError(f"the key {unit.key!r} is no column of the schema: ids are made afresh")
        chosen = check_settings(settings, TableSettings).only("PanelStream", self.takes)
        max_cells = chosen.max_cells or MAX_CELLS
        check_findable(schema, budget)
        trial = trial_schema(schema)
        singles: list[Clique] = [(name,) for name in trial.sizes]
        check_size(trial.sizes, singles, trial.rules, max_cells=max_cells)
        source = check_noise(noise)
        self._given_schema = schema
        self._unknown = bool(schema.pending_bins or schema.pending_values)
        found = budget.split((FIND_SHARE, 1 - FIND_SHARE)) if self._unknown else [None, budget]
        self._for_finding: PrivacyBudget | None = found[0]
        self._setup: dict[str, Any] = {
            "budget": found[1],
            "unit": unit,
            "max_cells": max_cells,
            "iterations": chosen.iterations or ITERATIONS,
            "noise": source,
        }
        super().__init__(
            records=PanelRecords(trial, unit),
            mechanism=PanelMechanism(schema=trial, **self._setup),
            event=EventBudget(budget, unit, 0.5),
            lifetime=1,  # a release describes its own wave
            schedule=ReleaseDriven(),
            t0=0,
            deletions=False,
            reading=reading,
            noise=source,
            ledger=ledger,
        )
        self.schema, self.settings, self.columns = schema, chosen, ColumnNames()

    def count(self, batch: Any, *, identify: bool | bytes = False) -> Counted:
        if not self._unknown:
            return super().count(batch, identify=identify)
        source = open_source(batch, reading=self.reading)
        counted = super().count(source, identify=identify)  # what fits the most bins and values will fit
        trial = self._panel_records.schema
        one = PrivacyUnit.user(max_events=1, key=self._panel_records.key)  # one answer of a person in a wave
        unknown = Unknown.of(self._given_schema, UserRows.read(source, trial, one), trial)
        return replace(counted, counts=_FirstWave(source, unknown))

    def _learn(self, counted: Counted) -> Counted:
        first = counted.counts
        if not isinstance(first, _FirstWave):
            return counted
        self._know(self._found(first.unknown))
        return replace(super().count(first.source), identity=counted.identity)

    def _found(self, unknown: Unknown) -> Schema:
        """The schema with bins and values found in the first wave.

        Guarantee
        ---------
        ``_for_finding``, a tenth of ε and of δ, for one person: it has one row in the first wave, and no
        later wave is looked at (``Unknown.found``). The waves have the other nine tenths.
        """
        share = self._for_finding
        assert share is not None
        each = share.epsilon / unknown.columns
        return unknown.found(
            self._given_schema,
            [each] * len(unknown.numbers),
            [LaplaceCounts(each, bound=1)] * len(unknown.words),
            delta=share.delta / max(unknown.lists(self._given_schema), 1),
            noise=self.noise,
        )

    def _know(self, schema: Schema) -> None:
        """Go on with a schema in which nothing is left to be found."""
        self._records = PanelRecords(schema, self.unit)
        self._now = replace(self._now, mechanism=PanelMechanism(schema=schema, **self._setup))
        self.schema, self._unknown = schema, False

    @property
    def _panel_records(self) -> PanelRecords:
        assert isinstance(self._records, PanelRecords)
        return self._records

    @property
    def costs(self) -> pd.DataFrame:
        found = super().costs
        if self._for_finding is not None and len(found):
            found.loc[0, ["structure", "total"]] += self._for_finding.epsilon
        return found

    def choices(self) -> dict[str, Any]:
        return super().choices() | {"schema": self._given_schema.fingerprint()}

    def _to_state(self) -> tuple[dict[str, Any], Arrays]:
        values, arrays = super()._to_state()
        if self._for_finding is not None:
            values["found_schema"] = None if self._unknown else self.schema.to_json()
        values["schema"] = self._given_schema.to_json()
        return values, arrays

    def _restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        if values.get("found_schema") is not None:
            self._know(Schema.from_json(values["found_schema"]))
        super()._restore(values, arrays)

    def _new_bounder(self) -> PanelBounder:
        return PanelBounder.of(self.unit, len(self._panel_records.schema.attributes))

    def waves(self, data: Any, *, wave: str, names: Sequence[Any]) -> Iterator[tuple[str, Source]]:
        """Cut data by the column ``wave``, which names the wave of each row: each name with its rows.

        ``names`` lists the waves in order. The list is public: a wave without rows is a wave all the same,
        and rows of other waves belong to none.
        """
        return waves_of(open_source(data, reading=self.reading), wave, names)

    def check(
        self,
        data: Any,
        *,
        time: str | None = None,
        every: str | None = None,
        start: Any = None,
        end: Any = None,
        wave: str | None = None,
        names: Sequence[Any] = (),
    ) -> CheckReport:
        """Everything in ``data`` that does not fit what was declared, at once; spends nothing.

        ``data`` is what ``update`` takes, or a list of files that are waves; with ``wave`` and ``names`` it
        is cut as by ``waves``, with ``time`` and ``every`` as by ``run``. The report is for the curator only.
        """
        report = super().check(data, time=time, every=every, start=start, end=end)
        if not report.rows:
            return report
        try:
            if wave is not None:
                parts = self.waves(data, wave=wave, names=names)
            elif time is not None and every is not None:
                windows = self.windows(data, time=time, every=every, start=start, end=end)
                parts = ((str(begin), part) for begin, part in windows)
            else:
                files = data if isinstance(data, list) else [data]
                parts = ((_name(file), open_source(file, reading=self.reading)) for file in files)
            found = self._look_at_waves(list(parts), report.rows, wave)
        except InputError as problem:
            found = [Finding("problem", str(problem))]
        return replace(report, findings=(*report.findings, *found))

    def _look_at_waves(self, parts: list[tuple[str, Source]], rows: int, wave: str | None) -> list[Finding]:
        """Rows that belong to no wave, waves without rows, and persons who come twice in one."""
        key = self.unit.key
        assert key is not None
        numbers, twice = {}, {}
        for name, part in parts:
            who = ids(part.read([key], check=Ids(key)), key)
            numbers[name] = len(who)
            twice[name] = len(who) - len(np.unique(who.codes()))
        findings = []
        outside = rows - sum(numbers.values())
        if wave is not None and outside:
            level: Level = "problem" if outside == rows else "warning"
            text = f"{share(outside, rows)} of a wave that is not listed: they belong to no step"
            findings.append(Finding(level, text, wave, outside))
        empty = [name for name, number in numbers.items() if not number]
        if wave is not None and empty:
            text = f"no rows in wave {', '.join(empty)}: a step all the same, in which everybody is gone"
            findings.append(Finding("warning", text, wave))
        if sum(twice.values()):
            most = max(twice, key=lambda name: twice[name])
            text = (
                f"{share(sum(twice.values()), rows)} repeat a person inside a wave: one row of each is kept "
                f"(most of them in {most or 'this wave'})"
            )
            findings.append(Finding("warning", text, key, sum(twice.values())))
        return findings

    def _users(self, grid: Grid | None, time: str | None, *, op: str | None) -> list[Probe]:
        found = super()._users(grid, time, op=op)
        return [
            replace(probe, things="answers", who=probe.who.replace("users", "persons"))
            if isinstance(probe, Users)
            else probe
            for probe in found
        ]

    @property
    def epsilon(self) -> float:
        """What one answer spends, at the budget's δ."""
        mechanism = self.mechanism
        assert isinstance(mechanism, PanelMechanism)
        return mechanism.answer_epsilon

    @classmethod
    def _own_params(cls, values: dict[str, Any], arrays: Arrays) -> dict[str, Any]:  # noqa: ARG003
        return {
            "schema": Schema.from_json(values["schema"]),
            "settings": codec.load(TableSettings, values["settings"]),
        }


@dataclass(frozen=True)
class _FirstWave:
    """The first wave of a panel that has bins or values to find. Private."""

    source: Source
    unknown: Unknown


def _name(data: Any) -> str:
    """What a file is called; nothing for data that has no name."""
    return Path(data).name if isinstance(data, str | os.PathLike) else ""


class PanelBounder:
    """Who may still answer, and what everybody answered in the wave before. Private.

    What is kept of a person, and what its earlier answers are, depends on that person's rows alone. Only the
    last wave is remembered.
    """

    def __init__(self, users: ContributionBounder, who: UserIds, codes: Ints) -> None:
        self.users, self.who, self.codes = users, who, codes

    @classmethod
    def of(cls, unit: PrivacyUnit, width: int) -> PanelBounder:
        """The bounder of a panel that nobody has answered yet."""
        return cls(ContributionBounder(unit), UserIds.empty(), np.zeros((0, width), dtype=np.int64))

    def admit(self, who: UserIds, codes: Ints, keys: Any, *, period: int) -> tuple[Ints, Ints]:
        """Rows that count, at most one per person, and the answers of these persons in the wave before, -1
        where there are none. What they answer now is what is remembered.
        """
        once = ContributionBounder(PrivacyUnit.user(max_events=1)).admit(who, keys)
        rows = np.flatnonzero(once)
        rows = rows[self.users.admit(who.take(rows), keys[rows], period=period)]
        now = who.take(rows)
        person = UserIds.concatenate([self.who, now]).codes()
        known, asked = person[: len(self.who)], person[len(self.who) :]
        place = np.full(int(person.max(initial=-1)) + 1, -1, dtype=np.int64)
        place[known] = np.arange(len(known))
        earlier = np.vstack([self.codes, np.full((1, codes.shape[1]), -1)])[place[asked]]
        self.who, self.codes = now, codes[rows]
        return rows, earlier

    def __copy__(self) -> PanelBounder:
        return PanelBounder(copy(self.users), self.who, self.codes)

    def to_state(self) -> tuple[dict[str, Any], Arrays]:
        """JSON values and arrays for a state file."""
        values, arrays = self.users.to_state()
        own = {"high": self.who.high, "low": self.who.low, "codes": self.codes}
        return values, prefixed("users", arrays) | own

    @classmethod
    def from_state(cls, values: dict[str, Any], arrays: Arrays) -> PanelBounder:
        """The bounder that ``to_state`` wrote."""
        users = ContributionBounder.from_state(values, part_of("users", arrays))
        return cls(users, UserIds(arrays["high"], arrays["low"]), arrays["codes"])


class PanelRecords:
    """Waves of answers as records of a stream, and synthetic persons as its dataset."""

    width = 1

    def __init__(self, schema: Schema, unit: PrivacyUnit) -> None:
        assert unit.key is not None
        self.schema, self.unit, self.key = schema, unit, unit.key
        self.index = MarginalIndex(schema, [(name,) for name in schema.sizes])

    def keys(self, source: Source) -> MarginalIndex:
        source.require(self.schema.inputs)
        return self.index

    def probes(self, source: Source) -> list[Probe]:  # noqa: ARG002
        return []

    def count(self, source: Source, bounder: PanelBounder, clock: Clock) -> PanelWave:
        schema = self.schema
        wanted = list(dict.fromkeys([*schema.inputs, self.key]))
        source.require(wanted)
        chunk = source.read(wanted, check=UserRecords(schema, self.key))
        codes = schema.encode(chunk)
        sizes = schema.sizes
        rows, earlier = bounder.admit(
            ids(chunk, self.key), codes, row_keys(codes, list(sizes.values())), period=clock.period
        )
        new = np.array(list(sizes.values()))
        earlier = np.where(earlier < 0, new, earlier)
        was = {before(name): earlier[:, i] for i, name in enumerate(sizes)}
        return PanelWave(schema.by_name(codes[rows]), was)

    def release(
        self,
        snapshot: tuple[Population, dict[Clique, float]],
        *,
        kept: None,
        clock: Clock,
        spent: PrivacyBudget | None,
        provenance: dict[str, Any],
        rng: np.random.Generator,
    ) -> tuple[PanelRelease, None]:
        population, deviations = snapshot
        release = PanelRelease(
            step=clock.step,
            spent=spent,
            provenance=provenance,
            schema=self.schema,
            key=self.key,
            population=population,
            deviations=deviations,
            seed=int(rng.integers(2**62)),
        )
        return release, kept

    def facts(self) -> dict[str, Any]:
        return {**self.settings(), "key": self.key}

    def settings(self) -> dict[str, Any]:
        return {"schema": self.schema.fingerprint()}

    def to_state(self, kept: None) -> tuple[dict[str, Any], Arrays]:  # noqa: ARG002
        return {"schema": self.schema.to_json()}, {}

    def kept(self, values: dict[str, Any] | None = None, arrays: Arrays | None = None) -> None:
        """Nothing: the mechanism holds the synthetic persons."""


class PanelRelease(Release):
    """The synthetic persons of one wave, with their answers. Ids are stable over waves."""

    product = "table"

    def __init__(
        self,
        *,
        step: int,
        spent: PrivacyBudget | None,
        provenance: dict[str, Any],
        schema: Schema,
        key: str,
        population: Population,
        deviations: dict[Clique, float],
        seed: int,
    ) -> None:
        super().__init__(step=step, spent=spent, provenance=provenance)
        self.schema, self.key = schema, key
        self._population, self._deviations, self._seed = population, deviations, seed

    @property
    def total(self) -> int:
        """Number of synthetic persons."""
        return len(self._population.ids)

    def _build(self) -> pd.DataFrame:
        held = self._population
        frame = self.schema.frame(held.codes, held.values, generator(self._seed))
        frame.insert(0, self.key, held.ids)
        return frame

    def redraw(self, turn: int) -> PanelRelease:
        """The same persons with the same answers; what is drawn anew in each release (places) is drawn again.
        Persons persist: there is one population.
        """
        twin = copy(self)
        twin.__dict__.pop("data", None)
        twin._seed = self._seed + turn  # noqa: SLF001 - a copy of itself
        return twin

    def expected_error(self) -> pd.DataFrame:
        rows = [(" x ".join(clique), deviation) for clique, deviation in self._deviations.items()]
        return pd.DataFrame(rows, columns=["marginal", "standard_error_per_cell"])

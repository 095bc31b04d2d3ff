"""The curator's preflight: everything that does not fit, at once, before anything is spent.

``product.check(data)`` reads the private rows with the declarations of the product and says what it found.
It spends nothing, changes nothing and writes nothing. A report is **for the curator only**: its numbers come
from private data. What is declared anew after reading one is a look at the data that ε does not cover.

A product names the columns that it reads, the uses that it makes of a row, and *probes* that look at rows as
a whole: places, windows, users.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
import pandas as pd

from synthgeo.arrays import Ints, Points
from synthgeo.domain.box import SpatialDomain
from synthgeo.domain.coordinates import WGS84, CoordinateReader, crs_text, transform
from synthgeo.errors import InputError
from synthgeo.sources import Source, values
from synthgeo.sources.chunk import Chunk, collecting
from synthgeo.sources.declared import ALIKE, Reading
from synthgeo.sources.fingerprint import Identity
from synthgeo.sources.grid import Grid
from synthgeo.sources.source import Use, bad_rows

Level = Literal["problem", "warning", "note"]

CURATOR_ONLY = (
    "For the curator only: these numbers come from private data. What you declare anew after reading them is "
    "outside ε; tell it to publish (after_looking) so that the data card says so."
)
# Rows on which other readings of the coordinates are tried.
_TRIED = 20_000
#: Attended use refuses batches and files of whose rows more than this share were in others.
REPEATED = 0.2
# The share of rows outside that is worth a warning, and the share that another reading must bring inside.
_FEW, _MOST = 0.05, 0.5


@dataclass(frozen=True)
class Finding:
    """One thing that does not fit (``problem``), may be meant (``warning``), or is worth a ``note``."""

    level: Level
    text: str
    column: str | None = None
    rows: int | None = None

    def __str__(self) -> str:
        place = "" if self.column is None else f"column {self.column!r}: "
        return f"{self.level}: {place}{self.text}"


@dataclass(frozen=True)
class CheckReport:
    """What a preflight found. ``ok`` says that nothing is in the way of a run or a fit.

    ``columns`` has a row for each column that is read: how many of its values could be, and their share.
    """

    rows: int
    findings: tuple[Finding, ...]
    columns: pd.DataFrame = field(repr=False)

    @classmethod
    def of_problem(cls, problem: InputError) -> CheckReport:
        """The report on data that cannot even be looked at: a column is missing, a file is no table."""
        return cls(0, (Finding("problem", str(problem)),), _columns({}, {}, 0))

    @property
    def ok(self) -> bool:
        """Whether there is no problem; warnings and notes do not count."""
        return not self.problems

    @property
    def problems(self) -> list[Finding]:
        """The findings that stand in the way."""
        return [finding for finding in self.findings if finding.level == "problem"]

    @property
    def verdict(self) -> str:
        """The report in a few words."""
        if not self.ok:
            return "NOT READY"
        warnings = sum(finding.level == "warning" for finding in self.findings)
        words = {0: "", 1: ", but read the warning"}.get(warnings, f", but read the {warnings} warnings")
        return f"ready{words}"

    def require(self) -> None:
        """``InputError`` with all problems in one message, if there are any."""
        if self.problems:
            raise InputError("; ".join(str(finding).partition(": ")[2] for finding in self.problems))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "for_the_curator_only": True,
            "ok": self.ok,
            "rows": self.rows,
            "columns": self.columns.to_dict(orient="records"),
            "findings": [vars(finding) for finding in self.findings],
        }

    def __str__(self) -> str:
        head = f"{self.rows:,} rows read; {self.verdict}"
        found = [f"  {finding}" for finding in self.findings] or ["  nothing to remark"]
        return "\n".join([head, self.columns.to_string(index=False), *found, CURATOR_ONLY])

    def _repr_html_(self) -> str:
        from html import escape

        found = "".join(f"<li>{escape(str(finding))}</li>" for finding in self.findings)
        return (
            f"<p><b>{self.rows:,} rows</b>, {self.verdict}</p>"
            f"{self.columns.to_html(index=False)}<ul>{found}</ul><p>{escape(CURATOR_ONLY)}</p>"
        )


_SAID = {"space": "white space or the coding of accents", "case": "case", "zeros": "leading zeros"}


class Probe(Protocol):
    """Looks at all rows, chunk by chunk, and says what it found."""

    def add(self, chunk: Chunk) -> None:
        """Take the next rows. Values that cannot be read are the uses' business."""
        ...

    def findings(self) -> Iterable[Finding]:
        """What the rows seen so far add up to."""
        ...


def preflight(
    source: Source,
    kinds: Mapping[str, str],
    uses: Sequence[Use],
    probes: Sequence[Probe] = (),
    *,
    files: Sequence[str | os.PathLike[str]] = (),
    same_persons: bool = False,
) -> CheckReport:
    """Read all rows once, and report what does not fit.

    ``kinds`` says what each column is asked for; ``files``, where there are several, are compared with each
    other (``repeated_files``).
    """
    missing = [name for name in kinds if not source.has(name)]
    if missing:
        text = f"is not there; {source.described(list(kinds))}"
        found = tuple(Finding("problem", text, column=name) for name in missing)
        return CheckReport(0, found, _columns({}, {}, 0))
    counts: dict[tuple[str | None, str], int] = {}
    places: dict[tuple[str | None, str], str] = {}
    rows = 0
    alike = [AlikeIds(name, source.reading.ids) for name, kind in kinds.items() if kind == "id"]
    every = [*probes, *alike]
    for chunk in source.chunks(list(kinds)):
        rows += chunk.rows
        for column, wrong, text, _ in bad_rows(chunk, uses):
            counts[column, text] = counts.get((column, text), 0) + len(wrong)
            places.setdefault((column, text), chunk.where(int(wrong[0])))
        for probe in every:
            probe.add(chunk)
    level: Level = "warning" if source.reading.bad_rows == "drop" else "problem"
    findings = [
        Finding(level, f"{share(number, rows)}: {text} (first: {places[column, text]})", column, number)
        for (column, text), number in counts.items()
    ]
    if level == "problem" and counts and max(counts.values()) < rows:
        text = 'rows that cannot be read can be left out: Reading(bad_rows="drop"), or --bad-rows drop'
        findings.append(Finding("note", text))
    if not rows:
        findings.append(Finding("problem", "there are no rows", rows=0))
    for probe in every:
        findings += probe.findings()
    findings += repeated_files(files, kinds, source.reading, same_persons=same_persons)
    bad = {name: sum(n for (column, _), n in counts.items() if column == name) for name in kinds}
    return CheckReport(rows, tuple(findings), _columns(kinds, bad, rows))


def share(number: int, rows: int) -> str:
    """A number of rows and their share, in words."""
    if number == rows:
        return "every row" if rows > 1 else "the only row"
    return f"{number:,} row{'s' if number > 1 else ''} ({number / max(rows, 1):.1%})"


def _columns(kinds: Mapping[str, str], bad: Mapping[str, int], rows: int) -> pd.DataFrame:
    table = [
        (name, kind, rows - bad[name], round(1 - bad[name] / rows, 4) if rows else np.nan)
        for name, kind in kinds.items()
    ]
    return pd.DataFrame(table, columns=["column", "read as", "good values", "share"])


def repeated_files(
    files: Sequence[str | os.PathLike[str]],
    kinds: Mapping[str, str],
    reading: Reading,
    *,
    same_persons: bool = False,
) -> Iterator[Finding]:
    """Files with the same records, whatever they are called, or with more than a public share of rows that
    are in another one; empty ones. Nothing is dropped for it: an equal row may be another person's.

    Each file is read once. ``same_persons``: who answers alike twice has equal rows, which tell nothing.
    """
    from synthgeo.sources import open_source

    known: dict[str, Identity] = {}
    key = secrets.token_bytes(16)
    for file in files if len(files) > 1 else ():
        name = os.fspath(file)
        try:
            found = open_source(name, reading=reading).identified(kinds, key=key).identity
        except InputError:  # bad rows were found above
            continue
        if not found.records:
            yield Finding("warning", f"{name} is empty; as a batch it is a step all the same", rows=0)
            continue
        assert found.sample is not None
        same = next((old for old in known if known[old].fingerprint == found.fingerprint), None)
        if same is not None:
            yield Finding("problem", f"{name} holds the same records as {same}")
            continue
        for old, other in known.items():
            assert other.sample is not None
            both = max(found.sample.repeated(other.sample), other.sample.repeated(found.sample))
            if both > REPEATED and not same_persons:
                text = f"{name} and {old} share some {both:.0%} of the rows of one: these would pay twice"
                yield Finding("problem", text)
        known[name] = found


@dataclass
class Places:
    """Whether rows lie in the domain, and if not, whether another reading of the columns puts them there."""

    reader: CoordinateReader
    domain: SpatialDomain
    _rows: int = 0
    _outside: int = 0
    _tried: list[Points] = field(default_factory=list)

    def add(self, chunk: Chunk) -> None:
        with collecting():
            if len(self.reader.columns) == 1:
                raw = values.points(chunk, self.reader.columns[0])
            else:
                found = [values.numbers(chunk, name, booleans=False) for name in self.reader.columns]
                raw = np.column_stack(found)
        raw = raw[np.isfinite(raw).all(axis=1)]
        self._rows += len(raw)
        self._outside += len(raw) - int(self._inside(raw, self.reader.source).sum())
        if sum(map(len, self._tried)) < _TRIED:
            self._tried.append(raw[:_TRIED])

    def findings(self) -> Iterable[Finding]:
        if not self._outside:
            return
        where = f"the {self.domain.kind} domain"
        column = self.reader.columns[0]
        if self._outside > _FEW * self._rows:
            better = self._better_reading()
            if better is not None:
                yield Finding("problem", better, column, self._outside)
                return
        if self._outside == self._rows:
            text = "every row lies outside " + where + ": is it the right place, and the right CRS?"
            yield Finding("problem", text, column, self._outside)
            return
        level: Level = "warning" if self._outside > _FEW * self._rows else "note"
        yield Finding(level, f"{share(self._outside, self._rows)} outside {where}", column, self._outside)

    def _inside(self, raw: Points, source: Any) -> np.ndarray:
        xy = raw if source is None or source == self.reader.target else transform(raw, source, self._target)
        inside = np.zeros(len(xy), dtype=bool)
        good = np.isfinite(xy).all(axis=1)
        inside[good] = self.domain.contains(xy[good])
        return inside

    @property
    def _target(self) -> Any:
        return self.reader.target or crs_text(self.domain.crs)

    def _better_reading(self) -> str | None:
        """Another reading that puts most rows into the domain, in words."""
        raw = np.concatenate(self._tried)[:_TRIED]
        as_is = self._inside(raw, self.reader.source).mean()
        names = " and ".join(repr(name) for name in self.reader.columns)
        tried: list[tuple[float, str]] = []
        turned = self._inside(raw[:, ::-1], self.reader.source).mean()
        tried.append((float(turned), f"{names} look swapped, in the columns or in the bounds"))
        if self.domain.crs is not None:
            for name in self._other_systems():
                inside = self._inside(raw, name).mean()
                tried.append((float(inside), f"{names} look like {name}"))
                inside = self._inside(raw[:, ::-1], name).mean()
                tried.append((float(inside), f"{names} look like {name}, and swapped"))
        best, words = max(tried, key=lambda pair: pair[0])
        if best < _MOST or best < 2 * as_is:
            return None
        return f"{words}: read so, {best:.0%} of the rows lie in the domain, as declared {as_is:.0%}"

    def _other_systems(self) -> list[str]:
        """Coordinate systems that people use around here, but for the one that was declared."""
        assert self.domain.crs is not None
        minx, miny, maxx, maxy = self.domain.bounds
        middle = np.array([[(minx + maxx) / 2, (miny + maxy) / 2]])
        lon, lat = transform(middle, self._target, WGS84)[0]
        known = ["EPSG:4326", "EPSG:3857", self._target]
        if np.isfinite([lon, lat]).all() and abs(lat) <= 90:
            zone = int((lon + 180) // 6) % 60 + 1
            known.append(f"EPSG:{(32600 if lat >= 0 else 32700) + zone}")
        declared = self.reader.source or self._target
        return [name for name in dict.fromkeys(known) if name != declared]


@dataclass
class Windows:
    """How many rows are in which window of a public grid."""

    time: str
    grid: Grid
    _before: int = 0
    _after: int = 0
    _counts: Any = None

    def add(self, chunk: Chunk) -> None:
        if self._counts is None:
            self._counts = np.zeros(self.grid.size, dtype=np.int64)
        with collecting():
            found = values.times(chunk, self.time).astype("datetime64[us]")
        found = found[~np.isnat(found)]
        window = self.grid.window_of(found)
        self._before += int((found.astype(np.int64) < self.grid.edges[0]).sum())
        self._after += int((found.astype(np.int64) >= self.grid.edges[-1]).sum())
        self._counts += np.bincount(window[window >= 0], minlength=self.grid.size)

    def findings(self) -> Iterable[Finding]:
        if self._counts is None:
            return
        inside = int(self._counts.sum())
        rows = inside + self._before + self._after
        first, last = self.grid.starts[0], self.grid.starts[-1]
        if rows and not inside:
            side = "before" if not self._after else "after" if not self._before else "before or after"
            text = f"every row lies {side} the windows from {first} on: is it the right year, and format?"
            yield Finding("problem", text, self.time, rows)
            return
        for number, side in ((self._before, f"before {first}"), (self._after, "after the last window")):
            if number:
                level: Level = "warning" if number > _FEW * rows else "note"
                text = f"{share(number, rows)} {side}: they belong to no step"
                yield Finding(level, text, self.time, number)
        empty = int((self._counts == 0).sum())
        if empty:
            text = f"{empty} of {self.grid.size} windows ({first} to {last}) are empty: steps all the same"
            yield Finding("note" if empty < self.grid.size / 2 else "warning", text, self.time)


@dataclass
class Users:
    """How many users have more events than the bound, and how many events that cuts off."""

    column: str
    bound: int
    things: str = "events"
    who: str = "users"
    period: Callable[[Chunk], Ints] | None = None  # of each row, -1 for rows in none; the bound is for each
    remark: str = ""
    op: str | None = None  # the column that says which rows delete: these are not counted
    _counts: dict[tuple[int, ...], int] = field(default_factory=dict)

    def add(self, chunk: Chunk) -> None:
        with collecting():
            users = values.ids(chunk, self.column)
            period = np.zeros(len(users.high), np.int64) if self.period is None else self.period(chunk)
            here = period >= 0
            if self.op is not None:
                here &= values.operations(chunk, self.op) != -1
        if not here.any():
            return
        rows = np.rec.fromarrays([users.high[here], users.low[here], period[here]])
        found, numbers = np.unique(rows, return_counts=True)
        for user, number in zip(found.tolist(), numbers.tolist(), strict=True):
            self._counts[user] = self._counts.get(user, 0) + number

    def findings(self) -> Iterable[Finding]:
        numbers = np.fromiter(self._counts.values(), dtype=np.int64)
        if not len(numbers):
            return
        above = int((numbers > self.bound).sum())
        if above:
            cut = int(np.maximum(numbers - self.bound, 0).sum())
            text = (
                f"{above:,} of {len(numbers):,} {self.who} have more than {self.bound} {self.things}; "
                f"{cut / numbers.sum():.1%} of all {self.things} are left out{self.remark}"
            )
            level: Level = "warning" if cut > 0.25 * numbers.sum() else "note"
            yield Finding(level, text, self.column, cut)
        if len(numbers) == numbers.sum() and self.bound > 1:
            text = f"nobody has more than one of the {self.things}: is it the column of users?"
            yield Finding("warning", text, self.column)


@dataclass
class AlikeIds:
    """How many ids differ only by white space, by case or by leading zeros."""

    column: str
    rule: tuple[str, ...]
    _distinct: dict[tuple[str, ...], Any] = field(default_factory=dict)

    def add(self, chunk: Chunk) -> None:
        if getattr(getattr(chunk[self.column], "dtype", None), "kind", "O") != "O":
            return  # numbers are written in one way
        with collecting() as refusals:
            values.ids(chunk, self.column)
        good = np.ones(chunk.rows, dtype=bool)
        for _, rows, _, _ in refusals.found:
            good[rows] = False
        wider = [(*self.rule, more) for more in ALIKE if more not in self.rule]
        for rule in (self.rule, *wider, _without_space(self.rule)):
            with collecting():
                found = values.ids(chunk, self.column, alike=rule).take(good)
            pairs = np.rec.fromarrays([found.high, found.low])
            self._distinct[rule] = np.unique(np.concatenate([self._distinct.get(rule, pairs[:0]), pairs]))

    def findings(self) -> Iterable[Finding]:
        if not self._distinct:
            return
        number = {rule: len(found) for rule, found in self._distinct.items()}
        own = number[self.rule]
        for more in ALIKE:
            less = own - number.get((*self.rule, more), own)
            if less:
                text = (
                    f"{less:,} of {own:,} ids differ from another one only by {_SAID[more]}, and are others: "
                    f"ids= says what tells none apart (--ids {','.join([*self.rule, more])})"
                )
                yield Finding("warning", text, self.column, less)
        joined = number[_without_space(self.rule)] - own
        if joined:
            text = f"{joined:,} ids differ from another one only by {_SAID['space']}, and count as that one"
            yield Finding("note", text, self.column, joined)


def _without_space(rule: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in rule if name != "space")


@dataclass
class UsersOfTrips(Users):
    """How many users have more trips than the bound, where each row is a point of a trip."""

    things: str = "trips"
    trip: str = "trip_id"
    _seen: set[tuple[int, ...]] = field(default_factory=set)

    def add(self, chunk: Chunk) -> None:
        with collecting():
            users, trips = values.ids(chunk, self.column), values.ids(chunk, self.trip)
        if not len(users.high):
            return
        rows = np.unique(np.rec.fromarrays([users.high, users.low, trips.high, trips.low]))
        for row in rows.tolist():
            if row not in self._seen:
                self._seen.add(row)
                self._counts[row[:2]] = self._counts.get(row[:2], 0) + 1


@dataclass(frozen=True)
class PeriodOfRow:
    """The public period that each row is in, by the window of its time; -1 outside of the windows."""

    time: str
    grid: Grid
    periods: Ints  # of each window

    def __call__(self, chunk: Chunk) -> Ints:
        window = self.grid.window_of(values.times(chunk, self.time).astype("datetime64[us]"))
        return np.where(window >= 0, self.periods[window], -1)

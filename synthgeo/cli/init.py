"""``synthgeo init``: a guided start. Asks for the public facts in plain words and writes a release file.

It reads the header of the data, no row. ``--set`` answers any question, so it also runs where nobody can.
"""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from synthgeo.cli.described import Set
from synthgeo.cli.output import emit, say
from synthgeo.errors import ConfigError, SynthGeoError

KINDS = ("points", "table", "panel", "trips")
_SHOWN = 5  # rows that --look shows
_FORMATS = "iso (2026-03-02 14:05), unix, or a format such as %m/%d/%Y %H:%M"
_TOLD = "What is written here is public: answer from what is known without looking at the data."


class Answers:
    """Answers to the questions: from ``--set``, from the keyboard, or from defaults. They become the file."""

    def __init__(self, given: dict[str, Any], *, ask: bool) -> None:
        self.given, self.ask = given, ask
        self.values: dict[str, Any] = {}
        self.comments: dict[str, str] = {}

    def __call__(
        self,
        key: str,
        question: str,
        *,
        default: Any = None,
        check: Callable[[Any], Any] = str,
        optional: bool = False,
    ) -> Any:
        """The answer for ``section.key``, checked; a wrong one from the keyboard is asked for again."""
        if key in self.given:
            return check(self.given.pop(key))
        while self.ask:
            try:
                text = typer.prompt(question, default=default, show_default=bool(default), err=True)
            except typer.Abort:
                raise ConfigError("stopped: nothing was written, nothing was spent") from None
            try:
                return check(str(text).strip())
            except SynthGeoError as problem:
                say(f"  {problem}")
        if default is None and not optional:
            raise ConfigError(f"give --set {key}=...: nobody is here to answer ({question})")
        return None if default is None else check(default)

    def put(self, key: str, value: Any, comment: str | None = None) -> None:
        """Write a value at ``section.key``, with a comment above it."""
        from synthgeo.release_file.text import set_value

        if value is None:
            return
        set_value(self.values, key, value)
        if comment is not None:
            self.comments[key] = comment

    def text(self) -> str:
        """The release file."""
        from synthgeo.release_file.text import set_value, written

        for key, value in self.given.items():
            set_value(self.values, key, value)
        lines, section = [], ""
        for line in written(self.values).splitlines():
            section = line.strip("[]") if line.startswith("[") else section
            name = line.partition(" = ")[0]
            comment = self.comments.get(f"{section}.{name}" if section else name)
            lines += [*([] if comment is None else [f"# {comment}"]), line]
        return "\n".join(lines) + "\n"


def init(
    data: Annotated[
        list[str], typer.Argument(help="The data: CSV, Parquet, GeoParquet; globs. Only a header is read.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", help="The release file to write; default: named like the data.")
    ] = None,
    kind: Annotated[
        str | None, typer.Option("--kind", help="What it is: points, table, panel or trips.")
    ] = None,
    changes: Set = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            "--column",
            help="Of a table or panel: NAME=a,b,c or NAME=0..100 or NAME=skip; ? at the end: may be missing.",
        ),
    ] = None,
    look: Annotated[
        bool, typer.Option("--look", help="Show the first rows: for the curator only, outside ε.")
    ] = False,
    unattended: Annotated[
        bool, typer.Option("--unattended", help="Ask nothing: what is given, and defaults, only.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the release file that is there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Ask for the public facts about files, write a release file, and show the next commands.

    Reads the header of the data and no row (with --look it shows the first ones, to you alone). --set
    section.key=value answers a question, or says what is not asked for.
    """
    from synthgeo.release_file.arrivals import expand
    from synthgeo.release_file.file import ReleaseFile
    from synthgeo.release_file.text import value_of

    first = expand(data)[0]
    target = out or (first if len(data) == 1 and Path(data[0]).exists() else Path("release")).with_suffix(
        ".toml"
    )
    if target.exists() and not force:
        raise ConfigError(f"{target} exists already; --out names another file, --force replaces it")
    if not target.absolute().parent.is_dir():
        raise ConfigError(f"--out: there is no folder {target.parent}")
    given: dict[str, Any] = {}
    for change in changes or []:
        name, equals, value = change.partition("=")
        if not equals:
            raise ConfigError(f"--set must be section.key=value, got {change!r}")
        given[name.strip()] = value_of(value)
    if kind is not None:
        given["kind"] = kind
    answers = Answers(given, ask=not unattended and sys.stdin.isatty())
    header = _Header(first, _reading(given), answers)
    say(f"{first.name} has the columns: {', '.join(header.columns)}")
    say(_TOLD)
    if look:
        header.show_rows()
    chosen = answers("kind", "What is it: points, table, panel or trips?", check=_one_of("kind", KINDS))
    answers.put("kind", chosen)
    answers.put("data.files", _files(data, target), "paths begin at the folder of this file")
    _KIND[chosen](header, answers, column)
    _how_much(answers)
    if chosen == "panel":
        answers.put("privacy.delta", _delta(answers), "the probability that ε does not cover")
    for name, value in header.declared().items():
        answers.put(f"data.reading.{name}", value)
    text = answers.text()
    ReleaseFile.loads(text, path=target).product()
    target.write_text(text, encoding="utf-8")
    say(f"written: {target}")
    if as_json:
        emit({"written": str(target), "kind": chosen})
        return
    say("Next: look for what does not fit, then spend, then hand on:")
    name = f"'{target}'" if " " in str(target) else str(target)
    print(f"synthgeo check {name}\nsynthgeo run {name}\nsynthgeo publish {name} --to {target.stem}-public")


def _files(data: list[str], target: Path) -> Any:
    """The files, as seen from the folder of the release file."""
    folder = target.absolute().parent
    found = []
    for pattern in data:
        path = Path(pattern).absolute()
        found.append(str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path))
    return found[0] if len(found) == 1 else found


def _reading(given: dict[str, Any]) -> Any:
    """How text is read, as ``--set data.reading.NAME`` says."""
    from synthgeo.sources.declared import Reading

    prefix = "data.reading."
    facts = {key.removeprefix(prefix): given.pop(key) for key in list(given) if key.startswith(prefix)}
    if "missing" in facts:
        facts["missing"] = (
            "",
            *([facts["missing"]] if isinstance(facts["missing"], str) else facts["missing"]),
        )
    known = set(Reading().to_dict())
    for name in facts:
        if name not in known:
            raise ConfigError(f"--set: reading has no {name!r}; there are {', '.join(sorted(known))}")
    return Reading(**facts)


class _Header:
    """The columns of the data, and how text is read. No row is read for it."""

    def __init__(self, data: Path, reading: Any, answers: Answers) -> None:
        self.data, self.reading, self._answers = data, reading, answers
        self._is_text = data.suffix.lower() not in (".parquet", ".pq", ".geoparquet", ".geojson", ".gpkg")
        self.columns = self._open()

    def _open(self) -> list[str]:
        from synthgeo.sources import open_source

        try:
            source = open_source(self.data, reading=self.reading)
            names = [str(name) for name in source.columns]
            if any("�" in name for name in names):
                raise ConfigError("the header is not in the encoding that was declared")
        except (SynthGeoError, UnicodeDecodeError) as problem:
            if "encod" not in str(problem) and "UTF-8" not in str(problem):
                raise  # another fault of the header
            if not (self._answers.ask and self._is_text and self.reading.encoding == "utf-8"):
                raise
            say(f"  {problem}")
            encoding = self._answers(
                "data.reading.encoding", "Not UTF-8. Which encoding is it?", default="latin-1"
            )
            self.reading = self.reading.but(encoding=encoding)
            return self._open()
        self.geometry = source.geometry
        return names

    def like(self, *names: str) -> str | None:
        """The column that has one of these names, or ends with one."""
        lower = {column.lower(): column for column in self.columns}
        for name in names:
            found = [column for key, column in lower.items() if key == name or key.endswith(f"_{name}")]
            if found:
                return found[0]
        return None

    def column(self, name: str) -> str:
        """The name of a column; ``ConfigError`` if there is none."""
        if name not in self.columns:
            raise ConfigError(f"there is no column {name!r}; there are {', '.join(self.columns)}")
        return name

    def time_column(self, name: str) -> str | None:
        """A column of times, or nothing; asks how they are written where the file is text."""
        if not name or name == "none":
            return None
        self.column(name)
        if self._is_text and self.reading.time_format == "iso":
            written = self._answers(
                "data.reading.time_format", f"How are times written? {_FORMATS}", default="iso"
            )
            self.reading = self.reading.but(time_format=written)
        return name

    def numbers(self) -> None:
        """Ask how numbers are written, where the file is text and nobody has said."""
        if not (
            self._is_text
            and self._answers.ask
            and self.reading.decimal == "."
            and self.reading.thousands is None
        ):
            return
        written = self._answers(
            "data.reading.decimal",
            "How are numbers written: 1234.5, 1,234.5, 1234,5 or 1.234,5?",
            default="1234.5",
            check=_one_of("decimal", tuple(_NUMBERS)),
        )
        decimal, thousands = _NUMBERS[written]
        self.reading = self.reading.but(decimal=decimal, thousands=thousands)

    def declared(self) -> dict[str, Any]:
        """What differs from the usual way to read text, as options."""
        from synthgeo.sources.declared import Reading

        usual = Reading()
        names = ("delimiter", "quote", "decimal", "thousands", "encoding", "time_format", "tz")
        found = {name: getattr(self.reading, name) for name in names}
        missing = [word for word in self.reading.missing if word not in usual.missing]
        declared = {name: value for name, value in found.items() if value != getattr(usual, name)}
        return declared | ({"missing": missing} if missing else {})

    def show_rows(self) -> None:
        """The first rows, to the curator alone."""
        from synthgeo.sources import open_source

        say("FOR THE CURATOR ONLY: what you declare because of these rows is outside ε")
        source = open_source(self.data, reading=self.reading)
        names = [name for name in source.columns if name != source.geometry]
        chunk = next(iter(source.chunks(names)), None)
        shown = 0 if chunk is None else min(_SHOWN, chunk.rows)
        columns = [_texts(chunk[name])[:shown] for name in names] if chunk is not None else []
        for row in zip(*columns, strict=True):
            say("  " + " | ".join(row))


def _texts(values: Any) -> list[str]:
    from synthgeo.sources.text_column import TextColumn

    found = values.strings()[0].to_pylist() if isinstance(values, TextColumn) else values.tolist()
    return [str(value) for value in found]


_NUMBERS = {"1234.5": (".", None), "1,234.5": (".", ","), "1234,5": (",", None), "1.234,5": (",", ".")}


def _one_of(name: str, choices: tuple[str, ...]) -> Callable[[Any], str]:
    def check(text: Any) -> str:
        if text not in choices:
            raise ConfigError(f"{name} is one of {', '.join(choices)}, not {text!r}")
        return str(text)

    return check


def _points(header: _Header, answers: Answers, columns: list[str] | None) -> None:
    _no_columns(columns)
    _where(header, answers)
    time = _time(header, answers)
    if time is not None:
        _windows(answers, default="1D")
    if _who(header, answers, "one event") and "op" not in header.columns:
        answers.put(
            "method.deletions", False, "rows only insert, so each takes one of these places and not two"
        )


def _trips(header: _Header, answers: Answers, columns: list[str] | None) -> None:
    _no_columns(columns)
    _where(header, answers)
    guess = header.like("trip_id", "trip")
    question = "Which column tells trips apart?"
    answers.put("columns.trip", answers("columns.trip", question, default=guess, check=header.column))
    _time(header, answers)
    _who(header, answers, "one whole trip", bound="max_trajectories")


def _table(header: _Header, answers: Answers, columns: list[str] | None) -> None:
    _schema(header, answers, columns, without=set(), bins="auto")
    _who(header, answers, "one row")


def _panel(header: _Header, answers: Answers, columns: list[str] | None) -> None:
    guess = header.like("person_id", "user_id", "pid", "person", "user", "id")
    question = "Which column tells persons apart?"
    persons = answers("columns.user", question, default=guess, check=header.column)
    wave = _waves(header, answers)
    time = None if wave is not None else _time(header, answers, "none: each file is one wave")
    if time is not None:
        _windows(answers, default="1MS")
    _schema(header, answers, columns, without={persons, wave, time})
    answers.put("columns.user", persons, "whose each row is; this column is not released")
    number = answers.values.get("time", {}).get("waves", [])
    question = "In how many waves does a person count at most? They share the budget"
    most = answers(
        "privacy.unit.max_events", question, default=str(len(number)) if number else None, check=_whole
    )
    answers.put("privacy.unit", {"of": "user", "max_events": most})


_KIND = {"points": _points, "table": _table, "panel": _panel, "trips": _trips}


def _no_columns(columns: list[str] | None) -> None:
    if columns:
        raise ConfigError("--column is for tables and panels")


def _where(header: _Header, answers: Answers) -> None:
    """The domain, and the columns of places."""
    files = [key for key in ("place.land", "place.roads") if key in answers.given]
    crs = None
    if files:
        answers.put(files[0], answers(files[0], ""), "where: a public file")
    else:
        crs = answers(
            "place.crs", "Where: which coordinate system will the bounds be in?", default="EPSG:4326"
        )
        question = "Where: the bounds, minx,miny,maxx,maxy (west, south, east, north)?"
        bounds = answers("place.bounds", question, check=lambda text: _bounds(text, crs))
        answers.put("place.bounds", bounds, "west, south, east, north; from a map, not from the data")
        answers.put("place.crs", crs)
    if header.geometry is not None:
        return
    guess = (header.like("lon", "lng", "long", "longitude", "x"), header.like("lat", "latitude", "y"))
    x = answers("columns.x", "Which column holds x or longitude?", default=guess[0], check=header.column)
    y = answers("columns.y", "Which column holds y or latitude?", default=guess[1], check=header.column)
    answers.put("columns.x", x, "the columns of places, and their coordinate system")
    answers.put("columns.y", y)
    usual = "EPSG:4326" if crs is None or (guess[0] or "").lower() not in ("x", "") else crs
    question = "Which coordinate system are these columns in?"
    answers.put("columns.crs", answers("columns.crs", question, default=usual, check=_crs))
    header.numbers()


def _bounds(text: Any, crs: str) -> list[float]:
    from synthgeo.domain.box import BoxDomain

    try:
        numbers = [float(part) for part in (text.split(",") if isinstance(text, str) else text)]
    except (ValueError, TypeError):
        numbers = []
    if len(numbers) != 4:
        raise ConfigError(f"bounds are four numbers, minx,miny,maxx,maxy; got {text!r}")
    BoxDomain(*numbers, crs=crs)
    return numbers


def _crs(text: Any) -> str:
    from synthgeo.domain.coordinates import parse_crs

    parse_crs(text)
    return str(text)


def _time(header: _Header, answers: Answers, otherwise: str = "none: there is no time") -> str | None:
    """The column of times."""
    guess = header.like("time", "timestamp", "datetime", "date") or "none"
    question = f"Which column holds times ({otherwise})?"
    found: str | None = answers("columns.time", question, default=guess, check=header.time_column)
    answers.put("columns.time", found)
    return found


def _windows(answers: Answers, *, default: str) -> None:
    """The public windows of time: how long, from when, until when."""
    from synthgeo.sources.grid import check_grid

    def step(text: Any) -> str:
        check_grid(text, None, None)
        return str(text)

    def moment(text: Any) -> str:
        check_grid("1D", str(text), None)
        return str(text)

    def last(text: Any) -> str | None:
        if text == "none":
            return None
        check_grid(every, start, str(text))
        return str(text)

    every = answers(
        "time.every", "One release for every how long (1h, 6h, 1D, 1W, 1MS)?", default=default, check=step
    )
    start = answers("time.start", "When does the first window start (a public date)?", check=moment)
    end = answers(
        "time.end", "When does the last window end (none: the clock closes one after the other)?",
        default="none", check=last,
    )  # fmt: skip
    answers.put("time.every", every, "a release for each window, which is public")
    answers.put("time.start", start)
    answers.put("time.end", end)


def _waves(header: _Header, answers: Answers) -> str | None:
    """How a panel's file is cut into waves by names."""
    if "columns.time" in answers.given:
        return None

    def column(text: Any) -> str | None:
        return None if text == "none" else header.column(text)

    guess = header.like("wave", "round", "month", "year") or "none"
    question = "Which column names the wave of each row (none: by times, or each file is one)?"
    wave: str | None = answers("columns.wave", question, default=guess, check=column)
    if wave is not None:
        question = "Which waves are there, in order (1..12, or names with commas)?"
        answers.put("columns.wave", wave)
        answers.put(
            "time.waves", answers("time.waves", question, check=_names), "the waves, which are public"
        )
    return wave


def _names(text: Any) -> list[str]:
    """The names of waves: a range of whole numbers, or names with commas.

    >>> _names("1..3"), _names("spring, autumn")
    (['1', '2', '3'], ['spring', 'autumn'])
    """
    from synthgeo.sources.waves import wave_names

    if isinstance(text, list):
        return wave_names(text)
    low, dots, high = str(text).partition("..")
    if not dots:
        return wave_names([name.strip() for name in str(text).split(",") if name.strip()])
    try:
        return wave_names(range(int(low), int(high) + 1))
    except ValueError:
        raise ConfigError(f"waves are whole numbers such as 1..12, or names; got {text!r}") from None


def _who(header: _Header, answers: Answers, record: str, *, bound: str = "max_events") -> bool:
    """The privacy unit; whether people are protected and not records."""
    named = {"columns.user", f"privacy.unit.{bound}"} & set(answers.given)
    question = f"Who is protected: record ({record}), or user (everything of one person, up to a bound)?"
    protect = answers(
        "privacy.unit.of", question, default="user" if named else "record",
        check=_one_of("unit.of", ("record", "user")),
    )  # fmt: skip
    if protect == "record":
        return False
    guess = header.like("user_id", "user", "person_id", "id")
    user = answers("columns.user", "Which column tells people apart?", default=guess, check=header.column)
    things = "trips" if bound == "max_trajectories" else "rows"
    question = (
        f"How many {things} of one person count at most? More is left out; twice the bound is twice the noise"
    )
    most = answers(f"privacy.unit.{bound}", question, check=_whole)
    answers.put("columns.user", user, "whose each row is; this column is not released")
    answers.put("privacy.unit", {"of": "user", bound: most}, "everything of one person, up to a bound")
    return True


def _whole(text: Any) -> int:
    from synthgeo import validate

    try:
        return validate.whole(int(text), "it", low=1)
    except ValueError:
        raise ConfigError(f"this is a whole number, not {text!r}") from None


def _how_much(answers: Answers) -> None:
    """The budget, with what it means."""
    meanings = "; ".join(f"{value:g}: {_odds(value):.0%}" for value in (0.1, 0.5, 1, 2, 4))
    say(f"ε says how far the release can move even odds (50 %) about one contribution: {meanings}.")

    def check(text: Any) -> float:
        from synthgeo.privacy.budget import PrivacyBudget

        try:
            return PrivacyBudget(float(text)).epsilon
        except ValueError:
            raise ConfigError(f"ε is a number, not {text!r}") from None

    chosen = answers("privacy.epsilon", "ε?", default="1", check=check)
    answers.put(
        "privacy.epsilon", chosen, f"even odds about one contribution become at most {_odds(chosen):.0%}"
    )


def _odds(epsilon: float) -> float:
    return 1 / (1 + math.exp(-epsilon))


def _delta(answers: Answers) -> float:
    from synthgeo.privacy.budget import PrivacyBudget

    def check(text: Any) -> float:
        try:
            return PrivacyBudget(1.0, float(text)).delta
        except ValueError:
            raise ConfigError(f"δ is a number, not {text!r}") from None

    question = "δ (0: pure ε; over many waves a δ such as 1e-9 is far more accurate)?"
    return float(answers("privacy.delta", question, default="1e-9", check=check))


def _schema(
    header: _Header,
    answers: Answers,
    given: list[str] | None,
    *,
    without: set[str | None],
    bins: Any = None,
) -> None:
    """What each column of a table can hold; those that are something else are not asked for."""
    known = dict(text.partition("=")[::2] for text in given or [])
    for name in known:
        header.column(name)
    header.numbers()
    if answers.ask and not known:
        say("For each column: values with commas (F,M), a range (0..100, 2020-01-01..2021-01-01), or skip.")
        say("0..99.99 has two decimals. Values that hold a comma stand in quotes. A ? at the end: values may")
        say("be missing. Values and ranges are public: from a codebook, say.")
    columns: dict[str, Any] = {}
    for name in header.columns:
        if name in without:
            continue
        key = f"--column {name}"
        if name in known:
            answers.given[key] = known[name]
        facts = answers(key, f"{name}?", check=_column)
        if facts is None:
            continue
        if facts["type"] in ("date", "datetime"):
            header.time_column(name)
        if facts["type"] == "numeric" and bins is not None:
            facts["bins"] = bins
        columns[name] = facts
    if not columns:
        raise ConfigError("a table needs at least one column that is not skipped")
    answers.values["schema"] = columns


def _column(text: str) -> dict[str, Any] | None:
    """The facts of a column, as a release file has them; None for one to leave out."""
    from synthgeo.schema.table import column_from_json

    if text == "skip":
        return None
    missing = text.endswith("?")
    text = text.removesuffix("?").strip()
    low, dots, high = (part.strip() for part in text.partition(".."))
    facts: dict[str, Any]
    if not dots:
        values = [part.strip() for part in next(csv.reader([text], skipinitialspace=True), [])]
        facts = {"type": "categorical", "values": [value for value in values if value]}
    else:
        try:
            facts = {"type": "numeric", "low": float(low), "high": float(high)}
            decimals = max(len(part.partition(".")[2]) for part in (low, high))
            facts |= {"decimals": decimals} if decimals else {"integer": True}
        except ValueError:
            day = all(len(part) == len("2026-01-01") for part in (low, high))
            facts = {"type": "date" if day else "datetime", "start": low, "end": high}
            facts |= {} if day else {"parts": ["date", "hour"]}
    facts |= {"missing": True} if missing else {}
    column_from_json(facts)
    return facts

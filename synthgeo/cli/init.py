"""``synthgeo init``: a guided start. Asks for the public facts in plain words and writes them down.

It reads the header of the data, no row. Every question has a flag, so it also runs where nobody can answer.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from synthgeo.cli.options import Bounds, Crs, Epsilon, Land, MaxDistance, MaxEvents, Roads, User, X, XyCrs, Y
from synthgeo.cli.output import say
from synthgeo.cli.panel import MaxWaves, Wave, Waves, names_of
from synthgeo.cli.reading import with_reading
from synthgeo.cli.stream import End, Every, Start, Time
from synthgeo.errors import ConfigError, SynthGeoError

KINDS = ("points", "table", "panel", "trips")
_SHOWN = 5  # rows that --look shows
_FORMATS = "iso (2026-03-02 14:05), unix, or a format such as %m/%d/%Y %H:%M"
_TOLD = "What is written here is public: answer from what is known without looking at the data."


class Answers:
    """Answers to the questions: from flags, from the keyboard, or from defaults."""

    def __init__(self, *, ask: bool) -> None:
        self.ask = ask

    def __call__(
        self,
        given: Any,
        flag: str,
        question: str,
        *,
        default: Any = None,
        check: Callable[[str], Any] = str,
    ) -> Any:
        """The answer, checked; an answer from the keyboard that is refused is asked for again."""
        if given is not None:
            return check(given)
        while self.ask:
            text = typer.prompt(question, default=default, show_default=default not in (None, ""), err=True)
            try:
                return check(str(text).strip())
            except SynthGeoError as problem:
                say(f"  {problem}")
        if default is None:
            raise ConfigError(f"give {flag}: nobody is here to answer ({question})")
        return check(default)


@with_reading
def init(
    data: Annotated[
        Path, typer.Argument(help="The data: CSV, Parquet, GeoParquet. Only its header is read.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", help="The TOML file to write; default: the data's name.")
    ] = None,
    kind: Annotated[
        str | None, typer.Option("--kind", help="What it is: points, table, panel or trips.")
    ] = None,
    bounds: Bounds = None,
    crs: Crs = None,
    land: Land = None,
    roads: Roads = None,
    max_distance: MaxDistance = 50.0,
    x: X = None,
    y: Y = None,
    xy_crs: XyCrs = None,
    trip: Annotated[
        str | None, typer.Option("--trip", help="Of trips: the column that tells them apart.")
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            "--column",
            help="Of a table or panel: NAME=a,b,c or NAME=0..100 or NAME=skip; ? at the end: may be missing.",
        ),
    ] = None,
    time: Time = None,
    every: Every = None,
    start: Start = None,
    end: End = None,
    wave: Wave = None,
    waves: Waves = None,
    max_waves: MaxWaves = None,
    protect: Annotated[
        str | None, typer.Option("--protect", help="Who is protected: record or user.")
    ] = None,
    user: User = None,
    max_events: MaxEvents = None,
    epsilon: Epsilon = None,
    delta: Annotated[
        float | None, typer.Option("--delta", help="Of a panel: the privacy budget δ; 0 is pure ε.")
    ] = None,
    look: Annotated[
        bool, typer.Option("--look", help="Show the first rows: for the curator only, outside ε.")
    ] = False,
    unattended: Annotated[
        bool, typer.Option("--unattended", help="Ask nothing: flags and defaults only.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there.")] = False,
    reading: Any = None,
) -> None:
    """Ask for the public facts about a file, write them to a TOML file, and show the next command.

    Reads the header of the data and no row (with --look it shows the first ones, to you alone).
    """
    target = out or data.with_suffix(".toml")
    for path in (target, target.with_suffix(".json")):
        if path.exists() and not force:
            raise ConfigError(f"{path} exists already; --out names another file, --force replaces it")
    if not target.absolute().parent.is_dir():
        raise ConfigError(f"--out: there is no folder {target.parent}")
    answers = Answers(ask=not unattended and sys.stdin.isatty())
    header = _Header(data, reading, answers)
    say(f"{data.name} has the columns: {', '.join(header.columns)}")
    say(_TOLD)
    if look:
        header.show_rows()
    chosen = answers(
        kind,
        "--kind",
        "What is it: points, table, panel or trips?",
        check=_one_of("--kind", KINDS),
    )
    lines = _Lines(data, chosen)
    tabular = chosen in ("table", "panel")
    if chosen == "panel":
        persons = _persons(header, answers, user)
        cut = _cut(header, answers, (wave, waves), (time, every, start, end))
        taken = {persons, cut.get("wave"), cut.get("time")}
        schema = _schema(header, answers, column, without=taken)
    elif tabular:
        schema = _schema(header, answers, column)
    if tabular:
        lines.put("schema", str(target.with_suffix(".json")), "what each column can hold")
    else:
        _where(lines, header, answers, (bounds, crs, land, roads, max_distance), (x, y, xy_crs))
        if chosen == "trips":
            lines.put(
                "trip",
                answers(
                    trip,
                    "--trip",
                    "Which column tells trips apart?",
                    default=header.like("trip_id", "trip"),
                    check=header.column,
                ),
            )
    if chosen == "panel":
        _panel(lines, answers, persons, cut, max_waves)
    else:
        _when(lines, header, answers, chosen, (time, every, start, end))
        _who(lines, header, answers, chosen, (protect, user, max_events))
    _how_much(lines, answers, epsilon)
    if chosen == "panel":
        lines.put("delta", _delta(answers, delta), "the probability that ε does not cover")
    for place, (name, value) in enumerate(header.declared().items()):
        lines.put(name, value, None if place else "how the file is written")
    if tabular:
        target.with_suffix(".json").write_text(json.dumps(schema, indent=2, ensure_ascii=False) + "\n")
    target.write_text(lines.text(), encoding="utf-8")
    say(f"written: {target}" + (f" and {target.with_suffix('.json')}" if tabular else ""))
    _next(data, target, chosen)


def _next(data: Path, target: Path, kind: str) -> None:
    """The commands to go on with, on stdout."""
    name = data.stem.replace(" ", "-")
    made = f"runs/{name}" if kind in ("points", "panel") else f"{name}.model"
    fit = {
        "points": f"stream run {made} {_quoted(data)} --config {_quoted(target)}",
        "panel": f"panel run {made} {_quoted(data)} --config {_quoted(target)}",
        "table": f"table fit {_quoted(data)} --config {_quoted(target)} --out {made}",
        "trips": f"trips fit {_quoted(data)} --config {_quoted(target)} --out {made}",
    }[kind]
    say("Next: look for what does not fit, then spend, then hand on:")
    print(f"synthgeo check {fit}\nsynthgeo {fit}\nsynthgeo publish {made} --to {name}-public")


def _quoted(path: Path) -> str:
    text = str(path)
    return f"'{text}'" if " " in text else text


class _Lines:
    """The settings to write, with a comment for each."""

    def __init__(self, data: Path, kind: str) -> None:
        command = {
            "points": "stream run",
            "table": "table fit",
            "panel": "panel run",
            "trips": "trips fit",
        }[kind]
        self._lines = [
            f"# Public facts about {data.name}, for: synthgeo {command} --config",
            "# Flags win over them.",
        ]

    def put(self, name: str, value: Any, comment: str | None = None) -> None:
        if value is None:
            return
        if comment is not None:
            self._lines += ["", f"# {comment}"]
        self._lines.append(f"{name.replace('_', '-')} = {json.dumps(value, ensure_ascii=False)}")

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"


class _Header:
    """The columns of the data, and how text is read. No row is read for it."""

    def __init__(self, data: Path, reading: Any, answers: Answers) -> None:
        if not data.exists():
            raise ConfigError(f"there is no file {data}")
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
            if not (self._answers.ask and self._is_text and self.reading.encoding == "utf-8"):
                raise
            say(f"  {problem}")
            encoding = self._answers(
                None, "--encoding", "Not UTF-8. Which encoding is it?", default="latin-1"
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
                None, "--time-format", f"How are times written? {_FORMATS}", default="iso"
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
            None,
            "--decimal",
            "How are numbers written: 1234.5, 1,234.5, 1234,5 or 1.234,5?",
            default="1234.5",
            check=_one_of("--decimal", tuple(_NUMBERS)),
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


def _one_of(flag: str, choices: tuple[str, ...]) -> Callable[[str], str]:
    def check(text: str) -> str:
        if text not in choices:
            raise ConfigError(f"{flag} is one of {', '.join(choices)}, not {text!r}")
        return text

    return check


def _where(
    lines: _Lines,
    header: _Header,
    answers: Answers,
    domain: tuple[str | None, str | None, Path | None, Path | None, float],
    columns: tuple[str | None, str | None, str | None],
) -> None:
    """The domain, and the columns of places."""
    from synthgeo.cli.options import domain_of

    bounds, crs, land, roads, distance = domain
    if land is None and roads is None:
        crs = answers(
            crs, "--crs", "Where: which coordinate system will the bounds be in?", default="EPSG:4326"
        )

        def checked(text: str) -> str:
            domain_of(text, crs, None, None, distance)
            return text

        question = "Where: the bounds, minx,miny,maxx,maxy (west, south, east, north)?"
        bounds = answers(bounds, "--bounds", question, check=checked)
        lines.put("bounds", bounds, "where: west, south, east, north; from a map, not from the data")
        lines.put("crs", crs)
    else:
        domain_of(bounds, crs, land, roads, distance)
        lines.put("land", None if land is None else str(land), "where: public polygons")
        lines.put("roads", None if roads is None else str(roads), "where: a public road network")
        lines.put("max_distance", None if roads is None else distance)
    x, y, xy_crs = columns
    if header.geometry is not None:
        return
    guess = (header.like("lon", "lng", "long", "longitude", "x"), header.like("lat", "latitude", "y"))
    x = answers(x, "--x", "Which column holds x or longitude?", default=guess[0], check=header.column)
    y = answers(y, "--y", "Which column holds y or latitude?", default=guess[1], check=header.column)
    lines.put("x", x, "the columns of places, and their coordinate system")
    lines.put("y", y)
    default = "EPSG:4326" if crs is None or (guess[0] or "").lower() not in ("x", "") else crs
    lines.put(
        "xy_crs",
        answers(
            xy_crs, "--xy-crs", "Which coordinate system are these columns in?", default=default, check=_crs
        ),
    )
    header.numbers()


def _crs(text: str) -> str:
    from synthgeo.domain.crs import parse_crs

    parse_crs(text)
    return text


def _when(
    lines: _Lines,
    header: _Header,
    answers: Answers,
    kind: str,
    given: tuple[str | None, str | None, str | None, str | None],
) -> None:
    """The column of times; for points the public windows too."""
    time, *grid = given
    if kind == "table":
        return
    guess = header.like("time", "timestamp", "datetime", "date") or "none"
    time = answers(
        time,
        "--time",
        "Which column holds times (none: there is no time)?",
        default=guess,
        check=header.time_column,
    )
    if time is None:
        return
    lines.put("time", time, "when")
    if kind == "points":
        for name, value in _windows(answers, grid, default="1D").items():
            lines.put(name, value)


def _windows(answers: Answers, given: list[str | None], *, default: str) -> dict[str, str]:
    """The public windows of time: how long, from when, until when."""
    from synthgeo.sources.grid import check_grid

    every, start, end = given

    def step(text: str) -> str:
        check_grid(text, None, None)
        return text

    def moment(text: str) -> str:
        check_grid("1D", text, None)
        return text

    def last(text: str) -> str:
        check_grid(every or "1D", start, text)
        return text

    every = answers(
        every, "--every", "One release for every how long (1h, 6h, 1D, 1W, MS)?", default=default, check=step
    )
    start = answers(start, "--start", "When does the first window start (a public date)?", check=moment)
    end = answers(end, "--end", "When does the last window end?", check=last)
    return {"every": every, "start": start, "end": end}


def _persons(header: _Header, answers: Answers, user: str | None) -> str:
    """The column that tells the persons of a panel apart."""
    guess = header.like("person_id", "user_id", "pid", "person", "user", "id")
    found = answers(user, "--user", "Which column tells persons apart?", default=guess, check=header.column)
    return str(found)


def _cut(
    header: _Header,
    answers: Answers,
    given: tuple[str | None, str | None],
    grid: tuple[str | None, str | None, str | None, str | None],
) -> dict[str, Any]:
    """How a panel's file is cut into waves: by names, by times, or not at all."""
    wave, waves = given
    time, *windows = grid

    def column(text: str) -> str | None:
        return None if text == "none" else header.column(text)

    if time is None:
        guess = header.like("wave", "round", "month", "year") or "none"
        question = "Which column names the wave of each row (none: by times, or each file is one)?"
        wave = answers(wave, "--wave", question, default=guess, check=column)
    if wave is not None:
        question = "Which waves are there, in order (1..12, or names with commas)?"
        return {"wave": wave, "waves": answers(waves, "--waves", question, check=_names)}
    guess = header.like("time", "timestamp", "datetime", "date") or "none"
    question = "Which column holds times (none: each file is one wave)?"
    time = answers(time, "--time", question, default=guess, check=header.time_column)
    return {} if time is None else {"time": time, **_windows(answers, windows, default="1MS")}


def _names(text: str) -> str:
    names_of(text)
    return text


def _panel(lines: _Lines, answers: Answers, persons: str, cut: dict[str, Any], max_waves: int | None) -> None:
    """How a panel's waves are told apart, and in how many a person counts."""
    for place, (name, value) in enumerate(cut.items()):
        lines.put(name, value, None if place else "the waves, which are public")
    lines.put("user", persons, "who is protected: all answers of one person, in so many waves")
    default = str(len(names_of(cut["waves"]))) if "waves" in cut else None
    question = "In how many waves does a person count at most? They share the budget"
    given = None if max_waves is None else str(max_waves)
    lines.put(
        "max_waves", answers(given, "--max-waves", question, default=default, check=_whole("--max-waves"))
    )


def _delta(answers: Answers, delta: float | None) -> float:
    from synthgeo.privacy.budget import PrivacyBudget

    def check(text: Any) -> float:
        try:
            return PrivacyBudget(1.0, float(text)).delta
        except ValueError:
            raise ConfigError(f"--delta is a number, not {text!r}") from None

    question = "δ (0: pure ε; over many waves a δ such as 1e-9 is far more accurate)?"
    return float(answers(delta, "--delta", question, default="1e-9", check=check))


def _who(
    lines: _Lines,
    header: _Header,
    answers: Answers,
    kind: str,
    given: tuple[str | None, str | None, int | None],
) -> None:
    """The privacy unit."""
    protect, user, most = given
    record = {"points": "one event", "table": "one row", "trips": "one whole trip"}[kind]
    if protect is None and user is not None:
        protect = "user"
    question = f"Who is protected: record ({record}), or user (everything of one person, up to a bound)?"
    protect = answers(
        protect, "--protect", question, default="record", check=_one_of("--protect", ("record", "user"))
    )
    if protect == "record":
        return
    guess = header.like("user_id", "user", "person_id", "id")
    user = answers(user, "--user", "Which column tells people apart?", default=guess, check=header.column)
    thing = "trips" if kind == "trips" else "rows"
    most = answers(
        None if most is None else str(most),
        "--max-events",
        f"How many {thing} of one person count at most? More is left out; twice as many is twice the noise",
        check=_whole("--max-events"),
    )
    lines.put("user", user, "who is protected: everything of one person, up to a bound")
    lines.put("max_trips" if kind == "trips" else "max_events", most)
    if kind == "points" and "op" not in header.columns:
        lines.put("no_deletions", True, "rows only insert, so each takes one of these places and not two")


def _whole(flag: str) -> Callable[[str], int]:
    from synthgeo import validate

    def check(text: str) -> int:
        try:
            return validate.whole(int(text), flag, low=1)
        except ValueError:
            raise ConfigError(f"{flag} is a whole number, not {text!r}") from None

    return check


def _how_much(lines: _Lines, answers: Answers, epsilon: float | None) -> None:
    """The budget, with what it means."""
    meanings = "; ".join(f"{value:g}: {_odds(value):.0%}" for value in (0.1, 0.5, 1, 2, 4))
    say(f"ε says how far the release can move even odds (50 %) about one contribution: {meanings}.")

    def check(text: Any) -> float:
        from synthgeo.privacy.budget import PrivacyBudget

        try:
            return PrivacyBudget(float(text)).epsilon
        except ValueError:
            raise ConfigError(f"--epsilon is a number, not {text!r}") from None

    chosen = answers(epsilon, "--epsilon", "ε?", default="1", check=check)
    lines.put("epsilon", chosen, f"even odds about one contribution become at most {_odds(chosen):.0%}")


def _odds(epsilon: float) -> float:
    return 1 / (1 + math.exp(-epsilon))


def _schema(
    header: _Header, answers: Answers, given: list[str] | None, *, without: set[str | None] | None = None
) -> dict[str, Any]:
    """What each column of a table can hold; those that are something else are not asked for."""
    known = dict(text.partition("=")[::2] for text in given or [])
    for name in known:
        header.column(name)
    header.numbers()
    if answers.ask and not known:
        say("For each column: values with commas (F,M), a range (0..100, 2020-01-01..2021-01-01), or skip.")
        say("A ? at the end: values may be missing. Values and ranges are public: from a codebook, say.")
    columns: dict[str, Any] = {}
    for name in header.columns:
        if name in (without or ()):
            continue
        facts = answers(known.get(name), f"--column {name}=...", f"{name}?", check=_column)
        if facts is None:
            continue
        if facts["type"] == "datetime":
            header.time_column(name)
        columns[name] = facts
    if not columns:
        raise ConfigError("a table needs at least one column that is not skipped")
    from synthgeo.schema import Schema

    Schema.from_json({"columns": columns})
    return {"columns": columns}


def _column(text: str) -> dict[str, Any] | None:
    """The facts of a column, as a schema file has them; None for one to leave out."""
    from synthgeo.schema.table import column_from_json

    if text == "skip":
        return None
    missing = text.endswith("?")
    text = text.removesuffix("?").strip()
    low, dots, high = text.partition("..")
    if not dots:
        values = [part.strip() for part in text.split(",") if part.strip()]
        facts: dict[str, Any] = {"type": "categorical", "values": values}
    else:
        try:
            numbers = float(low), float(high)
            whole = all(part.strip().lstrip("-").isdigit() for part in (low, high))
            facts = {"type": "numeric", "low": numbers[0], "high": numbers[1]} | (
                {"integer": True} if whole else {}
            )
        except ValueError:
            facts = {"type": "datetime", "start": low.strip(), "end": high.strip(), "parts": ["date", "hour"]}
    facts |= {"missing": True} if missing else {}
    column_from_json(facts)
    return facts

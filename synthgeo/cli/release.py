"""``synthgeo run`` and its like: what is done with a release file."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from synthgeo.cli import one_off
from synthgeo.cli.check import show as show_report
from synthgeo.cli.options import Json, given
from synthgeo.cli.output import emit, say, show_facts, show_table, warn_not_publishable
from synthgeo.cli.table import conditions, write_release
from synthgeo.cli.trips import place_of, write_trips
from synthgeo.errors import ConfigError
from synthgeo.release import write_csv

if TYPE_CHECKING:
    from synthgeo.preflight import CheckReport
    from synthgeo.release_file.file import ReleaseFile

File = Annotated[Path, typer.Argument(help="The release file (TOML).")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="section.key=value, instead of what the file says; may be repeated."),
]


def load(path: Path, changes: list[str] | None = None) -> ReleaseFile:
    """The release file, with what ``--set`` says in place of what it says."""
    import synthgeo as sg
    from synthgeo.release_file.text import value_of

    found: dict[str, Any] = {}
    for change in changes or []:
        name, equals, value = change.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"--set must be section.key=value, got {change!r}")
        found[name.strip()] = value_of(value)
    return sg.ReleaseFile.load(path, changes=found)


def is_release_file(path: Any) -> bool:
    """Whether a path is that of a release file: its name ends with .toml."""
    return str(path).endswith(".toml")


def only_options(context: typer.Context, *known: str) -> None:
    """``ConfigError`` for options that say what a release file says."""
    others = sorted(given(context) - set(known) - {"source", "what", "command"})
    if others:
        option = f"--{others[0].replace('_', '-')}"
        raise ConfigError(f"{option} does not go with a release file, which says it; or give --set")


def run(
    file: File,
    changes: Set = None,
    watch: Annotated[
        Path | None, typer.Option("--watch", help="Take the files of this folder as they arrive.")
    ] = None,
    idle: Annotated[
        float | None, typer.Option("--idle", help="Leave when nothing came for this many seconds.")
    ] = None,
    poll: Annotated[float, typer.Option("--poll", help="Seconds between two looks at the folder.")] = 2.0,
    settle: Annotated[
        float, typer.Option("--settle", help="Seconds a file must rest before it is taken.")
    ] = 2.0,
    no_check: Annotated[
        bool, typer.Option("--no-check", help="Spend without a look at the data: ask about nothing.")
    ] = False,
    allow_repeat: Annotated[
        bool, typer.Option("--allow-repeat", help="Take records of an earlier step as new: they pay again.")
    ] = False,
    allow_clock_back: Annotated[
        bool, typer.Option("--allow-clock-back", help="Go on although the clock is behind the last step.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Release what is new, crash-safe. Run it again every night: where nothing is new it says why.

    The data are looked at before a first release: what does not fit is asked about, or stops the run where
    nobody can answer.
    """
    from synthgeo.release_file.arrivals import Stop

    described = load(file, changes)

    def tell(facts: dict[str, Any]) -> None:
        if "said" in facts:
            say(facts["said"])
        elif as_json:
            emit({name: value for name, value in facts.items() if name != "empty"})
        else:
            done = f"done before, as step {facts['step']}" if facts["repeated"] else f"step {facts['step']}"
            empty = "; the file is empty, and is a step all the same" if facts["empty"] else ""
            say(f"{facts['batch']}: {done}{empty}")

    stop = Stop()
    try:
        ran = described.run(
            confirm=_confirmed if sys.stdin.isatty() else None,
            check=not no_check, watch=watch, idle=idle, poll=poll, settle=settle, stop=stop, tell=tell,
            allow_repeat=allow_repeat, allow_clock_back=allow_clock_back,
        )  # fmt: skip
    finally:
        stop.restore()
    if ran.late:
        say(f"for the curator only: {ran.late} rows came after their window was released; they are left out")
    if as_json:
        spent = None if ran.spent is None else ran.spent.to_dict()
        facts = {"new": ran.new, "steps": ran.steps, "spent": spent, "why": ran.why}
        emit({"folder": str(ran.folder), **facts, "releasable": ran.releasable})
    else:
        print(ran)
    if ran.why_not is not None:
        warn_not_publishable(ran.why_not)


def _confirmed(report: CheckReport) -> bool:
    for finding in report.problems:
        say(str(finding))
    return typer.confirm("Spend the budget on this all the same?", default=False, err=True)


def status(
    file: File,
    changes: Set = None,
    last: Annotated[int, typer.Option("--last", help="How many steps to show; 0 for all.", min=0)] = 20,
    verify: Annotated[
        bool, typer.Option("--verify", help="Also read every release: is it the one that was recorded?")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show what is released, what it cost, what comes next and what is left. Works during a run, too."""
    described = load(file, changes)
    found = described.status()
    verified = described.verify() if verify else None
    if as_json:
        emit({**found.to_dict(), **({} if verified is None else {"verified": verified})})
        return
    print(found)
    if verified is not None:
        print(f"{verified} releases, all as the ledger remembers them")
    if found.steps is not None and len(found.steps):
        columns = ["step", "batch", "time", "epsilon", "epsilon_total", "release"]
        shown = found.steps[columns].tail(last or len(found.steps))
        show_table(columns, shown.itertuples(index=False))


def sample(
    file: File,
    out: Annotated[Path, typer.Option("--out", help="The file to write, such as .parquet or .csv.")],
    number: Annotated[
        int | None,
        typer.Option("--number", "-n", help="How many rows or trips there are to be."),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option("--given", help="COLUMN=VALUE or COLUMN=LOW..HIGH: rows of this kind; may be repeated."),
    ] = None,
    lines: Annotated[
        bool, typer.Option("--lines", help="One row per trip, with its attributes, instead of its points.")
    ] = False,
    start: Annotated[
        str | None, typer.Option("--start", help="X,Y in the domain's CRS: trips start here.")
    ] = None,
    end: Annotated[str | None, typer.Option("--end", help="X,Y in the domain's CRS: trips end here.")] = None,
    hour: Annotated[int | None, typer.Option("--hour", help="Hour of departure, 0 to 23, local.")] = None,
    weekday: Annotated[
        int | None, typer.Option("--weekday", help="Day of departure, 0 (Monday) to 6 (Sunday).")
    ] = None,
    changes: Set = None,
    force: one_off.Force = False,
    as_json: Json = False,
) -> None:
    """Draw a synthetic dataset from what was released. Costs no privacy."""
    described = load(file, changes)
    one_off.check_out(out, force=force, what="sample", paid=False)
    wanted: dict[str, Any] = {
        "start": place_of(start, "--start"), "end": place_of(end, "--end"), "hour": hour, "weekday": weekday,
    }  # fmt: skip
    wanted = {name: value for name, value in wanted.items() if value is not None}
    if wanted and described.kind not in ("trips", "od"):
        raise ConfigError(f"--{next(iter(wanted))} is for trips, not for {described.kind}")
    if where:
        wanted["given"] = conditions(where, described.conditioned())
    release = described.sample(number, **wanted)
    if described.kind in ("trips", "od"):
        write_trips(release, out, lines=lines)
        rows: dict[str, Any] = {"trips": release.total}
    elif described.kind == "households":
        rows = _write_both(release, out, force=force)
    else:
        write_release(release, out)
        rows = {"rows": len(release.data)}
    one_off.show_sample(out, releasable=release.releasable, as_json=as_json, **rows)


def _write_both(release: Any, out: Path, *, force: bool) -> dict[str, int]:
    """Parents and children beside each other, in files of their own."""
    if out.suffix not in (".parquet", ".csv"):
        raise ConfigError("--out: use .parquet or .csv")
    for name, frame in (("parents", release.parents), ("children", release.children)):
        path = out.with_stem(f"{out.stem}-{name}")
        one_off.check_out(path, force=force, what="sample", paid=False)
        if out.suffix == ".csv":
            write_csv(frame, path)
        else:
            frame.to_parquet(path, index=False)
    return {"parents": len(release.parents), "children": len(release.children)}


def schema() -> None:
    """Print the JSON Schema of release files, by which editors complete and check them."""
    from synthgeo.release_file.describe import json_schema

    print(json.dumps(json_schema(), indent=2, ensure_ascii=False))


def beside(words: list[str]) -> tuple[Path, list[str], bool]:
    """A release file, the values of ``--set`` and whether ``--json`` stands beside it: what ``check`` and
    ``plan`` take, which stand in front of other commands too.
    """
    rest, changes, as_json = list(words[1:]), [], False
    while rest:
        word = rest.pop(0)
        if word == "--json":
            as_json = True
        elif word == "--set" and rest:
            changes.append(rest.pop(0))
        elif word.startswith("--set="):
            changes.append(word.removeprefix("--set="))
        else:
            raise ConfigError(f"beside a release file stand --set and --json, not {word}")
    return Path(words[0]), changes, as_json


def check_file(path: Path, changes: list[str], as_json: bool) -> None:
    """``synthgeo check`` of a release file."""
    show_report(load(path, changes).check(), as_json=as_json)


def publish_file(
    path: Path, changes: list[str] | None, *, to: Path | None, force: bool, as_json: bool
) -> None:
    """``synthgeo publish`` of a release file."""
    made = load(path, changes).publish(to, overwrite=force)
    facts = {"folder": str(made.folder), "rows": made.rows, "files": list(made.files)}
    if as_json:
        emit(facts | {"registry_lacks": list(made.missing)})
        return
    rows = ", ".join(f"{number:,} in {name}" for name, number in made.rows.items())
    show_facts("published", facts | {"rows": rows, "files": ", ".join(made.files)})
    if made.missing:
        say(f"the registry's entry is a draft; it lacks {', '.join(made.missing)}")

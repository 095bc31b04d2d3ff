"""``synthgeo run`` and its like: what is done with a release file."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from synthgeo.cli import one_off
from synthgeo.cli.described import File, Set, load
from synthgeo.cli.options import Json
from synthgeo.cli.output import emit, say, show_table, warn_not_publishable
from synthgeo.cli.table import conditions, write_release
from synthgeo.cli.trips import place_of, write_trips
from synthgeo.errors import ConfigError
from synthgeo.release import write_csv

if TYPE_CHECKING:
    from synthgeo.preflight import CheckReport


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


def withdraw(
    file: File,
    reason: Annotated[str, typer.Option("--reason", help="Why: the folder and the card say it.")],
    published: Annotated[
        Path | None, typer.Option("--published", help="The folder that publish made: mark it too.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Mark a release that should not have been published. What it spent stays spent."""
    described = load(file)
    described.withdraw(reason, published=published)
    facts = {"withdrawn": str(described.folder), "published": None if published is None else str(published)}
    if as_json:
        emit(facts)
        return
    print(f"withdrawn: {described.folder}; what it spent stays spent")
    if published is not None:
        print(f"{published} says so: hand on its README.md and WITHDRAWN.json, and sign it again if it was")


def schema() -> None:
    """Print the JSON Schema of release files, by which editors complete and check them."""
    from synthgeo.release_file.describe import json_schema

    print(json.dumps(json_schema(), indent=2, ensure_ascii=False))

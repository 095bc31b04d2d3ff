"""``synthgeo stream``: a spatial stream, released step by step in a durable run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from synthgeo.cli import running
from synthgeo.cli.batches import Stop, arriving, connect, expand, of_files, of_windows
from synthgeo.cli.options import (
    Bounds,
    Config,
    Crs,
    Delta,
    DryRun,
    Epsilon,
    Json,
    Land,
    LedgerPath,
    MaxDistance,
    MaxEvents,
    Roads,
    Seed,
    User,
    X,
    XyCrs,
    Y,
    budget_of,
    domain_of,
    ledger_of,
    noise_of,
    unit_of,
)
from synthgeo.errors import ConfigError

app = typer.Typer(no_args_is_help=True, help="Release points over time, step by step, in a durable run.")
RunFolder = Annotated[Path, typer.Argument(help="Folder of the run: ledger, state and releases.")]
Time = Annotated[str | None, typer.Option("--time", help="Column of times: cut all inputs into windows.")]
Every = Annotated[str | None, typer.Option("--every", help="Length of a window, such as 6h or 1D.")]
Start = Annotated[str | None, typer.Option("--start", help="Where the first window starts (public).")]
End = Annotated[str | None, typer.Option("--end", help="Where the last window ends (public).")]
Watch = Annotated[Path | None, typer.Option("--watch", help="Take the files of this folder as they arrive.")]
Poll = Annotated[float, typer.Option("--poll", help="Seconds between two looks at the folder.")]
Settle = Annotated[float, typer.Option("--settle", help="Seconds a file must rest before it is taken.")]
Idle = Annotated[float | None, typer.Option("--idle", help="Leave when nothing came for so many seconds.")]
Scheduler = Annotated[str | None, typer.Option("--scheduler", help="Address of a dask cluster to count on.")]


@app.command("run")
def run_command(
    run: RunFolder,
    inputs: Annotated[
        list[str] | None, typer.Argument(help="CSV, Parquet, GeoParquet or GeoJSON; globs.")
    ] = None,
    bounds: Bounds = None,
    crs: Crs = None,
    land: Land = None,
    roads: Roads = None,
    max_distance: MaxDistance = 50.0,
    epsilon: Epsilon = None,
    delta: Delta = 0.0,
    user: User = None,
    max_events: MaxEvents = None,
    time: Time = None,
    every: Every = None,
    start: Start = None,
    end: End = None,
    watch: Watch = None,
    poll: Poll = 2.0,
    settle: Settle = 2.0,
    idle: Idle = None,
    x: X = None,
    y: Y = None,
    xy_crs: XyCrs = None,
    depth: Annotated[int, typer.Option("--depth", help="Deepest level of the tree.")] = 20,
    counter: Annotated[str, typer.Option("--counter", help="Counter of the leaves.")] = "auto",
    schedule: Annotated[str, typer.Option("--schedule", help="When the tree is rebuilt.")] = "auto",
    persist: Annotated[
        bool, typer.Option("--persist", help="Living points: keep them from step to step.")
    ] = False,
    parts: Annotated[str, typer.Option("--parts", help="What to store: data, cells, changes.")] = "data",
    scheduler: Scheduler = None,
    seed: Seed = None,
    ledger: LedgerPath = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Release each batch once, crash-safe; start it again and it goes on.

    A batch is one file, or one window of all files with --time and --every, or a file that arrives in
    the folder given by --watch. A new run needs a domain (--bounds, --land or --roads) and --epsilon; a
    run that exists remembers them. With --json every step is a line of JSON.
    """
    del config
    check_inputs(inputs, watch, time, every)
    new = running.peek(run) is None
    stream: Any = None
    if new or any(given is not None for given in (bounds, land, roads, epsilon)):
        import synthgeo as sg

        stream = sg.PHDStream(
            domain=domain_of(bounds, crs, land, roads, max_distance),
            budget=budget_of(epsilon, delta),
            unit=unit_of(user, max_events),
            max_depth=depth,
            counter=counter,
            schedule=schedule,
            persist=persist,
            x=x,
            y=y,
            crs=xy_crs,
            noise=noise_of(seed),
        )
    book = ledger_of(ledger)
    files = expand(inputs or [])
    if dry_run:
        facts = {} if stream is None else _facts(stream)
        names = planned_names(files, time, every, start, end)
        running.show_plan(run, facts, names, book, as_json=as_json)
        return
    stored = _parts_of(parts, persist=persist) if new else None
    if new:
        running.check_columns(stream, files, time)
    stop = Stop()
    client = connect(scheduler)
    try:
        with _open(run, stream, stored, book) as opened:
            if watch is not None:
                batches = arriving(watch, stop, done=opened.batches, poll=poll, settle=settle, idle=idle)
            elif time is not None and every is not None:
                batches = of_windows(files, scheduler, time=time, every=every, start=start, end=end)
            else:
                batches = of_files(files, scheduler)
            total = len(files) if watch is None and time is None else None
            running.run_batches(opened, batches, stop, as_json=as_json, total=total)
    finally:
        stop.restore()
        if client is not None:
            client.close()


@app.command()
def status(run: RunFolder, as_json: Json = False) -> None:
    """Show what the run has spent on which batch, when. Works while the run is going on."""
    running.show_status(run, as_json=as_json)


@app.command()
def verify(run: RunFolder, as_json: Json = False) -> None:
    """Check that every release on disk is the one in the ledger."""
    running.verify(run, as_json=as_json)


def _parts_of(text: str, *, persist: bool) -> tuple[str, ...]:
    parts = tuple(part.strip() for part in text.split(","))
    for part in parts:
        if part not in ("data", "cells", "changes"):
            raise ConfigError(f"--parts: there is no {part!r}; choose from data, cells, changes")
    if "changes" in parts and not persist:
        raise ConfigError("--parts changes goes with --persist: only living points change")
    return parts


def _open(run: Path, stream: Any, parts: tuple[str, ...] | None, ledger: Any) -> Any:
    from streams.durable import StreamRun

    return StreamRun.open(run, stream, parts=parts, ledger=ledger)


def check_inputs(inputs: list[str] | None, watch: Path | None, time: str | None, every: str | None) -> None:
    if (watch is None) == (not inputs):
        raise ConfigError("give input files, or --watch a folder")
    if (time is None) != (every is None):
        raise ConfigError("give --time and --every together, or neither")
    if watch is not None and time is not None:
        raise ConfigError("--watch takes each file as one batch; --time does not go with it")


def _facts(stream: Any) -> dict[str, Any]:
    """The settings of a new stream, public facts."""
    return {
        "mechanism": type(stream).__name__,
        "budget": f"ε = {stream.budget.epsilon:g} for the whole stream, however long",
        "protects": stream.unit.describe(),
        "each event pays": f"at most ε = {stream.epsilon:g}",
        "domain": str(stream.domain),
        "may be published": "yes" if stream.noise.releasable else "no: seeded noise",
    }


def planned_names(
    files: list[Path], time: str | None, every: str | None, start: str | None, end: str | None
) -> list[str]:
    """The batches to come. Without public ends windows depend on the data, which is not read here."""
    if time is None or every is None:
        return [file.name for file in files]
    if start is None or end is None:
        raise ConfigError(
            "a plan of windows needs --start and --end: without them it would read private data"
        )
    from synthgeo.windows import make_grid

    zoned = start.endswith("Z") or "+" in start
    return [stamp.isoformat() for stamp in make_grid(every, start, end, zoned=zoned, column=time).starts]

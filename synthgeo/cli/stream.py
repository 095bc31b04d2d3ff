"""``synthgeo stream``: a spatial stream, released step by step in a durable run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from synthgeo.cli import runs
from synthgeo.cli.batches import Arrivals
from synthgeo.cli.check import NoCheck
from synthgeo.cli.options import (
    H3,
    Bounds,
    Config,
    Crs,
    Delta,
    DryRun,
    Epsilon,
    Inserted,
    Json,
    Land,
    LedgerPath,
    Lifetime,
    MaxDistance,
    MaxEvents,
    NoBorrow,
    NoDeletions,
    Per,
    Roads,
    Seed,
    Times,
    TimesShare,
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
from synthgeo.cli.reading import with_reading
from synthgeo.errors import ConfigError
from synthgeo.release_file.arrivals import Cluster

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
AllowRepeat = Annotated[
    bool,
    typer.Option(
        "--allow-repeat", help="Take records that an earlier batch held as new ones: they pay again."
    ),
]
AllowClockBack = Annotated[
    bool, typer.Option("--allow-clock-back", help="Go on although the clock is behind the last step.")
]
Scheduler = Annotated[str | None, typer.Option("--scheduler", help="Address of a dask cluster to count on.")]
Spark = Annotated[
    str | None,
    typer.Option("--spark", help="Address of Spark to count on: spark://host:7077, yarn, local[4]."),
]
Timeout = Annotated[
    float | None,
    typer.Option("--timeout", help="Seconds that the cluster may take for a batch; then nothing is spent."),
]
UserTable = Annotated[
    Path | None,
    typer.Option(
        "--user-table",
        help="Folder for what a new run remembers about users: many users, or a cluster that sees it too.",
    ),
]

Outside = Annotated[str, typer.Option("--outside", help="Points outside the domain: drop them, or error.")]

# Options that fix what a run promises and releases: the same for its whole life.
_DOMAIN = {"bounds", "crs", "land", "roads", "max_distance", "h3"}
_SETTINGS = runs.SETTINGS | _DOMAIN | {"x", "y", "xy_crs", "outside", "depth", "persist"}


@app.command("run")
@with_reading
def run_command(
    context: typer.Context,
    run: RunFolder,
    inputs: Annotated[
        list[str] | None, typer.Argument(help="CSV, Parquet, GeoParquet or GeoJSON; globs.")
    ] = None,
    bounds: Bounds = None,
    crs: Crs = None,
    land: Land = None,
    roads: Roads = None,
    max_distance: MaxDistance = 50.0,
    h3: H3 = None,
    epsilon: Epsilon = None,
    delta: Delta = 0.0,
    user: User = None,
    max_events: MaxEvents = None,
    per: Per = None,
    lifetime: Lifetime = None,
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
    inserted: Inserted = None,
    times: Times = None,
    times_share: TimesShare = 0.1,
    no_borrow: NoBorrow = False,
    no_deletions: NoDeletions = False,
    outside: Outside = "drop",
    depth: Annotated[int, typer.Option("--depth", help="Deepest level of the tree.")] = 20,
    counter: Annotated[str, typer.Option("--counter", help="Counter of the leaves.")] = "auto",
    schedule: Annotated[str, typer.Option("--schedule", help="When the tree is rebuilt.")] = "auto",
    persist: Annotated[
        bool, typer.Option("--persist", help="Living points: keep them from step to step.")
    ] = False,
    parts: Annotated[str, typer.Option("--parts", help="What to store: data, cells, changes.")] = "data",
    scheduler: Scheduler = None,
    spark: Spark = None,
    timeout: Timeout = None,
    user_table: UserTable = None,
    allow_repeat: AllowRepeat = False,
    allow_clock_back: AllowClockBack = False,
    no_check: NoCheck = False,
    seed: Seed = None,
    ledger: LedgerPath = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    config: Config = None,
    reading: Any = None,
) -> None:
    """Release each batch once, crash-safe; start it again and it goes on.

    A batch is one file, or one window of all files with --time and --every, or a file that arrives in
    the folder given by --watch. A new run needs a domain (--bounds, --land or --roads) and --epsilon; a
    run that exists remembers them, and how its batches were cut, and refuses others. With --json every step
    is a line of JSON.
    """
    del config
    arrivals = Arrivals(
        inputs, watch, time, every, start, end, poll, settle, idle, Cluster.of(scheduler, spark, timeout)
    )
    option = runs.RunSettings(context, run, "PHDStream", _options)
    stream: Any = None
    if option.needed(_SETTINGS):
        import synthgeo as sg

        place = (bounds, crs, land, roads, max_distance, h3)
        stream = sg.PHDStream(
            domain=option.known["domain"] if option.kept(_DOMAIN) else domain_of(*place),
            budget=budget_of(option("epsilon", epsilon), option("delta", delta)),
            unit=unit_of(option("user", user), option("max_events", max_events), option("per", per)),
            lifetime=option.lifetime(lifetime, arrivals),
            deletions=False if option("no_deletions", no_deletions) else None,
            columns=sg.ColumnNames(
                x=option("x", x),
                y=option("y", y),
                crs=option("xy_crs", xy_crs),
                inserted=option("inserted", inserted),
            ),
            reading=option.reading(reading),
            settings=sg.PointSettings(
                times=option("times", times),
                times_share=option("times_share", times_share),
                borrow=runs.borrow_of(option("no_borrow", no_borrow)),
                max_depth=option("depth", depth),
                counter=option("counter", counter),
                schedule=option("schedule", schedule),
                persist=option("persist", persist),
                outside=option("outside", outside),
            ),
            noise=option.known["noise"] if option.kept({"seed"}) else noise_of(seed),
        )
        if user_table is not None:
            stream.store_users(user_table)
    book = ledger_of(ledger)
    if dry_run:
        facts = {} if stream is None else _facts(stream)
        runs.show_plan(run, option.run, facts, arrivals, book, as_json=as_json)
        return
    runs.go_on(
        run,
        option.run,
        stream,
        arrivals,
        ledger=book,
        as_json=as_json,
        parts=None if option.kept({"parts"}) else _parts_of(parts, persist=option("persist", persist)),
        allow_repeat=allow_repeat,
        allow_clock_back=allow_clock_back,
        no_check=no_check,
    )


@app.command()
def status(
    run: RunFolder,
    last: Annotated[int, typer.Option("--last", help="How many steps to show; 0 for all.", min=0)] = 20,
    as_json: Json = False,
) -> None:
    """Show what the run has spent on which batch, when. Works while the run is going on.

    With --json it shows all steps.
    """
    runs.show_status(run, last=last, as_json=as_json)


@app.command()
def verify(
    run: RunFolder,
    deep: Annotated[bool, typer.Option("--deep", help="Read the files of all releases.")] = False,
    as_json: Json = False,
) -> None:
    """Check ledger, state and releases: that every file is the one that the ledger remembers.

    Of a long run the files of the last 1,000 releases are read, and the others have to be there; with
    --deep all are read.
    """
    runs.verify(run, deep=deep, as_json=as_json)


@app.command()
def compact(
    run: RunFolder,
    keep_every: Annotated[
        int, typer.Option("--keep-every", help="Keep every so many releases, and the last.")
    ],
    as_json: Json = False,
) -> None:
    """Remove stored releases that nobody needs any more; the ledger keeps its row for each of them."""
    runs.compact(run, keep_every, as_json=as_json)


def _options(stream: Any) -> dict[str, Any]:
    """The options that a stream was made with."""
    return runs.common_options(stream) | {
        "domain": stream.domain,
        "depth": stream.settings.max_depth,
        "persist": stream.settings.persist,
        "x": stream.columns.x,
        "y": stream.columns.y,
        "xy_crs": stream.columns.crs,
        "outside": stream.settings.outside,
    }


def _parts_of(text: str, *, persist: bool) -> tuple[str, ...]:
    parts = tuple(part.strip() for part in text.split(","))
    for part in parts:
        if part not in ("data", "cells", "changes"):
            raise ConfigError(f"--parts: there is no {part!r}; choose from data, cells, changes")
    if "changes" in parts and not persist:
        raise ConfigError("--parts changes goes with --persist: only living points change")
    return parts


def _facts(stream: Any) -> dict[str, Any]:
    """The settings of a new stream, public facts."""
    return {
        "mechanism": type(stream).__name__,
        "budget": f"ε = {stream.budget.epsilon:g} for the whole stream, however long",
        "protects": stream.unit.describe(),
        "each event pays": f"at most ε = {stream.epsilon:g}",
        **({} if stream.lifetime is None else {"a release holds": f"the last {stream.lifetime} steps"}),
        "domain": str(stream.domain),
        "may be published": "yes" if stream.noise.releasable else "no: seeded noise",
    }

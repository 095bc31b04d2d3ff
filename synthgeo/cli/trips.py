"""``synthgeo trips``: synthetic trajectories."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from synthgeo.cli import one_off, runs
from synthgeo.cli.batches import Arrivals
from synthgeo.cli.check import NoCheck, before_fit, only, skipped
from synthgeo.cli.options import (
    Bounds,
    Config,
    Crs,
    DryRun,
    Epsilon,
    Json,
    Land,
    LedgerPath,
    Lifetime,
    MaxDistance,
    Per,
    Roads,
    Seed,
    X,
    XyCrs,
    Y,
    budget_of,
    domain_of,
    ledger_of,
    noise_of,
    number_or_text,
)
from synthgeo.cli.plan import planned
from synthgeo.cli.reading import with_reading
from synthgeo.cli.stream import (
    AllowClockBack,
    AllowRepeat,
    End,
    Every,
    Idle,
    Poll,
    RunFolder,
    Scheduler,
    Settle,
    Spark,
    Start,
    Timeout,
    Watch,
)
from synthgeo.cli.table import conditions, schema_of
from synthgeo.errors import ConfigError
from synthgeo.release_file.arrivals import Cluster, connected, expand, read

app = typer.Typer(no_args_is_help=True, help="Synthetic trips on roads or on a plane.")
User = Annotated[
    str | None,
    typer.Option("--user", help="Protect users: the column that tells them apart. Needs --max-trips."),
]
Pair = Annotated[
    str | None, typer.Option(help="Two columns, LON,LAT: for trips that are known by their ends only.")
]


Attributes = Annotated[
    Path | None,
    typer.Option("--attributes", help="JSON schema of what else the rows say of each trip: fare, vehicle."),
]
Workers = Annotated[
    int | None,
    typer.Option("--workers", help="Processes for large files of trips; default: one for each core."),
]


@app.command()
@with_reading
def fit(
    data: Annotated[list[str], typer.Argument(help="Points of trips: CSV, Parquet or GeoParquet; globs.")],
    out: Annotated[Path | None, typer.Option("--out", help="Where to write the model.")] = None,
    force: one_off.Force = False,
    no_check: NoCheck = False,
    bounds: Bounds = None,
    crs: Crs = None,
    land: Land = None,
    roads: Roads = None,
    max_distance: MaxDistance = 50.0,
    epsilon: Epsilon = None,
    user: User = None,
    max_trips: Annotated[
        int | None, typer.Option("--max-trips", help="Keep at most this many trips of each user.")
    ] = None,
    trip: Annotated[str, typer.Option("--trip", help="Column that tells trips apart.")] = "trip_id",
    time: Annotated[
        str | None, typer.Option("--time", help="Column of times; default: time, if there.")
    ] = None,
    x: X = None,
    y: Y = None,
    xy_crs: XyCrs = None,
    origin: Pair = None,
    destination: Pair = None,
    departure: Annotated[str | None, typer.Option("--departure", help="Column of departure times.")] = None,
    arrival: Annotated[str | None, typer.Option("--arrival", help="Column of arrival times.")] = None,
    weights: Annotated[
        str, typer.Option("--weights", help="uniform, or more weight to the ends.")
    ] = "uniform",
    length: Annotated[str, typer.Option("--length", help="How long walks are: killed or median.")] = "killed",
    max_speed: Annotated[
        float | None,
        typer.Option("--max-speed", help="Cap in km/h; default: 130 on roads, elsewhere by released paces."),
    ] = None,
    depth: Annotated[int, typer.Option("--depth", help="Deepest level of the tree.")] = 20,
    attributes: Attributes = None,
    workers: Workers = None,
    scheduler: Scheduler = None,
    spark: Spark = None,
    timeout: Timeout = None,
    seed: Seed = None,
    ledger: LedgerPath = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    config: Config = None,
    reading: Any = None,
) -> None:
    """Fit a model to trips and spend the budget; ``trips sample`` draws from the model for free."""
    del config
    import synthgeo as sg

    synthesizer = sg.TrajectorySynthesizer(
        domain=domain_of(bounds, crs, land, roads, max_distance),
        budget=budget_of(epsilon, 0.0),
        unit=_unit_of(user, max_trips),
        settings=sg.TripSettings(
            weights=weights,  # type: ignore[arg-type]
            length=length,  # type: ignore[arg-type]
            max_speed=max_speed,
            max_depth=depth,
        ),
        attributes=None if attributes is None else schema_of(attributes),
        workers=workers,
        reading=reading,
        noise=noise_of(seed),
        ledger=ledger_of(ledger),
    )
    files = expand(data)
    if dry_run:
        one_off.show_plan(synthesizer, files, as_json=as_json, domain=str(synthesizer.domain))
        return
    if planned(synthesizer, as_json=as_json):
        return
    if not only():
        target = one_off.check_out(out, force=force)
    cluster = Cluster.of(scheduler, spark, timeout)
    with connected(cluster):
        points = read(files, cluster, reading)
        options: dict[str, Any] = {
            "trip": trip,
            "time": time,
            "x": x,
            "y": y,
            "crs": xy_crs,
            "origin": _pair(origin, "--origin"),
            "destination": _pair(destination, "--destination"),
            "departure": departure,
            "arrival": arrival,
        }
        look = partial(synthesizer.check, points if cluster else [str(file) for file in files], **options)
        skip = skipped(reading, no_check=no_check or cluster is not None)
        if before_fit(look, skip=skip, as_json=as_json):
            return
        one_off.fit_and_save(synthesizer, target, lambda: synthesizer.fit(points, **options), as_json=as_json)


# Options that fix what a run promises and releases: the same for its whole life.
_DOMAIN = {"bounds", "crs", "land", "roads", "max_distance"}
_COLUMNS = {"trip", "time", "x", "y", "xy_crs"}
_SETTINGS = (runs.SETTINGS - {"max_events", "counter", "schedule", "delta"}) | _DOMAIN | _COLUMNS
_SETTINGS |= {"max_trips", "depth", "no_borrow", "attributes"}


@app.command("run")
@with_reading
def run_command(
    context: typer.Context,
    run: RunFolder,
    inputs: Annotated[
        list[str] | None, typer.Argument(help="Points of trips: CSV, Parquet or GeoParquet; globs.")
    ] = None,
    bounds: Bounds = None,
    crs: Crs = None,
    land: Land = None,
    roads: Roads = None,
    max_distance: MaxDistance = 50.0,
    epsilon: Epsilon = None,
    user: User = None,
    max_trips: Annotated[
        int | None, typer.Option("--max-trips", help="Keep at most this many trips of each user.")
    ] = None,
    per: Per = None,
    lifetime: Lifetime = None,
    trip: Annotated[str, typer.Option("--trip", help="Column that tells trips apart.")] = "trip_id",
    time: Annotated[str, typer.Option("--time", help="Column of times.")] = "time",
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
    no_borrow: Annotated[
        bool, typer.Option("--no-borrow", help="Estimate each batch by itself, not with earlier releases.")
    ] = False,
    attributes: Attributes = None,
    workers: Workers = None,
    parts: Annotated[
        str | None,
        typer.Option(
            "--parts",
            help="What to store: data, trips, lines; default: data, and trips if they have attributes.",
        ),
    ] = None,
    scheduler: Scheduler = None,
    spark: Spark = None,
    timeout: Timeout = None,
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
    """Release synthetic trips after each batch, crash-safe; start it again and it goes on.

    A batch is one file, or with --every one window of all files (a trip is in the window of its last point),
    or a file that arrives in the folder given by --watch. Each trip is measured once, in its own batch, with
    all of --epsilon. A new run needs a domain and --epsilon; a run that exists remembers its options.
    """
    del config
    cut = None if every is None else time
    cluster = Cluster.of(scheduler, spark, timeout)
    arrivals = Arrivals(inputs, watch, cut, every, start, end, poll, settle, idle, cluster)
    option = runs.RunSettings(context, run, "TrajectoryStream", _options)
    stream: Any = None
    if option.needed(_SETTINGS):
        import synthgeo as sg

        place = (bounds, crs, land, roads, max_distance)
        lives = option.lifetime(lifetime, arrivals)
        schema = None if attributes is None else schema_of(attributes)
        stream = sg.TrajectoryStream(
            domain=option.known["domain"] if option.kept(_DOMAIN) else domain_of(*place),
            budget=budget_of(option("epsilon", epsilon), 0.0),
            unit=_unit_of(option("user", user), option("max_trips", max_trips), option("per", per)),
            lifetime=lives,
            settings=sg.TripSettings(
                borrow=lives is not None and not option("no_borrow", no_borrow),
                max_depth=option("depth", depth),
            ),
            columns=sg.ColumnNames(
                trip=option("trip", trip),
                time=option("time", time),
                x=option("x", x),
                y=option("y", y),
                crs=option("xy_crs", xy_crs),
            ),
            attributes=option("attributes", schema),
            workers=workers,
            reading=option.reading(reading),
            noise=option.known["noise"] if option.kept({"seed"}) else noise_of(seed),
        )
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
        parts=None if parts is None else _parts_of(parts),
        allow_repeat=allow_repeat,
        allow_clock_back=allow_clock_back,
        no_check=no_check,
    )


def _options(stream: Any) -> dict[str, Any]:
    """The options that a stream was made with."""
    known = runs.common_options(stream)
    return known | {
        "domain": stream.domain,
        "max_trips": known["max_events"],
        "depth": stream.max_depth,
        "no_borrow": stream.lifetime is not None and not stream.borrow,
        "trip": stream.columns["trip"],
        "time": stream.columns["time"],
        "x": stream.columns["x"],
        "y": stream.columns["y"],
        "xy_crs": stream.columns["crs"],
        "attributes": stream.attributes,
    }


def _parts_of(text: str) -> tuple[str, ...]:
    parts = tuple(part.strip() for part in text.split(","))
    for part in parts:
        if part not in ("data", "trips", "lines"):
            raise ConfigError(f"--parts: there is no {part!r}; choose from data, trips, lines")
    return parts


def _facts(stream: Any) -> dict[str, Any]:
    """The settings of a new stream, public facts."""
    return {
        "mechanism": type(stream).__name__,
        "budget": f"ε = {stream.budget.epsilon:g} for the whole stream, however many batches",
        "protects": stream.unit.describe(),
        "each trip pays": f"at most ε = {stream.epsilon:g}, in its own batch",
        **({} if stream.lifetime is None else {"a release holds": _lives(stream.lifetime)}),
        "domain": str(stream.domain),
        "may be published": "yes" if stream.noise.releasable else "no: seeded noise",
    }


def _lives(lifetime: int) -> str:
    return "the last batch" if lifetime == 1 else f"the last {lifetime} batches"


@app.command()
def sample(
    model: Annotated[Path, typer.Argument(help="A model that ``trips fit`` wrote.")],
    out: Annotated[
        Path,
        typer.Option("--out", help="File to write: .parquet, .csv, .gpkg, .geojson, .gpx, .json (deck.gl)."),
    ],
    force: one_off.Force = False,
    number: Annotated[
        int | None, typer.Option("--number", "-n", help="How many trips; default: the released total.")
    ] = None,
    lines: Annotated[
        bool, typer.Option("--lines", help="One row per trip, with its attributes, instead of its points.")
    ] = False,
    start: Annotated[str | None, typer.Option("--start", help="X,Y in the domain's CRS: start here.")] = None,
    end: Annotated[str | None, typer.Option("--end", help="X,Y in the domain's CRS: end here.")] = None,
    hour: Annotated[int | None, typer.Option("--hour", help="Hour of departure, 0 to 23, local.")] = None,
    weekday: Annotated[
        int | None, typer.Option("--weekday", help="Day of departure, 0 (Monday) to 6 (Sunday).")
    ] = None,
    week: Annotated[
        str | None, typer.Option("--week", help="First day of the week of the times: 2026-05-04.")
    ] = None,
    interval: Annotated[
        float | None, typer.Option("--interval", help="Seconds between two points; default: as in the data.")
    ] = None,
    spacing: Annotated[
        float | None, typer.Option("--spacing", help="Metres between two points, instead of seconds.")
    ] = None,
    given: Annotated[
        list[str] | None,
        typer.Option("--given", help="NAME=VALUE of an attribute: trips that go with it. May be repeated."),
    ] = None,
    crs: Annotated[
        str | None, typer.Option("--crs", help="CRS of the file; default: lon and lat if the data came so.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Draw synthetic trips from a fitted model. Costs no privacy; Parquet is written in bounded memory."""
    import synthgeo as sg

    one_off.check_out(out, force=force, what="trips", paid=False)
    fitted = sg.TrajectorySynthesizer.load(model)
    chosen: dict[str, Any] = {
        "start": place_of(start, "--start"),
        "end": place_of(end, "--end"),
        "hour": hour,
        "weekday": weekday,
        "week": week,
        "interval": interval,
        "spacing": spacing,
        "crs": crs,
    }
    if given:
        if fitted.attributes is None:
            raise ConfigError("--given: this model was fitted without attributes (trips fit --attributes)")
        chosen["given"] = conditions(given, fitted.attributes)
    if number is None:
        number = fitted.total
    elif number < 1:
        raise ConfigError(f"--number must be at least 1, got {number}")
    if out.suffix == ".parquet" and not lines:
        fitted.sample_to_parquet(out, number, **chosen)
    else:
        write_trips(fitted.sample(number, **chosen), out, lines=lines)
    one_off.show_sample(out, releasable=fitted.noise.releasable, as_json=as_json, trips=number)


def write_trips(release: Any, out: Path, *, lines: bool) -> None:
    """Write trips in the format that the file's name asks for."""
    if lines and out.suffix == ".parquet":
        release.lines_to_parquet(out)
    elif out.suffix == ".gpkg":
        release.to_gpkg(out)
    elif out.suffix == ".geojson":
        release.to_geojson(out)
    elif out.suffix == ".gpx":
        release.to_gpx(out)
    elif out.suffix == ".json":
        release.to_trips_layer(out)
    elif out.suffix == ".csv" and lines:
        release.trips_to_csv(out)
    elif out.suffix == ".csv":
        release.to_csv(out)
    else:
        raise ConfigError(
            f"--out: cannot write {out.suffix or 'a file without ending'} here; "
            "use .parquet, .csv, .gpkg, .geojson, .gpx or .json"
        )


def _unit_of(user: str | None, max_trips: int | None, per: str | int | None = None) -> Any:
    from synthgeo.privacy.unit import PrivacyUnit

    if (user is None) != (max_trips is None):
        raise ConfigError("give --user and --max-trips together, or neither")
    if user is None or max_trips is None:
        if per is not None:
            raise ConfigError("--per goes with --user and --max-trips")
        return PrivacyUnit.trajectory()
    return PrivacyUnit.user(max_trajectories=max_trips, per=number_or_text(per), key=user)


def _pair(text: str | None, option: str) -> tuple[str, str] | None:
    if text is None:
        return None
    names = tuple(part.strip() for part in text.split(","))
    if len(names) != 2 or not all(names):
        raise ConfigError(f"{option} must name two columns, LON,LAT; got {text!r}")
    return names[0], names[1]


def place_of(text: str | None, option: str) -> tuple[float, float] | None:
    """A place given as X,Y."""
    if text is None:
        return None
    try:
        x, y = (float(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(f"{option} must be two numbers, X,Y; got {text!r}") from None
    return x, y

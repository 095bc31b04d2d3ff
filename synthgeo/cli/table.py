"""``synthgeo table``: synthetic tables, once or as a stream."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from synthgeo.cli import one_off, runs
from synthgeo.cli.batches import Arrivals
from synthgeo.cli.check import NoCheck, before_fit, only, skipped
from synthgeo.cli.options import (
    Config,
    Delta,
    DryRun,
    Epsilon,
    Inserted,
    Json,
    LedgerPath,
    Lifetime,
    MaxEvents,
    NoBorrow,
    NoDeletions,
    Per,
    Seed,
    Times,
    TimesShare,
    User,
    budget_of,
    ledger_of,
    noise_of,
    unit_of,
)
from synthgeo.cli.output import emit, for_owner_only, say, show_table, words
from synthgeo.cli.plan import planned
from synthgeo.cli.reading import with_reading
from synthgeo.cli.schema_draft import check_filled_in, draft
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
    Time,
    Timeout,
    UserTable,
    Watch,
)
from synthgeo.errors import ConfigError
from synthgeo.release_file.arrivals import Cluster, expand

if TYPE_CHECKING:
    from synthgeo.schema import Schema
    from synthgeo.schema.columns import Column

app = typer.Typer(no_args_is_help=True, help="Synthetic tables: one-off, or as a stream in a durable run.")
SchemaFile = Annotated[
    Path | None, typer.Option("--schema", help="JSON file with the public facts about the columns.")
]


@app.command()
@with_reading
def schema(
    path: Annotated[
        list[str], typer.Argument(help="A schema to check (.json), or data to draft a schema for; globs.")
    ],
    out: Annotated[Path | None, typer.Option("--out", help="Where to write the draft.")] = None,
    force: one_off.Force = False,
    values: Annotated[
        bool, typer.Option("--values", help="Draft with the values found: reads private data.")
    ] = False,
    as_json: Json = False,
    reading: Any = None,
) -> None:
    """Check a schema, or draft one from a data file's column names and types.

    A plain draft holds no values: ranges and categories have to be public, so you fill them in from what
    is known without looking at the data. With --values the draft holds the ranges and categories of the
    data, as private as the data are, and is refused as a schema until you have edited it and deleted the
    line that says so.
    """
    if len(path) > 1 or Path(path[0]).suffix != ".json":
        out = one_off.check_out(out, force=force, what="draft", paid=False)
        files = [str(file) for file in expand(path)]
        text = json.dumps(draft(files, values=values, reading=reading), indent=2, ensure_ascii=False) + "\n"
        (for_owner_only(out) if values else out).write_text(text)
        if values:
            say(f"{out}: holds PRIVATE values; keep what is publicly known, then delete its draft line")
        else:
            say(f"{out}: fill in ranges and categories from public knowledge, not from the data")
        return
    found = schema_of(Path(path[0]))
    if as_json:
        emit({"fingerprint": found.fingerprint(), "attributes": found.sizes, "inputs": list(found.inputs)})
        return
    rows = [(name, column.kind, found.sizes.get(name, "")) for name, column in found.columns.items()]
    show_table(["column", "kind", "values"], rows)
    print(f"{len(found.sizes)} attributes, fingerprint {found.fingerprint()}")


@app.command()
@with_reading
def fit(
    data: Annotated[list[str], typer.Argument(help="CSV or Parquet files; globs.")],
    out: Annotated[Path | None, typer.Option("--out", help="Where to write the model.")] = None,
    force: one_off.Force = False,
    no_check: NoCheck = False,
    schema: SchemaFile = None,
    epsilon: Epsilon = None,
    delta: Delta = 0.0,
    user: User = None,
    max_events: MaxEvents = None,
    rounds: Annotated[int | None, typer.Option("--rounds", help="How many marginals to choose.")] = None,
    public_total: Annotated[
        int | None, typer.Option("--public-total", help="The number of rows, where that is public.")
    ] = None,
    seed: Seed = None,
    ledger: LedgerPath = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    config: Config = None,
    reading: Any = None,
) -> None:
    """Fit a model to a table and spend the budget; ``table sample`` draws from the model for free."""
    del config
    import synthgeo as sg

    synthesizer = sg.TabularSynthesizer(
        schema=schema_of(schema),
        budget=budget_of(epsilon, delta),
        unit=unit_of(user, max_events),
        settings=sg.TableSettings(rounds=rounds),
        public_total=public_total,
        reading=reading,
        noise=noise_of(seed),
        ledger=ledger_of(ledger),
    )
    files = [str(file) for file in expand(data)]
    if dry_run:
        one_off.show_plan(synthesizer, files, as_json=as_json, columns=list(synthesizer.schema.columns))
        return
    if planned(synthesizer, as_json=as_json):
        return
    if not only():
        target = one_off.check_out(out, force=force)
    skip = skipped(reading, no_check=no_check)
    if before_fit(lambda: synthesizer.check(files), skip=skip, as_json=as_json):
        return
    one_off.fit_and_save(synthesizer, target, lambda: synthesizer.fit(files), as_json=as_json)


@app.command()
def sample(
    model: Annotated[Path, typer.Argument(help="A model that ``table fit`` wrote.")],
    out: Annotated[Path, typer.Option("--out", help="Parquet or CSV file to write.")],
    force: one_off.Force = False,
    rows: Annotated[
        int | None, typer.Option("--rows", help="How many rows; default: the released number.")
    ] = None,
    given: Annotated[
        list[str] | None,
        typer.Option(
            "--given",
            help="COLUMN=VALUE, COLUMN=LOW..HIGH, COLUMN=X,Y of a place, or COLUMN= for missing values: rows "
            "of this kind only; again for further values.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Draw a synthetic table from a fitted model. Costs no privacy."""
    import synthgeo as sg

    one_off.check_out(out, force=force, what="table", paid=False)
    fitted = sg.TabularSynthesizer.load(model)
    release = fitted.sample(rows, given=conditions(given, fitted.schema) or None)
    write_release(release, out)
    rows_made = len(release.data)
    one_off.show_sample(out, releasable=release.releasable, as_json=as_json, rows=rows_made)


@app.command("stream")
@with_reading
def stream_command(
    context: typer.Context,
    run: RunFolder,
    inputs: Annotated[list[str] | None, typer.Argument(help="CSV or Parquet files; globs.")] = None,
    schema: SchemaFile = None,
    epsilon: Epsilon = None,
    delta: Delta = 0.0,
    user: User = None,
    max_events: MaxEvents = None,
    per: Per = None,
    lifetime: Lifetime = None,
    marginals: Annotated[int, typer.Option("--marginals", help="Marginals measured in a step.")] = 4,
    counter: Annotated[str, typer.Option("--counter", help="Counter of the marginals.")] = "auto",
    schedule: Annotated[str, typer.Option("--schedule", help="When marginals are chosen again.")] = "auto",
    time: Time = None,
    every: Every = None,
    start: Start = None,
    end: End = None,
    watch: Watch = None,
    poll: Poll = 2.0,
    settle: Settle = 2.0,
    idle: Idle = None,
    inserted: Inserted = None,
    times: Times = None,
    times_share: TimesShare = 0.1,
    no_borrow: NoBorrow = False,
    no_deletions: NoDeletions = False,
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
    """Release a table batch by batch in a durable run; ``stream status`` and ``stream verify`` look at it."""
    del config
    arrivals = Arrivals(
        inputs, watch, time, every, start, end, poll, settle, idle, Cluster.of(scheduler, spark, timeout)
    )
    option = runs.RunSettings(context, run, "TabularStream", _options)
    made: Any = None
    if option.needed(runs.SETTINGS | {"schema", "marginals"}):
        import synthgeo as sg

        made = sg.TabularStream(
            schema=option.known["schema"] if option.kept({"schema"}) else schema_of(schema),
            budget=budget_of(option("epsilon", epsilon), option("delta", delta)),
            unit=unit_of(option("user", user), option("max_events", max_events), option("per", per)),
            lifetime=option.lifetime(lifetime, arrivals),
            deletions=False if option("no_deletions", no_deletions) else None,
            columns=sg.ColumnNames(inserted=option("inserted", inserted)),
            reading=option.reading(reading),
            settings=sg.TableSettings(
                times=option("times", times),
                times_share=option("times_share", times_share),
                borrow=runs.borrow_of(option("no_borrow", no_borrow)),
                marginals_per_step=option("marginals", marginals),
                counter=option("counter", counter),
                schedule=option("schedule", schedule),
            ),
            noise=option.known["noise"] if option.kept({"seed"}) else noise_of(seed),
        )
        if user_table is not None:
            made.store_users(user_table)
    book = ledger_of(ledger)
    if dry_run:
        facts = {} if made is None else {"budget": words(made.budget), "protects": made.unit.describe()}
        runs.show_plan(run, option.run, facts, arrivals, book, as_json=as_json)
        return
    runs.go_on(
        run,
        option.run,
        made,
        arrivals,
        ledger=book,
        as_json=as_json,
        allow_repeat=allow_repeat,
        allow_clock_back=allow_clock_back,
        no_check=no_check,
    )


def _options(stream: Any) -> dict[str, Any]:
    """The options that a stream was made with."""
    own = {"schema": stream.schema, "marginals": stream.settings.marginals_per_step}
    return runs.common_options(stream) | own


def write_release(release: Any, out: Path) -> None:
    """Write a release in the format that the file's name asks for."""
    if out.suffix in (".parquet", ".geoparquet", ".pq"):
        release.to_parquet(out)
    elif out.suffix == ".csv":
        release.to_csv(out)
    elif out.suffix == ".geojson" and hasattr(release, "to_geojson"):
        release.to_geojson(out)
    else:
        raise ConfigError(
            f"--out: cannot write {out.suffix or 'a file without ending'} here; use .parquet or .csv"
        )


def schema_of(path: Path | None) -> Schema:
    from synthgeo.schema import Schema

    if path is None:
        raise ConfigError(
            "give --schema, the public facts about the columns (draft one: synthgeo table schema)"
        )
    check_filled_in(path)
    return Schema.from_json(path)


def conditions(given: list[str] | None, schema: Schema) -> dict[str, Any]:
    """COLUMN=VALUE pairs, with values of the type that the column has; of one column, all that are given."""
    found: dict[str, list[Any]] = {}
    for text in given or []:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"--given must be COLUMN=VALUE, got {text!r}")
        column = schema.columns.get(name)
        if column is None:
            raise ConfigError(f"--given: no column {name!r}; there are {', '.join(schema.columns)}")
        found.setdefault(name, []).append(_condition(name, column, value))
    return found


def _condition(name: str, column: Column, text: str) -> Any:
    """One value, a range LOW..HIGH (of numbers also LOW:HIGH), or None for a missing one."""
    if text == "":
        return None
    known = {str(one): one for one in getattr(column, "values", ())}
    if known:
        if text not in known:
            raise ConfigError(f"--given: {name!r} has no value {text!r}; there are {', '.join(known)}")
        return known[text]
    numeric = column.kind == "numeric"
    low, dots, high = text.partition("..")
    if not dots and numeric:
        low, dots, high = text.partition(":")
    if column.kind == "location":
        x, _, y = text.partition(",")
        try:
            return (float(x), float(y))
        except ValueError:
            raise ConfigError(f"--given: {text!r} is no place X,Y of column {name!r}") from None
    if not numeric:
        return (low, high) if dots else text
    try:
        return (float(low), float(high)) if dots else float(text)
    except ValueError:
        raise ConfigError(f"--given: {text!r} is neither a number nor a range LOW..HIGH") from None

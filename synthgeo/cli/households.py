"""``synthgeo households``: two tables that a key joins, released once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from synthgeo.cli import one_off
from synthgeo.cli.check import NoCheck, before_fit, only, skipped
from synthgeo.cli.options import (
    Config,
    Delta,
    DryRun,
    Epsilon,
    Json,
    LedgerPath,
    Seed,
    budget_of,
    ledger_of,
    noise_of,
)
from synthgeo.cli.reading import with_reading
from synthgeo.cli.table import conditions, schema_of
from synthgeo.errors import ConfigError
from synthgeo.release import write_csv
from synthgeo.release_file.arrivals import expand

app = typer.Typer(no_args_is_help=True, help="Households and their persons: two tables that a key joins.")


@app.command()
@with_reading
def fit(
    parents: Annotated[str, typer.Argument(help="The parent table: CSV or Parquet files; a glob.")],
    children: Annotated[str, typer.Argument(help="The child table: CSV or Parquet files; a glob.")],
    out: Annotated[Path | None, typer.Option("--out", help="Where to write the model.")] = None,
    force: one_off.Force = False,
    no_check: NoCheck = False,
    parent_schema: Annotated[
        Path | None, typer.Option("--parent-schema", help="JSON file: columns of the parent table.")
    ] = None,
    child_schema: Annotated[
        Path | None, typer.Option("--child-schema", help="JSON file: columns of the child table.")
    ] = None,
    key: Annotated[str, typer.Option("--key", help="The column that joins them.")] = "household_id",
    max_children: Annotated[
        int | None, typer.Option("--max-children", help="Children of a household that count at most.")
    ] = None,
    epsilon: Epsilon = None,
    delta: Delta = 0.0,
    public_total: Annotated[
        int | None, typer.Option("--public-total", help="The number of households, where that is public.")
    ] = None,
    seed: Seed = None,
    ledger: LedgerPath = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    config: Config = None,
    reading: Any = None,
) -> None:
    """Fit a model to both tables and spend the budget; ``households sample`` draws from it for free."""
    del config
    import synthgeo as sg

    if max_children is None:
        raise ConfigError("give --max-children, the public bound on the children of a household")
    synthesizer = sg.HouseholdSynthesizer(
        parent=schema_of(parent_schema),
        child=schema_of(child_schema),
        key=key,
        max_children=max_children,
        budget=budget_of(epsilon, delta),
        public_total=public_total,
        reading=reading,
        noise=noise_of(seed),
        ledger=ledger_of(ledger),
    )
    tables = [[str(file) for file in expand([pattern])] for pattern in (parents, children)]
    if dry_run:
        one_off.show_plan(synthesizer, [*tables[0], *tables[1]], as_json=as_json)
        return
    if not only():
        target = one_off.check_out(out, force=force)
    skip = skipped(reading, no_check=no_check)
    if before_fit(lambda: synthesizer.check(*tables), skip=skip, as_json=as_json):
        return
    one_off.fit_and_save(synthesizer, target, lambda: synthesizer.fit(*tables), as_json=as_json)


@app.command()
def sample(
    model: Annotated[Path, typer.Argument(help="A model that ``households fit`` wrote.")],
    parents: Annotated[Path, typer.Option("--parents", help="Parquet or CSV file of the parent table.")],
    children: Annotated[Path, typer.Option("--children", help="Parquet or CSV file of the child table.")],
    force: one_off.Force = False,
    rows: Annotated[
        int | None, typer.Option("--rows", help="How many households; default: the released number.")
    ] = None,
    given: Annotated[
        list[str] | None,
        typer.Option("--given", help="COLUMN=VALUE of households, as in ``table sample``."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Draw households and their children from a fitted model. Costs no privacy."""
    import synthgeo as sg

    for option, out in (("--parents", parents), ("--children", children)):
        one_off.check_out(out, force=force, what="table", option=option, paid=False)
        if out.suffix not in (".parquet", ".csv"):
            raise ConfigError(f"{option}: use .parquet or .csv")
    fitted = sg.HouseholdSynthesizer.load(model)
    release = fitted.sample(rows, given=conditions(given, fitted.parent) or None)
    for frame, out in ((release.parents, parents), (release.children, children)):
        if out.suffix == ".csv":
            write_csv(frame, out)
        else:
            frame.to_parquet(out, index=False)
    one_off.show_sample(
        parents,
        releasable=release.releasable,
        as_json=as_json,
        households=len(release.parents),
        children=len(release.children),
    )

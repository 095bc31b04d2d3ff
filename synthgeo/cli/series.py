"""``synthgeo series``: release one column of numbers over time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from synthgeo.cli import one_off
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
from synthgeo.cli.output import emit, for_owner_only, say, show_facts, words
from synthgeo.errors import ConfigError
from synthgeo.extras import require
from synthgeo.release import write_csv


def series(
    data: Annotated[Path, typer.Argument(help="CSV or Parquet file, one row a time step, in order.")],
    column: Annotated[str, typer.Option("--column", help="The column to release: counts at each time.")],
    mechanism: Annotated[
        str, typer.Option("--mechanism", help="auto, fast, lpa, dft, ar1, absorption, ...")
    ] = "fast",
    option: Annotated[
        list[str] | None, typer.Option("--option", help="NAME=VALUE for the mechanism, such as horizon=365.")
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option("--keep", help="Public columns to copy to the output, such as the date."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Where to write the released series (CSV).")
    ] = None,
    force: one_off.Force = False,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="A picture of the true and the released series: private.")
    ] = None,
    epsilon: Epsilon = None,
    delta: Delta = 0.0,
    seed: Seed = None,
    ledger: LedgerPath = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    config: Config = None,
    reading: Any = None,
) -> None:
    """Release a series of numbers with one of the time-series mechanisms.

    The number of rows is the number of time steps, which is taken as public.
    """
    del config
    from streams.runs.directory import make_durable
    from streams.runs.identity import fingerprint_of
    from streams.scalar.release import maker_of, release_series
    from synthgeo.sources import open_source
    from synthgeo.sources.values import as_words, finite

    budget = budget_of(epsilon, delta)
    maker_of(mechanism)
    options = dict(_pair(text) for text in option or [])
    plan = {"mechanism": mechanism, "budget": budget.to_dict(), "options": options, "column": column}
    if dry_run:
        emit({"plan": plan}) if as_json else show_facts("would release", plan)
        return
    out = one_off.check_out(out, force=force, what="released series")
    if plot is not None:
        require("matplotlib", extra="report")
        plot = one_off.check_out(plot, force=True, option="--plot")
    source = open_source(data, reading=reading)
    names = list(dict.fromkeys([column, *(keep or [])]))
    chunk = source.read(names, check=lambda chunk: finite(chunk, column))
    values: dict[str, Any] = {name: as_words(chunk, name) for name in keep or []}
    values[column] = finite(chunk, column)
    book = ledger_of(ledger)
    noise = noise_of(seed)
    if book is not None:
        # A rehearsal whose result is thrown away: whatever is wrong shows before the ledger is charged.
        rehearsal = release_series(
            values[column], mechanism=mechanism, budget=budget, noise=noise_of(0), **options
        )
        if one_off.delivered(book, out, budget, rehearsal.unit):
            say(f"{out}: released by a command that was interrupted after it was paid; nothing was spent now")
            return
        reservation = book.reserve(
            f"series {mechanism}", budget, rehearsal.unit,
            key=book.new_key(), content_hash=fingerprint_of(values[column]),
        )  # fmt: skip
    release = release_series(values[column], mechanism=mechanism, budget=budget, noise=noise, **options)
    frame = release.to_frame()
    for number, name in enumerate(keep or []):
        frame.insert(number, name, values[name])
    Path(f"{out}.provenance.json").write_text(json.dumps(release.provenance, indent=2, default=str) + "\n")
    if book is None:
        write_csv(frame, out)
    else:
        stored = one_off.waiting(out, reservation.key)
        write_csv(frame, for_owner_only(stored))
        make_durable(stored)
        book.commit(reservation)
        stored.chmod(0o644)
        stored.replace(out)
    if plot is not None:
        _draw(release, values[column], column, plot)
        say(f"{plot} shows the private series beside the released one: for the curator only")
    facts = {"written": str(out), "releasable": release.releasable, "spent": words(release.spent)}
    if as_json:
        emit({"out": str(out), "provenance": release.provenance})
    else:
        show_facts(f"released {column!r} with {mechanism}", facts)
    if not release.releasable:
        say("warning: made with seeded noise; do not publish this")


def _pair(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ConfigError(f"--option must be NAME=VALUE, got {text!r}")
    for kind in (int, float):
        try:
            return name, kind(value)
        except ValueError:
            continue
    return name, {"true": True, "false": False}.get(value.lower(), value)


def _draw(release: Any, true: Any, column: str, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    axes = release.plot(true=true)
    axes.set_ylabel(column)
    axes.set_title("A good result: the released line follows the true one", fontsize=9)
    axes.figure.savefig(for_owner_only(path), dpi=110)

"""``synthgeo plan``: what error to expect at which ε, before any private row is read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from synthgeo.cli.check import COMMANDS
from synthgeo.cli.described import beside, load
from synthgeo.cli.output import emit, say, show_table
from synthgeo.errors import ConfigError
from synthgeo.extras import require

if TYPE_CHECKING:
    from synthgeo.planning import Plan

_request: dict[str, Any] | None = None


def plan(
    context: typer.Context,
    command: Annotated[
        list[str],
        typer.Argument(
            help="A release file; or stream run, table fit, table stream or trips fit, with all its options."
        ),
    ],
    rows: Annotated[int | None, typer.Option("--rows", help="How many rows (or trips) there may be.")] = None,
    steps: Annotated[int, typer.Option("--steps", help="Over how many steps.")] = 1,
    epsilons: Annotated[
        str, typer.Option("--epsilons", help="The ε to try, with commas.")
    ] = "0.1,0.25,0.5,1,2,4",
    users: Annotated[
        int | None, typer.Option("--users", help="How many users there may be: with --bounds, for trips.")
    ] = None,
    bounds: Annotated[
        str | None, typer.Option("--bounds", help="Trips per user to try as the bound, with commas.")
    ] = None,
    picture: Annotated[
        Path | None, typer.Option("--picture", help="Also draw the errors: a PNG, SVG or PDF file.")
    ] = None,
) -> None:
    """Show the errors to expect of a release file, or of a command that would spend, from public numbers.

    Give its own options first. The product is run on a stand-in that is drawn from the domain or schema; the
    data is not read. Says at which ε the signal drowns.
    """
    of_file = command[0].endswith(".toml")
    if tuple(command[:2]) not in COMMANDS and not of_file:
        known = ", ".join(" ".join(names) for names in COMMANDS)
        raise ConfigError(f"plan stands in front of one of: {known}")
    if rows is None:
        raise ConfigError("give --rows, how many there may be: a public guess, not a count of the data")
    if picture is not None:
        require("matplotlib", extra="report")
    try:
        levels = [float(part) for part in epsilons.split(",")]
    except ValueError:
        raise ConfigError(f"--epsilons must be numbers with commas, got {epsilons!r}") from None
    try:
        tried = None if bounds is None else [int(part) for part in bounds.split(",")]
    except ValueError:
        raise ConfigError(f"--bounds must be whole numbers with commas, got {bounds!r}") from None
    asked: dict[str, Any] = {
        "rows": rows,
        "steps": steps,
        "epsilons": levels,
        "users": users,
        "bounds": tried,
    }
    if of_file:
        path, changes, as_json = beside(command)
        _show(load(path, changes).plan(**asked), picture, as_json=as_json)
        return
    with _asking({**asked, "picture": picture}):
        main = context.find_root().command
        code = main.main(args=command, prog_name="synthgeo", standalone_mode=False)
    if code:
        raise typer.Exit(code)


@contextmanager
def _asking(request: dict[str, Any]) -> Iterator[None]:
    global _request
    _request = request
    try:
        yield
    finally:
        _request = None


def planned(product: Any, *, as_json: bool) -> bool:
    """Show the plan for a product, where ``plan`` stands in front of the command that is running."""
    if _request is None:
        return False
    from synthgeo.planning import plan as make

    wanted = dict(_request)
    picture = wanted.pop("picture")
    _show(make(product, **wanted), picture, as_json=as_json)
    return True


def _show(found: Plan, picture: Path | None, *, as_json: bool) -> None:
    """The plan: a table, and its picture where one was asked for."""
    if picture is not None:
        figure: Any = found.plot().figure
        figure.savefig(picture, dpi=150)
    if as_json:
        emit(
            {
                "rows": found.rows,
                "steps": found.steps,
                "least": found.least,
                **({} if found.best_bound is None else {"best_bound": found.best_bound}),
                "plan": found.table.to_dict("records"),
            }
        )
    else:
        lines = str(found).splitlines()
        show_table(found.table.columns, found.table.itertuples(index=False), title=lines[0])
        say(lines[-1])

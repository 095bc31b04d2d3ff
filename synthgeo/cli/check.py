"""``synthgeo check``: the curator's preflight, and the look at the data before anything is spent.

``check`` stands in front of a command that would spend, and shows what does not fit in place of running it. A
new run or a fit takes the same look by itself: where it finds a problem it asks, or stops where nobody can
answer. Unattended use, which must not stop, takes no look where nobody can answer.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from synthgeo.cli.described import beside, load
from synthgeo.cli.output import emit, say, show_table
from synthgeo.errors import ConfigError, InputError

if TYPE_CHECKING:
    from synthgeo.preflight import CheckReport
    from synthgeo.sources.declared import Reading

COMMANDS = (("stream", "run"), ("table", "fit"), ("table", "stream"), ("trips", "fit"))
_CHECKED = (*COMMANDS, ("trips", "run"))
PROBLEMS = 4  # the exit code of data that cannot be used
NoCheck = Annotated[
    bool, typer.Option("--no-check", help="Spend without a look at the data: ask about nothing.")
]

_only = False


def check(
    context: typer.Context,
    command: Annotated[
        list[str],
        typer.Argument(
            help="A release file; or stream run, table fit, table stream, trips fit or trips run, with all "
            "its options."
        ),
    ],
) -> None:
    """Show all that does not fit what a release file, or the options of a command, say; spends nothing.

    Rows outside the domain or the windows, values that cannot be read, unseen categories, coordinates that
    look swapped or projected, users above their bound, files that repeat. The result is for the curator only.
    Exit code 4: there are problems.
    """
    if command[0].endswith(".toml"):
        path, changes, as_json = beside(command)
        show(load(path, changes).check(), as_json=as_json)
        return
    if tuple(command[:2]) not in _CHECKED:
        known = ", ".join(" ".join(names) for names in _CHECKED)
        raise ConfigError(f"check stands in front of one of: {known}")
    with _checking():
        main = context.find_root().command
        code = main.main(args=command, prog_name="synthgeo", standalone_mode=False)
    if code:
        raise typer.Exit(code)


@contextmanager
def _checking() -> Iterator[None]:
    global _only
    _only = True
    try:
        yield
    finally:
        _only = False


def only() -> bool:
    """Whether ``check`` stands in front of the command that is running."""
    return _only


def show(report: CheckReport, *, as_json: bool) -> None:
    """The whole report; leaves with an exit code of its own where there are problems."""
    from synthgeo.preflight import CURATOR_ONLY

    if as_json:
        emit(report.to_dict())
    else:
        print(f"{report.rows:,} rows read, nothing spent: {report.verdict}")
        if len(report.columns):
            show_table(report.columns.columns, report.columns.itertuples(index=False))
        figures = getattr(report, "figures", None)  # of trips: gaps, speeds, what cleaning takes away
        if figures is not None and len(figures):
            show_table(figures.columns, ((what, f"{value:,.4g}") for what, value in figures.to_numpy()))
        for finding in report.findings:
            print(finding)
        say(CURATOR_ONLY)
    if not report.ok:
        raise typer.Exit(PROBLEMS)


def skipped(reading: Reading, *, no_check: bool) -> bool:
    """Whether nobody looks: no look was asked for, or the use is unattended and nobody could answer."""
    return no_check or (reading.unattended and not sys.stdin.isatty())


def ask(report: CheckReport) -> None:
    """Go on where there is no problem or where somebody says so; ``InputError`` otherwise."""
    if report.ok:
        return
    if not sys.stdin.isatty():
        report.require()
    for finding in report.problems:
        say(str(finding))
    if not typer.confirm("Spend the budget on this all the same?", default=False, err=True):
        raise InputError("stopped before anything was spent")


def before_fit(look: Callable[[], CheckReport], *, skip: bool, as_json: bool) -> bool:
    """The look that a fit takes at its data. True where that was all that was asked for."""
    if only():
        show(look(), as_json=as_json)
        return True
    if not skip:
        ask(look())
    return False

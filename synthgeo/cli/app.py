"""The application: all commands in one tree, and one way to fail.

Exit codes:

    0  done (also: stopped by SIGTERM between two steps)
    1  a fault in synthgeo itself, or too little memory
    2  the command line is wrong
    3  a setting makes no sense            ConfigError
    4  the data cannot be used             InputError, DomainError, ContributionError
    5  the budget is spent                 BudgetExhausted
    6  the ledger refuses                  LedgerError
    7  a saved state cannot be used        StateError
    8  a file cannot be read or written
    9  an audit refutes a claim
    130  interrupted by Ctrl-C
"""

from __future__ import annotations

import sys
import traceback
import warnings
from typing import Any

import typer

from synthgeo.cli import (
    check,
    demo,
    evaluate,
    init,
    ledger,
    membership,
    plan,
    publish,
    release,
    sign,
    stream,
    table,
    trips,
)
from synthgeo.cli.held import let_go
from synthgeo.cli.output import say, take_remarks
from synthgeo.cli.reading import with_reading
from synthgeo.errors import (
    BudgetExhausted,
    ClusterError,
    ConfigError,
    InputError,
    LedgerError,
    StateError,
    SynthGeoError,
)

EXIT_CODES = (
    (ConfigError, 3),
    (InputError, 4),
    (BudgetExhausted, 5),
    (LedgerError, 6),
    (StateError, 7),
    (ClusterError, 10),
    (SynthGeoError, 1),
    (OSError, 8),
)

# The library's messages name Python's arguments; here they are options.
_INTERRUPTED, _STOPPED = 130, "interrupted; what the run or the ledger shows as spent is spent"
_OPTIONS = {
    "with x=, y=": "with --x, --y",
    "open with allow_clock_back=True": "use --allow-clock-back",
    "allow_repeat=True": "--allow-repeat",
}

app = typer.Typer(
    name="synthgeo",
    help="Differentially private synthetic datasets from private data collected over time.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    epilog="Add --debug to any command to see where an error comes from.",
)
app.command("demo")(demo.demo)
app.add_typer(stream.app, name="stream")
app.add_typer(table.app, name="table")
app.add_typer(trips.app, name="trips")
app.command("evaluate")(with_reading(evaluate.evaluate))
app.command("report")(with_reading(evaluate.report))
app.command("init")(init.init)
app.command("check", context_settings={"ignore_unknown_options": True})(check.check)
app.command("plan", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})(
    plan.plan
)
app.command("publish")(publish.publish)
app.command("run")(release.run)
app.command("status")(release.status)
app.command("sample")(release.sample)
app.command("withdraw")(release.withdraw)
app.command("schema")(release.schema)
app.command("sign")(sign.sign)
app.command("verify")(sign.verify)
app.command("audit")(evaluate.audit)
app.command("membership")(membership.membership)
app.add_typer(ledger.app, name="ledger")


@app.callback(invoke_without_command=True)
def root(
    version: bool = typer.Option(False, "--version", help="Print the version and leave."),
    debug: bool = typer.Option(False, "--debug", help="Show where an error comes from."),
) -> None:
    """Differentially private synthetic datasets from private data collected over time."""
    del debug  # ``run`` has taken it out; it is declared to be seen in --help
    if version:
        from synthgeo import __version__

        print(f"synthgeo {__version__}")
        raise typer.Exit


def run(arguments: list[str]) -> int:
    """Run one command; errors become one line on stderr and an exit code."""
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    warnings.showwarning = _one_line
    command = typer.main.get_command(app)
    take_remarks()  # of a command before this one, in the same process, that failed
    try:
        code = command.main(args=arguments, prog_name="synthgeo", standalone_mode=False)
    except KeyboardInterrupt:
        return _fail(_STOPPED, _INTERRUPTED)
    except Exception as problem:  # noqa: BLE001  the boundary: everything becomes a line and a code
        if debug:
            traceback.print_exc()
        return _failed(problem)
    finally:
        let_go()
    if code == _INTERRUPTED:  # the library of the command line takes Ctrl-C for itself
        return _fail(_STOPPED, code)
    for text in take_remarks():
        say(text)
    return code if isinstance(code, int) else 0


def _failed(problem: Exception) -> int:
    if isinstance(problem, typer.Exit):
        return int(problem.exit_code)
    if isinstance(problem, typer.Abort):
        return _fail(_STOPPED, _INTERRUPTED)
    if hasattr(problem, "format_message"):  # what the parser of the command line raises
        where = getattr(getattr(problem, "ctx", None), "command_path", "synthgeo")
        return _fail(f"{problem.format_message()} (see {where} --help)", 2)
    if isinstance(problem, MemoryError):
        return _fail("this machine has too little memory: ask for less at once", 1)
    for kind, code in EXIT_CODES:
        if isinstance(problem, kind):
            message = str(problem)
            for name, option in _OPTIONS.items():
                message = message.replace(name, option)
            return _fail(message or type(problem).__name__, code)
    return _fail(f"a fault in synthgeo: {type(problem).__name__}: {problem} (--debug shows where)", 1)


def _fail(message: str, code: int) -> int:
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    return code


def _one_line(message: Any, *_: Any, **__: Any) -> None:
    print(f"warning: {' '.join(str(message).split())}", file=sys.stderr)

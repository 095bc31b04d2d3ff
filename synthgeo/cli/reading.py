"""The options that declare how text is read, the same for every command that reads rows."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from synthgeo.sources.declared import Reading

OPTIONS: dict[str, tuple[Any, Any]] = {
    "delimiter": (
        Annotated[str | None, typer.Option("--delimiter", help="Character between fields; \\t is a tab.")],
        None,
    ),
    "quote": (Annotated[str, typer.Option("--quote", help="Character around fields; empty: none.")], '"'),
    "decimal": (Annotated[str, typer.Option("--decimal", help="Decimal mark of numbers.")], "."),
    "thousands": (
        Annotated[str | None, typer.Option("--thousands", help="Mark between groups of three digits.")],
        None,
    ),
    "encoding": (
        Annotated[str, typer.Option("--encoding", help="utf-8, or one such as latin-1 or cp1252.")],
        "utf-8",
    ),
    "time_format": (
        Annotated[str, typer.Option("--time-format", help="iso, unix, or a format such as %m/%d/%Y %H:%M.")],
        "iso",
    ),
    "tz": (
        Annotated[
            str | None,
            typer.Option("--tz", help="Time zone of times without an offset, such as Europe/Berlin."),
        ],
        None,
    ),
    "missing": (
        Annotated[
            list[str] | None, typer.Option("--missing", help="A text that means no value; may be repeated.")
        ],
        None,
    ),
    "columns": (
        Annotated[
            str | None,
            typer.Option("--columns", help="Names of the columns, with commas, of files without a header."),
        ],
        None,
    ),
    "ids": (
        Annotated[
            str | None,
            typer.Option(
                "--ids",
                help="What tells no ids apart: space, case, zeros, with commas; none for nothing. [space]",
            ),
        ],
        None,
    ),
    "bad_rows": (
        Annotated[
            str | None,
            typer.Option("--bad-rows", help="error or drop; default: error, or drop if unattended."),
        ],
        None,
    ),
    "unattended": (
        Annotated[
            bool,
            typer.Option("--unattended", help="Nobody looks: drop bad rows, and let no row stop a release."),
        ],
        False,
    ),
}


def with_reading(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of reading; it gets one argument ``reading`` in their place."""
    signature = inspect.signature(command, eval_str=True)
    own = [parameter for parameter in signature.parameters.values() if parameter.name != "reading"]
    of_reading = {name: OPTIONS[name] for name in OPTIONS if name not in signature.parameters}
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in of_reading.items()
    ]

    @functools.wraps(command)
    def wrapped(*args: Any, **options: Any) -> Any:
        given = {name: options.pop(name) for name in of_reading}
        return command(*args, **options, reading=reading_of(watch=options.get("watch"), **given))

    wrapped.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
    wrapped.__annotations__ = {parameter.name: parameter.annotation for parameter in (*own, *added)}
    return wrapped


def reading_of(
    *,
    delimiter: str | None,
    quote: str,
    decimal: str,
    thousands: str | None,
    encoding: str,
    time_format: str,
    tz: str | None,
    missing: list[str] | None,
    columns: str | None,
    ids: str | None,
    bad_rows: str | None,
    unattended: bool = False,
    watch: Any = None,
) -> Reading:
    """The declarations that a command line makes. A folder is watched unattended, unless bad rows stop it."""
    from synthgeo.sources.declared import Reading

    return Reading(
        delimiter="\t" if delimiter == "\\t" else delimiter,
        quote=quote or None,
        decimal=decimal,
        thousands=thousands,
        encoding=encoding,
        time_format=time_format,
        tz=tz,
        missing=("",) if missing is None else ("", *missing),
        columns=None if columns is None else tuple(name.strip() for name in columns.split(",")),
        bad_rows=bad_rows or "error",
        unattended=unattended or (watch is not None and bad_rows != "error"),
        ids=("space",) if ids is None else _names(ids.replace("none", "")),
    )


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())

"""A release file on the command line: loaded with ``--set``, and told from a run or a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from synthgeo.cli.options import given
from synthgeo.errors import ConfigError

if TYPE_CHECKING:
    from synthgeo.release_file.file import ReleaseFile

File = Annotated[Path, typer.Argument(help="The release file (TOML).")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="section.key=value, instead of what the file says; may be repeated."),
]


def load(path: Path, changes: list[str] | None = None) -> ReleaseFile:
    """The release file, with what ``--set`` says in place of what it says."""
    import synthgeo as sg
    from synthgeo.release_file.text import value_of

    found: dict[str, Any] = {}
    for change in changes or []:
        name, equals, value = change.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"--set must be section.key=value, got {change!r}")
        found[name.strip()] = value_of(value)
    return sg.ReleaseFile.load(path, changes=found)


def is_release_file(path: Any) -> bool:
    """Whether a path is that of a release file: its name ends with .toml."""
    return str(path).endswith(".toml")


def only_options(context: typer.Context, *known: str) -> None:
    """``ConfigError`` for options that say what a release file says."""
    others = sorted(given(context) - set(known) - {"source", "what", "command"})
    if others:
        option = f"--{others[0].replace('_', '-')}"
        raise ConfigError(f"{option} does not go with a release file, which says it; or give --set")


def beside(words: list[str]) -> tuple[Path, list[str], bool]:
    """A release file, the values of ``--set`` and whether ``--json`` stands beside it: what ``check`` and
    ``plan`` take, which stand in front of other commands too.
    """
    rest, changes, as_json = list(words[1:]), [], False
    while rest:
        word = rest.pop(0)
        if word == "--json":
            as_json = True
        elif word == "--set" and rest:
            changes.append(rest.pop(0))
        elif word.startswith("--set="):
            changes.append(word.removeprefix("--set="))
        else:
            raise ConfigError(f"beside a release file stand --set and --json, not {word}")
    return Path(words[0]), changes, as_json

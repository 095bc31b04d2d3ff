"""``synthgeo sign`` and ``synthgeo verify``: whether what was handed on is what a curator made."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from synthgeo.cli.options import Json
from synthgeo.cli.output import emit, show_facts

What = Annotated[Path, typer.Argument(help="A folder that publish made, or a file, such as a model.")]


def sign(
    what: What,
    key: Annotated[Path, typer.Option("--key", help="The file of a private SSH key.")],
    as_json: Json = False,
) -> None:
    """Sign a published folder, or a file, with an SSH key: recipients can tell that the promise is yours."""
    from synthgeo.publishing.signing import sign as make

    signature = make(what, key)
    facts = {"signature": str(signature), "check it with": f"synthgeo verify {what} --key {key.name}.pub"}
    emit(facts) if as_json else show_facts("signed", facts)


def verify(
    what: What,
    key: Annotated[
        Path | None, typer.Option("--key", help="The public SSH key (.pub) of whom you trust.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check the checksums of a published folder, and with a public key who signed it, or a file."""
    from synthgeo.publishing.signing import verify as look

    found = look(what, key)
    if found.trusted:
        who = "signed with this key"
    elif found.signed:
        who = "signed; give --key to see by whom"
    else:
        who = "not signed: its ε is what whoever sent it says"
    facts = {"files": found.files, "signed": found.signed, "trusted": found.trusted}
    emit(facts) if as_json else show_facts("as its checksums say", {"files": found.files, "promise": who})

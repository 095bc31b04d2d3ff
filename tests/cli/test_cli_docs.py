"""Every command and every option is in the documentation."""

from __future__ import annotations

import re

from tests.cli.conftest import ROOT
from tests.cli.test_cli_basics import commands


def test_every_command_and_option_is_documented():
    page = (ROOT / "docs" / "cli.md").read_text()
    sections = {part.partition("`")[0]: part for part in page.split("## `synthgeo ")[1:]}
    for path, command in commands():
        name = " ".join(path)
        section = next((text for heading, text in sections.items() if heading.startswith(name)), None)
        assert section is not None, f"docs/cli.md has no section on synthgeo {name}"
        for option in command.params:
            if option.name == "help":
                continue
            wanted = option.name.upper() if option.param_type_name == "argument" else option.opts[0]
            assert f"`{wanted}" in section, (name, wanted)


def test_nothing_is_documented_that_is_not_there():
    page = (ROOT / "docs" / "cli.md").read_text()
    known = {" ".join(path) for path, _ in commands()}
    for part in page.split("## `synthgeo ")[1:]:
        heading = part.partition("`")[0]
        assert any(heading == name or heading.startswith(f"{name} ") for name in known), heading


def test_every_option_is_in_a_tutorial_or_a_how_to():
    """A list of options says what there is; a page that uses one says when it is wanted."""
    pages = [page for folder in ("tutorials", "how-to") for page in (ROOT / "docs" / folder).glob("*.md")]
    used = set(re.findall(r"--[a-z][a-z0-9-]*", "\n".join(page.read_text() for page in pages)))
    options = {
        (option.opts[0], " ".join(path))
        for path, command in commands()
        for option in command.params
        if option.param_type_name == "option" and option.name != "help"
    }
    assert not sorted(f"{option} of {name}" for option, name in options if option not in used)
    known = {text for path, command in commands() for option in command.params for text in option.opts}
    strange = {name for name in used if name not in known} - {"--help", "--version", "--no-recommends"}
    assert not strange

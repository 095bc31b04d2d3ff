"""Every command and every option is in the documentation."""

from __future__ import annotations

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

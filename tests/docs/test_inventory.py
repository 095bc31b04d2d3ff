"""What a security office asks for: licences, the bill of materials, tested versions, pages that explain."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools import inventory

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def parts():
    return {part.name: part for part in inventory.packages()}


def required():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {canonicalize_name(Requirement(text).name) for text in project["dependencies"]}


def test_everything_that_is_shipped_with_has_a_licence_that_binds_nobody(parts):
    assert required() <= set(parts)
    assert not [part for part in parts.values() if part.licence == "not stated" or part.is_strong_copyleft]


def test_a_strong_copyleft_would_be_noticed():
    for licence in ("GNU General Public License v3 (GPLv3)", "GPL-3.0-or-later", "AGPL-3.0"):
        assert inventory.Package("a", "1", licence, ()).is_strong_copyleft
    for licence in ("LGPL-3.0", "MPL-2.0", "Apache-2.0"):
        assert not inventory.Package("a", "1", licence, ()).is_strong_copyleft


def test_the_bill_of_materials_is_whole_and_the_same_twice(parts):
    bill = inventory.bill()
    assert bill == inventory.bill()
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    known = {component["bom-ref"] for component in bill["components"]}
    assert known == {part.purl for part in parts.values()}
    assert all(set(entry["dependsOn"]) <= known for entry in bill["dependencies"])


def test_tested_versions_are_stated_for_every_requirement():
    lines = (ROOT / "constraints" / "tested.txt").read_text().splitlines()
    stated = {canonicalize_name(line.partition("==")[0]) for line in lines if "==" in line}
    assert required() <= stated, "run: python -m tools.inventory constraints"


def test_the_pages_that_an_office_asks_for_are_there():
    for name in ("SECURITY.md", "docs/threat-model.md", "docs/releasing.md"):
        assert len((ROOT / name).read_text()) > 1000

"""The lowest versions that are tested are the lowest that the package says it takes."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]


def bounds():
    """Lowest version by name, of the base and of the extras in ``all``."""
    (together,) = EXTRAS["all"]
    chosen = re.fullmatch(r"synthgeo\[(.+)\]", together).group(1).split(",")
    for line in [*PROJECT["dependencies"], *(one for extra in chosen for one in EXTRAS[extra])]:
        name, parts, version = re.fullmatch(r"([\w-]+)(\[.*\])?>=([\d.]+)", line).groups()
        yield name, version
        if parts and "distributed" in parts:
            yield "distributed", version


def pins():
    lines = (ROOT / "constraints/lowest.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def number(version):
    """1.15 and 1.15.0 are one version."""
    return re.sub(r"(\.0)+$", "", version)


def test_each_bound_is_the_version_that_is_tested():
    assert {name: number(version) for name, version in bounds()} == {
        name: number(version) for name, version in pins().items()
    }

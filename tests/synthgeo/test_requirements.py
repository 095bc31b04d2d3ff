"""The lowest versions that are tested are the lowest that the package says it takes."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
USED = ("tabular", "dask", "report", "excel", "audit", "ml", "movingpandas")


def bounds():
    """Lowest version by name, of the base and of what a user can add."""
    needed = [
        *PROJECT["dependencies"],
        *(one for extra in USED for one in PROJECT["optional-dependencies"][extra]),
    ]
    for line in needed:
        name, parts, version = re.fullmatch(r"([\w-]+)(\[.*\])?>=([\d.]+)", line).groups()
        yield name, version
        if parts and "distributed" in parts:
            yield "distributed", version


def pins():
    lines = (ROOT / "constraints/lowest.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def test_each_bound_is_the_version_that_is_tested():
    def number(version):
        """1.15 and 1.15.0 are one version."""
        return re.sub(r"(\.0)+$", "", version)

    assert {name: number(version) for name, version in bounds()} == {
        name: number(version) for name, version in pins().items()
    }


def test_every_extra_that_users_are_told_of_is_looked_at():
    ours = {"all", "bench", "docs", "dev", "test"}
    # Tested with the versions that are there: Spark on its own cluster, maps in notebooks.
    large = {"spark", "notebook"}
    assert set(PROJECT["optional-dependencies"]) - ours - large == set(USED)

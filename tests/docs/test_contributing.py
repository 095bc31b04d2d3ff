"""The recipes for contributors, followed to the letter in a copy of the repository."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import seeded_environment

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/contributing.md").read_text()
RECIPES = dict(re.findall(r"^### (.+?)\n(.*?)(?=^### |\Z)", PAGE, flags=re.MULTILINE | re.DOTALL))
BLOCK = r":\n\n```python\n(.*?)^```"
CREATE = re.compile(r"^Create `([^`]+)`" + BLOCK, re.MULTILINE | re.DOTALL)
EDIT = re.compile(r"^In `([^`]+)`, below `([^`]+)`, add" + BLOCK, re.MULTILINE | re.DOTALL)
TRY = re.compile(r"^Try it" + BLOCK, re.MULTILINE | re.DOTALL)


def test_there_is_a_recipe_for_each_part_that_can_be_added():
    parts = ("counter", "domain", "hierarchy", "source", "metric", "command", "audit")
    assert list(RECIPES) == [f"A new {part}" for part in parts]


@pytest.mark.parametrize("title", RECIPES)
def test_no_code_of_a_recipe_is_left_out(title):
    recipe = RECIPES[title]
    followed = [*CREATE.findall(recipe), *EDIT.findall(recipe), *TRY.findall(recipe)]
    assert recipe.count("```python") == len(followed)
    assert len(TRY.findall(recipe)) == 1


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The repository with every recipe followed: later ones may build on earlier ones."""
    folder = tmp_path_factory.mktemp("copy")
    ignored = shutil.ignore_patterns("__pycache__", "results")
    for package in ("synthgeo", "streams", "tabular", "trajectories", "audits", "benchmarks"):
        shutil.copytree(ROOT / package, folder / package, ignore=ignored)
    for recipe in RECIPES.values():
        for path, code in CREATE.findall(recipe):
            assert not (folder / path).exists(), f"{path} exists already"
            (folder / path).write_text(code)
        for path, line, code in EDIT.findall(recipe):
            text = (folder / path).read_text()
            assert text.count(f"{line}\n") == 1, f"{path} has no single line {line!r}"
            (folder / path).write_text(text.replace(f"{line}\n", f"{line}\n{code}"))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("title", RECIPES)
def test_a_recipe_works(title, copy, tmp_path):
    (script,) = TRY.findall(RECIPES[title])
    environment = seeded_environment(title, copy, PYTHONIOENCODING="utf-8")
    ran = subprocess.run(
        [sys.executable, "-W", "error::UserWarning:__main__", "-c", script],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]


@pytest.mark.slow
def test_the_code_of_recipes_is_as_the_house_writes_it(copy):
    """Style, as ``make check`` would say."""
    created = [path for recipe in RECIPES.values() for path, _ in CREATE.findall(recipe)]
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "ruff",
            "check",
            "--config",
            ROOT / "pyproject.toml",
            "--ignore",
            "S608,ARG002",
            *created,
        ],
        capture_output=True,
        text=True,
        cwd=copy,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout

"""Documentation is a tested surface: its code runs, its links lead somewhere, the site builds."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import seeded_environment

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
CODE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
APART = ("contributing.md",)  # its recipes change files: test_contributing follows them in a copy
WITH_CODE = [page for page in PAGES if CODE.search(page.read_text()) and page.name not in APART]


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_code_of_a_page_runs(page, tmp_path):
    """All blocks of a page run in order, in one interpreter, in an empty folder."""
    code = "\n".join(CODE.findall(page.read_text()))
    script = tmp_path / "page.py"
    script.write_text(f"import matplotlib; matplotlib.use('Agg')\n{code}")
    ran = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=seeded_environment(page.name),
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]


@pytest.mark.slow
def test_the_site_builds_strictly(tmp_path):
    pytest.importorskip("mkdocs", reason="the docs extra is not installed")
    built = subprocess.run(
        [
            sys.executable,
            "-m",
            "mkdocs",
            "build",
            "--strict",
            "--site-dir",
            tmp_path / "site",
        ],  # not --quiet: it counts no warnings
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    assert (tmp_path / "site" / "guarantees" / "index.html").exists()


def test_every_page_is_in_the_navigation():
    listed = set(re.findall(r"([\w\-/]+\.md)", (ROOT / "mkdocs.yml").read_text()))
    there = {page.relative_to(ROOT / "docs").as_posix() for page in PAGES if "docs" in page.parts}
    assert there == listed

"""Every example runs on data that needs no download, says something, and leaves a picture."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from matplotlib.image import imread

from tests.conftest import seeded_environment

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("[0-9]*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_and_leaves_a_picture(example, tmp_path):
    """As a copy, so that what it leaves beside itself is looked at here and thrown away."""
    script = Path(shutil.copy(example, tmp_path))
    environment = seeded_environment(example.name, PYTHONIOENCODING="utf-8", SYNTHGEO_EXAMPLE_SIZE="small")
    environment.pop("SYNTHGEO_DATA", None)
    # Few trips drown in noise by chance: that is said rightly.
    environment["PYTHONWARNINGS"] = "ignore:the noise exceeds the signal:UserWarning"
    ran = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=tmp_path,
        env=environment,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert "Warning" not in ran.stderr, ran.stderr[-3000:]
    assert ran.stdout.strip()
    pictures = list((tmp_path / "out").glob(f"{example.stem[:2]}_*.png"))
    assert pictures
    for picture in pictures:
        assert imread(picture).std() > 0.01, "an empty picture"


def test_examples_are_numbered_and_say_what_they_do():
    names = [path.name for path in (ROOT / "examples").glob("*.py")]
    assert sorted(names) == [path.name for path in EXAMPLES]
    assert len({name[:2] for name in names}) == len(names)
    for path in EXAMPLES:
        assert f"python examples/{path.name}" in path.read_text().split('"""')[1]

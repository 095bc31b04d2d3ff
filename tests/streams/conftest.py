"""What the tests of streams share."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path):
    """A folder in memory where that can be: durable runs sync every file, and a kill loses no page."""
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=shared) as name:
        yield Path(name)

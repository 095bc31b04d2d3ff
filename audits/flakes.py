"""The suite's total stated flake probability.

Tests that draw random numbers are marked ``statistical``. The mark states how probable it is that a test
rejects something correct, over the choice of its seeds: ``statistical(flake=...)``, and 1e-9 where nothing is
said. Seeds are fixed, so a suite that passed passes again; this is what a new seed, or the tests that draw
from the operating system, may do.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from typing import Any

import pytest

STATED = 1e-9
MOST = 1e-6


def total(items: Iterable[Any]) -> float:
    """Union bound over tests."""
    marks = [item.get_closest_marker("statistical") for item in items]
    return sum(float(mark.kwargs.get("flake", STATED)) for mark in marks if mark is not None)


class _Collector:
    def __init__(self) -> None:
        self.items: list[Any] = []

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        self.items = list(items)


def of_the_suite() -> tuple[int, float]:
    """How many statistical tests there are, and their total. Collected in a process of its own."""
    done = subprocess.run([sys.executable, "-m", "audits.flakes"], capture_output=True, text=True, check=True)
    count, flake = done.stdout.split()[-2:]
    return int(count), float(flake)


if __name__ == "__main__":
    collector = _Collector()
    if pytest.main(["--collect-only", "-q", "-q", "--no-header", "tests"], plugins=[collector]):
        raise SystemExit("the tests cannot be collected")
    marked = [item for item in collector.items if item.get_closest_marker("statistical")]
    print(len(marked), total(marked))

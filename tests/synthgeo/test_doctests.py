"""The examples in docstrings run and say what they print."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import streams
import synthgeo
import tabular
import trajectories


def _modules() -> list[str]:
    """Modules whose source holds an example, found in the text: nothing else is imported."""
    found = []
    for package in (synthgeo, streams, tabular, trajectories):
        for info in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            spec = importlib.util.find_spec(info.name)
            if (
                spec is not None
                and spec.loader is not None
                and ">>>" in (spec.loader.get_source(info.name) or "")
            ):
                found.append(info.name)
    return found


@pytest.mark.parametrize("name", _modules())
def test_examples(name):
    outcome = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert outcome.attempted > 0
    assert outcome.failed == 0

"""The reference is complete: every public name of the facade, and of the modules that it hands out."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from types import ModuleType

import pytest

import synthgeo as sg

REFERENCE = (Path(__file__).resolve().parents[2] / "docs" / "reference.md").read_text()
DOCUMENTED = set(re.findall(r"^::: ([\w.]+)$", REFERENCE, re.MULTILINE))


def is_documented(value: object) -> bool:
    """A section of its own, or one of the whole module that defines it."""
    if isinstance(value, ModuleType):
        return value.__name__ in DOCUMENTED
    where = inspect.getmodule(value)
    assert where is not None
    return f"{where.__name__}.{value.__name__}" in DOCUMENTED or where.__name__ in DOCUMENTED


@pytest.mark.parametrize("name", sg.__all__)
def test_every_name_of_the_facade_is_in_the_reference(name):
    # Where a function shares its name with a package, the facade may hand out either.
    value = getattr(importlib.import_module(sg._WHERE.get(name, "synthgeo")), name)
    if isinstance(value, str | ModuleType):
        assert f"`sg.{name}`" in REFERENCE
    else:
        assert is_documented(value)


@pytest.mark.parametrize("module", [sg.series, sg.simulate], ids=["series", "simulate"])
def test_every_name_of_a_public_module_is_in_the_reference(module):
    values = {name: getattr(module, name) for name in module.__all__}
    things = {name: value for name, value in values.items() if callable(value) or inspect.ismodule(value)}
    assert {name for name, value in things.items() if not is_documented(value)} == set()


@pytest.mark.parametrize("path", sorted(DOCUMENTED))
def test_nothing_in_the_reference_is_gone_or_without_words(path):
    module, _, name = path.rpartition(".")
    try:
        value = importlib.import_module(path)
    except ModuleNotFoundError:
        value = getattr(importlib.import_module(module), name)
    assert inspect.getdoc(value)

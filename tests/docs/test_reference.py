"""The reference and ``sg`` hold the same names: nothing public without words, no words about what is not."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from types import ModuleType

import pytest

import synthgeo as sg

REFERENCE = (Path(__file__).resolve().parents[2] / "docs" / "reference.md").read_text()
DOCUMENTED = re.findall(r"^::: ([\w.]+)$", REFERENCE, re.MULTILINE)


def public() -> dict[str, object]:
    """Every name that ``import synthgeo as sg`` gives, those of its modules included."""
    found: dict[str, object] = {}
    waiting = [("sg", sg)]
    while waiting:
        path, module = waiting.pop()
        for name in module.__all__:
            value = getattr(module, name)
            found[f"{path}.{name}"] = value
            if isinstance(value, ModuleType):
                waiting.append((f"{path}.{name}", value))
    return found


PUBLIC = public()


def meant(path: str) -> object:
    """The object that a line of the reference names."""
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        module, _, name = path.rpartition(".")
        return getattr(importlib.import_module(module), name)


@pytest.mark.parametrize("path", PUBLIC)
def test_every_public_name_is_in_the_reference(path):
    value = PUBLIC[path]
    if not callable(value):  # a module, a version, a table of names
        assert f"`{path}`" in REFERENCE
        return
    where = inspect.getmodule(value)
    assert where is not None
    assert {f"{where.__name__}.{value.__name__}", where.__name__} & set(DOCUMENTED)


@pytest.mark.parametrize("path", DOCUMENTED)
def test_everything_in_the_reference_is_public_and_has_words(path):
    value = meant(path)
    assert inspect.getdoc(value)
    if isinstance(value, ModuleType):
        assert value.__all__
        for name in value.__all__:
            assert any(getattr(value, name) is one for one in PUBLIC.values()), name
    else:
        assert any(value is one for one in PUBLIC.values())


def test_nothing_is_listed_twice():
    assert len(DOCUMENTED) == len(set(DOCUMENTED))

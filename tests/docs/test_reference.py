"""The reference and ``sg`` hold the same names: nothing public without words, no words about what is not."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from types import ModuleType

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


def documented(path: str, value: object) -> bool:
    if not callable(value):  # a module, a version, a table of names
        return f"`{path}`" in REFERENCE
    where = inspect.getmodule(value)
    assert where is not None
    return bool({f"{where.__name__}.{value.__name__}", where.__name__} & set(DOCUMENTED))


def test_every_public_name_is_in_the_reference():
    assert [path for path, value in PUBLIC.items() if not documented(path, value)] == []


def test_everything_in_the_reference_is_public_and_has_words():
    for path in DOCUMENTED:
        value = meant(path)
        assert inspect.getdoc(value), path
        named = [getattr(value, name) for name in value.__all__] if isinstance(value, ModuleType) else [value]
        assert named, path
        assert all(any(one is known for known in PUBLIC.values()) for one in named), path


def test_nothing_is_listed_twice():
    assert len(DOCUMENTED) == len(set(DOCUMENTED))

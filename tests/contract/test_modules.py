"""Rules about modules that no linter has: what begins with an underscore stays in its module.

Ruff's PLC2701 looks at imports from other distributions only, and SLF001 at attributes of objects.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRODUCTS = ("synthgeo", "streams", "tabular", "trajectories")
MODULES = sorted(path for product in PRODUCTS for path in (ROOT / product).rglob("*.py"))


def private_uses(source: str) -> list[str]:
    """Names with one leading underscore that a module takes from another one of ours."""
    tree, modules, found = ast.parse(source), set(), []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in PRODUCTS:
            found += [f"{node.module}.{alias.name}" for alias in node.names if _private(alias.name)]
            found += [node.module] * any(_private(part) for part in node.module.split("."))
            modules |= {alias.asname or alias.name for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            found += [f"{node.value.id}.{node.attr}"] * _private(node.attr)
    return found


def _private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def test_no_private_name_crosses_a_module():
    found = {str(path.relative_to(ROOT)): private_uses(path.read_text()) for path in MODULES}
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(
    "source",
    [
        "from synthgeo.privacy.noise import _bytes",
        "from streams import stream\nstream._charge()",
        "def late():\n    from tabular._inner import fit",
    ],
)
def test_the_rule_finds_a_private_name(source):
    assert private_uses(source)


def only_forwards(path: Path) -> bool:
    """Whether a module defines nothing: it imports names for others to import."""
    body = ast.parse(path.read_text()).body
    return all(isinstance(node, ast.Import | ast.ImportFrom | ast.Expr) for node in body)


def test_no_module_only_forwards():
    named = [path for path in MODULES if path.name not in ("__init__.py", "__main__.py")]
    assert [str(path.relative_to(ROOT)) for path in named if only_forwards(path)] == []


def class_names(sources: dict[str, str]) -> dict[str, list[str]]:
    """Where each class is defined, for names that are used more than once."""
    found: dict[str, list[str]] = {}
    for path, source in sources.items():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(path)
    return {name: paths for name, paths in found.items() if len(paths) > 1}


def test_no_class_name_is_used_twice():
    assert class_names({str(path.relative_to(ROOT)): path.read_text() for path in MODULES}) == {}


def test_the_rule_finds_a_class_name_used_twice():
    sources = {"a.py": "class Places: ...", "b.py": "def f():\n    class Places: ..."}
    assert class_names(sources) == {"Places": ["a.py", "b.py"]}

"""The architecture page tells the truth: its functions exist, and each calls the next."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/architecture.md").read_text()
LINKS = dict(re.findall(r"^\[([\w.]+)\]: \.\./(\S+)$", PAGE, flags=re.MULTILINE))
SECTIONS = dict(re.findall(r"^### (.+?)\n(.*?)(?=^##|\n\[|\Z)", PAGE, flags=re.MULTILINE | re.DOTALL))
MOST_HOPS = 8


def hops(section: str) -> list[str]:
    return re.findall(r"^\d+\. \[`[^`]+`\]\[([\w.]+)\]", section, flags=re.MULTILINE)


def resolve(name: str):
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            found = getattr(found, part)
        return found
    raise LookupError(name)


def calls(function) -> set[str]:
    """The names of all functions and methods that are called in one."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))
    called = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return {
        f.attr if isinstance(f, ast.Attribute) else f.id
        for f in called
        if hasattr(f, "attr") or hasattr(f, "id")
    }


def test_every_link_is_defined_and_every_definition_used():
    assert set(re.findall(r"\]\[([\w.]+)\]", PAGE)) == set(LINKS)


@pytest.mark.parametrize("name", sorted(LINKS))
def test_a_link_leads_to_the_file_of_its_function(name):
    found = inspect.unwrap(resolve(name))
    assert Path(inspect.getsourcefile(found)) == ROOT / LINKS[name]


def test_there_is_a_way_for_each_product_and_a_command():
    assert list(SECTIONS) == ["One batch of points", "One table", "One set of trips", "One command"]


@pytest.mark.parametrize("title", sorted(SECTIONS))
def test_each_function_calls_the_next(title):
    way = hops(SECTIONS[title])
    assert len(way) >= 5
    for caller, callee in pairwise(way):
        assert callee.rpartition(".")[2] in calls(resolve(caller)), f"{caller} does not call {callee}"


@pytest.mark.parametrize("title", ["One batch of points", "One table", "One set of trips"])
def test_the_noise_is_at_most_eight_hops_away(title):
    way = hops(SECTIONS[title])
    assert len(way) - 1 <= MOST_HOPS
    assert way[0].rpartition(".")[2] in ("update", "fit")
    assert way[-1].startswith("synthgeo.privacy.noise.Noise.")


def test_a_hop_that_is_not_a_call_would_be_noticed():
    assert "discrete_laplace" not in calls(resolve("streams.stream.Stream.update"))


def test_every_place_that_is_named_exists():
    places = re.search(r"\| what \| where \|\n(.*?)\n\n", PAGE, flags=re.DOTALL).group(1)
    named = [
        place for line in places.splitlines()[1:] for place in re.findall(r"`([^`]+)`", line.split("|")[2])
    ]
    assert len(named) > 20
    assert [place for place in named if not (ROOT / place).exists()] == []


def test_every_package_has_its_place():
    products = ("synthgeo", "streams", "tabular", "trajectories")
    packages = {
        p.parent.relative_to(ROOT) for product in products for p in (ROOT / product).glob("*/__init__.py")
    }
    missing = [str(package) for package in packages if f"`{package}`" not in PAGE]
    assert missing == []


def test_the_glossary_has_twenty_words():
    words = re.findall(r"^\| \*\*(.+?)\*\*", (ROOT / "docs/glossary.md").read_text(), flags=re.MULTILINE)
    assert len(words) == 20
    assert words == sorted(words)

"""The architecture page tells the truth: its lists are the call stacks of the products' defaults."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import synthgeo as sg
from synthgeo.cli.app import app
from synthgeo.privacy.noise import Noise

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/architecture.md").read_text()
LINKS = dict(re.findall(r"^\[([\w.]+)\]: \.\./(\S+)$", PAGE, flags=re.MULTILINE))
SECTIONS = dict(re.findall(r"^### (.+?)\n(.*?)(?=^##|\n\[|\Z)", PAGE, flags=re.MULTILINE | re.DOTALL))
PRODUCTS = ("synthgeo", "streams", "tabular", "trajectories")
DRAWS = {inspect.unwrap(getattr(Noise, name)).__code__ for name in ("discrete_laplace", "discrete_gaussian")}
MOST_HOPS = 8


def hops(title: str) -> list[str]:
    return re.findall(r"^\d+\. \[`[^`]+`\]\[([\w.]+)\]", SECTIONS[title], flags=re.MULTILINE)


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


def stack_at_the_noise(action) -> list[str]:
    """Our functions on the stack when ``action`` draws its first noise, the outermost first."""
    found: list[str] = []

    def look(frame, event, _):
        if event != "call" or frame.f_code not in DRAWS or found:
            return
        while frame is not None:
            module = frame.f_globals.get("__name__", "")
            if module.split(".")[0] in PRODUCTS and not frame.f_code.co_name.startswith("<"):
                found.append(f"{module}.{frame.f_code.co_qualname}")
            frame = frame.f_back

    sys.setprofile(look)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            action()
    finally:
        sys.setprofile(None)
    return found[::-1]


def points(seed: int) -> dict[str, np.ndarray]:
    x, y = np.random.default_rng(seed).random((2, 500))
    return {"x": x, "y": y}


def second_batch(**settings) -> list[str]:
    stream = sg.PHDStream.from_options(
        domain=sg.BoxDomain(0, 0, 1, 1), budget=sg.PrivacyBudget(1.0), **settings
    )
    stream.update(points(1))
    return stack_at_the_noise(lambda: stream.update(points(2)))


def first_batch() -> list[str]:
    stream = sg.PHDStream(domain=sg.BoxDomain(0, 0, 1, 1), budget=sg.PrivacyBudget(1.0))
    return stack_at_the_noise(lambda: stream.update(points(1)))


def one_table() -> list[str]:
    people, schema = sg.simulate.census(500, steps=1, seed=1), sg.simulate.census_schema()
    table = sg.TabularSynthesizer(schema=schema, budget=sg.PrivacyBudget(1.0, 1e-9))
    rows = people[people["op"] == 1][list(schema.columns)]
    return stack_at_the_noise(lambda: table.fit(rows))


def trips() -> list[str]:
    graph = sg.simulate.city_graph(seed=1)
    rows = sg.simulate.city_trips(graph, trips=30, seed=1)
    synthesizer = sg.TrajectorySynthesizer(
        domain=sg.RoadDomain.from_graph(graph), budget=sg.PrivacyBudget(2.0)
    )
    return stack_at_the_noise(lambda: synthesizer.fit(rows))


@pytest.fixture
def command(tmp_path) -> list[str]:
    rows = "\n".join(f"{x},{y}" for x, y in zip(*points(1).values(), strict=True))
    (tmp_path / "a.csv").write_text(f"x,y\n{rows}\n")
    words = ["stream", "run", f"{tmp_path}/run", f"{tmp_path}/a.csv", "--bounds=0,0,1,1", "--epsilon=1"]
    return stack_at_the_noise(lambda: CliRunner().invoke(app, words))


@pytest.mark.parametrize(
    ("title", "traced", "skipped"),
    [
        ("One batch of points", second_batch, 0),
        ("A step that looks for structure", first_batch, 3),
        ("Points with a lifetime", lambda: second_batch(lifetime=3), 3),
        ("One table", one_table, 0),
        ("One set of trips", trips, 0),
    ],
)
def test_a_list_is_the_stack_of_the_default(title, traced, skipped):
    stack = traced()
    assert hops(title) == stack[skipped:]
    assert len(stack) - 1 <= MOST_HOPS


def test_the_command_is_a_thin_layer(command):
    way = hops("One command")
    between = command[command.index(way[0]) : command.index(way[-1]) + 1]
    assert between == way


def test_another_mechanism_has_another_stack():
    """The twin: the page named this path while the default took another."""
    assert second_batch(counter="binary", horizon=10) != hops("One batch of points")


def test_every_link_is_defined_and_leads_to_the_file_of_its_function():
    assert set(re.findall(r"\]\[([\w.]+)\]", PAGE)) == set(LINKS)
    wrong = [
        name
        for name in LINKS
        if Path(inspect.getsourcefile(inspect.unwrap(resolve(name)))) != ROOT / LINKS[name]
    ]
    assert wrong == []


def test_there_is_a_way_for_each_product_and_a_command():
    assert {"One batch of points", "One table", "One set of trips", "One command"} <= set(SECTIONS)


def test_every_place_that_is_named_exists():
    places = re.search(r"\| what \| where \|\n(.*?)\n\n", PAGE, flags=re.DOTALL).group(1)
    named = [
        place for line in places.splitlines()[1:] for place in re.findall(r"`([^`]+)`", line.split("|")[2])
    ]
    assert len(named) > 20
    assert [place for place in named if not (ROOT / place).exists()] == []


def test_every_package_has_its_place():
    packages = {
        p.parent.relative_to(ROOT) for product in PRODUCTS for p in (ROOT / product).glob("*/__init__.py")
    }
    missing = [str(package) for package in packages if f"`{package}`" not in PAGE]
    assert missing == []


def test_the_glossary_has_twenty_words():
    words = re.findall(r"^\| \*\*(.+?)\*\*", (ROOT / "docs/glossary.md").read_text(), flags=re.MULTILINE)
    assert len(words) == 20
    assert words == sorted(words)

"""The page and the JSON Schema follow the declarations."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from synthgeo.release_file import describe

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples" / "release-files").glob("*.toml"))


def test_the_page_is_up_to_date():
    """To write it: python -c "from synthgeo.release_file.describe import page; print(page(), end='')"."""
    assert (ROOT / "docs" / "release-file.md").read_text() == describe.page()


@pytest.fixture(scope="module")
def validator():
    jsonschema = pytest.importorskip("jsonschema", reason="not a requirement")
    schema = describe.json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def plain(path):
    from synthgeo.release_file.text import plain

    return plain(tomllib.loads(path.read_text()))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_are_valid_by_the_json_schema(validator, path):
    assert list(validator.iter_errors(plain(path))) == []


@pytest.mark.parametrize(
    ("section", "change"),
    [
        ("privacy", {"epsilom": 1}),
        ("privacy", {"epsilon": "one"}),
        ("time", {"waves": ["a"]}),
        ("method", {"max_depht": 3}),
        ("place", {"bounds": [1, 2, 3]}),
        ("schema", {"a": {"type": "numeric"}, "b": {}}),
    ],
)
def test_what_the_reader_refuses_is_invalid(validator, section, change):
    values = plain(EXAMPLES[[path.stem for path in EXAMPLES].index("points")])
    values[section] = {**values.get(section, {}), **change}
    assert list(validator.iter_errors(values))

"""The text of a release file: what it refuses and where, the canonical form, edits that keep comments."""

# ruff: noqa: E501
from __future__ import annotations

import random
import tomllib
from pathlib import Path

import pytest

import synthgeo as sg
from synthgeo.errors import ConfigError
from synthgeo.release_file.sections import KINDS, SECTIONS, class_name, keys_of, method_keys

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "release-files"
POINTS = """\
kind = "points"  # one

[data]
files = "*.csv"
reading = { decimal = "," }

[privacy]
epsilon = 1.0  # agreed

[place]
bounds = [0, 0, 1, 1]
"""


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("epsilon", "epsilom", r"line 8: \[privacy\] there is no key 'epsilom'; the nearest is 'epsilon'"),
        ("1.0", '"one"', r"line 8: \[privacy\] epsilon must be a number, got 'one'"),
        ("1.0", "-1.0", r"line 8: \[privacy\] epsilon must be"),
        ("[place]", "[palce]", r"line 10: .*no section or key 'palce'; the nearest is 'place'"),
        ("decimal", "decimals", r"line 5: \[data\] reading has no key 'decimals'; the nearest is 'decimal'"),
        ('decimal = ","', 'encoding = "ebcdic-nine"', r"line 5: \[data\] encoding="),
        ('"points"', '"point"', r"line 1: kind cannot be 'point'; the nearest is 'points'"),
        ("[0, 0, 1, 1]", "[0, 0, 1]", r"line 11: \[place\] bounds must be four numbers"),
        ("[0, 0, 1, 1]", '[0, 0, 1, 1]\nland = "a.gpkg"', r"give the domain once.* both bounds and land"),
        ("[place]", '[time]\nevery = "1D"\n[place]', r"\[columns\] windows of 1D need \[columns\] time"),
        ("[place]", '[columns]\ntime="t"\n[time]\nevery = "1D"\n[place]', r"line 12: \[time\] windows need start"),
        ("[place]", "[time]\nstart = 2026-01-01\n[place]", r"line 11: \[time\] start goes with windows"),
        ("[place]", '[time]\nwaves = ["a"]\n[place]', r"line 11: \[time\] waves goes with panel, not with points"),
        ("[place]", '[columns]\nuser = "u"\n[place]', r"line 11: \[columns\] 'u' says whose each row is"),
        ("1.0", "1.0\nunit = { max_events = 2 }", r"line 9: \[privacy\] give \[columns\] user"),
        ("1.0", '1.0\nunit = { of = "user" }', r"line 9: \[privacy\] give \[columns\] user"),
        ("[place]", "[method]\nmax_depht = 3\n[place]", r"line 11: \[method\] .*the nearest is 'max_depth'"),
        ("[place]", '[method]\nmax_depth = "3"\n[place]', r"line 11: \[method\] max_depth must be a whole number"),
        ("[place]", '[schema.a]\ntype = "x"\n[place]', r"\[schema\] goes with table, panel, trips and od"),
        ("[place]", '[[rules]]\ncheck = "a < b"\ndepends = { a = "b" }\n[place]', "one of depends, check and"),
        ("[place]", "[place", r"line 10, column \d+: not TOML"),
        ('kind = "points"  # one\n', "", "there is no kind; it is one of points"),
        ("epsilon = 1.0", "delta = 0.1", r"give \[privacy\] epsilon"),
        ("[place]", '[engine]\nspark="a"\nscheduler = "b"\n[place]', r"line 11: \[engine\] give scheduler or spark"),
    ],
)  # fmt: skip
def test_a_wrong_statement_is_refused_with_section_key_and_line(before, after, said, tmp_path):
    path = tmp_path / "release.toml"
    text = POINTS.replace(before, after, 1)
    assert text != POINTS
    path.write_text(text)
    with pytest.raises(ConfigError, match=f"^release.toml.*{said}"):
        sg.ReleaseFile.load(path).product()


def test_a_file_that_is_not_there_or_no_text_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="cannot read the release file"):
        sg.ReleaseFile.load(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8"):
        sg.ReleaseFile.load(tmp_path / "bytes.toml")


def test_a_column_that_makes_no_sense_is_named_with_its_line(tmp_path):
    path = tmp_path / "table.toml"
    path.write_text(
        'kind = "table"\n[privacy]\nepsilon = 1\n[schema.age]\ntype = "numeric"\nlow = 5\nhigh = 1\n'
    )
    with pytest.raises(ConfigError, match=r"table.toml, line 4: \[schema\] .*column 'age'"):
        sg.ReleaseFile.load(path).product()


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.stem)
def test_the_canonical_file_is_a_fixed_point(path):
    file = sg.ReleaseFile.load(path)
    again = sg.ReleaseFile.loads(file.canonical(), path=path)
    assert again.values == file.values
    assert again.canonical() == file.canonical()


def keys():
    return [(section, name, key) for section in SECTIONS for name, key in keys_of(section).items()]


def drawn(key, rng):
    """Some value of a key's type."""
    word = "".join(rng.choices("aß\"'\\\n\t #=[]{}.é\x7f", k=rng.randint(0, 6)))
    if key.choices:
        return rng.choice(key.choices)
    if key.keys is not None:
        return {name: drawn(one, rng) for name, one in key.keys.items() if rng.random() < 0.5}
    return {
        "text": word, "texts": [word, "b"], "number": rng.choice([1, 0.5, 1e-9, 2e20]),
        "whole": rng.randint(0, 9), "flag": rng.random() < 0.5, "pair": [word, "b"], "moment": "2026-01-01",
        "bounds": [0.0, -1.5, 1, 2], "steps": rng.choice([3, "30D"]), "files": rng.choice([word, [word]]),
        "any": rng.choice(["last", [1, 2], {"a b": [1, {"c": True}]}]), "numbers": [1, 2.5],
    }[key.type]  # fmt: skip


@pytest.mark.parametrize("seed", range(40))
def test_whatever_is_stated_is_written_and_read_again(seed):
    """The writer and TOML agree, whatever stands in the values; the text is a fixed point."""
    from synthgeo.release_file.text import plain, written

    rng = random.Random(seed)
    values = {"kind": "points"}
    for section, name, key in keys():
        if rng.random() < 0.6:
            (values if section == "" else values.setdefault(section, {}))[name] = drawn(key, rng)
    values["schema"] = {"a b.c": {"type": 'x"y', "bins": [0.0, 1.5]}}
    values["rules"] = [{"check": "a <= b"}, {"depends": {"ö": "b"}, "mapping": {"x y": 1}}]
    text = written(values)
    found = plain(tomllib.loads(text))
    assert {name: value for name, value in values.items() if value != {}} == found
    assert written(found) == text


@pytest.mark.parametrize("seed", range(20))
def test_edits_keep_comments_and_everything_else(seed):
    rng = random.Random(seed)
    text = (EXAMPLES / "points.toml").read_text()
    file = sg.ReleaseFile.loads(text)
    changes = dict(
        rng.sample(
            [
                ("privacy.epsilon", 0.5), ("title", "Another"), ("publish.region", "Zürich"),
                ("data.reading.encoding", "utf-8"), ("method.max_depth", 9), ("engine.spark", "local[2]"),
                ("time.end", None), ("contact", None), ("columns.op", "sign"),
            ],
            4,
        )
    )  # fmt: skip
    edited = file.but(changes)
    for line in text.splitlines():
        if "#" in line and not line.startswith("end"):
            assert line.partition("#")[2] in edited.text
    expected = sg.ReleaseFile.loads(text, path=None)
    for dotted, value in changes.items():
        section, _, name = dotted.rpartition(".")
        table = expected.values
        for part in filter(None, section.split(".")):
            table = table.setdefault(part, {})
        if value is None:
            table.pop(name)
        else:
            table[name] = value
    assert edited.values == expected.values


def test_values_given_beside_the_file_hold(tmp_path):
    path = tmp_path / "release.toml"
    path.write_text(POINTS)
    file = sg.ReleaseFile.load(path, changes={"privacy.epsilon": 3, "method.max_depth": 5})
    assert file.product().budget.epsilon == 3
    assert path.read_text() == POINTS
    with pytest.raises(ConfigError, match="there is no key 'epsilom'"):
        sg.ReleaseFile.load(path, changes={"privacy.epsilom": 3})
    with pytest.raises(ConfigError, match="is a value, not a section"):
        sg.ReleaseFile.load(path, changes={"kind.x": 3})


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "series"])
def test_every_argument_of_a_product_is_a_key_of_its_file(kind):
    """What a constructor can be told, the file can say, but for noise, objects and what follows from others."""
    from synthgeo.release_file.sections import arguments_of, settings_of

    for steps in (False, True):
        product = getattr(sg, class_name(kind, steps=steps))
        said = set(method_keys(kind, steps=steps)) | set(keys_of("columns"))
        said |= {
            "domain",
            "budget",
            "unit",
            "lifetime",
            "reading",
            "noise",
            "ledger",
        }  # sections of their own
        said |= {"schema", "attributes", "parent", "child"}
        objects = {"progress", "partition", "cleaning", "settings", "columns", "tz", "start"}
        assert set(arguments_of(product)) | set(settings_of(product)) <= said | objects

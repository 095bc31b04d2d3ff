"""Schemas: encoding, decoding, policies for bad values, rules, JSON."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import synthgeo as sg
from synthgeo.sources import open_source


def codes_of(schema: sg.Schema, frame: pd.DataFrame) -> np.ndarray:
    return schema.encode(open_source(frame).read(schema.inputs))


@pytest.fixture
def schema() -> sg.Schema:
    city = sg.BoxDomain(0, 0, 4, 2)
    return sg.Schema(
        {
            "age": sg.Numeric(0, 100, bins=20, integer=True, missing=True),
            "sex": sg.Categorical(["F", "M"], missing=True),
            "level": sg.Ordinal([1, 2, 3]),
            "when": sg.DateTime("2020-01-01", "2020-03-01", parts=("month", "day", "hour"), missing=True),
            "place": sg.Location(city, cells=8, missing=True),
            "fare": sg.Numeric(0, 50, bins=[0, 5, 10, 50], outside="clip"),
        }
    )


def rows(n: int, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.integers(0, 101, n).astype(float),
            "sex": rng.choice(["F", "M"], n),
            "level": rng.integers(1, 4, n),
            "when": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.random(n) * 60 * 86400, unit="s"),
            "place_x": rng.random(n) * 4,
            "place_y": rng.random(n) * 2,
            "fare": rng.random(n) * 50,
        }
    )
    frame.loc[0, "age"] = np.nan
    frame.loc[1, "sex"] = None
    frame.loc[2, "when"] = pd.NaT
    frame.loc[3, "place_x"] = np.nan
    return frame


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6))
def test_decoding_then_encoding_gives_the_same_codes(seed: int) -> None:
    city = sg.BoxDomain(0, 0, 4, 2)
    schema = sg.Schema(
        {
            "n": sg.Numeric(-3, 7, bins=6, missing=True),
            "i": sg.Numeric(0, 30, bins=7, integer=True),
            "c": sg.Categorical(["a", "b", True, 3]),
            "t": sg.DateTime("2019-12-30", "2020-01-05", parts=("weekday", "hour")),
            "p": sg.Location(city, cells=16, missing=True),
        }
    )
    rng = np.random.default_rng(seed)
    codes = np.column_stack([rng.integers(0, size, 50) for size in schema.sizes.values()])
    at = list(schema.sizes).index("t.weekday")
    possible = schema.rules[0].allowed[codes[:, at], codes[:, at + 1]] if schema.rules else np.ones(50, bool)
    codes = codes[possible]
    assert np.array_equal(codes_of(schema, schema.decode(codes, rng)), codes)


def test_missing_values_are_a_category(schema: sg.Schema) -> None:
    frame = rows(40)
    codes = codes_of(schema, frame)
    names = list(schema.sizes)
    assert codes[0, names.index("age")] == 20
    assert codes[1, names.index("sex")] == 2
    assert codes[2, names.index("when.month")] == schema.sizes["when.month"] - 1
    assert codes[3, names.index("place")] == 8
    again = schema.decode(codes, np.random.default_rng(1))
    assert again.isna().sum().to_dict() == {
        "age": 1, "sex": 1, "level": 0, "when": 1, "place_x": 1, "place_y": 1, "fare": 0,
    }  # fmt: skip
    assert list(again.columns) == schema.inputs
    assert again["when"].dtype.kind == "M"
    assert again["age"].dropna().between(0, 100).all()


@pytest.mark.parametrize(
    ("column", "row", "value", "says"),
    [
        ("level", 7, 9, "not one of the 3 categories"),
        ("age", 5, 101.0, "outside the bounds"),
        ("when", 6, pd.Timestamp("2021-01-01"), "outside the range"),
        ("place_x", 8, 40.0, "outside the box domain"),
        ("fare", 9, np.nan, "missing"),
    ],
)
def test_bad_values_name_column_and_row_not_the_value(
    schema: sg.Schema, column: str, row: int, value: object, says: str
) -> None:
    frame = rows(20)
    frame.loc[row, column] = value
    with pytest.raises(sg.InputError, match=says) as caught:
        codes_of(schema, frame)
    assert repr(column) in str(caught.value)
    assert f"row {row}" in str(caught.value)
    assert "101" not in str(caught.value)


def test_unseen_categories_go_to_the_public_other_or_are_refused() -> None:
    frame = pd.DataFrame({"c": ["a", "zzz"]})
    strict = sg.Schema({"c": sg.Categorical(["a", "b"])})
    with pytest.raises(sg.InputError, match="row 1"):
        codes_of(strict, frame)
    lenient = sg.Schema({"c": sg.Categorical(["a", "b"], other="b")})
    assert codes_of(lenient, frame).ravel().tolist() == [0, 1]
    with_new = sg.Schema({"c": sg.Categorical(["a", "b"], other="rest")})
    assert with_new.sizes == {"c": 3}
    assert codes_of(with_new, frame).ravel().tolist() == [0, 2]


def test_numbers_and_their_text_are_one_category() -> None:
    """What a file guesses of a column must not matter: 1, 1.0 and "1" are one value."""
    schema = sg.Schema({"c": sg.Categorical(["1", "2"]), "b": sg.Categorical([True, False])})
    for c in ([1, 2], [1.0, 2.0], ["1", "2"], ["1.0", 2]):
        for b in ([True, False], ["true", "False"], [1, 0]):
            assert codes_of(schema, pd.DataFrame({"c": c, "b": b})).tolist() == [[0, 0], [1, 1]]
    assert sg.Categorical([0, 1]).encode("b", {"b": np.array([True, False])}).ravel().tolist() == [1, 0]
    with pytest.raises(sg.ConfigError, match="differ from each other"):
        sg.Categorical([4, "4.0"])


def test_rules_refuse_rows_and_name_the_columns() -> None:
    schema = sg.Schema(
        {"sex": sg.Categorical(["F", "M"]), "pregnant": sg.Categorical([False, True])},
        impossible=[{"sex": "M", "pregnant": True}],
    )
    assert schema.rules[0].allowed.tolist() == [[True, True], [True, False]]
    with pytest.raises(sg.InputError, match="impossible"):
        codes_of(schema, pd.DataFrame({"sex": ["F", "M"], "pregnant": [True, True]}))


def test_functional_dependencies_allow_one_coarse_value_each() -> None:
    schema = sg.Schema(
        {"state": sg.Categorical(["CA", "NY"]), "city": sg.Categorical(["LA", "SF", "NYC"])},
        depends=[("city", "state", {"LA": "CA", "SF": "CA", "NYC": "NY"})],
    )
    assert schema.rules[0].allowed.sum(axis=0).tolist() == [1, 1, 1]
    with pytest.raises(sg.ConfigError, match="leaves out"):
        sg.Schema(schema.columns, depends=[("city", "state", {"LA": "CA"})])


def test_json_round_trip_keeps_every_code(schema: sg.Schema, tmp_path: object) -> None:
    frame = rows(50)
    text = json.dumps(schema.to_json())
    again = sg.Schema.from_json(text)
    assert np.array_equal(codes_of(again, frame), codes_of(schema, frame))
    assert again.fingerprint() == schema.fingerprint()
    path = tmp_path / "schema.json"  # type: ignore[operator]
    schema.save(path)
    assert sg.Schema.from_json(path).fingerprint() == schema.fingerprint()
    with pytest.raises(sg.ConfigError, match="not a schema"):
        sg.Schema.from_json('{"column": 1}')
    with pytest.raises(sg.ConfigError, match="cannot read"):
        sg.Schema.from_json(tmp_path / "none.json")  # type: ignore[operator]


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"type": "numeric", "low": 5, "high": 1}, "low < high"),
        ({"type": "numeric", "low": 0}, "'high' is not given"),
        ({"type": "numeric", "low": 0, "high": 1, "bin": 3}, "bin"),
        ({"type": "categorical", "values": 3}, "list of values"),
        ({"type": "categorial", "values": ["a"]}, "unknown type of column 'categorial'"),
        ({"type": "location", "cells": 8, "domain": {"values": {"kind": "sphere"}}}, "."),
        ({"type": "datetime", "start": "today or so", "end": "2020-01-01"}, "must be times"),
        (["numeric", 0, 1], "not the facts of a column"),
    ],
)
def test_a_wrong_entry_of_a_file_is_named(entry: object, problem: str) -> None:
    columns = {"fine": {"type": "ordinal", "values": [1, 2]}, "fare": entry}
    with pytest.raises(sg.ConfigError, match=f"column 'fare': .*{problem}"):
        sg.Schema.from_json({"columns": columns})


@pytest.mark.parametrize(
    "make",
    [
        lambda: sg.Schema({}),
        lambda: sg.Categorical([]),
        lambda: sg.Categorical("abc"),
        lambda: sg.Categorical(["a", "a"]),
        lambda: sg.Numeric(1, 1),
        lambda: sg.Numeric(0, 1, bins=0),
        lambda: sg.Numeric(0, 1, bins=[0, 2]),
        lambda: sg.Numeric(0, 1, bins="best"),
        lambda: sg.Numeric(0, 1, outside="drop"),
        lambda: sg.DateTime("2020-01-02", "2020-01-01"),
        lambda: sg.DateTime("2020-01-01", "2020-01-02", parts=("second",)),
        lambda: sg.Location(sg.BoxDomain(0, 0, 1, 1), cells=3),
        lambda: sg.Schema({"a": sg.Categorical(["x"])}, impossible=[{"a": "x"}]),
        lambda: sg.Schema({"a": sg.Categorical(["x"])}, impossible=[{"a": "x", "b": 1}]),
    ],
)
def test_settings_that_make_no_sense_are_refused(make: object) -> None:
    with pytest.raises(sg.ConfigError):
        make()  # type: ignore[operator]


def test_automatic_bins_have_to_be_found_first() -> None:
    schema = sg.Schema({"x": sg.Numeric(0, 1, bins="auto")})
    assert schema.pending_bins == ["x"]
    with pytest.raises(sg.ConfigError, match="bins='auto'"):
        _ = schema.attributes


def test_the_frame_is_left_alone(schema: sg.Schema) -> None:
    frame = rows(30)
    before = frame.copy(deep=True)
    codes_of(schema, frame)
    pd.testing.assert_frame_equal(frame, before)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"imposible": []}, "unknown key 'imposible'"),
        ({"columns": [1]}, "maps names to facts"),
        ({"impossible": "x"}, "must be a list"),
        ({"impossible": [["a", "x"]]}, "maps columns to values"),
        ({"impossible": [{"a": "x", "b": {"range": 5}}]}, "a range in a rule is"),
        ({"depends": [5]}, "an entry of depends"),
        ({"relations": 5}, "must be a list"),
        ({"relations": [{}]}, "relation"),
    ],
)
def test_rules_of_the_wrong_shape_get_a_line(wrong, says):
    facts = {
        "columns": {
            "a": {"type": "categorical", "values": ["x", "y"]},
            "b": {"type": "ordinal", "values": [1, 2]},
        }
    }
    sg.Schema.from_json({**facts, "comment": "from the registry of 2026"})
    with pytest.raises(sg.ConfigError, match=says) as caught:
        sg.Schema.from_json({**facts, **wrong})
    assert "\n" not in str(caught.value)
    assert "Error" not in str(caught.value)


@pytest.mark.parametrize("kind", ["bool", "int8", "uint8", "int16", "int64", "uint64"])
def test_codes_of_whole_numbers_do_not_depend_on_how_they_are_held(kind: str) -> None:
    """Numbers close together are looked up in an array: the codes are those of their texts, one by one."""
    rng = np.random.default_rng(3)
    low, high = (0, 2) if kind == "bool" else (np.iinfo(kind).min, np.iinfo(kind).max)
    for least, most in (
        (0, 2),
        (0, 8),
        (max(low, -3), 5),
        (max(low, -128), min(high, 127)),
        (high - 9, high),
    ):
        values = rng.integers(least, most, 500, dtype=np.uint64 if least > 2**62 else np.int64).astype(kind)
        column = sg.Categorical([*range(-3, 6), int(most) - 1 if most > 6 else "seven", True], other="rest")
        texts = np.array([str(value) for value in values.tolist()], dtype=object)
        texts = np.where(texts == "True", "true", np.where(texts == "False", "false", texts)).astype(object)
        schema = sg.Schema({"a": column})
        expected = codes_of(schema, pd.DataFrame({"a": texts}))
        for given_values in (values, np.ma.masked_array(values, mask=False)):
            assert np.array_equal(schema.encode({"a": given_values}), expected)
        narrow = schema.encode({"a": values}, narrow=True)
        assert narrow.dtype == np.uint8
        assert np.array_equal(narrow, expected)
    holes = sg.Schema({"a": sg.Categorical([0, 1], missing=True)})
    found = holes.encode({"a": np.ma.masked_array(np.array([1, 0, 1], kind), mask=[False, True, False])})
    assert found.ravel().tolist() == [1, 2, 1]

"""Checks of parameters: what passes comes back converted, what does not says its name and the value."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from synthgeo import validate
from synthgeo.errors import ConfigError

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("check", "options", "value", "returns"),
    [
        (validate.whole, {}, -3, -3),
        (validate.whole, {"low": 1}, np.int64(1), 1),
        (validate.whole, {"low": 1, "high": 4}, 4, 4),
        (validate.whole, {"low": 1}, 2**63 - 1, 2**63 - 1),
        (validate.whole, {"high": None}, 2**100, 2**100),
        (validate.rows, {}, 0, 0),
        (validate.finite, {}, np.float32(0.5), 0.5),
        (validate.finite, {"low": 0, "high": 1}, 1, 1.0),
        (validate.positive, {}, 3, 3.0),
        (validate.non_negative, {}, 0, 0.0),
        (validate.share, {}, 0.5, 0.5),
        (validate.share, {"zero": True}, 0, 0.0),
        (validate.share, {"one": True}, 1, 1.0),
        (validate.one_of, {"choices": ("a", "b")}, "b", "b"),
        (validate.text, {}, "id", "id"),
        (validate.flag, {}, np.True_, True),
        (validate.rising, {"least": 2}, [1, 2.5], (1.0, 2.5)),
    ],
)
def test_good_values_come_back_converted(check, options, value, returns):
    got = check(value, "x", **options)
    assert got == returns
    assert type(got) is type(returns)


@pytest.mark.parametrize(
    ("check", "options", "what", "bad"),
    [
        (validate.whole, {}, "a whole number", [1.0, True, "1", None, NAN]),
        (validate.whole, {"low": 1}, "a whole number >= 1", [0, -1]),
        (validate.whole, {"high": 9}, "a whole number <= 9", [10]),
        (validate.whole, {"low": 1, "high": 4}, "a whole number from 1 to 4", [0, 5]),
        (
            validate.whole,
            {"low": 1},
            "a whole number from 1 to 9223372036854775807",
            [2**63, np.uint64(2**63)],
        ),
        (validate.rows, {"low": 1}, "a whole number from 1 to 1099511627776", [0, 2**63]),
        (validate.finite, {}, "a finite number", [NAN, INF, True, "1", None, 1j]),
        (validate.finite, {"low": 0.5}, "a finite number >= 0.5", [0.4]),
        (validate.positive, {}, "a finite number > 0", [0, -1, NAN, INF, True, "1"]),
        (validate.non_negative, {}, "a finite number >= 0", [-1e-9, NAN]),
        (validate.share, {}, "a number in (0, 1)", [0, 1, NAN, True, "0.5"]),
        (validate.share, {"zero": True}, "a number in [0, 1)", [1, -0.1, False]),
        (validate.share, {"zero": True, "one": True}, "a number in [0, 1]", [1.1]),
        (validate.one_of, {"choices": ("a", "b", "c")}, "'a', 'b' or 'c'", ["d", None, 1]),
        (validate.one_of, {"choices": (1, 2)}, "1 or 2", [True, 1.0]),
        (validate.text, {}, "a text", ["", 1, None]),
        (validate.flag, {}, "True or False", [1, "yes", None]),
        (
            validate.rising,
            {"least": 2},
            "at least 2 finite numbers in rising order",
            [[1], [2, 1], [0, NAN], 3],
        ),
    ],
)
def test_bad_values_are_refused_with_name_and_value(check, options, what, bad):
    for value in bad:
        with pytest.raises(ConfigError, match=re.escape(f"x must be {what}, got {value!r}")):
            check(value, "x", **options)


def test_instances_are_named_by_their_types():
    assert validate.instance(3, "x", str, int) == 3
    with pytest.raises(ConfigError, match=re.escape("x must be a str or int, got 3.5")):
        validate.instance(3.5, "x", str, int)


def test_messages_show_no_rows_of_data():
    private = pd.DataFrame({"home": [48.137154]})
    for value in (private, [private], private.to_numpy(), list(range(100))):
        with pytest.raises(ConfigError) as refused:
            validate.whole(value, "rounds")
        assert "48.1" not in str(refused.value)
        assert len(str(refused.value)) < 100


def test_together():
    validate.together(a=1, b=2)
    validate.together(a=None, b=None)
    with pytest.raises(ConfigError, match="give a and b together, or neither"):
        validate.together(a=1, b=None)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (10**400, "a number of 401 digits"),
        (-(10**400), "a number of 401 digits"),
        (10**5000, "a number of thousands of digits"),
        ((1, 10**5000), "a number of thousands of digits"),
    ],
    ids=range(4),
)
def test_a_number_of_hundreds_of_digits_is_not_written_out(value, text):
    assert validate.shown(value) == text


def test_no_more_is_drawn_than_memory_holds(monkeypatch):
    monkeypatch.setattr(validate, "_memory", lambda: 800)
    assert validate.drawn(100, "n", each=8) == 100
    with pytest.raises(ConfigError, match=r"n must be at most 100, for which this machine has memory"):
        validate.drawn(101, "n", each=8)
    monkeypatch.undo()
    assert validate._memory() > 2**20
    monkeypatch.delattr("os.sysconf")
    assert validate._memory() == validate.LARGEST

"""A few pairs of the campaign of hostile files and readers; ``make hostile`` runs all of them."""

from __future__ import annotations

import pytest

from tools.fuzz import Target
from tools.hostile import FAMILIES, MARK, attempt, campaign

pytestmark = pytest.mark.slow


def test_there_are_a_hundred_files():
    assert sum(1 for family in FAMILIES for _ in family()) >= 100


def test_hostile_files_break_no_reader():
    pairs = list(campaign(37, seconds=60))
    assert len(pairs) > 10
    assert ("deep shapes", "parquet") in [pair[:2] for pair in pairs]
    assert [pair for pair in pairs if pair[2].problem is not None] == []


@pytest.mark.parametrize(
    ("load", "said"),
    [
        (lambda _: bytearray(1 << 30).extend(b"1" * (1 << 28)), "MB"),
        (lambda _: print(MARK), "a value is said"),
        (lambda _: [].pop(), "IndexError"),
        (lambda _: __import__("os").abort(), "the process ended"),
    ],
    ids=["memory", "value", "raw error", "crash"],
)
def test_a_bad_reader_is_noticed(load, said, tmp_path):
    assert said in attempt(Target("twin", ".txt", lambda: b"", load), b"1", tmp_path).problem

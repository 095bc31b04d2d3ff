"""Ragged arrays against plain lists of lists."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from synthgeo import ragged
from synthgeo.ragged import Ragged

ROWS = st.lists(st.lists(st.integers(-50, 50), max_size=5), max_size=8)


@given(ROWS)
def test_rows_come_back(rows):
    made = Ragged.from_rows(rows)
    assert [row.tolist() for row in made] == rows
    assert made.lengths.tolist() == [len(row) for row in rows]
    assert made.owners.tolist() == [i for i, row in enumerate(rows) for _ in row]
    assert ragged.ranks_of(made.lengths).tolist() == [i for row in rows for i, _ in enumerate(row)]
    assert ragged.offsets_of_owners(made.owners, len(rows)).tolist() == made.offsets.tolist()
    assert ragged.starts_of(made.lengths).tolist() == made.offsets[:-1].tolist()


@given(ROWS)
def test_sums_and_extremes_of_rows_that_may_be_empty(rows):
    made = Ragged.from_rows(rows)
    assert made.sums().tolist() == [sum(row) for row in rows]
    assert ragged.minima(made.values, made.offsets, 99).tolist() == [min(row, default=99) for row in rows]
    assert ragged.maxima(made.values, made.offsets, -99).tolist() == [max(row, default=-99) for row in rows]


@given(ROWS, st.data())
def test_take_where_and_concatenate(rows, data):
    made = Ragged.from_rows(rows)
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=9)) if rows else []
    taken = made.take(np.array(chosen, dtype=np.int64))
    assert [row.tolist() for row in taken] == [rows[i] for i in chosen]
    mask = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    taken = made.take(np.array(mask, dtype=bool))
    assert [row.tolist() for row in taken] == [row for row, kept in zip(rows, mask, strict=True) if kept]
    even = made.where(made.values % 2 == 0)
    assert [row.tolist() for row in even] == [[v for v in row if v % 2 == 0] for row in rows]
    both = Ragged.concatenate([made, even])
    assert [row.tolist() for row in both] == rows + [row.tolist() for row in even]


@given(ROWS)
def test_running_sums_start_at_zero_in_each_row(rows):
    made = Ragged.from_rows(rows, dtype=np.float64)
    expected = [total - row[0] for row in rows for total in np.cumsum(row)]
    np.testing.assert_allclose(ragged.running(made.values, made.offsets), expected)


def test_sums_keep_the_other_axes():
    values = np.arange(8.0).reshape(4, 2)
    assert ragged.sums(values, ragged.offsets_of([1, 0, 3])).tolist() == [[0, 1], [0, 0], [12, 15]]


def test_lengths_must_fit_and_rows_must_exist():
    with pytest.raises(AssertionError, match="3 values for rows of 2"):
        Ragged.from_lengths(np.arange(3), [1, 1])
    with pytest.raises(IndexError):
        Ragged.from_rows([[1]])[1]
    assert repr(Ragged.from_rows([[1, 2], []])) == "Ragged(2 rows, 2 values of int64)"
